//! State that the applications of all hosts share: every session, what each side posted, and the expected results.
//!
//! One run is one thread, so the hosts share the oracle directly. A receive can thus be compared with its Send, and a
//! Write with the peer's memory, at the moment of the completion.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;

use ironwarp::{CompletionOpcode, CompletionStatus, QueuePair, RemoteMemory, STag, Terminate, Window};
use ironwarp_sim::TraceHash;
use ironwarp_types::Nanos;

use super::memory::{Grant, Pattern, Piece, ShadowedRegion, Tag};
use super::queues::SharedAppSrq;
use crate::atomics::{SessionWords, WordOp, Words};
use crate::plan::{Attack, BadRequest, Ending, Plan, SessionPlan};

/// The oracle as every host holds it.
pub type SharedOracle = Rc<RefCell<Oracle>>;

/// The expected state of all sessions.
pub struct Oracle {
    /// Every session of the run.
    pub sessions: Vec<Session>,
    /// The first fault.
    pub fault: Option<String>,
    /// A hash of every event and completion, in order.
    pub hash: TraceHash,
    /// Sessions that have not ended.
    pub open: usize,
    /// Whether links may still be faulty.
    pub faulty: bool,
    /// When the faults stopped.
    pub healed_at: Nanos,
    /// Whether links may damage payload under a correct TCP checksum: then a CRC error may end a stream at any time.
    pub undetected_corruption: bool,
    /// Counts, for reports.
    pub totals: Totals,
    /// The words, where there are any.
    pub words: Option<Words>,
}

/// What a run did.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Totals {
    /// Connections that were established.
    pub established: u64,
    /// Work requests that succeeded.
    pub succeeded: u64,
    /// Work requests that were flushed.
    pub flushed: u64,
    /// Windows and fast regions that were bound.
    pub bound: u64,
    /// Payload bytes that were checked.
    pub bytes: u64,
    /// Streams ended by a Terminate.
    pub terminated: u64,
    /// Attempts to connect that failed and were repeated.
    pub retried: u64,
    /// Times that an armed completion queue woke its application.
    pub woken: u64,
    /// Completion queues that were resized.
    pub resized: u64,
    /// Messages that arrived in a shared receive.
    pub shared: u64,
    /// Attacks by hostile hosts that were carried out.
    pub attacks: u64,
    /// Atomic operations and Reads of words that completed.
    pub atomics: u64,
    /// Messages of sessions on words.
    pub messages: u64,
    /// States that the search for an order of effects visited in the hardest history.
    pub states: u64,
}

/// Two queue pairs and the traffic between them.
pub struct Session {
    /// Its number.
    pub number: usize,
    /// Its plan.
    pub plan: SessionPlan,
    /// The initiator and the responder.
    pub sides: [Side; 2],
    /// Whether it may end otherwise than planned.
    pub any_end_allowed: bool,
    /// The side that posted a bad request, and the request.
    pub posted_bad_request: Option<(usize, BadRequest)>,
    /// The initiator is hostile and has attacked: the expected result at the other side.
    pub attack_outcome: Option<AttackOutcome>,
    /// The connection is over and the attacker has not received the Terminate that its attack requires.
    pub terminate_missing: bool,
    /// Both sides had done everything before one disconnected.
    pub was_done: bool,
    /// When the first side ended.
    pub ended_at: Option<Nanos>,
    /// Earliest time of the next attempt to connect.
    pub not_before: Nanos,
    /// When the last attempt was made.
    pub tried_at: Nanos,
    /// Whether another connection attempt follows.
    pub retry: bool,
    /// Attempts so far.
    pub attempts: u32,
    /// Both sides have ended and everything was checked.
    pub is_over: bool,
    /// Whether a completed Write proves nothing about the peer's memory: see [`Oracle::undetected_corruption`].
    pub undetected_corruption: bool,
    /// Its use of the words.
    pub words: SessionWords,
}

/// The expected result of an attack.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AttackOutcome {
    /// The victim sends this Terminate.
    VictimTerminates(Terminate),
    /// The victim reports the attacker's own Terminate.
    VictimReports(Terminate),
    /// The connection ends without a Terminate.
    NoTerminate,
}

/// The state of one side of a session.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Stage {
    /// Nothing exists.
    Waiting,
    /// The queue pair is being connected.
    Connecting,
    /// Connected.
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

