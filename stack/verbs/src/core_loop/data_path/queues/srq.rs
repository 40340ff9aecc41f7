//! One core's part of a shared receive queue.
//!
//! When a message arrives, a receive is copied from the shared ring into the queue pair's own ring,
//! and its slot is free at once: messages of different queue pairs end in any order, and the ring
//! is released in one.

use ironwarp_iwarp::{RecvWqe, SrqError};
use ironwarp_rings::slots::{SlotConsumer, SlotProducer};

use super::cq::CqCore;
use super::share::{ConsumedReceives, SrqShare};
use crate::objects::SharedReceiveQueue;
use crate::shared::SlotLease;

/// Posts that a message counts when the record is full. One would suffice; with more, the next
/// messages find room.
const CREDIT_BATCH: u32 = 4;

/// The core's half of a shared receive queue. On cache lines of its own, since another core's half
/// may be its neighbour in memory.
#[repr(align(64))]
pub(crate) struct SrqCore {
    pub(super) handle: SharedReceiveQueue,
    ring: SlotConsumer<RecvWqe>,
    consumed: ConsumedReceives,
    /// An event is sent once when fewer receives are left; 0 disables it.
    limit: u32,
    /// The number of the arming that set the limit.
    arming: u32,
    /// The limit of that arming was passed, and the event is not sent yet.
    limit_reached: bool,
    /// The context that owns it, by number.
    pub(crate) context: u16,
    pub(super) lease: SlotLease,
}

impl SrqCore {
    pub(crate) fn new(lease: SlotLease, handle: SharedReceiveQueue, ring: SlotConsumer<RecvWqe>) -> Self {
        let consumed = ConsumedReceives::new(ring.depth());
        SrqCore { handle, ring, consumed, limit: 0, arming: 0, limit_reached: false, context: 0, lease }
    }

    /// Arms the limit. Returns whether it is passed already. An arming before has no event any
    /// more, if it was not sent.
    pub(super) fn arm(&mut self, limit: u32, arming: u32) -> bool {
        (self.limit, self.arming, self.limit_reached) = (limit, arming, false);
        self.check_limit()
    }

    /// Returns the arming whose event is to be sent, once.
    pub(super) fn take_limit_reached(&mut self) -> Option<u32> {
        core::mem::take(&mut self.limit_reached).then_some(self.arming)
    }

    /// Moves the oldest receive into a queue pair's ring, after reserving an entry in `cq`.
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
        if rq_producer.post(|slot| *slot = *wqe).is_err() {
            // A queue pair requests the next receive when its last one is done, so its ring has
            // room.
            cq.reservations.release(1);
            return Err(SrqError::Empty);
        }
        self.ring.release_to(head.wrapping_add(1));
        Ok(self.check_limit())
    }

    /// Records the queue pair that consumed the last moved receive.
    pub(super) fn record(&mut self, qp_slot: u32, shares: &mut [SrqShare]) {
        if self.consumed.is_full() {
            self.credit_some_posts(shares);
        }
        if let Some(share) = shares.get_mut(qp_slot as usize) {
            self.consumed.record(qp_slot, share, self.ring.tail());
        }
    }

    /// Counts the posts since the last count.
    #[cold]
    pub(super) fn credit_posts(&mut self, shares: &mut [SrqShare]) {
        let tail = self.ring.refresh();
        self.consumed.credit_posts(tail, u32::MAX, shares);
    }

    /// Counts a few posts: every message pays for its own entry.
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
