//! Completion queues and shared receive queues, the core's half.
//!
//! Both belong to many queue pairs. The table is lent to one queue pair's stream at a time, with its queues selected.

mod cq;
mod share;
mod srq;

use core::num::NonZeroU32;

use ironwarp_iwarp::{Completion, CompletionSink, NoReceive, RecvWqe};
use ironwarp_rings::slots::SlotProducer;
use ironwarp_stats::{CoreStats, Counter};

pub(crate) use cq::{CqCore, CqParts, CqRing};
use share::{Share, Verdict};
pub(crate) use srq::SrqCore;

use crate::config::LimitsConfig;
use crate::context::{CompletionQueue, QueuePair, ReceiveShare};
use crate::event::Event;

/// The queues of one queue pair, by place.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Selected {
    pub(crate) send_cq: u32,
    pub(crate) recv_cq: u32,
    pub(crate) srq: Option<SrqPlace>,
    /// The queue pair's own place.
    pub(crate) qp: u32,
}

/// The place of a shared receive queue, so that one or none takes four bytes: queues are selected for every frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct SrqPlace(NonZeroU32);

impl SrqPlace {
    pub(crate) fn new(slot: u32) -> Self {
        SrqPlace(NonZeroU32::MIN.saturating_add(slot))
    }

    fn slot(self) -> u32 {
        self.0.get() - 1
    }
}

const _: () = assert!(size_of::<Selected>() == 16);

/// Every completion queue and shared receive queue of a core, by place.
pub(super) struct Queues {
    cqs: Box<[Option<Box<CqCore>>]>,
    srqs: Box<[Option<Box<SrqCore>>]>,
    /// Completion queues with news, each at most once.
    news: Vec<u32>,
    /// Shared receive queues whose limit was passed, each at most once.
    passed: Vec<u32>,
    /// What each queue pair has of its shared receive queue, by place.
    shares: Box<[Share]>,
    /// Queue pairs that took more than their share, each at most once, and of which queue.
    over: Vec<(SrqPlace, u32)>,
    /// The queues of the queue pair that is being worked on.
    selected: Selected,
    /// A message found no place for its completion; the queue pair that is being worked on ends.
    full: Option<CompletionQueue>,
    stats: CoreStats,
}

impl Queues {
    pub(super) fn new(limits: &LimitsConfig, stats: CoreStats) -> Self {
        let (cqs, srqs, qps) = (limits.completion_queues, limits.shared_receive_queues, limits.queue_pairs);
        Queues {
            cqs: (0..cqs).map(|_| None).collect(),
            srqs: (0..srqs).map(|_| None).collect(),
            news: Vec::with_capacity(cqs as usize),
            passed: Vec::with_capacity(srqs as usize),
            shares: (0..qps).map(|_| Share::NOBODYS).collect(),
            over: Vec::with_capacity(qps as usize),
            selected: Selected::default(),
            full: None,
            stats,
        }
    }

