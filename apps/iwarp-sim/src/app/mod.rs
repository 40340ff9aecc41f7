//! The application on each host: it connects, posts, reaps and disconnects at random, and checks everything that it is
//! told.
//!
//! An [`App`] owns one context. What it does next is drawn from its own dice; what must come of it stands in the
//! [`Ledger`], which the applications of all hosts share. A fault that it finds stays in the ledger and ends the run.
//! iWARP has no receiver-not-ready, so a side sends only what the peer has posted a receive for.

mod fences;
mod ledger;
pub(crate) mod life;
pub(crate) mod memory;
mod news;
mod post;
mod queues;
mod settle;

use core::net::SocketAddr;
use std::collections::BTreeMap;

use ironwarp::{Completion, CompletionStatus, Context, Event, ProtectionDomain, QpState, Stack, VerbsError};
use ironwarp_types::{Nanos, SeededEntropy};

pub use ledger::{Attacked, Ledger, Message, Session, SharedLedger, Side, Stage, Totals, Unsure};
use queues::{Pool, Queue, REAP_MAX, SharedPool};

use crate::plan::{Common, Ending, HostPlan, Offence, addresses_of};
use crate::world::Tenant;

/// The application on one host.
pub struct App {
    host: usize,
    ctx: Context,
    pd: ProtectionDomain,
    /// The domain of memory that no queue pair may reach.
    nobodys: ProtectionDomain,
    /// Its completion queues; the last is that of the shared receive queue, where there is one.
    cqs: Vec<Queue>,
    pool: Option<SharedPool>,
    /// Depths that its completion queues may have.
    depths: [u32; 2],
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
        let depths = [least_places(&ledger.borrow(), host), plan.cq_depth];
        let (pd, nobodys) = (ctx.alloc_pd(), ctx.alloc_pd());
        let (cqs, pool) = make_queues(&mut ctx, plan, depths)?;
        Ok(App {
            host,
            ctx,
            pd,
            nobodys,
            cqs,
            pool,
            depths,
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
}

impl Tenant for App {
    fn is_due(&self, now: Nanos) -> bool {
        now >= self.wakes_at
    }

    fn stir(&mut self, now: Nanos) {
        self.nap = self.plan.pace;
        let soon = now + Nanos(self.dice.below(self.plan.pace.0 + 1));
        self.wakes_at = self.wakes_at.min(soon);
    }

    fn next_look(&self) -> Option<Nanos> {
        (!self.closed || !self.by_qp.is_empty()).then_some(self.wakes_at)
    }

    fn look(&mut self, now: Nanos) -> bool {
        self.work = 0;
        if !self.listens && !self.closed {
            self.listens = self.listen().is_ok();
        }
        self.hear(now);
        self.check_pool();
        // A queue pair that was given up is buried when everything is known of it.
        if self.has_destroyed() {
            self.reap_all(now)
        } else {
            self.reap(now)
        }
        self.check_fences();
        if !self.closed {
            self.tend(now);
            self.tend_queues(now);
        }
        self.nap = if self.work > 0 { self.plan.pace } else { (self.nap + self.nap).min(NAP_MAX) };
        self.wakes_at = now + Nanos(1 + self.dice.below(self.nap.0));
        self.work > 0
    }

    fn restart(&mut self, stack: &Stack, now: Nanos) -> Result<(), VerbsError> {
        let mut ctx = match stack.context() {
            // The one before this has not been swept up yet.
            Err(VerbsError::LimitReached(_)) => return Ok(()),
            outcome => outcome?,
        };
        let made = make_queues(&mut ctx, &self.plan, self.depths);
        (self.cqs, self.pool) = match made {
            Err(VerbsError::LimitReached(_)) => return Ok(()),
            outcome => outcome?,
        };
        (self.pd, self.nobodys) = (ctx.alloc_pd(), ctx.alloc_pd());
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

    fn close(&mut self) -> Result<(), String> {
        self.closed = true;
        self.check_places()?;
        if let Some(pool) = self.pool.take() {
            let srq = pool.borrow().srq();
            self.ctx.destroy_srq(srq).map_err(|error| error.to_string())?;
            pool.borrow_mut().close()?;
        }
        self.give_back().map_err(|error| error.to_string())
    }
}

impl App {
    /// Every place of a completion queue that was promised to a request has come back: there are no requests any more.
    fn check_places(&self) -> Result<(), String> {
        for queue in &self.cqs {
            let info = self.ctx.query_cq(queue.cq()).map_err(|error| error.to_string())?;
            if info.promised > 0 && self.by_qp.is_empty() {
                return Err(format!("{} places of a completion queue never came back", info.promised));
            }
        }
        Ok(())
    }

    fn give_back(&mut self) -> Result<(), VerbsError> {
        for local in self.listeners() {
            self.ctx.unlisten(local)?;
        }
        self.cqs.drain(..).try_for_each(|queue| self.ctx.destroy_cq(queue.cq()))
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
                Event::Disconnected { .. }
                    | Event::ConnectFailed { .. }
                    | Event::Rejected { .. }
                    | Event::SharedReceiveLimit { .. }
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
            self.reap_some(now, index, most, false);
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
            while self.reap_some(now, index, REAP_MAX, true) > 0 {}
        }
    }

    fn reap_some(&mut self, now: Nanos, index: usize, most: usize, must: bool) -> usize {
        match self.cqs[index].reap(now, &mut self.ctx, most, must) {
            Ok(completions) => {
                self.work += completions.len();
                completions.iter().for_each(|completion| self.on_completion(now, completion));
                completions.len()
            }
            Err(fault) => {
                self.ledger.borrow_mut().blame(usize::MAX, 0, &format!("host {}: {fault}", self.host));
                0
            }
        }
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
                ledger.totals.shared += settled.shared;
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
        let mut batch = 1 + self.dice.below(self.plan.batch.into()) as usize;
        while batch > 0 {
            let most = batch.min(1 + self.dice.below(session.plan.chain_max) as usize);
            let posted = session.post_sends(side, most, &mut self.ctx, self.pd, &mut self.dice)?;
            if posted == 0 {
                break;
            }
            self.work += posted;
            batch = batch.saturating_sub(posted);
        }
        Ok(())
    }

    /// What it was not told of its shared receive queue must not be so.
    fn check_pool(&mut self) {
        let fault = self.pool.as_ref().and_then(|pool| pool.borrow().after_news().err());
        if let Some(fault) = fault {
            self.ledger.borrow_mut().blame(usize::MAX, 0, &format!("host {}: {fault}", self.host));
        }
    }

    /// Posts shared receives, goes to sleep over completion queues, gives them other depths.
    fn tend_queues(&mut self, now: Nanos) {
        if let Err(fault) = self.try_tend_queues(now) {
            self.ledger.borrow_mut().blame(usize::MAX, 0, &format!("host {}: {fault}", self.host));
        }
    }

    fn try_tend_queues(&mut self, now: Nanos) -> Result<(), String> {
        let dice = &mut self.dice;
        if let Some(pool) = self.pool.clone() {
            let mut pool = pool.borrow_mut();
            let posted =
                pool.fill(self.plan.batch, &mut self.ctx, dice).map_err(|error| error.to_string())?;
            self.work += posted;
            if dice.chance(ARM_PPM) {
                self.work += usize::from(pool.arm(&mut self.ctx, dice).map_err(|error| error.to_string())?);
            }
        }
        let index = self.dice.below(self.cqs.len() as u64) as usize;
        if self.dice.chance(self.plan.resize_ppm) {
            let resized = self.cqs[index].resize(&mut self.ctx, &mut self.dice);
            let resized = resized.map_err(|error| error.to_string())?;
            self.ledger.borrow_mut().totals.resized += u64::from(resized);
            self.work += 1;
        }
        if self.dice.chance(self.plan.sleep_ppm) {
            // Whatever is there is taken before it goes to sleep.
            while self.reap_some(now, index, REAP_MAX, true) > 0 {}
            self.cqs[index].sleep(now, &mut self.ctx, &mut self.dice)?;
        }
        let woken: u64 = self.cqs.iter_mut().map(Queue::count_woken).sum();
        self.ledger.borrow_mut().totals.woken += woken;
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

/// How often a host asks to be told when its shared receives run low, looks in a million.
const ARM_PPM: u32 = 30_000;

/// Places beside those of receives that a host's completion queues always have.
const PLACES_SPARE: u32 = 64;

/// Places that each completion queue of a host must have, so that receives cannot take all of them.
fn least_places(ledger: &Ledger, host: usize) -> u32 {
    let plans = ledger.sessions.iter().map(|session| &session.plan);
    let sides = plans.flat_map(|plan| plan.hosts.map(|at| if at == host { plan.receives.max(1) } else { 0 }));
    sides.sum::<u32>() + PLACES_SPARE
}

/// The completion queues of a host, and its shared receive queue with one of its own.
fn make_queues(
    ctx: &mut Context,
    plan: &HostPlan,
    depths: [u32; 2],
) -> Result<(Vec<Queue>, Option<SharedPool>), VerbsError> {
    let count = plan.completion_queues + usize::from(plan.pool.is_some());
    let cqs = (0..count).map(|_| Queue::new(ctx, depths)).collect::<Result<_, _>>()?;
    Ok((cqs, plan.pool.map(|pool| Pool::new(ctx, pool)).transpose()?))
}
