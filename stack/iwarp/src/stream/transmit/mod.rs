//! The send side: the units that TCP pulls (RFC 5040 s5, RFC 5041 s5.2, RFC 5044 s4.5).
//!
//! The send queue and the queue of responses alternate by message. A tagged message never
//! interrupts another tagged one, because strict receivers refuse that. With `interleave_untagged`,
//! untagged messages may go between the segments of a Read Response.
//!
//! A unit is as many whole frames ([`Framing`]) as fit in the segment. A message is cut at MULPDU,
//! and small messages share a segment. Every payload is copied, and the CRC is that of the copy.

mod extended;
mod fast;
mod one_pass;
mod read_response;
mod segment_space;
mod sender;

use ironwarp_llp::UnitSource;
use ironwarp_mem::{Access, CoreMem};
use ironwarp_stats::{CoreStats, Counter};
use ironwarp_types::limits::{MESSAGE_BYTES_MAX, MULPDU_BYTES_MIN};

pub(super) use segment_space::SegmentSpace;
pub(super) use sender::{Gate, Sender};

use super::cursor::MemoryView;
use super::{CompletionSink, Io, Stream, StreamCallbacks, StreamError, StreamState};
use crate::completion::CompletionStatus;
use crate::ddp::{TAGGED_BYTES, Tagged, UNTAGGED_BYTES, Untagged};
use crate::framing::Framing;
use crate::mpa::MpaFault;
use crate::rdmap::{
    Opcode, OutstandingRequest, READ_QUEUE, RdmapFault, ReadRequest, ResponderEntry, SEND_QUEUE,
    TERMINATE_QUEUE, TerminatedHeaders,
};
use crate::wr::{SendFlags, SendOpcode, SendWqe};

/// A message that does not fit in the rest of a segment is cut only if at least this fraction of
/// the segment is left. A smaller piece is not worth another header.
const MIN_FILL_DIVISOR: usize = 4;

/// The flags that hold a request back.
const FENCES: SendFlags = SendFlags::FENCE.union(SendFlags::LOCAL_FENCE);

/// The queue that sends next.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum TxChoice {
    Sends,
    Responses,
    /// A request of the send queue that sends nothing.
    Local,
}

/// A stream as a source of units for TCP.
pub struct StreamSource<'s, 'i, F: Framing, C> {
    stream: &'s mut Stream<F>,
    io: Io<'i, C>,
    byte_limit: i64,
    /// The last unit took all that the stream had. Work that is posted later rings the doorbell.
    emptied: bool,
}

impl<F: Framing, C> StreamSource<'_, '_, F, C> {
    /// Returns the rest of the limit, negative if the last unit exceeded it.
    pub fn remaining_bytes(&self) -> i64 {
        self.byte_limit
    }
}

impl<F: Framing, C: StreamCallbacks> UnitSource for StreamSource<'_, '_, F, C> {
    /// Tuning: not inlined, as the stream needs registers of its own.
    #[inline(never)]
    fn fill(&mut self, room: &mut [u8]) -> usize {
        if self.byte_limit <= 0 {
            return 0;
        }
        let (stream, io) = (&mut *self.stream, &mut self.io);
        stream.sender.unit_sum = None;
        let is_open = stream.state == StreamState::Open && stream.sender.gate == Gate::Open;
        let bytes = match is_open & stream.fast.on {
            // Fast: one message that is all. Tuning: the loop for more would take registers.
            true => match stream.fill_fast::<_, true>(room, io) {
                Some(bytes) if !stream.config.complete_on_copy && stream.has_nothing_to_send(io) => {
                    self.emptied = true;
                    bytes
                }
                written => self.fill_general(room, written.unwrap_or(0)),
            },
            false => self.fill_in_any_state(room),
        };
        // The limit is positive, and no slice has 2^63 bytes.
        self.byte_limit = self.byte_limit.wrapping_sub(bytes as i64);
        bytes
    }

    #[inline]
    fn sum(&self) -> Option<u32> {
        self.stream.sender.unit_sum
    }

    #[inline(always)]
    fn is_empty(&mut self) -> bool {
        self.emptied || self.byte_limit <= 0 || self.stream.has_nothing_to_send(&mut self.io)
    }

    /// RFC 5040 s5.4: nothing follows a Terminate.
    fn is_last(&self) -> bool {
        self.stream.state == StreamState::Terminating
    }
}

