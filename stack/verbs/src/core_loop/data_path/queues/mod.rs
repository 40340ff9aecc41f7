//! Completion queues and shared receive queues, the core's half.
//!
//! Many queue pairs share them. A stream reaches the queues of its own queue pair through the
//! handle [`QpQueues`], which also carries the mailboxes of remote atomics.

mod cq;
mod share;
mod srq;

use core::num::NonZeroU32;
use std::collections::VecDeque;

use ironwarp_iwarp::{
    AtomicForwarder, Completion, CompletionFlags, CompletionOpcode, CompletionSink, CompletionStatus,
    NoCredit, RecvWqe, SharedReceives, SrqError,
};
use ironwarp_mem::{AtomicOp, AtomicTarget, WordError};
use ironwarp_rings::slots::SlotProducer;
use ironwarp_stats::{CoreStats, Counter};
use ironwarp_types::CoreId;

pub(crate) use cq::{CqCore, CqParts, CqRing};
use share::{ShareDecision, SrqShare};
pub(crate) use srq::SrqCore;

use super::remote_atomics::RemoteAtomics;
use crate::config::LimitsConfig;
use crate::core_loop::channel::Notification;
use crate::objects::{CompletionQueue, QueuePair, ReceiveShare};

/// The queues of one queue pair, by slot.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct QpQueueSlots {
    pub(crate) send_cq: u32,
    pub(crate) recv_cq: u32,
    pub(crate) srq: Option<SrqSlot>,
    /// The queue pair's own slot.
    pub(crate) qp: u32,
}

/// The slot of a shared receive queue. `Option` of it takes four bytes, which counts since the
/// slots are copied for every frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct SrqSlot(NonZeroU32);

impl SrqSlot {
    pub(crate) fn new(slot: u32) -> Self {
        SrqSlot(NonZeroU32::MIN.saturating_add(slot))
    }

    fn slot(self) -> u32 {
        self.0.get() - 1
    }
}

const _: () = assert!(size_of::<QpQueueSlots>() == 16);

/// An event of a shared receive queue, by slot.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum SrqEvent {
    /// The number of receives passed the limit.
    LimitReached(SrqSlot),
    /// The queue pair in a slot took more than its share.
    ShareExceeded(SrqSlot, u32),
}

impl SrqEvent {
    fn srq(self) -> usize {
        let (SrqEvent::LimitReached(srq) | SrqEvent::ShareExceeded(srq, _)) = self;
        srq.slot() as usize
    }
}

/// All completion queues and shared receive queues of a core, by slot.
pub(crate) struct QueueTable {
    cqs: Box<[Option<Box<CqCore>>]>,
    srqs: Box<[Option<Box<SrqCore>>]>,
    /// Completion queues with new completions, each at most once.
    cqs_to_notify: Vec<u32>,
    /// Events of shared receive queues, each at most once, until the context reads its
    /// notifications.
    srq_events: VecDeque<SrqEvent>,
    /// Each queue pair's share of its shared receive queue, by slot.
    shares: Box<[SrqShare]>,
    /// The completion queue that was full; the queue pair that is handled ends.
    overflowed_cq: Option<CompletionQueue>,
    /// The mailboxes of remote atomics; `None` on a stack of one core.
    pub(crate) remote_atomics: Option<Box<RemoteAtomics>>,
    /// Queue pairs whose peers replied to their first atomic operation.
    peers_with_atomics: Vec<u32>,
    stats: CoreStats,
}

impl QueueTable {
    pub(crate) fn new(
        limits: &LimitsConfig,
        remote_atomics: Option<Box<RemoteAtomics>>,
        stats: CoreStats,
    ) -> Self {
        let (cqs, srqs, qps) = (limits.completion_queues, limits.shared_receive_queues, limits.queue_pairs);
        QueueTable {
            cqs: (0..cqs).map(|_| None).collect(),
            srqs: (0..srqs).map(|_| None).collect(),
            cqs_to_notify: Vec::with_capacity(cqs as usize),
            srq_events: VecDeque::with_capacity((srqs + qps) as usize),
            shares: (0..qps).map(|_| SrqShare::UNASSIGNED).collect(),
            overflowed_cq: None,
            remote_atomics,
            peers_with_atomics: Vec::with_capacity(qps as usize),
            stats,
        }
    }

    /// Returns whether requests to other cores are outstanding.
    #[inline]
    pub(crate) fn has_outstanding_remote_atomics(&self) -> bool {
        self.remote_atomics.as_ref().is_some_and(|remote_atomics| remote_atomics.has_outstanding())
    }

