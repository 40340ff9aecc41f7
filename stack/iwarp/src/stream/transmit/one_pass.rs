//! Frames whose payload is copied, checked and summed in one pass.
//!
//! Apart, the copy, the CRC and TCP's checksum read a long payload three times.

use crate::completion::CompletionStatus;
use crate::framing::{Framing, OnePassFrame};
use crate::stream::Stream;
use crate::stream::cursor::MemoryView;
use crate::wr::SendWqe;

impl<F: Framing> Stream<F> {
    /// Returns a frame at the front of `room` for one pass; `None` if the general path writes it.
    #[inline(always)]
    pub(super) fn one_pass_frame<'a>(
        &self,
        room: &'a mut [u8],
        header_bytes: usize,
        payload_bytes: usize,
    ) -> Option<OnePassFrame<'a>> {
        if self.fast.on { self.framing.in_one_pass(room, header_bytes, payload_bytes) } else { None }
    }

    /// Writes a segment of a Send or Write whose payload is long. Returns the length of its frame.
    #[inline(never)]
    pub(super) fn message_in_one_pass(
        &mut self,
        mut frame: OnePassFrame<'_>,
        wqe: &SendWqe,
        view: MemoryView<'_>,
        last: bool,
    ) -> Result<usize, CompletionStatus> {
        self.message_header(wqe, last, frame.headers());
        let cursor = &mut self.sender.cursor;
        let written = frame.complete(|kernel, crc, payload| {
            cursor.gather_in_one_pass(wqe.gather(), view, payload, (kernel, crc))
        });
        Ok(self.on_written(written.map_err(|_| CompletionStatus::LocalProtection)?))
    }

    /// Accounts for a frame and the sum of its words. Returns its length.
    pub(super) fn on_written(&mut self, (bytes, sum): (usize, u32)) -> usize {
        self.sender.unit_sum = Some(sum);
        self.send_progress.on_pulled(bytes);
        bytes
    }
}
