//! The ready-to-receive indication, in both roles and of every kind (RFC 6581 s5, s9.2).

use super::*;
use crate::setup::{ReadDepths, Rtr, RtrKinds};

fn initiator(rtr: Rtr, reads: ReadDepths) -> Endpoint {
    let mut side = Endpoint::idle(config());
    let start = StreamStart::plain(Role::Initiator, true);
    side.stream.start(StreamStart { reads: Some(reads), rtr_to_send: Some(rtr), ..start });
    side
}

fn responder(awaited: RtrKinds, reads: ReadDepths) -> Endpoint {
    let mut side = Endpoint::idle(config());
    let start = StreamStart::plain(Role::Responder, true);
    side.stream.start(StreamStart { reads: Some(reads), rtr_awaited: awaited, ..start });
    side
}

const FOUR: ReadDepths = ReadDepths { ird: 4, ord: 4 };
const KINDS: [(Rtr, RtrKinds); 3] =
    [(Rtr::Send, RtrKinds::SEND), (Rtr::Write, RtrKinds::WRITE), (Rtr::Read, RtrKinds::READ)];

/// RFC 6581 s9.2: an FPDU without payload. The steering tags are not 0, which some adapters refuse.
/// RFC 5040 s3.1, s4.1, s4.2 and s5.2.1; RFC 5041 s4.4 and s5.2.
#[test]
fn each_kind_of_indication_is_an_empty_message() {
    let sent = |rtr| {
        let mut side = initiator(rtr, FOUR);
        side.send_inline(1, b"later");
        let unit = ulpdus(&side.pull(SEGMENT_BYTES));
        assert_eq!(unit.len(), 1, "the indication is a unit of its own");
        assert_eq!(ulpdus(&side.pull(SEGMENT_BYTES)).len(), 1, "posted requests are sent after it");
        unit[0].clone()
    };
    let untagged = |control, qn, rest: &[u8]| {
        [&[0x41, control, 0, 0, 0, 0, 0, 0, 0, qn, 0, 0, 0, 1, 0, 0, 0, 0], rest].concat()
    };
    assert_eq!(sent(Rtr::Send), untagged(0x43, 0, &[]));
    assert_eq!(sent(Rtr::Write), [0xc1, 0x40, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0]);
    let nowhere = [&[0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0], &[0; 4][..], &[0, 0, 0, 1], &[0; 8]].concat();
    assert_eq!(sent(Rtr::Read), untagged(0x41, 1, &nowhere));
}

/// RFC 6581 s5, s9.2: no application sees the indication. It consumes no receive and completes no
/// request, and it is sent before all posted requests.
#[test]
fn no_application_sees_the_indication() {
    for (rtr, kind) in KINDS {
        let (mut a, mut b) = (initiator(rtr, FOUR), responder(kind, FOUR));
        let (in_a, in_b) = (a.region(8, EVERYTHING), b.region(8, EVERYTHING));
        a.receive(1, &[all(&in_a)]);
        b.receive(1, &[all(&in_b)]);
        b.send_inline(7, b"server");
        assert!(b.pull(SEGMENT_BYTES).is_empty(), "the fence holds until the indication arrives");
        assert!(a.with(|stream, io| stream.wants_tx(io)));
        let indication = a.pull(SEGMENT_BYTES);
        b.feed(&indication).unwrap();
        assert!(b.stream.may_send() && b.log.receives.is_empty());
        let responses = b.pull_all(SEGMENT_BYTES);
        assert!(!responses.is_empty());
        for response in responses {
            a.feed(&response).unwrap();
        }
        assert_eq!(Endpoint::bytes(&in_a), *b"server\0\0");
        assert!(a.log.sends.is_empty());
        a.send_inline(2, b"client");
        run(&mut a, &mut b);
        assert_eq!(Endpoint::bytes(&in_b), *b"client\0\0");
        assert_eq!((ids(&a.log.sends), ids(&b.log.sends)), (vec![(2, OK)], vec![(7, OK)]));
        assert_eq!((a.counted(Counter::IwarpTxRtrs), b.counted(Counter::IwarpRxRtrs)), (1, 1));
    }
}

