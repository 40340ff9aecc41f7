//! Read Response segments that do not match the oldest Read, messages between those that do, and
//! Terminates of every form.

use super::*;
use crate::ddp::{Tagged, Untagged};

/// A side with Reads of 100 and of 8 octets outstanding, and their sinks.
fn requester() -> (Endpoint, Region, Region) {
    let mut side = Endpoint::initiator();
    let (first, second) = (side.region(100, EVERYTHING), side.region(8, EVERYTHING));
    side.read(1, all(&first), (STag(1), 0));
    side.read(2, all(&second), (STag(1), 0));
    side.send_inline(3, b"behind");
    assert_eq!(side.pull_all(SEGMENT_BYTES).len(), 1);
    (side, first, second)
}

/// One segment of a Read Response, for octet `at` of the sink.
fn response(sink: &Region, at: u64, payload: &[u8], last: bool) -> Vec<u8> {
    segment(2, (sink.stag(), sink.base_to() + at), payload, last)
}

fn segment(opcode: u8, (stag, tagged_offset): (STag, u64), payload: &[u8], last: bool) -> Vec<u8> {
    let mut ulpdu = vec![0; 14];
    Tagged { last, ulp: 0x40 | opcode, stag, tagged_offset }.encode(&mut ulpdu);
    ulpdu.extend(payload);
    framed(&ulpdu)
}

fn untagged(opcode: u8, qn: u32, msn: u32, mo: u32, payload: &[u8], last: bool) -> Vec<u8> {
    let mut ulpdu = vec![0; 18];
    Untagged { last, ulp: 0x40 | opcode, ulp_word: 0, qn, msn, mo }.encode(&mut ulpdu);
    ulpdu.extend(payload);
    framed(&ulpdu)
}

/// RFC 5040 s5.2.2: the response must continue the oldest Read. Each violation has its Terminate.
/// That Read completes with an error, later requests are flushed, and nothing is placed.
#[test]
fn a_response_that_does_not_match_the_oldest_read_fails_it() {
    type Wrong = fn(&Region, &Region) -> Vec<u8>;
    let cases: [(Wrong, [u8; 3]); 9] = [
        (|_, second| response(second, 0, &[9; 8], true), [1, 1, 0]),
        (|first, _| response(first, 41, &[9; 10], false), [1, 1, 1]),
        (|first, _| response(first, 39, &[9; 10], false), [1, 1, 1]),
        (|first, _| response(first, 0, &[9; 60], true), [1, 1, 1]),
        (|first, _| response(first, 40, &[9; 61], true), [1, 1, 1]),
        (|first, _| response(first, 40, &[9; 61], false), [1, 1, 1]),
        (|first, _| response(first, 40, &[9; 59], true), [0, 2, 7]),
        (|first, _| response(first, 40, &[9; 60], false), [0, 2, 7]),
        (|first, _| response(first, 40, &[], true), [0, 2, 7]),
    ];
    for (number, (wrong, [layer, etype, code])) in cases.into_iter().enumerate() {
        let (mut side, first, second) = requester();
        side.feed(&response(&first, 0, &[5; 40], false)).unwrap();
        let error = Terminate { layer, etype, code };
        assert_eq!(side.feed(&wrong(&first, &second)), Err(StreamError::Failed(error)), "case {number}");
        let want = [(1, CompletionStatus::BadResponse), (2, FLUSHED), (3, FLUSHED)];
        assert_eq!(ids(&side.log.sends), want, "case {number}");
        assert_eq!(Endpoint::bytes(&first), [[5; 40].as_slice(), &[0; 60]].concat(), "case {number}");
        assert_eq!(Endpoint::bytes(&second), [0; 8], "case {number}");
        let terminate = ulpdus(&side.pull(SEGMENT_BYTES)).remove(0);
        assert_eq!(terminate[18..20], [layer << 4 | etype, code], "case {number}");
    }
}

