//! The path to a peer: a template of the link and network headers.
//!
//! TCP resizes a frame and writes its payload behind room for the headers. [`Path::write`] writes
//! all headers, and returns the metadata for the device.
//!
//! ```text
//! | link, 14 | VLAN tag, 0 or 4 (before the EtherType) | IPv4, 20, or IPv6, 40 |
//! ```
//! A `Path` fits in one cache line. A connection gets it from [`Net::route`](crate::Net::route) at
//! set-up; a reply to a segment uses the link address that the segment came from. So there is a
//! path before there is a packet. The core loop refreshes the paths of live connections twice a
//! minute and after each route change.
//!
//! Source: RFC 894, RFC 791 s3.1, RFC 8200 s3, RFC 9293 s3.1 and RFC 8200 s8.1 (pseudo-headers).
//! Cost: one copy of 34 to 58 bytes and three changed fields. The sum of the template is stored, so
//! there is no pass over it.

mod write;

use core::net::IpAddr;

pub use write::{FAST_HEADER_BYTES, TxSegment};

use bitflags::bitflags;
use ironwarp_port::TxOffloads;
use ironwarp_types::MacAddr;

use crate::config::{IpHeaderDefaults, TransportProtocol};
use crate::family::as_v6;
use crate::ip::{self, IPV4_BYTES, IPV6_BYTES, UDP, UDP_BYTES};
use crate::link::{ETHERNET_BYTES, Link, TAG_BYTES, TYPE_IPV4, TYPE_IPV6};

const HEADER_BYTES_MAX: usize = ETHERNET_BYTES + TAG_BYTES + IPV6_BYTES;

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
        /// Packets are encapsulated in UDP. The port of the peer is where the template has the
        /// length, which differs with each packet.
        const UDP = 8;
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

    /// Returns the path from a local address to a station of the same family. `mtu_bytes` limits
    /// the IP packet; `offloads` are those of the device.
    pub(crate) fn new(
        link: &Link,
        (transport, defaults): (TransportProtocol, IpHeaderDefaults),
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
            pseudo_sum: ip::pseudo_sum(local, remote.addr, transport.number),
        };
        match (local, remote.addr) {
            (IpAddr::V4(local), IpAddr::V4(dst)) => {
                let header = ip::v4_template((local, dst), transport.number, defaults);
                path.fill(link, remote.mac, TYPE_IPV4, &header);
            }
            (local, dst) => {
                path.flags |= Flags::IPV6;
                let addresses = (as_v6(local), as_v6(dst));
                let next = (transport.number, defaults.hop_limit);
                let header = ip::v6_header(addresses, next, defaults.traffic_class(), 0);
                path.fill(link, remote.mac, TYPE_IPV6, &header);
            }
        }
        path.set_offloads(transport, offloads);
        path
    }

    /// Sets what the device completes: TCP's checksum, of this family.
    pub(crate) fn set_offloads(&mut self, transport: TransportProtocol, offloads: TxOffloads) {
        let checksum = match self.flags.contains(Flags::IPV6) {
            true => TxOffloads::TCP_CHECKSUM_IPV6,
            false => TxOffloads::TCP_CHECKSUM,
        };
        let is_offloaded = transport == TransportProtocol::TCP && offloads.contains(checksum);
        self.flags.set(Flags::OFFLOADED, is_offloaded);
    }

    fn fill(&mut self, link: &Link, to: MacAddr, ethertype: u16, ip_header: &[u8]) {
        let packet = link.write(&mut self.header, to, ethertype).unwrap_or_default();
        if let Some(header) = packet.get_mut(..ip_header.len()) {
            header.copy_from_slice(ip_header);
        }
    }

    /// Returns the offset of the transport's header in a frame: 34 bytes for IPv4, 54 for IPv6, and
    /// 4 more with a VLAN tag.
    #[inline]
    pub const fn header_bytes(&self) -> usize {
        self.link_bytes() + self.ip_bytes()
    }

    #[inline]
    const fn link_bytes(&self) -> usize {
        ETHERNET_BYTES + (self.flags.bits() & Flags::TAGGED.bits()) as usize * TAG_BYTES
    }

    /// Returns the length of the IP header: 20 bytes for IPv4, 40 for IPv6. [`Path::mtu_bytes`]
    /// includes it.
    #[inline]
    pub const fn ip_bytes(&self) -> usize {
        if self.flags.contains(Flags::IPV6) { IPV6_BYTES } else { IPV4_BYTES }
    }

    /// Returns the offset of the transport's header in a frame, behind that of UDP if there is one.
    #[inline]
    pub const fn transport_offset(&self) -> usize {
        self.link_bytes() + self.overhead_bytes()
    }

    /// Returns the length of the headers of IP and of UDP, if packets are encapsulated. Not for
    /// TCP, which is not.
    #[inline]
    pub const fn overhead_bytes(&self) -> usize {
        self.ip_bytes() + if self.flags.contains(Flags::UDP) { UDP_BYTES } else { 0 }
    }

    /// Makes it a path of a transport. Encapsulates its packets in UDP, to this port of the peer
    /// (RFC 6951). 0: not.
    #[cold]
    pub fn set_transport(&mut self, transport: TransportProtocol, port: u16) {
        let protocol = if port == 0 { transport.number } else { UDP };
        let (local, remote) = self.addresses();
        self.pseudo_sum = ip::pseudo_sum(local, remote, protocol);
        self.flags.set(Flags::UDP, port != 0);
        let (at, [p0, p1]) = (self.link_bytes(), port.to_be_bytes());
        match (self.flags.contains(Flags::IPV6), self.header.get_mut(at..).unwrap_or_default()) {
            (true, [_, _, _, _, n0, n1, next, ..]) | (false, [_, _, n0, n1, _, _, _, _, _, next, ..]) => {
                (*n0, *n1, *next) = (p0, p1, protocol);
            }
            _ => {}
        }
    }

    /// Returns the UDP port of the peer, or 0 if packets are not encapsulated.
    pub fn udp_port(&self) -> u16 {
        match self.flags.contains(Flags::UDP) {
            true => {
                let length_at = if self.flags.contains(Flags::IPV6) { 4 } else { 2 };
                u16::from_be_bytes(array_at(&self.header, self.link_bytes() + length_at))
            }
            false => 0,
        }
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

    /// Returns the largest IP packet of this path, in bytes.
    pub const fn mtu_bytes(&self) -> u16 {
        self.mtu_bytes
    }

    /// Returns the largest frame of this path, in bytes.
    pub const fn frame_bytes_max(&self) -> usize {
        self.link_bytes() + self.mtu_bytes as usize
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
