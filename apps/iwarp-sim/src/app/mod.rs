//! The application on each host: it connects, posts, reaps and disconnects at random, and checks everything that it is
//! told.
//!
//! An [`App`] owns one context. What it does next is drawn from its own dice; what must come of it stands in the
//! [`Ledger`], which the applications of all hosts share. A fault that it finds stays in the ledger and ends the run.
//! iWARP has no receiver-not-ready, so a side sends only what the peer has posted a receive for.

mod ledger;
mod life;
mod loan;
mod offend;
mod pattern;
mod plot;
mod post;
mod settle;

use core::net::SocketAddr;
use std::collections::BTreeMap;

use ironwarp::{
    Completion, CompletionQueue, CompletionStatus, Context, Event, ProtectionDomain, QpState, Stack,
    VerbsError,
};
use ironwarp_types::{Nanos, SeededEntropy};

pub use ledger::{Ledger, Session, SharedLedger, Side, Stage, Totals};

use crate::plan::{Common, Ending, HostPlan, Offence, addresses_of};

/// The application on one host.
pub struct App {
    host: usize,
    ctx: Context,
    pd: ProtectionDomain,
    cqs: Vec<CompletionQueue>,
    ledger: SharedLedger,
    plan: HostPlan,
    common: Common,
    dice: SeededEntropy,
    /// Session and side of each queue pair, by number.
    by_qp: BTreeMap<u32, (usize, usize)>,
    listens: bool,
    /// Whether its first context is gone.
    has_restarted: bool,
    /// Whether queue pairs, queues and listeners have been given up.
    closed: bool,
    /// When it looks again.
    wakes_at: Nanos,
    /// How long it sleeps after a fruitless look.
    nap: Nanos,
    work: usize,
}

/// The longest nap: what the ends of an idle session cost is a step each.
const NAP_MAX: Nanos = Nanos::from_millis(20);

impl App {
    /// An application on `stack`.
    pub fn new(
        host: usize,
        stack: &Stack,
        plan: &HostPlan,
        common: &Common,
        ledger: &SharedLedger,
    ) -> Result<Self, VerbsError> {
        let mut ctx = stack.context()?;
        let pd = ctx.alloc_pd();
        let cqs =
            (0..plan.completion_queues).map(|_| ctx.create_cq(plan.cq_depth)).collect::<Result<_, _>>()?;
        Ok(App {
            host,
            ctx,
            pd,
            cqs,
            ledger: ledger.clone(),
            plan: plan.clone(),
            common: common.clone(),
            dice: SeededEntropy::new(plan.seed),
            by_qp: BTreeMap::new(),
            listens: false,
            has_restarted: false,
            closed: false,
            wakes_at: Nanos::ZERO,
            nap: plan.pace,
            work: 0,
        })
    }

    /// Whether it is time to look.
    pub fn is_due(&self, now: Nanos) -> bool {
        now >= self.wakes_at
    }

    /// The worker did something: what came of it is looked at soon.
    pub fn stir(&mut self, now: Nanos) {
        self.nap = self.plan.pace;
        let soon = now + Nanos(self.dice.below(self.plan.pace.0 + 1));
        self.wakes_at = self.wakes_at.min(soon);
    }

    /// When it looks again; `None` once it has nothing left to do.
    pub fn next_look(&self) -> Option<Nanos> {
        (!self.closed || !self.by_qp.is_empty()).then_some(self.wakes_at)
    }

    /// One look: news, completions, then whatever there is to do. Answers whether the worker has something to do now.
    pub fn look(&mut self, now: Nanos) -> bool {
        self.work = 0;
        if !self.listens && !self.closed {
            self.listens = self.listen().is_ok();
        }
        self.hear(now);
        // A queue pair that was given up is buried when everything is known of it.
        if self.has_destroyed() {
            self.reap_all(now)
        } else {
            self.reap(now)
        }
        if !self.closed {
            self.tend(now);
        }
        self.nap = if self.work > 0 { self.plan.pace } else { (self.nap + self.nap).min(NAP_MAX) };
        self.wakes_at = now + Nanos(1 + self.dice.below(self.nap.0));
        self.work > 0
    }

