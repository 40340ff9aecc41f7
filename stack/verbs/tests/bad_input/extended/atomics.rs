//! Invalid Atomic Requests: forbidden words, undefined operations, wrong lengths, and more requests
//! than were negotiated (RFC 7306 s5.1, s5.2.1, s8.2).

use ironwarp::{Access, DisconnectReason, Extensions, Region};
use proptest::prelude::*;

use super::{PAGE, begins, bench, every, filled, is_untouched, words};
use crate::bad_input::bench::{Begins, Bench, Victim};
use crate::bad_input::cases;
use crate::common::messages::{atomic_request, fetch_add, place, read_request, untagged};

/// The defined operations.
fn operation() -> impl Strategy<Value = u32> {
    prop::sample::select(&[0u32, 2][..])
}

/// Sends one request about a page of words, which must be refused.
#[track_caller]
fn refused(begins: Begins, name: &str, make: impl FnOnce((u32, u64)) -> Vec<u8>) {
    let mut bench = bench();
    let words = words(&bench);
    bench.refuses(begins, name, |_| make(place(&words)));
    is_untouched(&words);
}

proptest! {
    #![proptest_config(cases(24))]

    /// RFC 7306 s5.1.1, s5.1.2, s8.2: addresses that are not a multiple of eight. RFC7306-5.1.1-02,
    /// RFC7306-5.1.1-04, RFC7306-5.1.2-05 and RFC7306-5.1.2-07: nothing changes, the peer gets a
    /// Terminate and our application an event.
    #[test]
    fn misaligned_words(begins in begins(), code in operation(), at in 0..(PAGE as u64 - 8), operands: [u64; 4]) {
        let at = if at % 8 == 0 { at + 1 } else { at };
        refused(begins, "RDMAP: catastrophic, this stream", |(stag, to)| {
            atomic_request(1, 7, code, (stag, to + at), operands)
        });
    }

    /// RFC 5040 s7.2, check 4 c to e, which RFC 7306 s8.2 does not repeat: a word before its
    /// buffer, behind it, across either end, past the top of the offsets.
    #[test]
    fn words_outside_their_buffer(
        begins in begins(),
        code in operation(),
        off in prop_oneof![1..4096u64, Just(u64::MAX / 2)],
        behind: bool,
        operands: [u64; 4],
    ) {
        refused(begins, "RDMAP: base or bounds", |(stag, to)| {
            let at = if behind { to + PAGE as u64 - 8 + off } else { to - off.min(to) };
            atomic_request(1, 7, code, (stag, at), operands)
        });
    }

    /// The same for a word whose last octet is beyond the last offset.
    #[test]
    fn words_at_the_end_of_the_address_space(begins in begins(), code in operation(), short in 1..8u64, operands: [u64; 4]) {
        refused(begins, "RDMAP: TO wrap", |(stag, _)| {
            atomic_request(1, 7, code, (stag, 0u64.wrapping_sub(short)), operands)
        });
    }

    /// RFC 7306 s5.2.1, figure 5: reserved operation codes, Swap's among them, with any reserved
    /// bits.
    #[test]
    fn operations_that_are_reserved(
        begins in begins(),
        code in prop_oneof![Just(1u32), 3..16u32],
        reserved in 0..0x0fff_ffffu32,
        operands: [u64; 4],
    ) {
        refused(begins, "RDMAP: unexpected OpCode", |word| {
            atomic_request(1, 7, (reserved << 4) | code, word, operands)
        });
    }

    /// RFC 5041 s7.1, RFC 7306 s8.2: versions, numbers and offsets are checked as in any other
    /// message.
    #[test]
    fn headers_of_requests(begins in begins(), code in operation(), which in 0..4usize, other in 1..4u32) {
        let name = ["DDP: version, untagged", "RDMAP: version", "DDP: MSN range", "DDP: invalid MO"][which];
        refused(begins, name, |word| {
            let mut segment = atomic_request(1, 7, code, word, [1, 0, 0, 0]);
            match which {
                0 => segment[0] ^= other as u8,
                1 => segment[1] ^= (other as u8) << 6,
                2 => segment[10..14].copy_from_slice(&(1 + other).to_be_bytes()),
                _ => segment[14..18].copy_from_slice(&other.to_be_bytes()),
            }
            segment
        });
    }
}

