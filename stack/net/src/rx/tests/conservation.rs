//! For arbitrary frames nothing panics, and each frame is returned or counted exactly once.

use core::net::Ipv6Addr;

use ironwarp_port::memory::MemoryConfig;
use ironwarp_port::{Checksum, RxMeta};
use ironwarp_stats::Counter;
use ironwarp_types::{MacAddr, Nanos};
use proptest::prelude::*;
use smoltcp::wire::ArpOperation;

use crate::testing::{
    Bench, OURS, PEER, arp_frame, dual, echo_frame, icmp_error_frame, icmpv6, icmpv6_frame, ipv6_frame,
    link_local, quoted_packet, tcp_frame, tcp6_frame, v4, v6, with_ip, with_options, with_tag,
};
use crate::{Received, VlanTag};

/// Counters of other events than the end of a received frame.
const OTHER_EVENTS: [Counter; 10] = [
    Counter::NetArpRequestsSent,
    Counter::NetNdSolicitationsSent,
    Counter::NetNdUnsolicitedSent,
    Counter::NetAddressesDuplicate,
    Counter::NetAddressesDefended,
    Counter::NetPathsUpdated,
    Counter::NetNeighboursChanged,
    Counter::NetNeighboursUnreachable,
    Counter::NetNeighbourTableFull,
    Counter::NetTxNoBuffer,
];

fn frames_counted(bench: &Bench) -> u64 {
    bench.counted().iter().filter(|(counter, _)| !OTHER_EVENTS.contains(counter)).map(|&(_, n)| n).sum()
}

/// Valid frames, of which some are corrupted or truncated.
fn frames() -> impl Strategy<Value = Vec<u8>> {
    let valid = prop_oneof![
        prop::collection::vec(any::<u8>(), 0..200).prop_map(|data| tcp_frame(&data)),
        prop::collection::vec(any::<u8>(), 0..200).prop_map(|data| echo_frame(&data)),
        prop::collection::vec(any::<u8>(), 0..40).prop_map(|options| with_options(tcp_frame(b"x"), &options)),
        prop::collection::vec(any::<u8>(), 0..40)
            .prop_map(|options| with_options(echo_frame(b"x"), &options)),
        (any::<bool>(), any::<[u8; 4]>()).prop_map(|(request, target)| {
            let operation = if request { ArpOperation::Request } else { ArpOperation::Reply };
            arp_frame(operation, PEER, target.into())
        }),
        Just(arp_frame(ArpOperation::Request, PEER, v4(1))),
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
        ipv6_frames(),
    ];
    let damage = prop::collection::vec((0usize..60, any::<u8>()), 0..4);
    (valid, damage, any::<bool>(), prop::option::of(1usize..120)).prop_map(
        |(mut frame, damage, repair, cut)| {
            for (at, byte) in damage {
                if let Some(old) = frame.get_mut(at) {
                    *old = byte;
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

/// IPv6 frames: segments, ICMPv6 messages of all types to an address or a group, and chains of
/// extension headers.
fn ipv6_frames() -> impl Strategy<Value = Vec<u8>> {
    let groups = ["ff02::1", "ff02::1:ff00:1"].map(|group| group.parse::<Ipv6Addr>().expect("an address"));
    let to = prop_oneof![
        Just((OURS.mac, v6(1))),
        Just((OURS.mac, link_local(1))),
        Just((MacAddr([0x33, 0x33, 0, 0, 0, 1]), groups[0])),
        Just((MacAddr([0x33, 0x33, 0xff, 0, 0, 1]), groups[1])),
    ];
    let from =
        prop_oneof![Just(v6(2)), Just(v6(2)), Just(link_local(2)), Just(Ipv6Addr::UNSPECIFIED), Just(v6(1))];
    let kind = prop_oneof![1u8..5, 128u8..138];
    let body = (prop::option::of(Just(v6(1))), prop::collection::vec(any::<u8>(), 0..80), any::<bool>())
        .prop_map(|(target, rest, quotes)| {
            let quoted = ipv6_frame(PEER.mac, (v6(1), v6(2)), (6, 64), &[1; 20])[14..].to_vec();
            if quotes {
                quoted
            } else {
                [target.map_or(vec![], |target| target.octets().to_vec()), rest].concat()
            }
        });
    let message = (to.clone(), from, kind, 0u8..8, any::<u32>(), body, any::<bool>()).prop_map(
        |((mac, to), from, kind, code, word, body, on_link)| {
            icmpv6_frame(mac, (from, to), if on_link { 255 } else { 64 }, &icmpv6(kind, code, word, &body))
        },
    );
    let chain = (
        to,
        prop_oneof![Just(0u8), Just(43), Just(44), Just(60)],
        prop::collection::vec(any::<u8>(), 0..120),
    )
        .prop_map(|((mac, to), next, rest)| ipv6_frame(mac, (v6(2), to), (next, 64), &rest));
    let segment = prop::collection::vec(any::<u8>(), 0..100).prop_map(|data| tcp6_frame(&data));
    prop_oneof![segment, message.clone(), message, chain]
}

fn verdict() -> impl Strategy<Value = Checksum> {
    prop_oneof![Just(Checksum::Unknown), Just(Checksum::Good), Just(Checksum::Bad)]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    /// RFC 1122 s3.1.
    #[test]
    fn every_frame_is_returned_or_counted_exactly_once(
        arrivals in prop::collection::vec((frames(), verdict(), verdict(), 0u64..2_000), 1..40),
        tx_stuck: bool,
        tagged: bool,
    ) {
        let mut bench = Bench::with(MemoryConfig::default(), |cfg| {
            dual(cfg);
            cfg.vlan = tagged.then_some(VlanTag { id: 5, priority: 0 });
        });
        if tx_stuck {
            bench.control.limit_tx_burst(0);
        }
        let levels = bench.control.free_frames();
        for (frame, ip_checksum, l4_checksum, wait_ms) in arrivals {
            bench.pass(Nanos::from_millis(wait_ms));
            bench.net.route(bench.now, PEER.addr, &mut bench.wire);
            bench.net.route(bench.now, v6(2).into(), &mut bench.wire);
            let before = frames_counted(&bench);
            let frame = if tagged && frame.len() > 12 { with_tag(frame, 5) } else { frame };
            let received = bench.receive_any(&frame, RxMeta { rss_hash: None, ip_checksum, l4_checksum });
            prop_assert_eq!(frames_counted(&bench) - before + u64::from(received.is_some()), 1);
            match received {
                Some(Received::Packet(segment)) => {
                    prop_assert!(segment.l4().len() >= 20);
                    prop_assert_eq!(segment.hash, bench.net.hasher().hash(&segment.flow));
                }
                Some(Received::IcmpError(error)) => {
                    prop_assert_eq!(error.hash, bench.net.hasher().hash(&error.flow));
                }
                Some(Received::ForLeader(_)) => prop_assert!(false, "there is no other core"),
                None => {}
            }
            prop_assert_eq!(bench.net.check(), Ok(()));
        }
        // No buffer is lost: after all sent frames have left, both pools are as full as before.
        bench.control.limit_tx_burst(u64::MAX);
        bench.sent();
        prop_assert_eq!(bench.control.free_frames(), levels);
    }
}
