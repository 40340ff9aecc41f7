//! A received frame: the common case in one straight line, everything else off it.
//!
//! The common case is TCP in IPv4 without options, in an Ethernet frame to us. [`Net::on_frame`] looks for exactly
//! that at fixed offsets; a frame that fails any question on the way goes through the checks one by one, in the
//! order of RFC 1122 s3.2.1, so that its drop is counted under the first reason that holds.
//!
//! ```text
//! 0        6        12   14            34              l4_end
//! | dst    | src    | 08 00 | IPv4, 20  | TCP ..........| link padding
//! ```

mod icmp;
mod icmp_error;
mod ipv4;
mod link;
mod tcp;

use core::net::Ipv4Addr;

use ironwarp_port::{Checksum, Frame, Port, Wire};
use ironwarp_stats::Counter;
use ironwarp_types::{MacAddr, Nanos};

use crate::checksum;
use crate::net::Net;
use crate::path::{ETHERNET_BYTES, HEADER_BYTES, IPV4_BYTES};
use crate::received::Received;

/// An IPv4 packet to us whose link and IP headers hold.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Datagram {
    pub(crate) remote_mac: MacAddr,
    pub(crate) source: Ipv4Addr,
    /// Where the payload begins and ends in the frame, in bytes.
    pub(crate) l4_offset: u16,
    pub(crate) l4_end: u16,
    pub(crate) traffic_class: u8,
    pub(crate) protocol: u8,
}

impl Net {
    /// Handles one received frame.
    ///
    /// ARP and echo requests are answered in the frame that brought them. A TCP segment whose link, IP and TCP
    /// checksums hold comes back, and so does an ICMP error about one of ours. Any other frame is dropped under one counter.
    #[inline]
    pub fn on_frame<P: Port>(
        &mut self,
        now: Nanos,
        frame: P::Frame,
        wire: &mut Wire<P>,
    ) -> Option<Received<P::Frame>> {
        match self.plain_tcp(&frame) {
            Some(datagram) => self.on_tcp(frame, datagram).map(Received::Segment),
            None => self.on_other(now, frame, wire),
        }
    }

    /// The packet of a frame that is TCP over plain IPv4 over Ethernet, to us, and right in both headers.
    #[inline]
    fn plain_tcp<F: Frame>(&self, frame: &F) -> Option<Datagram> {
        let bytes = frame.bytes();
        let (header, _) = bytes.split_first_chunk::<HEADER_BYTES>()?;
        let [d0, d1, d2, d3, d4, d5, s0, s1, s2, s3, s4, s5, t0, t1, ip @ ..] = *header;
        let [v, tos, n0, n1, _, _, f0, f1, _, protocol, _, _, a0, a1, a2, a3, b0, b1, b2, b3] = ip;
        let to_us =
            [d0, d1, d2, d3, d4, d5] == self.ours.mac.0 && [b0, b1, b2, b3] == self.ours.addr.octets();
        // The flags and the fragment offset: only "do not fragment" and the reserved bit may be set.
        let plain = [t0, t1, v, protocol] == [8, 0, 0x45, 6] && (f0 & 0x3f) | f1 == 0;
        let source = Ipv4Addr::new(a0, a1, a2, a3);
        let sane = s0 & 1 == 0 && source != self.ours.addr && self.is_unicast(source);
        if !(to_us && plain && sane) {
            return None;
        }
        let total = u16::from_be_bytes([n0, n1]);
        let l4_end = total.checked_add(ETHERNET_BYTES as u16)?;
        let fits = usize::from(total) >= IPV4_BYTES && usize::from(l4_end) <= bytes.len();
        let right = match frame.rx().ip_checksum {
            Checksum::Good => true,
            Checksum::Bad => false,
            Checksum::Unknown => checksum::fold(checksum::sum_header(&ip)) == checksum::RIGHT,
        };
        (fits && right).then_some(Datagram {
            remote_mac: MacAddr([s0, s1, s2, s3, s4, s5]),
            source,
            l4_offset: HEADER_BYTES as u16,
            l4_end,
            traffic_class: tos,
            protocol,
        })
    }

    #[cold]
    fn on_other<P: Port>(
        &mut self,
        now: Nanos,
        frame: P::Frame,
        wire: &mut Wire<P>,
    ) -> Option<Received<P::Frame>> {
        match self.link_kind(frame.bytes()) {
            Ok(link::Kind::Arp) => self.on_arp(now, frame, wire),
            Ok(link::Kind::Ipv4 { broadcast }) => return self.on_ipv4(now, frame, broadcast, wire),
            Err(reason) => self.stats.count(reason),
        }
        None
    }

    #[cold]
    fn on_ipv4<P: Port>(
        &mut self,
        now: Nanos,
        frame: P::Frame,
        broadcast: bool,
        wire: &mut Wire<P>,
    ) -> Option<Received<P::Frame>> {
        match self.datagram(frame.bytes(), frame.rx().ip_checksum, broadcast) {
            Ok(datagram) if datagram.protocol == ipv4::TCP => {
                return self.on_tcp(frame, datagram).map(Received::Segment);
            }
            Ok(datagram) if datagram.protocol == ipv4::ICMP => {
                return self.on_icmp(now, frame, datagram, wire).map(Received::IcmpError);
            }
            Ok(_) => self.stats.count(Counter::NetDropIpProtocol),
            Err(reason) => self.stats.count(reason),
        }
        None
    }
}

#[cfg(test)]
mod tests;
