//! The receive side of RFC 7306.
//!
//! Handles untagged segments whose operation or queue is not in RFC 5040. A stream without
//! extensions refuses them as RFC 5040 says. A segment passes the checks of its queue
//! (RFC 5041 s7.1), then those of operation and version (RFC 7306 s8.2), then its own. A refused
//! segment has no effect.
//!
//! The Terminate includes the DDP header of the segment and never the request in it
//! (RFC 7306 s8.1).

use ironwarp_mem::Access;
use ironwarp_stats::Counter;

use super::receive::{FailedWqe, StreamFault, bad_response};
use super::{AtomicForwarder, CompletionSink, Io, SharedReceives, Stream, StreamCallbacks, StreamState};
use crate::completion::{CompletionFlags, CompletionOpcode, CompletionStatus};
use crate::ddp::untagged::UntaggedQueue;
use crate::ddp::{DdpFault, Untagged};
use crate::framing::Framing;
use crate::rdmap::atomic::ATOMIC_RESPONSE_BYTES;
use crate::rdmap::{
    ATOMIC_RESPONSE_QUEUE, AtomicRequest, AtomicResponse, Immediate, Opcode, OutstandingRequest, READ_QUEUE,
    RdmapFault, ResponderEntry, Rfc7306Profile, SEND_QUEUE,
};
use crate::terminate::Terminate;
use crate::wr::SendOpcode;

impl<F: Framing> Stream<F> {
    /// Sets the variant of RFC 7306 for the connection, if any. No effect after the stream has
    /// started.
    pub fn set_extensions(&mut self, extensions: Option<Rfc7306Profile>) {
        if self.state == StreamState::Idle {
            self.config.extensions = extensions;
        }
    }

    /// Returns whether the peer ended the stream because it does not support Atomic Requests, as
    /// far as its Terminate shows.
    pub fn peer_lacks_atomics(&self) -> bool {
        self.peer_lacks_atomics
    }

    /// RFC 7306 s1.1: a peer without a message reports an unexpected opcode. The oldest unanswered
    /// request must be an atomic operation of the RFC. The Terminate must include such a request,
    /// or include nothing while no other message can be its cause.
    pub(super) fn detect_no_peer_atomics<C>(&mut self, error: Terminate, payload: &[u8], io: &Io<'_, C>) {
        let opcode_of = |seq| io.sends.at(seq).map(|wqe| wqe.opcode);
        let oldest = self.oldest_unanswered(io).and_then(opcode_of);
        let is_of_the_rfc = matches!(oldest, Some(SendOpcode::FetchAdd | SendOpcode::CmpSwap));
        if error != RdmapFault::Opcode.into() || !is_of_the_rfc {
            return;
        }
        self.peer_lacks_atomics = match Terminate::terminated_control_octet(payload) {
            Some(control) => Opcode::decode_extended(control) == Ok(Opcode::AtomicRequest),
            None => {
                let begun = self.sender.next.wrapping_sub(io.sends.head());
                let mut others = (0..begun).filter_map(|at| opcode_of(io.sends.head().wrapping_add(at)));
                !others.any(|opcode| opcode.is_extended() && Some(opcode) != oldest)
            }
        };
    }

    /// A segment whose operation or queue is not in RFC 5040.
    #[cold]
    #[inline(never)]
    pub(super) fn on_extended_segment<C: StreamCallbacks>(
        &mut self,
        header: &Untagged,
        payload: &[u8],
        io: &mut Io<'_, C>,
    ) -> Result<(), StreamFault> {
        let Some(profile) = self.config.extensions else { return self.on_unexpected(header, payload, io) };
        match profile.expected(header) {
            Some(Opcode::AtomicRequest) => self.on_atomic_request(profile, header, payload, io),
            Some(Opcode::AtomicResponse) => self.on_atomic_response(header, payload, io),
            Some(opcode) if opcode.is_immediate() => self.on_immediate(opcode, header, payload, io),
            _ => self.on_unexpected(header, payload, io),
        }
    }

