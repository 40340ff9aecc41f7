//! Responses that match no request, and requests that get none.

use super::*;

/// A side with an unanswered FetchAdd, Read and Send, and their sinks.
fn requester() -> (Endpoint, Region) {
    let mut side = side_by(Rfc7306Profile::RFC_7306, Role::Initiator, |_| {});
    let sinks = words(&side, &[1, 2], EVERYTHING);
    atomic(&mut side, 1, AtomicOp::add(1), sink(&sinks, 0), (STag(1), 0));
    side.read(2, sink(&sinks, 1), (STag(1), 0));
    side.send_inline(3, b"behind");
    assert_eq!(side.pull_all(SEGMENT_BYTES).len(), 1);
    (side, sinks)
}

/// RFC7306-5-06, RFC7306-5.2.2-03, RFC7306-5.2.2-06, RFC7306-5.2.2-08: a response out of order, of
/// another length, for another request, or of another kind fails the oldest request.
#[test]
fn an_atomic_response_that_does_not_match_the_oldest_request_is_refused() {
    let good = response(1, 0, 9);
    let cut = |bytes: usize| good[..18 + bytes].to_vec();
    let changed = |at: usize, to: u8| {
        let mut ulpdu = good.clone();
        ulpdu[at] = to;
        ulpdu
    };
    let bad = CompletionStatus::BadResponse;
    let cases = [
        (response(1, 1, 9), [0, 2, 7], bad),
        (response(2, 0, 9), [1, 2, 3], bad),
        (cut(11), [0, 2, 0xff], bad),
        ([good.clone(), vec![0]].concat(), [1, 2, 5], bad),
        (changed(17, 1), [1, 2, 4], bad),
        (changed(0, 0x01), [0, 2, 7], bad),
        (changed(1, 0x8b), [0, 2, 5], FLUSHED),
        (changed(1, 0x4a), [0, 2, 6], FLUSHED),
        (changed(9, 1), [0, 2, 6], FLUSHED),
    ];
    for (ulpdu, code, status) in cases {
        let (mut side, sinks) = requester();
        assert_eq!(side.feed(&framed(&ulpdu)), failed(code), "{ulpdu:02x?}");
        assert_eq!(ids(&side.log.sends), [(1, status), (2, FLUSHED), (3, FLUSHED)], "{ulpdu:02x?}");
        assert_eq!((word(&sinks, 0), word(&sinks, 1)), (1, 2), "{ulpdu:02x?}");
    }
}

/// A Read Response while an atomic is the oldest request, and an Atomic Response while a Read is.
#[test]
fn responses_in_the_wrong_order_are_refused() {
    let (mut side, sinks) = requester();
    let mut ulpdu = vec![0; 14];
    let header =
        crate::ddp::Tagged { last: true, ulp: 0x42, stag: sinks.stag(), tagged_offset: sinks.base_to() + 8 };
    header.encode(&mut ulpdu);
    ulpdu.extend([7; 8]);
    assert_eq!(side.feed(&framed(&ulpdu)), failed([0, 2, 6]));
    assert_eq!(ids(&side.log.sends), [(1, CompletionStatus::BadResponse), (2, FLUSHED), (3, FLUSHED)]);
    let mut side = side_by(Rfc7306Profile::RFC_7306, Role::Initiator, |_| {});
    let sinks = words(&side, &[1, 2], EVERYTHING);
    side.read(1, sink(&sinks, 0), (STag(1), 0));
    atomic(&mut side, 2, AtomicOp::add(1), sink(&sinks, 1), (STag(1), 0));
    let _ = side.pull(SEGMENT_BYTES);
    assert_eq!(side.feed(&framed(&response(1, 1, 9))), failed([0, 2, 7]));
    assert_eq!(ids(&side.log.sends), [(1, CompletionStatus::BadResponse), (2, FLUSHED)]);
    assert_eq!((word(&sinks, 0), word(&sinks, 1)), (1, 2));
}

/// RFC7306-8.1-01: a request that cannot be sent fails with its own status. A Terminate without
/// headers is sent instead.
#[test]
fn an_atomic_that_cannot_be_sent_ends_the_stream() {
    type Change = fn(&mut StreamConfig);
    type Post = fn(&mut Endpoint, &Region);
    let as_it_is: Change = |_| {};
    let operation = CompletionStatus::LocalOperation;
    let cases: [(Change, Post, CompletionStatus); 6] = [
        (
            |config| config.extensions = None,
            |side, sinks| atomic(side, 1, AtomicOp::add(1), sink(sinks, 0), (STag(1), 0)),
            operation,
        ),
        (
            |config| config.ord = 0,
            |side, sinks| atomic(side, 1, AtomicOp::add(1), sink(sinks, 0), (STag(1), 0)),
            operation,
        ),
        (
            as_it_is,
            |side, sinks| atomic(side, 1, AtomicOp::Swap { swap: 1 }, sink(sinks, 0), (STag(1), 0)),
            operation,
        ),
        (as_it_is, |side, _| side.post(1, SendOpcode::FetchAdd, |wqe| wqe.set_gather(&[])), operation),
        (
            as_it_is,
            |side, sinks| atomic(side, 1, AtomicOp::add(1), sinks.slice(0, 7).unwrap(), (STag(1), 0)),
            CompletionStatus::LocalLength,
        ),
        (
            as_it_is,
            |side, sinks| {
                atomic(side, 1, AtomicOp::add(1), Sge { lkey: STag(5), ..sink(sinks, 0) }, (STag(1), 0))
            },
            CompletionStatus::LocalProtection,
        ),
    ];
    for (change, post, status) in cases {
        let mut side = side_by(Rfc7306Profile::RFC_7306, Role::Initiator, change);
        let sinks = words(&side, &[1], EVERYTHING);
        post(&mut side, &sinks);
        assert!(side.pull(SEGMENT_BYTES).is_empty());
        assert_eq!(ulpdus(&side.pull(SEGMENT_BYTES)), [segment(0x47, [2, 1, 0], &[0; 4])]);
        assert_eq!(ids(&side.log.sends), [(1, status)]);
    }
}

/// A sink that is revoked while its request waits is an error of the local application.
#[test]
fn a_revoked_sink_fails_its_request() {
    let mut side = side_by(Rfc7306Profile::RFC_7306, Role::Initiator, |_| {});
    let sinks = words(&side, &[1], EVERYTHING);
    atomic(&mut side, 1, AtomicOp::add(1), sink(&sinks, 0), (STag(1), 0));
    let _ = side.pull(SEGMENT_BYTES);
    drop(sinks);
    assert_eq!(side.feed(&framed(&response(1, 0, 9))), failed([0, 0, 0]));
    assert_eq!(ids(&side.log.sends), [(1, CompletionStatus::LocalProtection)]);
}
