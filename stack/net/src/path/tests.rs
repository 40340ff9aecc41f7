//! Compares the written headers, field by field, with what smoltcp parses.

use ironwarp_port::Frame;
use ironwarp_port::memory::MemoryConfig;
use proptest::prelude::*;
use smoltcp::wire::{EthernetFrame, EthernetProtocol, IpAddress, Ipv4Packet, Ipv6Packet, TcpPacket};

use super::*;
use crate::VlanTag;
use crate::testing::{Bench, OURS, PEER, dual, mac, v4, v6};

const HEADER_BYTES: usize = 34;

const OURS_6: Station = Station { mac: OURS.mac, addr: IpAddr::V6(v6(1)) };
const PEER_6: Station = Station { mac: PEER.mac, addr: IpAddr::V6(v6(2)) };

const TAG: VlanTag = VlanTag { id: 42, priority: 1 };

fn path(local: Station, remote: Station, vlan: Option<VlanTag>, offloads: TxOffloads) -> Path {
    let link = Link { mac: local.mac, vlan };
    Path::new(&link, IpHeaderDefaults::default(), local.addr, remote, 9000, offloads)
}

/// All kinds of paths, each with the length of its link header.
fn paths(offloads: TxOffloads) -> [(Path, usize); 4] {
    [
        (path(OURS, PEER, None, offloads), 14),
        (path(OURS, PEER, Some(TAG), offloads), 18),
        (path(OURS_6, PEER_6, None, offloads), 14),
        (path(OURS_6, PEER_6, Some(TAG), offloads), 18),
    ]
}

/// A frame with `room` unwritten bytes, a TCP header of 20 bytes without a checksum, and `payload`.
fn unwritten(room: usize, payload: &[u8]) -> Vec<u8> {
    let mut frame = vec![0xaa; room];
    let header = [0xc3, 0x50, 0x11, 0x44, 0, 0, 0, 1, 0, 0, 0, 2, 0x50, 0x10, 0x10, 0, 0xde, 0xad, 0, 0];
    frame.extend_from_slice(&header);
    frame.extend_from_slice(payload);
    frame
}

fn addresses(path: &Path) -> (IpAddress, IpAddress) {
    (path.local_addr().into(), path.remote_addr().into())
}

/// Checks the link header and returns its EtherType.
fn check_link(frame: &[u8], l2_bytes: usize) -> EthernetProtocol {
    let link = EthernetFrame::new_checked(frame).expect("a frame");
    assert_eq!((link.src_addr().0, link.dst_addr().0), (OURS.mac.0, PEER.mac.0));
    if l2_bytes == 14 {
        return link.ethertype();
    }
    assert_eq!(frame[12..16], [0x81, 0x00, 0x20, 42]);
    u16::from_be_bytes([frame[16], frame[17]]).into()
}

fn check_headers(frame: &[u8], path: &Path, l2_bytes: usize, ident: u16) {
    let ethertype = check_link(frame, l2_bytes);
    let packet = &frame[l2_bytes..];
    if path.ip_bytes() == 20 {
        let ip = Ipv4Packet::new_checked(packet).expect("a packet");
        assert!(ip.verify_checksum() && ip.dont_frag());
        assert_eq!((ip.src_addr(), ip.dst_addr(), ip.hop_limit()), (v4(1), v4(2), 64));
        assert_eq!(
            (ip.ident(), usize::from(ip.total_len()), ethertype),
            (ident, packet.len(), EthernetProtocol::Ipv4)
        );
    } else {
        let ip = Ipv6Packet::new_checked(packet).expect("a packet");
        assert_eq!((ip.version(), ip.flow_label(), ip.hop_limit()), (6, 0, 64));
        assert_eq!((ip.src_addr(), ip.dst_addr()), (v6(1), v6(2)));
        assert_eq!((usize::from(ip.payload_len()), ethertype), (packet.len() - 40, EthernetProtocol::Ipv6));
    }
}

proptest! {
    /// RFC 5044 sA.5.1; RFC 4821 s3; RFC 1122 s2.3.1 and s2.3.3.
    #[test]
    fn a_frame_without_offloads_is_correct_in_every_field(
        payload in prop::collection::vec(any::<u8>(), 0..3000),
        ident: u16,
    ) {
        for (path, l2_bytes) in paths(TxOffloads::empty()) {
            let mut frame = unwritten(path.header_bytes(), &payload);
            let l4_bytes = frame.len() - path.header_bytes();
            path.write(&mut frame, l4_bytes, ident, Ecn::NotEct);
            let tx = path.finish_tcp(&mut frame, 20);
            check_headers(&frame, &path, l2_bytes, ident);
            let tcp = TcpPacket::new_checked(&frame[path.header_bytes()..]).expect("a segment");
            let (from, to) = addresses(&path);
            prop_assert!(tcp.verify_checksum(&from, &to));
            let l3_bytes = path.ip_bytes() as u8;
            prop_assert_eq!(tx, TxMeta { l2_bytes: l2_bytes as u8, l3_bytes, l4_bytes: 20, offloads: TxOffloads::empty() });
        }
    }
}

