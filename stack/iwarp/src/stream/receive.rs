//! The receiving side: from in-order bytes to placed data, completions and owed responses.
//!
//! Every FPDU is checked from the outside in: CRC, DDP header and buffer (RFC 5041 s7.1), RDMAP operation and
//! version, then the operation's own rules (RFC 5040 s7.2). Only what has passed all of them is placed, so an FPDU
//! that is refused leaves memory untouched. The first refusal ends the stream; what arrives later is dropped.

use ironwarp_mem::{Access, AccessScope};
use ironwarp_stats::{CoreStats, Counter};
use ironwarp_tcp::ByteStream;
use ironwarp_types::STag;

use super::cursor::{MemoryView, SgeCursor};
use super::out_of_order::OutOfOrderPlacement;
use super::{
    CompletionSink, Io, SharedReceives, SrqError, Stream, StreamCallbacks, StreamError, StreamState,
};
use crate::completion::{Completion, CompletionFlags, CompletionStatus};
use crate::ddp::untagged::UntaggedQueue;
use crate::ddp::{DdpFault, Header, Tagged, Untagged};
use crate::mpa::marker::MarkerState;
use crate::mpa::{MpaFault, fpdu};
use crate::rdmap::atomic::ATOMIC_REQUEST_BYTES;
use crate::rdmap::read::READ_REQUEST_BYTES;
use crate::rdmap::{
    InboundRead, Opcode, READ_QUEUE, RdmapFault, ReadRequest, ResponderEntry, SEND_QUEUE, TERMINATE_QUEUE,
    TerminatedHeaders,
};
use crate::terminate::Terminate;
use crate::wr::RecvWqe;

/// Why a segment is refused, and what besides the stream it ends.
pub(super) struct StreamFault {
    error: Terminate,
    /// The Read Request to show with it.
    request: Option<[u8; READ_REQUEST_BYTES]>,
    /// The work request that it was for, which completes with a status of its own.
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

/// RFC 5040 s5.2.2: the Read that the segment should have continued fails with it, where there is one that was posted: the
/// indication is nobody's request.
#[cold]
#[inline(never)]
pub(super) fn bad_response(error: Terminate, is_indication: bool) -> StreamFault {
    match is_indication {
        true => error.into(),
        false => StreamFault::with_failed_wqe(error, FailedWqe::Read, CompletionStatus::BadResponse),
    }
}

impl Stream {
    /// Takes every whole FPDU from `bytes` and leaves what is not whole yet. `scratch` is the core's, of
    /// `FPDU_MARKED_BYTES_MAX` octets: an FPDU that does not lie in one piece is gathered there.
    ///
    /// An error is told once. Afterwards everything that arrives is taken and dropped (RFC 5041 s7.1), so that TCP
    /// keeps acknowledging and the Terminate gets through.
    pub fn on_readable<C: StreamCallbacks>(
        &mut self,
        bytes: &mut impl ByteStream,
        scratch: &mut [u8],
        io: &mut Io<'_, C>,
    ) -> Result<(), StreamError> {
        if !self.receiving {
            self.begin_receiving(bytes, io)?;
        }
        while self.receiving {
            let Some(size) = self.whole_fpdu_bytes(bytes) else { return Ok(()) };
            let decoded = self.decode(size, bytes, scratch, io.stats);
            let outcome = self.on_fpdu(decoded, io);
            bytes.consume(size);
            if outcome.is_err() {
                bytes.consume(bytes.available());
                return outcome;
            }
        }
        if matches!(self.state, StreamState::Terminating | StreamState::Ended) {
            bytes.consume(bytes.available());
        }
        Ok(())
    }

    /// The octets of the FPDU at the front of `bytes`, when all of it has arrived.
    #[inline]
    fn whole_fpdu_bytes(&self, bytes: &impl ByteStream) -> Option<usize> {
        match &self.rx_markers {
            None => fpdu::whole_fpdu_bytes(bytes),
            Some(marker_state) => whole_marked_fpdu_bytes(marker_state, bytes),
        }
    }

