//! ARP requests and replies, sent and received: RFC 826, RFC 1122 s2.3.2, RFC 5227.

use core::net::Ipv4Addr;

use ironwarp_port::TxOffloads;
use ironwarp_stats::Counter;
use ironwarp_types::{MacAddr, Nanos};
use smoltcp::wire::{ArpOperation, ArpRepr, EthernetAddress};

use super::{assert_dropped, next_hop_mac, overwrite, pass_to_next_deadline, route};
use crate::local_addresses::AddressState;
use crate::testing::{Bench, GATEWAY, OURS, PEER, arp_frame, mac, read_arp, station, v4};
use crate::{Prefix, Route, Station};

fn request_from(from: Station) -> Vec<u8> {
    arp_frame(ArpOperation::Request, from, v4(1))
}

fn reply_from(from: Station) -> Vec<u8> {
    arp_frame(ArpOperation::Reply, from, v4(1))
}

/// Parses an ARP frame. Returns its link destination, operation, sender address and target address.
fn parse_arp(frame: &[u8]) -> (MacAddr, ArpOperation, Ipv4Addr, Ipv4Addr) {
    let (to, repr) = read_arp(frame);
    let ArpRepr::EthernetIpv4 { operation, source_protocol_addr, target_protocol_addr, .. } = repr else {
        panic!("not Ethernet and IPv4: {repr:?}");
    };
    (to, operation, source_protocol_addr, target_protocol_addr)
}

#[test]
fn a_request_for_our_address_gets_a_reply_and_adds_its_sender() {
    let mut bench = Bench::new();
    bench.receive(&request_from(PEER));
    let sent = bench.sent();
    let reply = ArpRepr::EthernetIpv4 {
        operation: ArpOperation::Reply,
        source_hardware_addr: EthernetAddress(OURS.mac.0),
        source_protocol_addr: v4(1),
        target_hardware_addr: EthernetAddress(PEER.mac.0),
        target_protocol_addr: v4(2),
    };
    assert_eq!(read_arp(&sent[0]), (PEER.mac, reply));
    assert_eq!(bench.counted(), [(Counter::NetArpRepliesSent, 1)]);
    assert_eq!(next_hop_mac(&mut bench, PEER.addr), Some(PEER.mac));
}

#[test]
fn a_probe_gets_a_reply_and_adds_no_neighbour() {
    // RFC 5227 s1.1: the sender address is zero.
    let mut bench = Bench::new();
    bench.receive(&request_from(Station { addr: Ipv4Addr::UNSPECIFIED.into(), ..PEER }));
    assert_eq!(read_arp(&bench.sent()[0]).0, PEER.mac);
    assert_eq!(route(&mut bench, PEER.addr), Route::Pending);
}

/// RFC 1122 s2.3.3 and s2.4.
#[test]
fn an_unknown_neighbour_is_requested_and_the_reply_completes_the_route() {
    let mut bench = Bench::new();
    assert_eq!(route(&mut bench, PEER.addr), Route::Pending);
    let sent = bench.sent();
    assert_eq!(parse_arp(&sent[0]), (MacAddr::BROADCAST, ArpOperation::Request, v4(1), v4(2)));
    assert_eq!(sent[0][22..28], OURS.mac.0);

    let seen = bench.net.route_changes();
    bench.receive(&reply_from(PEER));
    assert_ne!(bench.net.route_changes(), seen);
    assert_eq!(next_hop_mac(&mut bench, PEER.addr), Some(PEER.mac));
    assert!(bench.sent().is_empty());
}

#[test]
fn a_neighbour_that_never_replies_becomes_unreachable_after_three_requests() {
    let mut bench = Bench::new();
    route(&mut bench, PEER.addr);
    let seen = bench.net.route_changes();
    while bench.net.route_changes() == seen {
        pass_to_next_deadline(&mut bench);
    }
    assert_eq!(bench.sent().len(), 3);
    assert_eq!(route(&mut bench, PEER.addr), Route::Unreachable);
    assert_eq!(bench.counted(), [(Counter::NetArpRequestsSent, 3), (Counter::NetNeighboursUnreachable, 1)]);
}

