//! The path to a peer: a template of the link and network headers.
//!
//! A frame is written in three steps. TCP resizes it and writes its header and payload from [`Path::header_bytes`] on.
//! [`Path::write`] writes the headers before them. [`Path::finish_tcp`] writes the TCP checksum, or the sum of the
//! pseudo-header if the device completes it, and returns the metadata for the device.
//!
//! ```text
//! | link, 14 | VLAN tag, 0 or 4 (before the EtherType) | IPv4, 20, or IPv6, 40 |
//! ```
//! A `Path` fits in one cache line. A connection gets it from [`Net::route`](crate::Net::route) at set-up; a reply to
//! a segment uses the link address that the segment came from. So there is a path before there is a packet. The core
//! loop refreshes the paths of live connections twice a minute and after each route change.
//!
//! Source: RFC 894, RFC 791 s3.1, RFC 8200 s3, RFC 9293 s3.1 and RFC 8200 s8.1 (pseudo-headers). Cost: one copy of 34
//! to 58 bytes and three changed fields. The sum of the template is stored, so there is no pass over it.

mod fast;

use core::net::IpAddr;

pub use fast::{FAST_HEADER_BYTES, FastSegment};

use bitflags::bitflags;
use ironwarp_port::{TxMeta, TxOffloads};
use ironwarp_types::{Ecn, MacAddr};

use crate::checksum;
use crate::config::IpHeaderDefaults;
use crate::family::as_v6;
use crate::ip::{self, IPV4_BYTES, IPV6_BYTES, V4_FIXED_SUM};
use crate::link::{ETHERNET_BYTES, Link, TAG_BYTES, TYPE_IPV4, TYPE_IPV6};

const HEADER_BYTES_MAX: usize = ETHERNET_BYTES + TAG_BYTES + IPV6_BYTES;

/// Offset of the checksum in the TCP header.
const TCP_CHECKSUM_AT: usize = 16;

/// The link address and the network address of a station.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Station {
    pub(crate) mac: MacAddr,
    pub(crate) addr: IpAddr,
}

bitflags! {
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    struct Flags: u8 {
        const TAGGED = 1;
        const IPV6 = 2;
        /// The device completes TCP checksums.
        const OFFLOADED = 4;
        /// The fast path is off.
        const GENERAL = 8;
    }
}

/// The headers of packets to one peer. Plain data of one cache line; copies are independent.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Path {
    header: [u8; HEADER_BYTES_MAX],
    flags: Flags,
    port: u8,
    mtu_bytes: u16,
    /// The folded sum of addresses and protocol: the pseudo-header without its length.
    pseudo_sum: u16,
}

const _: () = assert!(size_of::<Path>() <= 64);

impl Path {
    /// Returns the sum of the pseudo-header without its length: the same in both directions.
    #[inline(always)]
    pub(crate) fn pseudo_sum(&self) -> u32 {
        self.pseudo_sum.into()
    }

    /// Returns the path from a local address to a station of the same family. `mtu_bytes` limits the IP packet;
    /// `offloads` are those of the device.
    pub(crate) fn new(
        link: &Link,
        defaults: IpHeaderDefaults,
        local: IpAddr,
        remote: Station,
        mtu_bytes: u16,
        offloads: TxOffloads,
    ) -> Self {
        let mut path = Path {
            header: [0; HEADER_BYTES_MAX],
            flags: if link.vlan.is_some() { Flags::TAGGED } else { Flags::empty() },
            port: 0,
            mtu_bytes,
            pseudo_sum: ip::pseudo_sum(local, remote.addr, ip::TCP),
        };
        match (local, remote.addr) {
            (IpAddr::V4(local), IpAddr::V4(dst)) => {
                path.flags.set(Flags::OFFLOADED, offloads.contains(TxOffloads::TCP_CHECKSUM));
                path.fill(link, remote.mac, TYPE_IPV4, &ip::v4_template((local, dst), ip::TCP, defaults));
            }
            (local, dst) => {
                path.flags |= Flags::IPV6;
                path.flags.set(Flags::OFFLOADED, offloads.contains(TxOffloads::TCP_CHECKSUM_IPV6));
                let addresses = (as_v6(local), as_v6(dst));
                let next = (ip::TCP, defaults.hop_limit);
                let header = ip::v6_header(addresses, next, defaults.traffic_class(), 0);
                path.fill(link, remote.mac, TYPE_IPV6, &header);
            }
        }
        path
    }

