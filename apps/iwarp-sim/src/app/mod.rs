//! The application on each host: it connects, posts, reaps and disconnects at random, and checks
//! every event and completion.
//!
//! An [`App`] owns one context. Its own random generator chooses what it does next. The [`Oracle`],
//! which the applications of all hosts share, holds the expected results. A fault is stored in the
//! oracle and ends the run. iWARP has no receiver-not-ready, so a side sends only when the peer has
//! posted a receive.

mod completion_oracle;
mod events;
mod fences;
pub(crate) mod lifecycle;
pub(crate) mod memory;
mod oracle;
mod post;
mod queues;
mod side;
mod terminate_oracle;

use core::net::SocketAddr;
use std::collections::BTreeMap;

use ironwarp::{
    Completion, CompletionFlags, CompletionStatus, ConnectionRequest, Context, Event, ProtectionDomain,
    QpState, Stack, VerbsError,
};
use ironwarp_types::{Nanos, SeededEntropy};

pub(crate) use memory::{Pattern, Piece, Tag};
pub use oracle::{AttackOutcome, NO_SESSION, Oracle, Session, SharedOracle, Totals};
pub(crate) use post::{Draft, RequestGenerator, RequestKind, ignore_queue_full};
use queues::{AppCq, REAP_MAX, SharedAppSrq, make_queues};
pub use side::{Message, Posted, Side, Stage, UnverifiedWrite};

use crate::atomics::{WordServer, Words};
use crate::plan::{BadRequest, CommonConfig, Ending, HostPlan, addresses_of};
use crate::text;

/// The application on one host.
pub struct App {
    host: usize,
    ctx: Context,
    pd: ProtectionDomain,
    /// A protection domain that no queue pair uses.
    foreign_pd: ProtectionDomain,
    /// Its completion queues; the last one is for the shared receive queue, where there is one.
    cqs: Vec<AppCq>,
    app_srq: Option<SharedAppSrq>,
    /// The depths between which its completion queues are resized.
    depths: [u32; 2],
    oracle: SharedOracle,
    plan: HostPlan,
    common: CommonConfig,
    rng: SeededEntropy,
    /// Session and side of each queue pair, by number.
    by_qp: BTreeMap<u32, (usize, usize)>,
    /// Connection requests whose end was not reported. An answer does not remove one: it may have
    /// come too late.
    requests: Vec<ConnectionRequest>,
    word_server: Option<WordServer>,
    listens: bool,
    /// Whether its first context was dropped.
    has_restarted: bool,
    /// Whether all queue pairs, queues and listeners have been destroyed.
    closed: bool,
    next_poll_at: Nanos,
    /// How long it sleeps after a poll without work.
    poll_delay: Nanos,
    work: usize,
    /// Whether a core has run since the last poll.
    core_has_run: bool,
}

/// The longest sleep, which bounds the number of steps of an idle session.
const POLL_DELAY_MAX: Nanos = Nanos::from_millis(20);

impl App {
    /// An application on `stack`.
    pub fn new(
        host: usize,
        stack: &Stack,
        plan: &HostPlan,
        common: &CommonConfig,
        oracle: &SharedOracle,
    ) -> Result<Self, VerbsError> {
        let mut ctx = stack.context()?;
        let depths = [min_cq_depth(&oracle.borrow(), host), plan.cq_depth];
        let (pd, foreign_pd) = (ctx.alloc_pd(), ctx.alloc_pd());
        let (cqs, app_srq) = make_queues(&mut ctx, plan, depths)?;
        let word_server = match oracle.borrow_mut().words.as_mut().filter(|_| host == 0) {
            Some(words) => Some(WordServer::new(&ctx, pd, words)?),
            None => None,
        };
        Ok(App {
            host,
            ctx,
            pd,
            foreign_pd,
            cqs,
            app_srq,
            depths,
            oracle: oracle.clone(),
            plan: plan.clone(),
            common: common.clone(),
            rng: SeededEntropy::new(plan.seed),
            by_qp: BTreeMap::new(),
            requests: Vec::new(),
            word_server,
            listens: false,
            has_restarted: false,
            closed: false,
            next_poll_at: Nanos::ZERO,
            poll_delay: plan.poll_interval,
            work: 0,
            core_has_run: false,
        })
    }
}

impl App {
    /// One core was polled, and no other since: memory may be inspected between two steps.
    pub fn on_core_polled(&mut self) {
        self.core_has_run = true;
        if let Some(server) = &mut self.word_server {
            server.on_core_polled(&mut self.oracle.borrow_mut(), &mut self.rng);
        }
    }

    pub fn is_due(&self, now: Nanos) -> bool {
        now >= self.next_poll_at
    }

