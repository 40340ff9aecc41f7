//! A shared receive queue: what is posted to it, who was promised what of it, and when it must say that it runs low.
//!
//! Whoever sends to a side that takes its receives here claims one first; as long as no more are claimed than posted,
//! every message finds one. Where a session is to find none, nothing is posted any more until every receive is used up.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

use ironwarp::{Access, Context, RecvWr, Sge, SharedReceiveQueue, VerbsError};
use ironwarp_types::SeededEntropy;

use crate::app::memory::ShadowedRegion;
use crate::app::oracle::Receive;
use crate::app::post::{ignore_queue_full, split_randomly};
use crate::plan::SrqPlan;

/// A pool as its sides hold it.
pub type SharedAppSrq = Rc<RefCell<AppSrq>>;

/// A shared receive queue and its memory.
pub struct AppSrq {
    srq: SharedReceiveQueue,
    plan: SrqPlan,
    /// Where its receives land.
    pub landing: ShadowedRegion,
    /// Receives that have no completion.
    receives: BTreeMap<u64, Receive>,
    posted: u64,
    /// Receives that senders count on.
    reserved: usize,
    /// The session whose message is to find none.
    exhausted_for: Option<usize>,
    limit: Option<Limit>,
    /// Queue pairs that take from it.
    pub qp_count: usize,
}

/// An arming of the limit.
struct Limit {
    limit: u32,
    /// The fewest receives without a completion since.
    low: usize,
    /// Whether it was low already, so that the news must come at the next look.
    event_due: bool,
}

impl AppSrq {
    /// A queue of its own protection domain.
    pub fn new(ctx: &mut Context, plan: SrqPlan) -> Result<SharedAppSrq, VerbsError> {
        let pd = ctx.alloc_pd();
        let srq = ctx.create_srq(pd, plan.depth, plan.sges)?;
        let landing = ShadowedRegion::new(ctx, pd, plan.depth as usize * plan.room, Access::LOCAL_WRITE)?;
        Ok(Rc::new(RefCell::new(AppSrq {
            srq,
            plan,
            landing,
            receives: BTreeMap::new(),
            posted: 0,
            reserved: 0,
            exhausted_for: None,
            limit: None,
            qp_count: 0,
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
        rng: &mut SeededEntropy,
    ) -> Result<usize, VerbsError> {
        let mut posted = 0;
        let event_due = self.limit.as_ref().is_some_and(|limit| limit.event_due);
        while posted < most as usize && self.exhausted_for.is_none() && !event_due {
            if self.receives.len() >= self.plan.depth as usize || !self.post(ctx, rng)? {
                break;
            }
            posted += 1;
        }
        Ok(posted)
    }

    fn post(&mut self, ctx: &mut Context, rng: &mut SeededEntropy) -> Result<bool, VerbsError> {
        let Some(piece) = self.landing.alloc(self.plan.room, rng) else { return Ok(false) };
        let pieces = split_randomly(piece, self.plan.sges, rng);
        let scatter: Vec<Sge> = pieces.iter().map(|piece| self.landing.sge(*piece)).collect();
        let wr_id = self.posted;
        match ctx.post_srq_recv(self.srq, &RecvWr::new(wr_id, &scatter)) {
            Ok(()) => {
                self.posted += 1;
                self.receives.insert(wr_id, Receive { wr_id, pieces });
                Ok(true)
            }
            Err(error) => {
                self.landing.release(piece);
                ignore_queue_full(error)
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
        self.reserved < self.receives.len()
    }

    /// A sender counts on one more, or on `count` fewer.
    pub fn reserve(&mut self) {
        self.reserved += 1;
    }

    /// A message was received, or never will be.
    pub fn unreserve(&mut self, count: usize) {
        self.reserved = self.reserved.saturating_sub(count);
    }

    /// Lets it run dry for a session, unless it does for another one. Answers whether nothing is left.
    pub fn exhaust_for(&mut self, session: usize) -> bool {
        let ours = *self.exhausted_for.get_or_insert(session) == session;
        ours && self.receives.is_empty()
    }

    /// The session is over: receives are posted again.
    pub fn end_exhaustion(&mut self, session: usize) {
        if self.exhausted_for == Some(session) {
            self.exhausted_for = None;
        }
    }

    /// Asks to be told when few are left.
    pub fn arm(&mut self, ctx: &mut Context, rng: &mut SeededEntropy) -> Result<bool, VerbsError> {
        if self.limit.is_some() {
            return Ok(false);
        }
        let limit = 1 + rng.below(self.plan.depth.into()) as u32;
        ctx.arm_srq(self.srq, limit)?;
        let low = self.receives.len();
        self.limit = Some(Limit { limit, low, event_due: low < limit as usize });
        Ok(true)
    }

    /// It says that few are left. A message that is arriving has taken its receive already.
    pub fn on_limit_event(&mut self) -> Result<(), String> {
        let Some(limit) = self.limit.take() else { return Err("it is low, and nobody asked".into()) };
        if limit.low < limit.limit as usize + self.qp_count {
            return Ok(());
        }
        Err(format!("it is low at {}, and {} were left of {}", limit.limit, limit.low, self.plan.depth))
    }

    /// Everything that was news has been heard.
    pub fn check_no_missed_limit_event(&self) -> Result<(), String> {
        match &self.limit {
            Some(limit) if limit.event_due => {
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
                self.landing.release(piece);
            }
        }
        self.landing.close()
    }
}
