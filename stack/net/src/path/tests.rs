//! Compares the written headers, field by field, with what smoltcp parses.

use ironwarp_port::memory::MemoryConfig;
use ironwarp_port::{Frame, TxMeta};
use ironwarp_types::{Ecn, Seq};
use proptest::prelude::*;
use smoltcp::wire::{
    EthernetFrame, EthernetProtocol, IpAddress, IpProtocol, Ipv4Packet, Ipv6Packet, TcpPacket, UdpPacket,
};

use super::*;
use crate::tcp_header::{TcpFlags, Timestamps, TxHeader};
use crate::testing::{Bench, OURS, PEER, dual, mac, v4, v6};
use crate::{VlanTag, checksum};

const OURS_6: Station = Station { mac: OURS.mac, addr: IpAddr::V6(v6(1)) };
const PEER_6: Station = Station { mac: PEER.mac, addr: IpAddr::V6(v6(2)) };

const TAG: VlanTag = VlanTag { id: 42, priority: 1 };

fn path(local: Station, remote: Station, vlan: Option<VlanTag>, offloads: TxOffloads) -> Path {
    let link = Link { mac: local.mac, vlan };
    Path::new(
        &link,
        (TransportProtocol::TCP, IpHeaderDefaults::default()),
        local.addr,
        remote,
        9000,
        offloads,
    )
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

#[test]
fn another_transport_has_its_number_and_no_checksum_of_the_device() {
    let link = Link { mac: OURS.mac, vlan: None };
    for (local, remote, at) in [(OURS, PEER, 23), (OURS_6, PEER_6, 20)] {
        let defaults = (TransportProtocol::SCTP, IpHeaderDefaults::default());
        let path = Path::new(&link, defaults, local.addr, remote, 9000, TxOffloads::all());
        assert_eq!((path.header[at], path.offloads()), (132, TxOffloads::empty()));
    }
}

/// RFC 791 s3.1, RFC 8200 s3: the headers in front of a packet of any transport.
#[test]
fn the_headers_of_another_transport_fit_its_packet() {
    for (path, l2_bytes) in paths(TxOffloads::empty()) {
        let mut frame = vec![0xaa; path.header_bytes() + 33];
        let tx = path.write_ip(&mut frame, 7, 0);
        check_headers(&frame, &path, l2_bytes, 7);
        assert_eq!((usize::from(tx.l2_bytes), usize::from(tx.l3_bytes)), (l2_bytes, path.ip_bytes()));
        assert_eq!((tx.offloads, &frame[path.header_bytes()..]), (TxOffloads::empty(), &[0xaa; 33][..]));
        assert_eq!(path.frame_bytes_max(), l2_bytes + 9000);
    }
}

/// RFC 6951 s5.3, RFC6951-5.3-01..05: ports, length and checksum of UDP, which smoltcp verifies.
/// Off again, the headers are those of before.
#[test]
fn a_packet_is_encapsulated_in_udp() {
    for (plain, l2_bytes) in paths(TxOffloads::empty()) {
        let mut path = plain.clone();
        path.set_transport(TransportProtocol::SCTP, 9_900);
        assert_eq!((path.udp_port(), path.transport_offset()), (9_900, plain.header_bytes() + 8));
        assert_eq!(path.overhead_bytes(), plain.ip_bytes() + 8);
        for payload_bytes in [12, 33, 1_000] {
            let mut frame = vec![0xaa; path.transport_offset() + payload_bytes];
            path.write_ip(&mut frame, 7, 9_899);
            let (packet, udp) = (&frame[l2_bytes..], &frame[path.header_bytes()..]);
            let udp = UdpPacket::new_checked(udp).expect("a datagram");
            let (source, dst) = match plain.local_addr().is_ipv4() {
                true => {
                    let ip = Ipv4Packet::new_checked(packet).expect("a packet");
                    assert!(ip.verify_checksum() && ip.next_header() == IpProtocol::Udp);
                    (IpAddress::from(ip.src_addr()), IpAddress::from(ip.dst_addr()))
                }
                false => {
                    let ip = Ipv6Packet::new_checked(packet).expect("a packet");
                    assert_eq!(ip.next_header(), IpProtocol::Udp);
                    (IpAddress::from(ip.src_addr()), IpAddress::from(ip.dst_addr()))
                }
            };
            assert!(udp.verify_checksum(&source, &dst) && udp.checksum() != 0);
            assert_eq!((udp.src_port(), udp.dst_port()), (9_899, 9_900));
            assert_eq!(udp.payload(), &vec![0xaa; payload_bytes][..]);
        }
        path.set_transport(TransportProtocol::TCP, 0);
        let headers = |path: &Path| {
            let mut frame = vec![0xaa; path.header_bytes() + 20];
            path.write_ip(&mut frame, 7, 0);
            frame
        };
        assert_eq!((path.udp_port(), headers(&path)), (0, headers(&plain)));
    }
}

/// A bare ACK with the identification 1.
fn bare(ecn: Ecn) -> TxHeader {
    TxHeader { ecn, ..TxHeader::bare(Seq(1), Seq(2), TcpFlags::ACK) }
}

/// Writes the headers of a segment in front of `rest` to a frame of unspecified contents.
fn written(path: &Path, segment: TxSegment<'_>, rest: &[u8]) -> (Vec<u8>, TxMeta) {
    let mut frame = vec![0xaa; path.header_bytes() + segment.header.header_bytes()];
    frame.extend_from_slice(rest);
    let tx = path.write(&mut frame, segment, 0, None);
    (frame, tx)
}

fn segment(header: &TxHeader) -> TxSegment<'_> {
    TxSegment { ports: [50_000, 4_420], ident: 1, header }
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
        (ports, header, ident) in any_segment(),
        more_options in prop::collection::vec(any::<u8>(), 0..3).prop_map(|words| words.repeat(4)),
        payload in prop::collection::vec(any::<u8>(), 0..3000),
        knows_sum in any::<bool>(),
    ) {
        for (path, l2_bytes) in paths(TxOffloads::empty()) {
            let rest = [&more_options[..], &payload].concat();
            let mut frame = [vec![0xaa; path.header_bytes() + header.header_bytes()], rest.clone()].concat();
            let sum = knows_sum.then(|| checksum::sum(&rest));
            let tx = path.write(&mut frame, TxSegment { ports, ident, header: &header }, more_options.len(), sum);
            check_headers(&frame, &path, l2_bytes, ident);
            let l4 = &frame[path.header_bytes()..];
            let l4_bytes = header.header_bytes() + more_options.len();
            prop_assert_eq!(zero_checksum(&l4[..header.header_bytes()]), tcp_header(ports, &header, l4_bytes));
            prop_assert_eq!(&l4[header.header_bytes()..], rest);
            let (from, to) = addresses(&path);
            prop_assert!(TcpPacket::new_unchecked(l4).verify_checksum(&from, &to));
            let (l3_bytes, l4_bytes) = (path.ip_bytes() as u8, l4_bytes as u8);
            let offloads = TxOffloads::empty();
            prop_assert_eq!(tx, TxMeta { l2_bytes: l2_bytes as u8, l3_bytes, l4_bytes, offloads });
        }
    }

    /// RFC 9293 s3.1: the headers of the fast path are the same, octet for octet.
    #[test]
    fn fast_headers_equal_those_of_the_general_path(
        (ports, header, ident) in any_segment(),
        payload in prop::collection::vec(any::<u8>(), 0..200),
    ) {
        let timestamps = header.timestamps.or(Some(Timestamps::default()));
        let segment = TxSegment { ports, ident, header: &TxHeader { timestamps, ..header } };
        for offloads in [TxOffloads::empty(), TxOffloads::all()] {
            let [(path, _), others @ ..] = paths(offloads);
            let (frame, meta) = written(&path, segment, &payload);
            prop_assert!(path.is_fast() && others.iter().all(|(path, _)| !path.is_fast()));
            let mut fast = [0xbb; FAST_HEADER_BYTES];
            let sum = (payload.len() as u16, checksum::sum(&payload));
            let fast_meta = match path.is_offloaded() {
                true => path.write_fast::<true>(&mut fast, segment, sum),
                false => path.write_fast::<false>(&mut fast, segment, sum),
            };
            prop_assert_eq!(fast_meta, meta);
            prop_assert_eq!(&fast[..], &frame[..FAST_HEADER_BYTES]);
        }
    }
}

