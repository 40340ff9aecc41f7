//! A received frame: the common case in one straight line, everything else off it.
//!
//! The common case is TCP in IPv4 without options, in an Ethernet frame to us; the next common one TCP in IPv6 without
//! extension headers. [`Net::on_frame`] looks for exactly these at fixed offsets; a frame that fails any question on
//! the way goes through the checks one by one, in the order of RFC 1122 s3.2.1, so that its drop is counted under the
//! first reason that holds.
//!
//! ```text
//! 0        6        12   14            34              l4_end
//! | dst    | src    | 08 00 | IPv4, 20  | TCP ..........| link padding
//! | dst    | src    | 86 dd | IPv6, 40                  54 | TCP ..........| link padding
//! | dst    | src    | 81 00 | VLAN | 08 00 | ...  in a VLAN, all of it four bytes later
//! ```

mod arp;
mod icmp;
mod ipv4;
mod ipv6;
mod link;
mod nd;
mod tcp;

use core::net::{Ipv4Addr, Ipv6Addr};

use ironwarp_port::{Checksum, Frame, Port, Wire};
use ironwarp_stats::Counter;
use ironwarp_types::{MacAddr, Nanos};

use crate::checksum;
use crate::family::is_unicast_v6;
use crate::ip::{IPV4_BYTES, IPV6_BYTES};
use crate::link::{ETHERNET_BYTES, TAG_BYTES, TYPE_VLAN, VLAN_ID_MASK};
use crate::net::Net;
use crate::received::Received;
use link::{Arrived, Kind};

/// An IP packet to us whose link and IP headers hold.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Datagram<A> {
    pub(crate) remote_mac: MacAddr,
    /// Where it goes: an address of ours, or in IPv6 a group that we are in.
    pub(crate) local: A,
    pub(crate) remote: A,
    /// Where the payload begins and ends in the frame, in bytes.
    pub(crate) l4_offset: u16,
    pub(crate) l4_end: u16,
    pub(crate) traffic_class: u8,
    pub(crate) protocol: u8,
}

/// Link addresses at the front of every frame.
const ADDRESSES_BYTES: usize = 12;

/// The type of IPv4, its version and a header without options; not the type of service behind them. As little-endian
/// words, here and below.
const PLAIN_V4: u32 = u32::from_le_bytes([8, 0, 0x45, 0]);
const PLAIN_V4_MASK: u32 = u32::from_le_bytes([0xff, 0xff, 0xff, 0]);

/// Neither "more fragments" nor an offset, and TCP; "do not fragment", the reserved bit and the time to live may be
/// anything.
const WHOLE_TCP: u32 = u32::from_le_bytes([0, 0, 0, 6]);
const WHOLE_TCP_MASK: u32 = u32::from_le_bytes([0x3f, 0xff, 0, 0xff]);

/// The address that a frame goes to, and whether the one that it comes from is a group's.
const MAC_MASK: u64 = u64::from_le_bytes([0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1, 0]);

impl Net {
    /// Handles one received frame.
    ///
    /// ARP requests, neighbour solicitations and echo requests are answered. A TCP segment whose link, IP and TCP
    /// checksums hold comes back, and so does an ICMP error about one of ours. Any other frame is dropped under one
    /// counter.
    #[inline]
    pub fn on_frame<P: Port>(
        &mut self,
        now: Nanos,
        frame: P::Frame,
        wire: &mut Wire<P>,
    ) -> Option<Received<P::Frame>> {
        if self.link.vlan.is_some() {
            return self.on_tagged_frame(now, frame, wire);
        }
        match self.plain_v4::<false, _>(&frame) {
            Some(datagram) => self.on_tcp(frame, datagram),
            None => self.on_not_plain_v4::<false, _>(now, frame, wire),
        }
    }

    /// The same where every frame has a tag.
    #[inline(never)]
    fn on_tagged_frame<P: Port>(
        &mut self,
        now: Nanos,
        frame: P::Frame,
        wire: &mut Wire<P>,
    ) -> Option<Received<P::Frame>> {
        match self.plain_v4::<true, _>(&frame) {
            Some(datagram) => self.on_tcp(frame, datagram),
            None => self.on_not_plain_v4::<true, _>(now, frame, wire),
        }
    }

    #[inline(never)]
    fn on_not_plain_v4<const TAGGED: bool, P: Port>(
        &mut self,
        now: Nanos,
        frame: P::Frame,
        wire: &mut Wire<P>,
    ) -> Option<Received<P::Frame>> {
        match self.plain_v6::<TAGGED, _>(&frame) {
            Some(datagram) => self.on_tcp(frame, datagram),
            None => self.on_other(now, frame, wire),
        }
    }

