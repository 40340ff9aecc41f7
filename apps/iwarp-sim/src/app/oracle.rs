//! What the applications of all hosts know together: every session, what each side posted, and what must come of it.
//!
//! One run is one thread, so the hosts share the ledger directly. That is what lets a receive be compared with the Send
//! that it answers, and a Write with the peer's memory, at the moment when either is said to be done.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;

use ironwarp::{CompletionOpcode, CompletionStatus, QueuePair, RemoteMemory, STag, Terminate, Window};
use ironwarp_sim::TraceHash;
use ironwarp_types::Nanos;

use super::memory::{Grant, Pattern, Piece, ShadowedRegion, Tag};
use super::queues::SharedAppSrq;
use crate::plan::{Attack, BadRequest, Ending, SessionPlan};

/// The ledger as every host holds it.
pub type SharedOracle = Rc<RefCell<Oracle>>;

/// Everything that the applications know.
pub struct Oracle {
    /// Every session of the run.
    pub sessions: Vec<Session>,
    /// The first thing that went wrong.
    pub fault: Option<String>,
    /// A hash of what the applications saw, in order.
    pub hash: TraceHash,
    /// Sessions that have not come to their end.
    pub open: usize,
    /// Whether links may still do harm.
    pub faulty: bool,
    /// When they stopped.
    pub healed_at: Nanos,
    /// Whether links may damage payload so that TCP does not notice: then a stream may end by its CRC at any time.
    pub undetected_corruption: bool,
    /// What was done, for reports.
    pub totals: Totals,
}

/// What a run did.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Totals {
    /// Sessions that came up.
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
    /// Sleepers over completion queues that were woken.
    pub woken: u64,
    /// Completion queues that were given another depth.
    pub resized: u64,
    /// Messages that landed in a shared receive.
    pub shared: u64,
    /// Attacks by hostile hosts that were carried out.
    pub attacks: u64,
    /// Atomic operations and Reads of words that were answered.
    pub atomics: u64,
    /// Messages that callers of atomic operations and their keeper have sent each other.
    pub messages: u64,
    /// States of the hardest history that the search for an order of effects came to know.
    pub states: u64,
}

/// Two queue pairs and what passes between them.
pub struct Session {
    /// Which it is.
    pub number: usize,
    /// What was planned.
    pub plan: SessionPlan,
    /// The initiator and the responder.
    pub sides: [Side; 2],
    /// Whether it ended otherwise than planned, for a reason that is allowed.
    pub any_end_allowed: bool,
    /// Which side posted a request that ends the connection, and which.
    pub posted_bad_request: Option<(usize, BadRequest)>,
    /// The initiator is hostile and has done its worst: what the other side's Terminate must name, where one must be sent.
    pub attack_outcome: Option<AttackOutcome>,
    /// The connection is over and the attacker has not heard the Terminate that its attack calls for.
    pub terminate_missing: bool,
    /// Both sides had done everything before one disconnected.
    pub was_done: bool,
    /// When the first side ended.
    pub ended_at: Option<Nanos>,
    /// Earliest time of the next attempt to connect.
    pub not_before: Nanos,
    /// When the last attempt was made.
    pub tried_at: Nanos,
    /// Whether another attempt to connect follows.
    pub retry: bool,
    /// Attempts so far.
    pub attempts: u32,
    /// Both sides are gone and everything was checked.
    pub is_over: bool,
    /// Whether a completed Write says nothing about the peer's memory: see [`Oracle::undetected_corruption`].
    pub undetected_corruption: bool,
}

/// What must come of an attack.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AttackOutcome {
    /// The victim sends this.
    VictimTerminates(Terminate),
    /// The attacker's own Terminate is told.
    VictimReports(Terminate),
    /// The connection ends and nobody sends a Terminate.
    NoTerminate,
}

/// Where one side of a session is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Stage {
    /// Nothing exists.
    Waiting,
    /// The queue pair is being connected.
    Connecting,
    /// Connected.
    Up,
    /// We asked for a disconnect.
    Closing,
    /// The connection has ended; the queue pair is there.
    Ended,
    /// The queue pair was given up; completions may still come.
    Destroyed,
    /// Nothing is left.
    Gone,
}

