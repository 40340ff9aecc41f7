//! The header of virtio-net before each frame, and super-segments: several TCP segments that cross
//! the kernel as one frame.
//!
//! Takes frames to send, gives the header and the slices of one write. Takes the header of a
//! received frame, gives what is known of its checksums or the reason to drop it. The kernel is the
//! end of the link: it computes checksums where the data leaves the host, if it does.
//!
//! ```text
//!  sent     | headers A | payload A |  | headers B | payload B |  | headers C | payload C |
//!  written  | virtio-net: gso_size = length of A | headers A' | payload A | payload B | payload C |
//! ```
//!
//! Segments join only if cutting the super-segment again gives their bytes: one flow, consecutive
//! sequence numbers, equal lengths but for a shorter last one, and headers that are equal but for
//! the fields that the kernel counts up. So each FPDU stays at the start of its segment (RFC 5044
//! s5.1). The frames themselves do not change, and TCP retains each of them.
//!
//! Source: Virtio 1.2 s5.1.6 (`struct virtio_net_hdr`, in the byte order of the host).
#![forbid(unsafe_code)]

use arrayvec::ArrayVec;
use ironwarp_arch::checksum;
use ironwarp_stats::Counter;
use ironwarp_types::limits::BURST_FRAMES;
use std::io::IoSlice;

use super::LINK_BYTES_MAX;
use crate::pool::PoolSealed;
use crate::{Checksum, RxMeta, Sealed, TxMeta, TxOffloads};

/// The length of the header. There is no field for the number of buffers.
pub(super) const HEADER_BYTES: usize = 10;

/// [`Vnet::flags`]: the checksum at `csum_start` + `csum_offset` is the sum of the pseudo-header.
const NEEDS_CSUM: u8 = 1;
/// [`Vnet::flags`]: the sender or a card has verified the checksum.
const DATA_VALID: u8 = 2;
/// [`Vnet::gso_type`]: not a super-segment.
const GSO_NONE: u8 = 0;
const GSO_TCPV4: u8 = 1;
const GSO_TCPV6: u8 = 4;
/// A bit of [`Vnet::gso_type`]: the first segment reports a reduced window.
const GSO_ECN: u8 = 0x80;

/// The checksum in a TCP header.
const TCP_CHECKSUM_AT: usize = 16;
const TCP_FLAGS_AT: usize = 13;
const ACK: u8 = 0x10;
const PSH: u8 = 0x08;

/// Headers of a segment at most: Ethernet, IPv6 and TCP with all options.
const SEGMENT_HEADERS_MAX: usize = 14 + 40 + 60;
/// An Ethernet header without a VLAN tag. The kernel cuts no tagged super-segments.
const ETHERNET_BYTES: u8 = 14;
const TCP_BYTES_MIN: u8 = 20;

/// `struct virtio_net_hdr`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Vnet {
    pub(super) flags: u8,
    pub(super) gso_type: u8,
    pub(super) hdr_len: u16,
    pub(super) gso_size: u16,
    pub(super) csum_start: u16,
    pub(super) csum_offset: u16,
}

impl Vnet {
    pub(super) fn decode(&[flags, gso_type, h0, h1, g0, g1, s0, s1, o0, o1]: &[u8; HEADER_BYTES]) -> Self {
        Vnet {
            flags,
            gso_type,
            hdr_len: u16::from_ne_bytes([h0, h1]),
            gso_size: u16::from_ne_bytes([g0, g1]),
            csum_start: u16::from_ne_bytes([s0, s1]),
            csum_offset: u16::from_ne_bytes([o0, o1]),
        }
    }

    pub(super) fn encode(&self) -> [u8; HEADER_BYTES] {
        let [h0, h1] = self.hdr_len.to_ne_bytes();
        let [g0, g1] = self.gso_size.to_ne_bytes();
        let [s0, s1] = self.csum_start.to_ne_bytes();
        let [o0, o1] = self.csum_offset.to_ne_bytes();
        [self.flags, self.gso_type, h0, h1, g0, g1, s0, s1, o0, o1]
    }

    /// Returns the header of a frame that is sent alone.
    fn of(tx: TxMeta) -> Self {
        match segment_offload(tx) {
            None => Vnet::default(),
            Some(_) => Vnet {
                flags: NEEDS_CSUM,
                csum_start: u16::from(tx.l2_bytes) + u16::from(tx.l3_bytes),
                csum_offset: TCP_CHECKSUM_AT as u16,
                ..Vnet::default()
            },
        }
    }

    /// Returns whether a received frame consists of several segments.
    pub(super) fn is_super_segment(&self) -> bool {
        self.gso_type != GSO_NONE
    }

