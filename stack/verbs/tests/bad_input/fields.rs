//! Every header field out of its range (RFC 5044 s4, RFC 5041 s4, s7.1, RFC 5040 s4.1, s7.2).

use ironwarp::{Access, CompletionFlags, CompletionStatus, DisconnectReason};
use proptest::prelude::*;

use crate::bad_input::bench::{Begins, Bench, Victim};
use crate::bad_input::cases;
use crate::common::contents;
use crate::common::messages::{self, crc, fpdu, place, read_request, send, tagged, untagged};

fn begins() -> impl Strategy<Value = Begins> {
    prop_oneof![Just(Begins::Node), Just(Begins::Peer)]
}

/// A segment with valid fields, one for each kind of message that a peer may send first.
fn right(kind: usize, victim: &Victim) -> Vec<u8> {
    let (stag, to) = place(&victim.buffer);
    match kind {
        0 => tagged(0, stag, to, b"write"),
        1 => send(1, b"send"),
        2 => untagged(5, 0, 1, 0, b"solicited"),
        _ => read_request(1, (1, 0), 16, (stag, to)),
    }
}

proptest! {
    #![proptest_config(cases(32))]

    /// RFC 5041 s4.1, s7.1: a version other than 1, whatever the reserved bits and L are.
    #[test]
    fn ddp_versions_other_than_one(
        begins in begins(),
        kind in 0..4usize,
        version in prop::sample::select(&[0u8, 2, 3][..]),
        other in 0..0x20u8,
    ) {
        let name = if kind == 0 { "DDP: version, tagged" } else { "DDP: version, untagged" };
        Bench::new().refuses(begins, name, |victim| {
            let mut segment = right(kind, victim);
            segment[0] = (segment[0] & 0x80) | (other << 2) | version;
            segment
        });
    }

    /// RFC 5040 s4.1, s7.2: a version other than 1, whatever the reserved bits are.
    #[test]
    fn rdmap_versions_other_than_one(
        begins in begins(),
        kind in 0..4usize,
        version in prop::sample::select(&[0u8, 2, 3][..]),
        reserved in 0..4u8,
    ) {
        Bench::new().refuses(begins, "RDMAP: version", |victim| {
            let mut segment = right(kind, victim);
            segment[1] = (version << 6) | (reserved << 4) | (segment[1] & 0x0f);
            segment
        });
    }

    /// RFC 5041 s7.1, untagged check 1; RFC 5040 s4.1 has queues 0 to 2.
    #[test]
    fn queues_that_do_not_exist(
        begins in begins(),
        operation in 0..16u8,
        qn in prop_oneof![3..9u32, 3..=u32::MAX],
        msn: u32,
        mo: u32,
    ) {
        Bench::new().refuses(begins, "DDP: invalid QN", |_| untagged(operation, qn, msn, mo, b"x"));
    }

    /// RFC 5041 s4.3, s7.1, untagged check 5: on every queue the first message is number 1.
    #[test]
    fn message_numbers_that_are_not_the_next(
        begins in begins(),
        kind in 1..5usize,
        msn in prop_oneof![Just(0u32), 2..9u32, 2..=u32::MAX],
        mo: u32,
    ) {
        Bench::new().refuses(begins, "DDP: MSN range", |victim| {
            let mut segment = if kind == 4 { messages::terminate(&[0; 4]) } else { right(kind, victim) };
            segment[10..14].copy_from_slice(&msn.to_be_bytes());
            segment[14..18].copy_from_slice(&mo.to_be_bytes());
            segment
        });
    }

    /// RFC 5041 s5.2, s7.1, untagged check 3: the first segment of a message begins at 0.
    #[test]
    fn message_offsets_that_are_not_the_next(
        begins in begins(),
        kind in 1..5usize,
        mo in prop_oneof![1..99u32, 1..=u32::MAX],
    ) {
        Bench::new().refuses(begins, "DDP: invalid MO", |victim| {
            let mut segment = if kind == 4 { messages::terminate(&[0; 4]) } else { right(kind, victim) };
            segment[14..18].copy_from_slice(&mo.to_be_bytes());
            segment
        });
    }

    /// RFC 5041 s7.1, tagged checks 3 to 5: before the buffer, beyond it, across either end, past
    /// the top of the offsets.
    #[test]
    fn writes_outside_their_buffer(begins in begins(), bytes in 1..64u64, at in outside()) {
        let mut bench = Bench::new();
        let victim = bench.victim(begins);
        let (stag, base) = place(&victim.buffer);
        let to = at.of(base, bytes);
        let segment = tagged(0, stag, to, &vec![0xff; bytes as usize]);
        bench.says(std::slice::from_ref(&segment));
        let wraps = to.checked_add(bytes).is_none();
        bench.ends_with(victim, if wraps { "DDP: TO wrap" } else { "DDP: base or bounds" }, &segment);
    }

    /// RFC 5040 s7.2, check 4 c to e: the same for the source of a Read Request, with RDMAP's
    /// codes.
    #[test]
    fn reads_outside_their_buffer(begins in begins(), bytes in 1..64u64, at in outside()) {
        let mut bench = Bench::new();
        let victim = bench.victim(begins);
        let (stag, base) = place(&victim.buffer);
        let to = at.of(base, bytes);
        let segment = read_request(1, (7, 7), bytes as u32, (stag, to));
        bench.says(std::slice::from_ref(&segment));
        let wraps = to.checked_add(bytes).is_none();
        bench.ends_with(victim, if wraps { "RDMAP: TO wrap" } else { "RDMAP: base or bounds" }, &segment);
    }

    /// RFC 5044 s4.4, s8: the CRC covers every bit of header, payload, padding and the CRC itself.
    /// No part of the FPDU is used.
    #[test]
    fn any_flipped_bit(begins in begins(), kind in 0..4usize, place in any::<prop::sample::Index>()) {
        let mut bench = Bench::new();
        let victim = bench.victim(begins);
        let mut octets = fpdu(&right(kind, &victim));
        // The length field determines the offset of the CRC; `fpdu_length` tests wrong lengths.
        let bit = 16 + place.index(8 * octets.len() - 16);
        octets[bit / 8] ^= 1 << (bit % 8);
        bench.scene.peer.say(&octets);
        bench.ends_with(victim, "MPA: CRC", &[]);
    }

    /// RFC 5044 s4.3, s8: a marker that does not point to the FPDU's length field, with a correct
    /// CRC.
    #[test]
    fn markers_that_point_to_a_wrong_fpdu(begins in begins(), pointer in 1..0x4000u16) {
        let mut bench = Bench::with(|config| config.mpa.markers = true);
        let victim = bench.victim(begins);
        // The two lowest bits are not checked, because every position is a multiple of four.
        let marked = [&[0, 0][..], &(4 * pointer).to_be_bytes(), &fpdu(&right(1, &victim))].concat();
        let (covered, _) = marked.split_at(marked.len() - 4);
        bench.scene.peer.say(&[covered, &crc(covered)].concat());
        bench.ends_with(victim, "MPA: marker", &[]);
    }

    /// RFC 5041 s4.1, s4.3, RFC 5040 s4.1: reserved fields are not checked. Such a message is
    /// received like any other.
    #[test]
    fn reserved_fields_are_no_error(begins in begins(), ddp in 0..16u8, rdmap in 0..4u8, word: u32) {
        let mut bench = Bench::new();
        let victim = bench.victim(begins);
        let mut segment = send(1, b"send");
        segment[0] |= ddp << 2;
        segment[1] |= rdmap << 4;
        segment[2..6].copy_from_slice(&word.to_be_bytes());
        bench.says(&[segment]);
        bench.scene.until("the message", |scene| scene.node.completions.len() == 1);
        prop_assert_eq!(&contents(&victim.inbox)[..4], b"send");
        bench.scene.peer.close();
        bench.is_over(victim, DisconnectReason::Closed);
    }
}