#[test]
fn a_request_without_a_buffer_is_counted_and_repeated() {
    let mut bench = Bench::new();
    bench.control.allow_allocations(0);
    assert_eq!(route(&mut bench, PEER.addr), Route::Pending);
    bench.control.allow_allocations(u64::MAX);
    bench.pass(Nanos::from_secs(1));
    assert_eq!(bench.sent().len(), 1);
    assert_eq!(bench.counted(), [(Counter::NetArpRequestsSent, 1), (Counter::NetTxNoBuffer, 1)]);
}

/// RFC 1122 s3.3.1.2.
#[test]
fn other_networks_are_reached_through_the_gateway() {
    // RFC 1122 s3.3.1.1.
    let mut bench = Bench::new();
    bench.receive(&request_from(GATEWAY));
    let distant = Ipv4Addr::new(192, 0, 2, 7);
    let Route::Ready(path) = route(&mut bench, distant) else { panic!("the gateway is known") };
    assert_eq!((path.remote_mac(), path.remote_addr()), (GATEWAY.mac, distant.into()));
}

#[test]
fn an_address_that_is_not_unicast_is_unreachable() {
    let mut bench = Bench::with(Default::default(), |cfg| cfg.gateway = None);
    let unreachable: [Ipv4Addr; 6] = [
        Ipv4Addr::UNSPECIFIED,
        Ipv4Addr::LOCALHOST,
        Ipv4Addr::BROADCAST,
        Ipv4Addr::new(224, 0, 0, 1),
        Ipv4Addr::new(10, 0, 0, 255),
        Ipv4Addr::new(192, 0, 2, 7),
    ];
    for dst in unreachable {
        assert_eq!(route(&mut bench, dst), Route::Unreachable, "{dst}");
    }
    let v6 = "fd00::1".parse().expect("an address");
    assert_eq!(bench.net.route(bench.now, v6, &mut bench.wire), Route::Unreachable);
    assert!(bench.sent().is_empty());
}

#[test]
fn an_unsolicited_reply_adds_no_neighbour() {
    assert_dropped(&reply_from(PEER), Counter::NetDropArpOther);
}

#[test]
fn an_announcement_updates_only_a_known_neighbour() {
    // RFC 826: a packet updates a known sender; only a request for a local address adds one.
    let mut bench = Bench::new();
    bench.receive(&request_from(PEER));
    let moved = Station { mac: MacAddr([2, 0, 0, 0, 0, 77]), ..PEER };
    let seen = bench.net.route_changes();
    bench.receive(&arp_frame(ArpOperation::Request, moved, v4(2)));
    bench.receive(&arp_frame(ArpOperation::Request, station(9), v4(9)));
    assert_ne!(bench.net.route_changes(), seen);
    assert_eq!(next_hop_mac(&mut bench, PEER.addr), Some(moved.mac));
    let expected = [
        (Counter::NetArpRepliesSent, 1),
        (Counter::NetArpUpdates, 1),
        (Counter::NetNeighboursChanged, 1),
        (Counter::NetDropArpOther, 1),
    ];
    assert_eq!(bench.counted(), expected);
}

/// RFC 5227 s2.4 (c): the address is kept, and announced at most once in ten seconds.
#[test]
fn an_address_in_use_is_defended_at_most_once_in_ten_seconds() {
    let mut bench = Bench::new();
    let claim = request_from(Station { addr: OURS.addr, ..PEER });
    (0..3).for_each(|_| assert!(bench.receive(&claim).is_none()));
    assert_announcement(&bench.sent());
    bench.pass(Nanos::from_secs(10));
    bench.receive(&claim);
    assert_announcement(&bench.sent());
    let expected = [
        (Counter::NetArpRequestsSent, 2),
        (Counter::NetAddressesDefended, 2),
        (Counter::NetDropArpConflict, 4),
    ];
    assert_eq!(bench.counted(), expected);
}

/// Asserts that exactly one ARP announcement of 10.0.0.1 was sent.
fn assert_announcement(sent: &[Vec<u8>]) {
    let [frame] = sent else { panic!("{} frames", sent.len()) };
    assert_eq!(parse_arp(frame), (MacAddr::BROADCAST, ArpOperation::Request, v4(1), v4(1)));
}

