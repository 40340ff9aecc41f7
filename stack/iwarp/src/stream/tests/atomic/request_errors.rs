//! Requests that a responder refuses, without changing the word.

use super::*;

/// A responder with one word of value 5, and a receive.
struct Target {
    side: Endpoint,
    word: Region,
}

fn target() -> Target {
    target_with(ATOMIC)
}

fn target_with(access: Access) -> Target {
    let side = side_by(Rfc7306Profile::RFC_7306, Role::Responder, |_| {});
    let word = words(&side, &[5, 5], access);
    Target { side, word }
}

impl Target {
    /// RFC7306-8.1-02: the Terminate includes the DDP header and never the request. The word is
    /// unchanged.
    #[track_caller]
    fn refuses(mut self, ulpdu: &[u8], code: [u8; 3]) {
        assert_eq!(self.side.feed(&framed(ulpdu)), failed(code));
        assert_eq!((word(&self.word, 0), word(&self.word, 1)), (5, 5), "the word was changed");
        let [layer, etype, code] = code;
        let headers = [&[layer << 4 | etype, code, 0xc0, 0, 0, ulpdu.len() as u8], &ulpdu[..18]].concat();
        assert_eq!(ulpdus(&self.side.pull(SEGMENT_BYTES)), [segment(0x47, [2, 1, 0], &headers)]);
    }
}

/// RFC7306-8.2-05 and RFC7306-8.2-08: tag, domain, bounds, wrap and right are checked as for the
/// source of a Read, with the same codes.
#[test]
fn a_word_that_the_peer_may_not_access_is_refused() {
    let add = AtomicOp::add(1);
    let v = target();
    let (stag, to) = at(&v.word, 0);
    v.refuses(&request(1, (STag(stag.0 ^ 0x5555), to), add), [0, 1, 0]);
    for off in [24, 0u64.wrapping_sub(8), u64::MAX / 4] {
        let v = target();
        let (stag, to) = at(&v.word, 0);
        v.refuses(&request(1, (stag, to.wrapping_add(off)), add), [0, 1, 1]);
    }
    let v = target();
    v.refuses(&request(1, (stag, u64::MAX - 6), add), [0, 1, 4]);
    let v = target_with(Access::all().difference(Access::REMOTE_ATOMIC));
    let place = at(&v.word, 0);
    v.refuses(&request(1, place, add), [0, 1, 2]);
    let v = target();
    let foreign = v.side.table.register(PdId(2), lines(64), ATOMIC).unwrap();
    v.refuses(&request(1, at(&foreign, 0), add), [0, 1, 3]);
    let v = target();
    let ended = words(&v.side, &[1], ATOMIC);
    let place = at(&ended, 0);
    drop(ended);
    v.refuses(&request(1, place, add), [0, 1, 0]);
}

/// RFC7306-5.1.1-01 to RFC7306-5.1.1-05, RFC7306-5.1.2-04 to RFC7306-5.1.2-08, RFC7306-8.2-06 and
/// RFC7306-8.2-07: the address must be a multiple of eight bytes. RFC7306-5.2.1-05 and
/// RFC7306-5.2.1-06: the tagged offset need not be.
#[test]
fn a_misaligned_word_is_refused_and_unchanged() {
    for operation in [AtomicOp::add(1), AtomicOp::compare_and_swap(0, 1)] {
        for off in 1..8 {
            let v = target();
            let (stag, to) = at(&v.word, 0);
            v.refuses(&request(1, (stag, to + off), operation), [0, 2, 7]);
        }
    }
}

/// RFC7306-5.2.1-13, RFC7306-5.2.1-03 and RFC7306-10-01: reserved operations, and Swap without
/// support for it.
#[test]
fn an_unknown_atomic_operation_is_refused() {
    for code in (0..16).filter(|code| ![0, 2].contains(code)) {
        let v = target();
        let mut ulpdu = request(1, at(&v.word, 0), AtomicOp::add(1));
        ulpdu[18 + 3] = code;
        v.refuses(&ulpdu, [0, 2, 6]);
    }
}

