//! ARP frames: reading them, and writing requests, probes and replies.
//!
//! Source: RFC 826 (packet and order of processing), RFC 5227 s1.1 (a sender address of zero is a probe: it is
//! answered, and teaches nothing). What cannot be an address is refused before it reaches the table.

use core::net::Ipv4Addr;

use ironwarp_port::Frame;
use ironwarp_types::MacAddr;
use smoltcp::wire::{ArpOperation, ArpPacket, ArpRepr, EthernetAddress};

use crate::link::{Link, TYPE_ARP};

/// An ARP packet for Ethernet and IPv4.
const ARP_BYTES: usize = 28;

/// A received ARP packet whose addresses can be addresses.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct ArpIn {
    pub(crate) is_request: bool,
    /// Who sent it.
    pub(crate) mac: MacAddr,
    /// Zero in a probe.
    pub(crate) sender: Ipv4Addr,
    /// Whose link address is asked for or told to.
    pub(crate) target: Ipv4Addr,
}

impl ArpIn {
    /// Reads an ARP packet; `None` when it is malformed or for other kinds of network.
    pub(crate) fn parse(packet: &[u8]) -> Option<ArpIn> {
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
        let possible =
            mac.is_unicast() && mac.0 != [0; 6] && !sender.is_multicast() && !sender.is_broadcast();
        possible.then_some(ArpIn { is_request, mac: MacAddr(mac.0), sender, target })
    }

    /// RFC 5227 s2.1.1: a request without a sender address probes the target address.
    pub(crate) fn is_probe(&self) -> bool {
        self.is_request && self.sender.is_unspecified()
    }

    /// Turns the frame of a request into its reply. RFC 826: swap the fields, and put ours into the sender's place.
    pub(crate) fn reply<F: Frame>(&self, frame: &mut F, link: &Link) -> bool {
        let theirs = (self.mac, self.sender);
        emit(frame, link, self.mac, ArpOperation::Reply, self.target, theirs)
    }
}

/// Writes a request for `target` from our address `ours`, which is zero in a probe and the target itself in an
/// announcement: to the station itself where its link address is known, to everybody otherwise.
pub(crate) fn request<F: Frame>(
    frame: &mut F,
    link: &Link,
    ours: Ipv4Addr,
    target: Ipv4Addr,
    mac: Option<MacAddr>,
) -> bool {
    let to = mac.unwrap_or(MacAddr::BROADCAST);
    emit(frame, link, to, ArpOperation::Request, ours, (MacAddr::default(), target))
}

/// Writes the whole frame; `false` when it has no room for one.
fn emit<F: Frame>(
    frame: &mut F,
    link: &Link,
    to: MacAddr,
    operation: ArpOperation,
    ours: Ipv4Addr,
    (target_mac, target): (MacAddr, Ipv4Addr),
) -> bool {
    frame.resize(link.header_bytes() + ARP_BYTES);
    let Some(room) = link.write(frame.bytes_mut(), to, TYPE_ARP) else { return false };
    let repr = ArpRepr::EthernetIpv4 {
        operation,
        source_hardware_addr: EthernetAddress(link.mac.0),
        source_protocol_addr: ours,
        target_hardware_addr: EthernetAddress(target_mac.0),
        target_protocol_addr: target,
    };
    if room.len() < repr.buffer_len() {
        return false;
    }
    repr.emit(&mut ArpPacket::new_unchecked(room));
    true
}
