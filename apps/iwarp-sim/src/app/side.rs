//! One side of a session: what it has posted, its memory, and what is expected of it.

use std::collections::VecDeque;

use ironwarp::{CompletionOpcode, QueuePair, RemoteMemory, STag};
use ironwarp_types::Nanos;

use super::memory::{Grant, Pattern, Piece, ShadowedRegion, Tag};
use super::queues::SharedAppSrq;
use crate::atomics::WordOp;
use crate::plan::{BadRequest, SessionPlan};

/// One side of a session.
#[derive(Default)]
pub struct Side {
    pub stage: Stage,
    pub qp: Option<QueuePair>,
    pub memory: Option<SideMemory>,
    /// Requests of the send queue without a completion, oldest first.
    pub sends: VecDeque<Posted>,
    /// Receives without a completion, oldest first.
    pub receives: VecDeque<Receive>,
    /// Sends that the peer has not received, oldest first.
    pub messages: VecDeque<Message>,
    /// Work requests that were posted to the send queue.
    pub posted: u64,
    /// Sends among them.
    pub sends_posted: u64,
    pub receives_posted: u64,
    /// Work requests still to be posted.
    pub left: u32,
    /// Payload bytes still to be posted; beyond them messages are small.
    pub bytes_left: usize,
    pub destroyed_at: Nanos,
    /// It destroyed its queue pair while that was connected, and gets no event of its end.
    pub left_without_event: bool,
    /// A send completed with an error: all later ones must fail too.
    pub send_failed: bool,
    pub receive_failed: bool,
    pub terminates: u32,
    /// It disconnected while it waited for the RTR, which may still arrive (RFC 6581 s5).
    pub left_before_rtr: bool,
    /// It sent a Terminate after the links healed.
    pub terminated_on_clean_link: bool,
    /// A bad request of its own was flushed without its own error status: allowed only if the
    /// connection had ended before.
    pub bad_request_flushed: bool,
    /// Its connection was reset or timed out.
    pub was_aborted: bool,
    /// It is the responder, and a fault of its own ended it before an FPDU had arrived: it might
    /// not send a Terminate.
    pub failed_before_first_fpdu: bool,
    /// It got the last-receive event of its shared receive queue.
    pub last_receive: bool,
    /// The shared queue of its receives, if it has no queue of its own.
    pub app_srq: Option<SharedAppSrq>,
    /// Grants: pieces of its memory that the peer may use for a time.
    pub grants: Vec<Grant>,
    /// Tags of its local buffers, each with the number of the request that invalidates it.
    pub local_tags: Vec<(u64, Tag)>,
    pub spare: Vec<Tag>,
    /// Invalidated tags that the peer used.
    pub ended: Vec<RemoteMemory>,
    /// An invalidated local tag.
    pub stale: Option<STag>,
    pub patterns: u64,
    /// Its context was dropped: the results of its requests were never reported.
    pub context_dropped: bool,
    /// Pieces of the peer's memory that were written up to an unknown byte.
    pub unverified: Vec<UnverifiedWrite>,
    /// The peer's grants that unanswered Reads may still use.
    pub pending_read_grants: Vec<u64>,
}

/// The state of one side of a session.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Stage {
    /// Nothing exists.
    #[default]
    Waiting,
    /// The queue pair is being connected.
    Connecting,
    Up,
    /// Disconnect was called.
    Closing,
    /// The connection has ended; the queue pair exists.
    Ended,
    /// The queue pair was destroyed; completions may still arrive.
    Destroyed,
    /// Nothing is left.
    Gone,
}

/// A side's memory.
pub struct SideMemory {
    /// The buffers of Sends and Writes.
    pub source: ShadowedRegion,
    pub landing: ShadowedRegion,
    pub sink: ShadowedRegion,
    /// What the peer reads and writes.
    pub shared: ShadowedRegion,
    /// Memory of another protection domain, with every right.
    pub foreign: ShadowedRegion,
    /// The piece of `shared` that never changes.
    pub read_source: Piece,
    /// The contents of that piece.
    pub read_source_pattern: Pattern,
}

