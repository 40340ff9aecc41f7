//! The order of transmission: what is sent first, what waits, what shares a segment.

use super::*;

fn opcodes(units: &[Vec<u8>]) -> Vec<u8> {
    units.iter().flat_map(|unit| ulpdus(unit)).map(|ulpdu| ulpdu[1] & 0x0f).collect()
}

const WRITE: u8 = 0;
const READ_REQUEST: u8 = 1;
const READ_RESPONSE: u8 = 2;
const SEND: u8 = 3;

/// A side with `reads` pending responses of `bytes` octets each.
fn with_pending_responses(config: StreamConfig, reads: usize, bytes: usize) -> (Endpoint, Region) {
    let mut asker = Endpoint::initiator();
    let mut side = Endpoint::started(config, Role::Responder, true);
    let source = side.filled(bytes, EVERYTHING);
    let sink = asker.region(bytes, EVERYTHING);
    for wr_id in 0..reads as u64 {
        asker.read(wr_id, all(&sink), remote(&source));
    }
    for unit in asker.pull_all(SEGMENT_BYTES) {
        side.feed(&unit).unwrap();
    }
    (side, source)
}

/// RFC 5044 s7.1.2, rule 4: a responder sends no FPDU before the initiator's first. Its requests
/// wait and do not fail.
#[test]
fn a_responder_waits_for_the_first_fpdu() {
    let (mut a, mut b) = pair();
    let sink = a.region(8, EVERYTHING);
    a.receive(1, &[all(&sink)]);
    b.send_inline(1, b"early");
    assert!(!b.with(|stream, io| stream.wants_tx(io)));
    assert!(b.pull(SEGMENT_BYTES).is_empty());
    a.write(1, &[], (STag(1), 0));
    let first = a.pull(SEGMENT_BYTES);
    b.feed(&first[..first.len() - 1]).unwrap();
    assert!(b.pull(SEGMENT_BYTES).is_empty(), "the FPDU is not whole yet");
    b.feed(&first[first.len() - 1..]).unwrap();
    assert!(b.with(|stream, io| stream.wants_tx(io)));
    run(&mut a, &mut b);
    assert_eq!(ids(&a.log.receives), [(1, OK)]);
    assert_eq!(ids(&b.log.sends), [(1, OK)]);
}

/// RFC 5041 s6.1; RFC 5044 s7.1.
#[test]
fn nothing_is_sent_before_the_stream_has_started() {
    let mut a = Endpoint::idle(config());
    a.send_inline(1, b"x");
    assert!(!a.with(|stream, io| stream.wants_tx(io)));
    assert!(a.pull(SEGMENT_BYTES).is_empty());
}

/// RFC 5040 s5.5, rule 15: completions come in the order of posting.
#[test]
fn acknowledged_sends_complete_after_an_earlier_read() {
    let (mut a, mut b) = pair();
    let (sink, source) = (a.region(64, EVERYTHING), b.filled(64, EVERYTHING));
    b.receive(1, &[all(&source)]);
    a.read(1, all(&sink), remote(&source));
    a.send_inline(2, b"behind");
    for unit in a.pull_all(SEGMENT_BYTES) {
        b.feed(&unit).unwrap();
    }
    a.ack_all();
    assert!(a.log.sends.is_empty());
    let response = b.pull(SEGMENT_BYTES);
    a.feed(&response).unwrap();
    assert_eq!(ids(&a.log.sends), [(1, OK), (2, OK)]);
}

/// The response to a Read may arrive before the acknowledgement of an earlier Send.
#[test]
fn an_answered_read_completes_after_an_earlier_send() {
    let (mut a, mut b) = pair();
    let (sink, source) = (a.region(64, EVERYTHING), b.filled(64, EVERYTHING));
    b.receive(1, &[all(&source)]);
    a.send_inline(1, b"before");
    a.read(2, all(&sink), remote(&source));
    for unit in a.pull_all(SEGMENT_BYTES) {
        b.feed(&unit).unwrap();
    }
    let response = b.pull(SEGMENT_BYTES);
    a.feed(&response).unwrap();
    assert!(a.log.sends.is_empty());
    a.ack_all();
    assert_eq!(ids(&a.log.sends), [(1, OK), (2, OK)]);
}

