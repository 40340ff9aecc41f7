//! One completion queue, the core's half: the ring and the notification.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use ironwarp_iwarp::{Completion, CompletionFlags, CompletionStatus};
use ironwarp_rings::block::Shared;
use ironwarp_rings::notify::NotifyState;
use ironwarp_rings::spsc;

use crate::objects::CompletionQueue;
use crate::shared::{CqReservations, SlotLease};

/// The core's end of a completion ring.
pub(crate) type CqRing = spsc::Producer<Completion>;

/// The core's half of a completion queue. On cache lines of its own, since another core's half may
/// be its neighbour in memory.
#[repr(align(64))]
pub(crate) struct CqCore {
    pub(super) handle: CompletionQueue,
    ring: CqRing,
    pub(super) reservations: Arc<CqReservations>,
    armed: Shared<NotifyState>,
    eventfd: Arc<OwnedFd>,
    /// Completions were added since the last notification.
    pub(super) has_new_completions: bool,
    /// One of them was solicited or failed.
    solicited: bool,
    /// The context that owns it, by number.
    pub(crate) context: u16,
    pub(super) lease: SlotLease,
}

/// The parts of a completion queue's half on a core.
pub(crate) struct CqParts {
    pub(crate) handle: CompletionQueue,
    pub(crate) ring: CqRing,
    pub(crate) reservations: Arc<CqReservations>,
    pub(crate) armed: Shared<NotifyState>,
    pub(crate) eventfd: Arc<OwnedFd>,
}

impl CqCore {
    pub(crate) fn new(lease: SlotLease, parts: CqParts) -> Self {
        let CqParts { handle, ring, reservations, armed, eventfd } = parts;
        CqCore {
            handle,
            ring,
            reservations,
            armed,
            eventfd,
            has_new_completions: false,
            solicited: false,
            context: 0,
            lease,
        }
    }

    /// Adds a completion. Its entry was reserved when the work was posted; returns `false` if it
    /// was not.
    #[inline]
    pub(super) fn push(&mut self, completion: Completion) -> bool {
        self.has_new_completions = true;
        self.solicited |= completion.flags.contains(CompletionFlags::SOLICITED)
            || completion.status != CompletionStatus::Success;
        self.ring.push(completion).is_ok()
    }

    /// Switches to another ring. The application reads the old one to its end and frees it.
    pub(super) fn replace_ring(&mut self, ring: CqRing) {
        self.ring = ring;
    }

    /// Wakes the thread that armed the queue, once.
    pub(super) fn notify(&mut self) {
        let (has_new_completions, solicited) =
            (core::mem::take(&mut self.has_new_completions), core::mem::take(&mut self.solicited));
        if has_new_completions && self.armed.fire(solicited) {
            // A full counter means that a wake-up is pending already.
            let _ = rustix::io::write(&self.eventfd, &1u64.to_ne_bytes());
        }
    }
}