    /// Returns what is known of the checksums of a received frame of `frame_bytes`.
    ///
    /// # Errors
    /// The reason to drop it: it is longer than the link's frames and no super-segment, or its
    /// header cannot be true.
    pub(super) fn verdict(&self, frame_bytes: usize, mtu_bytes: u16) -> Result<RxMeta, Counter> {
        match self.gso_type & !GSO_ECN {
            _ if self.gso_type == GSO_NONE => {
                if frame_bytes > usize::from(mtu_bytes) + LINK_BYTES_MAX {
                    return Err(Counter::PortRxTooLong);
                }
            }
            GSO_TCPV4 | GSO_TCPV6 => {
                let is_segment = (1..=mtu_bytes).contains(&self.gso_size);
                if !is_segment || usize::from(self.hdr_len) > frame_bytes {
                    return Err(Counter::PortRxBadOffload);
                }
            }
            _ => return Err(Counter::PortRxBadOffload),
        }
        let l4_checksum = match self.flags & (NEEDS_CSUM | DATA_VALID) {
            0 => Checksum::Unknown,
            DATA_VALID => Checksum::Good,
            _ => {
                let end = usize::from(self.csum_start) + usize::from(self.csum_offset) + 2;
                if end > frame_bytes {
                    return Err(Counter::PortRxBadOffload);
                }
                // A sum at another place is not TCP's, which is verified then.
                let is_tcp = usize::from(self.csum_offset) == TCP_CHECKSUM_AT;
                if is_tcp { Checksum::Good } else { Checksum::Unknown }
            }
        };
        Ok(RxMeta { l4_checksum, ..RxMeta::default() })
    }
}

/// Returns the kind of super-segment that a frame can be part of, if its checksum is left to the
/// kernel.
fn segment_offload(tx: TxMeta) -> Option<u8> {
    if tx.offloads.contains(TxOffloads::TCP_CHECKSUM) {
        Some(GSO_TCPV4)
    } else {
        tx.offloads.contains(TxOffloads::TCP_CHECKSUM_IPV6).then_some(GSO_TCPV6)
    }
}

/// The offsets in the headers of a segment.
#[derive(Clone, Copy)]
struct Layout {
    l3: usize,
    l4: usize,
    end: usize,
    is_v6: bool,
}

/// A copy of the headers of a segment.
type Headers = ArrayVec<u8, SEGMENT_HEADERS_MAX>;

impl Layout {
    /// Returns the layout of a segment that may be part of a super-segment: with payload, no flag
    /// but ACK and PSH, not tagged, and over IPv4 not to be fragmented, so that its identification
    /// does not matter (RFC 6864 s4.1).
    fn of(frame: &PoolSealed) -> Option<Self> {
        let (tx, bytes) = (frame.tx(), frame.bytes());
        let is_v6 = segment_offload(tx)? == GSO_TCPV6;
        let l3 = usize::from(tx.l2_bytes);
        let l4 = l3 + usize::from(tx.l3_bytes);
        let end = l4 + usize::from(tx.l4_bytes);
        let is_plain = tx.l2_bytes == ETHERNET_BYTES
            && tx.l3_bytes == if is_v6 { 40 } else { 20 }
            && tx.l4_bytes >= TCP_BYTES_MIN
            && (end + 1..=usize::from(u16::MAX)).contains(&bytes.len())
            && end <= SEGMENT_HEADERS_MAX
            && bytes.get(l4 + TCP_FLAGS_AT).is_some_and(|flags| flags & !PSH == ACK)
            && (is_v6 || bytes.get(l3 + 6).is_some_and(|flags| *flags == 0x40));
        is_plain.then_some(Layout { l3, l4, end, is_v6 })
    }

    /// Returns the headers without the fields in which the segments of a super-segment differ.
    fn common(&self, frame: &PoolSealed) -> Headers {
        let mut headers: Headers = frame.bytes().iter().take(self.end).copied().collect();
        let differing: &[(usize, usize)] = match self.is_v6 {
            // Length, or length, identification and checksum; sequence number, TCP's checksum.
            true => &[(self.l3 + 4, 2), (self.l4 + 4, 4), (self.l4 + TCP_CHECKSUM_AT, 2)],
            false => &[(self.l3 + 2, 4), (self.l3 + 10, 2), (self.l4 + 4, 4), (self.l4 + TCP_CHECKSUM_AT, 2)],
        };
        for (at, len) in differing {
            headers.iter_mut().skip(*at).take(*len).for_each(|byte| *byte = 0);
        }
        if let Some(flags) = headers.get_mut(self.l4 + TCP_FLAGS_AT) {
            *flags &= !PSH;
        }
        headers
    }

    fn seq(&self, frame: &PoolSealed) -> u32 {
        let seq = frame.bytes().get(self.l4 + 4..).and_then(<[u8]>::first_chunk);
        seq.map_or(0, |seq| u32::from_be_bytes(*seq))
    }

