//! Super-segments: several TCP segments that reach a device as one frame, and that it cuts again.
//!
//! Takes the frames of a burst, gives the headers of the frame that replaces the first of them:
//!
//! ```text
//!  sent     | headers A | payload A |  | headers B | payload B |  | headers C | payload C |
//!  one frame               | headers A' | payload A | payload B | payload C |, cut each |A| bytes
//! ```
//!
//! Segments join only if cutting the super-segment again gives their bytes: one flow, consecutive
//! sequence numbers, equal lengths but for a shorter last one, and headers that are equal but for
//! the fields that a device counts up. So each FPDU stays at the start of its segment (RFC 5044
//! s5.1). The frames themselves do not change: TCP retains each of them, and after a loss repeats
//! the segments that were lost.
//!
//! The decision is here for every device that joins: [`crate::kernel`] and `crate::dpdk`.
#![forbid(unsafe_code)]

use arrayvec::ArrayVec;
use ironwarp_arch::checksum;

use crate::{Sealed, TxMeta, TxOffloads};

/// The checksum in a TCP header.
pub(crate) const TCP_CHECKSUM_AT: usize = 16;
const TCP_FLAGS_AT: usize = 13;
pub(crate) const ACK: u8 = 0x10;
pub(crate) const PSH: u8 = 0x08;

/// Headers of a segment at most: Ethernet, IPv6 and TCP with all options.
pub(crate) const SEGMENT_HEADERS_MAX: usize = 14 + 40 + 60;
/// An Ethernet header without a VLAN tag. The kernel cuts no tagged super-segments.
const ETHERNET_BYTES: u8 = 14;
const TCP_BYTES_MIN: u8 = 20;

/// The headers of a segment.
type Headers = ArrayVec<u8, SEGMENT_HEADERS_MAX>;

/// What replaces the first frames of a burst.
pub(crate) struct SuperSegment {
    /// The frames that it consists of, at least two.
    pub(crate) frames: usize,
    /// Its headers. IP's checksum is filled in; TCP's checksum is the sum of the pseudo-header with
    /// the length of the whole. The payload of each frame begins after as many bytes.
    pub(crate) headers: Headers,
    /// The payload of each segment but the last, in bytes.
    pub(crate) segment_bytes: u16,
    /// Whether the segments are IPv6 packets.
    pub(crate) is_v6: bool,
}

impl SuperSegment {
    /// Returns what the first frames of a burst join to, unless the first is to be sent alone.
    #[inline]
    pub(crate) fn join<S: Sealed>(frames: &[S]) -> Option<Self> {
        if frames.len() < 2 {
            return None;
        }
        let layout = Layout::of(frames.first()?)?;
        let (count, payload) = layout.run(frames);
        let [first, .., last] = frames.get(..count)? else { return None };
        Some(SuperSegment {
            frames: count,
            headers: layout.joined_headers(first, last, payload),
            segment_bytes: layout.payload(first).len() as u16,
            is_v6: layout.is_v6,
        })
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

impl Layout {
    /// Returns the layout of a segment that may be part of a super-segment: with payload, no flag
    /// but ACK and PSH, not tagged, and over IPv4 not to be fragmented, so that its identification
    /// does not matter (RFC 6864 s4.1).
    fn of(frame: &impl Sealed) -> Option<Self> {
        let (tx, bytes) = (frame.tx(), frame.bytes());
        let is_v6 = !tx.offloads.contains(TxOffloads::TCP_CHECKSUM);
        let l3 = usize::from(tx.l2_bytes);
        let l4 = l3 + usize::from(tx.l3_bytes);
        let end = l4 + usize::from(tx.l4_bytes);
        let is_plain = leaves_checksum(tx)
            && tx.l2_bytes == ETHERNET_BYTES
            && tx.l3_bytes == if is_v6 { 40 } else { 20 }
            && tx.l4_bytes >= TCP_BYTES_MIN
            && (end + 1..=usize::from(u16::MAX)).contains(&bytes.len())
            && end <= SEGMENT_HEADERS_MAX
            && bytes.get(l4 + TCP_FLAGS_AT).is_some_and(|flags| flags & !PSH == ACK)
            && (is_v6 || bytes.get(l3 + 6).is_some_and(|flags| *flags == 0x40));
        is_plain.then_some(Layout { l3, l4, end, is_v6 })
    }

    /// Returns which bits of two segments' headers must be equal: all but those of the fields that
    /// a device counts up.
    fn mask(&self) -> [u8; SEGMENT_HEADERS_MAX] {
        let mut mask = [0xff; SEGMENT_HEADERS_MAX];
        let differing: &[(usize, usize)] = match self.is_v6 {
            // Length, or length, identification and checksum; sequence number, TCP's checksum.
            true => &[(self.l3 + 4, 2), (self.l4 + 4, 4), (self.l4 + TCP_CHECKSUM_AT, 2)],
            false => &[(self.l3 + 2, 4), (self.l3 + 10, 2), (self.l4 + 4, 4), (self.l4 + TCP_CHECKSUM_AT, 2)],
        };
        for (at, len) in differing {
            mask.iter_mut().skip(*at).take(*len).for_each(|bits| *bits = 0);
        }
        if let Some(flags) = mask.get_mut(self.l4 + TCP_FLAGS_AT) {
            *flags = !PSH;
        }
        mask
    }

    fn headers<'a>(&self, frame: &'a impl Sealed) -> &'a [u8] {
        frame.bytes().get(..self.end).unwrap_or_default()
    }