/// RFC7306-4-01: exactly 52 octets, which is also the size of the DDP buffer, in one segment.
/// RFC7306-8.2-02: in order, with DDP's version. RFC7306-8.2-03 and RFC7306-8.2-04: on its queue,
/// with its version.
#[test]
fn a_malformed_atomic_request_is_refused() {
    for (bytes, code) in [(0, [0, 2, 0xff]), (28, [0, 2, 0xff]), (51, [0, 2, 0xff]), (53, [1, 2, 5])] {
        let v = target();
        let mut ulpdu = request(1, at(&v.word, 0), AtomicOp::add(1));
        ulpdu.resize(18 + bytes, 0);
        v.refuses(&ulpdu, code);
    }
    type Change = fn(&mut Vec<u8>);
    let cases: [(Change, [u8; 3]); 11] = [
        (|ulpdu| ulpdu[0] = 0x01, [0, 2, 7]),
        // RFC 5041 s8.1: DDP version 0, 2 and 3 on an untagged segment.
        (|ulpdu| ulpdu[0] = 0x40, [1, 2, 6]),
        (|ulpdu| ulpdu[0] = 0x42, [1, 2, 6]),
        (|ulpdu| ulpdu[0] = 0x43, [1, 2, 6]),
        (|ulpdu| ulpdu[13] = 2, [1, 2, 3]),
        (|ulpdu| ulpdu[17] = 1, [1, 2, 4]),
        (|ulpdu| ulpdu[1] = 0x8a, [0, 2, 5]),
        (|ulpdu| ulpdu[9] = 0, [1, 2, 2]),
        (|ulpdu| ulpdu[9] = 2, [0, 2, 6]),
        (|ulpdu| ulpdu[9] = 3, [1, 2, 2]),
        (|ulpdu| ulpdu[9] = 4, [1, 2, 1]),
    ];
    for (change, code) in cases {
        let v = target();
        let mut ulpdu = request(1, at(&v.word, 0), AtomicOp::add(1));
        change(&mut ulpdu);
        v.refuses(&ulpdu, code);
    }
    // A Read Request keeps its exact length on a stream whose buffers are larger.
    let v = target();
    v.refuses(&segment(0x41, [1, 1, 0], &[0; 29]), [0, 2, 0xff]);
}

/// The tag is revoked while the request waits. The Terminate includes the header of that request.
#[test]
fn a_word_that_is_revoked_while_its_request_waits_is_refused() {
    let (mut a, mut b) = pair();
    let (source, target, before) =
        (words(&b, &[1], EVERYTHING), words(&b, &[5], ATOMIC), words(&a, &[0; 2], EVERYTHING));
    a.read(1, sink(&before, 0), at(&source, 0));
    atomic(&mut a, 2, AtomicOp::add(1), sink(&before, 1), at(&target, 0));
    let unit = a.pull(SEGMENT_BYTES);
    let headers = ulpdus(&unit).remove(1);
    b.feed(&unit).unwrap();
    drop(target);
    let (response, end) = (b.pull(SEGMENT_BYTES), b.pull(SEGMENT_BYTES));
    assert_eq!(ulpdus(&response).len(), 1, "the Read before it is answered");
    let headers = [&[0x01, 0x00, 0xc0, 0, 0, headers.len() as u8], &headers[..18]].concat();
    assert_eq!(ulpdus(&end), [segment(0x47, [2, 1, 0], &headers)]);
}

/// With several cores and no forwarding, each core changes words with locked instructions. Without
/// locked instructions, a core does not change the word of another.
#[test]
fn a_word_of_another_core_is_changed_only_by_locked_instructions() {
    for locked in [false, true] {
        let mut done = 0;
        for _ in 0..32 {
            let config = StreamConfig {
                extensions: Some(Rfc7306Profile::RFC_7306),
                atomic_locked: locked,
                ..config()
            };
            let mut b = Endpoint::started(config, Role::Responder, true);
            let target = words(&b, &[5; 64], ATOMIC);
            for index in 0..4 {
                let ulpdu = request(index as u8 + 1, at(&target, index * 16), AtomicOp::add(1));
                let _ = b.feed(&framed(&ulpdu));
                let _ = b.pull_all(SEGMENT_BYTES);
            }
            done += (0..4).filter(|index| word(&target, index * 16) == 6).count();
        }
        assert_eq!(done == 128, locked, "{done} of 128");
    }
}

/// A response without a request finds no buffer on queue 3 (RFC 5041 s7.1).
#[test]
fn an_atomic_response_without_a_request_is_refused() {
    target().refuses(&response(1, 0, 9), [1, 2, 2]);
}
