//! The rest of a segment, as the next FPDU may use it (RFC 5044 s4.5).

use crate::mpa::fpdu::{self, LENGTH_BYTES};
use crate::mpa::marker;

/// How much of a segment is left for the next FPDU. `MARKED`: markers may fall into it. The type tells, so that a stream
/// without markers never asks.
pub(in crate::stream) struct SegmentSpace<'a, const MARKED: bool> {
    pub(super) bytes: &'a mut [u8],
    /// Whether a message may be cut to fill it.
    pub(super) may_cut: bool,
}

impl<'a, const MARKED: bool> SegmentSpace<'a, MARKED> {
    /// `bytes` for the next FPDU, which is not to be cut.
    #[inline]
    pub(in crate::stream) fn new(bytes: &'a mut [u8]) -> Self {
        SegmentSpace { bytes, may_cut: false }
    }

    /// What an FPDU may take of it: all that is left beside the markers.
    #[inline]
    pub(super) fn fpdu_bytes(&self) -> usize {
        if MARKED { marker::bytes_beside_markers(self.bytes.len()) } else { self.bytes.len() }
    }

    /// How many of `left` payload octets go into the next FPDU behind a header of `header_bytes`; `None` when it
    /// should wait for a fresh segment.
    pub(super) fn payload(&self, header_bytes: usize, left: u32) -> Option<usize> {
        let most = fpdu::mulpdu(self.fpdu_bytes()).checked_sub(header_bytes)?;
        if left as usize <= most {
            return Some(left as usize);
        }
        (self.may_cut && most > 0).then_some(most)
    }

    /// Where the ULPDU goes, when an FPDU with `bytes` of it fits.
    pub(in crate::stream) fn ulpdu(&mut self, bytes: usize) -> Option<&mut [u8]> {
        if fpdu::fpdu_bytes(bytes) > self.fpdu_bytes() {
            return None;
        }
        self.bytes.get_mut(LENGTH_BYTES..LENGTH_BYTES + bytes)
    }
}
