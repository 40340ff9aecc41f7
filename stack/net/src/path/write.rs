//! The writer of a segment's link, IP and TCP headers.
//!
//! The payload, and options other than timestamps, are in place behind room for the headers. The
//! sum of the headers comes from the values that are written, so only what follows them is read.
//!
//! Source: RFC 9293 s3.1, RFC 7323 appendix A, RFC 1071, RFC 8200 s8.1 (pseudo-header).

use ironwarp_port::{TxMeta, TxOffloads};
use ironwarp_types::Ecn;

use super::{Flags, Path};
use crate::checksum;
use crate::ip::{IPV4_BYTES, IPV6_BYTES, UDP_BYTES, V4_FIXED_SUM};
use crate::link::{ETHERNET_BYTES, TAG_BYTES};
use crate::tcp_header::{TCP_HEADER_BYTES, TIMESTAMPS_BYTES, TxHeader};

/// The ends of the IP headers of all paths.
const V4: usize = ETHERNET_BYTES + IPV4_BYTES;
const V4_TAGGED: usize = V4 + TAG_BYTES;
const V6: usize = ETHERNET_BYTES + IPV6_BYTES;
const V6_TAGGED: usize = V6 + TAG_BYTES;

/// A TCP header with timestamps.
const STAMPED: usize = TCP_HEADER_BYTES + TIMESTAMPS_BYTES;

/// Bytes of the headers that [`Path::write_fast`] writes: those of a segment with timestamps.
pub const FAST_HEADER_BYTES: usize = V4 + STAMPED;

/// What the headers of a segment contain apart from the path's addresses.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TxSegment<'a> {
    /// The local and the remote port.
    pub ports: [u16; 2],
    /// The IPv4 identification; with "do not fragment" any value is allowed (RFC 6864 s4.1).
    pub ident: u16,
    /// The TCP header.
    pub header: &'a TxHeader,
}

impl Path {
    /// Writes all headers of a frame, with both checksums, and returns the metadata to seal the
    /// frame with. Changes nothing if the frame is shorter than the headers.
    ///
    /// `more_options_bytes`, a multiple of four, counts the options that are in place after the
    /// timestamps. `rest_sum` is the sum of what follows the timestamps as
    /// [`checksum::sum`](ironwarp_arch::checksum::sum) returns it, if that is known. If the device
    /// completes TCP's checksum, its field receives the sum of the pseudo-header.
    #[inline(always)]
    pub fn write(
        &self,
        frame: &mut [u8],
        segment: TxSegment<'_>,
        more_options_bytes: usize,
        rest_sum: Option<u32>,
    ) -> TxMeta {
        match self.flags.intersects(Flags::TAGGED.union(Flags::IPV6)) {
            false => self.write_as::<V4>(frame, segment, more_options_bytes, rest_sum),
            true => self.write_tagged_or_v6(frame, segment, more_options_bytes, rest_sum),
        }
    }

    #[inline(never)]
    fn write_tagged_or_v6(
        &self,
        frame: &mut [u8],
        segment: TxSegment<'_>,
        more_options_bytes: usize,
        rest_sum: Option<u32>,
    ) -> TxMeta {
        match (self.flags.contains(Flags::IPV6), self.flags.contains(Flags::TAGGED)) {
            (false, _) => self.write_as::<V4_TAGGED>(frame, segment, more_options_bytes, rest_sum),
            (true, false) => self.write_as::<V6>(frame, segment, more_options_bytes, rest_sum),
            (true, true) => self.write_as::<V6_TAGGED>(frame, segment, more_options_bytes, rest_sum),
        }
    }

    /// [`Path::write`] with an IP header that ends at `L3`.
    #[inline(always)]
    fn write_as<const L3: usize>(
        &self,
        frame: &mut [u8],
        segment: TxSegment<'_>,
        more_options_bytes: usize,
        rest_sum: Option<u32>,
    ) -> TxMeta {
        let offloads = self.offloads();
        if let Some((l3, l4)) = frame.split_first_chunk_mut::<L3>() {
            let bytes = (l4.len(), more_options_bytes);
            let checksum = |headers: u64, pseudo: u64, rest: &[u8]| match offloads.is_empty() {
                true => !fold(headers + pseudo + u64::from(rest_sum.unwrap_or_else(|| checksum::sum(rest)))),
                false => fold(pseudo),
            };
            match segment.header.timestamps {
                Some(_) => {
                    if let Some((tcp, rest)) = l4.split_first_chunk_mut::<STAMPED>() {
                        self.write_headers(l3, tcp, segment, bytes, |sum, pseudo| {
                            checksum(sum, pseudo, rest)
                        });
                    }
                }
                None => {
                    if let Some((tcp, rest)) = l4.split_first_chunk_mut::<TCP_HEADER_BYTES>() {
                        self.write_headers(l3, tcp, segment, bytes, |sum, pseudo| {
                            checksum(sum, pseudo, rest)
                        });
                    }
                }
            }
        }
        TxMeta {
            l2_bytes: self.link_bytes() as u8,
            l3_bytes: self.ip_bytes() as u8,
            l4_bytes: (segment.header.header_bytes() + more_options_bytes) as u8,
            offloads,
        }
    }

