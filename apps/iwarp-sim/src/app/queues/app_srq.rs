//! A shared receive queue: its posted receives, the senders' reservations, and when it must raise
//! its limit event.
//!
//! A sender to a side of this queue reserves a receive first. No more receives are reserved than
//! are posted, so every message finds one. With several cores the receives are shared out to them,
//! evenly when they are posted, and a message finds only those of its own core: as many are
//! reserved as the core with the fewest has in any case. Where a session must find none, nothing is
//! posted until every receive is used up.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

use ironwarp::{Access, Context, RecvWr, SharedReceiveQueue, VerbsError};
use ironwarp_types::SeededEntropy;

use crate::app::memory::ShadowedRegion;
use crate::app::post::ignore_queue_full;
use crate::app::side::Receive;
use crate::plan::SrqPlan;

/// A shared receive queue as its sides hold it.
pub type SharedAppSrq = Rc<RefCell<AppSrq>>;

/// A shared receive queue and its memory.
pub struct AppSrq {
    srq: SharedReceiveQueue,
    plan: SrqPlan,
    /// Cores that share the receives out.
    cores: usize,
    pub landing: ShadowedRegion,
    /// Receives without a completion.
    receives: BTreeMap<u64, Receive>,
    posted: u64,
    reserved: usize,
    /// The session whose message must find no receive.
    exhausted_for: Option<usize>,
    limit: Option<Limit>,
    /// Queue pairs that use the queue.
    pub qp_count: usize,
}

/// An armed limit.
struct Limit {
    limit: u32,
    /// Fewest receives without a completion since it was armed.
    low: usize,
    /// Whether the queue was below the limit when armed, so that the event must come by the next
    /// poll.
    event_due: bool,
}

impl AppSrq {
    /// Creates a queue with a protection domain of its own.
    pub fn new(ctx: &mut Context, plan: SrqPlan, cores: usize) -> Result<SharedAppSrq, VerbsError> {
        let pd = ctx.alloc_pd();
        let srq = ctx.create_srq(pd, plan.depth, plan.sges)?;
        // Receives lie anywhere, with gaps. In twice the bytes all of them fit, which credits of
        // several cores need.
        let spare = if cores > 1 { 2 } else { 1 };
        let bytes = spare * plan.depth as usize * plan.room;
        let landing = ShadowedRegion::new(ctx, pd, bytes, Access::LOCAL_WRITE)?;
        Ok(Rc::new(RefCell::new(AppSrq {
            srq,
            plan,
            cores,
            landing,
            receives: BTreeMap::new(),
            posted: 0,
            reserved: 0,
            exhausted_for: None,
            limit: None,
            qp_count: 0,
        })))
    }

    pub fn srq(&self) -> SharedReceiveQueue {
        self.srq
    }

    /// Posts some receives. Returns how many.
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
        let allocated = self.landing.alloc_receive(self.plan.room, self.plan.sges, rng);
        let Some((pieces, scatter)) = allocated else { return Ok(false) };
        let wr_id = self.posted;
        match ctx.post_srq_recv(self.srq, &RecvWr::new(wr_id, &scatter)) {
            Ok(()) => {
                self.posted += 1;
                self.receives.insert(wr_id, Receive { wr_id, pieces });
                Ok(true)
            }
            Err(error) => {
                pieces.into_iter().for_each(|piece| self.landing.release(piece));
                ignore_queue_full(error)
            }
        }
    }

    pub fn take(&mut self, wr_id: u64) -> Option<Receive> {
        let receive = self.receives.remove(&wr_id);
        if let Some(limit) = &mut self.limit {
            limit.low = limit.low.min(self.receives.len());
        }
        receive
    }

    /// Returns whether every posted receive has its completion.
    pub fn is_empty(&self) -> bool {
        self.receives.is_empty()
    }

    /// Returns whether a sender may reserve one more receive.
    pub fn has_credit(&self) -> bool {
        // A post goes to the core with the fewest receives, so no core ever has more than its even
        // part. All others may have that many, and the rest is on the core of this message.
        let elsewhere = (self.cores - 1) * (self.plan.depth as usize).div_ceil(self.cores);
        self.reserved + elsewhere < self.receives.len()
    }

    pub fn reserve(&mut self) {
        self.reserved += 1;
    }

    /// Releases `count` reservations: their messages were received or never will be.
    pub fn unreserve(&mut self, count: usize) {
        self.reserved = self.reserved.saturating_sub(count);
    }

    /// Stops posting for a session, unless it already does so for another one. Returns whether no
    /// receive is left.
    pub fn exhaust_for(&mut self, session: usize) -> bool {
        let ours = *self.exhausted_for.get_or_insert(session) == session;
        ours && self.receives.is_empty()
    }

    /// The session is over: posts receives again.
    pub fn end_exhaustion(&mut self, session: usize) {
        if self.exhausted_for == Some(session) {
            self.exhausted_for = None;
        }
    }

    pub fn arm(&mut self, ctx: &mut Context, rng: &mut SeededEntropy) -> Result<bool, VerbsError> {
        // Each core has a part of the limit, which the model does not cover.
        if self.limit.is_some() || self.cores > 1 {
            return Ok(false);
        }
        let limit = 1 + rng.below(self.plan.depth.into()) as u32;
        ctx.arm_srq(self.srq, limit)?;
        let low = self.receives.len();
        self.limit = Some(Limit { limit, low, event_due: low < limit as usize });
        Ok(true)
    }

    /// The limit event was raised. A message that is arriving has taken its receive already.
    pub fn on_limit_event(&mut self) -> Result<(), String> {
        let Some(limit) = self.limit.take() else {
            return Err("a limit event, but the limit is not armed".into());
        };
        if limit.low < limit.limit as usize + self.qp_count {
            return Ok(());
        }
        Err(format!(
            "a limit event at {}, but {} receives were left of {}",
            limit.limit, limit.low, self.plan.depth
        ))
    }

    /// Checks that a due limit event was raised, after all events have been handled.
    pub fn check_no_missed_limit_event(&self) -> Result<(), String> {
        match &self.limit {
            Some(limit) if limit.event_due => Err(format!(
                "no limit event, but {} receives are left at a limit of {}",
                limit.low, limit.limit
            )),
            _ => Ok(()),
        }
    }

    /// Checks that no byte outside of the received messages was written. Receives that are still
    /// posted are released.
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
