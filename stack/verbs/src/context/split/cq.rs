//! The end of a completion queue that polls.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use ironwarp_iwarp::Completion;
use ironwarp_rings::block::Shared;
use ironwarp_rings::notify::NotifyState;

use super::Home;
use crate::context::cq::CqEnd;
use crate::error::VerbsError;
use crate::objects::CompletionQueue;
use crate::shared::CqReservations;

/// Polls a completion queue from any one thread; see
/// [`Context::split_cq`](crate::Context::split_cq).
///
/// ```compile_fail
/// fn shared_between_threads<T: Sync>() {}
/// shared_between_threads::<ironwarp::CqPoller>();
/// ```
pub struct CqPoller {
    cq: CompletionQueue,
    /// There until it is dropped.
    end: Option<CqEnd>,
    home: Arc<Home<CqEnd>>,
    reservations: Arc<CqReservations>,
    armed: Shared<NotifyState>,
    eventfd: Arc<OwnedFd>,
}

impl CqPoller {
    pub(in crate::context) fn new(
        cq: CompletionQueue,
        end: CqEnd,
        home: Arc<Home<CqEnd>>,
        reservations: Arc<CqReservations>,
        (armed, eventfd): (Shared<NotifyState>, Arc<OwnedFd>),
    ) -> Self {
        CqPoller { cq, end: Some(end), home, reservations, armed, eventfd }
    }

    /// Returns the queue's handle in its context.
    pub fn cq(&self) -> CompletionQueue {
        self.cq
    }

    /// Moves completions into `into`, oldest first for each queue pair, and returns their number.
    ///
    /// Completions of queue pairs that are destroyed stay until they are reaped.
    ///
    /// # Errors
    ///
    /// [`VerbsError::UnknownCompletionQueue`] if the queue was destroyed, or its context dropped,
    /// the cores have ended what was posted, and every completion is reaped.
    #[inline]
    pub fn poll(&mut self, into: &mut [Completion]) -> Result<usize, VerbsError> {
        let reaped = self.reap(into);
        if reaped == 0 && self.home.is_closed() { self.poll_closed(into) } else { Ok(reaped) }
    }

    #[inline]
    fn reap(&mut self, into: &mut [Completion]) -> usize {
        let reaped = self.end.as_mut().map_or(0, |end| end.reap(into));
        if reaped > 0 {
            self.reservations.release(reaped as u32);
        }
        reaped
    }

    #[cold]
    fn poll_closed(&mut self, into: &mut [Completion]) -> Result<usize, VerbsError> {
        // Read before the last poll, which then finds all that the cores have written.
        let is_abandoned = self.end.as_ref().is_none_or(CqEnd::is_abandoned);
        match self.reap(into) {
            0 if is_abandoned => Err(VerbsError::UnknownCompletionQueue),
            reaped => Ok(reaped),
        }
    }

    /// Requests one event at the queue's descriptor for its next completion, or its next solicited
    /// or failed one.
    ///
    /// Poll once more after this call: earlier completions raise no event.
    pub fn arm(&self, solicited_only: bool) {
        self.armed.arm(solicited_only);
    }
}

impl AsFd for CqPoller {
    /// Returns the descriptor that becomes readable once for each arming. Read its eight bytes to
    /// reset it.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.eventfd.as_fd()
    }
}

impl Drop for CqPoller {
    fn drop(&mut self) {
        self.home.give_back(self.end.take());
    }
}
