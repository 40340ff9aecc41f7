//! Received frames: a fast path for TCP, and a general path for everything else.
//!
//! The fast path accepts TCP over IPv4 without options in an Ethernet frame to us, and TCP over IPv6 without
//! extension headers. [`Net::on_frame`] checks these frames at fixed offsets. A frame that fails a check takes the
//! general path, which checks in the order of RFC 1122 s3.2.1 and counts a drop under the first reason that applies.
//!
//! ```text
//! 0        6        12   14            34              l4_end
//! | dst    | src    | 08 00 | IPv4, 20  | TCP ..........| link padding
//! | dst    | src    | 86 dd | IPv6, 40                  54 | TCP ..........| link padding
//! | dst    | src    | 81 00 | VLAN | 08 00 | ...  in a VLAN, everything four bytes later
//! ```

mod arp;
mod fast;
mod icmp;
mod ipv4;
mod ipv6;
mod link;
mod nd;
mod tcp;

use core::net::{Ipv4Addr, Ipv6Addr};

use ironwarp_port::{Frame, Port, Wire};
use ironwarp_stats::Counter;
use ironwarp_types::{MacAddr, Nanos};

use crate::checksum;
use crate::family::is_unicast_v6;
use crate::ip::{self, IPV4_BYTES, IPV6_BYTES};
use crate::link::{ETHERNET_BYTES, TAG_BYTES, TYPE_VLAN, VLAN_ID_MASK};
use crate::net::Net;
use crate::received::Received;
pub use fast::FastFrame;
use link::{EtherPayload, LinkHeader};

/// An IP packet to us with valid link and IP headers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Datagram<A> {
    pub(crate) remote_mac: MacAddr,
    /// The destination: a local address, or an IPv6 multicast address that we receive.
    pub(crate) local: A,
    pub(crate) remote: A,
    /// Offsets of the payload's start and end in the frame, in bytes.
    pub(crate) l4_offset: u16,
    pub(crate) l4_end: u16,
    pub(crate) traffic_class: u8,
    pub(crate) protocol: u8,
}

impl<A> Datagram<A> {
    /// Returns the payload in the frame.
    #[inline(always)]
    fn payload<'a>(&self, frame: &'a [u8]) -> Option<&'a [u8]> {
        frame.get(usize::from(self.l4_offset)..usize::from(self.l4_end))
    }
}

/// What a valid packet gives to the caller of [`Net::on_frame`], or the counter of its drop.
type Outcome<F> = Result<Option<Received<F>>, Counter>;

/// The lengths of the link header and of an IPv4 header without options.
const HEADERS_V4_BYTES: usize = ETHERNET_BYTES + IPV4_BYTES;

/// Returns the little-endian word at offset `AT`. Words are read whole: the compiler does not join loads of single bytes
/// under a mask.
#[inline(always)]
fn word32<const AT: usize>(bytes: &[u8]) -> u32 {
    bytes.get(AT..).and_then(<[u8]>::first_chunk).map_or(0, |word| u32::from_le_bytes(*word))
}

/// [`word32`] of eight bytes.
#[inline(always)]
fn word64<const AT: usize>(bytes: &[u8]) -> u64 {
    bytes.get(AT..).and_then(<[u8]>::first_chunk).map_or(0, |word| u64::from_le_bytes(*word))
}

/// The length of the two link addresses at the start of a frame.
const ADDRESSES_BYTES: usize = 12;

/// EtherType IPv4, version 4 and a header without options; the type of service is not compared. This word and those
/// below are little-endian.
const FAST_V4: u32 = u32::from_le_bytes([8, 0, 0x45, 0]);
const FAST_V4_MASK: u32 = u32::from_le_bytes([0xff, 0xff, 0xff, 0]);

/// No fragment, and protocol TCP. "Do not fragment", the reserved bit and the time to live are not compared.
const WHOLE_TCP: u32 = u32::from_le_bytes([0, 0, 0, 6]);
const WHOLE_TCP_MASK: u32 = u32::from_le_bytes([0x3f, 0xff, 0, 0xff]);

/// The destination address, and the multicast bit of the source address.
const MAC_MASK: u64 = u64::from_le_bytes([0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1, 0]);

