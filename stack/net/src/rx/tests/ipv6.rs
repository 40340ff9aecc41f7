//! IPv6: the header and its extensions (RFC 8200), neighbour discovery (RFC 4861, RFC 4862), ICMPv6
//! (RFC 4443, RFC 8201).

use core::net::{IpAddr, Ipv6Addr, SocketAddr};

use ironwarp_port::memory::MemoryConfig;
use ironwarp_port::{Checksum, RxMeta};
use ironwarp_stats::Counter;
use ironwarp_types::{Ecn, MacAddr, Nanos};
use smoltcp::wire::{EthernetFrame, Icmpv6Packet, Ipv6Packet};

use super::{assert_dropped_by, next_hop_mac, overwrite, pass_to_next_deadline, route};
use crate::local_addresses::AddressState;
use crate::testing::{
    Bench, OURS, PEER, dual, icmpv6, icmpv6_frame, ipv6_frame, link_local, mac, tcp_frame, tcp6_frame, v6,
};
use crate::{DuplicateProbes, IcmpErrorKind, Received, Route};

fn assert_dropped(frame: &[u8], reason: Counter) {
    assert_dropped_by(Bench::dual(), frame, reason);
}

fn changed(at: usize, bytes: &[u8]) -> Vec<u8> {
    overwrite(tcp6_frame(b"data"), at, bytes)
}

#[test]
fn a_valid_segment_is_returned_with_its_flow_hash_and_offsets() {
    let mut bench = Bench::dual();
    let mut frame = tcp6_frame(b"payload");
    frame[14] = 0x6b;
    frame[15] = 0xb1;
    frame.push(0xee);
    let segment = bench.receive(&frame).expect("a segment");
    assert_eq!(segment.flow.local, SocketAddr::from((v6(1), 4_420)));
    assert_eq!(segment.flow.remote, SocketAddr::from((v6(2), 50_000)));
    assert_eq!(segment.hash, bench.net.hasher().hash(&segment.flow));
    assert_eq!((segment.l4_offset, segment.l4_end), (54, 81));
    assert_eq!((segment.remote_mac, segment.ecn), (PEER.mac, Ecn::Ce));
    assert_eq!(&segment.l4()[20..], b"payload");
    assert!(bench.counted().is_empty());
}

#[test]
fn one_port_receives_both_families() {
    let mut bench = Bench::dual();
    assert!(bench.receive(&tcp_frame(b"4")).is_some() && bench.receive(&tcp6_frame(b"6")).is_some());
}

#[test]
fn a_segment_after_extension_headers_is_returned_alike() {
    let plain = tcp6_frame(b"data");
    let mut frame = plain.clone();
    frame.splice(54..54, [6, 0, 1, 4, 0, 0, 0, 0]);
    frame[20] = 60;
    frame[19] += 8;
    let (mut a, mut b) = (Bench::dual(), Bench::dual());
    let (with, without) = (a.receive(&frame).expect("a segment"), b.receive(&plain).expect("a segment"));
    assert_eq!((with.l4(), with.hash, with.l4_offset), (without.l4(), without.hash, 62));
}

/// RFC 8200 s8.1: the checksum includes the pseudo-header, so corrupt addresses are detected too.
#[test]
fn every_corrupt_byte_of_the_segment_and_the_addresses_is_detected() {
    let valid = tcp6_frame(b"payload of some bytes");
    for at in 22..valid.len() {
        let mut frame = valid.clone();
        frame[at] ^= 0x10;
        let mut bench = Bench::dual();
        assert!(bench.receive(&frame).is_none(), "byte {at}");
        assert_eq!(bench.counted().len(), 1);
    }
}

#[test]
fn the_verdict_of_the_device_on_the_tcp_checksum_is_used() {
    let mut bench = Bench::with(MemoryConfig::default().offloading(), dual);
    let mut wrong = tcp6_frame(b"data");
    wrong[75] ^= 1;
    assert!(bench.receive(&tcp6_frame(b"data")).is_some());
    assert!(bench.receive(&wrong).is_none());
    let good = RxMeta { l4_checksum: Checksum::Good, ..RxMeta::default() };
    assert!(bench.receive_with(&wrong, good).is_some());
    assert_eq!(bench.counted(), [(Counter::NetDropL4Checksum, 1)]);
}