    /// The cores did some work: the application polls soon.
    pub fn on_core_work(&mut self, now: Nanos) {
        self.poll_delay = self.plan.poll_interval;
        let soon = now + Nanos(self.rng.below(self.plan.poll_interval.0 + 1));
        self.next_poll_at = self.next_poll_at.min(soon);
    }

    /// The time of the next poll; `None` once it has nothing left to do.
    pub fn next_poll(&self) -> Option<Nanos> {
        (!self.closed || !self.by_qp.is_empty()).then_some(self.next_poll_at)
    }

    /// Polls once. Returns whether the cores have something to do now.
    pub fn poll(&mut self, now: Nanos) -> bool {
        self.work = 0;
        if !self.listens && !self.closed {
            self.listens = self.listen().is_ok();
        }
        if let (Some(server), Some(words)) = (&mut self.word_server, &mut self.oracle.borrow_mut().words) {
            server.observe(words);
        }
        self.poll_events(now);
        // A core that stands still has seen neither the limit nor the messages.
        if core::mem::take(&mut self.core_has_run)
            && let Some(app_srq) = &self.app_srq
        {
            let checked = app_srq.borrow().check_no_missed_limit_event();
            self.record(checked);
        }
        // A destroyed queue pair is forgotten when all its completions are known.
        if self.has_destroyed() {
            self.reap_all(now)
        } else {
            self.reap(now)
        }
        self.check_fences();
        if !self.closed {
            self.drive_sessions(now);
            let outcome = self.drive_queues(now);
            self.record(outcome);
            self.drive_words(now);
        }
        self.poll_delay = if self.work > 0 {
            self.plan.poll_interval
        } else {
            (self.poll_delay + self.poll_delay).min(POLL_DELAY_MAX)
        };
        self.next_poll_at = now + Nanos(1 + self.rng.below(self.poll_delay.0));
        self.work > 0
    }

    /// Drops its context with everything in it, as an application that exits does, and restarts.
    pub fn restart(&mut self, stack: &Stack, now: Nanos) -> Result<(), VerbsError> {
        let mut ctx = match stack.context() {
            // The previous context has not been cleaned up yet.
            Err(VerbsError::LimitReached(_)) => return Ok(()),
            outcome => outcome?,
        };
        let made = make_queues(&mut ctx, &self.plan, self.depths);
        (self.cqs, self.app_srq) = match made {
            Err(VerbsError::LimitReached(_)) => return Ok(()),
            outcome => outcome?,
        };
        (self.pd, self.foreign_pd) = (ctx.alloc_pd(), ctx.alloc_pd());
        self.ctx = ctx;
        self.by_qp.clear();
        self.requests.clear();
        (self.listens, self.has_restarted) = (false, true);
        let oracle = self.oracle.clone();
        let mut oracle = oracle.borrow_mut();
        for number in 0..oracle.sessions.len() {
            lifecycle::on_context_dropped(now, &mut oracle, number, self.host);
        }
        self.next_poll_at = now;
        Ok(())
    }

    /// Destroys everything: the run is over.
    pub fn close(&mut self) -> Result<(), String> {
        self.closed = true;
        self.check_cq_reservations()?;
        if let Some(app_srq) = self.app_srq.take() {
            let srq = app_srq.borrow().srq();
            self.ctx.destroy_srq(srq).map_err(text)?;
            app_srq.borrow_mut().close()?;
        }
        for local in self.listeners() {
            self.ctx.unlisten(local).map_err(text)?;
        }
        self.cqs.drain(..).try_for_each(|queue| self.ctx.destroy_cq(queue.cq())).map_err(text)
    }
}

impl App {
    /// Checks that every completion queue entry that was reserved for a request is free again: no
    /// requests are left.
    fn check_cq_reservations(&self) -> Result<(), String> {
        for queue in &self.cqs {
            let reserved = self.ctx.query_cq(queue.cq()).map_err(text)?.reserved_cqes;
            if reserved > 0 && self.by_qp.is_empty() {
                return Err(format!("{reserved} reserved entries of a completion queue were not released"));
            }
        }
        Ok(())
    }

    fn listeners(&self) -> Vec<SocketAddr> {
        let ports = self.ports();
        let [v4, v6] = addresses_of(self.host);
        let local = [(self.common.v4, v4), (self.common.v6, v6)].into_iter().filter(|(has, _)| *has);
        let at = |address: SocketAddr, port| SocketAddr::new(address.ip(), port);
        local.flat_map(|(_, address)| ports.iter().map(move |port| at(address, *port))).collect()
    }

    /// The ports on which this host accepts sessions.
    fn ports(&self) -> Vec<u16> {
        let oracle = self.oracle.borrow();
        let mine = oracle.sessions.iter().filter(|session| session.plan.hosts[1] == self.host);
        let mut ports: Vec<u16> = mine.map(|session| session.plan.port).collect();
        ports.sort_unstable();
        ports.dedup();
        ports
    }

