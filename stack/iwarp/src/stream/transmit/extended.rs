//! The send side of RFC 7306.
//!
//! Each message is one untagged segment of a fixed length, so none is ever partly sent. Such a
//! request fails on a stream without extensions, and the stream fails with it, like a Read with an
//! ORD of 0. These functions are out of line, because Sends, Writes and Reads are more frequent.
//!
//! An atomic operation on a word of this core, or on a shared one, is carried out when its response
//! is next to be sent, as a Read's source is copied then. All earlier requests were answered, and
//! no later one has begun (s5.4, s7). For an operation of another core, only its outcome is sent
//! here.

use ironwarp_mem::{Access, AtomicTarget};
use ironwarp_stats::Counter;

use super::SegmentSpace;
use crate::completion::CompletionStatus;
use crate::ddp::{UNTAGGED_BYTES, Untagged};
use crate::framing::Framing;
use crate::rdmap::atomic::{ATOMIC_REQUEST_BYTES, ATOMIC_RESPONSE_BYTES};
use crate::rdmap::{
    ATOMIC_RESPONSE_QUEUE, AtomicRequest, AtomicResponse, Immediate, Opcode, OutstandingRequest, READ_QUEUE,
    RdmapFault, ResponderEntry, Rfc7306Profile, SEND_QUEUE, TerminatedHeaders,
};
use crate::stream::cursor::MemoryView;
use crate::stream::{AtomicForwarder, CompletionSink, Io, Stream};
use crate::wr::{SendOpcode, SendWqe};

/// Octets of the word that an atomic operation changes.
const WORD_BYTES: u32 = 8;

impl<F: Framing> Stream<F> {
    /// Writes the segment of a request that is not in RFC 5040.
    #[cold]
    #[inline(never)]
    pub(super) fn extended_segment(
        &mut self,
        wqe: &SendWqe,
        view: MemoryView<'_>,
        room: &mut SegmentSpace<'_>,
    ) -> Result<Option<usize>, CompletionStatus> {
        let profile = self.config.extensions.ok_or(CompletionStatus::LocalOperation)?;
        match wqe.opcode.spec().message {
            Some(message) if message.is_immediate() => self.immediate(profile, message, wqe, room),
            Some(Opcode::AtomicRequest) => self.atomic_request(profile, wqe, view, room),
            // A message without an encoder fails, and is never sent as another one.
            Some(_) | None => Err(CompletionStatus::LocalOperation),
        }
    }

    fn immediate(
        &mut self,
        profile: Rfc7306Profile,
        opcode: Opcode,
        wqe: &SendWqe,
        room: &mut SegmentSpace<'_>,
    ) -> Result<Option<usize>, CompletionStatus> {
        // RFC 7306 s6.3: exactly eight octets.
        let bytes = wqe.inline_bytes().filter(|_| wqe.is_inline()).unwrap_or_default();
        let octets = Immediate::decode(bytes).map_err(|_| CompletionStatus::LocalLength)?.encode();
        let queue = profile.queue(opcode).unwrap_or(SEND_QUEUE);
        let Some(written) = self.untagged_segment(opcode, queue, &octets, room) else { return Ok(None) };
        self.send_progress.set_done_when_acked(self.sender.next);
        self.sender.advance(octets.len(), true);
        Ok(Some(written))
    }

    /// RFC 7306 s5.2.1. The identifier that the peer repeats is the sequence number of the request,
    /// so it is unique among the outstanding requests.
    fn atomic_request(
        &mut self,
        profile: Rfc7306Profile,
        wqe: &SendWqe,
        view: MemoryView<'_>,
        room: &mut SegmentSpace<'_>,
    ) -> Result<Option<usize>, CompletionStatus> {
        let (list, seq) = (wqe.gather(), self.sender.next);
        let operation = wqe.atomic().filter(|_| profile.swap || wqe.opcode != SendOpcode::Swap);
        let sink = list.at(0).filter(|_| list.len() == 1 && self.outstanding.ord() > 0);
        let (Some(operation), Some(sink)) = (operation, sink) else {
            return Err(CompletionStatus::LocalOperation);
        };
        if sink.len != WORD_BYTES {
            return Err(CompletionStatus::LocalLength);
        }
        let found = view.memory.resolve(sink.lkey, view.scope, sink.addr, WORD_BYTES, Access::LOCAL_WRITE);
        found.map_err(|_| CompletionStatus::LocalProtection)?;
        if !self.outstanding.reserve() {
            return Err(CompletionStatus::LocalOperation);
        }
        let (stag, tagged_offset) = (wqe.remote_stag, wqe.remote_to);
        let octets = AtomicRequest { identifier: seq, stag, tagged_offset, operation }.encode();
        let written = self.untagged_segment(Opcode::AtomicRequest, READ_QUEUE, &octets, room);
        if written.is_some() {
            let request = OutstandingRequest::new(sink.lkey, sink.addr, WORD_BYTES, seq);
            self.outstanding.push(OutstandingRequest { atomic: true, ..request });
            self.sender.advance(0, true);
        }
        Ok(written)
    }