#[test]
fn an_offloading_device_gets_the_sum_of_the_pseudo_header() {
    for (path, l2_bytes) in paths(TxOffloads::all()) {
        let header = bare(Ecn::Ect0);
        let (frame, tx) = written(&path, TxSegment { ident: 9, ..segment(&header) }, &[1, 2, 3]);
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
        let (bytes, tx) = written(&path, segment(&bare(Ecn::NotEct)), b"payload");
        frame.resize(bytes.len());
        frame.bytes_mut().copy_from_slice(&bytes);
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
        let mut frame = vec![7; path.header_bytes() + 31];
        let timestamps = Some(Timestamps::default());
        path.write(&mut frame, segment(&TxHeader { timestamps, ..bare(Ecn::NotEct) }), 0, None);
        path.write(&mut frame[..path.header_bytes() + 19], segment(&bare(Ecn::NotEct)), 0, None);
        assert!(frame.iter().all(|&byte| byte == 7));
    }
}

/// RFC 3168 s5: the two low bits of the type of service, which the header checksum includes, or of
/// the traffic class.
#[test]
fn the_ecn_bits_are_written_and_in_the_checksum() {
    for ecn in [Ecn::NotEct, Ecn::Ect1, Ecn::Ect0, Ecn::Ce] {
        let (frame, _) = written(&path(OURS, PEER, None, TxOffloads::empty()), segment(&bare(ecn)), &[]);
        let packet = Ipv4Packet::new_unchecked(&frame[ETHERNET_BYTES..]);
        assert_eq!(Ecn::from_bits(packet.ecn()), ecn);
        assert!(packet.verify_checksum());
        let (frame, _) = written(&path(OURS_6, PEER_6, None, TxOffloads::empty()), segment(&bare(ecn)), &[]);
        assert_eq!(Ecn::from_bits(Ipv6Packet::new_unchecked(&frame[14..]).traffic_class()), ecn);
    }
}