    /// A frame that we sent to ourselves, from the wire's loop: the same checks, save that its source is ours.
    #[cold]
    pub fn on_own_frame<P: Port>(
        &mut self,
        now: Nanos,
        frame: P::Frame,
        wire: &mut Wire<P>,
    ) -> Option<Received<P::Frame>> {
        match self.arrived(frame.bytes()) {
            Ok(arrived) => self.on_arrived(now, frame, Arrived { own: true, ..arrived }, wire),
            Err(reason) => {
                self.stats.count(reason);
                None
            }
        }
    }

    /// A frame of ARP or neighbour discovery that a core which follows has handed over: see
    /// [`Received::ForLeader`]. It ends here.
    #[cold]
    pub fn on_handed_frame<P: Port>(&mut self, now: Nanos, frame: P::Frame, wire: &mut Wire<P>) {
        let _ = self.on_other(now, frame, wire);
    }

    /// The packet of a frame that is TCP over plain IPv4 over Ethernet, to us, and right in both headers.
    #[inline(always)]
    fn plain_v4<const TAGGED: bool, F: Frame>(&self, frame: &F) -> Option<Datagram<Ipv4Addr>> {
        let bytes = frame.bytes();
        let header = self.header::<TAGGED, { ETHERNET_BYTES + IPV4_BYTES }>(bytes)?;
        let [d0, d1, d2, d3, d4, d5, s0, s1, s2, s3, s4, s5, t0, t1, ip @ ..] = header;
        let [v, tos, n0, n1, _, _, f0, f1, ttl, protocol, _, _, a0, a1, a2, a3, b0, b1, b2, b3] = ip;
        // Each question is one word as it lies in the frame, since that costs a load, a mask and a comparison.
        let plain = u32::from_le_bytes([t0, t1, v, tos]) & PLAIN_V4_MASK == PLAIN_V4;
        let whole = u32::from_le_bytes([f0, f1, ttl, protocol]) & WHOLE_TCP_MASK == WHOLE_TCP;
        let to_us = u64::from_le_bytes([d0, d1, d2, d3, d4, d5, s0, s1]) & MAC_MASK == self.mac_word;
        let (remote, local) = (u32::from_be_bytes([a0, a1, a2, a3]), u32::from_be_bytes([b0, b1, b2, b3]));
        let (remote, local) = (Ipv4Addr::from_bits(remote), Ipv4Addr::from_bits(local));
        // One question after the other: all at once they would need more registers than there are.
        if !(plain && whole && to_us && self.own.admits_v4(remote, local)) {
            return None;
        }
        let l3 = ETHERNET_BYTES + if TAGGED { TAG_BYTES } else { 0 };
        let total = u16::from_be_bytes([n0, n1]);
        let l4_end = total.checked_add(l3 as u16)?;
        let fits = usize::from(total) >= IPV4_BYTES && usize::from(l4_end) <= bytes.len();
        let right = match frame.rx().ip_checksum {
            Checksum::Good => true,
            Checksum::Bad => false,
            Checksum::Unknown => checksum::fold(checksum::sum_header(&ip)) == checksum::RIGHT,
        };
        (fits && right).then_some(Datagram {
            remote_mac: MacAddr([s0, s1, s2, s3, s4, s5]),
            local,
            remote,
            l4_offset: (l3 + IPV4_BYTES) as u16,
            l4_end,
            traffic_class: tos,
            protocol,
        })
    }

    /// The packet of a frame that is TCP straight behind an IPv6 header, to us, from somebody.
    #[inline(always)]
    fn plain_v6<const TAGGED: bool, F: Frame>(&self, frame: &F) -> Option<Datagram<Ipv6Addr>> {
        let bytes = frame.bytes();
        let header = self.header::<TAGGED, { ETHERNET_BYTES + IPV6_BYTES }>(bytes)?;
        let [d0, d1, d2, d3, d4, d5, s0, s1, s2, s3, s4, s5, t0, t1, ip @ ..] = header;
        let [v, class, _, _, n0, n1, next, _, addresses @ ..] = ip;
        let (remote, local) = ipv6::ends(addresses);
        let plain = [t0, t1, v & 0xf0, next] == [0x86, 0xdd, 0x60, 6];
        let to_us = [d0, d1, d2, d3, d4, d5] == self.link.mac.0 && self.own.has_v6(local);
        let sane = s0 & 1 == 0 && is_unicast_v6(remote) && !self.own.has_v6(remote);
        if !(to_us && plain && sane) {
            return None;
        }
        let l4 = ETHERNET_BYTES + IPV6_BYTES + if TAGGED { TAG_BYTES } else { 0 };
        let l4_end = u16::from_be_bytes([n0, n1]).checked_add(l4 as u16)?;
        (usize::from(l4_end) <= bytes.len()).then_some(Datagram {
            remote_mac: MacAddr([s0, s1, s2, s3, s4, s5]),
            local,
            remote,
            l4_offset: l4 as u16,
            l4_end,
            traffic_class: v << 4 | class >> 4,
            protocol: next,
        })
    }

