//! Several addresses, static routes, and frames to ourselves.

use core::net::IpAddr;

use ironwarp_port::memory::{MemoryConfig, MemoryFrame};
use ironwarp_port::{Burst, Frame};
use ironwarp_stats::Counter;
use ironwarp_types::Ecn;
use smoltcp::wire::{ArpOperation, ArpRepr};

use crate::testing::{
    Bench, GATEWAY, PEER, arp_frame, dual, mac, read_arp, station, tcp_frame, v4, v6, with_ip,
};
use crate::{Prefix, Received, Route, StaticRoute, Station};

fn ip(text: &str) -> IpAddr {
    text.parse().expect("an address")
}

fn prefix(text: &str) -> Prefix {
    let (addr, len) = text.split_once('/').expect("a prefix");
    Prefix { addr: ip(addr), len: len.parse().expect("a length") }
}

/// 10.0.0.1/24, 10.0.0.7/24 and 192.168.5.1/16; a route to 172.16.0.0/12 and a longer one to 172.16.9.0/24.
fn many() -> Bench {
    Bench::with(MemoryConfig::default(), |cfg| {
        dual(cfg);
        cfg.addresses.extend([prefix("10.0.0.7/24"), prefix("192.168.5.1/16")]);
        cfg.routes.extend([
            StaticRoute { to: prefix("172.16.0.0/12"), via: ip("192.168.0.254") },
            StaticRoute { to: prefix("172.16.9.0/24"), via: ip("10.0.0.2") },
            StaticRoute { to: prefix("2001:db8::/32"), via: ip("fd00::2") },
        ]);
    })
}

fn route(bench: &mut Bench, to: &str) -> Route {
    bench.net.route(bench.now, ip(to), &mut bench.wire)
}

/// Whom a packet for `to` goes to first, and from which of our addresses that is asked.
fn asked(bench: &mut Bench, to: &str) -> (IpAddr, IpAddr) {
    assert_eq!(route(bench, to), Route::Pending);
    let ArpRepr::EthernetIpv4 { source_protocol_addr, target_protocol_addr, .. } =
        read_arp(&bench.sent()[0]).1
    else {
        panic!("not Ethernet and IPv4");
    };
    (target_protocol_addr.into(), source_protocol_addr.into())
}

/// RFC 1122 s3.3.1.1 and s3.3.4.3: the longest prefix, and a source on the network that the packet leaves through.
#[test]
fn the_longest_prefix_leads_and_the_source_lies_on_its_network() {
    for (to, next, source) in [
        ("10.0.0.9", "10.0.0.9", "10.0.0.1"),
        ("192.168.77.1", "192.168.77.1", "192.168.5.1"),
        ("172.20.0.1", "192.168.0.254", "192.168.5.1"),
        ("172.16.9.1", "10.0.0.2", "10.0.0.1"),
        ("8.8.8.8", "10.0.0.254", "10.0.0.1"),
    ] {
        assert_eq!(asked(&mut many(), to), (ip(next), ip(source)), "{to}");
    }
}

#[test]
fn a_path_begins_at_the_address_that_its_network_suggests() {
    let mut bench = many();
    bench.receive(&arp_frame(ArpOperation::Request, Station { addr: ip("192.168.0.254"), ..PEER }, v4(7)));
    let Route::Ready(path) = route(&mut bench, "172.20.0.1") else { panic!("the router is known") };
    assert_eq!((path.local_addr(), path.remote_mac()), (ip("192.168.5.1"), PEER.mac));
}

#[test]
fn every_address_is_answered_for_and_received_at() {
    let mut bench = many();
    for ours in [v4(1), v4(7), "192.168.5.1".parse().expect("v4")] {
        bench.receive(&arp_frame(ArpOperation::Request, PEER, ours));
        let ArpRepr::EthernetIpv4 { source_protocol_addr, .. } = read_arp(&bench.sent()[0]).1 else {
            panic!()
        };
        assert_eq!(source_protocol_addr, ours);
    }
    // The sum of the pseudo-header changes with the address.
    let mut frame = with_ip(tcp_frame(b"data"), 30, &[10, 0, 0, 7]);
    let sum = u16::from_be_bytes([frame[50], frame[51]]);
    frame[50..52].copy_from_slice(&crate::checksum::update(sum, 1, 7).to_be_bytes());
    let segment = bench.receive(&frame).expect("a segment");
    assert_eq!(segment.flow.local.ip(), ip("10.0.0.7"));
}

