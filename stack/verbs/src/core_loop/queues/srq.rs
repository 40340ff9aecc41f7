//! One core's share of a shared receive queue.
//!
//! A receive is copied out of the shared ring into the queue pair's own when a message arrives for it, and its slot is
//! free again at once: messages of different queue pairs end in any order, and the ring knows only one.

use ironwarp_iwarp::{RecvWqe, SrqError};
use ironwarp_rings::slots::{SlotConsumer, SlotProducer};

use super::cq::CqCore;
use super::share::{ConsumedReceives, SrqShare};
use crate::context::SharedReceiveQueue;
use crate::shared::SlotLease;

/// Posts that a message looks at which finds no room to be noted. One would do; with more, the next ones find room.
const CREDIT_BATCH: u32 = 4;

/// The core's half of a shared receive queue. On cache lines of its own: another core's half may lie beside it.
#[repr(align(64))]
pub(crate) struct SrqCore {
    pub(super) handle: SharedReceiveQueue,
    ring: SlotConsumer<RecvWqe>,
    consumed: ConsumedReceives,
    /// Say once when fewer are left; 0 is never.
    limit: u32,
    /// The limit was passed, and the context has not been told.
    pub(super) limit_reached: bool,
    /// The context that owns it, by place.
    pub(in crate::core_loop) context: u16,
    pub(super) lease: SlotLease,
}

impl SrqCore {
    pub(crate) fn new(lease: SlotLease, handle: SharedReceiveQueue, ring: SlotConsumer<RecvWqe>) -> Self {
        let consumed = ConsumedReceives::new(ring.depth());
        SrqCore { handle, ring, consumed, limit: 0, limit_reached: false, context: 0, lease }
    }

    /// Arms the limit. Answers whether it is passed already.
    pub(super) fn arm(&mut self, limit: u32) -> bool {
        self.limit = limit;
        self.check_limit()
    }

    /// Moves the oldest request into a queue pair's ring, for which `cq` promises a place.
    pub(super) fn take_from_srq(
        &mut self,
        rq_producer: &mut SlotProducer<RecvWqe>,
        cq: &CqCore,
    ) -> Result<bool, SrqError> {
        let head = self.ring.head();
        if self.ring.at(head).is_none() && self.ring.refresh() == head {
            return Err(SrqError::Empty);
        }
        let Some(wqe) = self.ring.at(head) else { return Err(SrqError::Empty) };
        if !cq.reservations.try_reserve() {
            return Err(SrqError::CqFull);
        }
        if rq_producer.post(|slot| slot.clone_from(wqe)).is_err() {
            // A queue pair asks for the next receive when its last one is done, so its ring has room.
            cq.reservations.release(1);
            return Err(SrqError::Empty);
        }
        self.ring.release_to(head.wrapping_add(1));
        Ok(self.check_limit())
    }

    /// Notes who took the last request that was moved.
    pub(super) fn record(&mut self, qp_slot: u32, shares: &mut [SrqShare]) {
        if self.consumed.is_full() {
            self.credit_some_posts(shares);
        }
        if let Some(share) = shares.get_mut(qp_slot as usize) {
            self.consumed.record(qp_slot, share, self.ring.tail());
        }
    }

    /// Looks at what was posted since the last time.
    #[cold]
    pub(super) fn credit_posts(&mut self, shares: &mut [SrqShare]) {
        let tail = self.ring.refresh();
        self.consumed.credit_posts(tail, u32::MAX, shares);
    }

    /// Looks at a few of the posts: every message pays for its own place.
    #[cold]
    fn credit_some_posts(&mut self, shares: &mut [SrqShare]) {
        let tail = self.ring.refresh();
        self.consumed.credit_posts(tail, CREDIT_BATCH, shares);
    }

    fn check_limit(&mut self) -> bool {
        if self.limit == 0 || self.ring.refresh().wrapping_sub(self.ring.head()) >= self.limit {
            return false;
        }
        self.limit = 0;
        self.limit_reached = true;
        true
    }
}