impl Net {
    /// Handles one received frame.
    ///
    /// Replies to ARP requests, neighbour solicitations and echo requests. Returns a TCP segment with correct headers
    /// and checksums, or an ICMP error about one. Drops any other frame under one counter.
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
        match self.fast_datagram_v4::<false, _>(&frame) {
            Some(datagram) => self.on_tcp(frame, datagram),
            None => self.on_not_fast_v4::<false, _>(now, frame, wire),
        }
    }

    /// [`Net::on_frame`] in a VLAN.
    #[inline(never)]
    fn on_tagged_frame<P: Port>(
        &mut self,
        now: Nanos,
        frame: P::Frame,
        wire: &mut Wire<P>,
    ) -> Option<Received<P::Frame>> {
        match self.fast_datagram_v4::<true, _>(&frame) {
            Some(datagram) => self.on_tcp(frame, datagram),
            None => self.on_not_fast_v4::<true, _>(now, frame, wire),
        }
    }

    #[inline(never)]
    fn on_not_fast_v4<const TAGGED: bool, P: Port>(
        &mut self,
        now: Nanos,
        frame: P::Frame,
        wire: &mut Wire<P>,
    ) -> Option<Received<P::Frame>> {
        match self.fast_datagram_v6::<TAGGED, _>(&frame) {
            Some(datagram) => self.on_tcp(frame, datagram),
            None => self.on_general_frame(now, frame, false, wire),
        }
    }

    /// Handles a frame from the loopback of the wire, which must have a local source address.
    #[cold]
    pub fn on_loopback_frame<P: Port>(
        &mut self,
        now: Nanos,
        frame: P::Frame,
        wire: &mut Wire<P>,
    ) -> Option<Received<P::Frame>> {
        self.on_general_frame(now, frame, true, wire)
    }

    /// Handles a frame that a follower core returned as [`Received::ForLeader`].
    #[cold]
    pub fn on_forwarded_frame<P: Port>(&mut self, now: Nanos, frame: P::Frame, wire: &mut Wire<P>) {
        let _ = self.on_general_frame(now, frame, false, wire);
    }

    /// Returns the packet of a frame to us that is TCP over IPv4 without options, if both headers are valid.
    #[inline(always)]
    fn fast_datagram_v4<const TAGGED: bool, F: Frame>(&self, frame: &F) -> Option<Datagram<Ipv4Addr>> {
        let bytes = frame.bytes();
        let header = self.header::<TAGGED, HEADERS_V4_BYTES>(bytes)?;
        let [_, _, _, _, _, _, s0, s1, s2, s3, s4, s5, _, _, ip @ ..] = header;
        let [_, tos, n0, n1, _, _, _, _, _, protocol, _, _, a0, a1, a2, a3, b0, b1, b2, b3] = ip;
        let (remote, local) = (Ipv4Addr::new(a0, a1, a2, a3), Ipv4Addr::new(b0, b1, b2, b3));
        // The checks are sequential: all at once would need more registers than there are.
        if !(self.is_fast_tcp_to_us(&header) && self.local.accepts_v4(remote, local)) {
            return None;
        }
        let l3_offset = ETHERNET_BYTES + if TAGGED { TAG_BYTES } else { 0 };
        let total = u16::from_be_bytes([n0, n1]);
        let l4_end = total.checked_add(l3_offset as u16)?;
        let fits = usize::from(total) >= IPV4_BYTES && usize::from(l4_end) <= bytes.len();
        let correct = checksum::is_correct(frame.rx().ip_checksum, || checksum::sum_header(&ip));
        (fits && correct).then_some(Datagram {
            remote_mac: MacAddr([s0, s1, s2, s3, s4, s5]),
            local,
            remote,
            l4_offset: (l3_offset + IPV4_BYTES) as u16,
            l4_end,
            traffic_class: tos,
            protocol,
        })
    }

    /// Returns whether a frame is to our link address and holds a whole TCP segment over IPv4 without options. Each
    /// check reads one word.
    #[inline(always)]
    fn is_fast_tcp_to_us(&self, header: &[u8; HEADERS_V4_BYTES]) -> bool {
        word64::<0>(header) & MAC_MASK == self.fast_mac_word
            && word32::<12>(header) & FAST_V4_MASK == FAST_V4
            && word32::<20>(header) & WHOLE_TCP_MASK == WHOLE_TCP
    }

    /// Returns the packet of a frame to us that is TCP over IPv6 without extension headers, if the headers are valid.
    #[inline(always)]
    fn fast_datagram_v6<const TAGGED: bool, F: Frame>(&self, frame: &F) -> Option<Datagram<Ipv6Addr>> {
        let bytes = frame.bytes();
        let header = self.header::<TAGGED, { ETHERNET_BYTES + IPV6_BYTES }>(bytes)?;
        let [_, _, _, _, _, _, s0, s1, s2, s3, s4, s5, t0, t1, ip @ ..] = header;
        let [v, class, _, _, n0, n1, next, _, addresses @ ..] = ip;
        let (remote, local) = ipv6::split_addresses(addresses);
        let is_tcp = [t0, t1, v & 0xf0, next] == [0x86, 0xdd, 0x60, 6];
        let to_us = word64::<0>(&header) & MAC_MASK == self.fast_mac_word && self.local.has_v6(local);
        let valid_source = is_unicast_v6(remote) && !self.local.has_v6(remote);
        if !(to_us && is_tcp && valid_source) {
            return None;
        }
        let l4_offset = ETHERNET_BYTES + IPV6_BYTES + if TAGGED { TAG_BYTES } else { 0 };
        let l4_end = u16::from_be_bytes([n0, n1]).checked_add(l4_offset as u16)?;
        (usize::from(l4_end) <= bytes.len()).then_some(Datagram {
            remote_mac: MacAddr([s0, s1, s2, s3, s4, s5]),
            local,
            remote,
            l4_offset: l4_offset as u16,
            l4_end,
            traffic_class: v << 4 | class >> 4,
            protocol: next,
        })
    }

    /// Returns the first `N` bytes of a frame without its VLAN tag. In a VLAN the frame must have the tag of that VLAN.
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
    fn on_general_frame<P: Port>(
        &mut self,
        now: Nanos,
        frame: P::Frame,
        is_loopback: bool,
        wire: &mut Wire<P>,
    ) -> Option<Received<P::Frame>> {
        let outcome = self.parse_link(frame.bytes(), is_loopback).and_then(|link| match link.payload {
            EtherPayload::Arp => self.on_arp(now, frame, &link, wire),
            EtherPayload::Ipv4 => self.on_ipv4(now, frame, &link, wire),
            EtherPayload::Ipv6 => self.on_ipv6(now, frame, &link, wire),
        });
        outcome.unwrap_or_else(|reason| {
            self.stats.count(reason);
            None
        })
    }

    fn on_ipv4<P: Port>(
        &mut self,
        now: Nanos,
        frame: P::Frame,
        link: &LinkHeader,
        wire: &mut Wire<P>,
    ) -> Outcome<P::Frame> {
        let datagram = self.parse_ipv4(frame.bytes(), frame.rx().ip_checksum, link)?;
        match datagram.protocol {
            ip::TCP => Ok(self.on_tcp(frame, datagram)),
            ip::ICMP => self.on_icmp(now, frame, datagram, wire),
            _ => Err(Counter::NetDropIpProtocol),
        }
    }

    fn on_ipv6<P: Port>(
        &mut self,
        now: Nanos,
        frame: P::Frame,
        link: &LinkHeader,
        wire: &mut Wire<P>,
    ) -> Outcome<P::Frame> {
        let packet = self.parse_ipv6(frame.bytes(), link)?;
        match packet.datagram.protocol {
            ip::TCP if !link.is_group && !packet.datagram.local.is_multicast() => {
                Ok(self.on_tcp(frame, packet.datagram))
            }
            ip::ICMPV6 => self.on_icmpv6(now, frame, packet, wire),
            // RFC 9293 s3.9.2.3: no TCP to a multicast address.
            ip::TCP => Err(Counter::NetDropIpNotOurs),
            _ => Err(Counter::NetDropIpProtocol),
        }
    }
}

#[cfg(test)]
mod tests;
