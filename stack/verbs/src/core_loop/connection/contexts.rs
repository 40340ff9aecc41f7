//! The mailbox and doorbell stages: requests of contexts.
//!
//! A context attaches by a flag, sends control messages, and rings a doorbell for queue pairs with
//! new work. When a context is gone, its connections are reset and its objects are freed here,
//! once.

use core::any::Any;
use core::net::IpAddr;

use ironwarp_llp::ConnId;
use ironwarp_stats::Counter;
use ironwarp_types::Nanos;

use super::{ConnectionManager, log_event};
use crate::core_loop::QpCore;
use crate::core_loop::channel::{ContextChannel, ControlMessage, FirstStep, Notification};
use crate::core_loop::cores::{InterCoreMessage, LEADER};
use crate::core_loop::data_path::{ConnOwner, DataPath};
use crate::core_loop::handover::Handover;
use crate::core_loop::lower::Lower;
use crate::shared::SlotTable;

/// Control messages taken from one context in one iteration, so that a flood of them does not
/// starve frames.
pub(crate) const CONTROL_BUDGET: usize = 16;

/// Events of shared receive queues handled in one iteration.
const SRQ_EVENT_BUDGET: usize = 64;

/// Doorbells taken from one context in one iteration.
const DOORBELL_BUDGET: usize = 256;

/// What the contexts ask for in an iteration. What they ask for later waits for the next one.
#[derive(Clone, Copy)]
pub(crate) struct Requests {
    /// A context rang its doorbell: the doorbell stage has something to do.
    pub(crate) doorbells: bool,
    /// A context attaches, sent a message, or waits for notifications: the mailbox stage has
    /// something to do.
    pub(crate) messages: bool,
}

impl<L: Lower> ConnectionManager<L> {
    /// Returns what the contexts ask for.
    #[inline(always)]
    pub(crate) fn requests(&mut self) -> Requests {
        let attaches = self.core_shared.new_contexts.is_waiting();
        let [Some(channel)] = self.contexts.as_mut_slice() else { return self.requests_of_many(attaches) };
        Requests { doorbells: channel.doorbell.has_entries(), messages: !channel.is_idle() || attaches }
    }

    #[inline(never)]
    fn requests_of_many(&mut self, attaches: bool) -> Requests {
        let mut requests = Requests { doorbells: false, messages: attaches };
        for channel in self.contexts.iter_mut().flatten() {
            requests.doorbells |= channel.doorbell.has_entries();
            requests.messages |= !channel.is_idle();
        }
        requests
    }

    /// Handles control messages, at most `budget` from each context, and sends delayed
    /// notifications. Returns whether a context had either.
    #[inline(always)]
    pub(crate) fn serve_contexts(&mut self, dp: &mut DataPath<L>, now: Nanos, budget: usize) -> bool {
        if let Some(arrived) = self.core_shared.new_contexts.take() {
            arrived.into_iter().for_each(|channel| self.attach_context(channel));
        }
        let mut served = false;
        for context in 0..self.contexts.len() {
            let channel = self.contexts.get_mut(context).and_then(Option::as_mut);
            if channel.is_some_and(|channel| !channel.is_idle()) {
                served = true;
                self.serve_context(dp, now, context, budget);
            }
        }
        served
    }

    /// Handles the control messages of one context and sends its delayed notifications.
    #[cold]
    #[inline(never)]
    fn serve_context(&mut self, dp: &mut DataPath<L>, now: Nanos, context: usize, budget: usize) {
        for _ in 0..budget {
            let Some(channel) = self.contexts.get_mut(context).and_then(Option::as_mut) else { break };
            let Some(message) = channel.control.pop() else { break };
            dp.count_work(1);
            self.on_control(dp, now, context as u16, message);
        }
        self.clean_up_if_abandoned(dp, now, context as u16);
    }