/// RFC 9293 s3.9.2 (MUST-48, MUST-49): time to live and DSCP are configured, and the header
/// checksum includes them. RFC 9293 (SHLD-22); RFC 4821 s7.2; RFC 1122 s3.2.1.7.
#[test]
fn hop_limit_and_dscp_are_those_of_the_configuration() {
    let defaults = IpHeaderDefaults { hop_limit: 7, dscp: 46 };
    let path = |ours: Station, theirs: Station| {
        let link = Link { mac: ours.mac, vlan: None };
        Path::new(&link, (TransportProtocol::TCP, defaults), ours.addr, theirs, 1_500, TxOffloads::empty())
    };
    let header = bare(Ecn::Ect0);
    let (frame, _) = written(&path(OURS, PEER), segment(&header), &[]);
    let packet = Ipv4Packet::new_unchecked(&frame[ETHERNET_BYTES..]);
    assert_eq!((packet.hop_limit(), packet.dscp(), packet.ecn()), (7, 46, Ecn::Ect0.bits()));
    assert!(packet.verify_checksum());
    let (frame, _) = written(&path(OURS_6, PEER_6), segment(&header), &[]);
    let packet = Ipv6Packet::new_unchecked(&frame[14..]);
    assert_eq!((packet.hop_limit(), packet.traffic_class()), (7, 46 << 2 | Ecn::Ect0.bits()));
}

/// A TCP header of `bytes`, octet by octet, with a checksum of zero.
fn tcp_header([local, remote]: [u16; 2], header: &TxHeader, bytes: usize) -> Vec<u8> {
    let mut octets = [local.to_be_bytes(), remote.to_be_bytes()].concat();
    octets.extend([header.seq.0.to_be_bytes(), header.ack.0.to_be_bytes()].concat());
    octets.extend([(bytes / 4) as u8 * 16, header.flags.bits()]);
    octets.extend(header.window.to_be_bytes());
    octets.extend([0; 4]);
    if let Some(Timestamps { tsval, tsecr }) = header.timestamps {
        octets.extend([1, 1, 8, 10]);
        octets.extend([tsval.to_be_bytes(), tsecr.to_be_bytes()].concat());
    }
    octets
}

fn zero_checksum(header: &[u8]) -> Vec<u8> {
    let mut header = header.to_vec();
    header[16..18].fill(0);
    header
}

/// Ports, header and identification.
fn any_segment() -> impl Strategy<Value = ([u16; 2], TxHeader, u16)> {
    let numbers = (any::<[u16; 2]>(), any::<[u32; 2]>(), any::<u8>(), any::<u16>());
    let extreme = prop_oneof![4 => any::<u32>(), 1 => Just(u32::MAX), 1 => Just(0)];
    let stamps = proptest::option::of((extreme.clone(), extreme));
    (numbers, stamps, any::<u16>(), 0..4u8).prop_map(
        |((ports, [seq, ack], flags, window), stamps, ident, ecn)| {
            let timestamps = stamps.map(|(tsval, tsecr)| Timestamps { tsval, tsecr });
            let flags = TcpFlags::from_bits_retain(flags);
            (
                ports,
                TxHeader {
                    seq: Seq(seq),
                    ack: Seq(ack),
                    window,
                    flags,
                    timestamps,
                    ecn: Ecn::from_bits(ecn),
                },
                ident,
            )
        },
    )
}
