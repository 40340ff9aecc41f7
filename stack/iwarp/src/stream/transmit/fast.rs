//! The fast path of the send side: the next request is a Send or Write that fits in the unit as one
//! frame, or one is under way whose next segment fills the unit.
//!
//! It takes the same bytes and the same order as the general path, which decides what this one
//! leaves: which queue sends next, where a message is cut, and why a request fails.

use ironwarp_arch::one_pass::BYTES_MIN;
use ironwarp_mem::CoreMem;
use ironwarp_stats::Counter;

use super::FENCES;
use crate::ddp::{TAGGED_BYTES, UNTAGGED_BYTES};
use crate::framing::Framing;
use crate::stream::cursor::{MemoryView, SgeCursor};
use crate::stream::{Io, Stream};
use crate::wr::{SendOpcode, SendWqe};

impl<F: Framing> Stream<F> {
    /// Writes the next request as one frame to the front of `room`. Returns its length, or `None`
    /// with nothing changed if the general path must decide: a message is under way, the peer waits
    /// for a response, or the request is of another kind, is fenced, does not fit or names memory
    /// that it may not use. With `SUMMED` a short frame is summed, too, which pays only if it is
    /// the whole unit.
    #[inline(always)]
    pub(in crate::stream) fn fill_fast<C, const SUMMED: bool>(
        &mut self,
        room: &mut [u8],
        io: &mut Io<'_, C>,
    ) -> Option<usize> {
        let sender = &self.sender;
        if sender.under_way || sender.awaits_quiescence || !self.responses.is_empty() {
            return None;
        }
        let wqe = io.sends.at(sender.next)?;
        if !wqe.opcode.is_send_or_write() || wqe.flags.intersects(FENCES) {
            return None;
        }
        let header_bytes = header_bytes(wqe);
        let payload_bytes = wqe.message_bytes() as usize;
        let ulpdu_bytes = header_bytes + payload_bytes;
        if !self.framing.fits(ulpdu_bytes, room.len()) {
            return None;
        }
        let written = match payload_bytes < BYTES_MIN {
            true => {
                self.message_in_passes::<SUMMED>(wqe, io.memory, room, (header_bytes, payload_bytes), true)
            }
            false => self.long_message(wqe, io.memory, room, (header_bytes, payload_bytes)),
        };
        if written == 0 {
            self.sender.cursor = SgeCursor::default();
            return None;
        }
        self.advance_message(wqe, payload_bytes, true);
        io.stats.count(Counter::IwarpTxFpdus);
        Some(written)
    }

    /// Writes the next segment of the message that is under way as one frame that fills `room`.
    /// Returns its length, or `None` with nothing changed if the general path must decide: the rest
    /// of the message is shorter, requests complete on copy, or memory may not be used.
    #[inline(never)]
    pub(in crate::stream) fn fill_middle<C>(&mut self, room: &mut [u8], io: &mut Io<'_, C>) -> Option<usize> {
        let wqe = io.sends.at(self.sender.next)?;
        let header_bytes = header_bytes(wqe);
        let payload_bytes = self.framing.mulpdu(room.len()).checked_sub(header_bytes)?;
        let left = wqe.message_bytes().saturating_sub(self.sender.sent);
        if left as usize <= payload_bytes || self.config.complete_on_copy {
            return None;
        }
        let before = self.sender.cursor;
        let written = self.long_message(wqe, io.memory, room, (header_bytes, payload_bytes));
        if written == 0 {
            self.sender.cursor = before;
            return None;
        }
        self.sender.advance(payload_bytes, false);
        io.stats.count(Counter::IwarpTxFpdus);
        Some(written)
    }

    /// Writes a long message, or a segment of one, as the one frame in `room`, in one pass if
    /// possible. Returns its length, or 0.
    #[inline(never)]
    fn long_message(
        &mut self,
        wqe: &SendWqe,
        memory: &CoreMem,
        room: &mut [u8],
        (header_bytes, payload_bytes): (usize, usize),
    ) -> usize {
        let last = self.sender.sent as usize + payload_bytes == wqe.message_bytes() as usize;
        if !wqe.is_inline()
            && let Some(frame) = self.one_pass_frame(room, header_bytes, payload_bytes)
        {
            let view = MemoryView { memory, scope: self.access_scope() };
            return self.message_in_one_pass(frame, wqe, view, last).unwrap_or(0);
        }
        self.message_in_passes::<false>(wqe, memory, room, (header_bytes, payload_bytes), last)
    }

    /// Writes a message, or a segment of one, as the one frame in `room`. Returns its length, or 0
    /// if its memory may not be used.
    #[inline(always)]
    fn message_in_passes<const SUMMED: bool>(
        &mut self,
        wqe: &SendWqe,
        memory: &CoreMem,
        room: &mut [u8],
        (header_bytes, payload_bytes): (usize, usize),
        last: bool,
    ) -> usize {
        let ulpdu_bytes = header_bytes + payload_bytes;
        let head_bytes = self.framing.head_bytes();
        let ulpdu = room.get_mut(head_bytes..head_bytes + ulpdu_bytes);
        let Some((header, payload)) = ulpdu.and_then(|ulpdu| ulpdu.split_at_mut_checked(header_bytes)) else {
            return 0;
        };
        if self.copy_payload(wqe, memory, payload).is_err() {
            return 0;
        }
        self.message_header(wqe, last, header);
        let (written, sum) = self.framing.complete_fast::<SUMMED>(room, ulpdu_bytes);
        if SUMMED {
            self.sender.unit_sum = sum;
        }
        self.send_progress.on_pulled(written);
        written
    }
}

/// Octets of the DDP header of a Send or Write.
#[inline(always)]
fn header_bytes(wqe: &SendWqe) -> usize {
    if wqe.opcode == SendOpcode::Write { TAGGED_BYTES } else { UNTAGGED_BYTES }
}
