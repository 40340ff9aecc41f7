//! What RFC 7306 adds to the receiving side.
//!
//! Takes the untagged segments whose operation RFC 5040 does not have, and those on queues that it does not have. On a
//! stream without extensions each is refused as RFC 5040 says. A segment passes the checks of its queue (RFC 5041
//! s7.1), then those of operation and version (RFC 7306 s8.2), then its own; what is refused has changed nothing.
//!
//! A refusal shows the segment's DDP header and never the request that it carried (RFC 7306 s8.1).

use ironwarp_mem::Access;
use ironwarp_stats::Counter;

use super::receive::{Refused, Victim, bad_response};
use super::{CompletionSink, Io, Stream, StreamState};
use crate::completion::{CompletionFlags, CompletionOpcode, CompletionStatus};
use crate::ddp::untagged::Queue;
use crate::ddp::{DdpFault, Untagged};
use crate::rdmap::atomic::ATOMIC_RESPONSE_BYTES;
use crate::rdmap::{
    ATOMIC_RESPONSE_QUEUE, AtomicRequest, AtomicResponse, Dialect, Immediate, Opcode, Outstanding, Owed,
    READ_QUEUE, RdmapFault, SEND_QUEUE, Terminate,
};
use crate::wr::SendOpcode;

impl Stream {
    /// Which text of RFC 7306 the connection goes by, if any. Heard until the stream starts.
    pub fn extend(&mut self, extensions: Option<Dialect>) {
        if self.state == StreamState::Idle {
            self.config.extensions = extensions;
        }
    }

    /// Whether the peer ended the stream because it does not know Atomic Requests, as far as its Terminate tells.
    pub fn peer_lacks_atomics(&self) -> bool {
        self.lacks_atomics
    }

    /// RFC 7306 s1.1: who does not know a message calls its operation unexpected. The oldest request without an answer has
    /// to be an atomic operation of the RFC; and the Terminate shows such a request, or shows nothing and there is no other
    /// message that it can be about.
    pub(super) fn note_lacking<C>(&mut self, error: Terminate, payload: &[u8], io: &Io<'_, C>) {
        let opcode_of = |seq| io.sends.at(seq).map(|wqe| wqe.opcode);
        let asked = self.oldest_unanswered(io).and_then(opcode_of);
        let is_of_the_rfc = matches!(asked, Some(SendOpcode::FetchAdd | SendOpcode::CmpSwap));
        if error != RdmapFault::Opcode.into() || !is_of_the_rfc {
            return;
        }
        self.lacks_atomics = match Terminate::shown_control(payload) {
            Some(control) => Opcode::decode_extended(control) == Ok(Opcode::AtomicRequest),
            None => {
                let begun = self.sender.next().wrapping_sub(io.sends.head());
                let mut others = (0..begun).filter_map(|at| opcode_of(io.sends.head().wrapping_add(at)));
                !others.any(|opcode| opcode.is_extended() && Some(opcode) != asked)
            }
        };
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
        let Some(dialect) = self.config.extensions else { return self.on_unexpected(header, payload, io) };
        match dialect.expected(header) {
            Some(Opcode::AtomicRequest) => self.on_atomic_request(dialect, header, payload, io),
            Some(Opcode::AtomicResponse) => self.on_atomic_response(header, payload, io),
            Some(opcode) if opcode.is_immediate() => self.on_immediate(header, payload, io),
            _ => self.on_unexpected(header, payload, io),
        }
    }

    /// A message that may not come here. RFC 5041 s7.1: what DDP finds wrong with it comes first, save its length: RFC 7306
    /// s1.1 wants to hear of the operation, and buffers for messages that do not exist have no size.
    fn on_unexpected<C: CompletionSink>(
        &mut self,
        header: &Untagged,
        payload: &[u8],
        io: &mut Io<'_, C>,
    ) -> Result<(), Refused> {
        match header.qn {
            SEND_QUEUE => {
                self.any_receive(self.sends_in, header, payload, io)?;
            }
            READ_QUEUE => {
                self.reads_in.check(header, payload.len(), self.request_room().map(|_| u32::MAX))?;
            }
            ATOMIC_RESPONSE_QUEUE if self.has_atomic_responses() => {
                self.atomics_in.check(header, payload.len(), self.response_room())?;
            }
            _ => return Err(DdpFault::InvalidQueue.into()),
        }
        Err(RdmapFault::Opcode.into())
    }

    /// The oldest receive, whatever its size, for a segment of `queue` that DDP finds right.
    fn any_receive<C: CompletionSink>(
        &self,
        queue: Queue,
        header: &Untagged,
        payload: &[u8],
        io: &mut Io<'_, C>,
    ) -> Result<u64, Refused> {
        let head = io.receives.head();
        if io.receives.at(head).is_none() {
            self.find_receive(header.msn == queue.msn(), io)?;
        }
        let wr_id = io.receives.at(head).map(|wqe| wqe.wr_id);
        queue.check(header, payload.len(), wr_id.map(|_| u32::MAX))?;
        Ok(wr_id.ok_or(DdpFault::NoBuffer)?)
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
        let wr_id = self.any_receive(queue, header, payload, io)?;
        let opcode = Opcode::decode_extended(header.ulp)?;
        // The message is one segment, and a Send that has begun to fill the receive ends first.
        if !header.last || header.mo > 0 || self.sends_in.placed() > 0 {
            return Err(RdmapFault::StreamCatastrophic.into());
        }
        let Immediate(octets) = Immediate::decode(payload)?;
        let mut completion = self.received(wr_id, payload.len() as u32, CompletionStatus::Success);
        (completion.opcode, completion.immediate) = (CompletionOpcode::ReceiveImmediate, octets);
        completion.flags.set(CompletionFlags::SOLICITED, opcode.is_solicited());
        if header.qn == READ_QUEUE {
            self.reads_in.advance(true, payload.len());
        } else {
            self.sends_in.advance(true, payload.len());
        }
        io.completions.on_receive(completion);
        io.receives.release_to(io.receives.head().wrapping_add(1));
        io.stats.count(Counter::IwarpRxImmediates);
        Ok(())
    }

