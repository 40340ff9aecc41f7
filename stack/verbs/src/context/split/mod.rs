//! Ends of queues that were split from their context, so that other threads post and poll without a
//! lock.
//!
//! An end is `Send` and not `Sync`: one thread uses it at a time. Its queue stays an object of its
//! context, which creates and destroys, connects and queries. An end that is dropped returns to the
//! context. It may also outlive its object or the context: its calls then fail with the error of an
//! unknown object.
//!
//! Queues that are not split keep their cost. A split queue costs the atomic operations of
//! [`Reservations`](ironwarp_rings::reservations::Reservations) and, to ring a core,
//! [`SharedDoorbell`](ironwarp_rings::doorbell::SharedDoorbell).

mod cq;
mod qp;
mod srq;

use core::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;

use ironwarp_rings::arrivals::Arrivals;

pub use cq::CqPoller;
pub(super) use qp::{CoreDoorbell, QpLink};
pub use qp::{RecvPoster, SendPoster};
pub use srq::SrqPoster;

/// What a split end and its context share.
pub(super) struct Home<E> {
    /// The object was destroyed, or its context dropped.
    closed: AtomicBool,
    /// The end, once the thread that had it dropped it.
    returned: Arrivals<E>,
}

impl<E> Default for Home<E> {
    fn default() -> Self {
        Home { closed: AtomicBool::new(false), returned: Arrivals::default() }
    }
}

impl<E> Home<E> {
    #[inline]
    pub(super) fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Acquire)
    }

    /// Returns an end to the context.
    pub(super) fn give_back(&self, end: Option<E>) {
        end.into_iter().for_each(|end| self.returned.push(end));
    }
}

/// The context's claim on a split end. The object is gone when it is dropped.
pub(super) struct Loan<E>(Arc<Home<E>>);

impl<E> Loan<E> {
    pub(super) fn new(home: &Arc<Home<E>>) -> Self {
        Loan(home.clone())
    }

    /// Makes the calls of the end fail.
    pub(super) fn close(&self) {
        self.0.closed.store(true, Ordering::Release);
    }

    /// Takes the end if it was dropped.
    pub(super) fn take_back(&self) -> Option<E> {
        self.0.returned.take()?.pop()
    }
}

impl<E> Drop for Loan<E> {
    fn drop(&mut self) {
        self.close();
    }
}