impl<F: Framing, C: StreamCallbacks> StreamSource<'_, '_, F, C> {
    #[inline(never)]
    fn fill_in_any_state(&mut self, room: &mut [u8]) -> usize {
        let (stream, io) = (&mut *self.stream, &mut self.io);
        match stream.state {
            StreamState::Open if stream.sender.gate == Gate::Open => self.fill_general(room, 0),
            StreamState::Open => stream.fill_gated(room, io),
            StreamState::Terminating => stream.fill_terminate(room, io.stats),
            StreamState::Idle | StreamState::Ended => 0,
        }
    }

    /// Fills `room`, of which the first `used` bytes are one frame already. The general path writes
    /// the first one.
    #[inline(never)]
    fn fill_general(&mut self, room: &mut [u8], mut used: usize) -> usize {
        let (stream, io) = (&mut *self.stream, &mut self.io);
        // Fast: the middle of a long message.
        if stream.sender.under_way & stream.fast.on
            && let Some(bytes) = stream.fill_middle(room, io)
        {
            return bytes;
        }
        let whole = room.len();
        let mut emptied = used > 0 && stream.has_nothing_to_send(io);
        while !emptied
            && (used == 0 || stream.framing.shares_units())
            && let Some(left) = room.get_mut(used..)
        {
            // The rest of a long message needs a segment of its own.
            if stream.sender.under_way && left.len() < stream.framing.overhead_bytes() + TAGGED_BYTES {
                break;
            }
            let is_fast = (used > 0) & stream.fast.on;
            let written = if is_fast { stream.fill_fast::<_, false>(left, io) } else { None };
            let bytes = match written {
                Some(bytes) => bytes,
                None => {
                    let mut room = SegmentSpace::new(left, &stream.framing);
                    // RFC 5044 s4.5: a partly filled segment never lowers MULPDU below 128 octets.
                    let worth = room.bytes.len() >= whole / MIN_FILL_DIVISOR
                        && stream.framing.fits(MULPDU_BYTES_MIN, room.usable);
                    room.may_cut = used == 0 || worth;
                    stream.next_frame(&mut room, io)
                }
            };
            if bytes == 0 {
                break;
            }
            if used > 0 {
                // It is the sum of one frame.
                stream.sender.unit_sum = None;
            }
            // At most the length of `room`.
            used = used.wrapping_add(bytes);
            emptied = stream.has_nothing_to_send(io);
        }
        if stream.config.complete_on_copy && stream.state == StreamState::Open {
            stream.complete(io);
        }
        self.emptied = emptied;
        used
    }
}

impl<F: Framing> Stream<F> {
    /// Returns the source of units for one call, limited to `byte_limit` bytes. The unit that
    /// exceeds the limit is still complete. A send that cannot be carried out ends the stream, so
    /// check [`Stream::state`] afterwards.
    #[inline(always)]
    pub fn limited_source<'s, 'i, C: StreamCallbacks>(
        &'s mut self,
        io: Io<'i, C>,
        byte_limit: i64,
    ) -> StreamSource<'s, 'i, F, C> {
        StreamSource { stream: self, io, byte_limit, emptied: false }
    }

    /// Returns whether a unit is available now.
    #[inline]
    pub fn wants_tx<C>(&self, io: &mut Io<'_, C>) -> bool {
        !self.has_nothing_to_send(io) && self.has_sendable(io)
    }

    /// Returns whether the stream is open and has neither an unsent request nor a pending response:
    /// the common case.
    #[inline]
    fn has_nothing_to_send<C>(&self, io: &mut Io<'_, C>) -> bool {
        self.state == StreamState::Open
            && self.sender.gate == Gate::Open
            && io.sends.refresh() == self.sender.next
            && self.responses.is_empty()
    }

    #[inline(never)]
    fn has_sendable<C>(&self, io: &mut Io<'_, C>) -> bool {
        match self.state {
            StreamState::Open if self.sender.gate == Gate::Open => {
                io.sends.refresh();
                self.next_tx(io).is_some()
            }
            StreamState::Open if self.sender.rtr().is_some() => true,
            StreamState::Open => {
                io.sends.refresh();
                self.next_tx(io) == Some(TxChoice::Local)
            }
            StreamState::Terminating => true,
            StreamState::Idle | StreamState::Ended => false,
        }
    }

    /// No request of the application may be sent yet, but those that send nothing are carried out:
    /// a peer may already know a tag.
    #[cold]
    fn fill_gated<C: CompletionSink>(&mut self, room: &mut [u8], io: &mut Io<'_, C>) -> usize {
        self.run_local_requests(io);
        if self.state == StreamState::Open { self.fill_rtr(room, io.stats) } else { 0 }
    }

