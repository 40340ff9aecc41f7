//! ARP in both roles: RFC 826, RFC 1122 s2.3.2, RFC 5227.

use core::net::{IpAddr, Ipv4Addr};

use ironwarp_stats::Counter;
use ironwarp_types::{MacAddr, Nanos};
use smoltcp::wire::{ArpOperation, ArpRepr, EthernetAddress};

use super::assert_dropped;
use crate::testing::{Bench, GATEWAY, OURS, PEER, arp_frame, mac, read_arp, station, v4};
use crate::{AddressState, Prefix, Route, Station};

fn request_from(from: Station) -> Vec<u8> {
    arp_frame(ArpOperation::Request, from, v4(1))
}

fn reply_from(from: Station) -> Vec<u8> {
    arp_frame(ArpOperation::Reply, from, v4(1))
}

fn route(bench: &mut Bench, to: impl Into<IpAddr>) -> Route {
    bench.net.route(bench.now, to.into(), &mut bench.wire)
}

fn mac_of(route: Route) -> Option<MacAddr> {
    match route {
        Route::Ready(path) => Some(path.remote_mac()),
        Route::Pending | Route::Unreachable => None,
    }
}

#[test]
fn a_request_for_our_address_is_answered_to_its_sender_and_teaches_us_the_sender() {
    let mut bench = Bench::new();
    bench.receive(&request_from(PEER));
    let sent = bench.sent();
    let update = ArpRepr::EthernetIpv4 {
        operation: ArpOperation::Reply,
        source_hardware_addr: EthernetAddress(OURS.mac.0),
        source_protocol_addr: v4(1),
        target_hardware_addr: EthernetAddress(PEER.mac.0),
        target_protocol_addr: v4(2),
    };
    assert_eq!(read_arp(&sent[0]), (PEER.mac, update));
    assert_eq!(bench.counted(), [(Counter::NetArpRepliesSent, 1)]);
    assert_eq!(mac_of(route(&mut bench, PEER.addr)), Some(PEER.mac));
}

#[test]
fn a_probe_is_answered_and_teaches_nothing() {
    // RFC 5227 s1.1: sender address zero.
    let mut bench = Bench::new();
    bench.receive(&request_from(Station { addr: Ipv4Addr::UNSPECIFIED.into(), ..PEER }));
    assert_eq!(read_arp(&bench.sent()[0]).0, PEER.mac);
    assert_eq!(route(&mut bench, PEER.addr), Route::Pending);
}

#[test]
fn an_unknown_way_is_asked_for_and_the_answer_changes_the_route() {
    let mut bench = Bench::new();
    assert_eq!(route(&mut bench, PEER.addr), Route::Pending);
    let sent = bench.sent();
    let (to, asked) = read_arp(&sent[0]);
    assert_eq!(to, MacAddr::BROADCAST);
    let ArpRepr::EthernetIpv4 {
        operation,
        source_hardware_addr,
        source_protocol_addr,
        target_protocol_addr,
        ..
    } = asked
    else {
        panic!("not Ethernet and IPv4: {asked:?}");
    };
    assert_eq!((operation, target_protocol_addr), (ArpOperation::Request, v4(2)));
    assert_eq!((source_hardware_addr.0, source_protocol_addr), (OURS.mac.0, v4(1)));

    let seen = bench.net.route_changes();
    bench.receive(&reply_from(PEER));
    assert_ne!(bench.net.route_changes(), seen);
    assert_eq!(mac_of(route(&mut bench, PEER.addr)), Some(PEER.mac));
    assert!(bench.sent().is_empty());
}

#[test]
fn a_neighbour_that_never_answers_becomes_unreachable_after_three_requests() {
    let mut bench = Bench::new();
    route(&mut bench, PEER.addr);
    let seen = bench.net.route_changes();
    while bench.net.route_changes() == seen {
        let due = bench.net.next_deadline().expect("a retry is due");
        bench.pass(due - bench.now);
    }
    assert_eq!(bench.sent().len(), 3);
    assert_eq!(route(&mut bench, PEER.addr), Route::Unreachable);
    assert_eq!(bench.counted(), [(Counter::NetArpRequestsSent, 3), (Counter::NetNeighboursUnreachable, 1)]);
}