/// A position outside a buffer.
#[derive(Clone, Copy, Debug)]
enum Outside {
    /// This many octets before the buffer's first octet.
    Before(u64),
    /// This many octets reach beyond the buffer's last octet.
    Beyond(u64),
    /// This many octets behind the buffer's end.
    Behind(u64),
    /// This many octets pass the top of the offsets.
    Around(u64),
    /// This offset, or one behind the buffer if it is inside.
    Anywhere(u64),
}

fn outside() -> impl Strategy<Value = Outside> {
    prop_oneof![
        (1..9000u64).prop_map(Outside::Before),
        (1..64u64).prop_map(Outside::Beyond),
        (0..9000u64).prop_map(Outside::Behind),
        (1..64u64).prop_map(Outside::Around),
        any::<u64>().prop_map(Outside::Anywhere),
    ]
}

impl Outside {
    /// Returns the offset for `bytes` octets at this position, relative to a buffer that begins at
    /// `base`.
    fn of(self, base: u64, bytes: u64) -> u64 {
        let buffer = crate::bad_input::bench::BUFFER as u64;
        match self {
            Outside::Before(by) => base.wrapping_sub(by),
            Outside::Beyond(by) => base + buffer - bytes + by.min(bytes),
            Outside::Behind(by) => base + buffer + by,
            // RFC 5041 s7.1: offset and length together must not pass 2^64.
            Outside::Around(by) => u64::MAX - (bytes - by.min(bytes)),
            Outside::Anywhere(to) if to.wrapping_sub(base) < buffer => to.wrapping_add(buffer),
            Outside::Anywhere(to) => to,
        }
    }
}

