//! Immediate Data: what is sent, what a receiver does with it, and what it refuses.

use super::*;
use crate::completion::CompletionFlags;
use crate::rdmap::Rfc7306Profile;

const OCTETS: [u8; 8] = [0x11, 0x22, 0x33, 0x44, 0x55, 0x66, 0x77, 0x88];

fn extended(profile: Rfc7306Profile) -> StreamConfig {
    StreamConfig { extensions: Some(profile), ..config() }
}

fn pair_by(profile: Rfc7306Profile) -> (Endpoint, Endpoint) {
    let side = |role| Endpoint::started(extended(profile), role, true);
    (side(Role::Initiator), side(Role::Responder))
}

fn immediate(side: &mut Endpoint, wr_id: u64, opcode: SendOpcode, octets: [u8; 8]) {
    side.post(wr_id, opcode, |wqe| wqe.set_inline(&octets));
}

/// A whole untagged message in one segment: RDMAP control octet, queue, number, offset, payload.
fn segment(ulp: u8, [qn, msn, mo]: [u8; 3], payload: &[u8]) -> Vec<u8> {
    [&[0x41, ulp, 0, 0, 0, 0, 0, 0, 0, qn, 0, 0, 0, msn, 0, 0, 0, mo], payload].concat()
}

/// RFC7306-6.3-01, RFC7306-6.3-04, RFC7306-6.3-05 and RFC7306-4.1-03: untagged, queue 0, numbered
/// with Sends, no tag to invalidate, exactly eight octets.
#[test]
fn immediates_have_the_specified_octets() {
    let (mut a, _) = pair_by(Rfc7306Profile::RFC_7306);
    a.send_inline(1, b"first");
    immediate(&mut a, 2, SendOpcode::Immediate, OCTETS);
    immediate(&mut a, 3, SendOpcode::ImmediateSolicited, OCTETS);
    let sent = ulpdus(&a.pull(SEGMENT_BYTES));
    assert_eq!(sent[1..], [segment(0x48, [0, 2, 0], &OCTETS), segment(0x49, [0, 3, 0], &OCTETS)]);
}

/// RFC7306-6.1-01, RFC7306-6.3-02 and RFC7306-6.3-03: each consumes one receive in order with
/// Sends. Its octets are in the completion, and the memory of the receive is unchanged.
#[test]
fn immediates_and_sends_consume_receives_in_the_order_sent() {
    let (mut a, mut b) = pair_by(Rfc7306Profile::RFC_7306);
    let inbox = b.filled(64, EVERYTHING);
    b.receive(10, &[]);
    for id in 11..14 {
        b.receive(id, &[all(&inbox)]);
    }
    immediate(&mut a, 1, SendOpcode::Immediate, OCTETS);
    immediate(&mut a, 2, SendOpcode::ImmediateSolicited, [9; 8]);
    a.send_inline(3, b"Send");
    immediate(&mut a, 4, SendOpcode::Immediate, [7; 8]);
    run(&mut a, &mut b);
    let completed: Vec<_> =
        b.log.receives.iter().map(|one| (one.wr_id, one.opcode, one.immediate, one.byte_len)).collect();
    let (receive, immediate) = (CompletionOpcode::Receive, CompletionOpcode::ReceiveImmediate);
    let want = [
        (10, immediate, OCTETS, 8),
        (11, immediate, [9; 8], 8),
        (12, receive, [0; 8], 4),
        (13, immediate, [7; 8], 8),
    ];
    assert_eq!(completed, want);
    let solicited: Vec<_> =
        b.log.receives.iter().map(|one| one.flags.contains(CompletionFlags::SOLICITED)).collect();
    assert_eq!(solicited, [false, true, false, false]);
    assert_eq!(Endpoint::bytes(&inbox)[..4], *b"Send");
    assert_eq!(Endpoint::bytes(&inbox)[4..], pattern(64)[4..]);
    assert_eq!(ids(&a.log.sends), [(1, OK), (2, OK), (3, OK), (4, OK)]);
    assert_eq!(a.log.sends[0].opcode, CompletionOpcode::Immediate);
    assert_eq!(b.counted(Counter::IwarpRxImmediates), 3);
}

/// RFC7306-6.4-01: like a Send it completes when the peer's TCP has acknowledged it, and not
/// before.
#[test]
fn an_immediate_completes_when_it_is_acknowledged() {
    let (mut a, mut b) = pair_by(Rfc7306Profile::RFC_7306);
    immediate(&mut a, 1, SendOpcode::Immediate, OCTETS);
    let unit = a.pull(SEGMENT_BYTES);
    b.receive(1, &[]);
    b.feed(&unit).unwrap();
    assert!(a.log.sends.is_empty());
    a.ack_all();
    assert_eq!(ids(&a.log.sends), [(1, OK)]);
}