#[test]
fn a_sender_from_another_network_gets_a_reply_but_is_not_added() {
    let mut bench = Bench::new();
    bench.receive(&request_from(Station { addr: Ipv4Addr::new(192, 0, 2, 7).into(), ..PEER }));
    assert_eq!(bench.counted(), [(Counter::NetArpRepliesSent, 1)]);
    assert_eq!(bench.net.next_deadline(), None);
}

#[test]
fn invalid_fields_and_addresses_are_malformed() {
    let changes: [(usize, &[u8]); 8] = [
        (14, &[0, 6]),
        (16, &[0x86, 0xdd]),
        (18, &[8]),
        (19, &[16]),
        (20, &[0, 3]),
        (22, &[0xff; 6]),
        (22, &[0; 6]),
        (28, &[224, 0, 0, 1]),
    ];
    for (at, bytes) in changes {
        assert_dropped(&overwrite(request_from(PEER), at, bytes), Counter::NetDropArpMalformed);
    }
    assert_dropped(&request_from(PEER)[..41], Counter::NetDropArpMalformed);
}

/// RFC 5227 s2.3: two announcements, two seconds apart.
#[test]
fn an_address_is_announced_twice_after_link_up() {
    let mut bench = Bench::new();
    bench.net.on_link_up(bench.now, &mut bench.wire);
    assert_announcement(&bench.sent());
    bench.pass(Nanos::from_millis(1_999));
    assert!(bench.sent().is_empty());
    bench.pass(Nanos::from_millis(1));
    assert_announcement(&bench.sent());
    assert_eq!(bench.net.next_deadline(), None);
}

/// A net that has started to send three probes for its address.
fn probing() -> Bench {
    let mut bench = Bench::with(Default::default(), |cfg| cfg.duplicate_probes.ipv4 = 3);
    bench.net.on_link_up(bench.now, &mut bench.wire);
    bench
}

/// RFC 5227 s2.1.1: three probes without a sender, one to two seconds apart; s2.3: then
/// announcements.
#[test]
fn an_address_without_conflict_is_used_after_three_probes() {
    let mut bench = probing();
    let start = bench.now;
    for _ in 0..3 {
        assert_eq!(route(&mut bench, PEER.addr), Route::Pending);
        pass_to_next_deadline(&mut bench);
        let probe = (MacAddr::BROADCAST, ArpOperation::Request, Ipv4Addr::UNSPECIFIED, v4(1));
        assert_eq!(parse_arp(&bench.sent()[0]), probe);
        bench.receive(&request_from(PEER));
        assert!(bench.sent().is_empty(), "there is no reply for an address that is not in use");
    }
    let seen = bench.net.route_changes();
    pass_to_next_deadline(&mut bench);
    assert_announcement(&bench.sent());
    assert_ne!(bench.net.route_changes(), seen, "waiting callers try again");
    let took = bench.now - start;
    assert!(took >= Nanos::from_secs(4) && took <= Nanos::from_secs(9), "{took:?}");
    assert_eq!(bench.net.local.state_of(v4(1).into()), Some(AddressState::Usable));
}

/// RFC 5227 s2.1.1: another station uses the address, or probes for it too.
#[test]
fn an_address_that_another_station_has_or_probes_for_is_not_used() {
    let theirs = Station { addr: OURS.addr, ..PEER };
    let probing_too = Station { addr: Ipv4Addr::UNSPECIFIED.into(), ..PEER };
    for claim in
        [reply_from(theirs), arp_frame(ArpOperation::Request, theirs, v4(9)), request_from(probing_too)]
    {
        let mut bench = probing();
        pass_to_next_deadline(&mut bench);
        bench.receive(&claim);
        assert_eq!(bench.net.local.state_of(v4(1).into()), Some(AddressState::Duplicate));
        bench.pass(Nanos::from_secs(20));
        assert_eq!(bench.sent().len(), 1, "only the probe");
        assert_eq!(route(&mut bench, PEER.addr), Route::Unreachable);
        assert_eq!(bench.stats.read(Counter::NetAddressesDuplicate), 1);
    }
}

