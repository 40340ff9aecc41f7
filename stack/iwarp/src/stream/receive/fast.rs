//! The fast path of the receive side: the next Send in one segment, into the first element of the
//! oldest receive, and a segment of a Write.
//!
//! It makes the checks of the general path in one comparison of the header, and leaves every
//! segment that fails one to that path, before anything has changed: that path says why.

use ironwarp_mem::{Access, AccessScope};
use ironwarp_stats::Counter;
use ironwarp_types::STag;

use crate::completion::{CompletionFlags, CompletionStatus};
use crate::ddp::header::{LAST_TAGGED, LAST_UNTAGGED, MORE_TAGGED};
use crate::ddp::{TAGGED_BYTES, UNTAGGED_BYTES};
use crate::framing::Framing;
use crate::rdmap::Opcode;
use crate::stream::{CompletionSink, Io, Stream};

const SEND: u8 = Opcode::Send.control();
const SEND_SOLICITED: u8 = Opcode::SendSolicited.control();
const WRITE: u8 = Opcode::Write.control();

impl<F: Framing> Stream<F> {
    /// Delivers a Send in one segment, or places a segment of a Write. `None` if the general path
    /// must decide. Tuning: not inlined, as it needs registers of its own, and one call for both.
    #[inline(never)]
    pub(in crate::stream) fn place_fast<C: CompletionSink>(
        &mut self,
        ulpdu: &[u8],
        io: &mut Io<'_, C>,
    ) -> Option<()> {
        let Some((header @ [LAST_UNTAGGED, ..], payload)) = ulpdu.split_first_chunk::<UNTAGGED_BYTES>()
        else {
            return self.place_write_fast(ulpdu, io);
        };
        let [_, operation @ (SEND | SEND_SOLICITED), _, _, _, _, place @ ..] = header else { return None };
        // Queue 0, the next message, offset 0 (RFC 5041 s4.3 and s5.3).
        let is_next = *place == self.rx_sends.place_of_next()?;
        if !(is_next & self.fast.places) {
            return None;
        }
        let head = io.receives.head();
        if io.receives.at(head).is_none() {
            io.receives.refresh();
        }
        let wqe = io.receives.at(head)?;
        if !payload.is_empty() {
            let sink = wqe.scatter().at(0).filter(|sink| payload.len() <= sink.len as usize)?;
            let scope = AccessScope::new(self.config.recv_pd, self.config.qp);
            let bytes = payload.len() as u32;
            let span = io.memory.resolve_inlined(sink.lkey, scope, sink.addr, bytes, Access::LOCAL_WRITE);
            span.ok()?.copy_in(0, payload).ok()?;
        }
        let wr_id = wqe.wr_id;
        let message_bytes = self.rx_sends.advance(true, payload.len())?;
        let mut completion = self.receive_completion(wr_id, message_bytes, CompletionStatus::Success);
        completion.flags.set(CompletionFlags::SOLICITED, *operation == SEND_SOLICITED);
        self.complete_receive(completion, io);
        Some(())
    }

    /// Places a segment of a Write. `None` if the general path must decide. Tuning: not inlined, as
    /// it needs registers of its own.
    #[inline(never)]
    fn place_write_fast<C>(&mut self, ulpdu: &[u8], io: &mut Io<'_, C>) -> Option<()> {
        let (header, payload) = ulpdu.split_first_chunk::<TAGGED_BYTES>()?;
        let [control @ (LAST_TAGGED | MORE_TAGGED), WRITE, s0, s1, s2, s3, offset @ ..] = header else {
            return None;
        };
        if !self.fast.places {
            return None;
        }
        // An empty one, of which a packet may have many, needs no memory.
        if !payload.is_empty() {
            if self.withheld.intersects(Access::REMOTE_WRITE) {
                return None;
            }
            let stag = STag(u32::from_be_bytes([*s0, *s1, *s2, *s3]));
            let (scope, bytes) = (self.access_scope(), payload.len() as u32);
            let to = u64::from_be_bytes(*offset);
            let span = io.memory.resolve_inlined(stag, scope, to, bytes, Access::REMOTE_WRITE);
            span.ok()?.copy_in(0, payload).ok()?;
        }
        if *control == LAST_TAGGED {
            io.stats.count(Counter::IwarpRxWrites);
        }
        Some(())
    }
}