    /// Carries out the requests at the front of the send queue that send nothing, without waiting
    /// for TCP.
    pub fn run_local_requests<C: CompletionSink>(&mut self, io: &mut Io<'_, C>) {
        if self.state == StreamState::Open {
            io.sends.refresh();
            while self.next_tx(io) == Some(TxChoice::Local) && self.run_local_request(io) {}
        }
    }

    /// Writes one frame. Returns its length, or 0 if nothing is sent.
    #[inline(never)]
    fn next_frame<C: StreamCallbacks>(&mut self, room: &mut SegmentSpace<'_>, io: &mut Io<'_, C>) -> usize {
        let outcome = loop {
            if io.sends.at(self.sender.next).is_none() {
                io.sends.refresh();
            }
            match self.next_tx(io) {
                Some(TxChoice::Sends) => break self.send_segment(room, io),
                Some(TxChoice::Responses) => break self.response_segment(room, io),
                Some(TxChoice::Local) if self.run_local_request(io) => {}
                Some(TxChoice::Local) | None => return 0,
            }
        };
        outcome.inspect(|_| io.stats.count(Counter::IwarpTxFpdus)).unwrap_or(0)
    }

    /// Selects the next sender: a message in progress first, then the two queues alternately.
    fn next_tx<C>(&self, io: &Io<'_, C>) -> Option<TxChoice> {
        if self.sender.under_way {
            return Some(TxChoice::Sends);
        }
        let send = io.sends.at(self.sender.next).filter(|wqe| self.may_begin(wqe, io.sends.head()));
        match (send, self.responses.sendable()) {
            (None, None) => None,
            (Some(wqe), _) if wqe.opcode.is_local() => Some(TxChoice::Local),
            (Some(_), None) => Some(TxChoice::Sends),
            (None, Some(_)) => Some(TxChoice::Responses),
            (Some(wqe), Some(response)) => Some(self.alternate(wqe, response)),
        }
    }

    fn alternate(&self, wqe: &SendWqe, response: &ResponderEntry) -> TxChoice {
        let interrupts = response.is_begun();
        let may_interrupt = self.config.interleave_untagged && wqe.opcode != SendOpcode::Write;
        if self.sender.responses_first || (interrupts && !may_interrupt) {
            TxChoice::Responses
        } else {
            TxChoice::Sends
        }
    }

    /// Returns whether a request may begin now. `head` is the oldest request that has not
    /// completed.
    fn may_begin(&self, wqe: &SendWqe, head: u32) -> bool {
        // A read fence holds it until all earlier Reads are answered, a local fence until all
        // earlier requests have completed.
        let is_fenced = wqe.flags.intersects(FENCES)
            && ((wqe.flags.contains(SendFlags::FENCE) && !self.outstanding.is_empty())
                || (wqe.flags.contains(SendFlags::LOCAL_FENCE) && head != self.sender.next));
        // RFC 5040 s6.1: a Read waits while ORD Reads are outstanding. With an ORD of 0 it would
        // wait forever, so it begins and fails.
        let waits_for_room =
            wqe.opcode.expects_response() && !self.outstanding.has_room() && self.outstanding.ord() > 0;
        !(is_fenced || waits_for_room || self.sender.awaits_quiescence)
    }

    /// Writes one segment of the current request. Nothing is written if it does not fit.
    fn send_segment<C: CompletionSink>(
        &mut self,
        room: &mut SegmentSpace<'_>,
        io: &mut Io<'_, C>,
    ) -> Option<usize> {
        let seq = self.sender.next;
        let view = MemoryView { memory: io.memory, scope: self.access_scope() };
        let outcome = match io.sends.at(seq) {
            Some(wqe) if wqe.opcode.is_send_or_write() => self.message_segment(wqe, view, room),
            Some(wqe) if wqe.opcode.is_read() => self.read_request(wqe, view, room),
            Some(wqe) => self.extended_segment(wqe, view, room),
            None => Ok(None),
        };
        match outcome {
            Ok(written) => written,
            Err(status) => {
                self.fail_send(seq, status, io);
                None
            }
        }
    }