#[test]
fn a_request_that_found_no_frame_is_made_up_for_by_the_retry() {
    let mut bench = Bench::new();
    bench.control.allow_allocations(0);
    assert_eq!(route(&mut bench, PEER.addr), Route::Pending);
    bench.control.allow_allocations(u64::MAX);
    bench.pass(Nanos::from_secs(1));
    assert_eq!(bench.sent().len(), 1);
    assert_eq!(bench.counted(), [(Counter::NetArpRequestsSent, 1), (Counter::NetTxNoBuffer, 1)]);
}

#[test]
fn other_networks_are_reached_through_the_gateway() {
    // RFC 1122 s3.3.1.1.
    let mut bench = Bench::new();
    bench.receive(&request_from(GATEWAY));
    let far = Ipv4Addr::new(192, 0, 2, 7);
    let Route::Ready(path) = route(&mut bench, far) else { panic!("the gateway is known") };
    assert_eq!((path.remote_mac(), path.remote_addr()), (GATEWAY.mac, far.into()));
}

#[test]
fn there_is_no_way_to_what_is_no_station() {
    let mut bench = Bench::with(Default::default(), |cfg| cfg.gateway = None);
    let nowhere: [Ipv4Addr; 6] = [
        Ipv4Addr::UNSPECIFIED,
        Ipv4Addr::LOCALHOST,
        Ipv4Addr::BROADCAST,
        Ipv4Addr::new(224, 0, 0, 1),
        Ipv4Addr::new(10, 0, 0, 255),
        Ipv4Addr::new(192, 0, 2, 7),
    ];
    for to in nowhere {
        assert_eq!(route(&mut bench, to), Route::Unreachable, "{to}");
    }
    let v6 = "fd00::1".parse().expect("an address");
    assert_eq!(bench.net.route(bench.now, v6, &mut bench.wire), Route::Unreachable);
    assert!(bench.sent().is_empty());
}

#[test]
fn a_reply_nobody_asked_for_teaches_nothing() {
    assert_dropped(&reply_from(PEER), Counter::NetDropArpOther);
}

#[test]
fn an_announcement_updates_a_known_neighbour_only() {
    // RFC 826: merge before anything else; it adds only what asks for us.
    let mut bench = Bench::new();
    bench.receive(&request_from(PEER));
    let moved = Station { mac: MacAddr([2, 0, 0, 0, 0, 77]), ..PEER };
    let seen = bench.net.route_changes();
    bench.receive(&arp_frame(ArpOperation::Request, moved, v4(2)));
    bench.receive(&arp_frame(ArpOperation::Request, station(9), v4(9)));
    assert_ne!(bench.net.route_changes(), seen);
    assert_eq!(mac_of(route(&mut bench, PEER.addr)), Some(moved.mac));
    let expected = [
        (Counter::NetArpRepliesSent, 1),
        (Counter::NetArpUpdates, 1),
        (Counter::NetNeighboursChanged, 1),
        (Counter::NetDropArpOther, 1),
    ];
    assert_eq!(bench.counted(), expected);
}

/// RFC 5227 s2.4 (c): kept, and announced again, at most once in ten seconds.
#[test]
fn another_claim_to_our_address_is_answered_with_an_announcement_but_not_too_often() {
    let mut bench = Bench::new();
    let claim = request_from(Station { addr: OURS.addr, ..PEER });
    (0..3).for_each(|_| assert!(bench.receive(&claim).is_none()));
    assert_announces_us(&bench.sent());
    bench.pass(Nanos::from_secs(10));
    bench.receive(&claim);
    assert_announces_us(&bench.sent());
    let expected = [
        (Counter::NetArpRequestsSent, 2),
        (Counter::NetAddressesDefended, 2),
        (Counter::NetDropArpConflict, 4),
    ];
    assert_eq!(bench.counted(), expected);
}

