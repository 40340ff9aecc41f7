//! Tags that the peer may not use: unknown, deregistered, of another domain, of another stream,
//! without the right, ended by a Send with Invalidate (RFC 5040 s5.3, s7.2, s8.1.1, RFC 5041 s7.1,
//! s8.2).

use ironwarp::{Access, DisconnectReason, Region};
use proptest::prelude::*;

use crate::bad_input::bench::{Begins, Bench, Victim};
use crate::bad_input::cases;
use crate::common::contents;
use crate::common::messages::{place, read_request, tagged, untagged};

/// Why a tag may not be used.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Why {
    Unknown,
    GivenUp,
    OtherDomain,
    OtherStream,
    NoRight,
}

const ALL: [Why; 5] = [Why::Unknown, Why::GivenUp, Why::OtherDomain, Why::OtherStream, Why::NoRight];

/// A tag and offset that may not be used, and memory that must stay unchanged.
struct Forbidden {
    place: (u32, u64),
    kept: Option<Region>,
}

fn forbidden(bench: &mut Bench, victim: &Victim, why: Why, bits: u32) -> Forbidden {
    let every = Access::LOCAL_WRITE | Access::REMOTE_READ | Access::REMOTE_WRITE;
    let other = bench.scene.qp();
    let node = &bench.scene.node;
    let octets = || vec![0x7a; 64];
    let region = match why {
        Why::Unknown => {
            let (stag, to) = place(&victim.buffer);
            return Forbidden { place: (stag ^ bits.max(1), to), kept: None };
        }
        Why::GivenUp => {
            let region = node.memory(&octets());
            return Forbidden { place: place(&region), kept: None };
        }
        Why::OtherDomain => node.ctx.register(node.ctx.alloc_pd(), octets(), every),
        Why::OtherStream => node.ctx.register_for_qp(other, octets(), every),
        Why::NoRight => node.ctx.register(node.pd, octets(), Access::LOCAL_WRITE),
    };
    let region = region.unwrap();
    Forbidden { place: place(&region), kept: Some(region) }
}

#[track_caller]
fn refused(why: Why, begins: Begins, bits: u32, name: &str, make: impl FnOnce((u32, u64)) -> Vec<u8>) {
    let mut bench = Bench::new();
    let victim = bench.victim(begins);
    let forbidden = forbidden(&mut bench, &victim, why, bits);
    let segment = make(forbidden.place);
    bench.says(std::slice::from_ref(&segment));
    bench.ends_with(victim, name, &segment);
    if let Some(region) = forbidden.kept {
        assert_eq!(contents(&region), [0x7a; 64], "{why:?}");
    }
}

proptest! {
    #![proptest_config(cases(32))]

    /// RFC 5041 s7.1, tagged checks 1 and 2, s8.2. DDP has no code for a missing right; the tag
    /// allows no such placement.
    #[test]
    fn writes_to_stags_without_the_right(
        why in prop::sample::select(&ALL[..]),
        node: bool,
        bits: u32,
        bytes in 1..64usize,
    ) {
        let name = match why {
            Why::Unknown | Why::GivenUp | Why::NoRight => "DDP: invalid STag",
            Why::OtherDomain | Why::OtherStream => "DDP: STag not associated",
        };
        let begins = if node { Begins::Node } else { Begins::Peer };
        refused(why, begins, bits, name, |(stag, to)| tagged(0, stag, to, &[0xff; 64][..bytes]));
    }

    /// RFC 5040 s7.2, check 4 a and b.
    #[test]
    fn reads_of_stags_without_the_right(
        why in prop::sample::select(&ALL[..]),
        node: bool,
        bits: u32,
        bytes in 1..64u32,
    ) {
        let name = match why {
            Why::Unknown | Why::GivenUp => "RDMAP: invalid STag",
            Why::OtherDomain | Why::OtherStream => "RDMAP: STag not associated",
            Why::NoRight => "RDMAP: access rights",
        };
        let begins = if node { Begins::Node } else { Begins::Peer };
        refused(why, begins, bits, name, |source| read_request(1, (5, 5), bytes, source));
    }

    /// RFC 5040 s5.3, s7.2, s8.1.1 (7): a peer cannot invalidate a tag that is invalid or that is
    /// not limited to this stream. The payload is not placed.
    #[test]
    fn sends_that_invalidate_without_the_right(
        why in prop::sample::select(&ALL[..]),
        solicited: bool,
        bits: u32,
    ) {
        let name = match why {
            Why::Unknown | Why::GivenUp => "RDMAP: invalid STag",
            // A region without remote rights belongs to its domain, like every other region.
            Why::OtherDomain | Why::OtherStream | Why::NoRight => "RDMAP: STag cannot be invalidated",
        };
        let operation = if solicited { 6 } else { 4 };
        refused(why, Begins::Peer, bits, name, |(stag, _)| {
            let mut segment = untagged(operation, 0, 1, 0, b"payload");
            segment[2..6].copy_from_slice(&stag.to_be_bytes());
            segment
        });
    }
}

/// RFC 5040 s5.3: after a Send with Invalidate the tag is unknown to Writes, to Reads and to the
/// next Send.
#[test]
fn stags_that_the_peer_has_invalidated() {
    let mut bench = Bench::new();
    for (name, again) in [("DDP: invalid STag", 0), ("RDMAP: invalid STag", 1), ("RDMAP: invalid STag", 4)] {
        let victim = bench.victim(Begins::Peer);
        let every = Access::LOCAL_WRITE | Access::REMOTE_READ | Access::REMOTE_WRITE;
        let own = bench.scene.node.ctx.register_for_qp(victim.qp, vec![0x7a; 64], every).unwrap();
        let (stag, to) = place(&own);
        let invalidate = |msn| {
            let mut segment = untagged(4, 0, msn, 0, b"");
            segment[2..6].copy_from_slice(&stag.to_be_bytes());
            segment
        };
        let second = match again {
            0 => tagged(0, stag, to, b"x"),
            1 => read_request(1, (5, 5), 8, (stag, to)),
            _ => invalidate(2),
        };
        bench.says(&[invalidate(1), second.clone()]);
        bench.ends_with(victim, name, &second);
        assert_eq!(contents(&own), [0x7a; 64]);
    }
}

/// RFC 5041 s5.2, RFC 5040 s5.2.1: the tag of an empty message is not checked.
#[test]
fn empty_messages_to_forbidden_stags() {
    let mut bench = Bench::new();
    for why in ALL {
        let victim = bench.victim(Begins::Peer);
        let (stag, to) = forbidden(&mut bench, &victim, why, 1).place;
        bench.says(&[tagged(0, stag, to, b""), read_request(1, (5, 6), 0, (stag, to))]);
        assert_eq!(bench.scene.segment("the empty response"), tagged(2, 5, 6, b""));
        bench.scene.peer.close();
        bench.is_over(victim, DisconnectReason::Closed);
    }
}