/// A request of the send queue.
#[derive(Default)]
pub struct Posted {
    /// Its number, counted from 0 for each side.
    pub wr_id: u64,
    pub opcode: CompletionOpcode,
    /// Whether a success has a completion.
    pub signaled: bool,
    /// Whether it waits for all earlier requests.
    pub locally_fenced: bool,
    pub len: usize,
    /// The pattern of its bytes: its own, or the library's for a Read.
    pub pattern: Pattern,
    /// Pieces of `source`.
    pub sources: Vec<Piece>,
    /// The piece of the peer's `shared` for a Write, of our `sink` for a Read.
    pub target: Piece,
    /// The offset in the library where a Read begins.
    pub read_source_offset: usize,
    /// Whether a Write was verified in place.
    pub placed: bool,
    /// The grant that a Write targets, or that a Send invalidates.
    pub grant: Option<u64>,
    /// The defect for which it must fail.
    pub bad_request: Option<BadRequest>,
    pub word_op: Option<WordOp>,
    /// Whether the next request reports its failure.
    pub is_reported_by_next: bool,
    /// Whether it is the last bind of the words' tags.
    pub publishes_words: bool,
}

/// A posted receive.
pub struct Receive {
    /// Its number, counted from 0 for each side.
    pub wr_id: u64,
    /// Pieces of `landing`, in scatter list order.
    pub pieces: Vec<Piece>,
}

/// A Send in flight.
#[derive(Default)]
pub struct Message {
    pub wr_id: u64,
    pub len: usize,
    pub pattern: Pattern,
    /// Whether it asks for an event.
    pub solicited: bool,
    /// The receiver's grant that it invalidates.
    pub grant: Option<u64>,
    pub immediate: bool,
}

/// A Write that completed or was flushed and was not yet verified in the peer's memory.
pub struct UnverifiedWrite {
    pub wr_id: u64,
    /// Its target in the peer's `shared`.
    pub target: Piece,
    pub pattern: Pattern,
    pub grant: Option<u64>,
}

impl Side {
    /// A side that has not begun.
    pub fn new(plan: &SessionPlan, side: usize) -> Self {
        Side { left: plan.ops[side], bytes_left: plan.bytes, ..Side::default() }
    }

    /// Returns whether the sender may send to this side: iWARP has no receiver-not-ready.
    pub fn has_credit(&self, sender: &Side) -> bool {
        match &self.app_srq {
            Some(app_srq) => app_srq.borrow().has_credit(),
            None => self.receives_posted > sender.sends_posted,
        }
    }

    /// Reserves one of this side's receives for `sender`.
    pub fn take_credit(&mut self, sender: &mut Side) {
        sender.sends_posted += 1;
        if let Some(app_srq) = &self.app_srq {
            app_srq.borrow_mut().reserve();
        }
    }

    /// Returns a reserved receive.
    pub fn return_credit(&mut self, sender: &mut Side) {
        sender.sends_posted -= 1;
        if let Some(app_srq) = &self.app_srq {
            app_srq.borrow_mut().unreserve(1);
        }
    }

    /// Returns whether all planned requests are posted and completed.
    pub fn is_done(&self) -> bool {
        self.left == 0 && self.sends.is_empty() && self.messages.is_empty()
    }

    /// Returns whether no signaled request waits for its completion.
    pub fn has_no_signaled_pending(&self) -> bool {
        self.receives.is_empty() && self.sends.iter().all(|posted| !posted.signaled)
    }
}

impl Posted {
    /// A signaled request without memory.
    pub fn new(wr_id: u64, opcode: CompletionOpcode, len: usize, pattern: Pattern) -> Self {
        Posted { wr_id, opcode, signaled: true, len, pattern, ..Posted::default() }
    }

    /// Returns whether words are stored in its `target`.
    pub fn reads_words(&self) -> bool {
        self.word_op.is_some() || matches!(self.bad_request, Some(BadRequest::Atomic(_)))
    }
}

impl Message {
    /// A Send that asks for nothing but its delivery.
    pub fn new(wr_id: u64, len: usize, pattern: Pattern) -> Self {
        Message { wr_id, len, pattern, ..Message::default() }
    }
}

impl UnverifiedWrite {
    pub fn of(posted: &Posted) -> Self {
        UnverifiedWrite {
            wr_id: posted.wr_id,
            target: posted.target,
            pattern: posted.pattern,
            grant: posted.grant,
        }
    }
}

impl SideMemory {
    /// Checks all of it at the end of a session.
    pub fn close(&mut self) -> Result<(), String> {
        self.shared.verify(self.read_source).map_err(|fault| format!("the library: {fault}"))?;
        self.shared.release(self.read_source);
        let memory =
            [&mut self.source, &mut self.landing, &mut self.sink, &mut self.shared, &mut self.foreign];
        for (shadowed_region, name) in
            memory.into_iter().zip(["source", "landing", "sink", "shared", "vault"])
        {
            shadowed_region.close().map_err(|fault| format!("{name}: {fault}"))?;
        }
        Ok(())
    }
}
