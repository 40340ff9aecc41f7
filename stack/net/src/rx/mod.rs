//! Received frames.
//!
//! [`Net::on_frame`] checks any frame, in the order of RFC 1122 s3.2.1, and counts a drop under the
//! first reason that applies. Segments of established connections are tried with
//! [`Net::fast_frame`] first.

mod arp;
mod fast;
mod icmp;
mod ipv4;
mod ipv6;
mod l4;
mod link;
mod nd;
mod udp;

use ironwarp_port::{Frame, Port, Wire};
use ironwarp_stats::Counter;
use ironwarp_types::{MacAddr, Nanos};

use crate::ip;
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

impl Net {
    /// Handles one received frame.
    ///
    /// Replies to ARP requests, neighbour solicitations and echo requests. Returns a packet of the
    /// transport with correct headers and checksums, or an ICMP error about one. Drops any other
    /// frame under one counter.
    pub fn on_frame<P: Port>(
        &mut self,
        now: Nanos,
        frame: P::Frame,
        wire: &mut Wire<P>,
    ) -> Option<Received<P::Frame>> {
        self.on_any_frame(now, frame, false, wire)
    }

    /// Handles a frame from the loopback of the wire, which must have a local source address.
    #[cold]
    pub fn on_loopback_frame<P: Port>(
        &mut self,
        now: Nanos,
        frame: P::Frame,
        wire: &mut Wire<P>,
    ) -> Option<Received<P::Frame>> {
        self.on_any_frame(now, frame, true, wire)
    }

    /// Handles a frame that a follower core returned as [`Received::ForLeader`].
    #[cold]
    pub fn on_forwarded_frame<P: Port>(&mut self, now: Nanos, frame: P::Frame, wire: &mut Wire<P>) {
        let _ = self.on_any_frame(now, frame, false, wire);
    }

    fn on_any_frame<P: Port>(
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

    #[inline(always)]
    fn on_ipv4<P: Port>(
        &mut self,
        now: Nanos,
        frame: P::Frame,
        link: &LinkHeader,
        wire: &mut Wire<P>,
    ) -> Outcome<P::Frame> {
        let datagram = self.parse_ipv4(frame.bytes(), frame.rx().ip_checksum, link)?;
        match datagram.protocol {
            number if number == self.transport.number => self.on_l4(frame, datagram, self.transport),
            ip::ICMP => self.on_icmp(now, frame, datagram, wire),
            ip::UDP if self.udp_port != 0 => self.on_udp(frame, datagram),
            _ => self.on_other_l4(frame, datagram),
        }
    }

    #[inline(never)]
    fn on_ipv6<P: Port>(
        &mut self,
        now: Nanos,
        frame: P::Frame,
        link: &LinkHeader,
        wire: &mut Wire<P>,
    ) -> Outcome<P::Frame> {
        let packet = self.parse_ipv6(frame.bytes(), link)?;
        let datagram = packet.datagram;
        match datagram.protocol {
            ip::ICMPV6 => self.on_icmpv6(now, frame, packet, wire),
            // RFC 9293 s3.9.2.3: no transport to a multicast address.
            _ if link.is_group || datagram.local.is_multicast() => Err(Counter::NetDropIpNotOurs),
            number if number == self.transport.number => self.on_l4(frame, datagram, self.transport),
            ip::UDP if self.udp_port != 0 => self.on_udp(frame, datagram),
            _ => self.on_other_l4(frame, datagram),
        }
    }
}

#[cfg(test)]
mod tests;
