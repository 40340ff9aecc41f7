//! The client: connections that come and go, each with random operations whose every result is
//! known.

use core::net::SocketAddr;
use std::collections::HashMap;
use std::time::{Duration, Instant};

use ironwarp::{Completion, CompletionOpcode, CompletionStatus, DisconnectReason, Event, QpNum, QueuePair};
use serde_json::{Value, json};

use super::node::Node;
use super::session::{Operation, Phase, Session};
use super::{Application, Counts, EndError, report};

/// The pause before a failed session connects again.
const RETRY_INTERVAL: Duration = Duration::from_millis(200);
/// The longest time without a completion or an event. Longer than the retries of a SYN (14 s) and
/// the timeout of MPA's start-up (60 s) together, and than the user timeout of TCP (60 s).
const STALL_TIMEOUT: Duration = Duration::from_secs(90);

/// All sessions of an end.
pub(super) struct Client {
    at: SocketAddr,
    seed: u64,
    queue_pairs: u32,
    sessions: Vec<Session>,
    numbers: HashMap<QpNum, usize>,
    is_finishing: bool,
    counts: Counts,
}

impl Client {
    pub(super) fn new(at: SocketAddr, queue_pairs: u32, seed: u64) -> Self {
        let (sessions, numbers, counts) = (Vec::new(), HashMap::new(), Counts::default());
        Client { at, seed, queue_pairs, sessions, numbers, is_finishing: false, counts }
    }

    /// A connection that makes no progress is a fault.
    fn check_stall(&self, node: &mut Node) -> Result<(), EndError> {
        let now = Instant::now();
        let stuck = |session: &&Session| {
            session.phase != Phase::Done && now.duration_since(session.progress_at) > STALL_TIMEOUT
        };
        match self.sessions.iter().find(stuck) {
            Some(session) => {
                Err(EndError(format!("no progress in {STALL_TIMEOUT:?}: {}", session.describe(node))))
            }
            None => Ok(()),
        }
    }

    /// A connection ended that this side did not end.
    fn lost(&mut self, reason: &str) {
        self.counts.add("lost", 1);
        report(Self::NAME, "lost", json!({ "reason": reason }));
    }

    /// Moves a session on: connects, posts, closes.
    fn advance_session(&mut self, node: &mut Node, number: usize) -> Result<(), EndError> {
        let is_finishing = self.is_finishing;
        let session = &mut self.sessions[number];
        match session.phase {
            Phase::Waiting(_) if is_finishing => session.phase = Phase::Done,
            Phase::Waiting(until) if Instant::now() >= until => {
                let qp = session.connect(node, self.at)?;
                self.numbers.insert(qp.num(), number);
            }
            Phase::Connected => {
                if is_finishing {
                    session.operations_left = 0;
                }
                while session.operations_left > 0 && session.post(node)? {}
                if session.is_to_close() {
                    session.close(node)?;
                }
            }
            Phase::Ended => {
                let Some(qp) = session.qp else { return Ok(()) };
                node.ctx.destroy_qp(qp)?;
                session.qp = None;
                session.enter(Phase::Waiting(Instant::now() + RETRY_INTERVAL));
                self.numbers.remove(&qp.num());
            }
            Phase::Waiting(_) | Phase::Connecting | Phase::Closing | Phase::Done => {}
        }
        Ok(())
    }
}

impl Application for Client {
    const NAME: &'static str = "client";

    fn go(&mut self, node: &mut Node) -> Result<(), EndError> {
        for number in 0..self.queue_pairs {
            self.sessions.push(Session::new(node, self.seed ^ u64::from(number) << 32)?);
        }
        Ok(())
    }