#[test]
fn an_offloading_device_gets_the_sum_of_the_pseudo_header() {
    for (path, l2_bytes) in paths(TxOffloads::all()) {
        let mut frame = unwritten(path.header_bytes(), &[1, 2, 3]);
        path.write(&mut frame, 23, 9, Ecn::Ect0);
        let tx = path.finish_tcp(&mut frame, 20);
        check_headers(&frame, &path, l2_bytes, 9);
        let (from, to) = addresses(&path);
        let tcp = TcpPacket::new_checked(&frame[path.header_bytes()..]).expect("a segment");
        assert!(tcp.verify_partial_checksum(&from, &to));
        let expected =
            if path.ip_bytes() == 20 { TxOffloads::TCP_CHECKSUM } else { TxOffloads::TCP_CHECKSUM_IPV6 };
        assert_eq!(tx.offloads, expected);
    }
}

/// A device may offload one family and not the other.
#[test]
fn an_offload_of_the_other_family_is_not_used() {
    assert_eq!(
        paths(TxOffloads::TCP_CHECKSUM).map(|(path, _)| path.offloads().is_empty()),
        [false, false, true, true]
    );
    assert_eq!(
        paths(TxOffloads::TCP_CHECKSUM_IPV6).map(|(path, _)| path.offloads().is_empty()),
        [true, true, false, false]
    );
}

#[test]
fn a_checksum_that_a_device_completes_is_correct() {
    for (ours, theirs) in [(OURS.addr, PEER.addr), (OURS_6.addr, PEER_6.addr)] {
        let mut bench = Bench::with(MemoryConfig::default().offloading(), dual);
        let path = bench.net.path_over(ours, theirs, PEER.mac);
        let mut frame = bench.wire.alloc().expect("a frame");
        let bytes = unwritten(path.header_bytes(), b"payload");
        frame.resize(bytes.len());
        frame.bytes_mut().copy_from_slice(&bytes);
        path.write(frame.bytes_mut(), bytes.len() - path.header_bytes(), 1, Ecn::NotEct);
        let tx = path.finish_tcp(frame.bytes_mut(), 20);
        assert!(bench.wire.push(frame.seal(tx)));
        let sent = bench.sent();
        let tcp = TcpPacket::new_checked(&sent[0][path.header_bytes()..]).expect("a segment");
        let (from, to) = addresses(&path);
        assert!(tcp.verify_checksum(&from, &to));
    }
}

#[test]
fn a_path_returns_its_addresses_and_its_link_address_can_change() {
    for (mut path, l2_bytes) in paths(TxOffloads::empty()) {
        let v6 = path.ip_bytes() == 40;
        let (ours, theirs) = if v6 { (OURS_6.addr, PEER_6.addr) } else { (OURS.addr, PEER.addr) };
        assert_eq!((path.remote_mac(), path.local_addr(), path.remote_addr()), (PEER.mac, ours, theirs));
        assert_eq!((path.mtu_bytes(), path.header_bytes()), (9000, l2_bytes + path.ip_bytes()));
        path.set_remote_mac(mac(9));
        assert_eq!((path.remote_mac(), path.remote_addr()), (mac(9), theirs));
    }
}

#[test]
fn a_frame_shorter_than_the_headers_is_not_changed() {
    for (path, _) in paths(TxOffloads::empty()) {
        let mut frame = [7u8; 33];
        path.write(&mut frame, 0, 1, Ecn::NotEct);
        path.finish_tcp(&mut frame, 20);
        assert_eq!(frame, [7; 33]);
    }
}

/// RFC 3168 s5: the two low bits of the type of service, which the header checksum includes, or of the traffic class.
#[test]
fn the_ecn_bits_are_written_and_in_the_checksum() {
    for ecn in [Ecn::NotEct, Ecn::Ect1, Ecn::Ect0, Ecn::Ce] {
        let mut frame = [0u8; HEADER_BYTES];
        path(OURS, PEER, None, TxOffloads::empty()).write(&mut frame, 0, 1, ecn);
        let packet = Ipv4Packet::new_unchecked(&frame[ETHERNET_BYTES..]);
        assert_eq!(Ecn::from_bits(packet.ecn()), ecn);
        assert!(packet.verify_checksum());
        let mut frame = [0u8; 54];
        path(OURS_6, PEER_6, None, TxOffloads::empty()).write(&mut frame, 0, 1, ecn);
        assert_eq!(Ecn::from_bits(Ipv6Packet::new_unchecked(&frame[14..]).traffic_class()), ecn);
    }
}