/// RFC 4443 s2.4 and s3.4.
#[test]
fn invalid_headers_are_dropped_under_their_counters() {
    assert_dropped(&changed(14, &[0x40]), Counter::NetDropIpVersion);
    assert_dropped(&changed(18, &[0xff, 0xff]), Counter::NetDropIpLength);
    assert_dropped(&changed(20, &[17]), Counter::NetDropIpProtocol);
    assert_dropped(&changed(20, &[59]), Counter::NetDropIpProtocol);
    assert_dropped(&changed(20, &[44]), Counter::NetDropIpFragment);
    assert_dropped(&tcp6_frame(b"")[..53], Counter::NetDropShort);
    assert_dropped(&changed(18, &[0, 19]), Counter::NetDropL4Header);
}

#[test]
fn a_packet_to_another_address_and_tcp_to_a_group_are_dropped() {
    assert_dropped(&changed(38, &v6(9).octets()), Counter::NetDropIpNotOurs);
    let mut group = changed(38, &"ff02::1".parse::<Ipv6Addr>().expect("v6").octets());
    group[..6].copy_from_slice(&[0x33, 0x33, 0, 0, 0, 1]);
    assert_dropped(&group, Counter::NetDropIpNotOurs);
    assert_dropped(&changed(0, &[0x33, 0x33, 0, 0, 0, 1]), Counter::NetDropIpBroadcastFrame);
    assert_dropped(&changed(0, &[0x33, 0x33, 0, 0, 0, 9]), Counter::NetDropNotOurMac);
}

/// RFC 4291 s2.5.2, s2.5.3, s2.7; and a local address, which is valid only in the loopback.
/// RFC 4861 s7.2.
#[test]
fn a_packet_from_an_invalid_source_is_dropped() {
    for source in ["::", "::1", "ff02::1", "::ffff:10.0.0.2", "fd00::1"] {
        let source: Ipv6Addr = source.parse().expect("an address");
        assert_dropped(&changed(22, &source.octets()), Counter::NetDropIpSource);
    }
}

#[test]
fn a_net_without_ipv6_addresses_drops_ipv6_packets() {
    let mut bench = Bench::new();
    assert!(bench.receive(&tcp6_frame(b"")).is_none());
    assert_eq!(bench.counted(), [(Counter::NetDropIpNotOurs, 1)]);
}

fn echo_request(to: Ipv6Addr) -> Vec<u8> {
    icmpv6_frame(OURS.mac, (v6(2), to), 64, &icmpv6(128, 0, 0x1234_0007, b"some data"))
}

/// RFC 4443 s4.2: the reply has the data of the request, and its destination as the source.
/// RFC 4443 s2.2, s2.3 and s4.1.
#[test]
fn an_echo_request_gets_a_reply() {
    for ours in [v6(1), link_local(1)] {
        let mut bench = Bench::dual();
        bench.receive(&echo_request(ours));
        let sent = bench.sent();
        let link = EthernetFrame::new_checked(&sent[0][..]).expect("a frame");
        assert_eq!((link.src_addr().0, link.dst_addr().0), (OURS.mac.0, PEER.mac.0));
        let ip = Ipv6Packet::new_checked(link.payload()).expect("a packet");
        assert_eq!((ip.src_addr(), ip.dst_addr(), ip.hop_limit()), (ours, v6(2), 64));
        let icmp = Icmpv6Packet::new_checked(ip.payload()).expect("a message");
        assert!(icmp.verify_checksum(&ours, &v6(2)));
        assert_eq!(ip.payload()[0], 129);
        assert_eq!(ip.payload()[4..], [&[0x12, 0x34, 0, 7][..], b"some data"].concat());
        assert_eq!(bench.counted(), [(Counter::NetEchoRepliesSent, 1)]);
    }
}

/// RFC 4443 s2.4.
#[test]
fn corrupt_short_and_other_messages_are_dropped_under_their_counters() {
    let mut corrupt = echo_request(v6(1));
    corrupt[63] ^= 1;
    assert_dropped(&corrupt, Counter::NetDropIcmpChecksum);
    assert_dropped(&ipv6_frame(OURS.mac, (v6(2), v6(1)), (58, 64), &[128, 0, 0]), Counter::NetDropIcmpShort);
    let other = icmpv6_frame(OURS.mac, (v6(2), v6(1)), 64, &icmpv6(200, 0, 0, &[]));
    assert_dropped(&other, Counter::NetDropIcmpOther);
}