    fn payload<'a>(&self, frame: &'a PoolSealed) -> &'a [u8] {
        frame.bytes().get(self.end..).unwrap_or_default()
    }

    /// Returns how many frames from the front form one super-segment. The first has this layout.
    fn run(&self, frames: &[PoolSealed]) -> usize {
        let Some((first, rest)) = frames.split_first() else { return 0 };
        let segment = self.payload(first).len();
        // IP counts up to 65535 bytes; the Ethernet header is outside.
        let room = usize::from(u16::MAX) + self.l3 - self.end;
        let (mut common, mut payload, mut count) = (None, segment, 1);
        for frame in rest {
            let tx = frame.tx();
            let bytes = frame.bytes().len().saturating_sub(self.end);
            if tx != first.tx()
                || !(1..=segment).contains(&bytes)
                || payload + bytes > room
                || self.seq(frame) != self.seq(first).wrapping_add(payload as u32)
                || *common.get_or_insert_with(|| self.common(first)) != self.common(frame)
            {
                break;
            }
            (payload, count) = (payload + bytes, count + 1);
            if bytes < segment {
                break;
            }
        }
        count
    }

    /// Returns the headers of a super-segment whose last segment is `last`. Its checksum field has
    /// the sum of the pseudo-header, which contains the length.
    fn joined_headers(&self, first: &PoolSealed, last: &PoolSealed, payload: usize) -> Headers {
        let mut headers: Headers = first.bytes().iter().take(self.end).copied().collect();
        let added = (payload - self.payload(first).len()) as u16;
        let length_at = self.l3 + if self.is_v6 { 4 } else { 2 };
        replace(&mut headers, length_at, |length| length.wrapping_add(added));
        if !self.is_v6 {
            replace(&mut headers, self.l3 + 10, |_| 0);
            let sum = headers.get(self.l3..self.l4).map_or(0, checksum::sum);
            replace(&mut headers, self.l3 + 10, |_| !checksum::fold(sum));
        }
        replace(&mut headers, self.l4 + TCP_CHECKSUM_AT, |sum| {
            checksum::fold(u32::from(sum) + u32::from(added))
        });
        let flags_at = self.l4 + TCP_FLAGS_AT;
        if let (Some(to), Some(flags)) = (headers.get_mut(flags_at), last.bytes().get(flags_at)) {
            *to = *flags;
        }
        headers
    }
}

/// Changes a field of two bytes.
fn replace(headers: &mut Headers, at: usize, change: impl FnOnce(u16) -> u16) {
    if let Some(field) = headers.get_mut(at..).and_then(<[u8]>::first_chunk_mut) {
        *field = change(u16::from_be_bytes(*field)).to_be_bytes();
    }
}

/// What one write takes from the front of a burst.
pub(super) struct Write {
    /// The frames that it consists of.
    pub(super) frames: usize,
    /// The header of virtio-net, and of a super-segment those of its segment.
    front: ArrayVec<u8, { HEADER_BYTES + SEGMENT_HEADERS_MAX }>,
    /// Where the payload of each frame begins.
    payload_at: usize,
}

impl Write {
    /// Plans the next write. `joins`: segments become super-segments.
    #[inline]
    pub(super) fn next(frames: &[PoolSealed], joins: bool) -> Option<Self> {
        let first = frames.first()?;
        let layout = if joins && frames.len() > 1 { Layout::of(first) } else { None };
        if let Some(layout) = layout
            && let Some(joined) = Self::joined(layout, frames.get(..layout.run(frames))?)
        {
            return Some(joined);
        }
        let front = Vnet::of(first.tx()).encode().into_iter().collect();
        Some(Write { frames: 1, front, payload_at: 0 })
    }

    /// Returns the write of several segments.
    fn joined(layout: Layout, frames: &[PoolSealed]) -> Option<Self> {
        let [first, .., last] = frames else { return None };
        let vnet = Vnet {
            gso_type: if layout.is_v6 { GSO_TCPV6 } else { GSO_TCPV4 },
            hdr_len: layout.end as u16,
            gso_size: layout.payload(first).len() as u16,
            ..Vnet::of(first.tx())
        };
        let payload = frames.iter().map(|frame| layout.payload(frame).len()).sum();
        let headers = layout.joined_headers(first, last, payload);
        let front = vnet.encode().into_iter().chain(headers).collect();
        Some(Write { frames: frames.len(), front, payload_at: layout.end })
    }

    /// Returns the slices of the write.
    #[inline]
    pub(super) fn slices<'a>(
        &'a self,
        frames: &'a [PoolSealed],
    ) -> ArrayVec<IoSlice<'a>, { BURST_FRAMES + 1 }> {
        let payloads = frames.iter().take(self.frames);
        let payloads = payloads.map(|frame| frame.bytes().get(self.payload_at..).unwrap_or_default());
        core::iter::once(&self.front[..]).chain(payloads).map(IoSlice::new).collect()
    }
}

#[cfg(test)]
#[path = "vnet_tests.rs"]
mod tests;
