//! Each operation alone: what arrives, what completes, and when.

use super::*;
use crate::completion::CompletionFlags;
use crate::ddp::{Tagged, Untagged};
use crate::rdmap::{READ_QUEUE, ReadRequest, SEND_QUEUE};
use ironwarp_mem::AccessScope;

/// A whole untagged message in one segment: control octets, the tag to invalidate, queue, number,
/// offset 0, payload.
fn raw_segment(ulp: u8, word: u32, (qn, msn): (u8, u8), payload: &[u8]) -> Vec<u8> {
    let place = [0, 0, 0, qn, 0, 0, 0, msn, 0, 0, 0, 0];
    framed(&[&[0x41, ulp], &word.to_be_bytes()[..], &place, payload].concat())
}

#[test]
fn a_send_fills_the_oldest_receive_and_completes_when_acknowledged() {
    let (mut a, mut b) = pair();
    let (source, sink) = (a.filled(5000, EVERYTHING), b.region(6000, EVERYTHING));
    b.receive(7, &[all(&sink)]);
    a.send(3, &[all(&source)]);
    for unit in a.pull_all(SEGMENT_BYTES) {
        b.feed(&unit).unwrap();
    }
    assert_eq!(Endpoint::bytes(&sink)[..5000], pattern(5000));
    let received = b.log.receives[0];
    assert_eq!((received.wr_id, received.byte_len, received.status), (7, 5000, OK));
    assert_eq!((received.qp, received.opcode), (QpNum(1), CompletionOpcode::Receive));
    assert!(a.log.sends.is_empty(), "not acknowledged yet");
    a.ack_all();
    let sent = a.log.sends[0];
    assert_eq!((sent.wr_id, sent.byte_len, sent.opcode), (3, 5000, CompletionOpcode::Send));
}

/// RFC 5041 s5.4.
#[test]
fn a_send_completes_when_its_last_byte_is_acknowledged() {
    let mut a = Endpoint::initiator();
    let source = a.filled(2000, EVERYTHING);
    a.send(1, &[all(&source)]);
    assert_eq!(a.pull_all(SEGMENT_BYTES).len(), 2);
    let total = a.pulled;
    a.with(|stream, io| stream.on_acked(total - 1, io));
    assert!(a.log.sends.is_empty());
    a.with(|stream, io| stream.on_acked(total, io));
    assert_eq!(ids(&a.log.sends), [(1, OK)]);
}

/// The start-up frame counts among the octets that TCP acknowledges.
#[test]
fn octets_of_start_up_do_not_complete_requests() {
    let mut a = Endpoint::idle(config());
    a.with(|stream, io| stream.on_acked(20, io));
    a.stream.start(StreamStart { startup_bytes_sent: 20, ..StreamStart::plain(Role::Initiator, true) });
    a.send_inline(1, b"x");
    let unit = a.pull(SEGMENT_BYTES).len() as u64;
    a.with(|stream, io| stream.on_acked(20 + unit - 1, io));
    assert!(a.log.sends.is_empty());
    a.with(|stream, io| stream.on_acked(20 + unit, io));
    assert_eq!(ids(&a.log.sends), [(1, OK)]);
}

/// RFC 5040 s5.3: a Send with Solicited Event sets the flag of the completion.
#[test]
fn a_solicited_send_sets_the_flag_of_the_completion() {
    let (mut a, mut b) = pair();
    let sink = b.region(8, EVERYTHING);
    b.receive(1, &[all(&sink)]);
    b.receive(2, &[all(&sink)]);
    a.post(1, SendOpcode::SendSolicited, |wqe| wqe.set_inline(b"ring"));
    a.send_inline(2, b"none");
    run(&mut a, &mut b);
    let flags: Vec<_> = b.log.receives.iter().map(|completion| completion.flags).collect();
    assert_eq!(flags, [CompletionFlags::SOLICITED, CompletionFlags::empty()]);
}