    /// The doorbell stage: lists queue pairs with new work.
    #[inline(always)]
    pub(crate) fn serve_doorbells(&mut self, dp: &mut DataPath<L>) {
        for channel in self.contexts.iter_mut().flatten() {
            channel.doorbell.take_up_to(DOORBELL_BUDGET, |slot| {
                dp.count_work(1);
                dp.on_doorbell(slot);
            });
        }
    }

    /// The doorbell stage on the fast path: takes the doorbell if there is one context, which rang
    /// for one queue pair. Returns the queue pair.
    #[inline(always)]
    pub(crate) fn take_single_doorbell(&mut self) -> Option<u32> {
        let [Some(channel)] = self.contexts.as_mut_slice() else { return None };
        channel.doorbell.take_single()
    }

    /// The core will not run again: stores the notifications that did not fit their rings where the
    /// contexts find them.
    pub(crate) fn leave_notifications(&mut self) {
        for channel in self.contexts.iter_mut().flatten() {
            channel.flush_delayed();
            let number = channel.number.get();
            self.core_shared.leave(channel.take_delayed().map(|notification| (number, notification)));
        }
    }

    fn attach_context(&mut self, channel: ContextChannel) {
        let context_slot = usize::from(channel.number.get());
        if self.contexts.len() <= context_slot {
            self.contexts.resize_with(context_slot + 1, || None);
        }
        self.contexts[context_slot] = Some(channel);
    }

    fn on_control(&mut self, dp: &mut DataPath<L>, now: Nanos, context: u16, message: ControlMessage) {
        match message {
            ControlMessage::StartQp { slot, first } => self.start_qp(dp, now, context, slot, first),
            ControlMessage::CreateCq { slot } => {
                let half = self.handover(context).and_then(|handover| handover.cqs.take(slot));
                if let Some(mut cq) = half {
                    cq.context = context;
                    dp.queues.insert(cq);
                }
            }
            ControlMessage::CreateSrq { slot } => {
                let half = self.handover(context).and_then(|handover| handover.srqs.take(slot));
                if let Some(mut srq) = half {
                    srq.context = context;
                    dp.queues.insert_srq(srq);
                }
            }
            ControlMessage::ResizeCq { slot } if dp.queues.owns_cq(context, slot) => {
                let ring = self.handover(context).and_then(|handover| handover.cq_rings.take(slot));
                if let Some(ring) = ring {
                    dp.queues.resize(slot, ring);
                }
            }
            ControlMessage::ArmSrq { slot, limit, arming } if dp.queues.owns_srq(context, slot) => {
                dp.queues.arm_srq(slot, limit, arming);
            }
            ControlMessage::DestroySrq { slot } if dp.queues.owns_srq(context, slot) => {
                if let Some(srq) = dp.queues.remove_srq(slot) {
                    let place = |handover: &Handover| handover.srqs.put(slot, srq);
                    self.return_half(context, place, SlotTable::SharedReceiveQueues, slot);
                }
            }
            ControlMessage::DestroyQp { slot, in_order } if self.owns_qp(dp, context, slot) => {
                if in_order {
                    self.detach_conn(dp, now, slot);
                }
                self.destroy_qp(dp, now, slot);
            }
            ControlMessage::DestroyCq { slot } if dp.queues.owns_cq(context, slot) => {
                if let Some(cq) = dp.queues.remove(slot) {
                    let place = |handover: &Handover| handover.cqs.put(slot, cq);
                    self.return_half(context, place, SlotTable::CompletionQueues, slot);
                }
            }
            ControlMessage::Listen { at } => self.listen(dp, context, at),
            ControlMessage::Unlisten { at } => self.unlisten(dp, context, at),
            ControlMessage::Reject { slot, generation } => self.reject(dp, now, context, (slot, generation)),
            ControlMessage::Disconnect { slot } if self.owns_qp(dp, context, slot) => {
                self.disconnect(dp, now, slot)
            }
            ControlMessage::Abort { slot } if self.owns_qp(dp, context, slot) => self.abort(dp, now, slot),
            ControlMessage::Atomic { cq, wr_id, target, operation } if dp.queues.owns_cq(context, cq) => {
                let outcome = dp.execute_local_atomic(&target, &operation);
                dp.queues.on_local_atomic(cq, wr_id, (&operation, outcome));
            }
            ControlMessage::SetRemoteAccess { slot, granted } if self.owns_qp(dp, context, slot) => {
                dp.qps.at(slot).into_iter().for_each(|qp| qp.stream.set_remote_access(granted));
            }
            // The object was destroyed before the message arrived, or is not of this context.
            ControlMessage::ResizeCq { .. }
            | ControlMessage::ArmSrq { .. }
            | ControlMessage::DestroySrq { .. }
            | ControlMessage::DestroyCq { .. }
            | ControlMessage::Atomic { .. }
            | ControlMessage::DestroyQp { .. }
            | ControlMessage::Disconnect { .. }
            | ControlMessage::SetRemoteAccess { .. }
            | ControlMessage::Abort { .. } => {}
        }
    }