/// RFC 5040 s6.1: at most ORD Reads are outstanding.
#[test]
fn reads_beyond_ord_wait_for_a_response() {
    let mut a = Endpoint::started(StreamConfig { ord: 2, ..config() }, Role::Initiator, true);
    let mut b = Endpoint::responder();
    let (sink, source) = (a.region(8, EVERYTHING), b.filled(8, EVERYTHING));
    for wr_id in 0..3 {
        a.read(wr_id, all(&sink), remote(&source));
    }
    let requests = a.pull_all(SEGMENT_BYTES);
    assert_eq!(opcodes(&requests), [READ_REQUEST; 2]);
    assert!(!a.with(|stream, io| stream.wants_tx(io)));
    b.feed(&requests.concat()).unwrap();
    let responses = b.pull_all(SEGMENT_BYTES);
    let mut one = ulpdus(&responses.concat()).into_iter();
    a.feed(&framed(&one.next().unwrap())).unwrap();
    assert_eq!(opcodes(&a.pull_all(SEGMENT_BYTES)), [READ_REQUEST]);
}

#[test]
fn a_fenced_request_waits_for_earlier_reads() {
    let (mut a, mut b) = pair();
    let (sink, source) = (a.region(8, EVERYTHING), b.filled(8, EVERYTHING));
    a.read(1, all(&sink), remote(&source));
    a.post(2, SendOpcode::Write, |wqe| {
        at_remote(wqe, &[], remote(&source));
        wqe.flags |= SendFlags::FENCE;
    });
    let request = a.pull_all(SEGMENT_BYTES);
    assert_eq!(opcodes(&request), [READ_REQUEST]);
    b.feed(&request.concat()).unwrap();
    let response = b.pull(SEGMENT_BYTES);
    a.feed(&response).unwrap();
    assert_eq!(opcodes(&a.pull_all(SEGMENT_BYTES)), [WRITE]);
}

/// RFC 5044 s5.1: several FPDUs may share a segment if all of them are whole.
/// RFC 5044 s3.
#[test]
fn waiting_small_messages_share_a_segment() {
    let mut a = Endpoint::initiator();
    for wr_id in 0..40 {
        a.send_inline(wr_id, &[7; 32]);
    }
    // Length 2, header 18, payload 32, no pad, CRC 4.
    let units = a.pull_all(SEGMENT_BYTES);
    let counts: Vec<usize> = units.iter().map(|unit| ulpdus(unit).len()).collect();
    assert_eq!(counts, [25, 15]);
    assert_eq!(units[0].len(), 25 * 56);
}

/// A large message is cut to fill a segment only if enough of the segment is left.
/// RFC 5044 s4.5.
#[test]
fn a_large_message_is_cut_to_fill_a_segment_only_if_enough_is_left() {
    let mut a = Endpoint::initiator();
    let source = a.filled(3000, EVERYTHING);
    a.send_inline(1, &[1; 16]);
    a.send(2, &[all(&source)]);
    let units = a.pull_all(SEGMENT_BYTES);
    assert_eq!(units[0].len(), SEGMENT_BYTES);
    assert_eq!(opcodes(&units[..1]), [SEND, SEND]);

    let mut a = Endpoint::initiator();
    let source = a.filled(3000, EVERYTHING);
    a.send(1, &[source.slice(0, 1200).unwrap()]);
    a.send(2, &[all(&source)]);
    let units = a.pull_all(SEGMENT_BYTES);
    assert_eq!(opcodes(&units[..1]), [SEND], "222 octets are left: not worth a cut");
    assert_eq!(units[1].len(), SEGMENT_BYTES);
}

/// RFC 5044 s4.5: MULPDU = EMSS - (6 + EMSS mod 4). No FPDU exceeds the segment.
/// RFC 5041 s3 and s5.2; RFC 5044 s3.
#[test]
fn a_message_is_cut_at_mulpdu_for_any_segment_size() {
    for room in [fpdu::SEGMENT_BYTES_MIN, 536, 1447, 1448, 1449, 1450, 8948, 64_776] {
        let (mut a, mut b) = pair();
        let (source, target) = (a.filled(70_000, EVERYTHING), b.region(70_000, EVERYTHING));
        a.write(1, &[all(&source)], remote(&target));
        let units = a.pull_all(room);
        let payload = fpdu::mulpdu(room) - 14;
        assert_eq!(units.len(), 70_000usize.div_ceil(payload), "room {room}");
        assert!(units.iter().all(|unit| unit.len() <= room && unit.len() % 4 == 0));
        assert_eq!(units[0].len(), room - room % 4);
        b.feed(&units.concat()).unwrap();
        assert_eq!(Endpoint::bytes(&target), pattern(70_000));
    }
}