/// A quote of our segment of 1500 bytes to the peer: the IPv6 header and eight bytes more.
fn quoted() -> Vec<u8> {
    let mut quoted =
        ipv6_frame(PEER.mac, (v6(1), v6(2)), (6, 61), &[0x11, 0x44, 0xc3, 0x50, 0, 0, 0, 77])[14..].to_vec();
    quoted[4..6].copy_from_slice(&1_460u16.to_be_bytes());
    quoted
}

fn reported(kind: u8, code: u8, word: u32) -> Option<IcmpErrorKind> {
    let frame = icmpv6_frame(OURS.mac, (v6(0xfe), v6(1)), 64, &icmpv6(kind, code, word, &quoted()));
    let mut bench = Bench::dual();
    match bench.receive_any(&frame, RxMeta::default()) {
        Some(Received::IcmpError(error)) => {
            assert_eq!(
                (error.flow.local, error.flow.remote),
                ((v6(1), 4_420).into(), (v6(2), 50_000).into())
            );
            assert_eq!((error.quoted, error.hash), (77, bench.net.hasher().hash(&error.flow)));
            Some(error.kind)
        }
        _ => None,
    }
}

/// RFC 4443 s3, RFC 8201 s4.
/// RFC 4443 s3.1, s3.2, s3.3 and s3.4.
#[test]
fn each_code_is_soft_or_hard() {
    assert_eq!(reported(2, 0, 1_400), Some(IcmpErrorKind::TooBig { mtu_bytes: 1_400 }));
    for (kind, code) in [(1, 0), (1, 2), (1, 3), (3, 0), (3, 1), (4, 0), (4, 2)] {
        assert_eq!(reported(kind, code, 0), Some(IcmpErrorKind::Soft), "{kind} {code}");
    }
    for (kind, code) in [(1, 1), (1, 4), (1, 5), (1, 6), (4, 1)] {
        assert_eq!(reported(kind, code, 0), Some(IcmpErrorKind::Hard), "{kind} {code}");
    }
    // RFC 8201 s4: an IPv6 MTU is at least 1280. The quoted packet has 1500 bytes.
    assert_eq!([reported(2, 0, 1_279), reported(2, 0, 1_500), reported(2, 0, 0x1_0000)], [None; 3]);
}

/// RFC 4443 s2.4 (a): an error of unknown type reaches TCP, which takes it as a sign of a state of
/// the network.
#[test]
fn an_error_of_unknown_type_is_a_soft_error() {
    for kind in [0, 5, 100, 127] {
        assert_eq!(reported(kind, 9, 0), Some(IcmpErrorKind::Soft), "{kind}");
    }
    // A type that is known has known codes.
    assert_eq!([reported(1, 8, 0), reported(3, 2, 0), reported(4, 4, 0)], [None; 3]);
}

/// RFC 4443 s2.4.
#[test]
fn a_quote_that_is_no_segment_of_ours_is_dropped() {
    for (at, byte) in [(0, 0x40), (6, 17), (6, 44), (23, 9)] {
        let mut quoted = quoted();
        quoted[at] = byte;
        let frame = icmpv6_frame(OURS.mac, (v6(0xfe), v6(1)), 64, &icmpv6(1, 0, 0, &quoted));
        assert_dropped(&frame, Counter::NetDropIcmpQuote);
    }
    let frame = icmpv6_frame(OURS.mac, (v6(0xfe), v6(1)), 64, &icmpv6(1, 0, 0, &quoted()[..47]));
    assert_dropped(&frame, Counter::NetDropIcmpQuote);
}

fn group_of(addr: Ipv6Addr) -> (MacAddr, Ipv6Addr) {
    let [.., a, b, c] = addr.octets();
    (
        MacAddr([0x33, 0x33, 0xff, a, b, c]),
        Ipv6Addr::from([0xff, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0xff, a, b, c]),
    )
}

fn option(kind: u8, mac: MacAddr) -> Vec<u8> {
    [&[kind, 1][..], &mac.0].concat()
}

/// A multicast solicitation from `from` for `target`, with the link address of the sender unless it
/// is a probe.
fn solicitation(from: Ipv6Addr, target: Ipv6Addr) -> Vec<u8> {
    let (group_mac, group) = group_of(target);
    let mut rest = target.octets().to_vec();
    if !from.is_unspecified() {
        rest.extend(option(1, PEER.mac));
    }
    icmpv6_frame(group_mac, (from, group), 255, &icmpv6(135, 0, 0, &rest))
}

