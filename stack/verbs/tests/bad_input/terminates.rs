//! Terminates about Terminates, and errors behind errors. A stream sends one Terminate, about the
//! first error, and none in response to a Terminate (RFC 5040 s4.8, s5.4, s7.1).

use ironwarp::{CompletionStatus, DisconnectReason, RecvWr, STag, Sge, Terminate};
use proptest::prelude::*;

use crate::bad_input::bench::{Begins, Bench};
use crate::bad_input::cases;
use crate::common::messages::{fpdu, place, read_request, send, tagged, terminate, untagged};

fn begins() -> impl Strategy<Value = Begins> {
    prop_oneof![Just(Begins::Node), Just(Begins::Peer)]
}

proptest! {
    #![proptest_config(cases(32))]

    /// RFC 5040 s5.4: the stack understands any Terminate, a copy of its own included, and sends
    /// nothing back. Octets that are valid only in the other order are read in that order (Q1).
    #[test]
    fn a_terminate_gets_no_terminate_in_return(
        begins in begins(),
        layer in 0..3u8,
        etype in 0..16u8,
        code: u8,
        bits in 0..8u8,
        shown in prop::collection::vec(any::<u8>(), 0..80),
    ) {
        let mut bench = Bench::new();
        let victim = bench.victim(begins);
        let header = [&[(layer << 4) | etype, code, bits << 5, 0][..], &shown].concat();
        bench.says(&[terminate(&header)]);
        // MPA has no such error in full operation: this is Linux siw's nibble order, without a
        // header.
        let swapped = (layer, etype) == (2, 0) && code > 5 && bits == 0;
        let (layer, etype) = if swapped { (0, 2) } else { (layer, etype) };
        prop_assert_eq!(bench.scene.terminated(), (false, Terminate { layer, etype, code }));
        bench.is_over(victim, DisconnectReason::Terminated);
    }

    /// RFC 5040 s5.4, RFC 5041 s7.1: everything behind the peer's Terminate is dropped, valid or
    /// not.
    #[test]
    fn data_after_a_terminate_is_ignored(
        begins in begins(),
        behind in prop::collection::vec(any::<u8>(), 0..200),
    ) {
        let mut bench = Bench::new();
        let victim = bench.victim(begins);
        let (stag, to) = place(&victim.buffer);
        let right = fpdu(&tagged(0, stag, to, b"late"));
        bench.scene.peer.say(&[fpdu(&terminate(&[0x12, 2, 0, 0])), right, behind].concat());
        prop_assert_eq!(bench.scene.terminated(), (false, Terminate { layer: 1, etype: 2, code: 2 }));
        prop_assert_eq!(crate::common::contents(&victim.buffer), [0xb0; crate::bad_input::bench::BUFFER]);
        bench.is_over(victim, DisconnectReason::Terminated);
    }

    /// RFC 5040 s5.4, s7.1, case 4: everything behind an error is dropped: another error, more
    /// data, the peer's own Terminate, a Terminate about ours. One Terminate is sent, about the
    /// first error.
    #[test]
    fn one_terminate_names_the_first_error(
        begins in begins(),
        behind in prop::collection::vec(0..6usize, 0..5),
        together: bool,
    ) {
        let mut bench = Bench::new();
        let victim = bench.victim(begins);
        let (stag, to) = place(&victim.buffer);
        let first = untagged(3, 7, 1, 0, b"wrong queue");
        let more = [
            tagged(0, stag, to, b"late"),
            tagged(0, stag ^ 1, to, b"wrong tag"),
            send(9, b"wrong number"),
            read_request(1, (1, 1), 8, (stag, to)),
            terminate(&[0x02, 6, 0, 0]),
            terminate(&[0x12, 1, 0xc0, 0, 0, 29, 0x41, 0x43, 0, 0, 0, 0, 0, 0, 0, 7, 0, 0, 0, 1, 0, 0, 0, 0]),
        ];
        let behind = behind.iter().map(|kind| &more[*kind]);
        let octets: Vec<Vec<u8>> = std::iter::once(&first).chain(behind).map(|one| fpdu(one)).collect();
        if together {
            bench.scene.peer.say(&octets.concat());
        } else {
            octets.iter().for_each(|one| bench.scene.peer.say(one));
        }
        bench.ends_with(victim, "DDP: invalid QN", &first);
    }

    /// RFC 5040 s5.4: a Terminate after ours, about whatever error, gets no further Terminate.
    #[test]
    fn a_terminate_in_response_to_our_terminate(
        begins in begins(),
        header in prop::collection::vec(any::<u8>(), 0..60),
        msn in 0..3u32,
    ) {
        let mut bench = Bench::new();
        let victim = bench.victim(begins);
        let first = send(2, b"wrong number");
        bench.says(std::slice::from_ref(&first));
        bench.reports(victim.qp, "DDP: MSN range", &first);
        bench.says(&[untagged(7, 2, msn, 0, &header)]);
        bench.scene.turns(20);
        bench.is_over(victim, DisconnectReason::Terminated);
    }
}