    /// Returns the handle to one queue pair's queues.
    #[inline(always)]
    pub(crate) fn of_qp(&mut self, slots: QpQueueSlots) -> QpQueues<'_> {
        QpQueues { table: self, slots }
    }

    /// The number of completion queues.
    pub(crate) fn count(&self) -> usize {
        self.cqs.iter().flatten().count()
    }

    /// Returns whether a context owns the completion queue in a slot.
    pub(crate) fn owns_cq(&self, context: u16, slot: u32) -> bool {
        self.cqs.get(slot as usize).and_then(Option::as_ref).is_some_and(|cq| cq.context == context)
    }

    /// Returns whether a context owns the shared receive queue in a slot.
    pub(crate) fn owns_srq(&self, context: u16, slot: u32) -> bool {
        self.srqs.get(slot as usize).and_then(Option::as_ref).is_some_and(|srq| srq.context == context)
    }

    pub(crate) fn insert(&mut self, cq: Box<CqCore>) {
        if let Some(entry) = self.cqs.get_mut(cq.lease.slot() as usize) {
            *entry = Some(cq);
        }
    }

    pub(crate) fn remove(&mut self, slot: u32) -> Option<Box<CqCore>> {
        self.cqs.get_mut(slot as usize)?.take()
    }

    pub(crate) fn resize(&mut self, slot: u32, ring: CqRing) {
        if let Some(cq) = self.cqs.get_mut(slot as usize).and_then(Option::as_deref_mut) {
            cq.replace_ring(ring);
        }
    }

    pub(crate) fn insert_srq(&mut self, srq: Box<SrqCore>) {
        if let Some(entry) = self.srqs.get_mut(srq.lease.slot() as usize) {
            *entry = Some(srq);
        }
    }

    pub(crate) fn remove_srq(&mut self, slot: u32) -> Option<Box<SrqCore>> {
        let srq = self.srqs.get_mut(slot as usize)?.take();
        self.drop_stale_events();
        srq
    }

    /// Removes the events of a shared receive queue that is gone: another may use its slot soon.
    fn drop_stale_events(&mut self) {
        let srqs = &self.srqs;
        self.srq_events.retain(|event| srqs.get(event.srq()).is_some_and(Option::is_some));
    }

    /// A new queue pair starts with an unused share.
    pub(crate) fn reset_share(&mut self, qp_slot: u32, qp: QueuePair, share: Option<ReceiveShare>) {
        if let Some(begun) = self.shares.get_mut(qp_slot as usize) {
            self.srq_events
                .retain(|event| !matches!(event, SrqEvent::ShareExceeded(_, other) if *other == qp_slot));
            *begun = SrqShare::new(qp, share);
        }
    }

    /// A queued event of an arming before finds nothing to report.
    pub(crate) fn arm_srq(&mut self, slot: u32, limit: u32, arming: u32) {
        let Some(srq) = self.srqs.get_mut(slot as usize).and_then(Option::as_deref_mut) else { return };
        if srq.arm(limit, arming) {
            self.srq_events.push_back(SrqEvent::LimitReached(SrqSlot::new(slot)));
        }
    }

    /// Frees the queues of a context that is gone.
    #[cold]
    pub(crate) fn remove_owned_by(&mut self, context: u16) {
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
        self.drop_stale_events();
    }

    /// Returns whether there are events besides completions.
    #[inline]
    pub(crate) fn has_events(&self) -> bool {
        self.srq_events.len() | self.peers_with_atomics.len() != 0
    }

    /// The next queue pair whose peer turned out to support atomic operations.
    pub(crate) fn next_peer_with_atomics(&mut self) -> Option<u32> {
        self.peers_with_atomics.pop()
    }

    /// Completes an application's atomic operation on its own memory.
    #[cold]
    pub(crate) fn on_local_atomic(
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
        let done =
            Completion { wr_id, opcode, flags: CompletionFlags::LOCAL_ATOMIC, ..Completion::default() };
        let completion = match outcome {
            Ok(original) => Completion { byte_len: 8, immediate: original.to_ne_bytes(), ..done },
            Err(_) => Completion { status: CompletionStatus::LocalProtection, ..done },
        };
        self.push(cq, completion);
    }

    #[inline(always)]
    fn push(&mut self, slot: u32, completion: Completion) {
        let Some(cq) = self.cqs.get_mut(slot as usize).and_then(Option::as_deref_mut) else { return };
        if !cq.has_new_completions {
            self.cqs_to_notify.push(slot);
        }
        if !cq.push(completion) {
            self.stats.count(Counter::VerbsCqOverruns);
        }
    }

    /// Notifies armed queues with new completions. Called once an iteration, after transmit.
    pub(crate) fn notify(&mut self) {
        for slot in self.cqs_to_notify.drain(..) {
            if let Some(cq) = self.cqs.get_mut(slot as usize).and_then(Option::as_deref_mut) {
                cq.notify();
            }
        }
    }

    /// Queues the event of a queue pair that took more than its share.
    #[cold]
    #[inline(never)]
    fn report_share_exceeded(&mut self, srq: SrqSlot, qp_slot: u32) {
        self.stats.count(Counter::VerbsSrqShareExceeded);
        if self.shares.get_mut(qp_slot as usize).is_some_and(SrqShare::queue_event) {
            self.srq_events.push_back(SrqEvent::ShareExceeded(srq, qp_slot));
        }
    }

    /// The number of events of shared receive queues.
    pub(crate) fn srq_events(&self) -> usize {
        self.srq_events.len()
    }

    /// The next event and the context that gets it.
    pub(crate) fn next_srq_event(&mut self) -> Option<(u16, SrqEvent)> {
        let event = self.srq_events.pop_front()?;
        let srq = self.srqs.get(event.srq())?.as_deref()?;
        Some((srq.context, event))
    }

    /// Queues an event again: its context does not read its notifications.
    pub(crate) fn requeue(&mut self, event: SrqEvent) {
        self.srq_events.push_back(event);
    }

    /// The message to the context.
    pub(crate) fn take_event(&mut self, event: SrqEvent) -> Option<Notification> {
        let srq = self.srqs.get_mut(event.srq())?.as_deref_mut()?;
        let SrqEvent::ShareExceeded(_, qp_slot) = event else {
            let arming = srq.take_limit_reached()?;
            return Some(Notification::SrqLimitReached { srq: srq.handle, arming });
        };
        let share = self.shares.get_mut(qp_slot as usize)?;
        share.clear_event_queued();
        Some(Notification::SrqShareExceeded { srq: srq.handle, qp: share.qp? })
    }

    /// The completion queue that was full, if that is why the queue pair ended.
    pub(crate) fn take_overflowed_cq(&mut self) -> Option<CompletionQueue> {
        self.overflowed_cq.take()
    }
}

