//! The rings between one context and one core.
//!
//! Work goes through each queue pair's own rings; a doorbell says which queue pairs have some. Everything rare goes
//! as a [`ControlMessage`] message to the core and comes back as a [`Notification`]. Each ring has one producer and one consumer,
//! so no side ever waits for the other. Boxes travel both ways: what a core is done with goes back to be freed on
//! the context's thread.

use core::net::{IpAddr, SocketAddr};
use std::collections::VecDeque;

use ironwarp_mem::{AtomicOp, AtomicTarget};
use ironwarp_rings::{doorbell, spsc};

use super::{CqCore, CqRing, QpCore, SrqCore};
use crate::event::Event;
use crate::objects::CmParams;

/// Control messages in flight from one context to one core: a burst of connects fits, a runaway caller gets an error
/// [`Busy`](crate::VerbsError::Busy).
pub(crate) const CONTROL_MESSAGES_MAX: usize = 1024;

/// Notices that a context may leave unread. The core keeps what does not fit and tries again.
pub(crate) const NOTIFICATIONS_MAX: usize = 1024;

/// What a context asks of a core.
pub(crate) enum ControlMessage {
    /// Takes over the core's half of a queue pair.
    CreateQp(Box<QpCore>),
    /// Takes over the core's half of a completion queue.
    CreateCq(Box<CqCore>),
    /// Takes over the core's half of a shared receive queue.
    CreateSrq(Box<SrqCore>),
    /// Writes completions into another ring from now on.
    ResizeCq { slot: u32, ring: CqRing },
    /// Says once when fewer requests than this are left in a shared receive queue.
    ArmSrq { slot: u32, limit: u32 },
    /// Gives a shared receive queue's half back.
    DestroySrq { slot: u32 },
    /// Ends a queue pair and gives its half back.
    DestroyQp { slot: u32 },
    /// Gives a completion queue's half back.
    DestroyCq { slot: u32 },
    /// Opens a connection.
    Connect { slot: u32, remote: SocketAddr, cm_params: Box<CmParams> },
    /// Takes connections for an address. Told to the core that leads, which tells the others.
    Listen { local: SocketAddr },
    /// Takes no more of them.
    Unlisten { local: SocketAddr },
    /// Answers a request: binds it to a queue pair.
    Accept { request: (u32, u32), slot: u32, cm_params: Box<CmParams> },
    /// Answers a request: refuses it.
    Reject { request: (u32, u32), cm_params: Box<CmParams> },
    /// Closes a connection once everything posted has been sent and acknowledged.
    Disconnect { slot: u32 },
    /// Changes a word of the application's own memory. Told to the core that owns it.
    Atomic { cq: u32, wr_id: u64, target: AtomicTarget, operation: AtomicOp },
}

