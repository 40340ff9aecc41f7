//! The rest of a unit that the next frame may use.

use crate::framing::Framing;

/// The space left in a unit.
pub(in crate::stream) struct SegmentSpace<'a> {
    pub(in crate::stream) bytes: &'a mut [u8],
    /// How many octets frames may use.
    pub(super) usable: usize,
    /// A message may be cut to fill the space.
    pub(super) may_cut: bool,
}

impl<'a> SegmentSpace<'a> {
    /// The space `bytes`, for a frame that is not cut to fill it.
    #[inline]
    pub(in crate::stream) fn new(bytes: &'a mut [u8], framing: &impl Framing) -> Self {
        SegmentSpace { usable: framing.usable(bytes.len()), bytes, may_cut: false }
    }

    /// Returns how many of `left` payload octets go in the next frame after a header of
    /// `header_bytes`; `None` if it should wait for a new unit.
    pub(super) fn payload(&self, framing: &impl Framing, header_bytes: usize, left: u32) -> Option<usize> {
        let most = framing.mulpdu(self.usable).checked_sub(header_bytes)?;
        if left as usize <= most {
            return Some(left as usize);
        }
        (self.may_cut && most > 0).then_some(most)
    }

    /// Returns the range of the ULPDU if a frame with a ULPDU of `bytes` octets fits.
    pub(in crate::stream) fn ulpdu(&mut self, framing: &impl Framing, bytes: usize) -> Option<&mut [u8]> {
        if !framing.fits(bytes, self.usable) {
            return None;
        }
        let head_bytes = framing.head_bytes();
        self.bytes.get_mut(head_bytes..head_bytes + bytes)
    }
}
