//! The way to a peer: its link and network headers as a template, and what depends on the length alone.
//!
//! A frame is written in three steps: TCP resizes it and writes header and payload behind [`Path::header_bytes`];
//! [`Path::write`] puts the headers in front; [`Path::finish_tcp`] fills the TCP checksum in, or leaves the device
//! the pseudo-header's sum, and says what the device must know.
//!
//! ```text
//! | link, 14 | VLAN tag, 0 or 4 (before the type) | IPv4, 20, or IPv6, 40 |
//! ```
//! Source: RFC 894, RFC 791 s3.1, RFC 8200 s3, RFC 9293 s3.1 and RFC 8200 s8.1 (pseudo-headers). Cost: one copy of 34 to
//! 58 bytes, three patched fields and no pass over the template: its sum is known.
//!
//! A `Path` fits one cache line. Set-up asks `Net::route` for it and waits; replies to a segment use the link address that the
//! segment came from. So no packet exists before its path (RFC 1122 s2.3.2.2 has nothing to queue). Neighbours of live
//! connections are looked up again twice a minute and whenever a route changes, some connections in each iteration; a path
//! whose neighbour has moved is rewritten in place. The port number of the path occupies a byte of padding.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use bitflags::bitflags;
use ironwarp_port::{TxMeta, TxOffloads};
use ironwarp_types::{Ecn, MacAddr};

use crate::checksum;
use crate::config::Marking;
use crate::ip::{self, IPV4_BYTES, IPV6_BYTES, V4_FIXED_SUM};
use crate::link::{ETHERNET_BYTES, Link, TAG_BYTES, TYPE_IPV4, TYPE_IPV6, VlanTag};

/// A template of every part there can be.
const HEADER_BYTES_MAX: usize = ETHERNET_BYTES + TAG_BYTES + IPV6_BYTES;

/// Where TCP keeps its checksum, from the start of its header.
const TCP_CHECKSUM_AT: usize = 16;

/// A station: where it is on the link and in the network.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Station {
    /// Its link address.
    pub mac: MacAddr,
    /// Its network address.
    pub addr: IpAddr,
}

bitflags! {
    /// What a template consists of, and who finishes its frames.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    struct Shape: u8 {
        const TAGGED = 1;
        const IPV6 = 2;
        /// The device fills TCP checksums in.
        const OFFLOADED = 4;
    }
}

/// The headers that lead to one peer. Plain data of one cache line; copies are independent.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Path {
    header: [u8; HEADER_BYTES_MAX],
    shape: Shape,
    /// Which of our ports it leaves through.
    port: u8,
    mtu_bytes: u16,
    /// Sum of addresses and protocol, folded: the pseudo-header without its length.
    pseudo_sum: u16,
}

const _: () = assert!(size_of::<Path>() <= 64);

impl Path {
    /// The way from one station's link and network address to another's of the same family, untagged. `mtu_bytes`
    /// bounds the IP packet; `tx_offloads` is what the device can do.
    pub fn new(ours: Station, theirs: Station, mtu_bytes: u16, tx_offloads: TxOffloads) -> Self {
        let link = Link { mac: ours.mac, vlan: None };
        Path::over(&link, Marking::default(), ours.addr, theirs, mtu_bytes, tx_offloads)
    }

    /// The same in a VLAN.
    pub fn tagged(
        ours: Station,
        theirs: Station,
        vlan: VlanTag,
        mtu_bytes: u16,
        tx_offloads: TxOffloads,
    ) -> Self {
        let link = Link { mac: ours.mac, vlan: Some(vlan) };
        Path::over(&link, Marking::default(), ours.addr, theirs, mtu_bytes, tx_offloads)
    }

