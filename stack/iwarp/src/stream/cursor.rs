//! A position in a scatter or gather list, and copies from and to it.
//!
//! Every element is resolved each time it is used, so revoked memory is detected. An empty element
//! is never resolved.

use ironwarp_arch::checksum;
use ironwarp_arch::one_pass::{CrcAndSum, Kernel};
use ironwarp_mem::{Access, AccessError, AccessScope, CoreMem, Span};

use crate::wr::SgeList;

/// The position of the next octet.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, serde::Serialize, serde::Deserialize)]
pub(super) struct SgeCursor {
    element: u8,
    offset: u32,
}

/// The memory of the core, and the scope in which the list is resolved.
#[derive(Clone, Copy)]
pub(super) struct MemoryView<'a> {
    pub(super) memory: &'a CoreMem,
    pub(super) scope: AccessScope,
}

impl SgeCursor {
    /// Copies the next `out.len()` octets of the list into `out`.
    #[inline]
    pub(super) fn gather(
        &mut self,
        list: SgeList<'_>,
        view: MemoryView<'_>,
        mut out: &mut [u8],
    ) -> Result<(), AccessError> {
        while !out.is_empty() {
            let span = self.next(list, view, out.len(), Access::empty())?;
            let (piece, rest) =
                core::mem::take(&mut out).split_at_mut_checked(span.len()).ok_or(AccessError::Bounds)?;
            span.copy_out(0, piece).map_err(AccessError::from)?;
            out = rest;
        }
        Ok(())
    }

    /// [`SgeCursor::gather`] of a long payload: returns the CRC that continues `crc`, and the sum
    /// of the octets.
    pub(super) fn gather_in_one_pass(
        &mut self,
        list: SgeList<'_>,
        view: MemoryView<'_>,
        out: &mut [u8],
        (kernel, crc): (Kernel, u32),
    ) -> Result<CrcAndSum, AccessError> {
        let (mut done, mut copied) = (CrcAndSum { crc, sum: 0 }, 0);
        while copied < out.len() {
            let span = self.next(list, view, out.len() - copied, Access::empty())?;
            let piece = out.get_mut(copied..copied + span.len()).ok_or(AccessError::Bounds)?;
            let next = span.copy_out_in_one_pass(0, piece, (kernel, done.crc));
            let CrcAndSum { crc, sum } = next.map_err(AccessError::from)?;
            done = CrcAndSum { crc, sum: done.sum + checksum::at_offset(sum, copied) };
            copied += span.len();
        }
        Ok(done)
    }

    /// Copies `bytes` into the next octets of the list.
    #[inline]
    pub(super) fn scatter(
        &mut self,
        list: SgeList<'_>,
        view: MemoryView<'_>,
        mut bytes: &[u8],
    ) -> Result<(), AccessError> {
        while !bytes.is_empty() {
            let span = self.next(list, view, bytes.len(), Access::LOCAL_WRITE)?;
            let (piece, rest) = bytes.split_at_checked(span.len()).ok_or(AccessError::Bounds)?;
            span.copy_in(0, piece).map_err(AccessError::from)?;
            bytes = rest;
        }
        Ok(())
    }

    /// Passes the spans of the next `bytes` octets of the list to `on_span`.
    #[cold]
    pub(super) fn visit(
        &mut self,
        list: SgeList<'_>,
        view: MemoryView<'_>,
        mut bytes: usize,
        mut on_span: impl FnMut(Span<'_>),
    ) -> Result<(), AccessError> {
        while bytes > 0 {
            let span = self.next(list, view, bytes, Access::LOCAL_WRITE)?;
            bytes = bytes.saturating_sub(span.len());
            on_span(span);
        }
        Ok(())
    }

    /// Returns the next contiguous span of at most `most` octets.
    #[inline]
    fn next<'a>(
        &mut self,
        list: SgeList<'_>,
        view: MemoryView<'a>,
        most: usize,
        need: Access,
    ) -> Result<Span<'a>, AccessError> {
        loop {
            let sge = list.at(self.element.into()).ok_or(AccessError::Bounds)?;
            let left = sge.len.saturating_sub(self.offset);
            if left > 0 {
                let bytes = left.min(u32::try_from(most).unwrap_or(u32::MAX));
                let to = sge.addr.checked_add(self.offset.into()).ok_or(AccessError::Wrap)?;
                let span = view.memory.resolve(sge.lkey, view.scope, to, bytes, need)?;
                // At most the element's length.
                self.offset = self.offset.wrapping_add(bytes);
                return Ok(span);
            }
            self.element += 1;
            self.offset = 0;
        }
    }
}
