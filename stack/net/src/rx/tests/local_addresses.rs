//! Several local addresses, static routes, and loopback.

use core::net::IpAddr;

use ironwarp_port::memory::{MemoryConfig, MemoryFrame};
use ironwarp_port::{Burst, Frame};
use ironwarp_stats::Counter;
use ironwarp_types::Seq;
use smoltcp::wire::{ArpOperation, ArpRepr};

use super::route;
use crate::testing::{Bench, PEER, arp_frame, dual, mac, read_arp, tcp_frame, v4, v6, with_ip};
use crate::{Prefix, Received, Route, StaticRoute, Station, TcpFlags, TxHeader, TxSegment};

fn ip(text: &str) -> IpAddr {
    text.parse().expect("an address")
}

fn prefix(text: &str) -> Prefix {
    let (addr, len) = text.split_once('/').expect("a prefix");
    Prefix { addr: ip(addr), len: len.parse().expect("a length") }
}

/// 10.0.0.1/24, 10.0.0.7/24 and 192.168.5.1/16; a route to 172.16.0.0/12 and a longer one to
/// 172.16.9.0/24.
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

/// Routes to `dst`. Returns the target and the sender address of the ARP request.
fn requested(bench: &mut Bench, dst: &str) -> (IpAddr, IpAddr) {
    assert_eq!(route(bench, ip(dst)), Route::Pending);
    let ArpRepr::EthernetIpv4 { source_protocol_addr, target_protocol_addr, .. } =
        read_arp(&bench.sent()[0]).1
    else {
        panic!("not Ethernet and IPv4");
    };
    (target_protocol_addr.into(), source_protocol_addr.into())
}

/// RFC 1122 s3.3.1.1 and s3.3.4.3: the longest prefix wins, and the source is on the network of the
/// next hop. RFC 1122 s3.2.1.3 and s3.2.2.2.
#[test]
fn the_longest_prefix_selects_the_next_hop_and_the_source() {
    for (dst, next_hop, source) in [
        ("10.0.0.9", "10.0.0.9", "10.0.0.1"),
        ("192.168.77.1", "192.168.77.1", "192.168.5.1"),
        ("172.20.0.1", "192.168.0.254", "192.168.5.1"),
        ("172.16.9.1", "10.0.0.2", "10.0.0.1"),
        ("8.8.8.8", "10.0.0.254", "10.0.0.1"),
    ] {
        assert_eq!(requested(&mut many(), dst), (ip(next_hop), ip(source)), "{dst}");
    }
}

/// RFC 1122 s3.2.1.3.
#[test]
fn a_path_starts_at_the_local_address_on_the_network_of_the_next_hop() {
    let mut bench = many();
    bench.receive(&arp_frame(ArpOperation::Request, Station { addr: ip("192.168.0.254"), ..PEER }, v4(7)));
    let Route::Ready(path) = route(&mut bench, ip("172.20.0.1")) else { panic!("the router is known") };
    assert_eq!((path.local_addr(), path.remote_mac()), (ip("192.168.5.1"), PEER.mac));
}

/// RFC 1122 s3.3.4.3.
#[test]
fn every_local_address_gets_replies_and_segments() {
    let mut bench = many();
    for ours in [v4(1), v4(7), "192.168.5.1".parse().expect("v4")] {
        bench.receive(&arp_frame(ArpOperation::Request, PEER, ours));
        let ArpRepr::EthernetIpv4 { source_protocol_addr, .. } = read_arp(&bench.sent()[0]).1 else {
            panic!("not Ethernet and IPv4");
        };
        assert_eq!(source_protocol_addr, ours);
    }
    // The pseudo-header contains the address, so the checksum changes too.
    let mut frame = with_ip(tcp_frame(b"data"), 30, &[10, 0, 0, 7]);
    let sum = u16::from_be_bytes([frame[50], frame[51]]);
    frame[50..52].copy_from_slice(&crate::checksum::update(sum, 1, 7).to_be_bytes());
    let segment = bench.receive(&frame).expect("a segment");
    assert_eq!(segment.flow.local.ip(), ip("10.0.0.7"));
}