/// One ARP announcement of 10.0.0.1 to everybody, and nothing else.
fn assert_announces_us(sent: &[Vec<u8>]) {
    let [frame] = sent else { panic!("{} frames", sent.len()) };
    let (to, ArpRepr::EthernetIpv4 { source_protocol_addr, target_protocol_addr, .. }) = read_arp(frame)
    else {
        panic!("not Ethernet and IPv4");
    };
    assert_eq!((to, source_protocol_addr, target_protocol_addr), (MacAddr::BROADCAST, v4(1), v4(1)));
}

#[test]
fn a_sender_from_another_network_is_answered_but_not_remembered() {
    let mut bench = Bench::new();
    bench.receive(&request_from(Station { addr: Ipv4Addr::new(192, 0, 2, 7).into(), ..PEER }));
    assert_eq!(bench.counted(), [(Counter::NetArpRepliesSent, 1)]);
    assert_eq!(bench.net.next_deadline(), None);
}

#[test]
fn impossible_packets_and_addresses_are_malformed() {
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
        let mut frame = request_from(PEER);
        frame[at..at + bytes.len()].copy_from_slice(bytes);
        assert_dropped(&frame, Counter::NetDropArpMalformed);
    }
    assert_dropped(&request_from(PEER)[..41], Counter::NetDropArpMalformed);
}

/// RFC 5227 s2.3: two announcements, two seconds apart.
#[test]
fn a_link_that_comes_up_hears_of_our_address_twice() {
    let mut bench = Bench::new();
    bench.net.on_link_up(bench.now, &mut bench.wire);
    assert_announces_us(&bench.sent());
    bench.pass(Nanos::from_millis(1_999));
    assert!(bench.sent().is_empty());
    bench.pass(Nanos::from_millis(1));
    assert_announces_us(&bench.sent());
    assert_eq!(bench.net.next_deadline(), None);
}

/// A net that asks three times for its address before it uses it, and has begun to.
fn probing() -> Bench {
    let mut bench = Bench::with(Default::default(), |cfg| cfg.duplicate_probes.ipv4 = 3);
    bench.net.on_link_up(bench.now, &mut bench.wire);
    bench
}

fn pass_to_next(bench: &mut Bench) {
    let due = bench.net.next_deadline().expect("something is due");
    bench.pass(due - bench.now);
}

/// RFC 5227 s2.1.1: three probes without a sender, one to two seconds apart; s2.3: then announcements.
#[test]
fn an_address_that_nobody_has_is_used_after_three_probes() {
    let mut bench = probing();
    let begun = bench.now;
    for _ in 0..3 {
        assert_eq!(route(&mut bench, PEER.addr), Route::Pending);
        pass_to_next(&mut bench);
        let (to, ArpRepr::EthernetIpv4 { source_protocol_addr, target_protocol_addr, .. }) =
            read_arp(&bench.sent()[0])
        else {
            panic!("not Ethernet and IPv4");
        };
        assert_eq!((to, source_protocol_addr), (MacAddr::BROADCAST, Ipv4Addr::UNSPECIFIED));
        assert_eq!(target_protocol_addr, v4(1));
        bench.receive(&request_from(PEER));
        assert!(bench.sent().is_empty(), "an address that is not in use is not answered for");
    }
    let seen = bench.net.route_changes();
    pass_to_next(&mut bench);
    assert_announces_us(&bench.sent());
    assert_ne!(bench.net.route_changes(), seen, "waiting callers ask again");
    let took = bench.now - begun;
    assert!(took >= Nanos::from_secs(4) && took <= Nanos::from_secs(9), "{took:?}");
    assert_eq!(bench.net.address_state(v4(1).into()), Some(AddressState::Usable));
}