/// One side of a session.
pub struct Side {
    /// Where it is.
    pub stage: Stage,
    /// Its queue pair.
    pub qp: Option<QueuePair>,
    /// Its memory.
    pub memory: Option<SideMemory>,
    /// Requests of the send queue that have no completion, oldest first.
    pub sends: VecDeque<Posted>,
    /// Receives that have no completion, oldest first.
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
    /// When the queue pair was given up.
    pub destroyed_at: Nanos,
    /// A send or receive completed with an error: all later ones must.
    pub send_failed: bool,
    /// The same of receives.
    pub receive_failed: bool,
    /// Terminates that it was told of.
    pub terminates: u32,
    /// It sent a Terminate when links did no harm any more.
    pub terminated_on_clean_link: bool,
    /// A request of its own that was wrong was flushed like any other: right only where the connection had ended before.
    pub bad_request_flushed: bool,
    /// Its connection was reset or fell silent.
    pub was_aborted: bool,
    /// It was told that it takes no more shared receives.
    pub last_receive: bool,
    /// Where its receives come from, when not from a queue of its own.
    pub app_srq: Option<SharedAppSrq>,
    /// Pieces of its memory that the peer may use for a time.
    pub grants: Vec<Grant>,
    /// Tags that its own requests use, each with the number of the request that ends it.
    pub local_tags: Vec<(u64, Tag)>,
    /// Tags that are not bound.
    pub spare: Vec<Tag>,
    /// Tags that the peer had and that have ended.
    pub ended: Vec<RemoteMemory>,
    /// A tag of its own that has ended.
    pub stale: Option<STag>,
    /// Patterns that were drawn.
    pub patterns: u64,
    /// Its context was dropped: nobody was told what became of its requests.
    pub context_dropped: bool,
    /// Pieces of the peer's memory of which nobody knows how far they were written.
    pub unverified: Vec<UnverifiedWrite>,
    /// Loans of the peer's that Reads without an answer may still ask for.
    pub pending_read_grants: Vec<u64>,
}

/// A Write that completed, or was flushed, without anybody having seen it in place.
pub struct UnverifiedWrite {
    /// The number of its request.
    pub wr_id: u64,
    /// Where in the peer's `shared` it goes.
    pub target: Piece,
    /// Its bytes.
    pub pattern: Pattern,
    /// The loan that it goes to.
    pub grant: Option<u64>,
}

/// A side's memory.
pub struct SideMemory {
    /// Where Sends and Writes take their bytes.
    pub source: ShadowedRegion,
    /// Where receives land.
    pub landing: ShadowedRegion,
    /// Where Reads land.
    pub sink: ShadowedRegion,
    /// What the peer reads and writes.
    pub shared: ShadowedRegion,
    /// What is of another protection domain, with every right.
    pub foreign: ShadowedRegion,
    /// The piece of `shared` that never changes.
    pub read_source: Piece,
    /// What it holds.
    pub read_source_pattern: Pattern,
    /// Windows that were to be bound and must not have been.
    pub windows: Vec<Window>,
}

/// A request of the send queue.
pub struct Posted {
    /// Its number, counted from 0 for each side.
    pub wr_id: u64,
    /// What it is.
    pub opcode: CompletionOpcode,
    /// Whether success is told.
    pub signaled: bool,
    /// Whether it waits for everything before it.
    pub locally_fenced: bool,
    /// Its bytes.
    pub len: usize,
    /// Their pattern: its own, or that of the library that a Read asks.
    pub pattern: Pattern,
    /// Pieces of `source`.
    pub sources: Vec<Piece>,
    /// The piece of the peer's `shared` for a Write, of our `sink` for a Read.
    pub target: Piece,
    /// How far into the library a Read begins.
    pub read_source_offset: usize,
    /// A Write that was seen in place.
    pub placed: bool,
    /// The loan that a Write goes to, or that a Send ends.
    pub grant: Option<u64>,
    /// What is wrong with it, so that it must not succeed.
    pub bad_request: Option<BadRequest>,
}

/// A posted receive.
pub struct Receive {
    /// Its number, counted from 0 for each side.
    pub wr_id: u64,
    /// Pieces of `landing`, in the order of its scatter list.
    pub pieces: Vec<Piece>,
}

