//! Packets of the transport that are encapsulated in UDP.
//!
//! Source: RFC 6951 s5.4, RFC 768, RFC 8200 s8.1: with IPv6 the checksum is not left out.

use core::net::IpAddr;

use ironwarp_port::Frame;
use ironwarp_stats::Counter;

use super::l4::l4_sum;
use super::{Datagram, Outcome};
use crate::checksum;
use crate::family::Address;
use crate::ip::UDP_BYTES;
use crate::net::Net;
use crate::packet::Packet;
use crate::received::Received;

impl Net {
    /// Returns the packet in a UDP datagram to our port, if length and checksum are valid.
    #[cold]
    pub(super) fn on_udp<F: Frame, A: Address>(&self, frame: F, datagram: Datagram<A>) -> Outcome<F> {
        let udp = datagram.payload(frame.bytes()).ok_or(Counter::NetDropL4Header)?;
        let &[s0, s1, d0, d1, n0, n1, c0, c1] = udp.first_chunk().ok_or(Counter::NetDropL4Header)?;
        if u16::from_be_bytes([d0, d1]) != self.udp_port {
            return Err(Counter::NetDropIpProtocol);
        }
        let (source, udp_bytes) = (u16::from_be_bytes([s0, s1]), u16::from_be_bytes([n0, n1]));
        let udp = udp.get(..udp_bytes.into()).filter(|udp| udp.len() >= UDP_BYTES && source != 0);
        let udp = udp.ok_or(Counter::NetDropL4Header)?;
        let has_checksum = [c0, c1] != [0, 0];
        let is_right = match has_checksum {
            true => checksum::is_correct(frame.rx().l4_checksum, || l4_sum(udp, &datagram)),
            false => matches!(datagram.local.into(), IpAddr::V4(_)),
        };
        if !is_right {
            return Err(Counter::NetDropL4Checksum);
        }
        let (l4_offset, l4_end) = (datagram.l4_offset + UDP_BYTES as u16, datagram.l4_offset + udp_bytes);
        match self.on_l4(frame, Datagram { l4_offset, l4_end, ..datagram }, self.encapsulated_transport())? {
            Some(Received::Packet(packet)) => {
                Ok(Some(Received::Packet(Packet { udp_port: source, ..packet })))
            }
            other => Ok(other),
        }
    }
}