    fn fill(&mut self, link: &Link, to: MacAddr, ethertype: u16, ip_header: &[u8]) {
        let packet = link.write(&mut self.header, to, ethertype).unwrap_or_default();
        if let Some(header) = packet.get_mut(..ip_header.len()) {
            header.copy_from_slice(ip_header);
        }
    }

    /// Returns the offset of the TCP header in a frame: 34 bytes for IPv4, 54 for IPv6, and 4 more with a VLAN tag.
    #[inline]
    pub const fn header_bytes(&self) -> usize {
        self.link_bytes() + self.ip_bytes()
    }

    #[inline]
    const fn link_bytes(&self) -> usize {
        ETHERNET_BYTES + (self.flags.bits() & Flags::TAGGED.bits()) as usize * TAG_BYTES
    }

    /// Returns the length of the IP header: 20 bytes for IPv4, 40 for IPv6. [`Path::mtu_bytes`] includes it.
    #[inline]
    pub const fn ip_bytes(&self) -> usize {
        if self.flags.contains(Flags::IPV6) { IPV6_BYTES } else { IPV4_BYTES }
    }

    /// Returns the number of the port that packets leave through.
    #[inline]
    pub const fn port(&self) -> u8 {
        self.port
    }

    pub(crate) fn with_port(mut self, port: u8) -> Self {
        self.port = port;
        self
    }

    /// Returns the path with headers that the general path writes.
    pub(crate) fn without_fast_path(mut self) -> Self {
        self.flags |= Flags::GENERAL;
        self
    }

    /// Returns the largest IP packet of this path, in bytes.
    pub const fn mtu_bytes(&self) -> u16 {
        self.mtu_bytes
    }

    /// Returns the link address that frames are sent to.
    pub fn remote_mac(&self) -> MacAddr {
        let [a, b, c, d, e, f, ..] = self.header;
        MacAddr([a, b, c, d, e, f])
    }

    pub(crate) fn set_remote_mac(&mut self, mac: MacAddr) {
        self.header[..6].copy_from_slice(&mac.0);
    }

    /// Returns the address of the peer.
    pub fn remote_addr(&self) -> IpAddr {
        self.addresses().1
    }

    /// Returns the local address.
    pub fn local_addr(&self) -> IpAddr {
        self.addresses().0
    }

    fn addresses(&self) -> (IpAddr, IpAddr) {
        let header = self.header.get(self.link_bytes()..).unwrap_or_default();
        if self.flags.contains(Flags::IPV6) {
            (IpAddr::from(array_at::<16>(header, 8)), IpAddr::from(array_at::<16>(header, 24)))
        } else {
            (IpAddr::from(array_at::<4>(header, 12)), IpAddr::from(array_at::<4>(header, 16)))
        }
    }

    /// Writes the headers of a segment of `l4_bytes`, TCP header included. Changes nothing if the frame is shorter
    /// than the headers.
    ///
    /// `ident` is the IPv4 identification; with "do not fragment" any value is allowed (RFC 6864 s4.1). The header
    /// checksum is always written: with the stored sum it takes three additions, less than an offload request to the
    /// device.
    #[inline]
    pub fn write(&self, frame: &mut [u8], l4_bytes: usize, ident: u16, ecn: Ecn) {
        debug_assert!(l4_bytes + self.ip_bytes() <= usize::from(u16::MAX));
        match (self.flags.contains(Flags::IPV6), self.flags.contains(Flags::TAGGED)) {
            (false, false) => self.write_v4::<{ ETHERNET_BYTES + IPV4_BYTES }>(frame, l4_bytes, ident, ecn),
            (true, false) => self.write_v6::<{ ETHERNET_BYTES + IPV6_BYTES }>(frame, l4_bytes, ecn),
            (false, true) => {
                self.write_v4::<{ ETHERNET_BYTES + TAG_BYTES + IPV4_BYTES }>(frame, l4_bytes, ident, ecn);
            }
            (true, true) => self.write_v6::<HEADER_BYTES_MAX>(frame, l4_bytes, ecn),
        }
    }