/// A Send on its way.
pub struct Message {
    /// The number of its request.
    pub wr_id: u64,
    /// Its bytes.
    pub len: usize,
    /// Their pattern.
    pub pattern: Pattern,
    /// Whether it asks for an event.
    pub solicited: bool,
    /// The receiver's loan that it ends.
    pub grant: Option<u64>,
}

impl Oracle {
    /// A ledger of sessions that have not begun.
    pub fn new(plans: &[SessionPlan], undetected_corruption: bool) -> SharedOracle {
        let numbered = plans.iter().enumerate();
        let sessions: Vec<Session> = numbered
            .map(|(number, plan)| Session::new(number, plan.clone(), undetected_corruption))
            .collect();
        let open = sessions.len();
        Rc::new(RefCell::new(Oracle {
            sessions,
            fault: None,
            hash: TraceHash::new(),
            open,
            faulty: true,
            healed_at: Nanos::MAX,
            undetected_corruption,
            totals: Totals::default(),
        }))
    }

    /// Notes what went wrong, unless something did before.
    pub fn report_failure(&mut self, session: usize, side: usize, what: &str) {
        if self.fault.is_none() {
            self.fault = Some(format!("session {session}, side {side}: {what}"));
        }
    }

    /// Adds something that an application saw to the hash.
    pub fn hash_event(&mut self, now: Nanos, session: usize, side: usize, what: &[u8]) {
        self.hash.add(side as u8, now, session, what);
    }

    /// What is still open, in words.
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
        }
    }

    /// A side and the other one.
    pub fn pair(&mut self, side: usize) -> (&mut Side, &mut Side) {
        let [initiator, responder] = &mut self.sides;
        if side == 0 { (initiator, responder) } else { (responder, initiator) }
    }

    /// The plan, a side and the other one.
    pub fn split(&mut self, side: usize) -> (&SessionPlan, &mut Side, &mut Side) {
        let [initiator, responder] = &mut self.sides;
        let (ours, theirs) = if side == 0 { (initiator, responder) } else { (responder, initiator) };
        (&self.plan, ours, theirs)
    }

    /// How a side's receive may complete, other than well or flushed: the message for it was too long.
    pub fn expected_error_status(&self, side: usize) -> Option<CompletionStatus> {
        let by_peer = self
            .posted_bad_request
            .is_some_and(|(by, bad_request)| by != side && bad_request == BadRequest::SendTooLong);
        let is_attack = matches!(self.plan.ending, Ending::Attack { attack: Attack::TooLong, .. });
        let is_too_long = by_peer || (is_attack && self.attack_outcome.is_some());
        is_too_long.then_some(CompletionStatus::LocalLength)
    }

    /// Begins anew, for another attempt to connect.
    pub fn reset(&mut self, not_before: Nanos) {
        self.sides = [0, 1].map(|side| Side::new(&self.plan, side));
        self.not_before = not_before;
        self.ended_at = None;
    }

    /// Whether nothing is left of either side.
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

    /// Whether a sender may send to this side: iWARP has no receiver-not-ready.
    pub fn has_credit(&self, sender: &Side) -> bool {
        match &self.app_srq {
            Some(app_srq) => app_srq.borrow().has_credit(),
            None => self.receives_posted > sender.sends_posted,
        }
    }

    /// One of this side's receives is `sender`'s.
    pub fn take_credit(&mut self, sender: &mut Side) {
        sender.sends_posted += 1;
        if let Some(app_srq) = &self.app_srq {
            app_srq.borrow_mut().reserve();
        }
    }

    /// It is not, after all.
    pub fn return_credit(&mut self, sender: &mut Side) {
        sender.sends_posted -= 1;
        if let Some(app_srq) = &self.app_srq {
            app_srq.borrow_mut().unreserve(1);
        }
    }

    /// Whether everything that was to be done has been done and told.
    pub fn is_done(&self) -> bool {
        self.left == 0 && self.sends.is_empty() && self.messages.is_empty()
    }

    /// Whether nothing that was posted waits for its completion, save for those that tell only failure.
    pub fn has_no_signaled_pending(&self) -> bool {
        self.receives.is_empty() && self.sends.iter().all(|posted| !posted.signaled)
    }
}

impl Totals {
    /// Adds another run's.
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