    /// Writes a segment of a Send or Write.
    fn message_segment(
        &mut self,
        wqe: &SendWqe,
        view: MemoryView<'_>,
        room: &mut SegmentSpace<'_>,
    ) -> Result<Option<usize>, CompletionStatus> {
        let bytes = wqe.message_bytes();
        if bytes > MESSAGE_BYTES_MAX {
            return Err(CompletionStatus::LocalLength);
        }
        let header_bytes = if wqe.opcode == SendOpcode::Write { TAGGED_BYTES } else { UNTAGGED_BYTES };
        let left = bytes.saturating_sub(self.sender.sent);
        let Some(payload_bytes) = room.payload(&self.framing, header_bytes, left) else { return Ok(None) };
        let last = payload_bytes == left as usize;
        if !wqe.is_inline()
            && let Some(frame) = self.one_pass_frame(room.bytes, header_bytes, payload_bytes)
        {
            let written = self.message_in_one_pass(frame, wqe, view, last)?;
            self.advance_message(wqe, payload_bytes, last);
            return Ok(Some(written));
        }
        let ulpdu = room.ulpdu(&self.framing, header_bytes + payload_bytes);
        let Some((header, payload)) = ulpdu.and_then(|ulpdu| ulpdu.split_at_mut_checked(header_bytes)) else {
            return Ok(None);
        };
        self.copy_payload(wqe, view.memory, payload)?;
        self.message_header(wqe, last, header);
        let written = self.complete_frame(room.bytes, header_bytes + payload_bytes);
        self.advance_message(wqe, payload_bytes, last);
        Ok(Some(written))
    }

    /// Moves past a segment of a Send or Write.
    #[inline(always)]
    fn advance_message(&mut self, wqe: &SendWqe, payload_bytes: usize, last: bool) {
        if last {
            self.send_progress.set_done_when_acked(self.sender.next);
            self.sender.send_msn =
                self.sender.send_msn.wrapping_add(u32::from(wqe.opcode != SendOpcode::Write));
        }
        self.sender.advance(payload_bytes, last);
    }

    /// Copies the next octets of a request to `payload`.
    #[inline(always)]
    fn copy_payload(
        &mut self,
        wqe: &SendWqe,
        memory: &CoreMem,
        payload: &mut [u8],
    ) -> Result<(), CompletionStatus> {
        if !wqe.is_inline() {
            let view = MemoryView { memory, scope: self.access_scope() };
            let copied = self.sender.cursor.gather(wqe.gather(), view, payload);
            return copied.map_err(|_| CompletionStatus::LocalProtection);
        }
        let from = self.sender.sent as usize;
        let bytes = wqe.inline_bytes().and_then(|bytes| bytes.get(from..from + payload.len()));
        payload.copy_from_slice(bytes.ok_or(CompletionStatus::LocalLength)?);
        Ok(())
    }

    #[inline(always)]
    fn message_header(&self, wqe: &SendWqe, last: bool, out: &mut [u8]) {
        // RFC 5040 s4.1: the field for a tag is zero in Sends that invalidate nothing.
        let (opcode, ulp_word) = match wqe.opcode {
            SendOpcode::Send => (Opcode::Send, 0),
            SendOpcode::SendSolicited => (Opcode::SendSolicited, 0),
            SendOpcode::SendInvalidate => (Opcode::SendInvalidate, wqe.remote_stag.0),
            SendOpcode::SendSolicitedInvalidate => (Opcode::SendSolicitedInvalidate, wqe.remote_stag.0),
            SendOpcode::Write => {
                // RFC 5041 s5.2: the offset of a segment is the offset of the message plus that of
                // its payload.
                let tagged_offset = wqe.remote_to.wrapping_add(self.sender.sent.into());
                let ulp = Opcode::Write.control();
                Tagged { last, ulp, stag: wqe.remote_stag, tagged_offset }.encode(out);
                return;
            }
            // They have a segment of their own, or none.
            SendOpcode::Read
            | SendOpcode::ReadInvalidate
            | SendOpcode::Invalidate
            | SendOpcode::Bind
            | SendOpcode::FastRegister
            | SendOpcode::Immediate
            | SendOpcode::ImmediateSolicited
            | SendOpcode::FetchAdd
            | SendOpcode::CmpSwap
            | SendOpcode::Swap => return,
        };
        let (qn, msn, mo) = (SEND_QUEUE, self.sender.send_msn, self.sender.sent);
        Untagged { last, ulp: opcode.control(), ulp_word, qn, msn, mo }.encode(out);
    }

    /// Writes a Read Request (RFC 5040 s4.4).
    #[inline(never)]
    fn read_request(
        &mut self,
        wqe: &SendWqe,
        view: MemoryView<'_>,
        room: &mut SegmentSpace<'_>,
    ) -> Result<Option<usize>, CompletionStatus> {
        let request = self.checked_request(wqe, view)?;
        if !self.outstanding.reserve() {
            return Err(CompletionStatus::LocalOperation);
        }
        let written = self.untagged_segment(Opcode::ReadRequest, READ_QUEUE, &request.encode(), room);
        if written.is_some() {
            let ReadRequest { sink_stag, sink_to, bytes, .. } = request;
            let read = OutstandingRequest::new(sink_stag, sink_to, bytes, self.sender.next);
            let invalidates = wqe.opcode == SendOpcode::ReadInvalidate;
            self.outstanding.push(OutstandingRequest { invalidates, ..read });
            self.sender.advance(0, true);
        }
        Ok(written)
    }

