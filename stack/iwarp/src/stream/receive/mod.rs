//! The receive side: from in-order bytes, or messages, to placed data, completions and pending
//! responses.
//!
//! Every segment is checked in the order of the layers: the CRC of its frame, DDP header and buffer
//! (RFC 5041 s7.1), RDMAP operation and version, then the rules of the operation (RFC 5040 s7.2). A
//! segment is placed only after all checks, so a refused one does not change memory. The first
//! refused segment ends the stream, and later ones are dropped.

mod byte_stream;
mod fast;

use ironwarp_mem::{Access, AccessError, AccessScope, Invalidator};
use ironwarp_stats::Counter;
use ironwarp_types::STag;

use super::cursor::{MemoryView, SgeCursor};
use super::{
    CompletionSink, Io, SharedReceives, SrqError, Stream, StreamCallbacks, StreamError, StreamState,
};
use crate::completion::{Completion, CompletionFlags, CompletionStatus};
use crate::ddp::untagged::UntaggedQueue;
use crate::ddp::{DdpFault, Header, Tagged, Untagged};
use crate::framing::Framing;
use crate::rdmap::atomic::ATOMIC_REQUEST_BYTES;
use crate::rdmap::read::READ_REQUEST_BYTES;
use crate::rdmap::{
    InboundRead, Opcode, READ_QUEUE, RdmapFault, ReadRequest, ResponderEntry, SEND_QUEUE, TERMINATE_QUEUE,
    TerminatedHeaders,
};
use crate::terminate::Terminate;
use crate::wr::RecvWqe;

/// Why a segment is refused, and which work request fails with it.
pub(super) struct StreamFault {
    error: Terminate,
    /// The Read Request to include in the Terminate.
    request: Option<[u8; READ_REQUEST_BYTES]>,
    /// The work request that completes with a status of its own.
    failed_wqe: Option<(FailedWqe, CompletionStatus)>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum FailedWqe {
    Receive,
    Read,
}

impl<E: Into<Terminate>> From<E> for StreamFault {
    #[cold]
    #[inline(never)]
    fn from(error: E) -> Self {
        StreamFault { error: error.into(), request: None, failed_wqe: None }
    }
}

impl StreamFault {
    #[cold]
    #[inline(never)]
    pub(super) fn with_failed_wqe(
        error: impl Into<Terminate>,
        failed_wqe: FailedWqe,
        status: CompletionStatus,
    ) -> Self {
        StreamFault { error: error.into(), request: None, failed_wqe: Some((failed_wqe, status)) }
    }
}

/// RFC 5040 s5.2.2: the Read that the segment should continue fails with the stream. The
/// ready-to-receive indication is no posted request, so none fails with it.
#[cold]
#[inline(never)]
pub(super) fn bad_response(error: Terminate, is_indication: bool) -> StreamFault {
    match is_indication {
        true => error.into(),
        false => StreamFault::with_failed_wqe(error, FailedWqe::Read, CompletionStatus::BadResponse),
    }
}

impl<F: Framing> Stream<F> {
    /// Takes the next message of a lower layer whose messages are DDP segments (RFC 5041 s3).
    /// `Ok(false)`: a delivery waits until no core uses a steering tag, so the message must be
    /// offered again. An error is returned once; afterwards messages are dropped.
    pub fn on_message<C: StreamCallbacks>(
        &mut self,
        ulpdu: &[u8],
        io: &mut Io<'_, C>,
    ) -> Result<bool, StreamError> {
        if !self.receiving {
            self.resume_delivery(io);
        }
        if !self.receiving {
            return Ok(self.state != StreamState::Open);
        }
        if let Some(out_of_order) = &mut self.out_of_order {
            out_of_order.on_next_in_order(1);
        }
        self.on_ulpdu(ulpdu, io).map(|()| true)
    }

    /// Handles the ULPDU of the next frame.
    #[inline(always)]
    fn on_ulpdu<C: StreamCallbacks>(&mut self, ulpdu: &[u8], io: &mut Io<'_, C>) -> Result<(), StreamError> {
        // RFC 5044 s7.1.2, rule 4: a responder may send once the initiator is in full operation.
        // Its first frame may be a ready-to-receive indication.
        let first = self.sender.open_gate();
        io.stats.count(Counter::IwarpRxFpdus);
        if first && self.is_rtr_send(ulpdu, io.stats) {
            return Ok(());
        }
        if self.place_fast(ulpdu, io).is_none()
            && let Err(fault) = self.on_general_segment(ulpdu, io)
        {
            return Err(self.fail_segment(fault, ulpdu, io));
        }
        if self.receiving { Ok(()) } else { self.error.map_or(Ok(()), Err) }
    }