    fn on_completion(&mut self, node: &mut Node, done: &Completion) -> Result<(), EndError> {
        let Some(&number) = self.numbers.get(&done.qp) else { return Ok(()) };
        let session = &mut self.sessions[number];
        session.progress_at = Instant::now();
        if matches!(done.opcode, CompletionOpcode::Receive | CompletionOpcode::ReceiveImmediate) {
            if done.status == CompletionStatus::Success {
                session.on_answer(node, done)?;
                self.counts.add("answers", 1);
            }
            return Ok(());
        }
        let operation = session.slots.get_mut(done.wr_id as usize).and_then(Option::take);
        let Some(operation) = operation else {
            return Err(EndError(format!("a completion of no operation: {done:?}")));
        };
        session.reading -= usize::from(!matches!(operation, Operation::Plain));
        match done.status {
            CompletionStatus::Success => {
                session.check(done, &operation)?;
                self.counts.add(name_of(done.opcode), 1);
                self.counts.add("bytes", done.byte_len.into());
                Ok(())
            }
            CompletionStatus::FlushedInError => Ok(()),
            _ => Err(EndError(format!("{done:?}"))),
        }
    }

    fn on_event(&mut self, _: &mut Node, event: Event) -> Result<(), EndError> {
        let of = |qp: QueuePair| self.numbers.get(&qp.num()).copied();
        match event {
            Event::Established { qp, private_data, .. } => {
                let Some(number) = of(qp) else { return Ok(()) };
                self.sessions[number].on_connected(&private_data)?;
                self.counts.add("connects", 1);
            }
            Event::ConnectFailed { qp, reason } => {
                let Some(number) = of(qp) else { return Ok(()) };
                self.sessions[number].enter(Phase::Ended);
                self.lost(&format!("connect: {reason:?}"));
            }
            Event::Disconnected { qp, reason } => {
                let Some(number) = of(qp) else { return Ok(()) };
                let session = &mut self.sessions[number];
                let is_ours = session.phase == Phase::Closing;
                session.enter(Phase::Ended);
                let ended = if session.aborts { DisconnectReason::Aborted } else { DisconnectReason::Closed };
                if is_ours && reason == ended {
                    self.counts.add(if ended == DisconnectReason::Closed { "closes" } else { "aborts" }, 1);
                } else {
                    self.lost(&format!("{reason:?}"));
                }
            }
            Event::Rejected { qp, .. } => {
                let Some(number) = of(qp) else { return Ok(()) };
                self.sessions[number].enter(Phase::Ended);
                self.counts.add("rejected", 1);
            }
            Event::Terminated { sent, terminate, .. } => {
                return Err(EndError(format!("a Terminate, sent by us: {sent}: {terminate:?}")));
            }
            _ => {}
        }
        Ok(())
    }

    fn advance(&mut self, node: &mut Node) -> Result<(), EndError> {
        (0..self.sessions.len()).try_for_each(|number| self.advance_session(node, number))?;
        self.check_stall(node)
    }

    fn finish(&mut self, node: &mut Node, deadline: Instant) -> Result<usize, EndError> {
        self.is_finishing = true;
        let mut open: Vec<&mut Session> =
            self.sessions.iter_mut().filter(|session| session.phase != Phase::Done).collect();
        if Instant::now() > deadline && !open.is_empty() {
            let stuck: Vec<String> = open.iter().map(|session| session.describe(node)).collect();
            return Err(EndError(format!("connections do not close: {}", stuck.join("; "))));
        }
        if open.is_empty() {
            self.sessions.clear();
            return Ok(0);
        }
        // A connection that is still being opened has nothing to close. The event that it is open
        // may be under way: it is of no session then.
        for session in open.iter_mut().filter(|session| session.phase == Phase::Connecting) {
            if let Some(qp) = session.qp {
                node.ctx.destroy_qp(qp)?;
                self.numbers.remove(&qp.num());
            }
            (session.phase, session.qp) = (Phase::Done, None);
        }
        Ok(open.len())
    }

    fn counts(&self) -> Value {
        self.counts.json(None)
    }
}

fn name_of(opcode: CompletionOpcode) -> &'static str {
    match opcode {
        CompletionOpcode::Write => "writes",
        CompletionOpcode::Read => "reads",
        CompletionOpcode::Send => "sends",
        CompletionOpcode::Immediate => "immediates",
        _ => "atomics",
    }
}