/// RFC 5044 s4.4, figure 5, without its marker: the FPDU of a Send of 24 zero octets.
/// RFC 5040 s3.1, s4.1 and s5.3; RFC 5041 s4.3.
#[test]
fn a_send_has_the_octets_of_the_rfc_example() {
    let mut a = Endpoint::initiator();
    a.send_inline(1, &[0; 24]);
    let mut expected = vec![0x00, 0x2a, 0x41, 0x43, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0];
    expected.extend([0; 24]);
    expected.extend(ironwarp_arch::crc32c(&expected).to_le_bytes());
    assert_eq!(a.pull(SEGMENT_BYTES), expected);
}

/// RFC 5040 s4.1: octets 2 to 5 are the tag to invalidate, its most significant octet first.
#[test]
fn a_send_with_invalidate_has_the_specified_octets() {
    for (opcode, ulp) in [(SendOpcode::SendInvalidate, 0x44), (SendOpcode::SendSolicitedInvalidate, 0x46)] {
        let mut a = Endpoint::initiator();
        a.post(1, opcode, |wqe| {
            wqe.set_inline(b"done");
            wqe.remote_stag = STag(0x0102_0304);
        });
        let mut expected = vec![0x00, 0x16, 0x41, ulp, 1, 2, 3, 4, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0];
        expected.extend(b"done");
        expected.extend(ironwarp_arch::crc32c(&expected).to_le_bytes());
        assert_eq!(a.pull(SEGMENT_BYTES), expected);
    }
}

/// RFC 5040 s4.1: the same octets, received.
#[test]
fn the_specified_octets_of_a_send_with_invalidate_are_accepted() {
    for (ulp, solicited) in [(0x44, false), (0x46, true)] {
        let mut b = Endpoint::responder();
        let own = b
            .table
            .register_in_scope(AccessScope::new(PD, QpNum(1)), vec![0u8; 8], Access::REMOTE_READ)
            .unwrap();
        let inbox = b.region(4, EVERYTHING);
        b.receive(7, &[all(&inbox)]);
        b.feed(&raw_segment(ulp, own.stag().0, (0, 1), b"done")).unwrap();
        let received = b.log.receives[0];
        assert_eq!((received.wr_id, received.status, received.invalidated), (7, OK, own.stag()));
        assert_eq!(received.flags.contains(CompletionFlags::SOLICITED), solicited);
        assert_eq!(Endpoint::bytes(&inbox), b"done");
        let scope = AccessScope::new(PD, QpNum(1));
        assert!(b.memory.resolve(own.stag(), scope, own.base_to(), 1, Access::REMOTE_READ).is_err());
    }
}

/// RFC 5041 s4.3: the field for RDMAP is the same in each segment of a message.
#[test]
fn every_segment_of_a_send_carries_the_same_tag_to_invalidate() {
    for (opcode, ulp) in [
        (SendOpcode::Send, [0x43, 0, 0, 0, 0]),
        (SendOpcode::SendSolicited, [0x45, 0, 0, 0, 0]),
        (SendOpcode::SendInvalidate, [0x44, 1, 2, 3, 4]),
        (SendOpcode::SendSolicitedInvalidate, [0x46, 1, 2, 3, 4]),
    ] {
        let mut a = Endpoint::initiator();
        let source = a.filled(4000, EVERYTHING);
        a.post(1, opcode, |wqe| at_remote(wqe, &[all(&source)], (STag(0x0102_0304), 0)));
        let segments: Vec<_> = a.pull_all(SEGMENT_BYTES).iter().flat_map(|unit| ulpdus(unit)).collect();
        assert_eq!(segments.iter().map(|ulpdu| ulpdu[0]).collect::<Vec<_>>(), [0x01, 0x01, 0x41]);
        assert!(segments.iter().all(|ulpdu| ulpdu[1..6] == ulp));
    }
}

/// RFC 5041 s4.3: message number 0 follows 0xffffffff, on each queue separately.
#[test]
fn sent_message_numbers_wrap() {
    let mut a = Endpoint::initiator();
    let sink = a.region(8, EVERYTHING);
    *a.stream.sender.msn(SEND_QUEUE) = u32::MAX - 1;
    *a.stream.sender.msn(READ_QUEUE) = u32::MAX;
    (1..=4).for_each(|id| a.send_inline(id, b"x"));
    (5..=7).for_each(|id| a.read(id, all(&sink), (STag(1), 0)));
    let sent = ulpdus(&a.pull(SEGMENT_BYTES));
    let next_msns: Vec<_> = sent.iter().map(|ulpdu| (ulpdu[9], &ulpdu[10..14])).collect();
    let number = |qn, msn: u32| (qn, msn.to_be_bytes());
    let expected = [
        number(0, 0xffff_fffe),
        number(0, 0xffff_ffff),
        number(0, 0),
        number(0, 1),
        number(1, 0xffff_ffff),
        number(1, 0),
        number(1, 1),
    ];
    assert_eq!(next_msns, expected.each_ref().map(|(qn, msn)| (*qn, &msn[..])));
}

