//! What RFC 7306 adds to the sending side.
//!
//! Each of its messages is one untagged segment of a fixed length, so nothing is ever under way between two calls. A
//! request for one on a stream that does not have them fails, and the stream with it, like a Read where no Reads are
//! allowed. Rare beside Sends, Writes and Reads: all of it is out of their way.

use super::Room;
use crate::ddp::UNTAGGED_BYTES;
use crate::rdmap::{Dialect, Immediate, Opcode, READ_QUEUE};
use crate::stream::Stream;
use crate::wr::{CompletionStatus, SendOpcode, SendWqe};

impl Stream {
    /// The segment of a request that RFC 5040 does not have.
    #[cold]
    #[inline(never)]
    pub(super) fn extended_segment<const MARKED: bool>(
        &mut self,
        wqe: &SendWqe,
        room: Room<'_, MARKED>,
    ) -> Result<Option<usize>, CompletionStatus> {
        let dialect = self.config.extensions.ok_or(CompletionStatus::LocalOperation)?;
        let opcode = match wqe.opcode {
            SendOpcode::Immediate => Opcode::Immediate,
            SendOpcode::ImmediateSolicited => Opcode::ImmediateSolicited,
            _ => return Err(CompletionStatus::LocalOperation),
        };
        // RFC 7306 s6.3: exactly eight octets.
        let bytes = wqe.inline_bytes().filter(|_| wqe.is_inline()).unwrap_or_default();
        let octets = Immediate::decode(bytes).map_err(|_| CompletionStatus::LocalLength)?.octets();
        let Some(written) = self.untagged_segment(dialect, opcode, &octets, room) else { return Ok(None) };
        self.acknowledged.ends_here(self.sender.next);
        self.sender.advance(octets.len(), true);
        Ok(Some(written))
    }

    /// Writes a whole message of one segment, with the next number of its queue; `None` when it does not fit.
    fn untagged_segment<const MARKED: bool>(
        &mut self,
        dialect: Dialect,
        opcode: Opcode,
        octets: &[u8],
        mut room: Room<'_, MARKED>,
    ) -> Option<usize> {
        let number = match dialect.queue(opcode)? {
            READ_QUEUE => &mut self.sender.read_msn,
            _ => &mut self.sender.send_msn,
        };
        let ulpdu_bytes = UNTAGGED_BYTES + octets.len();
        let (header, payload) = room.ulpdu(ulpdu_bytes)?.split_at_mut_checked(UNTAGGED_BYTES)?;
        dialect.header(opcode, *number)?.encode(header);
        payload.copy_from_slice(octets);
        *number = number.wrapping_add(1);
        Some(self.seal(room, ulpdu_bytes))
    }
}