/// One side of a session.
pub struct Side {
    /// Its state.
    pub stage: Stage,
    /// Its queue pair.
    pub qp: Option<QueuePair>,
    /// Its memory.
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
    /// Receives that were posted.
    pub receives_posted: u64,
    /// Work requests still to be posted.
    pub left: u32,
    /// Payload bytes still to be posted; beyond them messages are small.
    pub bytes_left: usize,
    /// When the queue pair was destroyed.
    pub destroyed_at: Nanos,
    /// A send completed with an error: all later ones must fail too.
    pub send_failed: bool,
    /// The same for receives.
    pub receive_failed: bool,
    /// Terminate events that it got.
    pub terminates: u32,
    /// It sent a Terminate after the links healed.
    pub terminated_on_clean_link: bool,
    /// A bad request of its own was flushed without its own error status: allowed only if the connection had ended
    /// before.
    pub bad_request_flushed: bool,
    /// Its connection was reset or timed out.
    pub was_aborted: bool,
    /// It is the responder, and a fault of its own ended it before an FPDU had arrived: it might not send a Terminate.
    pub failed_before_first_fpdu: bool,
    /// It got the last-receive event of its shared receive queue.
    pub last_receive: bool,
    /// The shared queue of its receives, if it has no queue of its own.
    pub app_srq: Option<SharedAppSrq>,
    /// Grants: pieces of its memory that the peer may use for a time.
    pub grants: Vec<Grant>,
    /// Tags of its local buffers, each with the number of the request that invalidates it.
    pub local_tags: Vec<(u64, Tag)>,
    /// Unbound tags.
    pub spare: Vec<Tag>,
    /// Invalidated tags that the peer used.
    pub ended: Vec<RemoteMemory>,
    /// An invalidated local tag.
    pub stale: Option<STag>,
    /// Number of patterns drawn.
    pub patterns: u64,
    /// Its context was dropped: the results of its requests were never reported.
    pub context_dropped: bool,
    /// Pieces of the peer's memory that were written up to an unknown byte.
    pub unverified: Vec<UnverifiedWrite>,
    /// The peer's grants that unanswered Reads may still use.
    pub pending_read_grants: Vec<u64>,
}

/// A Write that completed or was flushed and was not yet verified in the peer's memory.
pub struct UnverifiedWrite {
    /// The number of its request.
    pub wr_id: u64,
    /// Its target in the peer's `shared`.
    pub target: Piece,
    /// Its bytes.
    pub pattern: Pattern,
    /// The grant that it targets.
    pub grant: Option<u64>,
}

/// A side's memory.
pub struct SideMemory {
    /// The buffers of Sends and Writes.
    pub source: ShadowedRegion,
    /// The buffers of receives.
    pub landing: ShadowedRegion,
    /// The buffers of Reads.
    pub sink: ShadowedRegion,
    /// What the peer reads and writes.
    pub shared: ShadowedRegion,
    /// Memory of another protection domain, with every right.
    pub foreign: ShadowedRegion,
    /// The piece of `shared` that never changes.
    pub read_source: Piece,
    /// The contents of that piece.
    pub read_source_pattern: Pattern,
    /// Windows whose bind must fail.
    pub windows: Vec<Window>,
}

/// A request of the send queue.
pub struct Posted {
    /// Its number, counted from 0 for each side.
    pub wr_id: u64,
    /// Its operation.
    pub opcode: CompletionOpcode,
    /// Whether a success has a completion.
    pub signaled: bool,
    /// Whether it waits for all earlier requests.
    pub locally_fenced: bool,
    /// Its bytes.
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
    /// Its operation on the words.
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
pub struct Message {
    /// The number of its request.
    pub wr_id: u64,
    /// Its bytes.
    pub len: usize,
    /// Their pattern.
    pub pattern: Pattern,
    /// Whether it asks for an event.
    pub solicited: bool,
    /// The receiver's grant that it invalidates.
    pub grant: Option<u64>,
    /// Whether it is Immediate Data.
    pub immediate: bool,
}

impl Message {
    /// A Send that asks for nothing but its delivery.
    pub fn new(wr_id: u64, len: usize, pattern: Pattern) -> Self {
        Message { wr_id, len, pattern, solicited: false, grant: None, immediate: false }
    }
}

impl Posted {
    /// A request without memory.
    pub fn new(wr_id: u64, opcode: CompletionOpcode, len: usize, pattern: Pattern) -> Self {
        Posted {
            wr_id,
            opcode,
            signaled: true,
            locally_fenced: false,
            len,
            pattern,
            sources: Vec::new(),
            target: Piece { at: 0, len: 0 },
            read_source_offset: 0,
            placed: false,
            grant: None,
            bad_request: None,
            word_op: None,
            is_reported_by_next: false,
            publishes_words: false,
        }
    }

    /// Returns whether words are stored in its `target`.
    pub fn reads_words(&self) -> bool {
        self.word_op.is_some() || matches!(self.bad_request, Some(BadRequest::Atomic(_)))
    }
}

impl Oracle {
    /// Creates the oracle of sessions that have not begun. The check of the words and the honest host of storage
    /// count as one more session each.
    pub fn new(plan: &Plan) -> SharedOracle {
        let undetected_corruption = plan.undetected_corruption;
        let numbered = plan.sessions.iter().enumerate();
        let sessions: Vec<Session> = numbered
            .map(|(number, plan)| Session::new(number, plan.clone(), undetected_corruption))
            .collect();
        let open = sessions.len() + usize::from(plan.atomics.is_some()) + usize::from(plan.storage.is_some());
        Rc::new(RefCell::new(Oracle {
            sessions,
            fault: None,
            hash: TraceHash::new(),
            open,
            faulty: true,
            healed_at: Nanos::MAX,
            undetected_corruption,
            totals: Totals::default(),
            words: plan.atomics.as_ref().map(Words::new),
        }))
    }