/// RFC 5040 s4.1 figure 4, s7.2: every operation in every state, undefined operations included.
#[test]
fn operations_in_the_wrong_phase() {
    let mut bench = Bench::new();
    for operation in 0..16u8 {
        let wrong = |allowed: &[u8]| !allowed.contains(&operation);
        for begins in [Begins::Node, Begins::Peer] {
            if wrong(&[0, 2]) {
                bench.refuses(begins, "RDMAP: unexpected OpCode", |victim| {
                    let (stag, to) = place(&victim.buffer);
                    tagged(operation, stag, to, b"x")
                });
            }
            for (qn, allowed, payload) in [(0, &[3, 4, 5, 6][..], 5), (1, &[1], 28), (2, &[7], 4)] {
                if wrong(allowed) {
                    let segment = untagged(operation, qn, 1, 0, &[0; 28][..payload]);
                    bench.refuses(begins, "RDMAP: unexpected OpCode", |_| segment);
                }
            }
        }
    }
}

/// RFC5041-4.3-05: the word for the layer above may differ from segment to segment, and a receiver
/// may use any of them. The stack uses that of the last segment: it reads the operation and the tag
/// to invalidate when the message is complete.
#[test]
fn an_operation_or_a_tag_that_changes_within_a_message() {
    let mut bench = Bench::new();
    // Each of the four kinds of Send as the last segment, behind a segment of another kind with an
    // unknown tag.
    for (first, last) in [(4, 5), (3, 4), (5, 6), (6, 3)] {
        let victim = bench.victim(Begins::Peer);
        let own =
            bench.scene.node.ctx.register_for_qp(victim.qp, vec![0x7a; 8], Access::REMOTE_READ).unwrap();
        let mut head = untagged(first, 0, 1, 0, b"one ");
        head[0] &= !0x40;
        head[2..6].copy_from_slice(&0xbad0_bad0u32.to_be_bytes());
        let mut tail = untagged(last, 0, 1, 4, b"message");
        tail[2..6].copy_from_slice(&own.stag().0.to_be_bytes());
        bench.says(&[head, tail]);
        bench.scene.until("the message", |scene| !scene.node.completions.is_empty());
        let done = bench.scene.node.completions[0];
        assert_eq!((done.status, done.byte_len), (CompletionStatus::Success, 11));
        assert_eq!(done.flags.contains(CompletionFlags::SOLICITED), matches!(last, 5 | 6));
        assert_eq!(done.flags.contains(CompletionFlags::INVALIDATED), matches!(last, 4 | 6));
        assert_eq!(contents(&victim.inbox)[..11], *b"one message");
        bench.scene.peer.close();
        bench.is_over(victim, DisconnectReason::Closed);
    }
}