    /// A message that is not allowed here. RFC 5041 s7.1: errors of DDP take precedence, except for
    /// the length. RFC 7306 s1.1 requires the report of an unexpected opcode, and an unknown
    /// message has no buffer size.
    fn on_unexpected<C: SharedReceives>(
        &mut self,
        header: &Untagged,
        payload: &[u8],
        io: &mut Io<'_, C>,
    ) -> Result<(), StreamFault> {
        match header.qn {
            SEND_QUEUE => {
                self.oldest_receive(self.rx_sends, header, payload, io)?;
            }
            READ_QUEUE => {
                let buffer = self.request_buffer_bytes().map(|_| u32::MAX);
                self.rx_requests.check(header, payload.len(), buffer)?;
            }
            ATOMIC_RESPONSE_QUEUE if self.has_atomic_responses() => {
                self.rx_atomic_responses.check(header, payload.len(), self.response_buffer_bytes())?;
            }
            _ => return Err(DdpFault::InvalidQueue.into()),
        }
        Err(RdmapFault::Opcode.into())
    }

    /// Returns the oldest receive, whatever its size, for a segment that passes the DDP checks of
    /// `queue`.
    fn oldest_receive<C: SharedReceives>(
        &self,
        queue: UntaggedQueue,
        header: &Untagged,
        payload: &[u8],
        io: &mut Io<'_, C>,
    ) -> Result<u64, StreamFault> {
        let head = io.receives.head();
        if io.receives.at(head).is_none() {
            self.fetch_receive(header.msn == queue.msn(), io)?;
        }
        let wr_id = io.receives.at(head).map(|wqe| wqe.wr_id);
        queue.check(header, payload.len(), wr_id.map(|_| u32::MAX))?;
        Ok(wr_id.ok_or(DdpFault::NoBuffer)?)
    }

    /// Immediate Data consumes the oldest receive, leaves its memory unchanged and uses one number
    /// of its queue (RFC 7306 s6.3).
    fn on_immediate<C: CompletionSink + SharedReceives>(
        &mut self,
        opcode: Opcode,
        header: &Untagged,
        payload: &[u8],
        io: &mut Io<'_, C>,
    ) -> Result<(), StreamFault> {
        let queue = *self.rx_queue(header.qn);
        let wr_id = self.oldest_receive(queue, header, payload, io)?;
        Opcode::check_version(header.ulp)?;
        // The message is one segment. Its offset was checked against its queue, so on queue 0 it is
        // 0 unless a Send is incomplete; an incomplete Send must end first.
        if !header.last || self.rx_sends.placed() > 0 {
            return Err(RdmapFault::StreamCatastrophic.into());
        }
        let Immediate(octets) = Immediate::decode(payload)?;
        let mut completion = self.receive_completion(wr_id, payload.len() as u32, CompletionStatus::Success);
        (completion.opcode, completion.immediate) = (CompletionOpcode::ReceiveImmediate, octets);
        completion.flags.set(CompletionFlags::SOLICITED, opcode.is_solicited());
        self.rx_queue(header.qn).advance(true, payload.len());
        io.callbacks.on_receive_completion(completion);
        io.receives.release_to(io.receives.head().wrapping_add(1));
        io.stats.count(Counter::IwarpRxImmediates);
        Ok(())
    }

    /// An Atomic Request (RFC 7306 s5.2.1, s8.2): one segment with exactly one header. The word is
    /// resolved now, so a request that is not allowed is refused at once. The word changes when the
    /// response is next to be sent, or on its owner core.
    fn on_atomic_request<C: AtomicForwarder>(
        &mut self,
        profile: Rfc7306Profile,
        header: &Untagged,
        payload: &[u8],
        io: &mut Io<'_, C>,
    ) -> Result<(), StreamFault> {
        self.rx_requests.check(header, payload.len(), self.request_buffer_bytes())?;
        Opcode::check_version(header.ulp)?;
        if !header.last {
            return Err(RdmapFault::StreamCatastrophic.into());
        }
        let request = AtomicRequest::decode(payload, profile)?;
        self.check_withheld(Access::REMOTE_ATOMIC).map_err(RdmapFault::from)?;
        let word = io.memory.word(&self.atomic_target(&request)).map_err(RdmapFault::from)?;
        self.reserve_responses()?;
        let owner = if self.config.atomic_locked { None } else { word.claim().err() };
        if let Some(owner) = owner {
            io.callbacks.prepare_forward(owner);
        }
        self.responses.push(ResponderEntry::Atomic { request, msn: header.msn, owner });
        self.rx_requests.advance(true, payload.len());
        io.stats.count(Counter::IwarpRxAtomicRequests);
        if owner.is_some() {
            self.forward_atomics(io);
        }
        Ok(())
    }

