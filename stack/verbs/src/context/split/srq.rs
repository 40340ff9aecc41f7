//! The end of a shared receive queue that posts.

use std::sync::Arc;

use super::Home;
use crate::context::srq::SrqEnd;
use crate::error::PostError;
use crate::objects::SharedReceiveQueue;
use crate::wr::RecvWr;

/// Posts receives to a shared receive queue from any one thread; see
/// [`Context::split_srq`](crate::Context::split_srq).
///
/// It costs what [`Context::post_srq_recv`](crate::Context::post_srq_recv) costs.
///
/// ```compile_fail
/// fn shared_between_threads<T: Sync>() {}
/// shared_between_threads::<ironwarp::SrqPoster>();
/// ```
pub struct SrqPoster {
    srq: SharedReceiveQueue,
    /// There until it is dropped.
    end: Option<SrqEnd>,
    home: Arc<Home<SrqEnd>>,
}

impl SrqPoster {
    pub(in crate::context) fn new(srq: SharedReceiveQueue, end: SrqEnd, home: Arc<Home<SrqEnd>>) -> Self {
        SrqPoster { srq, end: Some(end), home }
    }

    /// Returns the queue's handle in its context.
    pub fn srq(&self) -> SharedReceiveQueue {
        self.srq
    }

    /// Posts one receive for the first queue pair that needs it. A receive that is posted while the
    /// queue is destroyed is dropped.
    ///
    /// # Errors
    ///
    /// - [`PostError::UnknownSharedReceiveQueue`] if the queue was destroyed, or its context
    ///   dropped.
    /// - [`PostError::TooManySges`] if the request has more elements than allowed.
    /// - [`PostError::QueueFull`] if the queue has no free slot.
    #[inline]
    pub fn post_recv(&mut self, wr: &RecvWr<'_>) -> Result<(), PostError> {
        let end = self.end.as_mut().filter(|_| !self.home.is_closed());
        end.ok_or(PostError::UnknownSharedReceiveQueue)?.post(wr)
    }
}

impl Drop for SrqPoster {
    fn drop(&mut self) {
        self.home.give_back(self.end.take());
    }
}
