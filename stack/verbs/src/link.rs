//! The rings between one context and one core.
//!
//! Work goes through each queue pair's own rings; a doorbell says which queue pairs have some. Everything rare goes
//! as a [`Control`] message to the core and comes back as a [`Notice`]. Each ring has one producer and one consumer,
//! so no side ever waits for the other. Boxes travel both ways: what a core is done with goes back to be freed on
//! the context's thread.

use core::net::{IpAddr, SocketAddr};
use std::collections::VecDeque;

use ironwarp_mem::{AtomicOp, AtomicTarget};
use ironwarp_rings::{doorbell, spsc};

use crate::context::Parcel;
use crate::core_loop::{CqCore, CqRing, QpCore, SrqCore};
use crate::event::Event;

/// Control messages in flight from one context to one core: a burst of connects fits, a runaway caller is told
/// [`Busy`](crate::VerbsError::Busy).
pub(crate) const CONTROL_MESSAGES: usize = 1024;

/// Notices that a context may leave unread. The core keeps what does not fit and tries again.
pub(crate) const NOTICES: usize = 1024;

/// What a context asks of a core.
pub(crate) enum Control {
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
    Connect { slot: u32, remote: SocketAddr, parcel: Box<Parcel> },
    /// Takes connections for an address. Told to the core that leads, which tells the others.
    Listen { local: SocketAddr },
    /// Takes no more of them.
    Unlisten { local: SocketAddr },
    /// Answers a request: binds it to a queue pair.
    Accept { request: (u32, u32), slot: u32, parcel: Box<Parcel> },
    /// Answers a request: refuses it.
    Reject { request: (u32, u32), parcel: Box<Parcel> },
    /// Closes a connection once everything posted has been sent and acknowledged.
    Disconnect { slot: u32 },
    /// Changes a word of the application's own memory. Told to the core that owns it.
    Atomic { cq: u32, wr_id: u64, target: AtomicTarget, operation: AtomicOp },
}

/// What a core tells a context.
#[expect(clippy::large_enum_variant, reason = "a box would be allocated on the core")]
pub(crate) enum Notice {
    /// News for the application.
    Event(Event),
    /// A peer has atomic operations, whatever was remembered of it.
    HasAtomics(IpAddr),
    /// The core's half of a queue pair comes back.
    QpGone(Box<QpCore>),
    /// The core's half of a completion queue comes back.
    CqGone(#[allow(dead_code, reason = "it is sent only to be dropped")] Box<CqCore>),
    /// The core's half of a shared receive queue comes back.
    SrqGone(#[allow(dead_code, reason = "it is sent only to be dropped")] Box<SrqCore>),
    /// A message that has been carried out and whose box comes back to be freed here.
    Spent(#[allow(dead_code, reason = "it is sent only to be dropped")] Box<Parcel>),
}

/// A context's end of the rings to one core.
pub(crate) struct CoreLink {
    pub(crate) doorbell: doorbell::DoorbellSender,
    pub(crate) control: spsc::Producer<Control>,
    pub(crate) notices: spsc::Consumer<Notice>,
}

/// A core's end of the rings to one context.
pub(crate) struct ContextLink {
    /// The context's number, the same on every core.
    pub(crate) number: u16,
    /// The context is gone, and no core listens for it any more.
    pub(crate) listeners_closed: bool,
    pub(crate) doorbell: doorbell::DoorbellReceiver,
    pub(crate) control: spsc::Consumer<Control>,
    notices: spsc::Producer<Notice>,
    /// Notices that found the ring full, oldest first. A handful for each queue pair of the context: while any wait, no
    /// peer is announced.
    delayed: VecDeque<Notice>,
    /// Ports whose link has changed, one bit each, until the context can be told, and whether it was there when it changed
    /// last: links may flap for ever.
    links_changed: u8,
    links_up: u8,
}

impl ContextLink {
    /// Passes a notice on, in order. Answers whether it has to wait.
    pub(crate) fn tell(&mut self, notice: Notice) -> bool {
        self.retry();
        let refused = if self.delayed.is_empty() { self.notices.push(notice).err() } else { Some(notice) };
        let waits = refused.is_some();
        self.delayed.extend(refused);
        waits
    }

    /// Tells of the last change of a port's link; of earlier ones that have not been told, no more.
    #[cold]
    pub(crate) fn tell_link(&mut self, port: u8, up: bool) {
        let bit = 1u8.checked_shl(port.into()).unwrap_or_default();
        self.links_changed |= bit;
        self.links_up = if up { self.links_up | bit } else { self.links_up & !bit };
        self.retry();
    }

    /// Passes on what waits, as far as there is room, and answers how much that was.
    pub(crate) fn retry(&mut self) -> usize {
        let mut moved = 0;
        while let Some(notice) = self.delayed.pop_front() {
            if let Err(notice) = self.notices.push(notice) {
                self.delayed.push_front(notice);
                break;
            }
            moved += 1;
        }
        moved + self.retry_link()
    }

    /// Passes on how the link is, behind everything that waits.
    #[inline]
    fn retry_link(&mut self) -> usize {
        if self.links_changed == 0 || !self.delayed.is_empty() {
            return 0;
        }
        self.tell_links()
    }

    #[cold]
    fn tell_links(&mut self) -> usize {
        let mut told = 0;
        while self.links_changed != 0 {
            let port = self.links_changed.trailing_zeros() as u8;
            let up = self.links_up & 1 << port != 0;
            if self.notices.push(Notice::Event(Event::Link { port, up })).is_err() {
                break;
            }
            self.links_changed &= self.links_changed - 1;
            told += 1;
        }
        told
    }

    /// Whether the context asks for nothing, waits for nothing and is there.
    #[inline]
    pub(crate) fn is_quiet(&mut self) -> bool {
        self.control.available() == 0
            && self.delayed.is_empty()
            && self.links_changed == 0
            && !self.control.is_abandoned()
    }

    /// Whether the context leaves its notices unread.
    pub(crate) fn is_behind(&self) -> bool {
        !self.delayed.is_empty()
    }
}

/// The rings for context `number` and a core with `queue_pairs` queue pairs at most.
pub(crate) fn link(number: u16, queue_pairs: usize) -> (CoreLink, ContextLink) {
    let (doorbell_sender, doorbell_receiver) = doorbell::channel(queue_pairs);
    let (control_tx, control_rx) = spsc::channel(CONTROL_MESSAGES);
    let (notices_tx, notices_rx) = spsc::channel(NOTICES);
    (
        CoreLink { doorbell: doorbell_sender, control: control_tx, notices: notices_rx },
        ContextLink {
            number,
            listeners_closed: false,
            doorbell: doorbell_receiver,
            control: control_rx,
            notices: notices_tx,
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
    fn a_link_that_flaps_unheard_is_told_once() {
        let (mut core, mut context) = link(0, 1);
        for flap in 0..10 * NOTICES {
            context.tell_link(1, flap % 2 == 0);
        }
        assert!(context.delayed.is_empty());
        let mut told = Vec::new();
        while let Some(Notice::Event(Event::Link { port: 1, up })) = core.notices.pop() {
            told.push(up);
            context.retry();
        }
        assert_eq!((told.len(), told.last()), (NOTICES + 1, Some(&false)));
    }
}
