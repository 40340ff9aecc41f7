//! ARP in both roles: RFC 826, RFC 1122 s2.3.2, RFC 5227.

use core::net::Ipv4Addr;

use ironwarp_stats::Counter;
use ironwarp_types::{MacAddr, Nanos};
use smoltcp::wire::{ArpOperation, ArpRepr, EthernetAddress};

use super::assert_dropped;
use crate::testing::{Bench, GATEWAY, OURS, PEER, arp_frame, read_arp, station};
use crate::{Route, Station};

fn request_from(from: Station) -> Vec<u8> {
    arp_frame(ArpOperation::Request, from, OURS.addr)
}

fn reply_from(from: Station) -> Vec<u8> {
    arp_frame(ArpOperation::Reply, from, OURS.addr)
}

fn route(bench: &mut Bench, to: Ipv4Addr) -> Route {
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
    let told = ArpRepr::EthernetIpv4 {
        operation: ArpOperation::Reply,
        source_hardware_addr: EthernetAddress(OURS.mac.0),
        source_protocol_addr: OURS.addr,
        target_hardware_addr: EthernetAddress(PEER.mac.0),
        target_protocol_addr: PEER.addr,
    };
    assert_eq!(read_arp(&sent[0]), (PEER.mac, told));
    assert_eq!(bench.counted(), [(Counter::NetArpRepliesSent, 1)]);
    assert_eq!(mac_of(route(&mut bench, PEER.addr)), Some(PEER.mac));
}

#[test]
fn a_probe_is_answered_and_teaches_nothing() {
    // RFC 5227 s1.1: sender address zero.
    let mut bench = Bench::new();
    bench.receive(&request_from(Station { addr: Ipv4Addr::UNSPECIFIED, ..PEER }));
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
    assert_eq!((operation, target_protocol_addr), (ArpOperation::Request, PEER.addr));
    assert_eq!((source_hardware_addr.0, source_protocol_addr), (OURS.mac.0, OURS.addr));

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
    assert_eq!(bench.counted(), [(Counter::NetArpRequestsSent, 3), (Counter::NetNeighboursLost, 1)]);
}

#[test]
fn a_request_that_found_no_frame_is_made_up_for_by_the_retry() {
    let mut bench = Bench::new();
    bench.control.allow_allocations(0);
    assert_eq!(route(&mut bench, PEER.addr), Route::Pending);
    bench.control.allow_allocations(u64::MAX);
    bench.pass(Nanos::from_secs(1));
    assert_eq!(bench.sent().len(), 1);
    assert_eq!(bench.counted(), [(Counter::NetArpRequestsSent, 1), (Counter::NetNoTxFrame, 1)]);
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
    let nowhere: [Ipv4Addr; 7] = [
        Ipv4Addr::UNSPECIFIED,
        Ipv4Addr::LOCALHOST,
        Ipv4Addr::BROADCAST,
        Ipv4Addr::new(224, 0, 0, 1),
        Ipv4Addr::new(10, 0, 0, 255),
        Ipv4Addr::new(192, 0, 2, 7),
        OURS.addr,
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
    bench.receive(&arp_frame(ArpOperation::Request, moved, PEER.addr));
    bench.receive(&arp_frame(ArpOperation::Request, station(9), station(9).addr));
    assert_ne!(bench.net.route_changes(), seen);
    assert_eq!(mac_of(route(&mut bench, PEER.addr)), Some(moved.mac));
    let expected = [
        (Counter::NetArpRepliesSent, 1),
        (Counter::NetArpLearnt, 1),
        (Counter::NetNeighboursMoved, 1),
        (Counter::NetDropArpOther, 1),
    ];
    assert_eq!(bench.counted(), expected);
}

#[test]
fn another_claim_to_our_address_is_counted_and_not_answered() {
    // RFC 5227 s2.4.
    assert_dropped(&request_from(Station { addr: OURS.addr, ..PEER }), Counter::NetDropArpConflict);
}

#[test]
fn a_sender_from_another_network_is_answered_but_not_remembered() {
    let mut bench = Bench::new();
    bench.receive(&request_from(Station { addr: Ipv4Addr::new(192, 0, 2, 7), ..PEER }));
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

#[test]
fn an_announcement_of_ours_names_us_twice() {
    let mut bench = Bench::new();
    assert!(bench.net.announce(&mut bench.wire));
    let (to, ArpRepr::EthernetIpv4 { source_protocol_addr, target_protocol_addr, .. }) =
        read_arp(&bench.sent()[0])
    else {
        panic!("not Ethernet and IPv4");
    };
    assert_eq!((to, source_protocol_addr, target_protocol_addr), (MacAddr::BROADCAST, OURS.addr, OURS.addr));
}
