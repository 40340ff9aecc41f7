//! Wake-ups of a thread that waits at a descriptor: a context's for events, and a core that sleeps.
//!
//! The thread arms the signal, checks once more that there is nothing to do, and waits. A thread
//! that publishes work for it fires the signal afterwards; the descriptor is written only if the
//! thread waits. The two sides are ordered by [`NotifyState`], so no wake-up is lost. Firing an
//! unarmed signal costs a fence and a load, 5 ns.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use ironwarp_rings::notify::NotifyState;
use rustix::event::EventfdFlags;

/// A thread that may wait, and the descriptor that wakes it. Any thread may fire.
pub(crate) struct WakeSignal {
    armed: NotifyState,
    eventfd: OwnedFd,
}

impl WakeSignal {
    /// Fails if the system refuses the descriptor.
    pub(crate) fn new() -> std::io::Result<Self> {
        let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
        Ok(WakeSignal { armed: NotifyState::default(), eventfd: rustix::event::eventfd(0, flags)? })
    }

    /// Requests one wake-up. Check once more for work after this call: what was published before
    /// does not wake.
    pub(crate) fn arm(&self) {
        self.armed.arm(false);
    }

    /// Cancels the request. The wake-up may be on its way already.
    pub(crate) fn disarm(&self) {
        self.armed.disarm();
    }

    /// Wakes the thread if it waits. What it waits for is published.
    #[inline]
    pub(crate) fn fire(&self) {
        if self.armed.fire(true) {
            self.write();
        }
    }

    #[cold]
    fn write(&self) {
        // A full counter means that a wake-up is pending already.
        let _ = rustix::io::write(&self.eventfd, &1u64.to_ne_bytes());
    }
}

impl AsFd for WakeSignal {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.eventfd.as_fd()
    }
}

/// A sender to a core, which wakes the core; also when it is dropped, because the core looks for
/// senders that are gone. `None`: the core never sleeps.
#[derive(Clone)]
pub(crate) struct CoreWaker(pub(crate) Option<Arc<WakeSignal>>);

impl CoreWaker {
    /// Wakes the core if it sleeps.
    #[inline(always)]
    pub(crate) fn wake(&self) {
        if let Some(signal) = &self.0 {
            signal.fire();
        }
    }
}

impl Drop for CoreWaker {
    fn drop(&mut self) {
        self.wake();
    }
}