    /// Writes `H` bytes of headers that end with an IPv4 header.
    #[inline(always)]
    fn write_v4<const H: usize>(&self, frame: &mut [u8], l4_bytes: usize, ident: u16, ecn: Ecn) {
        if let Some(ip) = self.write_template::<H, IPV4_BYTES>(frame) {
            self.complete_v4(ip, l4_bytes, ident, ecn);
        }
    }

    /// Writes the fields of an IPv4 header that differ from the template.
    #[inline(always)]
    fn complete_v4(&self, ip: &mut [u8; IPV4_BYTES], l4_bytes: usize, ident: u16, ecn: Ecn) {
        let [_, class, n0, n1, i0, i1, _, _, hop_limit, _, c0, c1, ..] = ip;
        *class |= ecn.bits();
        let total = (l4_bytes as u16).wrapping_add(IPV4_BYTES as u16);
        let variable = u32::from(*hop_limit) << 8 | u32::from(*class);
        let sum = u32::from(self.pseudo_sum) + V4_FIXED_SUM + variable + u32::from(total) + u32::from(ident);
        [*n0, *n1] = total.to_be_bytes();
        [*i0, *i1] = ident.to_be_bytes();
        [*c0, *c1] = (!checksum::fold(sum)).to_be_bytes();
    }

    /// Writes `H` bytes of headers that end with an IPv6 header. RFC 3168 s5: the ECN bits are the lowest of the
    /// traffic class.
    #[inline(always)]
    fn write_v6<const H: usize>(&self, frame: &mut [u8], l4_bytes: usize, ecn: Ecn) {
        let Some(ip) = self.write_template::<H, IPV6_BYTES>(frame) else { return };
        let [_, class_low, _, _, n0, n1, ..] = ip;
        *class_low |= ecn.bits() << 4;
        [*n0, *n1] = (l4_bytes as u16).to_be_bytes();
    }

    /// Copies `H` bytes of the template into the frame. Returns their last `I` bytes, the IP header.
    #[inline(always)]
    fn write_template<'a, const H: usize, const I: usize>(
        &self,
        frame: &'a mut [u8],
    ) -> Option<&'a mut [u8; I]> {
        let front = frame.first_chunk_mut::<H>()?;
        *front = *self.header.first_chunk::<H>()?;
        front.last_chunk_mut::<I>()
    }

    /// Writes the TCP checksum of a complete frame after [`Path::write`]. Returns the metadata to seal the frame with.
    ///
    /// If the device completes checksums, the field receives the sum of the pseudo-header instead.
    #[inline]
    pub fn finish_tcp(&self, frame: &mut [u8], tcp_header_bytes: usize) -> TxMeta {
        let segment = frame.get_mut(self.header_bytes()..).unwrap_or_default();
        let pseudo = u32::from(self.pseudo_sum) + segment.len() as u32;
        let value = if self.flags.contains(Flags::OFFLOADED) {
            checksum::fold(pseudo)
        } else {
            // The old value of the field is subtracted from the sum. To store 0 first would delay the pass over the
            // segment until that store is done.
            let stale = u16::from_be_bytes(array_at(segment, TCP_CHECKSUM_AT));
            !checksum::fold(pseudo + checksum::sum(segment) + u32::from(!stale))
        };
        if let Some(field) = segment.get_mut(TCP_CHECKSUM_AT..).and_then(<[u8]>::first_chunk_mut::<2>) {
            *field = value.to_be_bytes();
        }
        TxMeta {
            l2_bytes: self.link_bytes() as u8,
            l3_bytes: self.ip_bytes() as u8,
            l4_bytes: tcp_header_bytes as u8,
            offloads: self.offloads(),
        }
    }

    #[inline]
    fn offloads(&self) -> TxOffloads {
        match (self.flags.contains(Flags::OFFLOADED), self.flags.contains(Flags::IPV6)) {
            (false, _) => TxOffloads::empty(),
            (true, false) => TxOffloads::TCP_CHECKSUM,
            (true, true) => TxOffloads::TCP_CHECKSUM_IPV6,
        }
    }
}

/// Returns the `N` bytes from `at` on, or zeroes if there are fewer.
#[inline(always)]
fn array_at<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    bytes.get(at..).and_then(<[u8]>::first_chunk::<N>).copied().unwrap_or([0; N])
}

#[cfg(test)]
mod tests;
