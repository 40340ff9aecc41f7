//! The way to a peer: its Ethernet and IPv4 headers as a template, and what depends on the length alone.
//!
//! A frame is written in three steps: TCP resizes it and writes header and payload behind [`Path::header_bytes`];
//! [`Path::write`] puts the headers in front; [`Path::finish_tcp`] fills the TCP checksum in, or leaves the device
//! the pseudo-header's sum, and says what the device must know.
//!
//! Source: RFC 894, RFC 791 s3.1, RFC 9293 s3.1 (pseudo-header). Cost: one 34-byte copy, three patched fields and
//! no pass over the template: its sum is known.

use core::net::{IpAddr, Ipv4Addr};

use ironwarp_port::{TxMeta, TxOffloads};
use ironwarp_types::{Ecn, MacAddr};
use smoltcp::phy::ChecksumCapabilities;
use smoltcp::wire::{
    EthernetAddress, EthernetFrame, EthernetProtocol, EthernetRepr, IpProtocol, Ipv4Packet, Ipv4Repr,
};

use crate::checksum;

pub(crate) const ETHERNET_BYTES: usize = 14;
pub(crate) const IPV4_BYTES: usize = 20;
pub(crate) const HEADER_BYTES: usize = ETHERNET_BYTES + IPV4_BYTES;

/// Where TCP keeps its checksum, from the start of its header.
const TCP_CHECKSUM_AT: usize = 16;

/// Time to live: RFC 1122 s3.2.1.7 asks for a settable default; 64 is the recommended one (RFC 1700).
const HOP_LIMIT: u8 = 64;

/// A station: where it is on the link and in the network.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Station {
    /// Its link address.
    pub mac: MacAddr,
    /// Its network address.
    pub addr: Ipv4Addr,
}

/// The headers that lead to one peer. Plain data of at most one cache line; copies are independent.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Path {
    header: [u8; HEADER_BYTES],
    mtu_bytes: u16,
    /// Sum of the template's IPv4 words; total length, identification and checksum are zero there.
    header_sum: u32,
    /// Sum of addresses and protocol: the pseudo-header without its length.
    pseudo_sum: u32,
    offloads: TxOffloads,
}

const _: () = assert!(size_of::<Path>() <= 64);

impl Path {
    /// The way from one station's link and network address to another's. `mtu_bytes` bounds the IP packet;
    /// `tx_offloads` is what the device can do.
    pub fn new(ours: Station, theirs: Station, mtu_bytes: u16, tx_offloads: TxOffloads) -> Self {
        let header = template(ours, theirs);
        let ip = header.get(ETHERNET_BYTES..).unwrap_or_default();
        let addresses = ip.get(12..).unwrap_or_default();
        Path {
            header_sum: u32::from(checksum::fold(checksum::sum(ip))),
            pseudo_sum: u32::from(checksum::fold(checksum::sum(addresses)))
                + u32::from(u8::from(IpProtocol::Tcp)),
            header,
            mtu_bytes,
            offloads: tx_offloads & TxOffloads::TCP_CHECKSUM,
        }
    }

    /// Bytes in front of the TCP header: 34.
    pub const fn header_bytes(&self) -> usize {
        HEADER_BYTES
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

    /// The peer, or the far end that the gateway leads to.
    pub fn remote_addr(&self) -> IpAddr {
        let [.., a, b, c, d] = self.header;
        IpAddr::V4(Ipv4Addr::new(a, b, c, d))
    }

    /// Writes the headers in front of a segment of `l4_bytes`, TCP header included.
    ///
    /// `ident` is the IP identification: with "do not fragment" set any value will do (RFC 6864 s4.1). The header
    /// checksum is always written: from the known sum it is three additions, less than asking the device.
    /// A frame shorter than the headers is left alone.
    #[inline]
    pub fn write(&self, frame: &mut [u8], l4_bytes: usize, ident: u16, ecn: Ecn) {
        debug_assert!(l4_bytes + IPV4_BYTES <= usize::from(u16::MAX));
        let Some(front) = frame.first_chunk_mut::<HEADER_BYTES>() else { return };
        let total = (l4_bytes + IPV4_BYTES) as u16;
        let checksum =
            !checksum::fold(self.header_sum + u32::from(total) + u32::from(ident) + u32::from(ecn.bits()));
        *front = self.header;
        front[15] |= ecn.bits();
        front[16..18].copy_from_slice(&total.to_be_bytes());
        front[18..20].copy_from_slice(&ident.to_be_bytes());
        front[24..26].copy_from_slice(&checksum.to_be_bytes());
    }

    /// Fills in the TCP checksum of a whole frame, headers written, and answers what sealing it wants.
    ///
    /// Where the device fills checksums in, the field receives the pseudo-header's sum instead.
    #[inline]
    pub fn finish_tcp(&self, frame: &mut [u8], tcp_header_bytes: usize) -> TxMeta {
        let segment = frame.get_mut(HEADER_BYTES..).unwrap_or_default();
        let pseudo = self.pseudo_sum + segment.len() as u32;
        let value = if self.offloads.contains(TxOffloads::TCP_CHECKSUM) {
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
            l2_bytes: ETHERNET_BYTES as u8,
            l3_bytes: IPV4_BYTES as u8,
            l4_bytes: tcp_header_bytes as u8,
            offloads: self.offloads,
        }
    }
}

/// Both headers with length, identification and checksum left zero. "Do not fragment" is set: the path's MTU is
/// learnt, never worked around (RFC 1191 s3).
fn template(ours: Station, theirs: Station) -> [u8; HEADER_BYTES] {
    let mut header = [0u8; HEADER_BYTES];
    emit_headers(&mut header, ours, theirs, IpProtocol::Tcp, 0);
    let mut packet = Ipv4Packet::new_unchecked(&mut header[ETHERNET_BYTES..]);
    packet.set_total_len(0);
    packet.set_checksum(0);
    header
}

/// Writes both headers for a payload of `l4_bytes`, identification zero, checksum right.
pub(crate) fn emit_headers(
    header: &mut [u8; HEADER_BYTES],
    ours: Station,
    theirs: Station,
    next_header: IpProtocol,
    l4_bytes: usize,
) {
    let link = EthernetRepr {
        src_addr: EthernetAddress(ours.mac.0),
        dst_addr: EthernetAddress(theirs.mac.0),
        ethertype: EthernetProtocol::Ipv4,
    };
    let network = Ipv4Repr {
        src_addr: ours.addr,
        dst_addr: theirs.addr,
        next_header,
        payload_len: l4_bytes,
        hop_limit: HOP_LIMIT,
    };
    let mut frame = EthernetFrame::new_unchecked(&mut header[..]);
    link.emit(&mut frame);
    network.emit(&mut Ipv4Packet::new_unchecked(frame.payload_mut()), &ChecksumCapabilities::default());
}

#[cfg(test)]
#[path = "path_tests.rs"]
mod tests;
