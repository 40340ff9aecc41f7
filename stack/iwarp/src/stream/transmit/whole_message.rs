//! The usual case of the send side: the next request is a Send or Write that fits in the segment as one FPDU.
//!
//! It takes the same bytes and the same order as the general path, which decides what this one leaves: which queue sends
//! next, where a message is cut, and why a request fails.

use ironwarp_stats::Counter;

use super::FENCES;
use crate::ddp::{TAGGED_BYTES, UNTAGGED_BYTES};
use crate::mpa::fpdu::{self, LENGTH_BYTES, MULPDU_BYTES_MAX};
use crate::stream::cursor::{MemoryView, SgeCursor};
use crate::stream::{Io, Stream};
use crate::wr::SendOpcode;

impl Stream {
    /// Writes the next request as one FPDU to the front of `room`, without markers. Returns its length, or `None` with
    /// nothing changed if the general path must decide: a message is under way, the peer waits for a response, or the
    /// request is of another kind, is fenced, does not fit or names memory that it may not use.
    #[inline(always)]
    pub(super) fn whole_message<C>(&mut self, room: &mut [u8], io: &mut Io<'_, C>) -> Option<usize> {
        let sender = &self.sender;
        if sender.under_way || sender.awaits_quiescence || !self.responses.is_empty() {
            return None;
        }
        let wqe = io.sends.at(sender.next)?;
        if !wqe.opcode.is_send_or_write() || wqe.flags.intersects(FENCES) {
            return None;
        }
        let header_bytes = if wqe.opcode == SendOpcode::Write { TAGGED_BYTES } else { UNTAGGED_BYTES };
        let payload_bytes = wqe.message_bytes() as usize;
        let ulpdu_bytes = header_bytes + payload_bytes;
        if ulpdu_bytes > MULPDU_BYTES_MAX || fpdu::fpdu_bytes(ulpdu_bytes) > room.len() {
            return None;
        }
        let ulpdu = room.get_mut(LENGTH_BYTES..LENGTH_BYTES + ulpdu_bytes)?;
        let (header, payload) = ulpdu.split_at_mut_checked(header_bytes)?;
        let view = MemoryView { memory: io.memory, scope: self.access_scope() };
        if self.copy_payload(wqe, view, payload).is_err() {
            self.sender.cursor = SgeCursor::default();
            return None;
        }
        self.message_header(wqe, true, header);
        let written = fpdu::encode(room, ulpdu_bytes, self.crc);
        self.send_progress.on_pulled(written);
        self.advance_message(wqe, payload_bytes, true);
        io.stats.count(Counter::IwarpTxFpdus);
        Some(written)
    }
}