/// RFC 5040 s4.1: messages that invalidate nothing ignore the field for a tag, whether it holds a
/// valid tag or an unknown one.
#[test]
fn other_messages_ignore_the_tag_field() {
    for is_own in [true, false] {
        let mut b = Endpoint::responder();
        let own = b
            .table
            .register_in_scope(AccessScope::new(PD, QpNum(1)), pattern(8), Access::REMOTE_READ)
            .unwrap();
        let tag = if is_own { own.stag().0 } else { !own.stag().0 };
        let inbox = b.region(4, EVERYTHING);
        (1..=2).for_each(|id| b.receive(id, &[all(&inbox)]));
        b.feed(&raw_segment(0x43, tag, (0, 1), b"none")).unwrap();
        b.feed(&raw_segment(0x45, tag, (0, 2), b"ring")).unwrap();
        assert_eq!(ids(&b.log.receives), [(1, OK), (2, OK)]);
        let flags: Vec<_> = b.log.receives.iter().map(|received| received.flags).collect();
        assert_eq!(flags, [CompletionFlags::empty(), CompletionFlags::SOLICITED]);
        let (source_stag, source_to) = remote(&own);
        let request = ReadRequest { sink_stag: STag(3), sink_to: 4, bytes: 8, source_stag, source_to };
        b.feed(&raw_segment(0x41, tag, (1, 1), &request.encode())).unwrap();
        assert_eq!(ulpdus(&b.pull(SEGMENT_BYTES))[0][14..], pattern(8), "the region is still valid");
        let terminate = Terminate { layer: 1, etype: 2, code: 2 };
        let end = b.feed(&raw_segment(0x47, tag, (2, 1), &[0x12, 2, 0, 0]));
        assert_eq!(end, Err(StreamError::PeerTerminated(terminate)));
        assert_eq!(b.counted(Counter::IwarpRxInvalidates), 0);
    }
}

/// RFC 5040 s5.1: a valid Write is not delivered to the peer's application.
/// RFC 5040 s3.2; RFC 5041 s4.1 and s4.2.
#[test]
fn a_write_is_placed_without_a_completion_at_the_peer() {
    let (mut a, mut b) = pair();
    let (source, target) = (a.filled(4000, EVERYTHING), b.region(5000, EVERYTHING));
    let (stag, to) = remote(&target);
    a.write(1, &[all(&source)], (stag, to + 500));
    run(&mut a, &mut b);
    assert_eq!(Endpoint::bytes(&target)[500..4500], pattern(4000));
    assert!(
        Endpoint::bytes(&target)[..500]
            .iter()
            .chain(&Endpoint::bytes(&target)[4500..])
            .all(|&byte| byte == 0)
    );
    assert!(b.log.receives.is_empty() && b.log.sends.is_empty());
    assert_eq!((a.log.sends[0].opcode, a.log.sends[0].byte_len), (CompletionOpcode::Write, 4000));
    assert_eq!(b.counted(Counter::IwarpRxWrites), 1);
}

/// RFC 5041 s5.2: the offset of a segment is the offset of the message plus that of its payload.
/// Only the last has L set. RFC 5040 s3.1 and s5.1; RFC 5041 s4.1, s4.2 and s5.3.
#[test]
fn each_segment_of_a_write_continues_the_previous_one() {
    let mut a = Endpoint::initiator();
    let source = a.filled(3000, EVERYTHING);
    a.write(1, &[all(&source)], (STag(5), 16_384));
    // MULPDU is 1442, of which 14 are the header.
    let headers: Vec<_> = a.pull_all(SEGMENT_BYTES).iter().map(|unit| unit[2..16].to_vec()).collect();
    let expected = [(0x81, 16_384u64), (0x81, 16_384 + 1428), (0xc1, 16_384 + 2856)]
        .map(|(control, to)| [&[control, 0x40, 0, 0, 0, 5], &to.to_be_bytes()[..]].concat());
    assert_eq!(headers, expected);
}

