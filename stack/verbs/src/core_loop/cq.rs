//! Completion queues, the core's half.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use ironwarp_iwarp::{Completion, CompletionFlags, CompletionSink, CompletionStatus};
use ironwarp_rings::notify::Armed;
use ironwarp_rings::spsc;
use ironwarp_stats::{CoreStats, Counter};

use crate::shared::Lease;

/// The core's half of a completion queue: where completions go, and whom to wake.
pub(crate) struct CqCore {
    ring: spsc::Producer<Completion>,
    armed: Arc<Armed>,
    eventfd: Arc<OwnedFd>,
    /// Completions came since the last look at who is to be woken.
    news: bool,
    /// One of them was solicited or failed.
    solicited: bool,
    /// The context that owns it, by place.
    pub(super) context: u16,
    lease: Lease,
}

impl CqCore {
    pub(crate) fn new(
        lease: Lease,
        ring: spsc::Producer<Completion>,
        armed: Arc<Armed>,
        eventfd: Arc<OwnedFd>,
    ) -> Self {
        CqCore { ring, armed, eventfd, news: false, solicited: false, context: 0, lease }
    }

    /// Adds a completion. The place was promised when the work was posted, so it is there; the answer is `false`
    /// only if that promise was broken.
    fn push(&mut self, completion: Completion) -> bool {
        self.news = true;
        self.solicited |= completion.flags.contains(CompletionFlags::SOLICITED)
            || completion.status != CompletionStatus::Success;
        self.ring.push(completion).is_ok()
    }

    /// Wakes whoever armed the queue, once.
    fn notify(&mut self) {
        let (news, solicited) = (core::mem::take(&mut self.news), core::mem::take(&mut self.solicited));
        if news && self.armed.fire(solicited) {
            // A full counter means that the reader has a wake-up waiting already.
            let _ = rustix::io::write(&self.eventfd, &1u64.to_ne_bytes());
        }
    }
}

/// Every completion queue of a core, by place.
pub(super) struct CqTable {
    cqs: Box<[Option<Box<CqCore>>]>,
    /// Queues with news, each at most once.
    news: Vec<u32>,
    /// The queues of the queue pair that is being worked on.
    send_cq: u32,
    recv_cq: u32,
    stats: CoreStats,
}

impl CqTable {
    pub(super) fn new(places: u32, stats: CoreStats) -> Self {
        let cqs = (0..places).map(|_| None).collect();
        CqTable { cqs, news: Vec::with_capacity(places as usize), send_cq: 0, recv_cq: 0, stats }
    }

    /// Sends the completions that follow to these queues.
    pub(super) fn select(&mut self, send_cq: u32, recv_cq: u32) {
        (self.send_cq, self.recv_cq) = (send_cq, recv_cq);
    }

    /// Completion queues that there are.
    pub(super) fn count(&self) -> usize {
        self.cqs.iter().flatten().count()
    }

    pub(super) fn insert(&mut self, cq: Box<CqCore>) {
        if let Some(place) = self.cqs.get_mut(cq.lease.slot() as usize) {
            *place = Some(cq);
        }
    }

    pub(super) fn remove(&mut self, slot: u32) -> Option<Box<CqCore>> {
        self.cqs.get_mut(slot as usize)?.take()
    }

    /// Frees the queues of a context that is gone.
    #[cold]
    pub(super) fn remove_owned_by(&mut self, context: u16) {
        for cq in &mut self.cqs {
            if cq.as_ref().is_some_and(|cq| cq.context == context) {
                *cq = None;
            }
        }
    }

    fn push(&mut self, slot: u32, completion: Completion) {
        let Some(cq) = self.cqs.get_mut(slot as usize).and_then(Option::as_deref_mut) else { return };
        if !cq.news {
            self.news.push(slot);
        }
        if !cq.push(completion) {
            self.stats.count(Counter::VerbsCompletionOverruns);
        }
    }

    /// Wakes whoever armed a queue that has news. Called once an iteration, after transmit.
    pub(super) fn notify(&mut self) {
        for slot in self.news.drain(..) {
            if let Some(cq) = self.cqs.get_mut(slot as usize).and_then(Option::as_deref_mut) {
                cq.notify();
            }
        }
    }
}

impl CompletionSink for CqTable {
    fn on_send(&mut self, completion: Completion) {
        self.push(self.send_cq, completion);
    }

    fn on_receive(&mut self, completion: Completion) {
        self.push(self.recv_cq, completion);
    }
}
