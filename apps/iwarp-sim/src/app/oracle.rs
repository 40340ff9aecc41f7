//! State that the applications of all hosts share: every session, what each side posted, and the
//! expected results.
//!
//! One run is one thread, so the hosts share the oracle directly. A receive can thus be compared
//! with its Send, and a Write with the peer's memory, at the moment of the completion.

use core::fmt::Display;
use std::cell::RefCell;
use std::rc::Rc;

use ironwarp::{CompletionStatus, Terminate};
use ironwarp_sim::TraceHash;
use ironwarp_types::Nanos;

use super::side::{Side, Stage};
use crate::atomics::{SessionWords, Words};
use crate::plan::{Attack, BadRequest, Ending, Plan, SessionPlan};

/// The oracle as every host holds it.
pub type SharedOracle = Rc<RefCell<Oracle>>;

/// The number of a fault or event that belongs to no session.
pub const NO_SESSION: usize = usize::MAX;

/// The expected state of all sessions.
pub struct Oracle {
    pub sessions: Vec<Session>,
    pub fault: Option<String>,
    /// A hash of every event and completion, in order.
    pub hash: TraceHash,
    /// Sessions that have not ended.
    pub open: usize,
    /// Whether links may still be faulty.
    pub faulty: bool,
    pub healed_at: Nanos,
    /// Whether links may damage payload under a correct TCP checksum: then a CRC error may end a
    /// stream at any time.
    pub undetected_corruption: bool,
    pub totals: Totals,
    /// The words, where there are any.
    pub words: Option<Words>,
}

/// What a run did.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Totals {
    pub established: u64,
    pub succeeded: u64,
    pub flushed: u64,
    /// Windows and fast regions that were bound.
    pub bound: u64,
    pub bytes: u64,
    pub terminated: u64,
    /// Attempts to connect that failed and were repeated.
    pub retried: u64,
    /// Times that an armed completion queue woke its application.
    pub woken: u64,
    pub resized: u64,
    /// Messages that arrived in a shared receive.
    pub shared: u64,
    /// Attacks by hostile hosts that were carried out.
    pub attacks: u64,
    /// Atomic operations and Reads of words that completed.
    pub atomics: u64,
    pub messages: u64,
    /// States that the search for an order of effects visited in the hardest history.
    pub states: u64,
}

/// Two queue pairs and the traffic between them.
#[derive(Default)]
pub struct Session {
    pub number: usize,
    pub plan: SessionPlan,
    pub sides: [Side; 2],
    /// Whether it may end otherwise than planned.
    pub any_end_allowed: bool,
    pub posted_bad_request: Option<(usize, BadRequest)>,
    /// The initiator is hostile and has attacked: the expected result at the other side.
    pub attack_outcome: Option<AttackOutcome>,
    /// The connection is over and the attacker has not received the Terminate that its attack
    /// requires.
    pub terminate_missing: bool,
    /// Both sides had done everything before one disconnected.
    pub was_done: bool,
    pub ended_at: Option<Nanos>,
    /// Earliest time of the next attempt to connect.
    pub not_before: Nanos,
    /// When the last attempt was made.
    pub tried_at: Nanos,
    /// Whether another connection attempt follows.
    pub retry: bool,
    pub attempts: u32,
    /// Both sides have ended and everything was checked.
    pub is_over: bool,
    /// Whether a completed Write proves nothing about the peer's memory: see
    /// [`Oracle::undetected_corruption`].
    pub undetected_corruption: bool,
    pub words: SessionWords,
}

/// The expected result of an attack.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AttackOutcome {
    VictimTerminates(Terminate),
    /// The victim reports the attacker's own Terminate.
    VictimReports(Terminate),
    /// The connection ends without a Terminate.
    NoTerminate,
}

impl Oracle {
    /// Creates the oracle of sessions that have not begun. The check of the words counts as one
    /// more session.
    pub fn new(plan: &Plan) -> SharedOracle {
        let undetected_corruption = plan.undetected_corruption;
        let new = |(number, plan): (usize, &SessionPlan)| Session {
            number,
            plan: plan.clone(),
            sides: [0, 1].map(|side| Side::new(plan, side)),
            not_before: plan.start,
            tried_at: plan.start,
            undetected_corruption,
            ..Session::default()
        };
        let sessions: Vec<Session> = plan.sessions.iter().enumerate().map(new).collect();
        let open = sessions.len() + usize::from(plan.atomics.is_some());
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
    pub fn report_failure(&mut self, session: usize, side: usize, what: impl Display) {
        self.fault.get_or_insert_with(|| format!("session {session}, side {side}: {what}"));
    }

    /// Records the fault of a check that failed.
    pub fn record(&mut self, session: usize, side: usize, outcome: Result<(), impl Display>) {
        if let Err(fault) = outcome {
            self.report_failure(session, side, fault);
        }
    }

    pub fn hash_event(&mut self, now: Nanos, session: usize, side: usize, what: &[u8]) {
        self.hash.add(side as u8, now, session, what);
    }

    pub fn describe_open(&self) -> String {
        let open = self.sessions.iter().enumerate().filter(|(_, session)| !session.is_over);
        let lines = open.take(4).map(|(number, session)| format!("session {number}: {}", session.describe()));
        lines.collect::<Vec<_>>().join("; ")
    }
}

impl Session {
    /// Returns the plan, the use of the words, and a side with its peer.
    pub fn split(&mut self, side: usize) -> (&SessionPlan, &mut SessionWords, [&mut Side; 2]) {
        let [initiator, responder] = &mut self.sides;
        let sides = if side == 0 { [initiator, responder] } else { [responder, initiator] };
        (&self.plan, &mut self.words, sides)
    }

    pub fn pair(&mut self, side: usize) -> (&mut Side, &mut Side) {
        let [ours, theirs] = self.split(side).2;
        (ours, theirs)
    }

    /// The error status with which a side's receive may complete, if any: the message was too long
    /// for it.
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

    pub fn is_ended(&self) -> bool {
        self.sides.iter().all(|side| matches!(side.stage, Stage::Gone | Stage::Waiting))
    }

    fn describe(&self) -> String {
        let side = |Side { stage, left, sends, receives, messages, .. }: &Side| {
            let [sends, receives, messages] = [sends.len(), receives.len(), messages.len()];
            format!("{stage:?} left {left} sends {sends} receives {receives} messages {messages}")
        };
        format!("{:?} [{} | {}]", self.plan.ending, side(&self.sides[0]), side(&self.sides[1]))
    }
}

impl Totals {
    /// Adds other totals.
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
