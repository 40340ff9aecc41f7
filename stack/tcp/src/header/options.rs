//! The options of every segment: timestamps and selective acknowledgements.
//!
//! Takes the octets between header and payload, at most forty; gives values. One length check and
//! one compare of four octets recognise the two common layouts: no options, and NOP NOP TS, which
//! every segment carries once timestamps are negotiated. All other layouts are parsed option by
//! option, off the fast path.
//!
//! Source: RFC 9293 s3.1 and s3.2, RFC 7323 s3.2 and its appendix A, RFC 2018 s3. An unknown option
//! is skipped by its length (MUST-6). An invalid length ends the list; the options before it remain
//! valid (MUST-7). The first of two options of one kind counts.

use arrayvec::ArrayVec;
use ironwarp_net::TIMESTAMPS_HEAD;
use ironwarp_types::Seq;
use serde::{Deserialize, Serialize};

use super::{Flags, TIMESTAMPS_BYTES, Timestamps};

/// The option space of a header (RFC 9293 s3.1): sixty octets less the fixed twenty.
pub(crate) const OPTIONS_BYTES_MAX: usize = 40;

/// Parses a list that is exactly NOP NOP TS.
#[inline]
fn parse_aligned_timestamps(list: &[u8]) -> Option<Timestamps> {
    let octets: [u8; TIMESTAMPS_BYTES] = list.try_into().ok()?;
    let [w, x, y, z, a, b, c, d, e, f, g, h] = octets;
    let tsval = u32::from_be_bytes([a, b, c, d]);
    let tsecr = u32::from_be_bytes([e, f, g, h]);
    ([w, x, y, z] == TIMESTAMPS_HEAD).then_some(Timestamps { tsval, tsecr })
}

/// Parses the data of the timestamps option.
pub(super) fn parse_timestamps(data: &[u8]) -> Option<Timestamps> {
    let (tsval, tsecr) = data.split_first_chunk::<4>()?;
    let tsval = u32::from_be_bytes(*tsval);
    let tsecr = u32::from_be_bytes(tsecr.try_into().ok()?);
    Some(Timestamps { tsval, tsecr })
}

/// A range held by the receiver: `start` is its first sequence number, `end` the one after its
/// last.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub(crate) struct SackBlock {
    pub(crate) start: Seq,
    pub(crate) end: Seq,
}

impl SackBlock {
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.start == self.end
    }
}

/// SACK blocks. At most four fit the option space (RFC 2018 s3).
pub(crate) type SackBlocks = ArrayVec<SackBlock, 4>;

/// The parsed options of a segment: plain data. Tuning: those of a fast segment stay in registers.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Options {
    pub(crate) timestamps: Option<Timestamps>,
    /// In the order of the option. Every block has `start` before `end`; empty ones fill the rest.
    sack: [SackBlock; 4],
}

impl Options {
    /// Returns a list with no other option.
    #[inline(always)]
    pub(crate) fn only(timestamps: Option<Timestamps>) -> Self {
        Options { timestamps, sack: Default::default() }
    }

    /// Returns whether there are SACK blocks.
    #[inline(always)]
    pub(crate) fn has_sack(&self) -> bool {
        let [first, ..] = self.sack;
        !first.is_empty()
    }

    /// Returns the SACK blocks.
    pub(crate) fn sack(&self) -> SackBlocks {
        self.sack.into_iter().filter(|block| !block.is_empty()).collect()
    }

    /// Parses an option list.
    #[inline]
    pub(crate) fn parse(list: &[u8], flags: Flags) -> Self {
        if list.is_empty() {
            return Options::default();
        }
        match parse_aligned_timestamps(list) {
            Some(timestamps) => Options::only(Some(timestamps)),
            None => Options::parse_any(list, flags),
        }
    }