    /// Writes the link and IP headers of a frame with a packet of any transport in place behind
    /// them, and returns the metadata to seal the frame with. If it is encapsulated, also that of
    /// UDP, from `local_udp_port`. Changes nothing if the frame is shorter than the headers.
    pub fn write_ip(&self, frame: &mut [u8], ident: u16, local_udp_port: u16) -> TxMeta {
        let l3 = self.header_bytes();
        if let (Some((headers, l4)), Some(template)) = (frame.split_at_mut_checked(l3), self.header.get(..l3))
        {
            headers.copy_from_slice(template);
            match self.flags.contains(Flags::IPV6) {
                true => complete_v6(headers.last_chunk_mut(), l4.len(), Ecn::NotEct),
                false => self.complete_v4(headers.last_chunk_mut(), l4.len(), ident, Ecn::NotEct),
            }
            if self.flags.contains(Flags::UDP) {
                self.write_udp(l4, local_udp_port);
            }
        }
        let (l2_bytes, l3_bytes) = (self.link_bytes() as u8, self.ip_bytes() as u8);
        TxMeta { l2_bytes, l3_bytes, l4_bytes: 0, offloads: TxOffloads::empty() }
    }

    /// Writes a UDP header in front of its data (RFC 768).
    #[cold]
    fn write_udp(&self, udp: &mut [u8], local_port: u16) {
        let udp_bytes = udp.len();
        let Some(header) = udp.first_chunk_mut::<UDP_BYTES>() else { return };
        let [[s0, s1], [d0, d1]] = [local_port, self.udp_port()].map(u16::to_be_bytes);
        let [n0, n1] = (udp_bytes as u16).to_be_bytes();
        *header = [s0, s1, d0, d1, n0, n1, 0, 0];
        let sum = u64::from(self.pseudo_sum) + udp_bytes as u64 + u64::from(checksum::sum(udp));
        // RFC 768: a checksum of zero is sent as all ones.
        let field = match !fold(sum) {
            0 => u16::MAX,
            field => field,
        };
        if let Some([.., c0, c1]) = udp.first_chunk_mut::<UDP_BYTES>() {
            [*c0, *c1] = field.to_be_bytes();
        }
    }

    /// Has routers fragment an IPv4 packet that [`Path::write_ip`] has written, if it is too large
    /// for a link. An IPv6 packet stays as it is.
    pub fn allow_fragments(&self, frame: &mut [u8]) {
        let headers = frame.get_mut(..self.header_bytes());
        let ip = headers.and_then(|headers| headers.last_chunk_mut::<IPV4_BYTES>());
        if let Some([_, _, _, _, _, _, flags, _, _, _, c0, c1, ..]) = ip
            && !self.flags.contains(Flags::IPV6)
        {
            // RFC 1624 s3, equation 3.
            let sum = u32::from(!u16::from_be_bytes([*c0, *c1])) + u32::from(!(u16::from(*flags) << 8));
            *flags = 0;
            [*c0, *c1] = (!checksum::fold(sum)).to_be_bytes();
        }
    }

    /// Returns whether [`Path::write_fast`] writes the headers of this path: IPv4 without a VLAN
    /// tag.
    #[inline(always)]
    pub fn is_fast(&self) -> bool {
        !self.flags.intersects(Flags::TAGGED.union(Flags::IPV6))
    }

    /// Returns whether the device completes TCP's checksum.
    #[inline(always)]
    pub fn is_offloaded(&self) -> bool {
        self.flags.contains(Flags::OFFLOADED)
    }