    /// Writes a message of one segment with the next number of its queue; `None` if it does not
    /// fit.
    #[inline(always)]
    pub(super) fn untagged_segment(
        &mut self,
        opcode: Opcode,
        queue: u32,
        octets: &[u8],
        room: &mut SegmentSpace<'_>,
    ) -> Option<usize> {
        let ulpdu_bytes = UNTAGGED_BYTES + octets.len();
        let (header, payload) =
            room.ulpdu(&self.framing, ulpdu_bytes)?.split_at_mut_checked(UNTAGGED_BYTES)?;
        let msn = self.sender.msn(queue);
        Untagged::whole(opcode.control(), queue, *msn).encode(header);
        payload.copy_from_slice(octets);
        *msn = msn.wrapping_add(1);
        Some(self.complete_frame(room.bytes, ulpdu_bytes))
    }

    /// Checks the sink of a Read: one element with the local write right. The peer's response needs
    /// no remote right.
    fn checked_request(&self, wqe: &SendWqe, view: MemoryView<'_>) -> Result<ReadRequest, CompletionStatus> {
        let (list, bytes) = (wqe.gather(), wqe.message_bytes());
        let sink = list.at(0).filter(|_| list.len() == 1 && !wqe.is_inline());
        let sink = sink.filter(|_| self.outstanding.ord() > 0).ok_or(CompletionStatus::LocalOperation)?;
        if bytes > MESSAGE_BYTES_MAX {
            return Err(CompletionStatus::LocalLength);
        }
        if bytes > 0 {
            let found = view.memory.resolve(sink.lkey, view.scope, sink.addr, bytes, Access::LOCAL_WRITE);
            found.map_err(|_| CompletionStatus::LocalProtection)?;
        }
        Ok(ReadRequest {
            sink_stag: sink.lkey,
            sink_to: sink.addr,
            bytes,
            source_stag: wqe.remote_stag,
            source_to: wqe.remote_to,
        })
    }

    /// Completes the frame in `room`. Returns its length, or 0 if `room` is too short.
    #[inline(always)]
    pub(super) fn complete_frame(&mut self, room: &mut [u8], ulpdu_bytes: usize) -> usize {
        let written = self.framing.complete(room, ulpdu_bytes);
        self.send_progress.on_pulled(written);
        written
    }

    /// Completes a request that cannot be carried out with its own status and ends the stream.
    /// RFC 5040 s7.1, case 1: a Terminate replaces the message and includes no headers.
    #[cold]
    pub(super) fn fail_send<C: CompletionSink>(
        &mut self,
        seq: u32,
        status: CompletionStatus,
        io: &mut Io<'_, C>,
    ) {
        io.stats.count(Counter::IwarpLocalErrors);
        // RFC 6581 s9.3: start-up of the peer-to-peer model ends with the indication.
        let error = match self.sender.rtr() {
            Some(_) => MpaFault::LocalCatastrophic.into(),
            None => RdmapFault::LocalCatastrophic.into(),
        };
        self.enter_error(error, TerminatedHeaders::default(), io.stats);
        self.flush_sends(Some((seq, status)), io);
        self.clear_and_flush(io);
    }

    /// Writes the last unit of the stream.
    #[cold]
    fn fill_terminate(&mut self, room: &mut [u8], stats: &CoreStats) -> usize {
        let Some(StreamError::Failed(error)) = self.error else { return 0 };
        let Some(ulpdu) = room.get_mut(self.framing.head_bytes()..) else { return 0 };
        let header_bytes = Untagged::whole(Opcode::Terminate.control(), TERMINATE_QUEUE, 1).encode(ulpdu);
        let body = ulpdu.get_mut(header_bytes..).unwrap_or_default();
        let body_bytes = self.terminated_headers.encode(error, body);
        if body_bytes == 0 {
            return 0;
        }
        let written = self.complete_frame(room, header_bytes + body_bytes);
        if written == 0 {
            return 0;
        }
        self.state = StreamState::Ended;
        stats.count(Counter::IwarpTxFpdus);
        stats.count(Counter::IwarpTxTerminates);
        written
    }
}
