//! The rings between one context and one core.
//!
//! Work goes through each queue pair's own rings; a doorbell names the queue pairs with new work.
//! Everything rare is a [`ControlMessage`] to the core or a [`Notification`] from it. Each ring has
//! one producer and one consumer, so neither side waits for the other. Both messages are plain
//! data. The core's halves of objects and the parameters of set-up lie beside the rings, in the
//! [`Handover`]: a message says that one is in its place. The core puts them back, and the
//! context's thread frees them.

use core::mem::Discriminant;
use core::net::SocketAddr;
use std::collections::{HashSet, VecDeque};
use std::sync::Arc;

use ironwarp_iwarp::{Completion, RecvWqe, SendWqe};
use ironwarp_mem::{Access, AtomicOp, AtomicTarget};
use ironwarp_rings::block::PlainData;
use ironwarp_rings::{doorbell, spsc};

pub(crate) use super::handover::Handover;
use super::notification::ArrivedData;
pub(crate) use super::notification::Notification;
use crate::config::LimitsConfig;
use crate::shared::{ContextNumber, ListenAddress};
use crate::wake::{CoreWaker, WakeSignal};

/// Control messages in flight from one context to one core. Further ones wait in the context.
pub(crate) const CONTROL_MESSAGES_MAX: usize = 1024;

/// Notifications that a context may leave unread. The core keeps further ones and tries again.
pub(crate) const NOTIFICATIONS_MAX: usize = 1024;

/// A request of a context to a core.
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) enum ControlMessage {
    /// Takes the core's half of a queue pair, for its first step.
    StartQp { slot: u32, first: FirstStep },
    /// Takes the core's half of a completion queue.
    CreateCq { slot: u32 },
    /// Takes the core's half of a shared receive queue.
    CreateSrq { slot: u32 },
    /// Writes completions to the ring in the queue's place from now on.
    ResizeCq { slot: u32 },
    /// Requests one event when fewer receives than this are left in a shared receive queue.
    ArmSrq { slot: u32, limit: u32, arming: u32 },
    /// Returns the core's half of a shared receive queue.
    DestroySrq { slot: u32 },
    /// Ends a queue pair and returns its half. In order: a connection without outstanding work is
    /// closed and not reset.
    DestroyQp { slot: u32, in_order: bool },
    /// Returns the core's half of a completion queue.
    DestroyCq { slot: u32 },
    /// Listens on an address. Sent to the leader core, which informs the others.
    Listen { at: ListenAddress },
    /// Stops listening.
    Unlisten { at: ListenAddress },
    /// Rejects the request of a slot and generation.
    Reject { slot: u32, generation: u32 },
    /// Disconnects after everything posted was sent and acknowledged.
    Disconnect { slot: u32 },
    /// Resets the connection of a queue pair, which stays in the error state.
    Abort { slot: u32 },
    /// Sets what the peer of a queue pair may do.
    SetRemoteAccess { slot: u32, granted: Access },
    /// Executes an atomic operation on the application's own memory. Sent to the owner core.
    Atomic { cq: u32, wr_id: u64, target: AtomicTarget, operation: AtomicOp },
}

/// What a queue pair gets a core for.
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) enum FirstStep {
    /// Opens a connection, with the parameters in the queue pair's place.
    Connect { remote: SocketAddr },
    /// Accepts the request of a slot and generation, with the parameters in the queue pair's place.
    Accept { slot: u32, generation: u32 },
    /// Completes its receives, which a core does.
    Abort,
}

/// What the rings between a context and a core carry is plain data.
const fn is_plain_data<T: PlainData>() {}
const _: () = {
    is_plain_data::<ControlMessage>();
    is_plain_data::<Notification>();
    is_plain_data::<SendWqe>();
    is_plain_data::<RecvWqe>();
    is_plain_data::<Completion>();
};

/// A context's end of the rings to one core.
pub(crate) struct CoreChannel {
    pub(crate) handover: Arc<Handover>,
    pub(crate) doorbell: doorbell::DoorbellSender,
    control: spsc::Producer<ControlMessage>,
    /// Messages that found the ring full, oldest first: at most a few for each object and
    /// connection request.
    waiting: VecDeque<ControlMessage>,
    /// Those of `waiting` that a later one replaces.
    replaceable: HashSet<(Discriminant<ControlMessage>, u32)>,
    pub(crate) notifications: spsc::Consumer<Notification>,
    pub(crate) arrived: ArrivedData,
    /// Last: the core is woken when the rings above are abandoned.
    pub(crate) waker: CoreWaker,
}

