//! The application on one host: the keeper of the words, or a caller.
//!
//! Both connect, post, reap and give up at random, and look at everything that they are told. What is wrong goes to the
//! ledger and ends the run.

mod keep;
mod life;
mod line;
mod news;
mod post;

use core::net::SocketAddr;
use std::collections::{BTreeMap, BTreeSet};

use ironwarp::{
    Access, AlignedBuf, Completion, CompletionFlags, CompletionQueue, Context, ProtectionDomain, Region,
    Stack, VerbsError,
};
use ironwarp_types::{Nanos, SeededEntropy};

use super::desk::{Desk, SharedDesk};
use super::store::Store;
use crate::app::SharedLedger;
use crate::plan::{Common, HostPlan, addresses_of};
use crate::world::Tenant;
use keep::Own;
use line::Line;

/// The caller's part of a connection.
const CALLER: usize = 0;

/// The keeper's.
const KEEPER: usize = 1;

/// Where the keeper listens.
const PORT: u16 = 4_791;

/// Bytes of the scratch of one request: what words were, and what is written.
const SCRATCH_BYTES: usize = 64;

/// Requests of a connection that have scratch at a time, more than any send queue has places.
const SCRATCHES: usize = 128;

/// Bytes of a receive.
const RECEIVE_BYTES: usize = 8;

/// Receives of a connection.
const RECEIVES: usize = 8;

/// What nobody has written.
const UNTOUCHED: u8 = 0xee;

/// The longest nap.
const NAP_MAX: Nanos = Nanos::from_millis(20);

/// How long after the last connection the keeper looks for the last time.
const REST: Nanos = Nanos::from_millis(20);

/// What requests and receives of an application name.
struct Memory {
    /// Where answers come and Writes begin.
    scratch: Region,
    /// Where Sends land.
    landing: Region,
}

/// An application.
pub struct Operator {
    host: usize,
    role: usize,
    /// The keeper's memory.
    store: Option<Store>,
    /// Which stream of the history the keeper's looks are.
    stream: usize,
    ctx: Context,
    pd: ProtectionDomain,
    cq: CompletionQueue,
    /// Its memory, until it closes.
    memory: Option<Memory>,
    lines: BTreeMap<usize, Line>,
    by_qp: BTreeMap<u32, usize>,
    /// Queue pairs that were given up.
    retired: BTreeSet<u32>,
    desk: SharedDesk,
    ledger: SharedLedger,
    plan: HostPlan,
    common: Common,
    dice: SeededEntropy,
    listens: bool,
    closed: bool,
    /// When everything was over.
    over_at: Option<Nanos>,
    /// What the keeper does beside keeping.
    own: Own,
    wakes_at: Nanos,
    nap: Nanos,
    work: usize,
}

impl Operator {
    /// The application on `stack`: the keeper on host 0.
    pub fn new(
        host: usize,
        stack: &Stack,
        (plan, common): (&HostPlan, &Common),
        desk: &SharedDesk,
        ledger: &SharedLedger,
    ) -> Result<Self, VerbsError> {
        let mut ctx = stack.context()?;
        let (pd, role) = (ctx.alloc_pd(), if host == 0 { KEEPER } else { CALLER });
        let store = if role == KEEPER { Some(Store::new(&ctx, pd, &desk.borrow().plan)?) } else { None };
        let (cq, memory) = furnish(&mut ctx, pd, &desk.borrow())?;
        let stream = desk.borrow_mut().history.begin();
        Ok(Operator {
            host,
            role,
            store,
            stream,
            ctx,
            pd,
            cq,
            memory: Some(memory),
            lines: BTreeMap::new(),
            by_qp: BTreeMap::new(),
            retired: BTreeSet::new(),
            desk: desk.clone(),
            ledger: ledger.clone(),
            plan: plan.clone(),
            common: common.clone(),
            dice: SeededEntropy::new(plan.seed),
            listens: false,
            closed: false,
            over_at: None,
            own: Own::default(),
            wakes_at: Nanos::ZERO,
            nap: plan.pace,
            work: 0,
        })
    }

    /// Something is wrong with a connection.
    fn blame(&self, call: usize, what: &str) {
        self.ledger.borrow_mut().blame(call, self.role, what);
    }

    /// Where the keeper listens.
    fn listeners(&self) -> Vec<SocketAddr> {
        let [v4, v6] = addresses_of(self.host);
        let local = [(self.common.v4, v4), (self.common.v6, v6)].into_iter().filter(|(has, _)| *has);
        local.map(|(_, address)| SocketAddr::new(address.ip(), PORT)).collect()
    }

    fn listen(&mut self) {
        let local = self.listeners();
        let outcome = local.into_iter().try_for_each(|local| self.ctx.listen(local));
        self.listens = true;
        if let Err(error) = outcome {
            self.blame(usize::MAX, &format!("nobody can listen: {error}"));
        }
    }