    #[cold]
    fn parse_any(list: &[u8], flags: Flags) -> Self {
        let mut options = Options::default();
        for (kind, data) in OptionIter(list) {
            match kind {
                KIND_TIMESTAMPS if options.timestamps.is_none() => {
                    options.timestamps = parse_timestamps(data);
                }
                // RFC 2018 s4: SACK blocks are sent in acknowledgements.
                KIND_SACK if !options.has_sack() && flags.contains(Flags::ACK) => {
                    options.sack = parse_blocks(data);
                }
                _ => {}
            }
        }
        options
    }
}

/// RFC 2018 s3. An option whose length is not a whole number of blocks is ignored.
fn parse_blocks(data: &[u8]) -> [SackBlock; 4] {
    let mut parsed = [SackBlock::default(); 4];
    let (blocks, rest) = data.as_chunks::<8>();
    if !rest.is_empty() {
        return parsed;
    }
    let read = |&[a, b, c, d, e, f, g, h]: &[u8; 8]| SackBlock {
        start: Seq(u32::from_be_bytes([a, b, c, d])),
        end: Seq(u32::from_be_bytes([e, f, g, h])),
    };
    let valid = blocks.iter().map(read).filter(|block| block.start.lt(block.end));
    parsed.iter_mut().zip(valid).for_each(|(place, block)| *place = block);
    parsed
}

pub(super) const KIND_END: u8 = 0;
pub(super) const KIND_NOP: u8 = 1;
pub(super) const KIND_MSS: u8 = 2;
pub(super) const KIND_WINDOW_SCALE: u8 = 3;
pub(super) const KIND_SACK_PERMITTED: u8 = 4;
pub(super) const KIND_SACK: u8 = 5;
pub(super) const KIND_TIMESTAMPS: u8 = 8;

/// Iterates over the options of a list as kind and data. Ends at the end-of-list option, at the end
/// of the list, and at the first invalid length: less than two or beyond the list.
pub(super) struct OptionIter<'a>(pub(super) &'a [u8]);

impl<'a> Iterator for OptionIter<'a> {
    type Item = (u8, &'a [u8]);

    fn next(&mut self) -> Option<Self::Item> {
        let from = self.0.iter().position(|&octet| octet != KIND_NOP)?;
        let option = self.0.get(from..)?;
        let (&kind, &len) = (option.first()?, option.get(1)?);
        if kind == KIND_END {
            return None;
        }
        let data = option.get(2..usize::from(len))?;
        self.0 = option.get(usize::from(len)..)?;
        Some((kind, data))
    }
}

/// An option list under construction. Octets that do not fit are left out as a whole.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct OptionBytes {
    octets: [u8; OPTIONS_BYTES_MAX],
    used: u8,
}

impl OptionBytes {
    pub(crate) const EMPTY: OptionBytes = OptionBytes { octets: [0; OPTIONS_BYTES_MAX], used: 0 };

    /// Returns a SACK option with these blocks, or an empty list without blocks.
    pub(crate) fn sack(blocks: &[SackBlock]) -> Self {
        let mut list = OptionBytes::EMPTY;
        if !blocks.is_empty() {
            list.append(&[KIND_NOP, KIND_NOP, KIND_SACK, 2 + 8 * blocks.len() as u8]);
        }
        for block in blocks {
            list.append(&block.start.0.to_be_bytes());
            list.append(&block.end.0.to_be_bytes());
        }
        list
    }

    /// Appends octets, in multiples of four.
    pub(super) fn append(&mut self, octets: &[u8]) {
        let from = usize::from(self.used);
        if let Some(room) = self.octets.get_mut(from..from + octets.len()) {
            room.copy_from_slice(octets);
            self.used += octets.len() as u8;
        }
    }

    /// Returns the octets, a multiple of four.
    #[inline]
    pub(crate) fn as_slice(&self) -> &[u8] {
        self.octets.get(..usize::from(self.used)).unwrap_or_default()
    }
}

/// Returns NOP NOP TS.
#[cfg(test)]
pub(super) fn encode_timestamps(Timestamps { tsval, tsecr }: Timestamps) -> Vec<u8> {
    [TIMESTAMPS_HEAD, tsval.to_be_bytes(), tsecr.to_be_bytes()].concat()
}

#[cfg(test)]
#[path = "options_tests.rs"]
mod tests;