/// An advertisement from `target` to us with the flags solicited and override, and a link address.
fn advertisement(target: Ipv6Addr, (solicited, overrides): (bool, bool), at: MacAddr) -> Vec<u8> {
    let flags = u32::from(solicited) << 30 | u32::from(overrides) << 29;
    let rest = [&target.octets()[..], &option(2, at)].concat();
    icmpv6_frame(OURS.mac, (target, v6(1)), 255, &icmpv6(136, 0, flags, &rest))
}

/// A neighbour discovery frame: link destination, IP addresses, hop limit, type, flags, target,
/// options.
type ParsedNd = (MacAddr, (Ipv6Addr, Ipv6Addr), u8, u8, u8, Ipv6Addr, Vec<u8>);

fn parse_nd(frame: &[u8]) -> ParsedNd {
    let link = EthernetFrame::new_checked(frame).expect("a frame");
    let ip = Ipv6Packet::new_checked(link.payload()).expect("a packet");
    let icmp = Icmpv6Packet::new_checked(ip.payload()).expect("a message");
    assert!(icmp.verify_checksum(&ip.src_addr(), &ip.dst_addr()));
    let message = ip.payload();
    let target: [u8; 16] = message[8..24].try_into().expect("sixteen bytes");
    let ends = (ip.src_addr(), ip.dst_addr());
    (
        MacAddr(link.dst_addr().0),
        ends,
        ip.hop_limit(),
        message[0],
        message[4],
        target.into(),
        message[24..].to_vec(),
    )
}

/// RFC 4861 s7.2.3 and s7.2.4.
/// RFC 4861 s4.4 and s7.2.1.
#[test]
fn a_solicitation_for_our_address_gets_a_reply_and_adds_its_sender() {
    for ours in [v6(1), link_local(1)] {
        let mut bench = Bench::dual();
        bench.receive(&solicitation(v6(2), ours));
        let reply = (PEER.mac, (ours, v6(2)), 255, 136, 0x60, ours, option(2, OURS.mac));
        assert_eq!(parse_nd(&bench.sent()[0]), reply);
        assert_eq!(bench.counted(), [(Counter::NetNdAdvertisementsSent, 1)]);
        assert_eq!(next_hop_mac(&mut bench, v6(2)), Some(PEER.mac));
    }
}

/// RFC 4861 s7.2.2: the request goes to the solicited-node address and contains our link address.
#[test]
fn an_unknown_neighbour_is_requested_and_the_reply_completes_the_route() {
    let mut bench = Bench::dual();
    assert_eq!(route(&mut bench, v6(2)), Route::Pending);
    let (group_mac, group) = group_of(v6(2));
    let request = (group_mac, (v6(1), group), 255, 135, 0, v6(2), option(1, OURS.mac));
    assert_eq!(parse_nd(&bench.sent()[0]), request);
    let seen = bench.net.route_changes();
    bench.receive(&advertisement(v6(2), (true, true), PEER.mac));
    assert_ne!(bench.net.route_changes(), seen);
    let Route::Ready(path) = route(&mut bench, v6(2)) else { panic!("the peer is known") };
    assert_eq!(
        (path.remote_mac(), path.local_addr(), path.remote_addr()),
        (PEER.mac, v6(1).into(), v6(2).into())
    );
}

/// RFC 4861 s7.2.2 and s10: three solicitations a second apart.
#[test]
fn a_neighbour_that_never_replies_becomes_unreachable() {
    let mut bench = Bench::dual();
    route(&mut bench, v6(2));
    (0..3).for_each(|_| bench.pass(Nanos::from_secs(1)));
    assert_eq!(route(&mut bench, v6(2)), Route::Unreachable);
    assert_eq!(
        bench.counted(),
        [(Counter::NetNdSolicitationsSent, 3), (Counter::NetNeighboursUnreachable, 1)]
    );
}

/// RFC 4861 s7.3.3: a neighbour in use is probed before it expires.
#[test]
fn a_neighbour_in_use_is_probed_by_unicast() {
    let mut bench = Bench::dual();
    route(&mut bench, v6(2));
    bench.receive(&advertisement(v6(2), (true, true), PEER.mac));
    route(&mut bench, v6(2));
    bench.sent();
    bench.pass(Nanos::from_secs(60));
    let (to, ends, ..) = parse_nd(&bench.sent()[0]);
    assert_eq!((to, ends), (PEER.mac, (v6(1), v6(2))));
}