    /// The response to the oldest local request, which must be an atomic operation
    /// (RFC 7306 s5.2.2).
    fn on_atomic_response<C: CompletionSink + AtomicForwarder>(
        &mut self,
        header: &Untagged,
        payload: &[u8],
        io: &mut Io<'_, C>,
    ) -> Result<(), StreamFault> {
        let is_indication = self.send_progress.rtr_read;
        let bad_response = |error| bad_response(error, is_indication);
        let buffer = self.response_buffer_bytes();
        let checked = self.rx_queue(header.qn).check(header, payload.len(), buffer);
        checked.map_err(|fault| bad_response(fault.into()))?;
        Opcode::check_version(header.ulp)?;
        let head = self.outstanding.front().filter(|head| head.atomic && header.last).copied();
        let head = head.ok_or_else(|| bad_response(RdmapFault::StreamCatastrophic.into()))?;
        let response = AtomicResponse::decode_for(payload, head.seq);
        let response = response.map_err(|fault| bad_response(fault.into()))?;
        self.place_original_value(&head, response.original, io)?;
        self.rx_queue(header.qn).advance(true, payload.len());
        self.outstanding.advance(true, 0);
        if !core::mem::replace(&mut self.peer_has_atomics, true) {
            io.callbacks.on_peer_atomics();
        }
        self.send_progress.read_done();
        self.complete(io);
        Ok(())
    }

    /// Stores the word's value in the sink of the request, in the machine's byte order
    /// (RFC 7306 s5.1). A sink that was revoked in the meantime is an error of the local
    /// application.
    fn place_original_value<C>(
        &mut self,
        head: &OutstandingRequest,
        original: u64,
        io: &Io<'_, C>,
    ) -> Result<(), StreamFault> {
        let octets = original.to_ne_bytes();
        let local_fault = || {
            let (error, status) = (RdmapFault::LocalCatastrophic, CompletionStatus::LocalProtection);
            StreamFault::with_failed_wqe(error, FailedWqe::Read, status)
        };
        let (scope, need) = (self.access_scope(), Access::LOCAL_WRITE);
        let span = io.memory.resolve(head.sink_stag, scope, head.sink_to, head.bytes, need);
        let span = span.map_err(|_| local_fault())?;
        match &mut self.out_of_order {
            None => span.copy_in(0, &octets).map_err(|_| local_fault()),
            Some(out_of_order) => {
                out_of_order.place_unless_present(span, &octets, io.stats).map_err(|_| local_fault())
            }
        }
    }

    /// Returns whether this stream uses queue 3.
    fn has_atomic_responses(&self) -> bool {
        let profile = self.config.extensions;
        profile.and_then(|profile| profile.queue(Opcode::AtomicResponse)) == Some(ATOMIC_RESPONSE_QUEUE)
    }

    /// Returns the size of the buffer for an Atomic Response, if one is outstanding.
    fn response_buffer_bytes(&self) -> Option<u32> {
        self.outstanding.has_atomic().then_some(ATOMIC_RESPONSE_BYTES as u32)
    }

    /// Returns the receive side of a queue. With figure 2 of draft -01, queue 1 also numbers
    /// responses and solicited immediates.
    fn rx_queue(&mut self, qn: u32) -> &mut UntaggedQueue {
        match qn {
            SEND_QUEUE => &mut self.rx_sends,
            READ_QUEUE => &mut self.rx_requests,
            _ => &mut self.rx_atomic_responses,
        }
    }
}
