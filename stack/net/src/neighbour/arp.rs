//! Reads ARP frames, and writes requests, probes, announcements and replies.
//!
//! Source: RFC 826 (packet format and order of processing), RFC 5227 s1.1 (a sender address of zero
//! makes a request a probe, which is replied to and updates no entry). Packets with addresses that
//! no station can have are rejected here.

use core::net::Ipv4Addr;

use ironwarp_port::Frame;
use ironwarp_types::MacAddr;
use smoltcp::wire::{ArpOperation, ArpPacket, ArpRepr, EthernetAddress};

use crate::link::{Link, TYPE_ARP};

/// The length of an ARP packet for Ethernet and IPv4.
const ARP_BYTES: usize = 28;

/// A received ARP packet with valid addresses.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct ReceivedArp {
    pub(crate) is_request: bool,
    pub(crate) sender_mac: MacAddr,
    /// Zero in a probe.
    pub(crate) sender: Ipv4Addr,
    pub(crate) target: Ipv4Addr,
}

impl ReceivedArp {
    /// Parses an ARP packet. Returns `None` if it is malformed or for another kind of network.
    pub(crate) fn parse(packet: &[u8]) -> Option<ReceivedArp> {
        let packet = ArpPacket::new_checked(packet).ok()?;
        let ArpRepr::EthernetIpv4 {
            operation,
            source_hardware_addr: mac,
            source_protocol_addr: sender,
            target_protocol_addr: target,
            ..
        } = ArpRepr::parse(&packet).ok()?
        else {
            return None;
        };
        let is_request = match operation {
            ArpOperation::Request => true,
            ArpOperation::Reply => false,
            ArpOperation::Unknown(_) => return None,
        };
        let valid = mac.is_unicast() && mac.0 != [0; 6] && !sender.is_multicast() && !sender.is_broadcast();
        valid.then_some(ReceivedArp { is_request, sender_mac: MacAddr(mac.0), sender, target })
    }

    /// Returns whether the packet is a probe: a request without a sender address (RFC 5227 s2.1.1).
    pub(crate) fn is_probe(&self) -> bool {
        self.is_request && self.sender.is_unspecified()
    }

    /// Turns the frame of this request into its reply (RFC 826). Returns `false` if the frame is
    /// too short.
    pub(crate) fn write_reply<F: Frame>(&self, frame: &mut F, link: &Link) -> bool {
        write(frame, link, self.sender_mac, ArpOperation::Reply, self.target, (self.sender_mac, self.sender))
    }
}

/// Writes a request for `target`: by unicast to `mac` if it is known, otherwise by broadcast. The
/// sender address is 0 in a probe and equal to `target` in an announcement. Returns `false` if the
/// frame is too short.
pub(crate) fn write_request<F: Frame>(
    frame: &mut F,
    link: &Link,
    sender: Ipv4Addr,
    target: Ipv4Addr,
    mac: Option<MacAddr>,
) -> bool {
    let to = mac.unwrap_or(MacAddr::BROADCAST);
    write(frame, link, to, ArpOperation::Request, sender, (MacAddr::default(), target))
}

fn write<F: Frame>(
    frame: &mut F,
    link: &Link,
    to: MacAddr,
    operation: ArpOperation,
    sender: Ipv4Addr,
    (target_mac, target): (MacAddr, Ipv4Addr),
) -> bool {
    frame.resize(link.header_bytes() + ARP_BYTES);
    let Some(packet) = link.write(frame.bytes_mut(), to, TYPE_ARP) else { return false };
    let repr = ArpRepr::EthernetIpv4 {
        operation,
        source_hardware_addr: EthernetAddress(link.mac.0),
        source_protocol_addr: sender,
        target_hardware_addr: EthernetAddress(target_mac.0),
        target_protocol_addr: target,
    };
    if packet.len() < repr.buffer_len() {
        return false;
    }
    repr.emit(&mut ArpPacket::new_unchecked(packet));
    true
}
