//! TCP headers: parsing and writing.
//!
//! ```text
//!  0       4       8       12      16      20
//!  | ports | seq   | ack   |o f win| sum u | options ... | payload
//! ```
//!
//! Source: RFC 9293 s3.1. A header is parsed once, by value. Parsing fails only for a data offset outside the segment,
//! which `net` has already checked. Cost: twenty octets in one fixed-size read.

mod options;
mod syn;

use bitflags::bitflags;
use ironwarp_net::{FastFrame, FastSegment, TcpSegment};
use ironwarp_port::Frame;
use ironwarp_types::{Ecn, Seq};

use crate::queue::Piece;

pub(crate) use options::{OptionBytes, Options, SackBlock, SackBlocks, TIMESTAMPS_BYTES, Timestamps};
pub(crate) use syn::SynOptions;

/// The size of a header's fixed part, in bytes.
pub(crate) const HEADER_BYTES: usize = 20;

bitflags! {
    /// The control bits.
    #[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
    pub(crate) struct Flags: u8 {
        const FIN = 1;
        const SYN = 2;
        const RST = 4;
        const PSH = 8;
        const ACK = 16;
        const URG = 32;
        const ECE = 64;
        const CWR = 128;
    }
}

/// A parsed segment.
///
/// `seq`, `start` and `end` move together when the part outside the window is trimmed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Segment {
    pub(crate) seq: Seq,
    pub(crate) ack: Seq,
    /// The window field, not scaled.
    pub(crate) window: u16,
    pub(crate) flags: Flags,
    /// The offset of the payload in the frame.
    pub(crate) start: u16,
    pub(crate) end: u16,
    /// The ECN bits of the packet's IP header.
    pub(crate) ecn: Ecn,
    pub(crate) options: Options,
}

impl Segment {
    /// Parses the header. Returns `None` when the data offset does not fit the segment.
    #[inline]
    pub(crate) fn parse<F: Frame>(arrived: &TcpSegment<F>) -> Option<Segment> {
        let l4 = arrived.l4();
        let header = l4.first_chunk::<HEADER_BYTES>()?;
        let [_, _, _, _, s0, s1, s2, s3, a0, a1, a2, a3, offset, flags, w0, w1, ..] = *header;
        let header_bytes = usize::from(offset >> 4) * 4;
        if header_bytes < HEADER_BYTES || header_bytes > l4.len() {
            return None;
        }
        let flags = Flags::from_bits_retain(flags);
        let list = l4.get(HEADER_BYTES..header_bytes)?;
        Some(Segment {
            seq: Seq(u32::from_be_bytes([s0, s1, s2, s3])),
            ack: Seq(u32::from_be_bytes([a0, a1, a2, a3])),
            window: u16::from_be_bytes([w0, w1]),
            flags,
            start: arrived.l4_offset + header_bytes as u16,
            end: arrived.l4_end,
            ecn: arrived.ecn,
            options: Options::parse(list, flags),
        })
    }

    /// Returns the payload length in bytes.
    #[inline]
    pub(crate) fn len(&self) -> u32 {
        u32::from(self.end.saturating_sub(self.start))
    }

    /// Returns SEG.LEN of RFC 9293: payload, SYN and FIN.
    pub(crate) fn seq_len(&self) -> u32 {
        self.len() + u32::from(self.has(Flags::SYN)) + u32::from(self.has(Flags::FIN))
    }

    /// Returns whether any of these bits is set.
    #[inline]
    pub(crate) fn has(&self, flags: Flags) -> bool {
        self.flags.intersects(flags)
    }

    /// Returns what header prediction compares, if flags and options are those of a fast segment.
    #[inline]
    pub(crate) fn fast_header(&self) -> Option<FastHeader> {
        let Segment { seq, ack, window, start, end, ecn, .. } = *self;
        let is_fast = self.flags.difference(Flags::PSH) == Flags::ACK && self.options.sack.is_empty();
        let timestamps = self.options.timestamps;
        is_fast.then_some(FastHeader { seq, ack, window, start, end, ecn, timestamps })
    }

    /// Returns the raw octets of the options.
    pub(crate) fn option_list<'a, F: Frame>(&self, arrived: &'a TcpSegment<F>) -> &'a [u8] {
        let from = usize::from(arrived.l4_offset) + HEADER_BYTES;
        arrived.frame.bytes().get(from..usize::from(self.start)).unwrap_or_default()
    }
}