    #[inline(never)]
    fn on_general_segment<C: StreamCallbacks>(
        &mut self,
        ulpdu: &[u8],
        io: &mut Io<'_, C>,
    ) -> Result<(), StreamFault> {
        match Header::decode(ulpdu)? {
            (Header::Tagged(header), payload) => match Opcode::decode(header.ulp)? {
                // The operation selects the right that a tagged segment needs, so it is decoded
                // before the buffer is resolved.
                Opcode::Write => self.on_write_segment(&header, payload, io),
                Opcode::ReadResponse => self.on_read_response(&header, payload, io),
                _ => Err(RdmapFault::Opcode.into()),
            },
            (Header::Untagged(header), payload) => match header.qn {
                SEND_QUEUE if !Opcode::may_be_extended(header.ulp) => {
                    self.on_send_segment(&header, payload, io)
                }
                READ_QUEUE if !Opcode::may_be_extended(header.ulp) => {
                    self.on_read_request(&header, payload, io)
                }
                TERMINATE_QUEUE => self.on_terminate(&header, payload, io),
                _ => self.on_extended_segment(&header, payload, io),
            },
        }
    }

    /// A segment of an RDMA Write (RFC 5040 s5.1).
    #[inline]
    fn on_write_segment<C>(
        &mut self,
        header: &Tagged,
        payload: &[u8],
        io: &mut Io<'_, C>,
    ) -> Result<(), StreamFault> {
        self.place_tagged(header, payload, Access::REMOTE_WRITE, io)?;
        if header.last {
            io.stats.count(Counter::IwarpRxWrites);
        }
        Ok(())
    }

    /// A segment of the response to the oldest local Read (RFC 5040 s5.2.2). It needs only the
    /// local write right.
    #[inline(never)]
    fn on_read_response<C: CompletionSink>(
        &mut self,
        header: &Tagged,
        payload: &[u8],
        io: &mut Io<'_, C>,
    ) -> Result<(), StreamFault> {
        let checked = self.outstanding.check(header, payload.len());
        checked.map_err(|error| bad_response(error, self.send_progress.rtr_read))?;
        self.place_tagged(header, payload, Access::LOCAL_WRITE, io).map_err(|fault| {
            StreamFault::with_failed_wqe(fault, FailedWqe::Read, CompletionStatus::LocalProtection)
        })?;
        if let Some(read) = self.outstanding.advance(header.last, payload.len()) {
            if read.invalidates {
                let failed_wqe = |fault| {
                    StreamFault::with_failed_wqe(fault, FailedWqe::Read, CompletionStatus::LocalProtection)
                };
                self.invalidate_sink(&read, io).map_err(failed_wqe)?;
            }
            self.send_progress.read_done();
            self.complete(io);
        }
        Ok(())
    }

    /// Places a tagged payload. RFC 5041 s5.2: steering tag and offset of an empty segment are not
    /// checked.
    #[inline]
    fn place_tagged<C>(
        &mut self,
        header: &Tagged,
        payload: &[u8],
        need: Access,
        io: &Io<'_, C>,
    ) -> Result<(), DdpFault> {
        if payload.is_empty() {
            return Ok(());
        }
        let bytes = u32::try_from(payload.len()).map_err(|_| DdpFault::BaseOrBounds)?;
        self.check_withheld(need)?;
        let span = io.memory.resolve(header.stag, self.access_scope(), header.tagged_offset, bytes, need)?;
        match &mut self.out_of_order {
            None => span.copy_in(0, payload).map_err(|error| AccessError::from(error).into()),
            Some(out_of_order) => out_of_order.place_unless_present(span, payload, io.stats),
        }
    }