/// Strict receivers refuse a tagged message inside another one. The queues alternate by message.
#[test]
fn sends_and_responses_alternate_by_message() {
    let (mut side, _source) = with_pending_responses(config(), 2, 2000);
    let data = side.filled(2000, EVERYTHING);
    side.write(1, &[all(&data)], (STag(9), 0));
    side.write(2, &[all(&data)], (STag(9), 0));
    let units: Vec<u8> = opcodes(&side.pull_all(SEGMENT_BYTES));
    let mut messages = units.clone();
    messages.dedup();
    assert_eq!(messages, [WRITE, READ_RESPONSE, WRITE, READ_RESPONSE]);
}

#[test]
fn a_send_may_interrupt_a_response_and_a_write_may_not() {
    let (mut side, _source) =
        with_pending_responses(StreamConfig { interleave_untagged: true, ..config() }, 1, 6000);
    assert_eq!(opcodes(&[side.pull(SEGMENT_BYTES)]), [READ_RESPONSE]);
    side.send_inline(1, b"urgent");
    side.write(2, &[], (STag(9), 0));
    let rest = opcodes(&side.pull_all(SEGMENT_BYTES));
    let send = rest.iter().position(|&opcode| opcode == SEND).unwrap();
    let write = rest.iter().position(|&opcode| opcode == WRITE).unwrap();
    assert!(send < 2, "{rest:?}");
    assert_eq!(write, rest.len() - 1);
}

#[test]
fn without_the_setting_a_response_is_not_interrupted() {
    let (mut side, _source) = with_pending_responses(config(), 1, 6000);
    side.pull(SEGMENT_BYTES);
    side.send_inline(1, b"patient");
    let rest = opcodes(&side.pull_all(SEGMENT_BYTES));
    assert_eq!(rest.last(), Some(&SEND));
}

/// RFC 5041 s5.3: tagged and untagged messages may mix: a Send inside a response, and a response
/// inside a Send.
#[test]
fn untagged_segments_are_accepted_between_tagged_ones() {
    let (mut a, mut b) = pair();
    let (sink, source, inbox) =
        (a.region(3000, EVERYTHING), b.filled(3000, EVERYTHING), a.region(3000, EVERYTHING));
    a.receive(1, &[all(&inbox)]);
    a.read(1, all(&sink), remote(&source));
    let request = a.pull(SEGMENT_BYTES);
    b.feed(&request).unwrap();
    let response = b.pull_all(SEGMENT_BYTES);
    b.send(1, &[all(&source)]);
    let send = b.pull_all(SEGMENT_BYTES);
    for (one, other) in response.iter().zip(&send) {
        a.feed(one).unwrap();
        a.feed(other).unwrap();
    }
    assert_eq!((Endpoint::bytes(&sink), Endpoint::bytes(&inbox)), (pattern(3000), pattern(3000)));
    assert_eq!((ids(&a.log.sends), ids(&a.log.receives)), (vec![(1, OK)], vec![(1, OK)]));
}

/// RFC 5040 s4.4: the response repeats steering tag and offset of the sink.
/// RFC 5040 s5.2.2.
#[test]
fn a_response_repeats_the_sink_of_the_request() {
    let (mut a, mut b) = pair();
    let (sink, source) = (a.region(3000, EVERYTHING), b.filled(3000, EVERYTHING));
    a.read(1, sink.slice(100, 2500).unwrap(), remote(&source));
    let request = a.pull(SEGMENT_BYTES);
    b.feed(&request).unwrap();
    let mut expected = sink.base_to() + 100;
    for ulpdu in b.pull_all(SEGMENT_BYTES).iter().flat_map(|unit| ulpdus(unit)) {
        assert_eq!(ulpdu[2..6], sink.stag().0.to_be_bytes());
        assert_eq!(ulpdu[6..14], expected.to_be_bytes());
        expected += ulpdu.len() as u64 - 14;
    }
    assert_eq!(expected, sink.base_to() + 2600);
}