    /// Sends `entry`, the response to the oldest atomic operation of the peer, and carries it out
    /// if no other core has. Without space for the response the word is not changed.
    #[cold]
    #[inline(never)]
    pub(super) fn atomic_response<C: CompletionSink + AtomicForwarder>(
        &mut self,
        entry: ResponderEntry,
        room: &mut SegmentSpace<'_>,
        io: &mut Io<'_, C>,
    ) -> Option<usize> {
        let profile = self.config.extensions?;
        if !self.framing.fits(UNTAGGED_BYTES + ATOMIC_RESPONSE_BYTES, room.usable) {
            return None;
        }
        let (identifier, msn, outcome) = match entry {
            ResponderEntry::Atomic { request, msn, .. } => {
                (request.identifier, msn, self.execute_atomic(&request, io))
            }
            ResponderEntry::Completed { identifier, msn, outcome } => {
                (identifier, msn, outcome.map_err(RdmapFault::from))
            }
            ResponderEntry::Read(_) | ResponderEntry::Forwarded { .. } => return None,
        };
        let original = match outcome {
            Ok(original) => original,
            Err(fault) => {
                self.fail(fault, terminated_headers(msn), io);
                return None;
            }
        };
        let octets = AtomicResponse { identifier, original }.encode();
        let queue = profile.queue(Opcode::AtomicResponse).unwrap_or(ATOMIC_RESPONSE_QUEUE);
        let written = self.untagged_segment(Opcode::AtomicResponse, queue, &octets, room);
        self.responses.advance(0, true);
        self.sender.responses_first = false;
        if self.responses.next_to_forward().is_some() {
            self.forward_atomics(io);
        }
        written
    }

    /// Returns the word's value before the operation. The tag is resolved again, because it may
    /// have been revoked while the request waited.
    fn execute_atomic<C>(&mut self, request: &AtomicRequest, io: &Io<'_, C>) -> Result<u64, RdmapFault> {
        self.check_withheld(Access::REMOTE_ATOMIC)?;
        let target = self.atomic_target(request);
        let word = io.memory.word(&target)?;
        let original = if self.config.atomic_locked {
            word.apply_locked(&request.operation)?
        } else {
            // A tag that now names a word that this core may not change was revoked and reused: a
            // shared line stays shared.
            let claimed = word.claim().map_err(|_| RdmapFault::InvalidStag)?;
            if claimed.is_shared() {
                io.stats.count(Counter::AtomicsShared);
            }
            claimed.apply(&request.operation)?
        };
        io.stats.count(Counter::AtomicsLocalCore);
        if let Some(out_of_order) = &mut self.out_of_order {
            let AtomicTarget { stag, to, scope, need } = target;
            let span = io.memory.resolve(stag, scope, to, WORD_BYTES, need)?;
            out_of_order.on_overwrite(&span.addresses(), io.stats);
        }
        Ok(original)
    }

    /// Returns the word in a request. RFC 7306 requires the checks of a Read's source, with a right
    /// of its own.
    pub(in crate::stream) fn atomic_target(&self, request: &AtomicRequest) -> AtomicTarget {
        let (scope, need) = (self.access_scope(), Access::REMOTE_ATOMIC);
        AtomicTarget { stag: request.stag, to: request.tagged_offset, scope, need }
    }
}

/// Returns an Atomic Request as a Terminate shows it: the DDP header alone, rebuilt because it was
/// not stored (RFC 7306 s8.1).
#[cold]
fn terminated_headers(msn: u32) -> TerminatedHeaders {
    let mut ulpdu = [0; UNTAGGED_BYTES + ATOMIC_REQUEST_BYTES];
    Untagged::whole(Opcode::AtomicRequest.control(), READ_QUEUE, msn).encode(&mut ulpdu);
    TerminatedHeaders::segment(&ulpdu)
}
