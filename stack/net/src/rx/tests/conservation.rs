//! Whatever arrives: nothing panics, and every frame ends in exactly one way.

use ironwarp_port::{Checksum, RxMeta};
use ironwarp_stats::Counter;
use ironwarp_types::Nanos;
use proptest::prelude::*;
use smoltcp::wire::ArpOperation;

use crate::Received;
use crate::testing::{
    Bench, OURS, PEER, arp_frame, echo_frame, icmp_error_frame, quoted_packet, tcp_frame, with_ip,
    with_options,
};

/// Counters that say something beside a frame's end.
const NOT_AN_END: [Counter; 5] = [
    Counter::NetArpRequestsSent,
    Counter::NetNeighboursMoved,
    Counter::NetNeighboursLost,
    Counter::NetNeighboursFull,
    Counter::NetNoTxFrame,
];

fn ends(bench: &Bench) -> u64 {
    bench.counted().iter().filter(|(counter, _)| !NOT_AN_END.contains(counter)).map(|&(_, n)| n).sum()
}

/// Frames that begin sound, and are then damaged, cut or left as they are.
fn frames() -> impl Strategy<Value = Vec<u8>> {
    let sound = prop_oneof![
        prop::collection::vec(any::<u8>(), 0..200).prop_map(|data| tcp_frame(&data)),
        prop::collection::vec(any::<u8>(), 0..200).prop_map(|data| echo_frame(&data)),
        prop::collection::vec(any::<u8>(), 0..40).prop_map(|options| with_options(tcp_frame(b"x"), &options)),
        prop::collection::vec(any::<u8>(), 0..40)
            .prop_map(|options| with_options(echo_frame(b"x"), &options)),
        (any::<bool>(), any::<[u8; 4]>()).prop_map(|(request, target)| {
            let operation = if request { ArpOperation::Request } else { ArpOperation::Reply };
            arp_frame(operation, PEER, target.into())
        }),
        Just(arp_frame(ArpOperation::Request, PEER, OURS.addr)),
        (
            prop_oneof![Just(3u8), Just(11), Just(12)],
            0u8..17,
            any::<u32>(),
            prop::collection::vec((0usize..28, any::<u8>()), 0..2)
        )
            .prop_map(|(kind, code, word, damage)| {
                let mut quoted = quoted_packet();
                damage.into_iter().for_each(|(at, byte)| quoted[at] = byte);
                icmp_error_frame(kind, code, word, &quoted)
            }),
        prop::collection::vec(any::<u8>(), 1..200),
    ];
    let damage = prop::collection::vec((0usize..60, any::<u8>()), 0..4);
    (sound, damage, any::<bool>(), prop::option::of(1usize..120)).prop_map(
        |(mut frame, damage, repair, cut)| {
            for (at, byte) in damage {
                if let Some(place) = frame.get_mut(at) {
                    *place = byte;
                }
            }
            if repair && frame.len() >= 34 {
                frame = with_ip(frame, 14, &[]);
            }
            frame.truncate(cut.unwrap_or(usize::MAX));
            frame
        },
    )
}

fn verdict() -> impl Strategy<Value = Checksum> {
    prop_oneof![Just(Checksum::Unknown), Just(Checksum::Good), Just(Checksum::Bad)]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    #[test]
    fn every_frame_is_answered_given_to_tcp_or_counted_exactly_once(
        arrivals in prop::collection::vec((frames(), verdict(), verdict(), 0u64..2_000), 1..40),
        tx_stuck: bool,
    ) {
        let mut bench = Bench::new();
        if tx_stuck {
            bench.control.limit_tx_burst(0);
        }
        let levels = bench.control.free_frames();
        for (frame, ip_checksum, l4_checksum, wait_ms) in arrivals {
            bench.pass(Nanos::from_millis(wait_ms));
            bench.net.route(bench.now, PEER.addr.into(), &mut bench.wire);
            let before = ends(&bench);
            let received = bench.receive_any(&frame, RxMeta { rss_hash: None, ip_checksum, l4_checksum });
            prop_assert_eq!(ends(&bench) - before + u64::from(received.is_some()), 1);
            match received {
                Some(Received::Segment(segment)) => {
                    prop_assert!(segment.l4().len() >= 20);
                    prop_assert_eq!(segment.hash, bench.net.hasher().hash(&segment.flow));
                }
                Some(Received::IcmpError(error)) => {
                    prop_assert_eq!(error.hash, bench.net.hasher().hash(&error.flow));
                }
                None => {}
            }
            prop_assert_eq!(bench.net.check(), Ok(()));
        }
        // No buffer is lost either: once what was sent has left, both pools are as full as before.
        bench.control.limit_tx_burst(u64::MAX);
        bench.sent();
        prop_assert_eq!(bench.control.free_frames(), levels);
    }
}
