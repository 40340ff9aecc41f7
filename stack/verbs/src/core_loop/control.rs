//! The mailbox and doorbell stages: what contexts ask for.
//!
//! Contexts arrive by a flag, ask by control messages, and say by doorbells which queue pairs have new work. A
//! context that is gone has its connections reset and its objects freed here, once.

use super::cores::{InterCoreMessage, LEADER};
use super::*;
use crate::channel::{ControlMessage, Notification};
use crate::context::QpState;
use crate::event::Event;

/// Control messages taken from one context in one iteration, so that a flood of them cannot starve frames.
const CONTROL_BUDGET: usize = 16;

/// News of shared receive queues looked at in one iteration.
const SRQ_EVENT_BUDGET: usize = 64;

/// Doorbells taken from one context in one iteration.
const DOORBELL_BUDGET: usize = 256;

impl<P: Port, C: Clock> CoreLoop<P, C> {
    pub(super) fn serve_mailboxes(&mut self, now: Nanos) {
        // Before contexts are looked at: whose listener another core tells of, is here.
        let mut budget = CONTROL_BUDGET;
        if self.other_cores.is_some() {
            self.exchange(now);
            self.poll_remote_atomics(now);
            if !self.all_messages_sent() {
                budget = 0;
            }
        }
        if let Some(arrived) = self.shared.cores[usize::from(self.core)].take_new_contexts() {
            arrived.into_iter().for_each(|link| self.attach_context(link));
        }
        for context in 0..self.contexts.len() {
            let link = self.contexts.get_mut(context).and_then(Option::as_mut);
            if link.is_some_and(|link| !link.is_idle()) {
                self.serve_context(now, context, budget);
            }
        }
    }

    /// Carries out what a context asks for, and passes on what waits for it.
    #[cold]
    #[inline(never)]
    fn serve_context(&mut self, now: Nanos, context: usize, budget: usize) {
        self.idle_until = Nanos::ZERO;
        for _ in 0..budget {
            let Some(link) = self.contexts.get_mut(context).and_then(Option::as_mut) else { break };
            let Some(message) = link.control.pop() else { break };
            self.work += 1;
            self.on_control(now, context as u16, message);
        }
        self.clean_up_if_abandoned(now, context as u16);
    }

    pub(super) fn serve_doorbells(&mut self) {
        for context in 0..self.contexts.len() {
            for _ in 0..DOORBELL_BUDGET {
                let Some(link) = self.contexts.get_mut(context).and_then(Option::as_mut) else { break };
                let Some(slot) = link.doorbell.next() else { break };
                self.work += 1;
                self.on_doorbell(slot);
            }
        }
    }

    fn attach_context(&mut self, link: ContextChannel) {
        let context_slot = usize::from(link.number);
        if self.contexts.len() <= context_slot {
            self.contexts.resize_with(context_slot + 1, || None);
        }
        self.contexts[context_slot] = Some(link);
    }

    fn on_control(&mut self, now: Nanos, context: u16, message: ControlMessage) {
        match message {
            ControlMessage::CreateQp(mut qp) => {
                // A doorbell that came before its queue pair was not heard. What it told of is found by set-up.
                qp.bell.clear();
                qp.context = context;
                self.queues.reset_share(qp.slot, qp.handle, qp.share);
                self.qps.insert(qp);
            }
            ControlMessage::CreateCq(mut cq) => {
                cq.context = context;
                self.queues.insert(cq);
            }
            ControlMessage::CreateSrq(mut srq) => {
                srq.context = context;
                self.queues.insert_srq(srq);
            }
            ControlMessage::ResizeCq { slot, ring } => self.queues.resize(slot, ring),
            ControlMessage::ArmSrq { slot, limit } => self.queues.arm_srq(slot, limit),
            ControlMessage::DestroySrq { slot } => {
                if let Some(srq) = self.queues.remove_srq(slot) {
                    self.send_notification(context, Notification::SrqReturned(srq));
                }
            }
            ControlMessage::DestroyQp { slot } if self.owns_qp(context, slot) => self.destroy_qp(now, slot),
            ControlMessage::DestroyCq { slot } => {
                if let Some(cq) = self.queues.remove(slot) {
                    self.send_notification(context, Notification::CqReturned(cq));
                }
            }
            ControlMessage::Connect { slot, remote, cm_params } => self.connect(now, slot, remote, cm_params),
            ControlMessage::Listen { local } => self.listen(context, local),
            ControlMessage::Unlisten { local } => self.unlisten(context, local),
            ControlMessage::Accept { request, slot, cm_params } => self.accept(now, request, slot, cm_params),
            ControlMessage::Reject { request, cm_params } => self.reject(now, context, request, cm_params),
            ControlMessage::Disconnect { slot } if self.owns_qp(context, slot) => self.disconnect(now, slot),
            ControlMessage::Atomic { cq, wr_id, target, operation } => {
                let outcome = self.execute_local_atomic(&target, &operation);
                self.queues.on_local_atomic(cq, wr_id, (&operation, outcome));
            }
            // The queue pair went before the message came.
            ControlMessage::DestroyQp { .. } | ControlMessage::Disconnect { .. } => {}
        }
    }

