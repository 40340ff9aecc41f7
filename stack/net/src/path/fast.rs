//! All headers of a fast segment in one pass: IPv4 without a VLAN tag, and no options but
//! timestamps.
//!
//! The counterpart of [`FastFrame`](crate::FastFrame). Every field has a fixed offset, and the sum
//! of the headers comes from the values that are written, so only the payload is read.
//!
//! Source: RFC 9293 s3.1, RFC 7323 appendix A, RFC 1071.

use ironwarp_port::{TxMeta, TxOffloads};
use ironwarp_types::{Ecn, Seq};

use super::{Flags, Path};
use crate::checksum;
use crate::ip::IPV4_BYTES;
use crate::link::ETHERNET_BYTES;

/// Bytes of the link and network headers.
const L3_END: usize = ETHERNET_BYTES + IPV4_BYTES;

/// Bytes of all headers, without options and with timestamps.
const BARE_BYTES: usize = L3_END + 20;
const TIMESTAMPS_BYTES: usize = L3_END + 32;

/// Bytes of the headers that [`Path::write_fast_headers`] writes: those of a segment with
/// timestamps.
pub const FAST_HEADER_BYTES: usize = TIMESTAMPS_BYTES;

/// NOP, NOP, kind 8, length 10.
const TIMESTAMPS_HEAD: u32 = u32::from_be_bytes([1, 1, 8, 10]);

/// What the headers of a segment contain apart from the path's addresses.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FastSegment {
    /// The local and the remote port.
    pub ports: [u16; 2],
    /// The sequence number.
    pub seq: Seq,
    /// The acknowledgement number.
    pub ack: Seq,
    /// The flags, as in the header.
    pub flags: u8,
    /// The window field, already scaled.
    pub window: u16,
    /// TSval and TSecr.
    pub timestamps: Option<[u32; 2]>,
    /// The IPv4 identification.
    pub ident: u16,
    /// The ECN bits of the packet.
    pub ecn: Ecn,
}

impl Path {
    /// Writes all headers of a frame whose payload is in place, with both checksums. `payload_sum`
    /// is the sum of the payload as [`checksum::sum`](ironwarp_arch::checksum::sum) returns it, if
    /// that is known. Returns the metadata to seal the frame with, or `None` if the path has a VLAN
    /// tag or is of IPv6, or if the frame is shorter than the headers.
    #[inline]
    pub fn write_fast(
        &self,
        frame: &mut [u8],
        segment: &FastSegment,
        payload_sum: Option<u32>,
    ) -> Option<TxMeta> {
        if self.flags.intersects(Flags::TAGGED.union(Flags::IPV6).union(Flags::GENERAL)) {
            return None;
        }
        let written = match segment.timestamps {
            Some(_) => self.write_fast_of::<TIMESTAMPS_BYTES>(frame, segment, payload_sum),
            None => self.write_fast_of::<BARE_BYTES>(frame, segment, payload_sum),
        };
        let offloaded = self.flags.contains(Flags::OFFLOADED);
        written.map(|l4_bytes| TxMeta {
            l2_bytes: ETHERNET_BYTES as u8,
            l3_bytes: IPV4_BYTES as u8,
            l4_bytes,
            offloads: if offloaded { TxOffloads::TCP_CHECKSUM } else { TxOffloads::empty() },
        })
    }

    /// Returns whether [`Path::write_fast_headers`] writes the headers of this path: IPv4 without a
    /// VLAN tag, and a device that leaves checksums to us.
    #[inline(always)]
    pub fn is_fast(&self) -> bool {
        self.flags.is_empty()
    }