/// RFC 1122 s3.2.1.3: the broadcast forms of all our networks.
#[test]
fn a_broadcast_address_of_any_network_of_ours_is_no_source() {
    let mut bench = many();
    bench.receive(&with_ip(tcp_frame(b""), 26, &[192, 168, 255, 255]));
    assert_eq!(bench.counted(), [(Counter::NetDropIpSource, 1)]);
}

#[test]
fn a_family_without_an_address_is_unreachable() {
    let mut bench = Bench::new();
    assert_eq!(route(&mut bench, "fd00::2"), Route::Unreachable);
    assert_eq!(route(&mut bench, "fe80::2"), Route::Unreachable);
    assert!(bench.sent().is_empty());
}

/// A frame to ourselves, sent on the path that route answers.
fn send_to_self(bench: &mut Bench, to: IpAddr) -> MemoryFrame {
    let Route::Ready(path) = bench.net.route(bench.now, to, &mut bench.wire) else {
        panic!("we know ourselves")
    };
    let at = path.header_bytes();
    let mut frame = bench.wire.alloc().expect("a frame");
    frame.resize(at + 20);
    frame.bytes_mut()[at..]
        .copy_from_slice(&[0xc3, 0x50, 0x11, 0x44, 0, 0, 0, 1, 0, 0, 0, 2, 0x50, 0x10, 0x10, 0, 0, 0, 0, 0]);
    path.write(frame.bytes_mut(), 20, 1, Ecn::NotEct);
    let meta = path.finish_tcp(frame.bytes_mut(), 20);
    assert!(bench.wire.push(frame.seal(meta)));
    let mut burst = Burst::new();
    bench.wire.rx_own(&mut burst);
    burst.pop().expect("it comes back")
}

/// Frames to an own address do not leave, and pass the checks of any other, with a device that offloads too.
#[test]
fn a_segment_to_ourselves_comes_back_and_never_leaves() {
    for port in [MemoryConfig::default(), MemoryConfig::default().offloading()] {
        for to in [IpAddr::V4(v4(1)), IpAddr::V6(v6(1))] {
            let mut bench = Bench::with(port.clone(), dual);
            let frame = send_to_self(&mut bench, to);
            let Some(Received::Segment(segment)) = bench.net.on_own_frame(bench.now, frame, &mut bench.wire)
            else {
                panic!("no segment: {:?}", bench.counted());
            };
            assert_eq!((segment.flow.local.ip(), segment.flow.remote.ip()), (to, to));
            assert_eq!(segment.remote_mac, mac(1));
            assert!(bench.counted().is_empty() && bench.sent().is_empty());
        }
    }
}

/// What comes over the wire in our name is a lie, and what comes through the loop in another's cannot be.
#[test]
fn our_own_address_is_a_source_in_the_loop_alone() {
    let mut bench = Bench::dual();
    let mut frame = send_to_self(&mut bench, v4(1).into());
    let bytes = frame.bytes().to_vec();
    assert!(bench.receive(&bytes).is_none());
    frame.bytes_mut()[26..30].copy_from_slice(&[10, 0, 0, 2]);
    let repaired = with_ip(frame.bytes().to_vec(), 14, &[]);
    frame.bytes_mut().copy_from_slice(&repaired);
    assert!(bench.net.on_own_frame(bench.now, frame, &mut bench.wire).is_none());
    assert_eq!(bench.counted(), [(Counter::NetDropIpSource, 2)]);
}

#[test]
fn a_path_to_ourselves_is_never_refreshed() {
    let mut bench = Bench::dual();
    let Route::Ready(mut path) = bench.net.route(bench.now, v4(1).into(), &mut bench.wire) else {
        panic!("known")
    };
    assert!(!bench.net.refresh(bench.now, &mut path, &mut bench.wire));
    assert!(bench.sent().is_empty());
    assert_eq!((station(254).mac, path.remote_mac()), (GATEWAY.mac, mac(1)));
}