/// RFC 5040 s3.2, s5.2, s5.2.1 and s5.2.2.
#[test]
fn a_read_returns_the_peers_memory() {
    let (mut a, mut b) = pair();
    let (sink, source) = (a.region(10_000, Access::LOCAL_WRITE), b.filled(10_000, Access::REMOTE_READ));
    a.read(9, all(&sink), remote(&source));
    run(&mut a, &mut b);
    assert_eq!(Endpoint::bytes(&sink), pattern(10_000));
    let read = a.log.sends[0];
    assert_eq!(
        (read.wr_id, read.opcode, read.byte_len, read.status),
        (9, CompletionOpcode::Read, 10_000, OK)
    );
    assert!(b.log.sends.is_empty() && b.log.receives.is_empty());
}

/// RFC 5040 s5.2.1 and RFC 5041 s5.2: a Read of no bytes needs neither a valid steering tag nor a
/// valid offset, on either side. Some initiators start every connection with one.
#[test]
fn an_empty_read_needs_no_memory_at_all() {
    let (mut a, mut b) = pair();
    a.read(1, Sge { addr: 0, len: 0, lkey: STag(1) }, (STag(1), 0));
    run(&mut a, &mut b);
    assert_eq!(ids(&a.log.sends), [(1, OK)]);
    assert_eq!((a.stream.state(), b.stream.state()), (StreamState::Open, StreamState::Open));
}

/// RFC 5040 s4.4: a Read asks for up to 2^32 - 1 octets, twice as many as a Read of ours.
#[test]
fn a_read_of_the_largest_size_is_answered() {
    for bytes in [(1 << 30) + 1, (1 << 31) + 1, u32::MAX] {
        let mut b = Endpoint::responder();
        // Pages of zeros are mapped as they are read, so the source takes addresses and hardly any
        // memory.
        let source = b.region(bytes as usize, EVERYTHING);
        let (source_stag, source_to) = (source.stag(), source.base_to());
        let request = ReadRequest { sink_stag: STag(3), sink_to: 4, bytes, source_stag, source_to };
        let mut ulpdu = vec![0; 18];
        Untagged { last: true, ulp: 0x41, ulp_word: 0, qn: 1, msn: 1, mo: 0 }.encode(&mut ulpdu);
        ulpdu.extend(request.encode());
        b.feed(&framed(&ulpdu)).unwrap();
        let first = ulpdus(&b.pull(SEGMENT_BYTES)).remove(0);
        let mut header = [0; 14];
        Tagged { last: false, ulp: 0x42, stag: STag(3), tagged_offset: 4 }.encode(&mut header);
        assert_eq!(first[..14], header, "{bytes} octets");
        assert_eq!(b.stream.state(), StreamState::Open);
    }
}

/// RFC 5041 s5.2: an empty message is one segment, whose steering tag and offset are not checked.
/// RFC 5040 s5.1.
#[test]
fn an_empty_write_needs_no_memory_at_all() {
    let (mut a, mut b) = pair();
    a.write(1, &[], (STag(0xdead), u64::MAX));
    run(&mut a, &mut b);
    assert_eq!(ids(&a.log.sends), [(1, OK)]);
    assert_eq!(b.counted(Counter::IwarpRxWrites), 1);
}

/// RFC 5040 s5.3: an empty Send consumes a receive.
#[test]
fn an_empty_send_consumes_a_receive() {
    let (mut a, mut b) = pair();
    b.receive(4, &[]);
    a.send(1, &[]);
    run(&mut a, &mut b);
    assert_eq!(ids(&b.log.receives), [(4, OK)]);
    assert_eq!(b.log.receives[0].byte_len, 0);
}