/// The queues of one queue pair.
pub(crate) struct QpQueues<'a> {
    table: &'a mut QueueTable,
    slots: QpQueueSlots,
}

impl CompletionSink for QpQueues<'_> {
    fn on_send_completion(&mut self, completion: Completion) {
        self.table.push(self.slots.send_cq, completion);
    }

    #[inline(always)]
    fn on_receive_completion(&mut self, completion: Completion) {
        self.table.push(self.slots.recv_cq, completion);
    }
}

impl AtomicForwarder for QpQueues<'_> {
    #[cold]
    fn on_peer_atomics(&mut self) {
        self.table.peers_with_atomics.push(self.slots.qp);
    }

    #[inline]
    fn prepare_forward(&mut self, owner: CoreId) {
        if let Some(remote_atomics) = self.table.remote_atomics.as_deref() {
            remote_atomics.prepare_request(owner);
        }
    }

    #[cold]
    #[inline(never)]
    fn forward_atomic(
        &mut self,
        owner: CoreId,
        serial: u32,
        target: &AtomicTarget,
        operation: AtomicOp,
    ) -> Result<(), NoCredit> {
        let remote_atomics = self.table.remote_atomics.as_deref_mut().ok_or(NoCredit)?;
        let asked = remote_atomics.send_request((self.slots.qp, serial), owner, target, operation);
        let outcome = if asked.is_ok() { Counter::AtomicsForwarded } else { Counter::AtomicsNoCredit };
        self.table.stats.count(outcome);
        asked
    }
}

impl SharedReceives for QpQueues<'_> {
    fn take_from_srq(&mut self, rq_producer: &mut SlotProducer<RecvWqe>) -> Result<(), SrqError> {
        self.table.take_from_srq(self.slots, rq_producer)
    }
}

impl QueueTable {
    fn take_from_srq(
        &mut self,
        slots: QpQueueSlots,
        rq_producer: &mut SlotProducer<RecvWqe>,
    ) -> Result<(), SrqError> {
        let QpQueueSlots { recv_cq, srq, qp, .. } = slots;
        let srq_slot = srq.ok_or(SrqError::Empty)?;
        let (slot, mut over_share) = (srq_slot.slot(), false);
        let srq = self.srqs.get_mut(slot as usize).and_then(Option::as_deref_mut).ok_or(SrqError::Empty)?;
        let cq = self.cqs.get(recv_cq as usize).and_then(Option::as_deref).ok_or(SrqError::CqFull)?;
        if self.shares.get(qp as usize).is_some_and(SrqShare::is_exhausted) {
            match share::check_share(srq, &mut self.shares, qp) {
                ShareDecision::Allow => {}
                ShareDecision::AllowAndReport => over_share = true,
                ShareDecision::Deny => {
                    self.report_share_exceeded(srq_slot, qp);
                    return Err(SrqError::Empty);
                }
            }
        }
        let limit_reached = srq.take_from_srq(rq_producer, cq).inspect_err(|why| {
            let counter = match why {
                SrqError::Empty => Counter::VerbsSrqEmptyDisconnects,
                SrqError::CqFull => Counter::VerbsCqFullDisconnects,
            };
            self.stats.count(counter);
            if *why == SrqError::CqFull {
                self.overflowed_cq = Some(cq.handle);
            }
        })?;
        srq.record(qp, &mut self.shares);
        if limit_reached {
            self.srq_events.push_back(SrqEvent::LimitReached(srq_slot));
        }
        if over_share {
            self.report_share_exceeded(srq_slot, qp);
        }
        Ok(())
    }
}
