//! From a datagram to a packet of the transport: length, checksum and flow.
//!
//! Source: RFC 9293 s3.1 (checksum with pseudo-header).

use core::net::SocketAddr;

use ironwarp_port::Frame;
use ironwarp_stats::Counter;
use ironwarp_types::{Ecn, Flow};

use super::{Datagram, Outcome};
use crate::checksum;
use crate::config::TransportProtocol;
use crate::family::Address;
use crate::net::Net;
use crate::packet::Packet;
use crate::received::Received;

impl Net {
    /// Returns the packet in a datagram, if its length and checksum are valid.
    #[inline]
    pub(super) fn on_l4<F: Frame, A: Address>(
        &self,
        frame: F,
        datagram: Datagram<A>,
        transport: TransportProtocol,
    ) -> Outcome<F> {
        let l4 = datagram.payload(frame.bytes()).ok_or(Counter::NetDropL4Header)?;
        let &[r0, r1, l0, l1] = l4.first_chunk().ok_or(Counter::NetDropL4Header)?;
        if l4.len() < usize::from(transport.header_bytes_min) {
            return Err(Counter::NetDropL4Header);
        }
        if transport.has_internet_checksum
            && !checksum::is_correct(frame.rx().l4_checksum, || l4_sum(l4, &datagram))
        {
            return Err(Counter::NetDropL4Checksum);
        }
        let (remote, local) = (u16::from_be_bytes([r0, r1]), u16::from_be_bytes([l0, l1]));
        Ok(Some(Received::Packet(Packet {
            hash: A::hash(&self.hasher, (datagram.local, local), (datagram.remote, remote)),
            flow: Flow {
                local: SocketAddr::new(datagram.local.into(), local),
                remote: SocketAddr::new(datagram.remote.into(), remote),
            },
            l4_offset: datagram.l4_offset,
            l4_end: datagram.l4_end,
            remote_mac: datagram.remote_mac,
            ecn: Ecn::from_bits(datagram.traffic_class),
            protocol: transport.number,
            udp_port: 0,
            frame,
        })))
    }

    /// Returns the packet in a datagram of another protocol than the first, if it is one of ours.
    #[inline(never)]
    pub(super) fn on_other_l4<F: Frame, A: Address>(&self, frame: F, datagram: Datagram<A>) -> Outcome<F> {
        let transport = self.other_transport.filter(|other| other.number == datagram.protocol);
        self.on_l4(frame, datagram, transport.ok_or(Counter::NetDropIpProtocol)?)
    }

    /// Returns the protocol whose packets may be encapsulated in UDP.
    pub(super) fn encapsulated_transport(&self) -> TransportProtocol {
        self.other_transport.unwrap_or(self.transport)
    }
}

#[inline]
pub(super) fn l4_sum<A: Address>(l4: &[u8], datagram: &Datagram<A>) -> u32 {
    let addresses = datagram.local.sum() + datagram.remote.sum();
    addresses + u32::from(datagram.protocol) + l4.len() as u32 + checksum::sum(l4)
}