/// RFC 5040 s4.8, s7.2: a Terminate is a message of queue 2, and is refused as such when its header
/// is wrong. The error that it names is then ignored.
#[test]
fn a_malformed_terminate() {
    let mut bench = Bench::new();
    let header = [0x12, 2, 0, 0];
    for (name, segment) in [
        ("DDP: MSN range", untagged(7, 2, 0, 0, &header)),
        ("DDP: MSN range", untagged(7, 2, 2, 0, &header)),
        ("DDP: invalid MO", untagged(7, 2, 1, 4, &header)),
        ("RDMAP: unexpected OpCode", untagged(7, 0, 1, 0, &header)),
        ("RDMAP: unexpected OpCode", untagged(7, 1, 1, 0, &header)),
        ("RDMAP: unexpected OpCode", untagged(3, 2, 1, 0, &header)),
        ("DDP: invalid QN", untagged(7, 3, 1, 0, &header)),
        ("RDMAP: unexpected OpCode", tagged(7, 1, 0, &header)),
        ("RDMAP: unspecified operation error", untagged(7, 2, 1, 0, &header[..2])),
    ] {
        for begins in [Begins::Node, Begins::Peer] {
            let segment = segment.clone();
            bench.refuses(begins, name, |_| segment);
        }
    }
}

/// RFC 5040 s4.8, s7.1: a receive with invalid memory is not an error of the peer. The Terminate
/// reports a local error and shows nothing.
#[test]
fn a_receive_with_invalid_memory_is_a_local_error() {
    let mut bench = Bench::new();
    let victim = bench.victim(Begins::Peer);
    let nowhere = [Sge { addr: 0, len: 64, lkey: STag(0) }];
    bench.scene.node.ctx.post_recv(victim.qp, &RecvWr::new(7, &nowhere)).unwrap();
    bench.says(&[send(1, b""), send(2, b""), send(3, b"x")]);
    let failed =
        |done: &ironwarp::Completion| (done.wr_id, done.status) == (7, CompletionStatus::LocalProtection);
    bench.scene.until("its completion", |scene| scene.node.completions.iter().any(failed));
    bench.scene.node.events.retain(|event| !matches!(event, ironwarp::Event::QueuePairFatal { .. }));
    bench.ends_with(victim, "RDMAP: local catastrophic", &[]);
}

/// RFC 5040 s4.8: the source of a Read is deregistered during the response. The request in the
/// Terminate has advanced by what was sent: sink, size and source.
#[test]
fn a_truncated_read_reports_its_progress() {
    const BYTES: u32 = 1 << 20;
    let mut bench = Bench::new();
    let victim = bench.victim(Begins::Peer);
    let source = bench.scene.node.memory(&vec![7; BYTES as usize]);
    let (stag, to) = place(&source);
    bench.says(&[read_request(1, (9, 1000), BYTES, (stag, to))]);
    let mut sent = bench.scene.segment("the first response segment").len() as u32 - 14;
    drop(source);
    let told = loop {
        let segment = bench.scene.segment("the other segments and the Terminate");
        if segment[0] & 0x80 == 0 {
            break segment;
        }
        assert_eq!((segment[1], &segment[14..16]), (0x42, &[7, 7][..]));
        sent += segment.len() as u32 - 14;
    };
    assert!(sent < BYTES, "the whole response was sent before the source was deregistered");
    let left = read_request(1, (9, 1000 + u64::from(sent)), BYTES - sent, (stag, to + u64::from(sent)));
    assert_eq!(told, crate::bad_input::codes::named("RDMAP: invalid STag").terminate(&left));
    assert_eq!(bench.scene.terminated(), (true, Terminate { layer: 0, etype: 1, code: 0 }));
    bench.is_over(victim, DisconnectReason::Terminated);
}
