//! TCP segments: RFC 9293 s3.1.

use core::net::SocketAddr;

use ironwarp_port::memory::MemoryConfig;
use ironwarp_port::{Checksum, RxMeta};
use ironwarp_stats::Counter;
use ironwarp_types::Ecn;

use super::assert_dropped;
use crate::TransportProtocol;
use crate::testing::{Bench, OURS, PEER, tcp_frame, with_ip};

/// RFC 1122 s3.1.
#[test]
fn a_valid_segment_is_returned_with_its_flow_hash_and_offsets() {
    let mut bench = Bench::new();
    let segment = bench.receive(&tcp_frame(b"payload")).expect("a segment");
    assert_eq!(segment.flow.local, SocketAddr::from((OURS.addr, 4_420)));
    assert_eq!(segment.flow.remote, SocketAddr::from((PEER.addr, 50_000)));
    assert_eq!(segment.hash, bench.net.hasher().hash(&segment.flow));
    assert_eq!((segment.l4_offset, segment.l4_end), (34, 61));
    assert_eq!(segment.remote_mac, PEER.mac);
    assert_eq!(&segment.l4()[20..], b"payload");
    assert!(bench.counted().is_empty());
}

#[test]
fn link_padding_is_not_part_of_the_segment() {
    let mut frame = tcp_frame(b"");
    frame.resize(60, 0xee);
    let segment = Bench::new().receive(&frame).expect("a segment");
    assert_eq!((segment.l4_offset, segment.l4_end), (34, 54));
}

#[test]
fn the_ecn_bits_are_returned() {
    // RFC 3168 s5: the two low bits of the type of service.
    for ecn in 0..4 {
        let frame = with_ip(tcp_frame(b""), 15, &[0xb8 | ecn]);
        assert_eq!(Bench::new().receive(&frame).expect("a segment").ecn, Ecn::from_bits(ecn));
    }
}

#[test]
fn every_corrupt_byte_of_a_segment_is_detected() {
    let valid = tcp_frame(b"payload of some bytes");
    for at in 34..valid.len() {
        let mut frame = valid.clone();
        frame[at] ^= 0x10;
        let mut bench = Bench::new();
        assert!(bench.receive(&frame).is_none(), "byte {at}");
        assert_eq!(bench.counted().len(), 1);
    }
}

#[test]
fn a_wrong_checksum_is_counted() {
    let mut frame = tcp_frame(b"data");
    frame[56] ^= 1;
    assert_dropped(&frame, Counter::NetDropL4Checksum);
}

#[test]
fn the_verdict_of_the_device_on_the_tcp_checksum_is_used() {
    let mut bench = Bench::with(MemoryConfig::default().offloading(), |_| ());
    let mut wrong = tcp_frame(b"data");
    wrong[56] ^= 1;
    assert!(bench.receive(&tcp_frame(b"data")).is_some());
    assert!(bench.receive(&wrong).is_none());
    let good = RxMeta { l4_checksum: Checksum::Good, ..RxMeta::default() };
    assert!(bench.receive_with(&wrong, good).is_some());
    assert_eq!(bench.counted(), [(Counter::NetDropL4Checksum, 1)]);
}

#[test]
fn the_hash_of_the_nic_is_not_used() {
    let mut bench = Bench::new();
    let plain = bench.receive(&tcp_frame(b"")).expect("a segment").hash;
    let rx = RxMeta { rss_hash: Some(0xdead_beef), ..RxMeta::default() };
    assert_eq!(bench.receive_with(&tcp_frame(b""), rx).expect("a segment").hash, plain);
}

#[test]
fn a_segment_shorter_than_its_header_is_dropped() {
    assert_dropped(&with_ip(tcp_frame(b""), 16, &[0, 39]), Counter::NetDropL4Header);
    assert_dropped(&with_ip(tcp_frame(b""), 16, &[0, 20]), Counter::NetDropL4Header);
}

/// For another transport its packets are returned as they are, and TCP's are dropped.
#[test]
fn another_transport_is_a_number() {
    let other = || Bench::with(MemoryConfig::default(), |cfg| cfg.transport = TransportProtocol::SCTP);
    let mut frame = with_ip(tcp_frame(b"chunk"), 23, &[132]);
    frame[50..54].copy_from_slice(&[1, 2, 3, 4]);
    let packet = other().receive(&frame).expect("a packet");
    assert_eq!(packet.l4(), &frame[34..]);
    assert_eq!(packet.flow, Bench::new().receive(&tcp_frame(b"chunk")).expect("a segment").flow);
    let mut bench = other();
    assert!(bench.receive(&tcp_frame(b"chunk")).is_none());
    assert!(bench.receive(&with_ip(frame.clone(), 16, &[0, 31])).is_none());
    assert_eq!(bench.counted(), [(Counter::NetDropIpProtocol, 1), (Counter::NetDropL4Header, 1)]);
}

/// With two transports the packets of both are returned, and say which.
#[test]
fn another_transport_beside_tcp_is_another_number() {
    let mut bench =
        Bench::with(MemoryConfig::default(), |cfg| cfg.other_transport = Some(TransportProtocol::SCTP));
    let mut protocol = |number| {
        let frame = tcp_frame(b"chunk");
        let frame = if number == 6 { frame } else { with_ip(frame, 23, &[number]) };
        bench.receive(&frame).map(|packet| packet.protocol)
    };
    assert_eq!([6, 132, 253].map(&mut protocol), [Some(6), Some(132), None]);
    assert_eq!(bench.counted(), [(Counter::NetDropIpProtocol, 1)]);
}

#[test]
fn a_prefix_of_31_bits_has_no_broadcast_addresses() {
    // RFC 3021: both addresses are unicast.
    let mut bench = Bench::with(MemoryConfig::default(), |cfg| cfg.addresses[0].len = 31);
    let mut frame = with_ip(tcp_frame(b""), 26, &[10, 0, 0, 0]);
    // The pseudo-header contains the changed address, so the checksum changes too.
    let sum = u16::from_be_bytes([frame[50], frame[51]]);
    frame[50..52].copy_from_slice(&crate::checksum::update(sum, 2, 0).to_be_bytes());
    assert!(bench.receive(&frame).is_some());
}