/// RFC 7306 s4, s5.2.1: the payload of a request is its header. More does not fit the buffer of
/// queue 1; less is not a header. A Read Request must still not be longer than its own header.
#[test]
fn requests_of_every_length() {
    let mut bench = bench();
    let words = words(&bench);
    for bytes in (0..64).filter(|bytes| *bytes != 52) {
        let name = if bytes < 52 { "RDMAP: unspecified operation error" } else { "DDP: message too long" };
        bench.refuses(Begins::Peer, name, |_| {
            let mut segment = fetch_add(1, place(&words), 1);
            segment.resize(18 + bytes, 0);
            segment
        });
    }
    for bytes in (0..=52).filter(|bytes| *bytes != 28) {
        bench.refuses(Begins::Node, "RDMAP: unspecified operation error", |_| {
            let mut segment = read_request(1, (1, 0), 8, place(&words));
            segment.resize(18 + bytes, 0);
            segment
        });
    }
    is_untouched(&words);
}

/// RFC 7306 s4.2: a request is one segment.
#[test]
fn a_request_in_two_segments() {
    refused(Begins::Peer, "RDMAP: catastrophic, this stream", |word| {
        let mut segment = fetch_add(1, word, 1);
        segment[0] &= !0x40;
        segment
    });
}

/// RFC 7306 s4.1, figure 2: each operation on every queue that is not its own.
#[test]
fn operations_on_queues_of_other_operations() {
    let mut bench = bench();
    let words = words(&bench);
    for (operation, own) in [(8, 0), (9, 0), (10, 1), (11, 3)] {
        for qn in (0..5).filter(|qn| *qn != own) {
            // We have no request outstanding, so queue 3 has no buffer; queue 4 does not exist.
            let name = match qn {
                3 => "DDP: no buffer",
                4 => "DDP: invalid QN",
                _ => "RDMAP: unexpected OpCode",
            };
            bench.refuses(Begins::Peer, name, |_| {
                let mut segment = fetch_add(1, place(&words), 1);
                (segment[1], segment[9]) = (0x40 | operation, qn);
                segment
            });
        }
    }
    is_untouched(&words);
}

/// RFC 7306 s1.1: a stream without these messages treats each of them as unexpected on its own
/// queue, and has no queue 3.
#[test]
fn operations_that_the_stream_does_not_support() {
    let mut bench = Bench::new();
    let words = words(&bench);
    for (operation, qn, bytes) in [(8, 0, 8), (9, 0, 8), (10, 1, 52), (11, 1, 12), (8, 0, 0), (10, 1, 0)] {
        bench.refuses(Begins::Peer, "RDMAP: unexpected OpCode", |_| {
            let mut segment = fetch_add(1, place(&words), 1);
            (segment[1], segment[9]) = (0x40 | operation, qn);
            segment.resize(18 + bytes, 0);
            segment
        });
    }
    bench.refuses(Begins::Peer, "DDP: invalid QN", |_| untagged(11, 3, 1, 0, &[0; 12]));
    is_untouched(&words);
}

/// Why a peer may not change a word.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Why {
    Unknown,
    GivenUp,
    OtherDomain,
    OtherStream,
    NoRight,
    /// Invalidated by the node's own work request.
    Invalidated,
    /// Invalidated by the peer's Send in front of the request.
    InvalidatedByPeer,
}

const ALL: [Why; 7] = [
    Why::Unknown,
    Why::GivenUp,
    Why::OtherDomain,
    Why::OtherStream,
    Why::NoRight,
    Why::Invalidated,
    Why::InvalidatedByPeer,
];

/// A page that the victim's peer may not change.
fn forbidden(bench: &mut Bench, victim: &Victim, why: Why) -> Region {
    let other = bench.scene.qp();
    let node = &bench.scene.node;
    match why {
        Why::Unknown | Why::GivenUp => node.ctx.register(node.pd, filled(), every()),
        Why::OtherDomain => node.ctx.register(node.ctx.alloc_pd(), filled(), every()),
        Why::OtherStream => node.ctx.register_for_qp(other, filled(), every()),
        Why::NoRight => node.ctx.register(node.pd, filled(), every().difference(Access::REMOTE_ATOMIC)),
        Why::Invalidated | Why::InvalidatedByPeer => node.ctx.register_for_qp(victim.qp, filled(), every()),
    }
    .unwrap()
}