/// RFC 5227 s2.1: the station that has our duplicate address is a neighbour like any other.
#[test]
fn the_station_that_has_our_duplicate_address_is_a_neighbour() {
    let mut bench = Bench::with(Default::default(), |cfg| {
        cfg.duplicate_probes.ipv4 = 1;
        cfg.addresses.push(Prefix { addr: v4(9).into(), len: 24 });
    });
    bench.net.on_link_up(bench.now, &mut bench.wire);
    let theirs = Station { addr: OURS.addr, ..PEER };
    bench.receive(&reply_from(theirs));
    while bench.net.local.state_of(v4(9).into()) != Some(AddressState::Usable) {
        pass_to_next_deadline(&mut bench);
    }
    bench.sent();
    bench.receive(&arp_frame(ArpOperation::Request, theirs, v4(9)));
    assert_eq!(bench.sent().len(), 1, "the reply to the station");
    assert_eq!(bench.stats.read(Counter::NetDropArpConflict), 1, "only the claim during the probes");
}

#[test]
fn our_own_probe_that_a_switch_sends_back_is_no_conflict() {
    let mut bench = probing();
    pass_to_next_deadline(&mut bench);
    let probe = bench.sent().remove(0);
    bench.receive(&probe);
    assert_eq!(bench.net.local.state_of(v4(1).into()), Some(AddressState::Tentative));
}

/// RFC 826: the newest packet wins, and existing paths are updated.
#[test]
fn a_refresh_updates_the_path_of_a_moved_neighbour() {
    let mut bench = Bench::new();
    bench.receive(&request_from(PEER));
    let Route::Ready(mut path) = route(&mut bench, PEER.addr) else { panic!("the peer is known") };
    assert!(!bench.net.refresh(bench.now, &mut path, &mut bench.wire));
    bench.receive(&request_from(Station { mac: mac(77), ..PEER }));
    assert!(bench.net.refresh(bench.now, &mut path, &mut bench.wire));
    assert_eq!((path.remote_mac(), path.remote_addr()), (mac(77), PEER.addr));
    assert_eq!(bench.stats.read(Counter::NetPathsUpdated), 1);
}

/// Another peer of a link may need checksums that the last one did not. Paths of both follow.
#[test]
fn a_refresh_updates_what_the_device_fills_in() {
    let mut bench = Bench::new();
    bench.receive(&request_from(PEER));
    let Route::Ready(mut old) = route(&mut bench, PEER.addr) else { panic!("the peer is known") };
    for offloads in [TxOffloads::all(), TxOffloads::TCP_CHECKSUM_IPV6] {
        let before = bench.net.route_changes();
        bench.net.set_tx_offloads(offloads);
        bench.net.set_tx_offloads(offloads);
        assert_eq!(bench.net.route_changes(), before.wrapping_add(1), "one change");
        let Route::Ready(new) = route(&mut bench, PEER.addr) else { panic!("the peer is known") };
        assert_ne!(old, new);
        assert!(!bench.net.refresh(bench.now, &mut old, &mut bench.wire), "the station is the same");
        assert_eq!(old, new);
    }
}

/// A refresh marks the neighbour as used, so it is probed before it expires.
#[test]
fn a_refreshed_path_keeps_its_neighbour_known() {
    let mut bench = Bench::new();
    bench.receive(&request_from(PEER));
    let Route::Ready(mut path) = route(&mut bench, PEER.addr) else { panic!("the peer is known") };
    bench.sent();
    for _ in 0..10 {
        bench.pass(Nanos::from_secs(30));
        bench.net.refresh(bench.now, &mut path, &mut bench.wire);
        if !bench.sent().is_empty() {
            bench.receive(&reply_from(PEER));
        }
    }
    assert_eq!(bench.stats.read(Counter::NetNeighboursUnreachable), 0);
    assert!(next_hop_mac(&mut bench, PEER.addr).is_some());
}

/// RFC 1122 s2.3.2.2 asks to save a packet that waits for a link address. Here no packet waits: a
/// reply to a segment uses the link address that the segment came from, without a request.
#[test]
fn no_packet_waits_for_a_link_address() {
    let mut bench = Bench::new();
    let segment = bench.receive(&crate::testing::tcp_frame(b"")).expect("a segment");
    let path = bench.net.path_to(&segment.flow, segment.remote_mac);
    assert_eq!((path.remote_mac(), path.local_addr()), (PEER.mac, OURS.addr));
    bench.receive(&crate::testing::echo_frame(b"1"));
    assert_eq!(bench.sent().len(), 1, "the echo reply, and no request");
}