    /// Records a fault, unless one is recorded already.
    pub fn report_failure(&mut self, session: usize, side: usize, what: &str) {
        if self.fault.is_none() {
            self.fault = Some(format!("session {session}, side {side}: {what}"));
        }
    }

    /// Adds an event or completion to the hash.
    pub fn hash_event(&mut self, now: Nanos, session: usize, side: usize, what: &[u8]) {
        self.hash.add(side as u8, now, session, what);
    }

    /// Describes the open sessions.
    pub fn describe_open(&self) -> String {
        let open = self.sessions.iter().enumerate().filter(|(_, session)| !session.is_over);
        let lines = open.take(4).map(|(number, session)| format!("session {number}: {}", session.describe()));
        lines.collect::<Vec<_>>().join("; ")
    }
}

impl Session {
    fn new(number: usize, plan: SessionPlan, undetected_corruption: bool) -> Self {
        let sides = [0, 1].map(|side| Side::new(&plan, side));
        Session {
            number,
            not_before: plan.start,
            tried_at: plan.start,
            plan,
            sides,
            any_end_allowed: false,
            posted_bad_request: None,
            attack_outcome: None,
            terminate_missing: false,
            was_done: false,
            ended_at: None,
            retry: false,
            attempts: 0,
            is_over: false,
            undetected_corruption,
            words: SessionWords::default(),
        }
    }

    /// Returns a side and its peer.
    pub fn pair(&mut self, side: usize) -> (&mut Side, &mut Side) {
        let [initiator, responder] = &mut self.sides;
        if side == 0 { (initiator, responder) } else { (responder, initiator) }
    }

    /// Returns the plan, a side and its peer.
    pub fn split(&mut self, side: usize) -> (&SessionPlan, &mut Side, &mut Side) {
        let [initiator, responder] = &mut self.sides;
        let (ours, theirs) = if side == 0 { (initiator, responder) } else { (responder, initiator) };
        (&self.plan, ours, theirs)
    }

    /// The error status with which a side's receive may complete, if any: the message was too long for it.
    pub fn expected_error_status(&self, side: usize) -> Option<CompletionStatus> {
        let by_peer = self
            .posted_bad_request
            .is_some_and(|(by, bad_request)| by != side && bad_request == BadRequest::SendTooLong);
        let is_attack = matches!(self.plan.ending, Ending::Attack { attack: Attack::TooLong, .. });
        let is_too_long = by_peer || (is_attack && self.attack_outcome.is_some());
        is_too_long.then_some(CompletionStatus::LocalLength)
    }

    /// Resets the session for another connection attempt.
    pub fn reset(&mut self, not_before: Nanos) {
        self.sides = [0, 1].map(|side| Side::new(&self.plan, side));
        self.words = SessionWords::default();
        self.not_before = not_before;
        self.ended_at = None;
    }

    /// Returns whether both sides have ended.
    pub fn is_ended(&self) -> bool {
        self.sides.iter().all(|side| matches!(side.stage, Stage::Gone | Stage::Waiting))
    }

    fn describe(&self) -> String {
        let side = |side: &Side| {
            format!(
                "{:?} left {} sends {} receives {} messages {}",
                side.stage,
                side.left,
                side.sends.len(),
                side.receives.len(),
                side.messages.len()
            )
        };
        format!("{:?} [{} | {}]", self.plan.ending, side(&self.sides[0]), side(&self.sides[1]))
    }
}

impl Side {
    /// A side that has not begun.
    pub fn new(plan: &SessionPlan, side: usize) -> Self {
        Side {
            stage: Stage::Waiting,
            qp: None,
            memory: None,
            sends: VecDeque::new(),
            receives: VecDeque::new(),
            messages: VecDeque::new(),
            posted: 0,
            sends_posted: 0,
            receives_posted: 0,
            left: plan.ops[side],
            bytes_left: plan.bytes,
            destroyed_at: Nanos::ZERO,
            send_failed: false,
            receive_failed: false,
            terminates: 0,
            terminated_on_clean_link: false,
            bad_request_flushed: false,
            was_aborted: false,
            failed_before_first_fpdu: false,
            last_receive: false,
            app_srq: None,
            grants: Vec::new(),
            local_tags: Vec::new(),
            spare: Vec::new(),
            ended: Vec::new(),
            stale: None,
            patterns: 0,
            context_dropped: false,
            unverified: Vec::new(),
            pending_read_grants: Vec::new(),
        }
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

impl Totals {
    /// Adds the totals of another run.
    pub fn add(&mut self, other: &Totals) {
        self.established += other.established;
        self.succeeded += other.succeeded;
        self.flushed += other.flushed;
        self.bound += other.bound;
        self.bytes += other.bytes;
        self.terminated += other.terminated;
        self.retried += other.retried;
        self.woken += other.woken;
        self.resized += other.resized;
        self.shared += other.shared;
        self.attacks += other.attacks;
        self.atomics += other.atomics;
        self.messages += other.messages;
        self.states = self.states.max(other.states);
    }
}