/// RFC 4861 s7.2.5: without override a known link address does not change.
#[test]
fn an_advertisement_replaces_a_link_address_only_with_override() {
    let mut bench = Bench::dual();
    bench.receive(&solicitation(v6(2), v6(1)));
    bench.receive(&advertisement(v6(2), (false, false), mac(77)));
    assert_eq!(next_hop_mac(&mut bench, v6(2)), Some(PEER.mac));
    bench.receive(&advertisement(v6(2), (false, true), mac(77)));
    assert_eq!(next_hop_mac(&mut bench, v6(2)), Some(mac(77)));
    bench.receive(&advertisement(v6(9), (false, true), mac(9)));
    assert_eq!(route(&mut bench, v6(9)), Route::Pending, "an unsolicited advertisement adds no neighbour");
    let expected = [
        (Counter::NetNdSolicitationsSent, 1),
        (Counter::NetNdAdvertisementsSent, 1),
        (Counter::NetNdUpdates, 2),
        (Counter::NetNeighboursChanged, 1),
        (Counter::NetDropNdOther, 1),
    ];
    assert_eq!(bench.counted(), expected);
}

/// RFC 4861 s7.1, RFC 6980 s5: a message that has passed a router or has extension headers is
/// invalid.
#[test]
fn invalid_neighbour_discovery_messages_are_dropped() {
    let rest = [&v6(1).octets()[..], &option(1, PEER.mac)].concat();
    let (group_mac, group) = group_of(v6(1));
    let routed = icmpv6_frame(group_mac, (v6(2), group), 254, &icmpv6(135, 0, 0, &rest));
    assert_dropped(&routed, Counter::NetDropNdMalformed);
    let coded = icmpv6_frame(group_mac, (v6(2), group), 255, &icmpv6(135, 1, 0, &rest));
    assert_dropped(&coded, Counter::NetDropNdMalformed);
    let mut extended = solicitation(v6(2), v6(1));
    extended.splice(54..54, [58, 0, 1, 4, 0, 0, 0, 0]);
    extended[20] = 60;
    extended[19] += 8;
    assert_dropped(&extended, Counter::NetDropNdMalformed);
}

/// Addresses and routes are configured, so RFC 4861 s6 does not apply.
/// RFC 4861 s6.1.1, s6.2.4 and s8.1.
#[test]
fn router_messages_and_redirects_are_dropped() {
    for kind in [133, 134, 137] {
        let frame = icmpv6_frame(OURS.mac, (link_local(9), v6(1)), 255, &icmpv6(kind, 0, 0, &[0; 32]));
        assert_dropped(&frame, Counter::NetDropNdRouter);
    }
}

/// RFC 4861 s7.2.4: the reply to a solicitation from the unspecified address goes to all nodes.
/// RFC 4861 s4.4 and s7.2.3.
#[test]
fn the_reply_to_a_probe_goes_to_all_nodes() {
    let mut bench = Bench::dual();
    bench.receive(&solicitation(Ipv6Addr::UNSPECIFIED, v6(1)));
    let all_nodes: Ipv6Addr = "ff02::1".parse().expect("an address");
    let reply =
        (MacAddr([0x33, 0x33, 0, 0, 0, 1]), (v6(1), all_nodes), 255, 136, 0x20, v6(1), option(2, OURS.mac));
    assert_eq!(parse_nd(&bench.sent()[0]), reply);
}

/// RFC 4861 s7.2.3.
#[test]
fn a_solicitation_for_another_address_in_our_group_is_dropped() {
    let other: Ipv6Addr = "fd00:1::1".parse().expect("an address");
    assert_dropped(&solicitation(v6(2), other), Counter::NetDropNdOther);
}

/// A dual-stack net that has started to send one probe for each IPv6 address.
fn probing() -> Bench {
    let mut bench = Bench::with(MemoryConfig::default(), |cfg| {
        dual(cfg);
        cfg.duplicate_probes = DuplicateProbes { ipv4: 0, ipv6: 1 };
    });
    bench.net.on_link_up(bench.now, &mut bench.wire);
    bench.sent();
    bench
}

fn pass_until(bench: &mut Bench, mut done: impl FnMut(&Bench) -> bool) {
    while !done(bench) {
        pass_to_next_deadline(bench);
    }
}