    /// Returns the tables beside the rings of a context.
    pub(super) fn handover(&self, context: u16) -> Option<&Handover> {
        Some(&self.contexts.get(usize::from(context))?.as_ref()?.handover)
    }

    /// Takes the core's half of a queue pair of a context, and carries out its first step.
    fn start_qp(&mut self, dp: &mut DataPath<L>, now: Nanos, context: u16, slot: u32, first: FirstStep) {
        let Some(handover) = self.handover(context) else { return };
        let (half, params) = (handover.qps.take(slot), handover.cm_params.take(slot));
        let Some(half) = half else { return };
        let half: Box<dyn Any> = half;
        // All cores of the stack have one lower layer.
        let Ok(mut qp) = half.downcast::<QpCore<L>>() else { return };
        // A doorbell before this message was ignored; set-up finds the work that it announced.
        qp.shared.bell.clear();
        qp.context = context;
        dp.queues.reset_share(slot, qp.handle, qp.share);
        dp.qps.insert(qp);
        match (first, params) {
            (FirstStep::Connect { remote }, Some(params)) => self.connect(dp, now, slot, remote, params),
            (FirstStep::Accept { slot: request, generation }, Some(params)) => {
                self.accept(dp, now, (request, generation), slot, params)
            }
            _ => self.abort(dp, now, slot),
        }
    }

    /// Returns whether the context owns the queue pair in a slot: the message may be older than the
    /// slot's occupant.
    fn owns_qp(&mut self, dp: &mut DataPath<L>, context: u16, slot: u32) -> bool {
        dp.qps.at(slot).is_some_and(|qp| qp.context == context)
    }

    /// Sends a notification to a context. If its ring is full, the core keeps the notification
    /// until the context reads.
    pub(crate) fn send_notification(&mut self, context: u16, notification: Notification) {
        let Some(channel) = self.contexts.get_mut(usize::from(context)).and_then(Option::as_mut) else {
            return;
        };
        if channel.notify(notification) {
            self.stats.count(Counter::VerbsNotificationsDelayed);
        }
    }

    /// Sends an event to a context, and to the operator.
    pub(crate) fn send_event(&mut self, context: u16, event: Notification) {
        if self.log_limit.take() {
            log_event(self.core, &event);
        }
        self.send_notification(context, event);
    }

    /// Sends private data, for the event that is sent next.
    pub(super) fn send_private_data(&mut self, context: u16, private_data: &[u8]) {
        Notification::private_data(private_data).for_each(|part| self.send_notification(context, part));
    }

    /// Puts the core's half of an object into its place, and reports its number to the context.
    pub(super) fn return_half(
        &mut self,
        context: u16,
        put: impl FnOnce(&Handover),
        table: SlotTable,
        slot: u32,
    ) {
        if let Some(handover) = self.handover(context) {
            put(handover);
        }
        self.send_notification(context, Notification::Returned { table, slot });
    }