#[track_caller]
fn may_not_be_changed(begins: Begins, why: Why, bits: u32, code: u32) {
    let mut bench = bench();
    let victim = bench.victim(begins);
    let region = forbidden(&mut bench, &victim, why);
    let (mut stag, to) = place(&region);
    let mut segments = Vec::new();
    let mut msn = 1;
    match why {
        Why::Unknown => stag ^= bits.max(1),
        Why::GivenUp | Why::Invalidated => {
            // Revoked; the region keeps the memory for the check.
            let _ = region.revoke();
        }
        Why::InvalidatedByPeer => {
            // An allowed request, the Send that invalidates the tag, and a forbidden request.
            segments.push(fetch_add(1, (stag, to), 0));
            let mut send = untagged(4, 0, 1, 0, b"");
            send[2..6].copy_from_slice(&stag.to_be_bytes());
            segments.push(send);
            msn = 2;
        }
        _ => {}
    }
    let segment = atomic_request(msn, 5, code, (stag, to), [1, 0, 0, 0]);
    segments.push(segment.clone());
    bench.says(&segments);
    let name = match why {
        Why::OtherDomain | Why::OtherStream => "RDMAP: STag not associated",
        Why::NoRight => "RDMAP: access rights",
        _ => "RDMAP: invalid STag",
    };
    bench.reports(victim.qp, name, &segment);
    bench.is_over(victim, DisconnectReason::Terminated);
    is_untouched(&region);
}

proptest! {
    #![proptest_config(cases(24))]

    /// RFC 5040 s7.2, s8.1.1, RFC 7306 s8.2: tags that are unknown, invalidated, of another domain
    /// or stream, or without the right.
    #[test]
    fn atomics_on_stags_without_the_right(
        begins in begins(),
        why in prop::sample::select(&ALL[..]),
        bits: u32,
        code in operation(),
    ) {
        may_not_be_changed(begins, why, bits, code);
    }

    /// RFC 7306 s5.2, s5.2.2: Reads and Atomics use the same buffers of queue 1, in any order. The
    /// first request without a buffer is refused, and its word is not changed.
    #[test]
    fn more_requests_than_were_agreed_on(
        ird in 0..6u16,
        kinds in prop::collection::vec(any::<bool>(), 7..10),
    ) {
        let mut bench = bench();
        bench.ird = ird;
        let words = words(&bench);
        let victim = bench.victim(Begins::Peer);
        let (stag, to) = place(&words);
        let requests: Vec<_> = (1..).zip(&kinds).map(|(msn, is_atomic)| match is_atomic {
            true => fetch_add(msn, (stag, to + 8 * u64::from(msn)), 1),
            false => read_request(msn, (1, 0), 64, (stag, to)),
        }).collect();
        bench.says(&requests);
        bench.ends_with(victim, "DDP: no buffer", &requests[usize::from(ird)]);
        let kept = crate::common::contents(&words);
        let from = 8 * (usize::from(ird) + 1);
        prop_assert!(kept[from..].iter().all(|octet| *octet == 0xa7), "a word of a request beyond the IRD changed");
    }
}

/// Every reason at least once, whatever the property chooses.
#[test]
fn every_reason_to_refuse_an_atomic() {
    ALL.into_iter().for_each(|why| may_not_be_changed(Begins::Peer, why, 0x100, 0));
}

/// Operations outside a profile: the RFC and draft -10 refuse Swap; drafts -01 and -03 execute it.
#[test]
fn swap_by_each_draft() {
    for (extensions, is_there) in
        [(Extensions::Rfc7306, false), (Extensions::Draft03, true), (Extensions::Draft01, true)]
    {
        let mut bench = Bench::with(|config| config.rdmap.extensions = extensions);
        let words = words(&bench);
        let swap = atomic_request(1, 3, 1, place(&words), [9, u64::MAX, 0, u64::MAX]);
        if !is_there {
            bench.refuses(Begins::Peer, "RDMAP: unexpected OpCode", |_| swap);
            is_untouched(&words);
            continue;
        }
        let victim = bench.victim(Begins::Peer);
        bench.says(&[swap]);
        let answer = bench.scene.segment("the response");
        let queue = if extensions == Extensions::Draft01 { 1 } else { 3 };
        assert_eq!((answer[1], answer[9], &answer[22..]), (0x4b, queue, &[0xa7; 8][..]));
        assert_eq!(crate::common::contents(&words)[..8], 9u64.to_ne_bytes());
        bench.scene.peer.close();
        bench.is_over(victim, DisconnectReason::Closed);
    }
}