/// RFC 5040 s5.2.2: an empty response is valid only for a Read of no octets.
#[test]
fn an_empty_response_is_valid_only_for_an_empty_read() {
    let (mut side, first, _) = requester();
    let error = Terminate { layer: 0, etype: 2, code: 7 };
    assert_eq!(side.feed(&response(&first, 0, &[], true)), Err(StreamError::Failed(error)));
    assert_eq!(ids(&side.log.sends)[0], (1, CompletionStatus::BadResponse));
    let mut side = Endpoint::initiator();
    side.read(1, Sge::default(), (STag(1), 0));
    side.pull(SEGMENT_BYTES);
    side.feed(&segment(2, (STag(77), 5), &[], true)).unwrap();
    assert_eq!(ids(&side.log.sends), [(1, OK)]);
}

/// RFC 5041 s5.2: tagged segments carry their own position, so those of several messages may
/// interleave, with untagged ones between them.
#[test]
fn interleaved_messages_are_all_placed() {
    let (mut side, first, second) = requester();
    let (written, inbox) = (side.region(40, EVERYTHING), side.region(20, EVERYTHING));
    side.receive(9, &[all(&inbox)]);
    let write =
        |at: u64, value: u8, last| segment(0, (written.stag(), written.base_to() + at), &[value; 10], last);
    let mut request = [0; 28];
    (request[3], request[19]) = (1, 1);
    for fpdu in [
        response(&first, 0, &[5; 40], false),
        write(0, 1, false),
        untagged(3, 0, 1, 0, &[7; 10], false),
        write(20, 2, false),
        untagged(1, 1, 1, 0, &request, true),
        write(10, 3, true),
        response(&first, 40, &[6; 60], true),
        untagged(3, 0, 1, 10, &[8; 10], true),
        write(30, 4, true),
        response(&second, 0, &[9; 8], true),
    ] {
        side.feed(&fpdu).unwrap();
    }
    assert_eq!(Endpoint::bytes(&written), [[1; 10], [3; 10], [2; 10], [4; 10]].concat());
    assert_eq!(Endpoint::bytes(&inbox), [[7; 10], [8; 10]].concat());
    assert_eq!(Endpoint::bytes(&first), [[5; 40].as_slice(), &[6; 60]].concat());
    assert_eq!((ids(&side.log.receives), Endpoint::bytes(&second)), (vec![(9, OK)], vec![9; 8]));
    side.ack_all();
    assert_eq!(ids(&side.log.sends), [(1, OK), (2, OK), (3, OK)]);
    assert_eq!(ulpdus(&side.pull(SEGMENT_BYTES)).len(), 1, "and the peer's Read is answered");
}

/// RFC 5040 s5.4: a Terminate is accepted between the segments of a Send, with every set of
/// included headers. None of these is checked.
#[test]
fn a_terminate_of_any_form_is_accepted_anywhere() {
    let shapes = [(0x00, 0), (0x80, 2), (0xc0, 2 + 14), (0xc0, 2 + 18), (0xe0, 2 + 18 + 28), (0xe0, 0)];
    for (bits, header_bytes) in shapes {
        let (mut side, ..) = requester();
        let inbox = side.region(20, EVERYTHING);
        side.receive(9, &[all(&inbox)]);
        side.feed(&untagged(3, 0, 1, 0, &[7; 10], false)).unwrap();
        let header = [&[0x12, 2, bits, 0][..], &vec![0xaa; header_bytes]].concat();
        let error = Terminate { layer: 1, etype: 2, code: 2 };
        let outcome = side.feed(&untagged(7, 2, 1, 0, &header, true));
        assert_eq!(outcome, Err(StreamError::PeerTerminated(error)), "{bits:02x}");
        assert_eq!((ids(&side.log.receives), side.pull(SEGMENT_BYTES).len()), (vec![(9, FLUSHED)], 0));
    }
}

/// RFC 5040 s4.8, s5.4: a Terminate is one segment, the first of its queue, at offset 0.
#[test]
fn a_terminate_of_several_segments_is_refused() {
    for (msn, mo, last, [layer, etype, code]) in
        [(1, 0, false, [0, 2, 7]), (1, 4, true, [1, 2, 4]), (2, 0, true, [1, 2, 3])]
    {
        let mut side = Endpoint::responder();
        let error = Terminate { layer, etype, code };
        let outcome = side.feed(&untagged(7, 2, msn, mo, &[0x12, 2, 0, 0], last));
        assert_eq!(outcome, Err(StreamError::Failed(error)));
        assert_eq!(side.pull_all(SEGMENT_BYTES).len(), 1);
    }
}
