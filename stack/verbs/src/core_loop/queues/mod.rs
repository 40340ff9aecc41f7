//! Completion queues and shared receive queues, the core's half.
//!
//! Both belong to many queue pairs. The table is lent to one queue pair's stream at a time, with its queues selected, and
//! so is the mail to cores that own words.

mod cq;
mod share;
mod srq;

use core::num::NonZeroU32;
use std::collections::VecDeque;

use ironwarp_iwarp::{
    Completion, CompletionFlags, CompletionOpcode, CompletionSink, CompletionStatus, NoCredit, NoReceive,
    RecvWqe,
};
use ironwarp_mem::{AtomicOp, AtomicTarget, WordError};
use ironwarp_rings::slots::SlotProducer;
use ironwarp_stats::{CoreStats, Counter};
use ironwarp_types::CoreId;

pub(crate) use cq::{CqCore, CqParts, CqRing};
use share::{Share, Verdict};
pub(crate) use srq::SrqCore;

use super::owners::Owners;
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

/// Something that a context is to be told of a shared receive queue, by place.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum News {
    /// Its limit was passed.
    Limit(SrqPlace),
    /// The queue pair at a place took more than its share.
    Share(SrqPlace, u32),
}

impl News {
    fn srq(self) -> usize {
        let (News::Limit(srq) | News::Share(srq, _)) = self;
        srq.slot() as usize
    }
}

/// Every completion queue and shared receive queue of a core, by place.
pub(super) struct Queues {
    cqs: Box<[Option<Box<CqCore>>]>,
    srqs: Box<[Option<Box<SrqCore>>]>,
    /// Completion queues with news, each at most once.
    news: Vec<u32>,
    /// What is to be told of shared receive queues, each at most once, until the context listens.
    srq_news: VecDeque<News>,
    /// What each queue pair has of its shared receive queue, by place.
    shares: Box<[Share]>,
    /// The queues of the queue pair that is being worked on.
    selected: Selected,
    /// A message found no place for its completion; the queue pair that is being worked on ends.
    full: Option<CompletionQueue>,
    /// The mail to cores that own words, where there are others.
    pub(super) owners: Option<Box<Owners>>,
    /// Queue pairs whose peers have answered their first atomic operation.
    with_atomics: Vec<u32>,
    stats: CoreStats,
}

impl Queues {
    pub(super) fn new(limits: &LimitsConfig, owners: Option<Box<Owners>>, stats: CoreStats) -> Self {
        let (cqs, srqs, qps) = (limits.completion_queues, limits.shared_receive_queues, limits.queue_pairs);
        Queues {
            cqs: (0..cqs).map(|_| None).collect(),
            srqs: (0..srqs).map(|_| None).collect(),
            news: Vec::with_capacity(cqs as usize),
            srq_news: VecDeque::with_capacity((srqs + qps) as usize),
            shares: (0..qps).map(|_| Share::NOBODYS).collect(),
            selected: Selected::default(),
            full: None,
            owners,
            with_atomics: Vec::with_capacity(qps as usize),
            stats,
        }
    }

    /// Whether other cores have something to do for this one.
    #[inline]
    pub(super) fn waits_for_owners(&self) -> bool {
        self.owners.as_ref().is_some_and(|owners| owners.is_waiting())
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
        let srq = self.srqs.get_mut(slot as usize)?.take();
        self.forget_gone();
        srq
    }

    /// Nothing is told of a shared receive queue that has gone: another may be in its place soon.
    fn forget_gone(&mut self) {
        let srqs = &self.srqs;
        self.srq_news.retain(|news| srqs.get(news.srq()).is_some_and(Option::is_some));
    }

    /// A new queue pair has taken nothing.
    pub(super) fn begin_share(&mut self, place: u32, qp: QueuePair, share: Option<ReceiveShare>) {
        if let Some(begun) = self.shares.get_mut(place as usize) {
            self.srq_news.retain(|news| !matches!(news, News::Share(_, other) if *other == place));
            *begun = Share::new(qp, share);
        }
    }