/// RFC 6581 s9.1: a Read indication counts as an outstanding Read until it is answered, even with
/// an ORD of 0. Its response completes no request.
#[test]
fn a_read_indication_counts_as_outstanding_until_it_is_answered() {
    let one = ReadDepths { ird: 1, ord: 1 };
    let (mut a, mut b) = (initiator(Rtr::Read, one), responder(RtrKinds::READ, one));
    let (sink, source) = (a.region(64, EVERYTHING), b.filled(64, EVERYTHING));
    a.read(1, all(&sink), remote(&source));
    let indication = a.pull(SEGMENT_BYTES);
    assert!(a.pull(SEGMENT_BYTES).is_empty(), "the application's Read waits");
    b.feed(&indication).unwrap();
    let response = b.pull(SEGMENT_BYTES);
    a.feed(&response).unwrap();
    assert!(a.log.sends.is_empty());
    run(&mut a, &mut b);
    assert_eq!((ids(&a.log.sends), Endpoint::bytes(&sink)), (vec![(1, OK)], pattern(64)));
    let none = ReadDepths { ird: 0, ord: 0 };
    let (mut a, mut b) = (initiator(Rtr::Read, none), responder(RtrKinds::READ, one));
    run(&mut a, &mut b);
    assert!(a.log.sends.is_empty() && a.stream.error().is_none() && b.stream.error().is_none());
    // The application's own Reads are still refused: the negotiated ORD is 0.
    a.read(1, all(&sink), remote(&source));
    a.pull(SEGMENT_BYTES);
    assert_eq!(ids(&a.log.sends), [(1, CompletionStatus::LocalOperation)]);
}

/// RFC 5040 s5.2.2: a wrong response to a Read indication does not fail the application's next
/// Read, which is flushed.
#[test]
fn a_wrong_response_to_a_read_indication_fails_no_posted_read() {
    let mut a = initiator(Rtr::Read, FOUR);
    let sink = a.region(8, EVERYTHING);
    a.read(1, all(&sink), (STag(9), 0));
    assert_eq!(a.pull_all(SEGMENT_BYTES).iter().flat_map(|unit| ulpdus(unit)).count(), 2, "both were sent");
    let response = [&[0xc1, 0x42, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0][..], b"too long"].concat();
    assert!(a.feed(&framed(&response)).is_err());
    assert_eq!(ids(&a.log.sends), [(1, FLUSHED)]);
}

/// RFC 6581 s9.1: the negotiated depths apply, although the queue pair was created with larger
/// ones.
#[test]
fn the_negotiated_read_depths_apply() {
    let mut a = Endpoint::idle(config());
    let reads = Some(ReadDepths { ird: 1, ord: 2 });
    a.stream.start(StreamStart { reads, ..StreamStart::plain(Role::Initiator, true) });
    let mut b = Endpoint::initiator();
    let (sink, source, far_sink) =
        (a.region(8, EVERYTHING), a.filled(8, EVERYTHING), b.region(8, EVERYTHING));
    for wr_id in 0..3 {
        a.read(wr_id, all(&sink), (STag(9), 0));
        b.read(wr_id, all(&far_sink), remote(&source));
    }
    assert_eq!(a.pull_all(SEGMENT_BYTES).concat().len() / fpdu::fpdu_bytes(46), 2);
    let requests = b.pull_all(SEGMENT_BYTES).concat();
    let no_buffer = Terminate { layer: 1, etype: 2, code: 2 };
    assert_eq!(a.feed(&requests), Err(StreamError::Failed(no_buffer)));
}