fn probes_sent(bench: &Bench) -> u64 {
    bench.stats.read(Counter::NetNdSolicitationsSent)
}

fn state(bench: &Bench, addr: Ipv6Addr) -> Option<AddressState> {
    bench.net.local.state_of(addr.into())
}

/// RFC 4862 s5.4.2: one probe for each address, the link-local one included. The addresses are used
/// a second later.
#[test]
fn an_address_without_conflict_is_used_after_one_probe() {
    let mut bench = probing();
    assert_eq!(state(&bench, v6(1)), Some(AddressState::Tentative));
    assert_eq!(route(&mut bench, v6(2)), Route::Pending);
    assert!(bench.receive(&tcp6_frame(b"")).is_none());
    pass_until(&mut bench, |bench| probes_sent(bench) == 2);
    let probes: Vec<ParsedNd> =
        bench.sent().iter().filter(|frame| frame[12] == 0x86).map(|frame| parse_nd(frame)).collect();
    for ours in [v6(1), link_local(1)] {
        let (group_mac, group) = group_of(ours);
        assert!(probes.contains(&(group_mac, (Ipv6Addr::UNSPECIFIED, group), 255, 135, 0, ours, vec![])));
    }
    pass_until(&mut bench, |bench| {
        [v6(1), link_local(1)].iter().all(|&addr| state(bench, addr) == Some(AddressState::Usable))
    });
    assert!(bench.receive(&tcp6_frame(b"")).is_some());
    assert!(bench.stats.read(Counter::NetNdUnsolicitedSent) >= 2);
    assert!(bench.now - Nanos::from_secs(1) <= Nanos::from_secs(2));
}

/// RFC 4862 s5.4: an address is tentative until it was probed on a link, for frames to the stack
/// itself too. One that is not probed needs no link.
#[test]
fn without_a_link_only_an_address_that_is_not_probed_is_used() {
    for (ipv6, expected) in [(1, AddressState::Tentative), (0, AddressState::Usable)] {
        let mut bench = Bench::with(MemoryConfig::default(), |cfg| {
            dual(cfg);
            cfg.duplicate_probes = DuplicateProbes { ipv4: 0, ipv6 };
        });
        bench.pass(Nanos::from_secs(3_600));
        assert_eq!(state(&bench, v6(1)), Some(expected));
        let is_reached = matches!(route(&mut bench, v6(1)), Route::Ready(_));
        assert_eq!(is_reached, expected == AddressState::Usable);
    }
}

/// RFC 4862 s5.4.3 and s5.4.4: another station probes for the address too, or has it.
#[test]
fn an_address_that_another_station_has_or_probes_for_is_not_used() {
    let probe = solicitation(Ipv6Addr::UNSPECIFIED, v6(1));
    let rest = [&v6(1).octets()[..], &option(2, PEER.mac)].concat();
    let all_nodes: Ipv6Addr = "ff02::1".parse().expect("an address");
    let in_use = icmpv6_frame(
        MacAddr([0x33, 0x33, 0, 0, 0, 1]),
        (v6(1), all_nodes),
        255,
        &icmpv6(136, 0, 1 << 29, &rest),
    );
    for claim in [probe, in_use] {
        let mut bench = probing();
        pass_until(&mut bench, |bench| probes_sent(bench) == 2);
        bench.receive(&claim);
        assert_eq!(state(&bench, v6(1)), Some(AddressState::Duplicate));
        bench.pass(Nanos::from_secs(10));
        assert_eq!(state(&bench, v6(1)), Some(AddressState::Duplicate));
        assert_eq!(bench.stats.read(Counter::NetAddressesDuplicate), 1);
        assert_eq!(bench.stats.read(Counter::NetDropNdConflict), 1);
    }
}