/// A core's end of the rings to one context.
pub(crate) struct ContextChannel {
    pub(crate) number: Arc<ContextNumber>,
    /// The context is gone, and no core listens for it any more.
    pub(crate) listeners_closed: bool,
    pub(crate) handover: Arc<Handover>,
    pub(crate) doorbell: doorbell::DoorbellReceiver,
    pub(crate) control: spsc::Consumer<ControlMessage>,
    notifications: spsc::Producer<Notification>,
    signal: Arc<WakeSignal>,
    /// Notifications that did not fit the ring, oldest first. At most a few for each queue pair of
    /// the context: while any wait, no connection request is reported.
    delayed: VecDeque<Notification>,
    /// Ports whose link changed since the last notification, one bit each, and the last state of
    /// each link. A link may change any number of times.
    links_changed: u8,
    links_up: u8,
}

impl ControlMessage {
    /// The kind and slot of a message that a later one of both replaces: its call may be repeated.
    /// The others are sent once for an object or address.
    fn replaceable(&self) -> Option<(Discriminant<Self>, u32)> {
        match self {
            // A slot has one request at a time: what waits is for this request or for one that has
            // ended.
            ControlMessage::Reject { slot, .. }
            | ControlMessage::Disconnect { slot }
            | ControlMessage::Abort { slot }
            | ControlMessage::SetRemoteAccess { slot, .. }
            | ControlMessage::ArmSrq { slot, .. } => Some((core::mem::discriminant(self), *slot)),
            ControlMessage::StartQp { .. }
            | ControlMessage::CreateCq { .. }
            | ControlMessage::CreateSrq { .. }
            | ControlMessage::ResizeCq { .. }
            | ControlMessage::DestroySrq { .. }
            | ControlMessage::DestroyQp { .. }
            | ControlMessage::DestroyCq { .. }
            | ControlMessage::Listen { .. }
            | ControlMessage::Unlisten { .. }
            | ControlMessage::Atomic { .. } => None,
        }
    }
}

impl CoreChannel {
    /// Sends a message after all that wait. Returns whether none waits now.
    pub(crate) fn send(&mut self, message: ControlMessage) -> bool {
        if !self.send_waiting() || self.control.is_abandoned() {
            self.wait(message);
            return false;
        }
        let sent = self.control.push(message).map_err(|message| self.wait(message)).is_ok();
        self.waker.wake();
        sent
    }

    #[cold]
    fn wait(&mut self, message: ControlMessage) {
        if let Some(key) = message.replaceable()
            && !self.replaceable.insert(key)
        {
            self.waiting.retain(|waiting| waiting.replaceable() != Some(key));
        }
        self.waiting.push_back(message);
    }

    /// Sends messages that wait while there is room. Returns whether none waits now.
    pub(crate) fn send_waiting(&mut self) -> bool {
        if self.waiting.is_empty() {
            return true;
        }
        while !self.control.is_abandoned()
            && let Some(message) = self.take_waiting()
        {
            if let Err(message) = self.control.push(message) {
                self.replaceable.extend(message.replaceable());
                self.waiting.push_front(message);
                break;
            }
        }
        self.waker.wake();
        self.waiting.is_empty()
    }

    /// Returns whether a message can be sent at once.
    pub(crate) fn has_room(&mut self) -> bool {
        self.waiting.is_empty() && self.control.has_room(1)
    }

    /// Returns whether messages wait for room.
    pub(crate) fn has_waiting(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// Takes the oldest message that waits.
    pub(crate) fn take_waiting(&mut self) -> Option<ControlMessage> {
        let message = self.waiting.pop_front()?;
        message.replaceable().map(|key| self.replaceable.remove(&key));
        Some(message)
    }
}

impl Drop for CoreChannel {
    /// What the ring has no room for is dropped: the core ends all objects of the context.
    fn drop(&mut self) {
        self.send_waiting();
    }
}

impl ContextChannel {
    /// Sends a notification, in order. Returns whether it waits.
    pub(crate) fn notify(&mut self, notification: Notification) -> bool {
        self.flush_delayed();
        let not_pushed =
            if self.delayed.is_empty() { self.push(notification).err() } else { Some(notification) };
        let waits = not_pushed.is_some();
        self.delayed.extend(not_pushed);
        waits
    }

    /// Stores a notification in the ring, or returns it.
    fn push(&mut self, notification: Notification) -> Result<(), Notification> {
        self.notifications.push(notification)?;
        if notification.is_event() {
            self.signal.fire();
        }
        Ok(())
    }