    /// The link header and what follows it, `N` bytes without the tag of our VLAN, which must be there where frames have
    /// one.
    #[inline(always)]
    fn header<const TAGGED: bool, const N: usize>(&self, bytes: &[u8]) -> Option<[u8; N]> {
        if !TAGGED {
            return bytes.first_chunk::<N>().copied();
        }
        let (addresses, rest) = bytes.split_first_chunk::<ADDRESSES_BYTES>()?;
        let ([t0, t1, c0, c1], rest) = rest.split_first_chunk::<TAG_BYTES>()?;
        let id = u16::from_be_bytes([*c0, *c1]) & VLAN_ID_MASK;
        let ours = u16::from_be_bytes([*t0, *t1]) == TYPE_VLAN
            && self.link.vlan.is_some_and(|vlan| vlan.id & VLAN_ID_MASK == id);
        let mut header = [0; N];
        let (front, back) = header.split_at_mut_checked(ADDRESSES_BYTES)?;
        front.copy_from_slice(addresses);
        back.copy_from_slice(rest.get(..back.len())?);
        ours.then_some(header)
    }

    #[cold]
    fn on_other<P: Port>(
        &mut self,
        now: Nanos,
        frame: P::Frame,
        wire: &mut Wire<P>,
    ) -> Option<Received<P::Frame>> {
        match self.arrived(frame.bytes()) {
            Ok(arrived) => self.on_arrived(now, frame, arrived, wire),
            Err(reason) => {
                self.stats.count(reason);
                None
            }
        }
    }

    #[cold]
    fn on_arrived<P: Port>(
        &mut self,
        now: Nanos,
        frame: P::Frame,
        arrived: Arrived,
        wire: &mut Wire<P>,
    ) -> Option<Received<P::Frame>> {
        let outcome = match arrived.kind {
            Kind::Arp if self.outbox.follows() => return Some(Received::ForLeader(frame)),
            Kind::Arp => {
                self.on_arp(now, frame, &arrived, wire);
                return None;
            }
            Kind::Ipv4 => self.on_ipv4(now, frame, &arrived, wire),
            Kind::Ipv6 => self.on_ipv6(now, frame, &arrived, wire),
        };
        outcome.unwrap_or_else(|reason| {
            self.stats.count(reason);
            None
        })
    }

    fn on_ipv4<P: Port>(
        &mut self,
        now: Nanos,
        frame: P::Frame,
        arrived: &Arrived,
        wire: &mut Wire<P>,
    ) -> Result<Option<Received<P::Frame>>, Counter> {
        let datagram = self.datagram_v4(frame.bytes(), frame.rx().ip_checksum, arrived)?;
        match datagram.protocol {
            crate::ip::TCP => Ok(self.on_tcp(frame, datagram)),
            crate::ip::ICMP => self.on_icmp(now, frame, datagram, wire),
            _ => Err(Counter::NetDropIpProtocol),
        }
    }

    fn on_ipv6<P: Port>(
        &mut self,
        now: Nanos,
        frame: P::Frame,
        arrived: &Arrived,
        wire: &mut Wire<P>,
    ) -> Result<Option<Received<P::Frame>>, Counter> {
        let packet = self.datagram_v6(frame.bytes(), arrived)?;
        match packet.datagram.protocol {
            crate::ip::TCP if !arrived.group && !packet.datagram.local.is_multicast() => {
                Ok(self.on_tcp(frame, packet.datagram))
            }
            crate::ip::ICMPV6 => self.on_icmpv6(now, frame, packet, wire),
            // TCP and groups do not go together (RFC 9293 s3.9.2.3).
            crate::ip::TCP => Err(Counter::NetDropIpNotOurs),
            _ => Err(Counter::NetDropIpProtocol),
        }
    }
}

#[cfg(test)]
mod tests;
