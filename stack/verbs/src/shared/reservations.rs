//! The account of a completion queue's entries once cores or other threads reserve some too.

use std::collections::BTreeMap;
use std::sync::Mutex;

use ironwarp_iwarp::SendWqe;
use ironwarp_rings::reservations::Reservations;
use ironwarp_rings::slots::SlotObserver;
use ironwarp_types::QpNum;

use super::lock;

/// The entries of one completion queue, and the send queues that may hold some of them without
/// need: an unsignaled request that is done has no completion, so its entry is released when
/// somebody claims it.
pub(crate) struct CqReservations {
    entries: Reservations,
    /// Empty unless other threads than the context's post.
    send_queues: Mutex<BTreeMap<u32, SlotObserver<SendWqe>>>,
}

impl CqReservations {
    pub(crate) fn new(depth: u32) -> Self {
        CqReservations { entries: Reservations::new(depth), send_queues: Mutex::default() }
    }

    /// Reserves an entry. Returns whether there was one.
    #[inline]
    pub(crate) fn try_reserve(&self) -> bool {
        self.entries.try_reserve()
    }

    /// Releases reservations.
    #[inline]
    pub(crate) fn release(&self, count: u32) {
        self.entries.release(count);
    }

    pub(crate) fn reserved_cqes(&self) -> u32 {
        self.entries.reserved()
    }

    /// Takes over earlier reservations.
    pub(crate) fn init(&self, reserved_cqes: u32, depth: u32) {
        self.entries.init(reserved_cqes, depth);
    }

    pub(crate) fn set_depth(&self, depth: u32) {
        self.entries.set_depth(depth);
    }

    /// Adds the send queue of a queue pair that completes here.
    pub(crate) fn add_send_queue(&self, qp: QpNum, queue: SlotObserver<SendWqe>) {
        lock(&self.send_queues).insert(qp.0, queue);
    }

    pub(crate) fn remove_send_queue(&self, qp: QpNum) {
        lock(&self.send_queues).remove(&qp.0);
    }

    /// Releases the entries of unsignaled requests that are done, of all send queues. Returns
    /// whether there were any.
    #[cold]
    pub(crate) fn reclaim(&self) -> bool {
        let claimed = lock(&self.send_queues).values().map(SlotObserver::claim_unsignaled).sum();
        self.entries.release(claimed);
        claimed > 0
    }
}
