//! Hostile packets that belong to no connection, one for each number.

use std::net::Ipv4Addr;

use smoltcp::phy::ChecksumCapabilities;
use smoltcp::wire::{
    ArpOperation, ArpPacket, ArpRepr, EthernetAddress, EthernetFrame, EthernetProtocol, Icmpv4DstUnreachable,
    Icmpv4Packet, Icmpv4Repr, IpProtocol, Ipv4Repr,
};

use super::Adversary;
use super::acceptor::PORT;
use super::segment::{Way, plain, syn};
use crate::tcp::link_address;

/// Packet `number` of a kind that needs no stream; `None` for the other kinds. `ports` are those of the adversary's
/// connection, if it has one.
pub fn of_kind(kind: Adversary, way: Way, ports: [u16; 2], number: u32) -> Option<Vec<u8>> {
    Some(match kind {
        Adversary::Garbage => garbage(way, PORT, number),
        Adversary::ArpRequests => arp_request(way, number),
        Adversary::ArpFlaps => arp_flap(way, number),
        Adversary::Solicitations => solicitation(way, number),
        Adversary::Echoes => echo(way, number),
        Adversary::IcmpErrors => icmp_error(way, ports, number),
        Adversary::Unknown => unknown(way, PORT, number),
        Adversary::Syns => forged_syn(way, PORT, number),
        _ => return None,
    })
}

/// A neighbour of the victim that does not exist.
fn forged(number: u32) -> Ipv4Addr {
    Ipv4Addr::new(10, 0, 0, 100 + (number % 150) as u8)
}

/// An ARP request for the victim's address, each from another neighbour.
pub fn arp_request(way: Way, number: u32) -> Vec<u8> {
    arp(way, ArpOperation::Request, forged(number), EthernetAddress(link_address(way.from).0))
}

/// A request by which the sender's address seems to have moved: each gives another link address.
pub fn arp_flap(way: Way, number: u32) -> Vec<u8> {
    let moved = EthernetAddress([2, 9, 9, 9, (number >> 8) as u8, number as u8]);
    arp(way, ArpOperation::Request, Way::address(way.from), moved)
}

/// The reply to an ARP request for the sender's address; `None` for any other frame.
pub fn arp_answer(way: Way, frame: &[u8]) -> Option<Vec<u8>> {
    let frame = EthernetFrame::new_checked(frame).ok()?;
    let packet = ArpPacket::new_checked(frame.payload()).ok()?;
    let is_request =
        frame.ethertype() == EthernetProtocol::Arp && packet.operation() == ArpOperation::Request;
    let is_ours = is_request && packet.target_protocol_addr() == Way::address(way.from).octets();
    let link = EthernetAddress(link_address(way.from).0);
    is_ours.then(|| arp(way, ArpOperation::Reply, Way::address(way.from), link))
}

fn arp(way: Way, operation: ArpOperation, source: Ipv4Addr, link: EthernetAddress) -> Vec<u8> {
    let repr = ArpRepr::EthernetIpv4 {
        operation,
        source_hardware_addr: link,
        source_protocol_addr: source,
        target_hardware_addr: EthernetAddress(link_address(way.to).0),
        target_protocol_addr: Way::address(way.to),
    };
    let mut bytes = vec![0; repr.buffer_len()];
    repr.emit(&mut ArpPacket::new_unchecked(&mut bytes));
    way.frame(EthernetProtocol::Arp, &bytes)
}

/// A neighbour solicitation for the victim's IPv6 address, each from another neighbour (RFC 4861 s4.3).
pub fn solicitation(way: Way, number: u32) -> Vec<u8> {
    let mut source = [0xfd, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    source[12..].copy_from_slice(&(0x1000 + number).to_be_bytes());
    let mut target = [0xfd, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    target[15] = way.to;
    let link = link_address(way.from).0;
    let mut icmp = [&[135, 0, 0, 0, 0, 0, 0, 0][..], &target, &[1, 1], &link].concat();
    let length = (icmp.len() as u32).to_be_bytes();
    let sum = internet_sum(&[&source[..], &target, &length, &[0, 0, 0, 58], &icmp].concat());
    icmp[2..4].copy_from_slice(&sum.to_be_bytes());
    let head = [&[0x60, 0, 0, 0][..], &(icmp.len() as u16).to_be_bytes(), &[58, 255]].concat();
    way.frame(EthernetProtocol::Ipv6, &[&head[..], &source, &target, &icmp].concat())
}

/// RFC 1071.
fn internet_sum(bytes: &[u8]) -> u16 {
    let words =
        bytes.chunks(2).map(|two| u32::from(two[0]) << 8 | u32::from(two.get(1).copied().unwrap_or(0)));
    let mut sum: u32 = words.sum();
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !(sum as u16)
}

/// An echo request.
pub fn echo(way: Way, number: u32) -> Vec<u8> {
    icmp(way, &Icmpv4Repr::EchoRequest { ident: 7, seq_no: number as u16, data: &[0x55; 56] })
}

/// An error about a segment that the victim never sent (RFC 5927).
pub fn icmp_error(way: Way, ports: [u16; 2], number: u32) -> Vec<u8> {
    let quoted = plain([ports[1], ports[0]], number.wrapping_mul(0x9e37_79b9), None);
    let mut data = vec![0; quoted.buffer_len()];
    let (from, to) = (Way::address(way.to), Way::address(way.from));
    quoted.emit(
        &mut smoltcp::wire::TcpPacket::new_unchecked(&mut data),
        &from.into(),
        &to.into(),
        &ChecksumCapabilities::default(),
    );
    let header = Ipv4Repr {
        src_addr: from,
        dst_addr: to,
        next_header: IpProtocol::Tcp,
        payload_len: data.len(),
        hop_limit: 60,
    };
    icmp(
        way,
        &Icmpv4Repr::DstUnreachable { reason: Icmpv4DstUnreachable::HostUnreachable, header, data: &data },
    )
}

fn icmp(way: Way, repr: &Icmpv4Repr<'_>) -> Vec<u8> {
    let mut bytes = vec![0; repr.buffer_len()];
    repr.emit(&mut Icmpv4Packet::new_unchecked(&mut bytes), &ChecksumCapabilities::default());
    way.packet(Way::address(way.from), IpProtocol::Icmp, &bytes)
}

/// A SYN to a port, from an address and a port that no other one has.
pub fn forged_syn(way: Way, to_port: u16, number: u32) -> Vec<u8> {
    let ports = [1_024 + (number % 60_000) as u16, to_port];
    way.segment_from(forged(number), &syn(ports, number.wrapping_mul(0x9e37_79b9)))
}

/// A segment of a connection that does not exist.
pub fn unknown(way: Way, to_port: u16, number: u32) -> Vec<u8> {
    way.segment_from(
        forged(number),
        &plain([1_024 + (number % 60_000) as u16, to_port], number, Some(number)),
    )
}

/// A frame whose segment has a wrong checksum.
pub fn garbage(way: Way, to_port: u16, number: u32) -> Vec<u8> {
    let mut frame = unknown(way, to_port, number);
    if let Some(last) = frame.last_mut() {
        *last ^= 0xff;
    }
    frame
}