    pub(crate) fn over(
        link: &Link,
        marking: Marking,
        ours: IpAddr,
        theirs: Station,
        mtu_bytes: u16,
        offloads: TxOffloads,
    ) -> Self {
        let mut path = Path {
            header: [0; HEADER_BYTES_MAX],
            shape: if link.vlan.is_some() { Shape::TAGGED } else { Shape::empty() },
            port: 0,
            mtu_bytes,
            pseudo_sum: ip::pseudo_sum(ours, theirs.addr, ip::TCP),
        };
        match (ours, theirs.addr) {
            (IpAddr::V4(ours), IpAddr::V4(remote)) => {
                path.shape.set(Shape::OFFLOADED, offloads.contains(TxOffloads::TCP_CHECKSUM));
                path.fill(link, theirs.mac, TYPE_IPV4, &ip::v4_template((ours, remote), ip::TCP, marking));
            }
            (ours, remote) => {
                path.shape |= Shape::IPV6;
                path.shape.set(Shape::OFFLOADED, offloads.contains(TxOffloads::TCP_CHECKSUM_IPV6));
                let ends = (as_v6(ours), as_v6(remote));
                let next = (ip::TCP, marking.hop_limit);
                path.fill(link, theirs.mac, TYPE_IPV6, &ip::v6_header(ends, next, marking.class(), 0));
            }
        }
        path
    }

    fn fill(&mut self, link: &Link, to: MacAddr, ethertype: u16, network: &[u8]) {
        let behind = link.write(&mut self.header, to, ethertype).unwrap_or_default();
        if let Some(place) = behind.get_mut(..network.len()) {
            place.copy_from_slice(network);
        }
    }

    /// Bytes in front of the TCP header: 34 in IPv4, 54 in IPv6, 4 more in a VLAN.
    #[inline]
    pub const fn header_bytes(&self) -> usize {
        self.link_bytes() + self.ip_bytes()
    }

    /// Bytes of the link header.
    #[inline]
    const fn link_bytes(&self) -> usize {
        ETHERNET_BYTES + (self.shape.bits() & Shape::TAGGED.bits()) as usize * TAG_BYTES
    }

    /// Bytes of the network header: 20 in IPv4, 40 in IPv6. They count against [`Path::mtu_bytes`].
    #[inline]
    pub const fn ip_bytes(&self) -> usize {
        if self.shape.contains(Shape::IPV6) { IPV6_BYTES } else { IPV4_BYTES }
    }

    /// The number of the port that it leaves through.
    #[inline]
    pub const fn port(&self) -> u8 {
        self.port
    }

    /// Which port that is.
    pub(crate) fn through(mut self, port: u8) -> Self {
        self.port = port;
        self
    }

    /// The largest IP packet that this way takes, in bytes.
    pub const fn mtu_bytes(&self) -> u16 {
        self.mtu_bytes
    }

    /// Where frames go on the link.
    pub fn remote_mac(&self) -> MacAddr {
        let [a, b, c, d, e, f, ..] = self.header;
        MacAddr([a, b, c, d, e, f])
    }

    /// Where they go from now on.
    pub(crate) fn set_remote_mac(&mut self, mac: MacAddr) {
        self.header[..6].copy_from_slice(&mac.0);
    }

    /// The peer, or the far end that the gateway leads to.
    pub fn remote_addr(&self) -> IpAddr {
        self.addresses().1
    }

    /// Ours.
    pub fn local_addr(&self) -> IpAddr {
        self.addresses().0
    }

    fn addresses(&self) -> (IpAddr, IpAddr) {
        let network = self.header.get(self.link_bytes()..).unwrap_or_default();
        if self.shape.contains(Shape::IPV6) {
            let at = |at: usize| {
                network.get(at..).and_then(<[u8]>::first_chunk::<16>).copied().unwrap_or_default()
            };
            (IpAddr::from(at(8)), IpAddr::from(at(24)))
        } else {
            let at =
                |at: usize| network.get(at..).and_then(<[u8]>::first_chunk::<4>).copied().unwrap_or_default();
            (IpAddr::from(at(12)), IpAddr::from(at(16)))
        }
    }