/// RFC7306-7-01: an earlier Write is in memory when the immediate is delivered.
#[test]
fn a_write_is_placed_before_a_later_immediate_is_delivered() {
    let (mut a, mut b) = pair_by(Rfc7306Profile::RFC_7306);
    let (source, target) = (a.filled(4000, EVERYTHING), b.region(4000, EVERYTHING));
    b.receive(1, &[]);
    a.write(1, &[all(&source)], remote(&target));
    immediate(&mut a, 2, SendOpcode::Immediate, OCTETS);
    let units = a.pull_all(SEGMENT_BYTES);
    for unit in &units[..units.len() - 1] {
        b.feed(unit).unwrap();
        assert!(b.log.receives.is_empty());
    }
    b.feed(units.last().unwrap()).unwrap();
    assert_eq!(ids(&b.log.receives), [(1, OK)]);
    assert_eq!(Endpoint::bytes(&target), pattern(4000));
}

/// RFC7306-7-02 and RFC7306-7-05: an earlier Read may be answered after the immediate. A later Read
/// is answered after the immediate has completed.
#[test]
fn an_immediate_completes_before_the_response_to_a_later_read() {
    let (mut a, mut b) = pair_by(Rfc7306Profile::RFC_7306);
    let (source, sink) = (b.filled(8, EVERYTHING), a.region(8, EVERYTHING));
    b.receive(1, &[]);
    a.read(1, all(&sink), remote(&source));
    immediate(&mut a, 2, SendOpcode::Immediate, OCTETS);
    a.read(3, all(&sink), remote(&source));
    b.feed(&a.pull(SEGMENT_BYTES)).unwrap();
    assert_eq!(ids(&b.log.receives), [(1, OK)], "no response has been generated yet");
    run(&mut a, &mut b);
    assert_eq!(ids(&a.log.sends), [(1, OK), (2, OK), (3, OK)]);
}

/// Figure 2 of draft -01: with Solicited Event it is numbered among the requests of queue 1, on
/// both sides.
#[test]
fn with_figure_2_of_draft_01_a_solicited_immediate_is_numbered_on_queue_1() {
    let (mut a, mut b) = pair_by(Rfc7306Profile::DRAFT_01_FIGURE_2);
    let (source, sink) = (b.filled(8, EVERYTHING), a.region(8, EVERYTHING));
    b.receive(1, &[]);
    b.receive(2, &[]);
    immediate(&mut a, 1, SendOpcode::ImmediateSolicited, OCTETS);
    a.read(2, all(&sink), remote(&source));
    immediate(&mut a, 3, SendOpcode::Immediate, [3; 8]);
    let unit = a.pull(SEGMENT_BYTES);
    let sent = ulpdus(&unit);
    assert_eq!(sent[0], segment(0x49, [1, 1, 0], &OCTETS));
    assert_eq!((sent[1][9], sent[1][13]), (1, 2), "the Read is number 2 of queue 1");
    assert_eq!(sent[2], segment(0x48, [0, 1, 0], &[3; 8]));
    b.feed(&unit).unwrap();
    run(&mut a, &mut b);
    assert_eq!(ids(&b.log.receives), [(1, OK), (2, OK)]);
    assert_eq!(b.log.receives[0].flags, CompletionFlags::SOLICITED);
    assert_eq!(Endpoint::bytes(&sink), pattern(8));
    // A receive that a Send has begun to fill is not available.
    let (_, mut b) = pair_by(Rfc7306Profile::DRAFT_01_FIGURE_2);
    let inbox = b.region(64, EVERYTHING);
    b.receive(1, &[all(&inbox)]);
    let mut begun = segment(0x43, [0, 1, 0], b"half");
    begun[0] = 0x01;
    b.feed(&framed(&begun)).unwrap();
    let refused = b.feed(&framed(&segment(0x49, [1, 1, 0], &OCTETS)));
    assert_eq!(refused, failed(0, 2, 7));
    assert_eq!(ids(&b.log.receives), [(1, FLUSHED)]);
}

fn failed(layer: u8, etype: u8, code: u8) -> Result<(), StreamError> {
    Err(StreamError::Failed(Terminate { layer, etype, code }))
}

/// Feeds a segment to a receiver with one receive of 64 octets, number 1. Checks the error, the
/// Terminate with the DDP header only, the flushed completion, and that memory is unchanged.
#[track_caller]
fn refuses(ulpdu: &[u8], code: [u8; 3]) {
    let (_, mut b) = pair_by(Rfc7306Profile::RFC_7306);
    let inbox = b.filled(64, EVERYTHING);
    b.receive(1, &[all(&inbox)]);
    refused_by(b, ulpdu, code);
    assert_eq!(Endpoint::bytes(&inbox), pattern(64));
}

