//! Immediate Data with a length other than eight octets, without a receive, and within another
//! message (RFC 7306 s6.3).

use ironwarp::{CompletionOpcode, CompletionStatus, DisconnectReason};
use proptest::prelude::*;

use super::{begins, bench};
use crate::bad_input::bench::{Begins, RECEIVES};
use crate::bad_input::cases;
use crate::common::messages::{immediate, send, untagged};

proptest! {
    #![proptest_config(cases(24))]

    /// RFC 7306 s6.3: exactly eight octets, of either kind, with any contents and any size of the
    /// receive.
    #[test]
    fn immediates_of_other_lengths(
        begins in begins(),
        solicited: bool,
        octets in prop_oneof![
            prop::collection::vec(any::<u8>(), 0..8),
            prop::collection::vec(any::<u8>(), 9..200),
        ],
    ) {
        bench().refuses(begins, "RDMAP: unspecified operation error", |_| {
            untagged(8 + u8::from(solicited), 0, 1, 0, &octets)
        });
    }

    /// RFC 5041 s7.1: Immediate Data shares the message numbers of Sends.
    #[test]
    fn immediates_out_of_sequence(
        begins in begins(),
        msn in prop_oneof![Just(0u32), 2..9u32, 2..=u32::MAX],
        octets: [u8; 8],
    ) {
        bench().refuses(begins, "DDP: MSN range", |_| immediate(msn, &octets));
    }
}

/// RFC7306-4-03, RFC7306-6.1-02 and RFC7306-6.3-07: seven and nine octets explicitly, each kind, on
/// either side. The peer gets a Terminate and our application an event.
#[test]
fn immediates_of_seven_and_nine_bytes() {
    let mut bench = bench();
    for begins in [Begins::Node, Begins::Peer] {
        for (operation, bytes) in [(8, 7), (8, 9), (9, 7), (9, 9)] {
            bench.refuses(begins, "RDMAP: unspecified operation error", |_| {
                untagged(operation, 0, 1, 0, &vec![0x1b; bytes])
            });
        }
    }
}

/// RFC 7306 s6.3, RFC 5041 s7.1: each message consumes a buffer of queue 0. The first one without a
/// buffer is refused, and the earlier ones are delivered.
#[test]
fn more_immediates_than_receives() {
    let mut bench = bench();
    let victim = bench.victim(Begins::Peer);
    let segments: Vec<_> = (1..=RECEIVES as u32 + 1).map(|msn| immediate(msn, &[msn as u8; 8])).collect();
    bench.says(&segments);
    bench.reports(victim.qp, "DDP: no buffer", &segments[RECEIVES]);
    let told: Vec<_> =
        bench.scene.node.completions.iter().map(|done| (done.status, done.immediate)).collect();
    let good = CompletionStatus::Success;
    assert_eq!(told, (1..=RECEIVES).map(|msn| (good, [msn as u8; 8])).collect::<Vec<_>>());
    bench.is_over(victim, DisconnectReason::Terminated);
}

/// RFC 5041 s7.1, RFC 7306 s6.3: Immediate Data in two segments, Immediate Data that continues a
/// Send, and a Send that continues Immediate Data. None of them is delivered.
#[test]
fn immediates_within_other_messages() {
    let mut bench = bench();
    let not_last = |mut segment: Vec<u8>| {
        segment[0] &= !0x40;
        segment
    };
    bench.refuses(Begins::Peer, "RDMAP: catastrophic, this stream", |_| not_last(immediate(1, &[7; 8])));
    bench.refuses(Begins::Peer, "RDMAP: catastrophic, this stream", |_| not_last(immediate(1, &[7; 4])));
    let victim = bench.victim(Begins::Peer);
    let cut = untagged(8, 0, 1, 4, &[7; 8]);
    // The Send writes the bytes that its receive already had.
    bench.says(&[not_last(send(1, &[0x1b; 4])), cut.clone()]);
    bench.ends_with(victim, "RDMAP: catastrophic, this stream", &cut);
}

/// A valid message between Sends is delivered, in its completion instead of in memory.
#[test]
fn a_valid_immediate_between_sends() {
    let mut bench = bench();
    let victim = bench.victim(Begins::Peer);
    bench.says(&[send(1, b""), immediate(2, b"8 octets")]);
    bench.scene.until("both", |scene| scene.node.completions.len() == 2);
    let done = bench.scene.node.completions[1];
    assert_eq!((done.opcode, done.immediate), (CompletionOpcode::ReceiveImmediate, *b"8 octets"));
    bench.scene.peer.close();
    bench.is_over(victim, DisconnectReason::Closed);
}