    pub(super) fn arm_srq(&mut self, slot: u32, limit: u32) {
        let Some(srq) = self.srqs.get_mut(slot as usize).and_then(Option::as_deref_mut) else { return };
        if !srq.passed && srq.arm(limit) {
            self.srq_news.push_back(News::Limit(SrqPlace::new(slot)));
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
        self.forget_gone();
    }

    /// Whether there is anything to tell that is not a completion.
    #[inline]
    pub(super) fn has_news(&self) -> bool {
        self.srq_news.len() | self.with_atomics.len() != 0
    }

    /// The next queue pair whose peer turned out to have atomic operations.
    pub(super) fn next_with_atomics(&mut self) -> Option<u32> {
        self.with_atomics.pop()
    }

    /// Completes an application's atomic operation on its own memory.
    #[cold]
    pub(super) fn on_local_atomic(
        &mut self,
        cq: u32,
        wr_id: u64,
        (operation, outcome): (&AtomicOp, Result<u64, WordError>),
    ) {
        let opcode = match operation {
            AtomicOp::FetchAdd { .. } => CompletionOpcode::FetchAdd,
            AtomicOp::CmpSwap { .. } => CompletionOpcode::CmpSwap,
            AtomicOp::Swap { .. } => CompletionOpcode::Swap,
        };
        let done = Completion { wr_id, opcode, flags: CompletionFlags::LOCAL, ..Completion::default() };
        let completion = match outcome {
            Ok(original) => Completion { byte_len: 8, immediate: original.to_ne_bytes(), ..done },
            Err(_) => Completion { status: CompletionStatus::LocalProtection, ..done },
        };
        self.push(cq, completion);
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
            self.srq_news.push_back(News::Share(srq, place));
        }
    }

    /// How much there is to tell of shared receive queues.
    pub(super) fn srq_news(&self) -> usize {
        self.srq_news.len()
    }

    /// The next of it, and the context to tell.
    pub(super) fn next_srq_news(&mut self) -> Option<(u16, News)> {
        let news = self.srq_news.pop_front()?;
        let srq = self.srqs.get(news.srq())?.as_deref()?;
        Some((srq.context, news))
    }

    /// The context does not listen: it is told later.
    pub(super) fn keep(&mut self, news: News) {
        self.srq_news.push_back(news);
    }

    /// The event that tells it.
    pub(super) fn event_of(&mut self, news: News) -> Option<Event> {
        let srq = self.srqs.get_mut(news.srq())?.as_deref_mut()?;
        let News::Share(_, place) = news else {
            srq.passed = false;
            return Some(Event::SharedReceiveLimit { srq: srq.handle });
        };
        let share = self.shares.get_mut(place as usize)?;
        share.unlist();
        Some(Event::SharedReceiveShare { srq: srq.handle, qp: share.qp? })
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

    #[cold]
    fn peer_has_atomics(&mut self) {
        self.with_atomics.push(self.selected.qp);
    }

    #[inline]
    fn will_ask(&mut self, owner: CoreId) {
        if let Some(owners) = self.owners.as_deref() {
            owners.will_ask(owner);
        }
    }

    #[cold]
    #[inline(never)]
    fn ask(
        &mut self,
        owner: CoreId,
        serial: u32,
        target: &AtomicTarget,
        operation: AtomicOp,
    ) -> Result<(), NoCredit> {
        let owners = self.owners.as_deref_mut().ok_or(NoCredit)?;
        let asked = owners.ask((self.selected.qp, serial), owner, target, operation);
        let outcome = if asked.is_ok() { Counter::AtomicsMailed } else { Counter::AtomicsNoCredit };
        self.stats.count(outcome);
        asked
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
            self.srq_news.push_back(News::Limit(place));
        }
        if tell {
            self.exceed(place, qp);
        }
        Ok(())
    }
}
