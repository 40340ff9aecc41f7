//! TCP headers: parsing, and the options of headers that are sent.
//!
//! ```text
//!  0       4       8       12      16      20
//!  | ports | seq   | ack   |o f win| sum u | options ... | payload
//! ```
//!
//! Source: RFC 9293 s3.1. A header is parsed once, by value. Parsing fails for a data offset
//! outside the segment. Cost: twenty octets in one fixed-size read.

mod options;
mod syn;

use ironwarp_net::{FastFrame, Packet};
pub(crate) use ironwarp_net::{
    TCP_HEADER_BYTES as HEADER_BYTES, TIMESTAMPS_BYTES, TcpFlags as Flags, Timestamps, TxHeader,
};
use ironwarp_port::Frame;
use ironwarp_types::{Ecn, Seq};

pub(crate) use options::{OptionBytes, Options, SackBlock, SackBlocks};
pub(crate) use syn::SynOptions;

/// A parsed segment.
///
/// `seq`, `start` and `end` move together when the part outside the window is trimmed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
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
    pub(crate) fn parse<F: Frame>(arrived: &Packet<F>) -> Option<Segment> {
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

    /// Returns whether flags and options are those of a fast segment: ACK, perhaps PSH, and no
    /// option but timestamps.
    #[inline(always)]
    pub(crate) fn has_fast_layout(&self) -> bool {
        self.flags.difference(Flags::PSH) == Flags::ACK && !self.options.has_sack()
    }

    /// Returns the raw octets of the options.
    pub(crate) fn option_list<'a, F: Frame>(&self, arrived: &'a Packet<F>) -> &'a [u8] {
        let from = usize::from(arrived.l4_offset) + HEADER_BYTES;
        arrived.frame.bytes().get(from..usize::from(self.start)).unwrap_or_default()
    }
}

/// The segment of a frame in the fast layout.
impl From<&FastFrame<'_>> for Segment {
    #[inline(always)]
    fn from(frame: &FastFrame<'_>) -> Self {
        Segment {
            seq: frame.seq(),
            ack: frame.ack(),
            window: frame.window(),
            flags: Flags::ACK,
            start: frame.start(),
            end: frame.end(),
            ecn: frame.ecn(),
            options: Options::only(frame.timestamps()),
        }
    }
}