/// What a core tells a context.
#[expect(clippy::large_enum_variant, reason = "a box would be allocated on the core")]
pub(crate) enum Notification {
    /// Notifications for the application.
    Event(Event),
    /// A peer has atomic operations, whatever was remembered of it.
    PeerHasAtomics(IpAddr),
    /// The core's half of a queue pair comes back.
    QpReturned(Box<QpCore>),
    /// The core's half of a completion queue comes back.
    CqReturned(#[allow(dead_code, reason = "it is sent only to be dropped")] Box<CqCore>),
    /// The core's half of a shared receive queue comes back.
    SrqReturned(#[allow(dead_code, reason = "it is sent only to be dropped")] Box<SrqCore>),
    /// A message that has been carried out and whose box comes back to be freed here.
    CmParamsReturned(#[allow(dead_code, reason = "it is sent only to be dropped")] Box<CmParams>),
}

/// A context's end of the rings to one core.
pub(crate) struct CoreChannel {
    pub(crate) doorbell: doorbell::DoorbellSender,
    pub(crate) control: spsc::Producer<ControlMessage>,
    pub(crate) notifications: spsc::Consumer<Notification>,
}

/// A core's end of the rings to one context.
pub(crate) struct ContextChannel {
    /// The context's number, the same on every core.
    pub(crate) number: u16,
    /// The context is gone, and no core listens for it any more.
    pub(crate) listeners_closed: bool,
    pub(crate) doorbell: doorbell::DoorbellReceiver,
    pub(crate) control: spsc::Consumer<ControlMessage>,
    notifications: spsc::Producer<Notification>,
    /// Notices that found the ring full, oldest first. A handful for each queue pair of the context: while any wait, no
    /// peer is announced.
    delayed: VecDeque<Notification>,
    /// Ports whose link has changed, one bit each, until the context can be told, and whether it was there when it changed
    /// last: links may flap for ever.
    links_changed: u8,
    links_up: u8,
}

impl ContextChannel {
    /// Passes a notice on, in order. Answers whether it has to wait.
    pub(crate) fn notify(&mut self, notification: Notification) -> bool {
        self.flush_delayed();
        let not_pushed = if self.delayed.is_empty() {
            self.notifications.push(notification).err()
        } else {
            Some(notification)
        };
        let waits = not_pushed.is_some();
        self.delayed.extend(not_pushed);
        waits
    }

    /// Tells of the last change of a port's link; of earlier ones that have not been told, no more.
    #[cold]
    pub(crate) fn notify_link_change(&mut self, port: u8, up: bool) {
        let bit = 1u8.checked_shl(port.into()).unwrap_or_default();
        self.links_changed |= bit;
        self.links_up = if up { self.links_up | bit } else { self.links_up & !bit };
        self.flush_delayed();
    }

    /// Passes on what waits, as far as there is room, and answers how much that was.
    pub(crate) fn flush_delayed(&mut self) -> usize {
        let mut moved = 0;
        while let Some(notification) = self.delayed.pop_front() {
            if let Err(notification) = self.notifications.push(notification) {
                self.delayed.push_front(notification);
                break;
            }
            moved += 1;
        }
        moved + self.flush_link_events()
    }

    /// Passes on how the link is, behind everything that waits.
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
            if self.notifications.push(Notification::Event(Event::Link { port, up })).is_err() {
                break;
            }
            self.links_changed &= self.links_changed - 1;
            pushed += 1;
        }
        pushed
    }

    /// Whether the context asks for nothing, waits for nothing and is there.
    #[inline]
    pub(crate) fn is_idle(&mut self) -> bool {
        self.control.available() == 0
            && self.delayed.is_empty()
            && self.links_changed == 0
            && !self.control.is_abandoned()
    }

    /// Whether the context leaves its notices unread.
    pub(crate) fn has_delayed(&self) -> bool {
        !self.delayed.is_empty()
    }
}

/// The rings for context `number` and a core with `queue_pairs` queue pairs at most.
pub(crate) fn context_channel(number: u16, queue_pairs: usize) -> (CoreChannel, ContextChannel) {
    let (doorbell_sender, doorbell_receiver) = doorbell::channel(queue_pairs);
    let (control_tx, control_rx) = spsc::channel(CONTROL_MESSAGES_MAX);
    let (notifications_tx, notifications_rx) = spsc::channel(NOTIFICATIONS_MAX);
    (
        CoreChannel { doorbell: doorbell_sender, control: control_tx, notifications: notifications_rx },
        ContextChannel {
            number,
            listeners_closed: false,
            doorbell: doorbell_receiver,
            control: control_rx,
            notifications: notifications_tx,
            delayed: VecDeque::new(),
            links_changed: 0,
            links_up: 0,
        },
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A context that reads nothing costs the core one notice for a link that flaps for ever, and hears the last of it.
    #[test]
    fn a_link_that_flaps_while_unread_raises_one_event() {
        let (mut core, mut context) = context_channel(0, 1);
        for flap in 0..10 * NOTIFICATIONS_MAX {
            context.notify_link_change(1, flap % 2 == 0);
        }
        assert!(context.delayed.is_empty());
        let mut pushed = Vec::new();
        while let Some(Notification::Event(Event::Link { port: 1, up })) = core.notifications.pop() {
            pushed.push(up);
            context.flush_delayed();
        }
        assert_eq!((pushed.len(), pushed.last()), (NOTIFICATIONS_MAX + 1, Some(&false)));
    }
}
