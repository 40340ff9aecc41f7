//! The rest of a segment that the next FPDU may use (RFC 5044 s4.5).

use crate::mpa::fpdu::{self, LENGTH_BYTES};
use crate::mpa::marker;

/// The space left in a segment. `MARKED` means that markers may be inserted. It is a parameter of the type, so
/// streams without markers do not test for them.
pub(in crate::stream) struct SegmentSpace<'a, const MARKED: bool> {
    pub(super) bytes: &'a mut [u8],
    /// A message may be cut to fill the space.
    pub(super) may_cut: bool,
}

impl<'a, const MARKED: bool> SegmentSpace<'a, MARKED> {
    /// The space `bytes`, for an FPDU that is not cut to fill it.
    #[inline]
    pub(in crate::stream) fn new(bytes: &'a mut [u8]) -> Self {
        SegmentSpace { bytes, may_cut: false }
    }

    /// Returns the octets that an FPDU may use: all of the space except markers.
    #[inline]
    pub(super) fn fpdu_bytes(&self) -> usize {
        if MARKED { marker::bytes_beside_markers(self.bytes.len()) } else { self.bytes.len() }
    }

    /// Returns how many of `left` payload octets go in the next FPDU after a header of `header_bytes`; `None` if it
    /// should wait for a new segment.
    pub(super) fn payload(&self, header_bytes: usize, left: u32) -> Option<usize> {
        let most = fpdu::mulpdu(self.fpdu_bytes()).checked_sub(header_bytes)?;
        if left as usize <= most {
            return Some(left as usize);
        }
        (self.may_cut && most > 0).then_some(most)
    }

    /// Returns the range of the ULPDU if an FPDU with a ULPDU of `bytes` octets fits.
    pub(in crate::stream) fn ulpdu(&mut self, bytes: usize) -> Option<&mut [u8]> {
        if fpdu::fpdu_bytes(bytes) > self.fpdu_bytes() {
            return None;
        }
        self.bytes.get_mut(LENGTH_BYTES..LENGTH_BYTES + bytes)
    }
}