    /// A segment of a Send of any kind (RFC 5040 s5.3).
    #[inline]
    fn on_send_segment<C: CompletionSink + SharedReceives>(
        &mut self,
        header: &Untagged,
        payload: &[u8],
        io: &mut Io<'_, C>,
    ) -> Result<(), StreamFault> {
        let head = io.receives.head();
        if io.receives.at(head).is_none() {
            self.fetch_receive(header.msn == self.rx_sends.msn(), io)?;
        }
        let wqe = io.receives.at(head);
        let opcode = self.check_send(header, payload.len(), wqe)?;
        // RFC 5040 s5.3 and s7.2, checks 4 and 5: the tag is checked with the last segment, before
        // that is placed.
        if opcode.invalidates() && header.last {
            let checked =
                io.memory.may_invalidate(STag(header.ulp_word), self.access_scope(), Invalidator::Remote);
            checked.map_err(RdmapFault::from)?;
        }
        let wqe = wqe.ok_or(DdpFault::NoBuffer)?;
        let view =
            MemoryView { memory: io.memory, scope: AccessScope::new(self.config.recv_pd, self.config.qp) };
        let from = self.recv_cursor;
        let placed = self.recv_cursor.scatter(wqe.scatter(), view, payload);
        // The receive names memory that it may not use. This is an error of the local application,
        // so the Terminate includes no header.
        placed.map_err(|_| {
            let status = CompletionStatus::LocalProtection;
            StreamFault::with_failed_wqe(RdmapFault::LocalCatastrophic, FailedWqe::Receive, status)
        })?;
        if let Some(out_of_order) = &mut self.out_of_order {
            out_of_order.on_scatter(from, (wqe.scatter(), view), payload.len(), io.stats);
        }
        let wr_id = wqe.wr_id;
        if let Some(message_bytes) = self.rx_sends.advance(header.last, payload.len()) {
            let mut completion = self.receive_completion(wr_id, message_bytes, CompletionStatus::Success);
            completion.flags.set(CompletionFlags::SOLICITED, opcode.is_solicited());
            self.recv_cursor = SgeCursor::default();
            if opcode.invalidates() {
                completion.flags.insert(CompletionFlags::INVALIDATED);
                completion.invalidated = STag(header.ulp_word);
                return Ok(self.deliver_invalidating(completion, completion.invalidated, io)?);
            }
            self.complete_receive(completion, io);
        }
        Ok(())
    }

    /// The checks of RFC 5041 s7.1, then those of RFC 5040 s7.2. `wqe` is the oldest receive.
    #[inline]
    fn check_send(
        &self,
        header: &Untagged,
        payload_bytes: usize,
        wqe: Option<&RecvWqe>,
    ) -> Result<Opcode, StreamFault> {
        let buffer = wqe.map(RecvWqe::capacity_bytes);
        self.rx_sends.check(header, payload_bytes, buffer).map_err(|fault| match fault {
            DdpFault::TooLong => {
                StreamFault::with_failed_wqe(fault, FailedWqe::Receive, CompletionStatus::LocalLength)
            }
            fault => fault.into(),
        })?;
        let opcode = Opcode::decode(header.ulp)?;
        if opcode.is_send() { Ok(opcode) } else { Err(RdmapFault::Opcode.into()) }
    }

    /// Looks for a newly posted receive, or takes one from the shared receive queue. A segment that
    /// is not the next message is refused, so it takes none.
    pub(super) fn fetch_receive<C: SharedReceives>(
        &self,
        is_next: bool,
        io: &mut Io<'_, C>,
    ) -> Result<(), RdmapFault> {
        if io.receives.refresh() != io.receives.head() || !is_next {
            return Ok(());
        }
        let Some(rq_producer) = io.rq_producer.as_deref_mut() else { return Ok(()) };
        match io.callbacks.take_from_srq(rq_producer) {
            Ok(()) => {
                io.receives.refresh();
                Ok(())
            }
            // `UntaggedQueue::check` reports the missing buffer (RFC 5041 s7.1).
            Err(SrqError::Empty) => Ok(()),
            Err(SrqError::CqFull) => Err(RdmapFault::StreamCatastrophic),
        }
    }

    /// Completes the receive at the front of its queue.
    #[inline(always)]
    pub(super) fn complete_receive<C: CompletionSink>(&mut self, completion: Completion, io: &mut Io<'_, C>) {
        io.callbacks.on_receive_completion(completion);
        io.receives.release_to(io.receives.head().wrapping_add(1));
        io.stats.count(Counter::IwarpRxSends);
    }

    /// A Read Request (RFC 5040 s5.2.1, s7.2): one segment with exactly one header. The response is
    /// generated when it is next to be sent.
    #[inline(never)]
    fn on_read_request<C>(
        &mut self,
        header: &Untagged,
        payload: &[u8],
        io: &mut Io<'_, C>,
    ) -> Result<(), StreamFault> {
        self.rx_requests.check(header, payload.len(), self.request_buffer_bytes())?;
        if Opcode::decode(header.ulp)? != Opcode::ReadRequest {
            return Err(RdmapFault::Opcode.into());
        }
        if !header.last {
            return Err(RdmapFault::StreamCatastrophic.into());
        }
        let request = ReadRequest::decode(payload).ok_or(RdmapFault::Unspecified)?;
        self.check_source(&request, io)?;
        self.reserve_responses()?;
        self.responses.push(ResponderEntry::Read(InboundRead { request, msn: header.msn, sent: 0 }));
        self.rx_requests.advance(true, payload.len());
        io.stats.count(Counter::IwarpRxReadRequests);
        Ok(())
    }