#[track_caller]
fn refused_by(mut b: Endpoint, ulpdu: &[u8], [layer, etype, code]: [u8; 3]) {
    assert_eq!(b.feed(&framed(ulpdu)), failed(layer, etype, code));
    assert!(b.log.receives.iter().all(|one| one.status == FLUSHED));
    let headers = [&[layer << 4 | etype, code, 0xc0, 0, 0, ulpdu.len() as u8], &ulpdu[..18]].concat();
    assert_eq!(ulpdus(&b.pull(SEGMENT_BYTES)), [segment(0x47, [2, 1, 0], &headers)]);
}

/// RFC7306-4-03, RFC7306-6.3-07, RFC7306-6.1-02 and RFC7306-8.1-02: seven octets, nine, none, and
/// more than the receive holds.
#[test]
fn an_immediate_of_any_other_length_is_refused() {
    for bytes in [0, 1, 7, 9, 16, 100] {
        for ulp in [0x48, 0x49] {
            refuses(&segment(ulp, [0, 1, 0], &vec![5; bytes]), [0, 2, 0xff]);
        }
    }
}

/// RFC7306-8.2-01 and RFC7306-8.2-02: number, offset and buffer are checked as for a Send.
#[test]
fn an_immediate_out_of_order_is_refused() {
    refuses(&segment(0x48, [0, 2, 0], &OCTETS), [1, 2, 3]);
    refuses(&segment(0x48, [0, 0, 0], &OCTETS), [1, 2, 3]);
    refuses(&segment(0x48, [0, 1, 8], &OCTETS), [1, 2, 4]);
    let (_, b) = pair_by(Rfc7306Profile::RFC_7306);
    refused_by(b, &segment(0x48, [0, 1, 0], &OCTETS), [1, 2, 2]);
}

/// RFC7306-8.2-02 and RFC 5041 s8.1: the version of DDP.
#[test]
fn an_immediate_of_another_ddp_version_is_refused() {
    for version in [0, 2, 3] {
        for ulp in [0x48, 0x49] {
            let mut ulpdu = segment(ulp, [0, 1, 0], &OCTETS);
            ulpdu[0] = 0x40 | version;
            refuses(&ulpdu, [1, 2, 6]);
        }
    }
}

/// RFC7306-8.2-03 and RFC7306-8.2-04: queue of the operation, and version.
#[test]
fn an_immediate_of_another_version_or_queue_is_refused() {
    refuses(&segment(0x88, [0, 1, 0], &OCTETS), [0, 2, 5]);
    for ulp in [0x48, 0x49] {
        refuses(&segment(ulp, [1, 1, 0], &OCTETS), [0, 2, 6]);
        refuses(&segment(ulp, [2, 1, 0], &OCTETS), [0, 2, 6]);
        refuses(&segment(ulp, [4, 1, 0], &OCTETS), [1, 2, 1]);
    }
    refuses(&segment(0x8c, [0, 1, 0], &OCTETS), [0, 2, 6]);
}

/// The message is one segment: neither an incomplete one, nor one inside an incomplete Send.
#[test]
fn an_immediate_of_several_segments_is_refused() {
    let mut first = segment(0x48, [0, 1, 0], &OCTETS);
    first[0] = 0x01;
    refuses(&first, [0, 2, 7]);
    let (_, mut b) = pair_by(Rfc7306Profile::RFC_7306);
    let inbox = b.region(64, EVERYTHING);
    b.receive(1, &[all(&inbox)]);
    let mut begun = segment(0x43, [0, 1, 0], b"half");
    begun[0] = 0x01;
    b.feed(&framed(&begun)).unwrap();
    refused_by(b, &segment(0x48, [0, 1, 4], &OCTETS), [0, 2, 7]);
}

/// RFC7306-4.1-04: the field for a tag to invalidate is ignored.
#[test]
fn the_tag_field_of_an_immediate_is_ignored() {
    let (_, mut b) = pair_by(Rfc7306Profile::RFC_7306);
    b.receive(1, &[]);
    let mut ulpdu = segment(0x48, [0, 1, 0], &OCTETS);
    ulpdu[2..6].fill(0xff);
    b.feed(&framed(&ulpdu)).unwrap();
    assert_eq!((b.log.receives[0].immediate, b.log.receives[0].flags), (OCTETS, CompletionFlags::empty()));
}

/// RFC7306-1.1-05: without the extensions each of their operations is unknown, on every queue.
#[test]
fn without_extensions_their_operations_are_unknown() {
    for ulp in [0x48, 0x49, 0x4a, 0x4b] {
        for (qn, code) in [(0, [0, 2, 6]), (1, [0, 2, 6]), (2, [0, 2, 6]), (3, [1, 2, 1])] {
            let mut b = Endpoint::responder();
            b.receive(1, &[]);
            let inbox = b.region(64, EVERYTHING);
            b.receive(2, &[all(&inbox)]);
            refused_by(b, &segment(ulp, [qn, 1, 0], &[5; 52]), code);
        }
    }
}