    fn seq(&self, frame: &impl Sealed) -> u32 {
        let seq = frame.bytes().get(self.l4 + 4..).and_then(<[u8]>::first_chunk);
        seq.map_or(0, |seq| u32::from_be_bytes(*seq))
    }

    fn payload<'a>(&self, frame: &'a impl Sealed) -> &'a [u8] {
        frame.bytes().get(self.end..).unwrap_or_default()
    }

    /// Returns how many frames from the front form one super-segment, and its payload in bytes. The
    /// first has this layout.
    fn run<S: Sealed>(&self, frames: &[S]) -> (usize, usize) {
        let Some((first, rest)) = frames.split_first() else { return (0, 0) };
        let segment = self.payload(first).len();
        // IP counts up to 65535 bytes; the Ethernet header is outside.
        let room = usize::from(u16::MAX) + self.l3 - self.end;
        let (mask, headers) = (self.mask(), self.headers(first));
        let differ = |other: &[u8]| {
            let pairs = headers.iter().zip(other).zip(&mask);
            // Tuning: without an early end it is a few vector instructions.
            pairs.fold(0, |bits, ((one, other), mask)| bits | (one ^ other) & mask) != 0
        };
        let (mut payload, mut count) = (segment, 1);
        for frame in rest {
            let tx = frame.tx();
            let bytes = frame.bytes().len().saturating_sub(self.end);
            if tx != first.tx()
                || !(1..=segment).contains(&bytes)
                || payload + bytes > room
                || self.seq(frame) != self.seq(first).wrapping_add(payload as u32)
                || differ(self.headers(frame))
            {
                break;
            }
            (payload, count) = (payload + bytes, count + 1);
            if bytes < segment {
                break;
            }
        }
        (count, payload)
    }

    /// Returns the headers of a super-segment whose last segment is `last`. Its checksum field has
    /// the sum of the pseudo-header, which contains the length.
    fn joined_headers<S: Sealed>(&self, first: &S, last: &S, payload: usize) -> Headers {
        let mut headers: Headers = self.headers(first).iter().copied().collect();
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

/// Returns whether a frame's TCP checksum is left to the device.
pub(crate) fn leaves_checksum(tx: TxMeta) -> bool {
    tx.offloads.intersects(TxOffloads::TCP_CHECKSUM | TxOffloads::TCP_CHECKSUM_IPV6)
}