/// RFC 6581 s9.2 mentions a zero-length FULPDU: an FPDU without ULPDU is accepted as an indication
/// if it is the first.
#[test]
fn an_empty_ulpdu_is_an_indication_only_as_the_first_fpdu() {
    let mut b = responder(RtrKinds::all(), FOUR);
    b.feed(&framed(&[])).unwrap();
    assert!(b.stream.may_send());
    assert!(b.feed(&framed(&[])).is_err(), "and an error afterwards");
    let mut b = responder(RtrKinds::WRITE | RtrKinds::READ, FOUR);
    assert!(b.feed(&framed(&[])).is_err(), "or if Sends were not negotiated");
    assert!(Endpoint::responder().feed(&framed(&[])).is_err(), "or in the client-server model");
}

/// Only the first FPDU is an indication. A later Send of no octets, or one in the client-server
/// model, is the application's and consumes a receive.
#[test]
fn an_empty_send_consumes_a_receive_unless_it_is_the_indication() {
    let empty = framed(&[0x41, 0x43, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0]);
    let second = framed(&[0x41, 0x43, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 0]);
    let mut b = responder(RtrKinds::SEND, FOUR);
    b.receive(5, &[]);
    b.feed(&empty).unwrap();
    assert!(b.log.receives.is_empty());
    b.feed(&second).unwrap();
    assert_eq!(ids(&b.log.receives), [(5, OK)]);
    for mut b in [Endpoint::responder(), responder(RtrKinds::WRITE, FOUR)] {
        b.receive(5, &[]);
        b.feed(&empty).unwrap();
        assert_eq!(ids(&b.log.receives), [(5, OK)]);
    }
}

/// A peer may send its application's first message instead of an indication; all implementations
/// accept that.
#[test]
fn any_first_fpdu_opens_the_gate() {
    let mut b = responder(RtrKinds::all(), FOUR);
    let sink = b.region(8, EVERYTHING);
    b.receive(1, &[all(&sink)]);
    let mut a = Endpoint::initiator();
    a.send_inline(1, b"message");
    let unit = a.pull(SEGMENT_BYTES);
    b.feed(&unit).unwrap();
    assert_eq!((ids(&b.log.receives), b.stream.may_send()), (vec![(1, OK)], true));
}

/// RFC 6581 s9.1, s9.2: an initiator that cannot meet the terms sends a Terminate as its first
/// FPDU, and nothing else. RFC 6581 s8.
#[test]
fn an_initiator_that_cannot_meet_the_terms_sends_a_terminate_first() {
    use crate::mpa::MpaFault;
    for (fault, code) in
        [(MpaFault::LocalCatastrophic, 5), (MpaFault::InsufficientIrd, 6), (MpaFault::NoMatchingRtr, 7)]
    {
        let (mut a, mut b) = (Endpoint::initiator(), responder(RtrKinds::all(), FOUR));
        a.send_inline(1, b"never sent");
        a.with(|stream, io| stream.terminate(fault.into(), io));
        let units = a.pull_all(SEGMENT_BYTES);
        assert_eq!((units.len(), &ulpdus(&units[0])[0][18..]), (1, &[0x20, code, 0, 0][..]));
        assert_eq!(ids(&a.log.sends), [(1, FLUSHED)]);
        let terminate = Terminate { layer: 2, etype: 0, code };
        assert_eq!(b.feed(&units[0]), Err(StreamError::PeerTerminated(terminate)));
    }
}

/// Q3: a responder's FPDUs may arrive before the indication is sent. The indication is still sent
/// first.
#[test]
fn an_early_fpdu_of_the_responder_does_not_replace_the_indication() {
    let mut a = initiator(Rtr::Write, FOUR);
    let sink = a.region(8, EVERYTHING);
    a.receive(1, &[all(&sink)]);
    let mut out_of_order = Endpoint::initiator();
    out_of_order.send_inline(1, b"early");
    let unit = out_of_order.pull(SEGMENT_BYTES);
    a.feed(&unit).unwrap();
    assert_eq!(ids(&a.log.receives), [(1, OK)]);
    a.send_inline(2, b"x");
    assert_eq!(ulpdus(&a.pull(SEGMENT_BYTES))[0][..2], [0xc1, 0x40]);
}
