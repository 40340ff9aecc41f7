//! ARP frames: reading them, and writing requests and replies.
//!
//! Source: RFC 826 (packet and order of processing), RFC 5227 s1.1 (a sender address of zero is a probe: it is
//! answered, and teaches nothing). What cannot be an address is refused before it reaches the table.

use core::net::Ipv4Addr;

use ironwarp_port::Frame;
use ironwarp_types::MacAddr;
use smoltcp::wire::{
    ArpOperation, ArpPacket, ArpRepr, EthernetAddress, EthernetFrame, EthernetProtocol, EthernetRepr,
};

use crate::path::{ETHERNET_BYTES, Station};

/// An Ethernet frame with an ARP packet for IPv4.
const FRAME_BYTES: usize = ETHERNET_BYTES + 28;

/// A received ARP packet whose addresses can be addresses.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct ArpIn {
    pub(crate) is_request: bool,
    /// Who sent it. The address is zero in a probe.
    pub(crate) sender: Station,
    /// Whose link address is asked for or told to.
    pub(crate) target: Ipv4Addr,
}

impl ArpIn {
    /// Reads the ARP packet of a frame; `None` when it is malformed or for other kinds of network.
    pub(crate) fn parse(frame: &[u8]) -> Option<ArpIn> {
        let link = EthernetFrame::new_checked(frame).ok()?;
        let packet = ArpPacket::new_checked(link.payload()).ok()?;
        let ArpRepr::EthernetIpv4 {
            operation,
            source_hardware_addr: mac,
            source_protocol_addr: addr,
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
        let possible = mac.is_unicast() && mac.0 != [0; 6] && !addr.is_multicast() && !addr.is_broadcast();
        possible.then_some(ArpIn { is_request, sender: Station { mac: MacAddr(mac.0), addr }, target })
    }

    /// Turns the frame of a request into its reply. RFC 826: swap the fields, and put ours into the sender's place.
    pub(crate) fn reply<F: Frame>(&self, frame: &mut F, ours: Station) -> bool {
        emit(frame, ArpOperation::Reply, ours, self.sender, self.sender.mac)
    }
}

/// Writes a request for `target`: to the station itself where its link address is known, to everybody otherwise.
pub(crate) fn request<F: Frame>(
    frame: &mut F,
    ours: Station,
    target: Ipv4Addr,
    mac: Option<MacAddr>,
) -> bool {
    let to = mac.unwrap_or(MacAddr::BROADCAST);
    emit(frame, ArpOperation::Request, ours, Station { mac: MacAddr::default(), addr: target }, to)
}

/// Writes the whole frame; `false` when it has no room for one.
fn emit<F: Frame>(
    frame: &mut F,
    operation: ArpOperation,
    from: Station,
    target: Station,
    to: MacAddr,
) -> bool {
    frame.resize(FRAME_BYTES);
    let Ok(mut link) = EthernetFrame::new_checked(frame.bytes_mut()) else { return false };
    EthernetRepr {
        src_addr: EthernetAddress(from.mac.0),
        dst_addr: EthernetAddress(to.0),
        ethertype: EthernetProtocol::Arp,
    }
    .emit(&mut link);
    let repr = ArpRepr::EthernetIpv4 {
        operation,
        source_hardware_addr: EthernetAddress(from.mac.0),
        source_protocol_addr: from.addr,
        target_hardware_addr: EthernetAddress(target.mac.0),
        target_protocol_addr: target.addr,
    };
    let room = link.payload_mut();
    if room.len() < repr.buffer_len() {
        return false;
    }
    repr.emit(&mut ArpPacket::new_unchecked(room));
    true
}