/// RFC 4862 s5.4.4 does not require an action. As with ARP the address is kept and announced at
/// most once in ten seconds.
#[test]
fn an_address_in_use_is_defended_at_most_once_in_ten_seconds() {
    let mut bench = Bench::dual();
    let claim = advertisement(v6(1), (false, true), PEER.mac);
    let mut from_outside = claim.clone();
    // With another source address: a local one would be dropped.
    from_outside[22..38].copy_from_slice(&v6(9).octets());
    from_outside[56..58].copy_from_slice(&[0, 0]);
    let mut message = from_outside.split_off(54);
    Icmpv6Packet::new_unchecked(&mut message[..]).fill_checksum(&v6(9), &v6(1));
    from_outside.extend(message);
    (0..3).for_each(|_| assert!(bench.receive(&from_outside).is_none()));
    let (_, (source, _), _, kind, flags, target, _) = parse_nd(&bench.sent()[0]);
    assert_eq!((source, kind, flags, target), (v6(1), 136, 0x20, v6(1)));
    let expected = [
        (Counter::NetNdUnsolicitedSent, 1),
        (Counter::NetAddressesDefended, 1),
        (Counter::NetDropNdConflict, 3),
    ];
    assert_eq!(bench.counted(), expected);
}

/// RFC 6724 s5: a source address of the scope of the destination; RFC 4291 s2.5.6: link-local
/// addresses are on the link. RFC 4861 s7.2.2.
#[test]
fn the_source_address_to_a_link_local_peer_is_link_local() {
    let mut bench = Bench::dual();
    assert_eq!(route(&mut bench, link_local(2)), Route::Pending);
    let (_, (source, _), ..) = parse_nd(&bench.sent()[0]);
    assert_eq!(source, link_local(1));
    bench.receive(&solicitation(link_local(2), link_local(1)));
    let Route::Ready(path) = route(&mut bench, link_local(2)) else { panic!("the peer is known") };
    assert_eq!(path.local_addr(), IpAddr::from(link_local(1)));
}

/// RFC 4861 s8.3.
#[test]
fn other_networks_are_reached_through_the_gateway() {
    let mut bench = Bench::dual();
    bench.receive(&solicitation(v6(0xfe), v6(1)));
    let distant: Ipv6Addr = "2001:db8::7".parse().expect("an address");
    let Route::Ready(path) = route(&mut bench, distant) else { panic!("the gateway is known") };
    assert_eq!((path.remote_addr(), path.local_addr()), (distant.into(), v6(1).into()));
    for dst in ["::", "::1", "ff02::1", "::ffff:10.0.0.2"] {
        let addr: Ipv6Addr = dst.parse().expect("an address");
        assert_eq!(route(&mut bench, addr), Route::Unreachable, "{dst}");
    }
}

/// RFC 4861 s7.2.6: unsolicited advertisements of an address are at least a second apart, and go to
/// all nodes without the flags of routers and of replies.
#[test]
fn announcements_are_a_second_apart_and_not_solicited() {
    let mut bench = Bench::dual();
    bench.net.on_link_up(bench.now, &mut bench.wire);
    let all_nodes: Ipv6Addr = "ff02::1".parse().expect("an address");
    let mut times = Vec::new();
    for _ in 0..8 {
        for frame in bench.sent().iter().filter(|frame| frame[12] == 0x86) {
            let (_, (source, to), hop_limit, kind, flags, target, options) = parse_nd(frame);
            assert_eq!((to, hop_limit, kind, flags), (all_nodes, 255, 136, 0x20));
            assert_eq!((target, options), (source, option(2, OURS.mac)));
            times.push((source, bench.now));
        }
        bench.pass(Nanos::from_millis(500));
    }
    for ours in [v6(1), link_local(1)] {
        let mine: Vec<Nanos> = times.iter().filter(|(addr, _)| *addr == ours).map(|&(_, at)| at).collect();
        assert_eq!(mine.len(), 2, "{ours}");
        assert!(mine[1].since(mine[0]) >= Nanos::from_secs(1), "{ours}");
    }
}

/// RFC 8201 s4: a report lowers the path of its destination, and no other.
#[test]
fn an_ipv6_report_lowers_the_path() {
    let mut bench = Bench::dual();
    bench.net.lower_path_mtu(bench.now, v6(2).into(), 1_400);
    let mtus = [v6(2), v6(3)].map(|to| bench.net.path_over(v6(1).into(), to.into(), PEER.mac).mtu_bytes());
    assert_eq!(mtus, [1_400, 1_500]);
}

/// RFC 8201 s4 and s5.2.
#[test]
fn an_ipv6_path_mtu_is_stored_and_at_least_1280() {
    let mut bench = Bench::dual();
    bench.net.lower_path_mtu(bench.now, v6(2).into(), 1_000);
    let path = bench.net.path_over(v6(1).into(), v6(2).into(), PEER.mac);
    assert_eq!(path.mtu_bytes(), 1_280);
}