    /// Whether the queue pair at a place is the context's: a handle may be older than what is there now.
    fn owns_qp(&mut self, context: u16, slot: u32) -> bool {
        self.qps.at(slot).is_some_and(|qp| qp.context == context)
    }

    /// New work on a queue pair: it is carried out in the transmit stage, or flushed where the connection has ended.
    fn on_doorbell(&mut self, slot: u32) {
        let Some(qp) = self.qps.at(slot) else { return };
        // The bell is silenced before the rings are looked at, so that work posted meanwhile rings it again.
        qp.bell.clear();
        if qp.shared.state() == QpState::Error {
            return self.flush(slot);
        }
        self.enqueue_tx(TxSource::Qp(slot));
    }

    /// Tells a context something. What does not fit waits in the core until the context reads.
    pub(super) fn send_notification(&mut self, context: u16, notification: Notification) {
        let Some(link) = self.contexts.get_mut(usize::from(context)).and_then(Option::as_mut) else { return };
        if link.notify(notification) {
            self.stats.count(Counter::VerbsNotificationsDelayed);
        }
    }

    pub(super) fn send_event(&mut self, context: u16, event: Event) {
        super::connection::log_event(self.core, &event);
        self.send_notification(context, Notification::Event(event));
    }

    /// Tells of peers that have atomic operations after all, and of shared receive queues that run low. A peer can make the
    /// latter happen again and again, so it stays where it is, noted once, while the context leaves its notices unread.
    #[cold]
    #[inline(never)]
    pub(super) fn report_queue_events(&mut self) {
        while let Some(slot) = self.queues.next_peer_with_atomics() {
            self.on_peer_with_atomics(slot);
        }
        for _ in 0..self.queues.srq_events().min(SRQ_EVENT_BUDGET) {
            let Some((context, srq_event)) = self.queues.next_srq_event() else { continue };
            let link = self.contexts.get(usize::from(context)).and_then(Option::as_ref);
            if link.is_some_and(ContextChannel::has_delayed) {
                self.queues.requeue(srq_event);
            } else if let Some(event) = self.queues.take_event(srq_event) {
                self.work += 1;
                self.send_event(context, event);
            }
        }
    }

    /// Tells every context whether a port's link is there.
    pub(super) fn report_link(&mut self, port: u8, up: bool) {
        for link in self.contexts.iter_mut().flatten() {
            link.notify_link_change(port, up);
        }
    }

    /// A context whose rings are abandoned: its queue pairs end, its listeners close, its objects are freed.
    fn clean_up_if_abandoned(&mut self, now: Nanos, context: u16) {
        let Some(link) = self.contexts.get_mut(usize::from(context)).and_then(Option::as_mut) else { return };
        self.work += link.flush_delayed();
        // What it has asked for is carried out first: afterwards its places may be somebody else's.
        if !link.control.is_abandoned() || link.control.peek().is_some() {
            return;
        }
        self.clean_up_context(now, context);
    }

    /// Whoever leads has closed the listeners of a context that is gone: the others follow, and only then its number is
    /// free.
    pub(super) fn on_context_gone(&mut self, context: u16) {
        self.close_listeners(context);
        if let Some(link) = self.contexts.get_mut(usize::from(context)).and_then(Option::as_mut) {
            link.listeners_closed = true;
        }
    }

    #[cold]
    fn clean_up_context(&mut self, now: Nanos, context: u16) {
        if self.core == LEADER {
            self.on_context_gone(context);
            self.broadcast(InterCoreMessage::ContextGone { context });
        }
        let owned: Vec<u32> = self.qps.owned_by(context).collect();
        for slot in owned {
            self.destroy_qp(now, slot);
        }
        self.abort_passives_of(now, context);
        self.queues.remove_owned_by(context);
        let context_slot = self.contexts.get_mut(usize::from(context));
        if let Some(context_slot) = context_slot
            .filter(|context_slot| context_slot.as_ref().is_some_and(|link| link.listeners_closed))
        {
            *context_slot = None;
            self.shared.release_context_id(context);
        }
    }
}