/// RFC 5227 s2.1.1: somebody uses the address, or asks for it too.
#[test]
fn an_address_that_somebody_has_or_wants_is_not_used() {
    let theirs = Station { addr: OURS.addr, ..PEER };
    let wants = Station { addr: Ipv4Addr::UNSPECIFIED.into(), ..PEER };
    for claim in [reply_from(theirs), arp_frame(ArpOperation::Request, theirs, v4(9)), request_from(wants)] {
        let mut bench = probing();
        pass_to_next(&mut bench);
        bench.receive(&claim);
        assert_eq!(bench.net.address_state(v4(1).into()), Some(AddressState::Duplicate));
        bench.pass(Nanos::from_secs(20));
        assert_eq!(bench.sent().len(), 1, "the probe alone");
        assert_eq!(route(&mut bench, PEER.addr), Route::Unreachable);
        assert_eq!(bench.stats.read(Counter::NetAddressesDuplicate), 1);
    }
}

/// RFC 5227 s2.1: an address that we lost is the other station's, and that station is a neighbour like any other.
#[test]
fn the_station_that_owns_our_lost_address_is_a_neighbour() {
    let mut bench = Bench::with(Default::default(), |cfg| {
        cfg.duplicate_probes.ipv4 = 1;
        cfg.addresses.push(Prefix { addr: v4(9).into(), len: 24 });
    });
    bench.net.on_link_up(bench.now, &mut bench.wire);
    let theirs = Station { addr: OURS.addr, ..PEER };
    bench.receive(&reply_from(theirs));
    while bench.net.address_state(v4(9).into()) != Some(AddressState::Usable) {
        pass_to_next(&mut bench);
    }
    bench.sent();
    bench.receive(&arp_frame(ArpOperation::Request, theirs, v4(9)));
    assert_eq!(bench.sent().len(), 1, "it hears where we are");
    assert_eq!(bench.stats.read(Counter::NetDropArpConflict), 1, "the claim that we gave way to");
}

#[test]
fn our_own_probe_that_comes_back_is_no_claim() {
    let mut bench = probing();
    pass_to_next(&mut bench);
    let probe = bench.sent().remove(0);
    bench.receive(&probe);
    assert_eq!(bench.net.address_state(v4(1).into()), Some(AddressState::Tentative));
}

/// RFC 826: the newest word wins, and paths made before follow it.
#[test]
fn a_path_follows_a_neighbour_that_moved() {
    let mut bench = Bench::new();
    bench.receive(&request_from(PEER));
    let Route::Ready(mut path) = route(&mut bench, PEER.addr) else { panic!("the peer is known") };
    assert!(!bench.net.refresh(bench.now, &mut path, &mut bench.wire));
    bench.receive(&request_from(Station { mac: mac(77), ..PEER }));
    assert!(bench.net.refresh(bench.now, &mut path, &mut bench.wire));
    assert_eq!((path.remote_mac(), path.remote_addr()), (mac(77), PEER.addr));
    assert_eq!(bench.stats.read(Counter::NetPathsUpdated), 1);
}

/// A neighbour that connections lean on is asked before its entry grows stale, though nobody asks for the way.
#[test]
fn refreshing_a_path_keeps_its_neighbour_known() {
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
    assert!(mac_of(route(&mut bench, PEER.addr)).is_some());
}

/// RFC 1122 s2.3.2.2 asks to keep a packet that waits for an address. Here none exists before its way is known, and every
/// answer goes back to where the question came from: a segment from a station nobody has asked for is answered at once.
#[test]
fn no_packet_waits_for_a_link_address() {
    let mut bench = Bench::new();
    let segment = bench.receive(&crate::testing::tcp_frame(b"")).expect("a segment");
    let path = bench.net.path_to(&segment.flow, segment.remote_mac);
    assert_eq!((path.remote_mac(), path.local_addr()), (PEER.mac, OURS.addr));
    bench.receive(&crate::testing::echo_frame(b"1"));
    assert_eq!(bench.sent().len(), 1, "the echo reply, and no question");
}