    /// Uses these queues for what follows.
    pub(super) fn select(&mut self, selected: Selected) {
        self.selected = selected;
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

    pub(super) fn resize(&mut self, slot: u32, ring: CqRing) {
        if let Some(cq) = self.cqs.get_mut(slot as usize).and_then(Option::as_deref_mut) {
            cq.move_to(ring);
        }
    }

    pub(super) fn insert_srq(&mut self, srq: Box<SrqCore>) {
        if let Some(place) = self.srqs.get_mut(srq.lease.slot() as usize) {
            *place = Some(srq);
        }
    }

    pub(super) fn remove_srq(&mut self, slot: u32) -> Option<Box<SrqCore>> {
        self.srqs.get_mut(slot as usize)?.take()
    }

    /// A new queue pair has taken nothing.
    pub(super) fn begin_share(&mut self, place: u32, qp: QueuePair, share: Option<ReceiveShare>) {
        if let Some(begun) = self.shares.get_mut(place as usize) {
            self.over.retain(|(_, other)| *other != place);
            *begun = Share::new(qp, share);
        }
    }

    pub(super) fn arm_srq(&mut self, slot: u32, limit: u32) {
        let Some(srq) = self.srqs.get_mut(slot as usize).and_then(Option::as_deref_mut) else { return };
        if !srq.passed && srq.arm(limit) {
            self.passed.push(slot);
        }
    }

    /// Frees the queues of a context that is gone.
    #[cold]
    pub(super) fn remove_owned_by(&mut self, context: u16) {
        for cq in &mut self.cqs {
            if cq.as_ref().is_some_and(|cq| cq.context == context) {
                *cq = None;
            }
        }
        for srq in &mut self.srqs {
            if srq.as_ref().is_some_and(|srq| srq.context == context) {
                *srq = None;
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

    /// Lists a queue pair that took more than its share of shared receives.
    #[cold]
    #[inline(never)]
    fn exceed(&mut self, srq: SrqPlace, place: u32) {
        self.stats.count(Counter::VerbsSharesExceeded);
        if self.shares.get_mut(place as usize).is_some_and(Share::list) {
            self.over.push((srq, place));
        }
    }

    /// What there is to tell of shared receive queues, and the context to tell.
    pub(super) fn next_passed(&mut self) -> Option<(u16, Event)> {
        if let Some((srq, place)) = self.over.pop() {
            return self.exceeded(srq, place);
        }
        while let Some(slot) = self.passed.pop() {
            if let Some(srq) = self.srqs.get_mut(slot as usize).and_then(Option::as_deref_mut) {
                srq.passed = false;
                return Some((srq.context, Event::SharedReceiveLimit { srq: srq.handle }));
            }
        }
        None
    }

    #[cold]
    fn exceeded(&mut self, srq: SrqPlace, place: u32) -> Option<(u16, Event)> {
        let share = self.shares.get_mut(place as usize)?;
        share.unlist();
        let srq = self.srqs.get(srq.slot() as usize)?.as_deref()?;
        Some((srq.context, Event::SharedReceiveShare { srq: srq.handle, qp: share.qp? }))
    }

    /// The completion queue that had no place left, if that is why the queue pair ended.
    pub(super) fn take_full(&mut self) -> Option<CompletionQueue> {
        self.full.take()
    }
}

impl CompletionSink for Queues {
    fn on_send(&mut self, completion: Completion) {
        self.push(self.selected.send_cq, completion);
    }

    fn on_receive(&mut self, completion: Completion) {
        self.push(self.selected.recv_cq, completion);
    }

    fn feed(&mut self, feed: &mut SlotProducer<RecvWqe>) -> Result<(), NoReceive> {
        let Selected { recv_cq, srq, qp, .. } = self.selected;
        let place = srq.ok_or(NoReceive::Empty)?;
        let (slot, mut tell) = (place.slot(), false);
        let srq = self.srqs.get_mut(slot as usize).and_then(Option::as_deref_mut).ok_or(NoReceive::Empty)?;
        let cq = self.cqs.get(recv_cq as usize).and_then(Option::as_deref).ok_or(NoReceive::NoPlace)?;
        if self.shares.get(qp as usize).is_some_and(Share::is_used_up) {
            match share::judge(srq, &mut self.shares, qp) {
                Verdict::Fine => {}
                Verdict::Tell => tell = true,
                Verdict::Refuse => {
                    self.exceed(place, qp);
                    return Err(NoReceive::Empty);
                }
            }
        }
        let passed = srq.feed(feed, cq).inspect_err(|why| {
            let counter = match why {
                NoReceive::Empty => Counter::VerbsSharedReceivesEmpty,
                NoReceive::NoPlace => Counter::VerbsCompletionsRefused,
            };
            self.stats.count(counter);
            if *why == NoReceive::NoPlace {
                self.full = Some(cq.handle);
            }
        })?;
        srq.note(qp, &mut self.shares);
        if passed {
            self.passed.push(slot);
        }
        if tell {
            self.exceed(place, qp);
        }
        Ok(())
    }
}