    /// Drops its context with everything in it, as an application that ends does, and begins anew.
    pub fn restart(&mut self, stack: &Stack, now: Nanos) -> Result<(), VerbsError> {
        let mut ctx = match stack.context() {
            // The one before this has not been swept up yet.
            Err(VerbsError::LimitReached(_)) => return Ok(()),
            outcome => outcome?,
        };
        let (count, depth) = (self.plan.completion_queues, self.plan.cq_depth);
        let cqs: Result<_, _> = (0..count).map(|_| ctx.create_cq(depth)).collect();
        self.cqs = match cqs {
            Err(VerbsError::LimitReached(_)) => return Ok(()),
            outcome => outcome?,
        };
        self.pd = ctx.alloc_pd();
        self.ctx = ctx;
        self.by_qp.clear();
        (self.listens, self.has_restarted) = (false, true);
        let ledger = self.ledger.clone();
        let mut ledger = ledger.borrow_mut();
        for number in 0..ledger.sessions.len() {
            life::vanish(now, &mut ledger, number, self.host);
        }
        self.wakes_at = now;
        Ok(())
    }

    /// Gives up everything: the run is over.
    pub fn close(&mut self) -> Result<(), VerbsError> {
        self.closed = true;
        for local in self.listeners() {
            self.ctx.unlisten(local)?;
        }
        self.cqs.drain(..).try_for_each(|cq| self.ctx.destroy_cq(cq))
    }

    /// Where this host listens.
    fn listeners(&self) -> Vec<SocketAddr> {
        let ports = self.ports();
        let [v4, v6] = addresses_of(self.host);
        let local = [(self.common.v4, v4), (self.common.v6, v6)].into_iter().filter(|(has, _)| *has);
        let at = |address: SocketAddr, port| SocketAddr::new(address.ip(), port);
        local.flat_map(|(_, address)| ports.iter().map(move |port| at(address, *port))).collect()
    }

    /// Ports on which sessions come to this host.
    fn ports(&self) -> Vec<u16> {
        let ledger = self.ledger.borrow();
        let mine = ledger.sessions.iter().filter(|session| session.plan.hosts[1] == self.host);
        let mut ports: Vec<u16> = mine.map(|session| session.plan.port).collect();
        ports.sort_unstable();
        ports.dedup();
        ports
    }

    fn listen(&mut self) -> Result<(), VerbsError> {
        self.work += 1;
        self.listeners().into_iter().try_for_each(|local| self.ctx.listen(local))
    }

    /// Hears all news. A slow reader hears them late.
    fn hear(&mut self, now: Nanos) {
        while let Some(event) = self.ctx.poll_event() {
            self.work += 1;
            // Everything that completed before the news is reaped before it is judged.
            if matches!(
                event,
                Event::Disconnected { .. } | Event::ConnectFailed { .. } | Event::Rejected { .. }
            ) {
                self.reap_all(now);
            }
            self.on_event(now, event);
        }
    }

    /// Reaps some completions.
    fn reap(&mut self, now: Nanos) {
        for index in 0..self.cqs.len() {
            let most = 1 + self.dice.below(REAP_MAX as u64) as usize;
            self.reap_some(now, index, most);
        }
    }

    fn has_destroyed(&self) -> bool {
        let ledger = self.ledger.borrow();
        self.by_qp
            .values()
            .any(|(number, side)| ledger.sessions[*number].sides[*side].stage == Stage::Destroyed)
    }

    fn reap_all(&mut self, now: Nanos) {
        for index in 0..self.cqs.len() {
            while self.reap_some(now, index, REAP_MAX) > 0 {}
        }
    }

    fn reap_some(&mut self, now: Nanos, index: usize, most: usize) -> usize {
        let mut completions = [Completion::default(); REAP_MAX];
        let Some(into) = completions.get_mut(..most) else { return 0 };
        let count = self.ctx.poll_cq(self.cqs[index], into).unwrap_or(0);
        for completion in completions.iter().take(count) {
            self.work += 1;
            self.on_completion(now, completion);
        }
        count
    }