    /// [`Path::write`] for a [fast](Path::is_fast) path and a header with timestamps. `payload` is
    /// the length of the payload in bytes and its sum, which only a path needs that is not
    /// `OFFLOADED`.
    #[inline(always)]
    pub fn write_fast<const OFFLOADED: bool>(
        &self,
        headers: &mut [u8; FAST_HEADER_BYTES],
        segment: TxSegment<'_>,
        (payload_bytes, payload_sum): (u16, u32),
    ) -> TxMeta {
        debug_assert!(self.is_fast() && self.is_offloaded() == OFFLOADED);
        debug_assert!(segment.header.timestamps.is_some());
        if let Some((l3, l4)) = headers.split_first_chunk_mut::<V4>()
            && let Some(l4) = l4.first_chunk_mut::<STAMPED>()
        {
            let bytes = (STAMPED + usize::from(payload_bytes), 0);
            self.write_headers(l3, l4, segment, bytes, |headers, pseudo| match OFFLOADED {
                false => !fold(headers.wrapping_add(pseudo).wrapping_add(payload_sum.into())),
                true => fold(pseudo),
            });
        }
        let offloads = if OFFLOADED { TxOffloads::TCP_CHECKSUM } else { TxOffloads::empty() };
        let (l2_bytes, l3_bytes) = (ETHERNET_BYTES as u8, IPV4_BYTES as u8);
        TxMeta { l2_bytes, l3_bytes, l4_bytes: STAMPED as u8, offloads }
    }

    /// Writes all headers of a segment of `l4_bytes`. `checksum` returns TCP's from the sums of
    /// header and pseudo-header.
    #[inline(always)]
    fn write_headers<const L3: usize, const L4: usize>(
        &self,
        l3: &mut [u8; L3],
        l4: &mut [u8; L4],
        segment: TxSegment<'_>,
        (l4_bytes, more_options_bytes): (usize, usize),
        checksum: impl FnOnce(u64, u64) -> u16,
    ) {
        if let Some(template) = self.header.first_chunk() {
            *l3 = *template;
        }
        match L3 {
            V6 | V6_TAGGED => complete_v6(l3.last_chunk_mut(), l4_bytes, segment.header.ecn),
            _ => self.complete_v4(l3.last_chunk_mut(), l4_bytes, segment.ident, segment.header.ecn),
        }
        let words = segment.header.words(segment.ports, L4 + more_options_bytes);
        // Seven words of 32 bits, and `checksum` adds two: 64 bits hold them.
        let sum = words.iter().fold(0u64, |sum, &word| sum.wrapping_add(word.into()));
        let urgent = u32::from(checksum(sum, u64::from(self.pseudo_sum) + l4_bytes as u64)) << 16;
        let [ports, seq, ack, control, options @ ..] = words;
        for (place, word) in l4.as_chunks_mut::<4>().0.iter_mut().zip([ports, seq, ack, control, urgent]) {
            *place = word.to_be_bytes();
        }
        for (place, word) in l4.as_chunks_mut::<4>().0.iter_mut().skip(5).zip(options) {
            *place = word.to_be_bytes();
        }
    }

    /// Writes the fields of an IPv4 header that differ from the template. With the stored sum the
    /// header checksum takes three additions, less than an offload request to the device.
    #[inline(always)]
    fn complete_v4(&self, ip: Option<&mut [u8; IPV4_BYTES]>, l4_bytes: usize, ident: u16, ecn: Ecn) {
        let Some([_, class, n0, n1, i0, i1, _, _, hop_limit, _, c0, c1, ..]) = ip else { return };
        *class |= ecn.bits();
        let total = (l4_bytes as u16).wrapping_add(IPV4_BYTES as u16);
        let variable = u32::from(*hop_limit) << 8 | u32::from(*class);
        let sum = u32::from(self.pseudo_sum) + V4_FIXED_SUM + variable + u32::from(total) + u32::from(ident);
        [*n0, *n1] = total.to_be_bytes();
        [*i0, *i1] = ident.to_be_bytes();
        [*c0, *c1] = (!checksum::fold(sum)).to_be_bytes();
    }
}

/// The same of an IPv6 header. RFC 3168 s5: the ECN bits are the lowest of the traffic class.
#[inline(always)]
fn complete_v6(ip: Option<&mut [u8; IPV6_BYTES]>, l4_bytes: usize, ecn: Ecn) {
    let Some([_, class_low, _, _, n0, n1, ..]) = ip else { return };
    *class_low |= ecn.bits() << 4;
    [*n0, *n1] = (l4_bytes as u16).to_be_bytes();
}

/// Returns the 16-bit sum.
#[inline(always)]
fn fold(sum: u64) -> u16 {
    checksum::fold((sum.wrapping_add(sum.rotate_left(32)) >> 32) as u32)
}
