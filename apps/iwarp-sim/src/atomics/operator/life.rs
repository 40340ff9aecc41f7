//! The life of a connection: how it is made, and how it ends.

use std::collections::VecDeque;

use ironwarp::{ConnectParams, QpAttr, QueuePair, VerbsError};
use ironwarp_types::Nanos;

use super::line::Line;
use super::{CALLER, KEEPER, Operator, PORT};
use crate::app::life::introduction;
use crate::atomics::desk::{Call, End, NAMES, Stage};
use crate::plan::{CallEnding, addresses_of};

/// How long after the other end has gone one that heard nothing goes too: a lost reset tells nobody.
const SILENCE: Nanos = Nanos::from_millis(30);

/// How long after a failed attempt the next one is made.
const PAUSE: Nanos = Nanos::from_millis(200);

/// Attempts to connect while links do harm.
const ATTEMPTS_MAX: u32 = 60;

impl Operator {
    /// Looks after every connection of this host.
    pub(super) fn tend(&mut self, now: Nanos) {
        let count = self.desk.borrow().calls.len();
        for call in 0..count {
            let is_mine = self.role == KEEPER || self.desk.borrow().calls[call].plan.host == self.host;
            if !is_mine || self.desk.borrow().calls[call].is_over {
                continue;
            }
            if let Err(error) = self.tend_call(now, call) {
                self.blame(call, &format!("a call failed: {error}"));
            }
            self.bury(call);
        }
    }

    fn tend_call(&mut self, now: Nanos, call: usize) -> Result<(), VerbsError> {
        let (stage, not_before, left_alone) = {
            let call = &self.desk.borrow().calls[call];
            let left_alone = call.ended_at.is_some_and(|at| now >= at + SILENCE);
            (call.ends[self.role].stage, call.not_before, left_alone)
        };
        match stage {
            Stage::Waiting if self.role == CALLER && now >= not_before => self.connect(call)?,
            Stage::Connecting | Stage::Up | Stage::Closing if left_alone => self.give_up(now, call),
            Stage::Connecting => self.post_receives(call)?,
            Stage::Up => {
                self.post(call)?;
                self.end_if_due(now, call)?;
            }
            _ => {}
        }
        Ok(())
    }

    fn connect(&mut self, call: usize) -> Result<(), VerbsError> {
        self.work += 1;
        let extensions = {
            let desk = &mut *self.desk.borrow_mut();
            desk.calls[call].begin_again(CALLER);
            desk.calls[call].stream = desk.history.begin();
            desk.calls[call].attempts += 1;
            Some(desk.plan.extensions)
        };
        let by_v6 = self.desk.borrow().calls[call].plan.by_v6;
        let [v4, v6] = addresses_of(0);
        let mut there = if by_v6 { v6 } else { v4 };
        there.set_port(PORT);
        let qp = self.make_line(call)?;
        let private_data = &introduction(call);
        self.ctx.connect_with(
            qp,
            there,
            &ConnectParams { private_data, extensions, ..Default::default() },
        )?;
        self.desk.borrow_mut().calls[call].ends[CALLER].stage = Stage::Connecting;
        Ok(())
    }

    pub(super) fn make_line(&mut self, call: usize) -> Result<QueuePair, VerbsError> {
        let plan = self.desk.borrow().calls[call].plan.clone();
        let attr = QpAttr {
            send_depth: plan.send_depth,
            recv_depth: plan.receives,
            inbound_reads: plan.reads,
            outbound_reads: plan.reads,
            ..QpAttr::new(self.cq)
        };
        let qp = self.ctx.create_qp(self.pd, &attr)?;
        self.by_qp.insert(qp.num().0, call);
        let line = Line {
            qp,
            out: VecDeque::new(),
            next: 0,
            receives: VecDeque::new(),
            has_failed: false,
            posted: 0,
            names: None,
        };
        self.lines.insert(call, line);
        self.post_receives(call)?;
        Ok(qp)
    }

