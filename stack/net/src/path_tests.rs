//! Header templates, field by field, against smoltcp's own reading of them.

use ironwarp_port::memory::MemoryConfig;
use proptest::prelude::*;
use smoltcp::wire::{IpAddress, TcpPacket};

use super::*;
use crate::testing::{Bench, OURS, PEER};

/// A frame of `payload` behind an unwritten 20-byte TCP header.
fn unwritten(payload: &[u8]) -> Vec<u8> {
    let mut frame = vec![0xaa; HEADER_BYTES];
    let header = [0xc3, 0x50, 0x11, 0x44, 0, 0, 0, 1, 0, 0, 0, 2, 0x50, 0x10, 0x10, 0, 0xde, 0xad, 0, 0];
    frame.extend_from_slice(&header);
    frame.extend_from_slice(payload);
    frame
}

fn check_headers(frame: &[u8], ident: u16) {
    let link = EthernetFrame::new_checked(frame).expect("a frame");
    assert_eq!(link.src_addr().0, OURS.mac.0);
    assert_eq!(link.dst_addr().0, PEER.mac.0);
    assert_eq!(link.ethertype(), EthernetProtocol::Ipv4);
    let ip = Ipv4Packet::new_checked(link.payload()).expect("a packet");
    assert!(ip.verify_checksum() && ip.dont_frag());
    assert_eq!((ip.src_addr(), ip.dst_addr(), ip.hop_limit()), (OURS.addr, PEER.addr, 64));
    assert_eq!((ip.ident(), usize::from(ip.total_len())), (ident, frame.len() - ETHERNET_BYTES));
}

proptest! {
    #[test]
    fn a_frame_without_offloads_is_right_in_every_field(
        payload in prop::collection::vec(any::<u8>(), 0..3000),
        ident: u16,
    ) {
        let path = Path::new(OURS, PEER, 9000, TxOffloads::empty());
        let mut frame = unwritten(&payload);
        let l4_bytes = frame.len() - path.header_bytes();
        path.write(&mut frame, l4_bytes, ident, Ecn::NotCapable);
        let tx = path.finish_tcp(&mut frame, 20);
        check_headers(&frame, ident);
        let tcp = TcpPacket::new_checked(&frame[HEADER_BYTES..]).expect("a segment");
        prop_assert!(tcp.verify_checksum(&IpAddress::Ipv4(OURS.addr), &IpAddress::Ipv4(PEER.addr)));
        prop_assert_eq!(tx, TxMeta { l2_bytes: 14, l3_bytes: 20, l4_bytes: 20, offloads: TxOffloads::empty() });
    }
}

#[test]
fn an_offloading_device_gets_the_sum_of_the_pseudo_header() {
    let path = Path::new(OURS, PEER, 9000, TxOffloads::all());
    let mut frame = unwritten(&[1, 2, 3]);
    path.write(&mut frame, 23, 9, Ecn::Capable0);
    let tx = path.finish_tcp(&mut frame, 20);
    check_headers(&frame, 9);
    let (from, to) = (IpAddress::Ipv4(OURS.addr), IpAddress::Ipv4(PEER.addr));
    let tcp = TcpPacket::new_checked(&frame[HEADER_BYTES..]).expect("a segment");
    assert!(tcp.verify_partial_checksum(&from, &to));
    assert_eq!(tx.offloads, TxOffloads::TCP_CHECKSUM);
}

#[test]
fn a_frame_that_a_device_finishes_passes_the_far_ends_checks() {
    use ironwarp_port::Frame;
    let mut bench = Bench::with(MemoryConfig::default().offloading(), |_| ());
    let path = bench.net.path_through(PEER.addr.into(), PEER.mac);
    let mut frame = bench.wire.alloc().expect("a frame");
    let bytes = unwritten(b"payload");
    frame.resize(bytes.len());
    frame.bytes_mut().copy_from_slice(&bytes);
    path.write(frame.bytes_mut(), bytes.len() - 34, 1, Ecn::NotCapable);
    let tx = path.finish_tcp(frame.bytes_mut(), 20);
    assert!(bench.wire.push(frame.seal(tx)));
    let sent = bench.sent();
    let tcp = TcpPacket::new_checked(&sent[0][34..]).expect("a segment");
    assert!(tcp.verify_checksum(&IpAddress::Ipv4(OURS.addr), &IpAddress::Ipv4(PEER.addr)));
}

#[test]
fn a_path_says_where_it_leads() {
    let path = Path::new(OURS, PEER, 1500, TxOffloads::empty());
    assert_eq!((path.remote_mac(), path.remote_addr()), (PEER.mac, IpAddr::V4(PEER.addr)));
    assert_eq!((path.mtu_bytes(), path.header_bytes()), (1500, 34));
}

#[test]
fn a_frame_too_short_for_the_headers_is_left_alone() {
    let path = Path::new(OURS, PEER, 1500, TxOffloads::empty());
    let mut frame = [7u8; 20];
    path.write(&mut frame, 0, 1, Ecn::NotCapable);
    path.finish_tcp(&mut frame, 20);
    assert_eq!(frame, [7; 20]);
}

/// RFC 3168 s5: the two low bits of the former type of service, and the header checksum counts them.
#[test]
fn the_congestion_bits_are_written_and_counted() {
    for ecn in [Ecn::NotCapable, Ecn::Capable1, Ecn::Capable0, Ecn::Experienced] {
        let mut frame = [0u8; HEADER_BYTES];
        Path::new(OURS, PEER, 1_500, TxOffloads::empty()).write(&mut frame, 0, 1, ecn);
        let packet = Ipv4Packet::new_unchecked(&frame[ETHERNET_BYTES..]);
        assert_eq!(Ecn::from_bits(packet.ecn()), ecn);
        assert!(packet.verify_checksum());
    }
}