    /// Reports the last change of a port's link. Earlier changes that were not reported are
    /// dropped.
    #[cold]
    pub(crate) fn notify_link_change(&mut self, port: u8, up: bool) {
        let bit = 1u8.checked_shl(port.into()).unwrap_or_default();
        self.links_changed |= bit;
        self.links_up = if up { self.links_up | bit } else { self.links_up & !bit };
        self.flush_delayed();
    }

    /// Reports the last change of a path. An earlier one that waits is dropped.
    #[cold]
    pub(crate) fn notify_path_change(&mut self, change: Notification) {
        self.delayed.retain(|waiting| !waiting.is_of_same_path(&change));
        self.notify(change);
    }

    /// Sends waiting notifications while there is room, and returns their number.
    pub(crate) fn flush_delayed(&mut self) -> usize {
        let mut moved = 0;
        while let Some(notification) = self.delayed.pop_front() {
            if let Err(notification) = self.push(notification) {
                self.delayed.push_front(notification);
                break;
            }
            moved += 1;
        }
        moved + self.flush_link_events()
    }

    /// Reports the state of links, after all waiting notifications.
    #[inline]
    fn flush_link_events(&mut self) -> usize {
        if self.links_changed == 0 || !self.delayed.is_empty() {
            return 0;
        }
        self.push_link_events()
    }

    #[cold]
    fn push_link_events(&mut self) -> usize {
        let mut pushed = 0;
        while self.links_changed != 0 {
            let port = self.links_changed.trailing_zeros() as u8;
            let up = self.links_up & 1 << port != 0;
            if self.push(Notification::Link { port, up }).is_err() {
                break;
            }
            self.links_changed &= self.links_changed - 1;
            pushed += 1;
        }
        pushed
    }

    /// Returns whether the context has no requests and no waiting notifications, and is not gone.
    #[inline(always)]
    pub(crate) fn is_idle(&mut self) -> bool {
        self.control.available() == 0
            && self.delayed.is_empty()
            && self.links_changed == 0
            && !self.control.is_abandoned()
    }

    /// Takes the notifications that did not fit the ring.
    pub(crate) fn take_delayed(&mut self) -> impl Iterator<Item = Notification> + '_ {
        self.delayed.drain(..)
    }

    /// Returns whether the context leaves its notifications unread.
    pub(crate) fn has_delayed(&self) -> bool {
        !self.delayed.is_empty()
    }
}

/// Creates the rings for context `number` and a core.
pub(crate) fn context_channel(
    number: Arc<ContextNumber>,
    limits: &LimitsConfig,
    signal: &Arc<WakeSignal>,
    waker: CoreWaker,
) -> (CoreChannel, ContextChannel) {
    let (doorbell_sender, doorbell_receiver) = doorbell::channel(limits.queue_pairs as usize);
    let (control_tx, control_rx) = spsc::channel(CONTROL_MESSAGES_MAX);
    let (notifications_tx, notifications_rx) = spsc::channel(NOTIFICATIONS_MAX);
    let handover = Arc::new(Handover::new(limits));
    (
        CoreChannel {
            handover: handover.clone(),
            doorbell: doorbell_sender,
            control: control_tx,
            waiting: VecDeque::new(),
            replaceable: HashSet::new(),
            notifications: notifications_rx,
            arrived: ArrivedData::default(),
            waker,
        },
        ContextChannel {
            number,
            listeners_closed: false,
            handover,
            doorbell: doorbell_receiver,
            control: control_rx,
            notifications: notifications_tx,
            signal: signal.clone(),
            delayed: VecDeque::new(),
            links_changed: 0,
            links_up: 0,
        },
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A context that reads nothing costs the core one notification for any number of link changes,
    /// and gets the last one.
    #[test]
    fn a_link_that_flaps_while_unread_raises_one_event() {
        let signal = Arc::new(WakeSignal::new().unwrap());
        let (mut core, mut context) =
            context_channel(ContextNumber::detached(), &LimitsConfig::default(), &signal, CoreWaker(None));
        for flap in 0..10 * NOTIFICATIONS_MAX {
            context.notify_link_change(1, flap % 2 == 0);
        }
        assert!(context.delayed.is_empty());
        let mut pushed = Vec::new();
        while let Some(Notification::Link { port: 1, up }) = core.notifications.pop() {
            pushed.push(up);
            context.flush_delayed();
        }
        assert_eq!((pushed.len(), pushed.last()), (NOTIFICATIONS_MAX + 1, Some(&false)));
    }
}