    /// The first request allocates the buffers of queue 1. Without memory it finds none
    /// (RFC 5041 s7.1).
    #[inline]
    pub(super) fn reserve_responses(&mut self) -> Result<(), StreamFault> {
        if self.responses.reserve() { Ok(()) } else { Err(DdpFault::NoBuffer.into()) }
    }

    /// Returns the size of a free buffer on queue 1. RFC 5040 s5.2.2: the IRD limits their number,
    /// and a request beyond it finds none. RFC 7306 s5.2: Atomic Requests are longer and share the
    /// buffers.
    pub(super) fn request_buffer_bytes(&self) -> Option<u32> {
        let bytes = if self.config.extensions.is_some() { ATOMIC_REQUEST_BYTES } else { READ_REQUEST_BYTES };
        self.responses.has_room().then_some(bytes as u32)
    }

    /// RFC 5040 s7.2, check 4. The source of an empty Read is not checked (s5.2.1).
    fn check_source<C>(&self, request: &ReadRequest, io: &Io<'_, C>) -> Result<(), StreamFault> {
        if request.bytes == 0 {
            return Ok(());
        }
        let ReadRequest { source_stag, source_to, bytes, .. } = *request;
        let found = self.check_withheld(Access::REMOTE_READ).and_then(|()| {
            io.memory.resolve(source_stag, self.access_scope(), source_to, bytes, Access::REMOTE_READ)
        });
        match found {
            Ok(_) => Ok(()),
            Err(refused) => {
                let error = RdmapFault::from(refused).into();
                Err(StreamFault { error, request: Some(request.encode()), failed_wqe: None })
            }
        }
    }

    /// The peer's Terminate (RFC 5040 s5.4). Its buffer has no size limit, and the headers that it
    /// includes are not checked.
    #[cold]
    fn on_terminate<C: CompletionSink>(
        &mut self,
        header: &Untagged,
        payload: &[u8],
        io: &mut Io<'_, C>,
    ) -> Result<(), StreamFault> {
        UntaggedQueue::new().check(header, payload.len(), Some(u32::MAX))?;
        if Opcode::decode(header.ulp)? != Opcode::Terminate {
            return Err(RdmapFault::Opcode.into());
        }
        // RFC 5040 s4.8: a Terminate is one segment.
        if !header.last {
            return Err(RdmapFault::StreamCatastrophic.into());
        }
        // A side that has sent a request is past start-up, and so is its peer.
        let starting = self.sender.next == 0 && !self.sender.under_way;
        let error = Terminate::decode(payload, starting).ok_or(RdmapFault::Unspecified)?;
        self.detect_no_peer_atomics(error, payload, io);
        self.peer_terminated(error, io);
        Ok(())
    }

    /// Ends the stream because of the segment in `ulpdu`.
    #[cold]
    fn fail_segment<C: CompletionSink>(
        &mut self,
        fault: StreamFault,
        ulpdu: &[u8],
        io: &mut Io<'_, C>,
    ) -> StreamError {
        let terminated_headers = TerminatedHeaders::segment(ulpdu);
        let terminated_headers =
            fault.request.map_or(terminated_headers, |request| terminated_headers.with_request(request));
        let end = self.enter_error(fault.error, terminated_headers, io.stats);
        match fault.failed_wqe {
            Some((FailedWqe::Receive, status)) => self.flush_receives(Some((io.receives.head(), status)), io),
            Some((FailedWqe::Read, status)) => {
                let read = self.oldest_unanswered(io);
                self.flush_sends(read.map(|seq| (seq, status)), io);
            }
            None => {}
        }
        self.clear_and_flush(io);
        end
    }

    /// Returns the sequence number of the oldest Read or atomic operation without a complete
    /// response.
    pub(super) fn oldest_unanswered<C>(&self, io: &Io<'_, C>) -> Option<u32> {
        let mut answered = self.send_progress.reads_done;
        let mut seq = io.sends.head();
        while seq != self.sender.next {
            let is_read = io.sends.at(seq)?.opcode.expects_response();
            if is_read && answered == 0 {
                return Some(seq);
            }
            answered = answered.saturating_sub(u32::from(is_read));
            seq = seq.wrapping_add(1);
        }
        None
    }
}
