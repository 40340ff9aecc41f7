//! What RFC 7306 adds to the receiving side.
//!
//! Takes the untagged segments whose operation RFC 5040 does not have, and those on queues that it does not have. On a
//! stream without extensions each is refused as RFC 5040 says. A segment passes the checks of its queue (RFC 5041
//! s7.1), then those of operation and version (RFC 7306 s8.2), then its own; what is refused has changed nothing.
//!
//! A refusal shows the segment's DDP header and never the request that it carried (RFC 7306 s8.1).

use ironwarp_stats::Counter;

use super::receive::Refused;
use super::{CompletionSink, Io, Stream, StreamState};
use crate::ddp::untagged::Queue;
use crate::ddp::{DdpFault, Untagged};
use crate::rdmap::{Dialect, Immediate, Opcode, READ_QUEUE, RdmapFault, SEND_QUEUE};
use crate::wr::{CompletionFlags, CompletionOpcode, CompletionStatus};

impl Stream {
    /// Which text of RFC 7306 the connection goes by, if any. Heard until the stream starts.
    pub fn extend(&mut self, extensions: Option<Dialect>) {
        if self.state == StreamState::Idle {
            self.config.extensions = extensions;
        }
    }

    /// A segment that RFC 5040 knows nothing of.
    #[cold]
    #[inline(never)]
    pub(super) fn on_extended<C: CompletionSink>(
        &mut self,
        header: &Untagged,
        payload: &[u8],
        io: &mut Io<'_, C>,
    ) -> Result<(), Refused> {
        let dialect = self.config.extensions;
        match dialect.and_then(|dialect| dialect.expected(header)) {
            Some(opcode) if opcode.is_immediate() => self.on_immediate(header, payload, io),
            _ => self.on_unexpected(header, payload, io),
        }
    }

    /// A message that may not come here. RFC 5041 s7.1: what DDP finds wrong with it comes first.
    fn on_unexpected<C: CompletionSink>(
        &mut self,
        header: &Untagged,
        payload: &[u8],
        io: &mut Io<'_, C>,
    ) -> Result<(), Refused> {
        match header.qn {
            SEND_QUEUE => self.check_receive(header, payload.len(), io)?,
            READ_QUEUE => self.reads_in.check(header, payload.len(), self.request_room())?,
            _ => return Err(DdpFault::InvalidQueue.into()),
        }
        Err(RdmapFault::Opcode.into())
    }

    /// Immediate Data takes the oldest receive, whose memory it leaves alone, and one number of its queue (RFC 7306
    /// s6.3).
    fn on_immediate<C: CompletionSink>(
        &mut self,
        header: &Untagged,
        payload: &[u8],
        io: &mut Io<'_, C>,
    ) -> Result<(), Refused> {
        let queue = self.queue_of(header);
        let head = io.receives.head();
        if io.receives.at(head).is_none() {
            self.find_receive(header.msn == queue.msn(), io)?;
        }
        // The octets go into the completion: any receive has room for them.
        let wr_id = io.receives.at(head).map(|wqe| wqe.wr_id);
        queue.check(header, payload.len(), wr_id.map(|_| u32::MAX))?;
        let opcode = Opcode::decode_extended(header.ulp)?;
        // The message is one segment, and a Send that has begun to fill the receive ends first.
        if !header.last || header.mo > 0 || self.sends_in.placed() > 0 {
            return Err(RdmapFault::StreamCatastrophic.into());
        }
        let Immediate(octets) = Immediate::decode(payload)?;
        let wr_id = wr_id.ok_or(DdpFault::NoBuffer)?;
        let mut completion = self.received(wr_id, payload.len() as u32, CompletionStatus::Success);
        (completion.opcode, completion.immediate) = (CompletionOpcode::ReceiveImmediate, octets);
        completion.flags.set(CompletionFlags::SOLICITED, opcode.is_solicited());
        if header.qn == READ_QUEUE {
            self.reads_in.advance(true, payload.len());
        } else {
            self.sends_in.advance(true, payload.len());
        }
        io.completions.on_receive(completion);
        io.receives.release_to(head.wrapping_add(1));
        io.stats.count(Counter::IwarpRxImmediates);
        Ok(())
    }

    /// The queue that an immediate is numbered on: that of Sends, save by figure 2 of draft -01.
    fn queue_of(&self, header: &Untagged) -> Queue {
        if header.qn == READ_QUEUE { self.reads_in } else { self.sends_in }
    }
}