    /// Writes the headers in front of a segment of `l4_bytes`, TCP header included.
    ///
    /// `ident` is the IPv4 identification: with "do not fragment" set any value will do (RFC 6864 s4.1). The header
    /// checksum is always written: from the known sum it is three additions, less than asking the device.
    /// A frame shorter than the headers is left alone.
    #[inline]
    pub fn write(&self, frame: &mut [u8], l4_bytes: usize, ident: u16, ecn: Ecn) {
        debug_assert!(l4_bytes + self.ip_bytes() <= usize::from(u16::MAX));
        match (self.shape.contains(Shape::IPV6), self.shape.contains(Shape::TAGGED)) {
            (false, false) => self.write_v4::<{ ETHERNET_BYTES + IPV4_BYTES }>(frame, l4_bytes, ident, ecn),
            (true, false) => self.write_v6::<{ ETHERNET_BYTES + IPV6_BYTES }>(frame, l4_bytes, ecn),
            (false, true) => {
                self.write_v4::<{ ETHERNET_BYTES + TAG_BYTES + IPV4_BYTES }>(frame, l4_bytes, ident, ecn);
            }
            (true, true) => self.write_v6::<HEADER_BYTES_MAX>(frame, l4_bytes, ecn),
        }
    }

    /// Headers of `H` bytes that end with IPv4's.
    #[inline(always)]
    fn write_v4<const H: usize>(&self, frame: &mut [u8], l4_bytes: usize, ident: u16, ecn: Ecn) {
        let (Some(front), Some(header)) = (frame.first_chunk_mut::<H>(), self.header.first_chunk::<H>())
        else {
            return;
        };
        let total = (l4_bytes + IPV4_BYTES) as u16;
        *front = *header;
        let ip = H - IPV4_BYTES;
        let marking = u32::from(front[ip + 8]) << 8 | u32::from(front[ip + 1] | ecn.bits());
        let known = u32::from(self.pseudo_sum) + V4_FIXED_SUM + marking;
        let checksum = !checksum::fold(known + u32::from(total) + u32::from(ident));
        front[ip + 1] |= ecn.bits();
        front[ip + 2..ip + 4].copy_from_slice(&total.to_be_bytes());
        front[ip + 4..ip + 6].copy_from_slice(&ident.to_be_bytes());
        front[ip + 10..ip + 12].copy_from_slice(&checksum.to_be_bytes());
    }

    /// Headers of `H` bytes that end with IPv6's. RFC 3168 s5: the congestion bits are the traffic class's lowest.
    #[inline(always)]
    fn write_v6<const H: usize>(&self, frame: &mut [u8], l4_bytes: usize, ecn: Ecn) {
        let (Some(front), Some(header)) = (frame.first_chunk_mut::<H>(), self.header.first_chunk::<H>())
        else {
            return;
        };
        *front = *header;
        let ip = H - IPV6_BYTES;
        front[ip + 1] |= ecn.bits() << 4;
        front[ip + 4..ip + 6].copy_from_slice(&(l4_bytes as u16).to_be_bytes());
    }

    /// Fills in the TCP checksum of a whole frame, headers written, and answers what sealing it wants.
    ///
    /// Where the device fills checksums in, the field receives the pseudo-header's sum instead.
    #[inline]
    pub fn finish_tcp(&self, frame: &mut [u8], tcp_header_bytes: usize) -> TxMeta {
        let segment = frame.get_mut(self.header_bytes()..).unwrap_or_default();
        let pseudo = u32::from(self.pseudo_sum) + segment.len() as u32;
        let value = if self.shape.contains(Shape::OFFLOADED) {
            checksum::fold(pseudo)
        } else {
            // What the field holds is taken out of the sum: to store a zero first would make the pass over the
            // segment wait for that store.
            let stale =
                segment.get(TCP_CHECKSUM_AT..).and_then(<[u8]>::first_chunk).copied().unwrap_or_default();
            !checksum::fold(pseudo + checksum::sum(segment) + u32::from(!u16::from_be_bytes(stale)))
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
        match (self.shape.contains(Shape::OFFLOADED), self.shape.contains(Shape::IPV6)) {
            (false, _) => TxOffloads::empty(),
            (true, false) => TxOffloads::TCP_CHECKSUM,
            (true, true) => TxOffloads::TCP_CHECKSUM_IPV6,
        }
    }
}

/// Both ends of a way are of one family; an IPv4 end of an IPv6 way has its mapped form (RFC 4291 s2.5.5.2).
fn as_v6(addr: IpAddr) -> Ipv6Addr {
    match addr {
        IpAddr::V4(v4) => Ipv4Addr::to_ipv6_mapped(&v4),
        IpAddr::V6(v6) => v6,
    }
}

#[cfg(test)]
#[path = "path_tests.rs"]
mod tests;