/// RFC 1122 s3.2.1.3: the broadcast addresses of all local networks.
#[test]
fn a_packet_from_a_broadcast_address_of_any_local_network_is_dropped() {
    let mut bench = many();
    bench.receive(&with_ip(tcp_frame(b""), 26, &[192, 168, 255, 255]));
    assert_eq!(bench.counted(), [(Counter::NetDropIpSource, 1)]);
}

#[test]
fn a_destination_of_a_family_without_a_local_address_is_unreachable() {
    let mut bench = Bench::new();
    assert_eq!(route(&mut bench, ip("fd00::2")), Route::Unreachable);
    assert_eq!(route(&mut bench, ip("fe80::2")), Route::Unreachable);
    assert!(bench.sent().is_empty());
}

/// Sends a segment to a local address. Returns the frame from the loopback.
fn loop_back(bench: &mut Bench, dst: IpAddr) -> MemoryFrame {
    let Route::Ready(path) = route(bench, dst) else { panic!("a local address is always reachable") };
    let mut frame = bench.wire.alloc().expect("a frame");
    frame.resize(path.header_bytes() + 20);
    let header = TxHeader::bare(Seq(1), Seq(2), TcpFlags::ACK);
    let segment = TxSegment { ports: [50_000, 4_420], ident: 1, header: &header };
    let meta = path.write(frame.bytes_mut(), segment, 0, None);
    assert!(bench.wire.push(frame.seal(meta)));
    let mut burst = Burst::new();
    bench.wire.rx_looped(&mut burst);
    burst.pop().expect("a looped-back frame")
}

/// Frames to a local address are not transmitted. They pass the usual checks, with an offloading
/// device too.
#[test]
fn a_segment_to_a_local_address_is_looped_back() {
    for port in [MemoryConfig::default(), MemoryConfig::default().offloading()] {
        for to in [IpAddr::V4(v4(1)), IpAddr::V6(v6(1))] {
            let mut bench = Bench::with(port.clone(), dual);
            let frame = loop_back(&mut bench, to);
            let Some(Received::Packet(segment)) =
                bench.net.on_loopback_frame(bench.now, frame, &mut bench.wire)
            else {
                panic!("no segment: {:?}", bench.counted());
            };
            assert_eq!((segment.flow.local.ip(), segment.flow.remote.ip()), (to, to));
            assert_eq!(segment.remote_mac, mac(1));
            assert!(bench.counted().is_empty() && bench.sent().is_empty());
        }
    }
}

/// A frame from the network with a local source is forged. A looped-back frame has no other source.
#[test]
fn a_local_source_address_is_valid_only_in_the_loopback() {
    let mut bench = Bench::dual();
    let mut frame = loop_back(&mut bench, v4(1).into());
    let bytes = frame.bytes().to_vec();
    assert!(bench.receive(&bytes).is_none());
    frame.bytes_mut()[26..30].copy_from_slice(&[10, 0, 0, 2]);
    let repaired = with_ip(frame.bytes().to_vec(), 14, &[]);
    frame.bytes_mut().copy_from_slice(&repaired);
    assert!(bench.net.on_loopback_frame(bench.now, frame, &mut bench.wire).is_none());
    assert_eq!(bench.counted(), [(Counter::NetDropIpSource, 2)]);
}

#[test]
fn a_path_to_a_local_address_is_never_changed() {
    let mut bench = Bench::dual();
    let Route::Ready(mut path) = route(&mut bench, v4(1)) else { panic!("local") };
    assert!(!bench.net.refresh(bench.now, &mut path, &mut bench.wire));
    assert!(bench.sent().is_empty());
    assert_eq!(path.remote_mac(), mac(1));
}