    fn hear(&mut self, now: Nanos) {
        while let Some(event) = self.ctx.poll_event() {
            self.work += 1;
            // Everything that completed before the news is known before it is judged.
            self.reap(now, usize::MAX);
            self.on_event(now, event);
        }
    }

    /// Takes up to `most` completions.
    fn reap(&mut self, now: Nanos, most: usize) {
        let mut left = most;
        while left > 0 {
            let mut some = [Completion::default(); 16];
            let room = left.min(some.len());
            let count = match self.ctx.poll_cq(self.cq, &mut some[..room]) {
                Ok(count) => count,
                Err(error) => return self.blame(usize::MAX, &error.to_string()),
            };
            some[..count].iter().for_each(|completion| self.on_completion(now, completion));
            (self.work, left) = (self.work + count, left - count);
            if count < room {
                return;
            }
        }
    }

    fn on_completion(&mut self, now: Nanos, completion: &Completion) {
        if completion.flags.contains(CompletionFlags::LOCAL_ATOMIC) {
            return self.settle_own(now, completion);
        }
        if self.retired.contains(&completion.qp.0) {
            return;
        }
        let Some(&call) = self.by_qp.get(&completion.qp.0) else {
            return self.blame(usize::MAX, &format!("a completion of no queue pair: {completion:?}"));
        };
        let what = [completion.opcode as u8, completion.status as u8, completion.wr_id as u8];
        self.ledger.borrow_mut().note(now, call, self.role, &what);
        if let Err(fault) = self.settle(call, completion) {
            self.blame(call, &fault);
        }
    }
}

impl Tenant for Operator {
    fn stir(&mut self, now: Nanos) {
        self.nap = self.plan.pace;
        let soon = now + Nanos(self.dice.below(self.plan.pace.0 + 1));
        self.wakes_at = self.wakes_at.min(soon);
    }

    fn glance(&mut self) {
        self.see();
    }

    fn is_due(&self, now: Nanos) -> bool {
        now >= self.wakes_at
    }

    fn look(&mut self, now: Nanos) -> bool {
        self.work = 0;
        if self.closed {
            return false;
        }
        if self.role == KEEPER && !self.listens {
            self.listen();
        }
        self.observe();
        self.hear(now);
        let most = 1 + self.dice.below(16) as usize;
        self.reap(now, most);
        self.tend(now);
        self.act();
        self.conclude(now);
        self.nap = if self.work > 0 { self.plan.pace } else { (self.nap + self.nap).min(NAP_MAX) };
        self.wakes_at = now + Nanos(1 + self.dice.below(self.nap.0));
        self.work > 0
    }

    fn next_look(&self) -> Option<Nanos> {
        (!self.closed).then_some(self.wakes_at)
    }

    fn restart(&mut self, stack: &Stack, now: Nanos) -> Result<(), VerbsError> {
        let mut ctx = match stack.context() {
            // The one before this has not been swept up yet.
            Err(VerbsError::LimitReached(_)) => return Ok(()),
            outcome => outcome?,
        };
        let pd = ctx.alloc_pd();
        let (cq, memory) = match furnish(&mut ctx, pd, &self.desk.borrow()) {
            Err(VerbsError::LimitReached(_)) => return Ok(()),
            outcome => outcome?,
        };
        (self.cq, self.memory) = (cq, Some(memory));
        (self.ctx, self.pd) = (ctx, pd);
        self.by_qp.clear();
        self.retired.clear();
        let calls: Vec<usize> = std::mem::take(&mut self.lines).into_keys().collect();
        for call in calls {
            self.vanish(now, call);
        }
        self.wakes_at = now;
        Ok(())
    }

    fn close(&mut self) -> Result<(), String> {
        self.closed = true;
        let listeners = if self.role == KEEPER { self.listeners() } else { Vec::new() };
        let outcome = listeners.into_iter().try_for_each(|local| self.ctx.unlisten(local));
        let outcome = outcome.and_then(|()| self.ctx.destroy_cq(self.cq));
        self.lines.clear();
        self.memory = None;
        outcome.map_err(|error| error.to_string())
    }
}

/// What an application needs before its first connection.
fn furnish(
    ctx: &mut Context,
    pd: ProtectionDomain,
    desk: &Desk,
) -> Result<(CompletionQueue, Memory), VerbsError> {
    let calls = desk.calls.len();
    let cq = ctx.create_cq(4_096)?;
    let memory = |bytes| match AlignedBuf::pages(bytes) {
        Ok(pages) => pages,
        Err(error) => unreachable!("a few pages can be had: {error}"),
    };
    let scratch = ctx.register(pd, memory(calls * SCRATCHES * SCRATCH_BYTES), Access::LOCAL_WRITE)?;
    let landing = ctx.register(pd, memory(calls * RECEIVES * RECEIVE_BYTES), Access::LOCAL_WRITE)?;
    Ok((cq, Memory { scratch, landing }))
}