/// What header prediction compares of a segment without SACK blocks whose flags are ACK and perhaps PSH.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct FastHeader {
    pub(crate) seq: Seq,
    pub(crate) ack: Seq,
    /// The window field, not scaled.
    pub(crate) window: u16,
    /// The range of the payload in the frame.
    pub(crate) start: u16,
    pub(crate) end: u16,
    pub(crate) ecn: Ecn,
    pub(crate) timestamps: Option<Timestamps>,
}

impl FastHeader {
    /// Returns the payload length in bytes.
    #[inline]
    pub(crate) fn len(&self) -> u32 {
        u32::from(self.end.saturating_sub(self.start))
    }

    /// Returns the payload in its frame.
    #[inline(always)]
    pub(crate) fn piece<F>(&self, frame: F) -> Piece<F> {
        Piece { frame, seq: self.seq, start: self.start, end: self.end }
    }
}

impl From<&FastFrame<'_>> for FastHeader {
    #[inline(always)]
    fn from(frame: &FastFrame<'_>) -> Self {
        FastHeader {
            seq: frame.seq(),
            ack: frame.ack(),
            window: frame.window(),
            start: frame.start(),
            end: frame.end(),
            ecn: frame.ecn(),
            timestamps: frame.timestamps().map(|[tsval, tsecr]| Timestamps { tsval, tsecr }),
        }
    }
}

/// The header of a segment to send.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct TxHeader {
    pub(crate) seq: Seq,
    pub(crate) ack: Seq,
    /// The window field, already scaled.
    pub(crate) window: u16,
    pub(crate) flags: Flags,
    /// Placed before all other options.
    pub(crate) timestamps: Option<Timestamps>,
    /// The ECN bits of the packet: ECT for payload that is sent for the first time (RFC 3168 s6.1.5).
    pub(crate) ecn: Ecn,
}

impl TxHeader {
    /// Returns the header of a segment without options and with a window of zero.
    pub(crate) const fn bare(seq: Seq, ack: Seq, flags: Flags) -> Self {
        TxHeader { seq, ack, window: 0, flags, timestamps: None, ecn: Ecn::NotEct }
    }

    /// Returns the length of the header with timestamps, in bytes: the offset of further options or of the payload.
    #[inline]
    pub(crate) const fn header_bytes(&self) -> usize {
        HEADER_BYTES + if self.timestamps.is_some() { TIMESTAMPS_BYTES } else { 0 }
    }

    /// Returns the header as [`Path::write_fast`](ironwarp_net::Path::write_fast) takes it.
    #[inline(always)]
    pub(crate) fn fast_segment(&self, ports: [u16; 2], ident: u16) -> FastSegment {
        FastSegment {
            ports,
            seq: self.seq,
            ack: self.ack,
            flags: self.flags.bits(),
            window: self.window,
            timestamps: self.timestamps.map(|Timestamps { tsval, tsecr }| [tsval, tsecr]),
            ident,
            ecn: self.ecn,
        }
    }

    /// Writes the header and timestamps to the front of `l4`, with a checksum of zero. `more_options_bytes`, a multiple
    /// of four, counts the options that follow.
    #[inline]
    pub(crate) fn write(&self, l4: &mut [u8], [local, remote]: [u16; 2], more_options_bytes: usize) {
        let Some((header, options)) = l4.split_first_chunk_mut::<HEADER_BYTES>() else { return };
        let offset = ((self.header_bytes() + more_options_bytes) / 4) as u8;
        header[0..2].copy_from_slice(&local.to_be_bytes());
        header[2..4].copy_from_slice(&remote.to_be_bytes());
        header[4..8].copy_from_slice(&self.seq.0.to_be_bytes());
        header[8..12].copy_from_slice(&self.ack.0.to_be_bytes());
        header[12] = offset << 4;
        header[13] = self.flags.bits();
        header[14..16].copy_from_slice(&self.window.to_be_bytes());
        header[16..20].fill(0);
        if let Some(timestamps) = self.timestamps
            && let Some(room) = options.first_chunk_mut::<TIMESTAMPS_BYTES>()
        {
            *room = timestamps.encode();
        }
    }
}