#[test]
fn messages_are_gathered_and_scattered_across_elements() {
    let (mut a, mut b) = pair();
    let (source, sink) = (a.filled(4000, EVERYTHING), b.region(4000, EVERYTHING));
    let piece = |region: &Region, at, len| region.slice(at, len).unwrap();
    b.receive(1, &[piece(&sink, 3000, 1000), piece(&sink, 0, 0), piece(&sink, 0, 2500)]);
    a.send(
        1,
        &[piece(&source, 0, 1), piece(&source, 1, 0), piece(&source, 1, 1998), piece(&source, 1999, 1001)],
    );
    run(&mut a, &mut b);
    assert_eq!(b.log.receives[0].byte_len, 3000);
    assert_eq!(Endpoint::bytes(&sink)[3000..], pattern(3000)[..1000]);
    assert_eq!(Endpoint::bytes(&sink)[..2000], pattern(3000)[1000..]);
}

#[test]
fn inline_bytes_are_copied_when_they_are_posted() {
    let (mut a, mut b) = pair();
    let (sink, target) = (b.region(256, EVERYTHING), b.region(256, EVERYTHING));
    b.receive(1, &[all(&sink)]);
    a.send_inline(1, &pattern(256));
    a.post(2, SendOpcode::Write, |wqe| {
        wqe.set_inline(&pattern(100));
        (wqe.remote_stag, wqe.remote_to) = remote(&target);
    });
    for unit in a.pull_all(200) {
        b.feed(&unit).unwrap();
    }
    assert_eq!(Endpoint::bytes(&sink), pattern(256));
    assert_eq!(Endpoint::bytes(&target)[..100], pattern(100));
}

/// The side counter of the ring reports success without a completion.
#[test]
fn unsignalled_sends_produce_no_completion() {
    let (mut a, mut b) = pair();
    let target = b.region(8, EVERYTHING);
    for wr_id in 0..3 {
        a.post(wr_id, SendOpcode::Write, |wqe| {
            at_remote(wqe, &[], remote(&target));
            wqe.flags = if wr_id == 2 { SendFlags::SIGNALED } else { SendFlags::empty() };
        });
    }
    run(&mut a, &mut b);
    assert_eq!(ids(&a.log.sends), [(2, OK)]);
    assert_eq!((a.sq.claim_unsignaled(), a.sends.head()), (2, 3));
}

#[test]
fn completing_on_copy_waits_for_no_acknowledgement() {
    let mut a = Endpoint::started(StreamConfig { complete_on_copy: true, ..config() }, Role::Initiator, true);
    let source = a.filled(2000, EVERYTHING);
    a.send(1, &[all(&source)]);
    a.pull(SEGMENT_BYTES);
    assert!(a.log.sends.is_empty(), "half of it is still to be copied");
    a.pull(SEGMENT_BYTES);
    assert_eq!(ids(&a.log.sends), [(1, OK)]);
}

/// RFC 5044 s4.1: with CRCs off the field is still present.
#[test]
fn without_crc_nothing_is_checked() {
    let mut a = Endpoint::started(config(), Role::Initiator, false);
    let mut b = Endpoint::started(config(), Role::Responder, false);
    let sink = b.region(4, EVERYTHING);
    b.receive(1, &[all(&sink)]);
    a.send_inline(1, b"word");
    let mut unit = a.pull(SEGMENT_BYTES);
    let field = unit.len() - 4;
    assert_eq!(unit[field..], [0; 4]);
    unit[field] = 0x99;
    b.feed(&unit).unwrap();
    assert_eq!(Endpoint::bytes(&sink), b"word");
}

#[test]
fn a_stream_is_drained_when_all_requests_are_acknowledged_and_answered() {
    let (mut a, mut b) = pair();
    let source = b.filled(64, EVERYTHING);
    let sink = a.region(64, EVERYTHING);
    a.read(1, all(&sink), remote(&source));
    assert!(!a.with(|stream, io| stream.is_drained(io)));
    let request = a.pull(SEGMENT_BYTES);
    b.feed(&request).unwrap();
    assert!(!b.with(|stream, io| stream.is_drained(io)), "a response is pending");
    run(&mut a, &mut b);
    assert!(a.with(|stream, io| stream.is_drained(io)));
    assert!(b.with(|stream, io| stream.is_drained(io)));
}