    /// Writes all headers of a segment with timestamps, with both checksums, for a
    /// [fast](Path::is_fast) path. `payload` is the length of the payload in bytes and its sum.
    /// Returns the metadata to seal the frame with.
    #[inline(always)]
    pub fn write_fast_headers(
        &self,
        header: &mut [u8; FAST_HEADER_BYTES],
        segment: &FastSegment,
        (payload_bytes, payload_sum): (u16, u32),
    ) -> TxMeta {
        debug_assert!(self.is_fast() && segment.timestamps.is_some());
        let l4_bytes = FAST_HEADER_BYTES - L3_END + usize::from(payload_bytes);
        self.write_header(header, segment, l4_bytes, |headers| {
            !fold(headers.wrapping_add(payload_sum.into()))
        });
        TxMeta {
            l2_bytes: ETHERNET_BYTES as u8,
            l3_bytes: IPV4_BYTES as u8,
            l4_bytes: (FAST_HEADER_BYTES - L3_END) as u8,
            offloads: TxOffloads::empty(),
        }
    }

    /// Writes `H` bytes of headers. Returns the length of the TCP header.
    #[inline(always)]
    fn write_fast_of<const H: usize>(
        &self,
        frame: &mut [u8],
        segment: &FastSegment,
        payload_sum: Option<u32>,
    ) -> Option<u8> {
        let (header, payload) = frame.split_first_chunk_mut::<H>()?;
        let l4_bytes = H - L3_END + payload.len();
        self.write_header(header, segment, l4_bytes, |headers| {
            if self.flags.contains(Flags::OFFLOADED) {
                return fold(u64::from(self.pseudo_sum) + l4_bytes as u64);
            }
            let payload_sum = payload_sum.unwrap_or_else(|| checksum::sum(payload));
            debug_assert_eq!(checksum::fold(payload_sum), checksum::fold(checksum::sum(payload)));
            !fold(headers + u64::from(payload_sum))
        });
        Some((H - L3_END) as u8)
    }

    /// Writes all headers of a segment of `l4_bytes`. `checksum` returns TCP's from the sum of
    /// pseudo-header and header.
    #[inline(always)]
    fn write_header<const H: usize>(
        &self,
        header: &mut [u8; H],
        segment: &FastSegment,
        l4_bytes: usize,
        checksum: impl FnOnce(u64) -> u16,
    ) {
        let Some((l3, l4)) = header.split_first_chunk_mut::<L3_END>() else { return };
        if let Some(template) = self.header.first_chunk() {
            *l3 = *template;
        }
        if let Some(ip) = l3.last_chunk_mut() {
            self.complete_v4(ip, l4_bytes, segment.ident, segment.ecn);
        }
        let words = segment.words(l4.len());
        // Seven words of 32 bits, and the caller adds two: 64 bits hold them.
        let headers = words.iter().fold(0u64, |sum, &word| sum.wrapping_add(word.into()));
        let urgent =
            u32::from(checksum(headers.wrapping_add(u64::from(self.pseudo_sum) + l4_bytes as u64))) << 16;
        let [ports, seq, ack, control, options @ ..] = words;
        for (place, word) in l4.as_chunks_mut::<4>().0.iter_mut().zip([ports, seq, ack, control, urgent]) {
            *place = word.to_be_bytes();
        }
        for (place, word) in l4.as_chunks_mut::<4>().0.iter_mut().skip(5).zip(options) {
            *place = word.to_be_bytes();
        }
    }
}

impl FastSegment {
    /// Returns the words of a TCP header of `bytes` except that of the checksum: four, and three of
    /// the timestamps or zeroes.
    #[inline(always)]
    fn words(&self, bytes: usize) -> [u32; 7] {
        let [local, remote] = self.ports;
        let ports = u32::from(local) << 16 | u32::from(remote);
        let offset = (bytes as u32 / 4) << 28;
        let control = offset | u32::from(self.flags) << 16 | u32::from(self.window);
        let [head, tsval, tsecr] =
            self.timestamps.map_or([0; 3], |[tsval, tsecr]| [TIMESTAMPS_HEAD, tsval, tsecr]);
        [ports, self.seq.0, self.ack.0, control, head, tsval, tsecr]
    }
}

/// Returns the 16-bit sum.
#[inline(always)]
fn fold(sum: u64) -> u16 {
    checksum::fold((sum.wrapping_add(sum.rotate_left(32)) >> 32) as u32)
}
