//! A shared receive queue: what is posted to it, who was promised what of it, and when it must say that it runs low.
//!
//! Whoever sends to a side that takes its receives here claims one first; as long as no more are claimed than posted,
//! every message finds one. Where a session is to find none, nothing is posted any more until every receive is used up.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

use ironwarp::{Access, Context, RecvWr, Sge, SharedReceiveQueue, VerbsError};
use ironwarp_types::SeededEntropy;

use crate::app::ledger::Receive;
use crate::app::memory::Plot;
use crate::app::post::{cut, refused};
use crate::plan::PoolPlan;

/// A pool as its sides hold it.
pub type SharedPool = Rc<RefCell<Pool>>;

/// A shared receive queue and its memory.
pub struct Pool {
    srq: SharedReceiveQueue,
    plan: PoolPlan,
    /// Where its receives land.
    pub landing: Plot,
    /// Receives that have no completion.
    receives: BTreeMap<u64, Receive>,
    posted: u64,
    /// Receives that senders count on.
    claims: usize,
    /// The session whose message is to find none.
    dry_for: Option<usize>,
    limit: Option<Limit>,
    /// Queue pairs that take from it.
    pub users: usize,
}

/// An arming of the limit.
struct Limit {
    limit: u32,
    /// The fewest receives without a completion since.
    low: usize,
    /// Whether it was low already, so that the news must come at the next look.
    sure: bool,
}

impl Pool {
    /// A queue of its own protection domain.
    pub fn new(ctx: &mut Context, plan: PoolPlan) -> Result<SharedPool, VerbsError> {
        let pd = ctx.alloc_pd();
        let srq = ctx.create_srq(pd, plan.depth, plan.sges)?;
        let landing = Plot::new(ctx, pd, plan.depth as usize * plan.room, Access::LOCAL_WRITE)?;
        Ok(Rc::new(RefCell::new(Pool {
            srq,
            plan,
            landing,
            receives: BTreeMap::new(),
            posted: 0,
            claims: 0,
            dry_for: None,
            limit: None,
            users: 0,
        })))
    }

    /// The queue itself.
    pub fn srq(&self) -> SharedReceiveQueue {
        self.srq
    }

    /// Posts receives, a few at a time. Answers how many.
    pub fn fill(
        &mut self,
        most: u32,
        ctx: &mut Context,
        dice: &mut SeededEntropy,
    ) -> Result<usize, VerbsError> {
        let mut posted = 0;
        let sure = self.limit.as_ref().is_some_and(|limit| limit.sure);
        while posted < most as usize && self.dry_for.is_none() && !sure {
            if self.receives.len() >= self.plan.depth as usize || !self.post(ctx, dice)? {
                break;
            }
            posted += 1;
        }
        Ok(posted)
    }

    fn post(&mut self, ctx: &mut Context, dice: &mut SeededEntropy) -> Result<bool, VerbsError> {
        let Some(piece) = self.landing.take(self.plan.room, dice) else { return Ok(false) };
        let pieces = cut(piece, self.plan.sges, dice);
        let scatter: Vec<Sge> = pieces.iter().map(|piece| self.landing.sge(*piece)).collect();
        let wr_id = self.posted;
        match ctx.post_srq_recv(self.srq, &RecvWr::new(wr_id, &scatter)) {
            Ok(()) => {
                self.posted += 1;
                self.receives.insert(wr_id, Receive { wr_id, pieces });
                Ok(true)
            }
            Err(error) => {
                self.landing.give(piece);
                refused(error)
            }
        }
    }

    /// A receive has its completion.
    pub fn take(&mut self, wr_id: u64) -> Option<Receive> {
        let receive = self.receives.remove(&wr_id);
        if let Some(limit) = &mut self.limit {
            limit.low = limit.low.min(self.receives.len());
        }
        receive
    }

    /// Whether nothing is posted that has no completion.
    pub fn is_empty(&self) -> bool {
        self.receives.is_empty()
    }

    /// Whether a sender may count on one more.
    pub fn has_credit(&self) -> bool {
        self.claims < self.receives.len()
    }

    /// A sender counts on one more, or on `count` fewer.
    pub fn claim(&mut self) {
        self.claims += 1;
    }

    /// A message was received, or never will be.
    pub fn unclaim(&mut self, count: usize) {
        self.claims = self.claims.saturating_sub(count);
    }

    /// Lets it run dry for a session, unless it does for another one. Answers whether nothing is left.
    pub fn run_dry_for(&mut self, session: usize) -> bool {
        let ours = *self.dry_for.get_or_insert(session) == session;
        ours && self.receives.is_empty()
    }

    /// The session is over: receives are posted again.
    pub fn forget(&mut self, session: usize) {
        if self.dry_for == Some(session) {
            self.dry_for = None;
        }
    }

    /// Asks to be told when few are left.
    pub fn arm(&mut self, ctx: &mut Context, dice: &mut SeededEntropy) -> Result<bool, VerbsError> {
        if self.limit.is_some() {
            return Ok(false);
        }
        let limit = 1 + dice.below(self.plan.depth.into()) as u32;
        ctx.arm_srq(self.srq, limit)?;
        let low = self.receives.len();
        self.limit = Some(Limit { limit, low, sure: low < limit as usize });
        Ok(true)
    }

    /// It says that few are left. A message that is arriving has taken its receive already.
    pub fn on_low(&mut self) -> Result<(), String> {
        let Some(limit) = self.limit.take() else { return Err("it is low, and nobody asked".into()) };
        if limit.low < limit.limit as usize + self.users {
            return Ok(());
        }
        Err(format!("it is low at {}, and {} were left of {}", limit.limit, limit.low, self.plan.depth))
    }

    /// Everything that was news has been heard.
    pub fn after_news(&self) -> Result<(), String> {
        match &self.limit {
            Some(limit) if limit.sure => {
                Err(format!("it did not say that it is low: {} of {}", limit.low, limit.limit))
            }
            _ => Ok(()),
        }
    }

    /// Nothing is written outside of what its messages were to fill. What is posted is nobody's any more.
    pub fn close(&mut self) -> Result<(), String> {
        for (_, receive) in core::mem::take(&mut self.receives) {
            for piece in receive.pieces {
                self.landing.verify(piece)?;
                self.landing.give(piece);
            }
        }
        self.landing.close()
    }
}