    /// Reports peers that support atomic operations after all, and shared receive queues that run
    /// low. A peer can cause the latter repeatedly, so such an event stays queued once while the
    /// context leaves its notifications unread.
    #[cold]
    #[inline(never)]
    pub(crate) fn report_queue_events(&mut self, dp: &mut DataPath<L>) {
        while let Some(slot) = dp.queues.next_peer_with_atomics() {
            self.on_peer_with_atomics(dp, slot);
        }
        for _ in 0..dp.queues.srq_events().min(SRQ_EVENT_BUDGET) {
            let Some((context, srq_event)) = dp.queues.next_srq_event() else { continue };
            let channel = self.contexts.get(usize::from(context)).and_then(Option::as_ref);
            if channel.is_some_and(ContextChannel::has_delayed) {
                dp.queues.requeue(srq_event);
            } else if let Some(event) = dp.queues.take_event(srq_event) {
                dp.count_work(1);
                self.send_event(context, event);
            }
        }
    }

    /// Reports the state of a port's link to every context.
    #[cold]
    pub(crate) fn report_path(&mut self, dp: &mut DataPath<L>, conn: ConnId, remote: IpAddr, up: bool) {
        let ConnOwner::Qp(slot) = dp.owner(conn) else { return };
        let Some(qp) = dp.qps.at(slot) else { return };
        if let Some(channel) = self.contexts.get_mut(usize::from(qp.context)).and_then(Option::as_mut) {
            channel.notify_path_change(Notification::Path { qp: qp.handle, remote, up });
        }
    }

    pub(crate) fn report_link(&mut self, port: u8, up: bool) {
        for channel in self.contexts.iter_mut().flatten() {
            channel.notify_link_change(port, up);
        }
    }

    /// If a context dropped its rings: ends its queue pairs, closes its listeners, frees its
    /// objects.
    fn clean_up_if_abandoned(&mut self, dp: &mut DataPath<L>, now: Nanos, context: u16) {
        let Some(channel) = self.contexts.get_mut(usize::from(context)).and_then(Option::as_mut) else {
            return;
        };
        dp.count_work(channel.flush_delayed());
        // All its queued messages are handled before anything is freed, because freed slots may be
        // reused at once.
        if !channel.control.is_abandoned() || channel.control.peek().is_some() {
            return;
        }
        self.clean_up_context(dp, now, context);
    }

    /// The leader closed the listeners of a context that is gone. The other cores follow; only then
    /// is its number free.
    pub(crate) fn on_context_gone(&mut self, dp: &mut DataPath<L>, context: u16) {
        self.close_listeners(dp, context);
        if let Some(channel) = self.contexts.get_mut(usize::from(context)).and_then(Option::as_mut) {
            channel.listeners_closed = true;
        }
    }

    #[cold]
    fn clean_up_context(&mut self, dp: &mut DataPath<L>, now: Nanos, context: u16) {
        if self.core == LEADER {
            dp.broadcast(InterCoreMessage::ContextGone { context });
        }
        if self.core == LEADER || self.shared.is_core_dropped(LEADER) {
            self.on_context_gone(dp, context);
        }
        let owned: Vec<u32> = dp.qps.owned_by(context).collect();
        for slot in owned {
            self.destroy_qp(dp, now, slot);
        }
        self.abort_passives_of(dp, now, context);
        dp.queues.remove_owned_by(context);
        let context_slot = self.contexts.get_mut(usize::from(context));
        if let Some(context_slot) = context_slot
            .filter(|context_slot| context_slot.as_ref().is_some_and(|channel| channel.listeners_closed))
        {
            let channel = context_slot.take();
            let revoked = channel.map_or(0, |channel| channel.number.release());
            self.stats.add(Counter::VerbsRegionsRevoked, revoked as u64);
        }
    }
}