    fn listen(&mut self) -> Result<(), VerbsError> {
        self.work += 1;
        self.listeners().into_iter().try_for_each(|local| self.ctx.listen(local).map(drop))
    }

    /// Handles all events. A slow reader handles them late.
    fn poll_events(&mut self, now: Nanos) {
        while let Some(event) = self.ctx.poll_event() {
            self.work += 1;
            // All earlier completions are reaped before the event is checked.
            if matches!(
                event,
                Event::Disconnected { .. }
                    | Event::ConnectFailed { .. }
                    | Event::Rejected { .. }
                    | Event::SrqLimitReached { .. }
            ) {
                self.reap_all(now);
            }
            self.on_event(now, event);
        }
    }

    fn reap(&mut self, now: Nanos) {
        for index in 0..self.cqs.len() {
            let most = 1 + self.rng.below(REAP_MAX as u64) as usize;
            self.reap_some(now, index, most, false);
        }
    }

    fn has_destroyed(&self) -> bool {
        let oracle = self.oracle.borrow();
        self.by_qp
            .values()
            .any(|(number, side)| oracle.sessions[*number].sides[*side].stage == Stage::Destroyed)
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
                self.record(Err(fault));
                0
            }
        }
    }

    fn on_completion(&mut self, now: Nanos, completion: &Completion) {
        let oracle = &mut *self.oracle.borrow_mut();
        if completion.flags.contains(CompletionFlags::LOCAL_ATOMIC) {
            let what = [completion.opcode as u8, completion.status as u8, completion.wr_id as u8];
            oracle.hash_event(now, NO_SESSION, 1, &what);
            oracle.totals.atomics += u64::from(completion.status == CompletionStatus::Success);
            if let (Some(server), Some(words)) = (&mut self.word_server, &mut oracle.words) {
                let checked = server.on_local_completion(completion, words);
                oracle.record(NO_SESSION, 1, checked);
            }
            return;
        }
        let Some(&(number, side)) = self.by_qp.get(&completion.qp.0) else {
            let fault = format_args!("a completion of an unknown queue pair: {completion:?}");
            return oracle.report_failure(NO_SESSION, 0, fault);
        };
        let failed = completion.status != CompletionStatus::Success;
        let what = [completion.opcode as u8, u8::from(failed), completion.wr_id as u8];
        oracle.hash_event(now, number, side, &what);
        match oracle.sessions[number].check_completion(side, completion, oracle.words.as_mut()) {
            Ok(checked) => oracle.totals.add(&checked),
            Err(fault) => oracle.report_failure(number, side, fault),
        }
    }

    /// Advances every session of this host.
    fn drive_sessions(&mut self, now: Nanos) {
        let oracle = self.oracle.clone();
        let mut oracle = oracle.borrow_mut();
        for number in 0..oracle.sessions.len() {
            for side in [0, 1] {
                let session = &oracle.sessions[number];
                if session.plan.hosts[side] != self.host || session.is_over {
                    continue;
                }
                let outcome = self.drive_side(now, &mut oracle, number, side);
                oracle.record(number, side, outcome.map_err(|error| format!("a call failed: {error}")));
            }
        }
    }

    fn drive_side(
        &mut self,
        now: Nanos,
        oracle: &mut Oracle,
        number: usize,
        side: usize,
    ) -> Result<(), VerbsError> {
        let hopeless = oracle.undetected_corruption && now > oracle.healed_at + CORRUPTED_SESSION_TIMEOUT;
        let (session, words) = (&mut oracle.sessions[number], oracle.words.as_mut());
        match session.sides[side].stage {
            // With a damaged length field, the receiver waits for bytes that are never sent, and no
            // side detects that.
            Stage::Up if hopeless => self.abandon(now, session, side)?,
            Stage::Waiting if side == 0 && now >= session.not_before => {
                self.connect(now, session, number)?;
                lifecycle::cancel_if_never_connected(oracle, number);
            }
            Stage::Connecting | Stage::Up => {
                self.post(session, side, words)?;
                self.end_if_due(now, session, side)?;
            }
            // An unanswered Read delays a disconnect for as long as unacknowledged data would.
            Stage::Closing if session.ended_at.is_some_and(|at| now >= at + CLOSE_TIMEOUT) => {
                self.abandon(now, session, side)?;
            }
            Stage::Ended => self.post_and_destroy(now, session, side, words)?,
            Stage::Destroyed if session.sides[side].has_no_signaled_pending() => {
                self.finish_side(now, oracle, number, side)
            }
            _ => {}
        }
        Ok(())
    }

    /// Posts receives and requests, a few at a time.
    fn post(
        &mut self,
        session: &mut Session,
        side: usize,
        mut words: Option<&mut Words>,
    ) -> Result<(), VerbsError> {
        // A side that sees a failure posts nothing more.
        if session.sides[side].send_failed || session.sides[side].receive_failed {
            return Ok(());
        }
        // A side that must receive a message without a receive posts only the first receives.
        let starved = matches!(session.plan.ending,
            Ending::BadRequest { by, bad_request: BadRequest::SendUnexpected, .. } if by != side);
        let batch = if starved { 0 } else { self.plan.batch };
        for _ in 0..batch {
            self.work += usize::from(session.post_receive(side, &mut self.ctx, &mut self.rng)?);
        }
        let mut batch = 1 + self.rng.below(self.plan.batch.into()) as usize;
        while batch > 0 {
            let most = batch.min(1 + self.rng.below(session.plan.chain_max) as usize);
            let (tools, words) = ((self.pd, &mut self.rng), words.as_deref_mut());
            let posted = session.post_sends(side, most, &mut self.ctx, tools, words)?;
            if posted == 0 {
                break;
            }
            self.work += posted;
            batch = batch.saturating_sub(posted);
        }
        Ok(())
    }

    /// Records the fault of a check of this host.
    fn record(&self, outcome: Result<(), String>) {
        let outcome = outcome.map_err(|fault| format!("host {}: {fault}", self.host));
        self.oracle.borrow_mut().record(NO_SESSION, 0, outcome);
    }

    /// Posts shared receives, arms completion queues and resizes them.
    fn drive_queues(&mut self, now: Nanos) -> Result<(), String> {
        let rng = &mut self.rng;
        if let Some(app_srq) = self.app_srq.clone() {
            let mut app_srq = app_srq.borrow_mut();
            self.work += app_srq.fill(self.plan.batch, &mut self.ctx, rng).map_err(text)?;
            if rng.chance(ARM_PPM) {
                self.work += usize::from(app_srq.arm(&mut self.ctx, rng).map_err(text)?);
            }
        }
        let index = self.rng.below(self.cqs.len() as u64) as usize;
        if self.rng.chance(self.plan.resize_ppm) {
            let resized = self.cqs[index].resize(&mut self.ctx, &mut self.rng).map_err(text)?;
            self.oracle.borrow_mut().totals.resized += u64::from(resized);
            self.work += 1;
        }
        if self.rng.chance(self.plan.sleep_ppm) {
            // All completions are reaped before it sleeps.
            while self.reap_some(now, index, REAP_MAX, true) > 0 {}
            self.cqs[index].sleep(now, &mut self.ctx, &mut self.rng)?;
        }
        let woken: u64 = self.cqs.iter_mut().map(AppCq::count_woken).sum();
        self.oracle.borrow_mut().totals.woken += woken;
        Ok(())
    }

    /// The server's own work on the words. The history is checked once every session is over.
    fn drive_words(&mut self, now: Nanos) {
        let Some(server) = &mut self.word_server else { return };
        let oracle = &mut *self.oracle.borrow_mut();
        if oracle.sessions.iter().any(|session| !session.is_over) {
            let queue = (&mut self.ctx, self.cqs[0].cq());
            match server.run_local_ops(oracle, queue, &mut self.rng) {
                Ok(posted) => self.work += posted as usize,
                Err(error) => {
                    let fault = format_args!("an operation of the server failed: {error}");
                    oracle.report_failure(NO_SESSION, 1, fault);
                }
            }
            return;
        }
        let checked = oracle.words.as_ref().and_then(|words| server.check_at_end(now, words));
        let Some(outcome) = checked else { return };
        self.word_server = None;
        oracle.open -= 1;
        match outcome {
            Ok(states) => oracle.totals.states = states as u64,
            Err(fault) => oracle.report_failure(NO_SESSION, 1, fault),
        }
    }

    fn state(&self, session: &Session, side: usize) -> Option<QpState> {
        session.sides[side].qp.and_then(|qp| self.ctx.qp_state(qp).ok())
    }
}

/// How long a closing side waits for a peer that has ended.
const CLOSE_TIMEOUT: Nanos = Nanos::from_secs(2);

/// Time limit of sessions whose stream may have been damaged, counted from the end of all faults.
pub(crate) const CORRUPTED_SESSION_TIMEOUT: Nanos = Nanos::from_secs(20);

/// How often a host arms the limit of its shared receive queue, polls in a million.
const ARM_PPM: u32 = 30_000;

/// Completion queue entries of a host in addition to those for receives.
const CQ_SPARE_ENTRIES: u32 = 64;

/// Fewest entries of each completion queue of a host, so that receives cannot take all of them.
fn min_cq_depth(oracle: &Oracle, host: usize) -> u32 {
    let plans = oracle.sessions.iter().map(|session| &session.plan);
    let sides = plans.flat_map(|plan| plan.hosts.map(|at| if at == host { plan.receives.max(1) } else { 0 }));
    sides.sum::<u32>() + CQ_SPARE_ENTRIES
}