    /// The ULPDU of a whole FPDU, found right: in its place where it lies in one piece without markers inside.
    #[inline]
    fn decode<'a>(
        &mut self,
        size: usize,
        bytes: &'a impl ByteStream,
        scratch: &'a mut [u8],
        stats: &CoreStats,
    ) -> Result<&'a [u8], MpaFault> {
        match (bytes.front().get(..size), &self.rx_markers) {
            (Some(whole), None) => fpdu::decode(whole, self.crc),
            _ => self.decode_in_scratch(size, bytes, scratch, stats),
        }
    }

    /// The same where it lies in several pieces, or markers may lie inside.
    #[inline(never)]
    fn decode_in_scratch<'a>(
        &mut self,
        size: usize,
        bytes: &'a impl ByteStream,
        scratch: &'a mut [u8],
        stats: &CoreStats,
    ) -> Result<&'a [u8], MpaFault> {
        match (bytes.front().get(..size), &mut self.rx_markers) {
            (Some(whole), None) => fpdu::decode(whole, self.crc),
            (Some(whole), Some(marker_state)) => {
                begin_out_of_order(&mut self.out_of_order, size);
                marker_state.decode(whole, scratch, self.crc)
            }
            (None, marker_state) => {
                stats.count(Counter::IwarpRxFpdusReassembled);
                let whole = scratch.get_mut(..size).ok_or(MpaFault::LocalCatastrophic)?;
                bytes.peek(whole);
                match marker_state {
                    None => fpdu::decode(whole, self.crc),
                    Some(marker_state) => {
                        begin_out_of_order(&mut self.out_of_order, size);
                        marker_state.decode_gathered(whole, self.crc)
                    }
                }
            }
        }
    }

    #[inline]
    fn on_fpdu<C: StreamCallbacks>(
        &mut self,
        decoded: Result<&[u8], MpaFault>,
        io: &mut Io<'_, C>,
    ) -> Result<(), StreamError> {
        // RFC 5044 s7.1.2, rule 4 lets a responder send once the initiator is known to be in full operation. An FPDU
        // with a wrong CRC shows that as well, and only then can the Terminate for it be sent.
        let first = self.sender.open_gate();
        io.stats.count(Counter::IwarpRxFpdus);
        let ulpdu = match decoded {
            Ok(ulpdu) => ulpdu,
            Err(fault) => return Err(self.on_bad_fpdu(fault, io)),
        };
        if first && self.is_rtr_send(ulpdu, io.stats) {
            return Ok(());
        }
        match self.on_ddp_segment(ulpdu, io) {
            Err(fault) => Err(self.fail_segment(fault, ulpdu, io)),
            Ok(()) if self.receiving => Ok(()),
            Ok(()) => self.error.map_or(Ok(()), Err),
        }
    }

    /// RFC 5044 s8: nothing of it is used, and nothing behind it.
    #[cold]
    fn on_bad_fpdu<C: CompletionSink>(&mut self, fault: MpaFault, io: &mut Io<'_, C>) -> StreamError {
        let counter = match fault {
            MpaFault::Marker => Counter::IwarpRxMarkerErrors,
            MpaFault::Crc => Counter::IwarpRxCrcErrors,
            _ => Counter::IwarpLocalErrors,
        };
        io.stats.count(counter);
        self.fail(fault, TerminatedHeaders::default(), io)
    }

    #[inline]
    fn on_ddp_segment<C: StreamCallbacks>(
        &mut self,
        ulpdu: &[u8],
        io: &mut Io<'_, C>,
    ) -> Result<(), StreamFault> {
        match Header::decode(ulpdu)? {
            (Header::Tagged(header), payload) => match Opcode::decode(header.ulp)? {
                // The operation says which right a tagged segment needs, so it is looked at before the buffer.
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

    /// A segment of an RDMA Write (RFC 5040 s5.1). Each one says itself where it goes.
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

    /// A segment of the response to our oldest Read (RFC 5040 s5.2.2). It needs local write right alone.
    #[inline(never)]
    fn on_read_response<C: CompletionSink>(
        &mut self,
        header: &Tagged,
        payload: &[u8],
        io: &mut Io<'_, C>,
    ) -> Result<(), StreamFault> {
        let checked = self.outstanding.check(header, payload.len());
        checked.map_err(|error| bad_response(error, self.send_progress.awaits_rtr_read()))?;
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

    /// Places a tagged payload. RFC 5041 s5.2: steering tag and offset of an empty segment are not looked at.
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
        let span = io.memory.resolve(header.stag, self.access_scope(), header.tagged_offset, bytes, need)?;
        match &mut self.out_of_order {
            None => span.copy_in(0, payload).map_err(|_| DdpFault::BaseOrBounds),
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
        // RFC 5040 s5.3: the tag is checked with the last segment of the message.
        if opcode.invalidates() && header.last {
            self.check_invalidate(STag(header.ulp_word), io)?;
        }
        let wqe = wqe.ok_or(DdpFault::NoBuffer)?;
        let view =
            MemoryView { memory: io.memory, scope: AccessScope::new(self.config.recv_pd, self.config.qp) };
        let from = self.recv_cursor;
        let landed = self.recv_cursor.scatter(wqe.scatter(), view, payload);
        // The receive names memory that it may not: our own application's error, and no header is shown for it.
        landed.map_err(|_| {
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

    /// Looks for a receive that has come since the last look, or for one of a shared queue. A segment that is
    /// refused anyway, because it is not the next message, takes none.
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
            // The segment finds no buffer (RFC 5041 s7.1).
            Err(SrqError::Empty) => Ok(()),
            Err(SrqError::CqFull) => Err(RdmapFault::StreamCatastrophic),
        }
    }

    /// Completes the receive at the front of its queue.
    #[inline]
    pub(super) fn complete_receive<C: CompletionSink>(&mut self, completion: Completion, io: &mut Io<'_, C>) {
        io.callbacks.on_receive_completion(completion);
        io.receives.release_to(io.receives.head().wrapping_add(1));
        io.stats.count(Counter::IwarpRxSends);
    }

    /// A Read Request (RFC 5040 s5.2.1, s7.2): one segment, exactly one header. Its answer is owed, and generated
    /// when it is its turn to be sent.
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
        self.responses.push(ResponderEntry::Read(InboundRead { request, msn: header.msn, sent: 0 }));
        self.rx_requests.advance(true, payload.len());
        io.stats.count(Counter::IwarpRxReadRequests);
        Ok(())
    }

    /// The buffer that waits on queue 1. RFC 5040 s5.2.2: there are as many as Reads were agreed on; one more finds none.
    /// RFC 7306 s5.2: Atomic Requests are longer, and share them.
    pub(super) fn request_buffer_bytes(&self) -> Option<u32> {
        let bytes = if self.config.extensions.is_some() { ATOMIC_REQUEST_BYTES } else { READ_REQUEST_BYTES };
        self.responses.has_room().then_some(bytes as u32)
    }

    /// RFC 5040 s7.2, check 4. Nothing of an empty Read is looked at (s5.2.1).
    fn check_source<C>(&self, request: &ReadRequest, io: &Io<'_, C>) -> Result<(), StreamFault> {
        if request.bytes == 0 {
            return Ok(());
        }
        let ReadRequest { source_stag, source_to, bytes, .. } = *request;
        match io.memory.resolve(source_stag, self.access_scope(), source_to, bytes, Access::REMOTE_READ) {
            Ok(_) => Ok(()),
            Err(refused) => {
                let error = RdmapFault::from(refused).into();
                Err(StreamFault { error, request: Some(request.encode()), failed_wqe: None })
            }
        }
    }

    /// The peer's Terminate (RFC 5040 s5.4). One is always taken, however long; what it shows is not looked at.
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
        // RFC 5040 s4.8: it is one segment.
        if !header.last {
            return Err(RdmapFault::StreamCatastrophic.into());
        }
        // Whoever has sent a request has left start-up behind, and so has its peer.
        let starting = self.sender.next() == 0 && !self.sender.is_under_way();
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

    /// The slot of the oldest Read that has no full answer.
    pub(super) fn oldest_unanswered<C>(&self, io: &Io<'_, C>) -> Option<u32> {
        let mut answered = self.send_progress.reads_done();
        let mut seq = io.sends.head();
        while seq != self.sender.next() {
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

/// Streams with markers are few, and what they cost stays out of the others' way.
#[inline(never)]
fn whole_marked_fpdu_bytes(marker_state: &MarkerState, bytes: &impl ByteStream) -> Option<usize> {
    marker_state.whole_fpdu_bytes(bytes)
}

/// Early placement needs markers, so only streams with markers ask.
fn begin_out_of_order(out_of_order: &mut Option<Box<OutOfOrderPlacement>>, size: usize) {
    if let Some(out_of_order) = out_of_order {
        out_of_order.on_next_in_order(size);
    }
}