    fn on_completion(&mut self, now: Nanos, completion: &Completion) {
        let mut ledger = self.ledger.borrow_mut();
        let Some(&(number, side)) = self.by_qp.get(&completion.qp.0) else {
            return ledger.blame(usize::MAX, 0, &format!("a completion of no queue pair: {completion:?}"));
        };
        let failed = completion.status != CompletionStatus::Success;
        let what = [completion.opcode as u8, u8::from(failed), completion.wr_id as u8];
        ledger.note(now, number, side, &what);
        match ledger.sessions[number].settle(side, completion) {
            Ok(settled) => {
                ledger.totals.succeeded += settled.succeeded;
                ledger.totals.flushed += settled.flushed;
                ledger.totals.lent += settled.lent;
                ledger.totals.bytes += settled.bytes;
            }
            Err(fault) => ledger.blame(number, side, &fault),
        }
    }

    /// Looks after every session of this host.
    fn tend(&mut self, now: Nanos) {
        let ledger = self.ledger.clone();
        let mut ledger = ledger.borrow_mut();
        for number in 0..ledger.sessions.len() {
            for side in [0, 1] {
                let session = &ledger.sessions[number];
                if session.plan.hosts[side] != self.host || session.is_over {
                    continue;
                }
                if let Err(error) = self.tend_side(now, &mut ledger, number, side) {
                    ledger.blame(number, side, &format!("a call failed: {error}"));
                }
            }
        }
    }

    fn tend_side(
        &mut self,
        now: Nanos,
        ledger: &mut Ledger,
        number: usize,
        side: usize,
    ) -> Result<(), VerbsError> {
        let hopeless = ledger.unseen && now > ledger.healed_at + HOPE;
        let session = &mut ledger.sessions[number];
        match session.sides[side].stage {
            // A length that was damaged makes the receiver wait for bytes that nobody sends: nothing notices.
            Stage::Up if hopeless => self.abandon(now, session, side)?,
            Stage::Waiting if side == 0 && now >= session.not_before => {
                self.connect(now, session, number)?;
                life::forgo(ledger, number);
            }
            Stage::Connecting | Stage::Up => {
                self.post(session, side)?;
                self.end_if_due(now, session, side)?;
            }
            // An unanswered Read keeps a disconnect waiting for as long as unacknowledged data would.
            Stage::Closing if session.ended_at.is_some_and(|at| now >= at + DEAF) => {
                self.abandon(now, session, side)?;
            }
            Stage::Ended => self.give_up(now, session, side)?,
            Stage::Destroyed if session.sides[side].is_settled() => self.bury(now, ledger, number, side),
            _ => {}
        }
        Ok(())
    }

    /// Posts receives and requests, a few at a time.
    fn post(&mut self, session: &mut Session, side: usize) -> Result<(), VerbsError> {
        // Whoever sees a failure posts no more.
        if session.sides[side].send_failed || session.sides[side].receive_failed {
            return Ok(());
        }
        // Whoever is to be sent a message without a receive posts only the first ones.
        let starved = matches!(session.plan.ending,
            Ending::Offend { by, offence: Offence::SendUnexpected, .. } if by != side);
        let batch = if starved { 0 } else { self.plan.batch };
        for _ in 0..batch {
            self.work += usize::from(session.post_receive(side, &mut self.ctx, &mut self.dice)?);
        }
        let batch = 1 + self.dice.below(self.plan.batch.into());
        for _ in 0..batch {
            if session.sides[side].left == 0 {
                break;
            }
            self.work += usize::from(session.post_send(side, &mut self.ctx, self.pd, &mut self.dice)?);
        }
        Ok(())
    }

    fn state(&self, session: &Session, side: usize) -> Option<QpState> {
        session.sides[side].qp.and_then(|qp| self.ctx.qp_state(qp).ok())
    }
}

/// How long a side that closes waits for a peer that has gone.
const DEAF: Nanos = Nanos::from_secs(2);

/// How long sessions whose stream may have been damaged get, once nothing does harm any more.
const HOPE: Nanos = Nanos::from_secs(20);

/// Completions reaped together.
const REAP_MAX: usize = 16;
