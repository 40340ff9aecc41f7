//! Packets of SCTP that are encapsulated in UDP: RFC 6951 s5.4 and s5.5, RFC 768.

use core::net::IpAddr;

use ironwarp_port::memory::MemoryConfig;
use ironwarp_port::{RxMeta, TxOffloads};
use ironwarp_stats::Counter;
use ironwarp_types::Flow;

use super::{assert_dropped_by, overwrite};
use crate::link::Link;
use crate::testing::{Bench, OURS, PEER, dual, icmp_error_frame, icmpv6, icmpv6_frame, v6};
use crate::{IcmpErrorKind, IpHeaderDefaults, Path, Received, Station, TransportProtocol};

const PORT: u16 = 9_899;
const IP_AT: usize = 14;
const UDP_AT: usize = 34;

fn bench() -> Bench {
    Bench::with(MemoryConfig::default(), |config| {
        dual(config);
        (config.transport, config.udp_port) = (TransportProtocol::SCTP, PORT);
    })
}

/// A frame of a peer with an SCTP packet from port 5 to port 6 in UDP, from port 9900.
fn frame(local: IpAddr, remote: IpAddr) -> Vec<u8> {
    let link = Link { mac: PEER.mac, vlan: None };
    let to = Station { mac: OURS.mac, addr: local };
    let defaults = (TransportProtocol::SCTP, IpHeaderDefaults::default());
    let mut path = Path::new(&link, defaults, remote, to, 1_500, TxOffloads::empty());
    path.set_transport(TransportProtocol::SCTP, PORT);
    let mut frame = vec![0; path.transport_offset()];
    frame.extend([0, 5, 0, 6, 1, 2, 3, 4, 5, 6, 7, 8, 9]);
    path.write_ip(&mut frame, 1, 9_900);
    frame
}

fn frame_v4() -> Vec<u8> {
    frame(OURS.addr, PEER.addr)
}

#[test]
fn the_packet_in_a_datagram_is_returned_with_the_port_of_its_sender() {
    for (local, remote) in [(OURS.addr, PEER.addr), (v6(1).into(), v6(2).into())] {
        let mut bench = bench();
        // Padding of the link behind the datagram.
        let padded = [frame(local, remote), vec![0; 5]].concat();
        let packet = bench.receive(&padded).expect("a packet");
        assert_eq!((packet.udp_port, packet.l4()), (9_900, &[0, 5, 0, 6, 1, 2, 3, 4, 5, 6, 7, 8, 9][..]));
        assert_eq!((packet.flow.local.port(), packet.flow.remote.port()), (6, 5));
        assert_eq!((packet.flow.local.ip(), packet.flow.remote.ip()), (local, remote));
        assert_eq!(packet.hash, bench.net.hasher().hash(&packet.flow));
    }
}

#[test]
fn beside_tcp_the_packet_in_a_datagram_is_of_the_other_transport() {
    let mut bench = Bench::with(MemoryConfig::default(), |config| {
        (config.other_transport, config.udp_port) = (Some(TransportProtocol::SCTP), PORT);
    });
    let packet = bench.receive(&frame_v4()).expect("a packet");
    assert_eq!((packet.protocol, packet.udp_port), (132, 9_900));
    let to = Station { mac: PEER.mac, addr: PEER.addr };
    let mut path = bench.net.path_over(OURS.addr, to.addr, to.mac);
    for port in [0, 9_900] {
        path.set_transport(TransportProtocol::SCTP, port);
        let mut sent = vec![0; path.transport_offset()];
        sent.extend([0, 6, 0, 5, 1, 2, 3, 4]);
        path.write_ip(&mut sent, 1, PORT);
        let error = icmp_error_frame(3, 3, 0, &sent[IP_AT..]);
        let received = bench.receive_any(&error, RxMeta::default());
        assert!(matches!(received, Some(Received::IcmpError(error)) if error.protocol == 132), "{port}");
    }
}

#[test]
fn another_port_another_length_and_a_wrong_checksum_are_dropped() {
    let changed = |at: usize, bytes: &[u8]| overwrite(frame_v4(), UDP_AT + at, bytes);
    assert_dropped_by(bench(), &changed(2, &[0x26, 0xac]), Counter::NetDropIpProtocol);
    for udp_bytes in [0u16, 7, 19, 22, u16::MAX] {
        let frame = overwrite(changed(6, &[0, 0]), UDP_AT + 4, &udp_bytes.to_be_bytes());
        assert_dropped_by(bench(), &frame, Counter::NetDropL4Header);
    }
    assert_dropped_by(bench(), &changed(0, &[0, 0]), Counter::NetDropL4Header);
    assert_dropped_by(bench(), &changed(20, &[0xff]), Counter::NetDropL4Checksum);
    let mut none = bench();
    none.net.udp_port = 0;
    assert_dropped_by(none, &frame_v4(), Counter::NetDropIpProtocol);
}

/// RFC 768: a checksum of zero is none. RFC 8200 s8.1: not with IPv6.
#[test]
fn ipv4_alone_may_leave_the_checksum_out() {
    let frame_v6 = overwrite(frame(v6(1).into(), v6(2).into()), 54 + 6, &[0, 0]);
    assert_dropped_by(bench(), &frame_v6, Counter::NetDropL4Checksum);
    assert!(bench().receive(&overwrite(frame_v4(), UDP_AT + 6, &[0, 0])).is_some());
}

/// RFC6951-5.5-01, 5.5-03, 5.5-04, 5.5-05: an error names the association if it quotes enough of
/// the packet; port unreachable is what protocol unreachable is without UDP.
#[test]
fn an_error_about_an_encapsulated_packet_is_one_about_the_packet() {
    for (local, remote) in [(OURS.addr, PEER.addr), (v6(1).into(), v6(2).into())] {
        let link = Link { mac: OURS.mac, vlan: None };
        let (defaults, to) = (IpHeaderDefaults::default(), Station { mac: PEER.mac, addr: remote });
        let sctp = TransportProtocol::SCTP;
        let mut path = Path::new(&link, (sctp, defaults), local, to, 1_500, TxOffloads::empty());
        path.set_transport(sctp, 9_900);
        let mut sent = vec![0; path.transport_offset()];
        sent.extend([0, 6, 0, 5, 1, 2, 3, 4]);
        path.write_ip(&mut sent, 1, PORT);
        let error = |quoted: &[u8]| match local.is_ipv4() {
            true => icmp_error_frame(3, 3, 0, quoted),
            false => icmpv6_frame(OURS.mac, (v6(2), v6(1)), 64, &icmpv6(1, 4, 0, quoted)),
        };
        let received = bench().receive_any(&error(&sent[IP_AT..]), RxMeta::default());
        let Some(Received::IcmpError(found)) = received else { panic!("no error") };
        assert_eq!((found.kind, found.quoted), (IcmpErrorKind::Hard, 0x0102_0304));
        assert_eq!(found.flow, Flow { local: (local, 6).into(), remote: (remote, 5).into() });
        assert_eq!(found.hash, bench().net.hasher().hash(&found.flow));
        let short = &sent[IP_AT..sent.len() - 1];
        assert_dropped_by(bench(), &error(short), Counter::NetDropIcmpQuote);
        let foreign = overwrite(sent.clone(), path.header_bytes(), &[0, 9]);
        assert_dropped_by(bench(), &error(&foreign[IP_AT..]), Counter::NetDropIcmpQuote);
    }
}