    fn end_if_due(&mut self, now: Nanos, call: usize) -> Result<(), VerbsError> {
        let Some(line) = self.lines.get(&call) else { return Ok(()) };
        let (qp, posted) = (line.qp, line.posted);
        let (ending, is_done, is_busy, is_wrong, asked) = {
            let desk = self.desk.borrow();
            let call = &desk.calls[call];
            let asked = (call.ends[CALLER].stage == Stage::Up).then_some(call.ends[CALLER].asked);
            (call.plan.ending, call.is_done(), call.ends[CALLER].open > 0, call.is_wrong, asked)
        };
        match ending {
            CallEnding::Graceful | CallEnding::Revoked { .. } if self.role == CALLER && is_done => {
                self.begin_end(call, Stage::Closing);
                self.ctx.disconnect(qp)?;
            }
            CallEnding::Destroy { by, after } if by == self.role && asked >= Some(after) => {
                self.begin_end(call, Stage::Up);
                self.give_up(now, call);
            }
            CallEnding::Revoked { after, name } if self.role == KEEPER && asked >= Some(after) && is_busy => {
                self.let_end(call, name);
            }
            CallEnding::Wrong { after, .. } if self.role == CALLER && posted >= after && !is_wrong => {
                self.post_wrong(call)?;
            }
            _ => {}
        }
        Ok(())
    }

    pub(super) fn begin_end(&mut self, call: usize, stage: Stage) {
        self.work += 1;
        let call = &mut self.desk.borrow_mut().calls[call];
        call.is_ending = true;
        call.ends[self.role].stage = stage;
    }

    /// Gives the queue pair up. What has completed is known before; what has not may have been carried out or not.
    pub(super) fn give_up(&mut self, now: Nanos, call: usize) {
        self.reap(now, usize::MAX);
        self.drop_line(call);
        self.desk.borrow_mut().calls[call].leave(now, self.role);
    }

    /// Whatever queue pair there was is gone.
    pub(super) fn drop_line(&mut self, call: usize) {
        let Some(line) = self.lines.remove(&call) else { return };
        self.work += 1;
        self.by_qp.remove(&line.qp.num().0);
        self.retired.insert(line.qp.num().0);
        if let Err(error) = self.ctx.destroy_qp(line.qp) {
            self.blame(call, &format!("a queue pair could not be given up: {error}"));
        }
    }

    /// An attempt has failed.
    pub(super) fn try_again(&mut self, now: Nanos, call: usize) {
        self.drop_line(call);
        let attempts = self.desk.borrow().calls[call].attempts;
        if self.role == CALLER && attempts >= ATTEMPTS_MAX {
            return self.blame(call, "nobody ever answers");
        }
        let call = &mut self.desk.borrow_mut().calls[call];
        call.ends[self.role].stage = Stage::Waiting;
        call.not_before = now + PAUSE;
        self.ledger.borrow_mut().totals.retried += u64::from(self.role == CALLER);
    }

    /// The context is gone, and this connection with it.
    pub(super) fn vanish(&mut self, now: Nanos, call: usize) {
        let call = &mut self.desk.borrow_mut().calls[call];
        (call.is_ending, call.has_vanished) = (true, true);
        call.leave(now, self.role);
    }

    /// Nothing more can come of a connection.
    fn bury(&mut self, call: usize) {
        let desk = &mut *self.desk.borrow_mut();
        let call_now = &mut desk.calls[call];
        if call_now.is_over || !call_now.has_ended() {
            return;
        }
        call_now.is_over = true;
        let outcome = call_now.judge();
        let mut ledger = self.ledger.borrow_mut();
        ledger.open -= 1;
        if let Err(fault) = outcome {
            ledger.blame(call, self.role, &fault);
        }
    }
}

impl Call {
    /// An end as it was before its first attempt.
    pub fn begin_again(&mut self, role: usize) {
        self.ends[role] = End::default();
        // What was on its way to it, or from it, is on no way any more.
        self.ends[1 - role].incoming.clear();
        if role == KEEPER {
            self.names.clear();
            self.ended_names = [false; NAMES];
        }
    }

    /// Both have done everything, and heard of it.
    fn is_done(&self) -> bool {
        let [caller, keeper] = &self.ends;
        let asked = caller.asked >= self.plan.ops && keeper.asked >= self.plan.messages;
        asked && self.ends.iter().all(|end| end.open == 0 && end.incoming.is_empty())
    }
}