/// A request that the stream does not support fails, like a Read with an ORD of 0. So does one of
/// another length.
#[test]
fn an_immediate_that_cannot_be_sent_ends_the_stream() {
    let mut a = Endpoint::initiator();
    immediate(&mut a, 1, SendOpcode::Immediate, OCTETS);
    assert!(a.pull(SEGMENT_BYTES).is_empty());
    assert_eq!(ulpdus(&a.pull(SEGMENT_BYTES)), [segment(0x47, [2, 1, 0], &[0; 4])]);
    assert_eq!(ids(&a.log.sends), [(1, CompletionStatus::LocalOperation)]);
    for bytes in [7, 9, 300] {
        let (mut a, _) = pair_by(Rfc7306Profile::RFC_7306);
        a.post(1, SendOpcode::Immediate, |wqe| wqe.set_inline(&vec![0; bytes]));
        assert!(a.pull(SEGMENT_BYTES).is_empty());
        assert_eq!(ulpdus(&a.pull(SEGMENT_BYTES)), [segment(0x47, [2, 1, 0], &[0; 4])]);
        assert_eq!(ids(&a.log.sends), [(1, CompletionStatus::LocalLength)]);
    }
}

/// The variant of RFC 7306 is fixed when the stream starts.
#[test]
fn extensions_cannot_change_after_the_start() {
    let mut side = Endpoint::idle(config());
    side.stream.set_extensions(Some(Rfc7306Profile::RFC_7306));
    side.stream.start(StreamStart::plain(Role::Responder, true));
    side.stream.set_extensions(None);
    side.receive(1, &[]);
    side.feed(&framed(&segment(0x48, [0, 1, 0], &OCTETS))).unwrap();
    assert_eq!(side.log.receives[0].immediate, OCTETS);
}

/// A Write and an immediate that are one request of the application.
fn write_and_immediate(side: &mut Endpoint, wr_id: u64, gather: &[Sge], there: (STag, u64)) {
    side.post(wr_id, SendOpcode::Write, |wqe| {
        at_remote(wqe, gather, there);
        wqe.flags = SendFlags::REPORTED_BY_NEXT;
    });
    immediate(side, wr_id, SendOpcode::Immediate, OCTETS);
}

/// A request that is posted as two has one completion, also when it is flushed. The entry of the
/// completion queue that the first half holds is released.
#[test]
fn a_request_in_two_halves_has_one_completion_when_it_is_flushed() {
    let (mut a, _) = pair_by(Rfc7306Profile::RFC_7306);
    let source = a.filled(64, EVERYTHING);
    write_and_immediate(&mut a, 7, &[all(&source)], (STag(1), 0));
    a.send_inline(8, b"behind");
    a.with(|stream, io| stream.abort(io));
    let flushed = CompletionStatus::FlushedInError;
    assert_eq!(ids(&a.log.sends), [(7, flushed), (8, flushed)]);
    assert_eq!((a.log.sends[0].opcode, a.log.sends[0].immediate), (CompletionOpcode::Immediate, OCTETS));
    assert_eq!(a.sq.claim_unsignaled(), 1);
}

/// The one completion reports why the first half failed.
#[test]
fn the_second_half_reports_why_the_first_failed() {
    let (mut a, _) = pair_by(Rfc7306Profile::RFC_7306);
    let unknown = Sge { addr: 0, len: 64, lkey: STag(0x1234) };
    write_and_immediate(&mut a, 7, &[unknown], (STag(1), 0));
    a.send_inline(8, b"behind");
    a.pull_all(SEGMENT_BYTES);
    let (local, flushed) = (CompletionStatus::LocalProtection, CompletionStatus::FlushedInError);
    assert_eq!(ids(&a.log.sends), [(7, local), (8, flushed)]);
    assert_eq!(a.log.sends[0].opcode, CompletionOpcode::Immediate);
}

/// Also when it succeeds there is one, with the octets that were sent.
#[test]
fn a_request_in_two_halves_has_one_completion_when_it_succeeds() {
    let (mut a, mut b) = pair_by(Rfc7306Profile::RFC_7306);
    let (source, target) = (a.filled(64, EVERYTHING), b.region(64, EVERYTHING));
    b.receive(1, &[]);
    write_and_immediate(&mut a, 7, &[all(&source)], remote(&target));
    run(&mut a, &mut b);
    assert_eq!(ids(&a.log.sends), [(7, OK)]);
    assert_eq!(a.log.sends[0].immediate, OCTETS);
    assert_eq!(Endpoint::bytes(&target), pattern(64));
}