/// RFC 9293 s3.9.2 (MUST-48, MUST-49): time to live and DSCP are configured, and the header checksum includes them.
/// RFC 9293 (SHLD-22); RFC 4821 s7.2; RFC 1122 s3.2.1.7.
#[test]
fn hop_limit_and_dscp_are_those_of_the_configuration() {
    let defaults = IpHeaderDefaults { hop_limit: 7, dscp: 46 };
    let path = |ours: Station, theirs: Station| {
        let link = Link { mac: ours.mac, vlan: None };
        Path::new(&link, defaults, ours.addr, theirs, 1_500, TxOffloads::empty())
    };
    let mut frame = [0u8; HEADER_BYTES];
    path(OURS, PEER).write(&mut frame, 0, 1, Ecn::Ect0);
    let packet = Ipv4Packet::new_unchecked(&frame[ETHERNET_BYTES..]);
    assert_eq!((packet.hop_limit(), packet.dscp(), packet.ecn()), (7, 46, Ecn::Ect0.bits()));
    assert!(packet.verify_checksum());
    let mut frame = [0u8; 54];
    path(OURS_6, PEER_6).write(&mut frame, 0, 1, Ecn::Ect0);
    let packet = Ipv6Packet::new_unchecked(&frame[14..]);
    assert_eq!((packet.hop_limit(), packet.traffic_class()), (7, 46 << 2 | Ecn::Ect0.bits()));
}

/// A TCP header of a segment on the fast path, octet by octet, with a checksum of zero.
fn tcp_header(segment: &FastSegment) -> Vec<u8> {
    let [local, remote] = segment.ports;
    let words = if segment.timestamps.is_some() { 8 } else { 5 };
    let mut header = [local.to_be_bytes(), remote.to_be_bytes()].concat();
    header.extend([segment.seq.0.to_be_bytes(), segment.ack.0.to_be_bytes()].concat());
    header.extend([words << 4, segment.flags]);
    header.extend(segment.window.to_be_bytes());
    header.extend([0; 4]);
    if let Some([tsval, tsecr]) = segment.timestamps {
        header.extend([1, 1, 8, 10]);
        header.extend([tsval.to_be_bytes(), tsecr.to_be_bytes()].concat());
    }
    header
}

fn fast_segment() -> impl Strategy<Value = FastSegment> {
    let numbers = (any::<[u16; 2]>(), any::<[u32; 2]>(), any::<u8>(), any::<u16>());
    let extreme = prop_oneof![4 => any::<u32>(), 1 => Just(u32::MAX), 1 => Just(0)];
    let stamps = proptest::option::of([extreme.clone(), extreme]);
    (numbers, stamps, any::<u16>(), 0..4u8).prop_map(
        |((ports, [seq, ack], flags, window), timestamps, ident, ecn)| {
            let (seq, ack, ecn) = (ironwarp_types::Seq(seq), ironwarp_types::Seq(ack), Ecn::from_bits(ecn));
            FastSegment { ports, seq, ack, flags, window, timestamps, ident, ecn }
        },
    )
}

proptest! {
    /// RFC 9293 s3.1: the headers that are written in one pass are those of the general path, octet for octet.
    #[test]
    fn fast_headers_equal_those_of_the_general_path(
        segment in fast_segment(),
        payload in proptest::collection::vec(any::<u8>(), 0..200),
        offloaded in any::<bool>(),
        knows_sum in any::<bool>(),
    ) {
        let offloads = if offloaded { TxOffloads::TCP_CHECKSUM } else { TxOffloads::empty() };
        let path = path(OURS, PEER, None, offloads);
        let header = tcp_header(&segment);
        let mut general = [vec![0xaa; HEADER_BYTES], header.clone(), payload.clone()].concat();
        path.write(&mut general, header.len() + payload.len(), segment.ident, segment.ecn);
        let meta = path.finish_tcp(&mut general, header.len());
        let mut fast = [vec![0xbb; HEADER_BYTES + header.len()], payload.clone()].concat();
        let sum = knows_sum.then(|| checksum::sum(&payload));
        prop_assert_eq!(path.write_fast(&mut fast, &segment, sum), Some(meta));
        prop_assert_eq!(fast, general);
    }

    #[test]
    fn other_paths_and_short_frames_are_not_written(segment in fast_segment(), bytes in 0..54usize) {
        let [(fast, _), others @ ..] = paths(TxOffloads::empty());
        let mut frame = vec![0xaa; 200];
        for (path, _) in others {
            prop_assert_eq!(path.write_fast(&mut frame, &segment, None), None);
        }
        prop_assert_eq!(fast.write_fast(&mut frame[..bytes], &segment, None), None);
        prop_assert!(frame.iter().all(|&byte| byte == 0xaa));
    }
}