    /// An Atomic Request (RFC 7306 s5.2.1, s8.2): one segment, exactly one header. The word is looked up now, so that what
    /// may not be asked is refused at once, and changed when the request's turn to be answered comes, or its owner's turn to
    /// change it.
    fn on_atomic_request<C: CompletionSink>(
        &mut self,
        dialect: Dialect,
        header: &Untagged,
        payload: &[u8],
        io: &mut Io<'_, C>,
    ) -> Result<(), Refused> {
        self.reads_in.check(header, payload.len(), self.request_room())?;
        Opcode::decode_extended(header.ulp)?;
        if !header.last {
            return Err(RdmapFault::StreamCatastrophic.into());
        }
        let request = AtomicRequest::decode(payload, dialect)?;
        let word = io.memory.word(&self.target(&request)).map_err(RdmapFault::from)?;
        let owner = if self.config.atomic_locked { None } else { word.claim().err() };
        if let Some(owner) = owner {
            io.completions.will_ask(owner);
        }
        self.responses.push(Owed::Atomic { request, msn: header.msn, owner });
        self.reads_in.advance(true, payload.len());
        io.stats.count(Counter::IwarpRxAtomicRequests);
        if owner.is_some() {
            self.ask_owners(io);
        }
        Ok(())
    }

    /// The answer to our oldest request, which must be an atomic operation (RFC 7306 s5.2.2).
    fn on_atomic_response<C: CompletionSink>(
        &mut self,
        header: &Untagged,
        payload: &[u8],
        io: &mut Io<'_, C>,
    ) -> Result<(), Refused> {
        let is_indication = self.acknowledged.awaits_rtr_read();
        let bad_response = |error| bad_response(error, is_indication);
        let queue = if header.qn == READ_QUEUE { self.reads_in } else { self.atomics_in };
        queue
            .check(header, payload.len(), self.response_room())
            .map_err(|fault| bad_response(fault.into()))?;
        Opcode::decode_extended(header.ulp)?;
        let head = self.outstanding.front().filter(|head| head.atomic && header.last).copied();
        let head = head.ok_or_else(|| bad_response(RdmapFault::StreamCatastrophic.into()))?;
        let response = AtomicResponse::decode_for(payload, head.seq);
        let response = response.map_err(|fault| bad_response(fault.into()))?;
        self.land_original(&head, response.original, io)?;
        if header.qn == READ_QUEUE {
            self.reads_in.advance(true, payload.len());
        } else {
            self.atomics_in.advance(true, payload.len());
        }
        self.outstanding.advance(true, 0);
        if !core::mem::replace(&mut self.has_atomics, true) {
            io.completions.peer_has_atomics();
        }
        self.acknowledged.read_done();
        self.complete(io);
        Ok(())
    }

    /// The word's value goes to the request's sink in the machine's own order (RFC 7306 s5.1). A sink that has been revoked
    /// meanwhile is our own application's error.
    fn land_original<C>(&mut self, head: &Outstanding, original: u64, io: &Io<'_, C>) -> Result<(), Refused> {
        let octets = original.to_ne_bytes();
        let refused = || {
            let (error, status) = (RdmapFault::LocalCatastrophic, CompletionStatus::LocalProtection);
            Refused::with_victim(error, Victim::Read, status)
        };
        let (reach, need) = (self.reach(), Access::LOCAL_WRITE);
        let span = io.memory.resolve(head.sink_stag, reach, head.sink_to, head.bytes, need);
        let span = span.map_err(|_| refused())?;
        match &mut self.early {
            None => span.copy_in(0, &octets).map_err(|_| refused()),
            Some(early) => early.land(span, &octets, io.stats).map_err(|_| refused()),
        }
    }

    /// Whether there is a queue 3.
    fn has_atomic_responses(&self) -> bool {
        let dialect = self.config.extensions;
        dialect.and_then(|dialect| dialect.queue(Opcode::AtomicResponse)) == Some(ATOMIC_RESPONSE_QUEUE)
    }

    /// The buffer that waits for an Atomic Response, where one is awaited at all.
    fn response_room(&self) -> Option<u32> {
        self.outstanding.awaits_atomic().then_some(ATOMIC_RESPONSE_BYTES as u32)
    }

    /// The queue that an immediate is numbered on: that of Sends, save by figure 2 of draft -01.
    fn queue_of(&self, header: &Untagged) -> Queue {
        if header.qn == READ_QUEUE { self.reads_in } else { self.sends_in }
    }
}
