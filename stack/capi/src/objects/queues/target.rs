//! The queue pairs that requests are posted to: those of a context, and those that were split from
//! one.

use verbs::{Context, PostError, ProtectionDomain, QueuePair, SendPoster, SendWr};

use crate::boundary::ApiError;

/// Posts to one send queue.
pub(crate) trait SendTarget {
    /// As [`Context::post_sends`].
    fn post_sends(&mut self, wrs: &[SendWr<'_>]) -> Result<(), (usize, PostError)>;
    /// As [`Context::post_all`].
    fn post_all(&mut self, wrs: &[SendWr<'_>]) -> Result<(), PostError>;
    /// Returns the protection domain of the queue pair.
    fn pd(&mut self) -> Result<ProtectionDomain, ApiError>;
}

impl SendTarget for (&mut Context, QueuePair) {
    #[inline]
    fn post_sends(&mut self, wrs: &[SendWr<'_>]) -> Result<(), (usize, PostError)> {
        self.0.post_sends(self.1, wrs)
    }

    fn post_all(&mut self, wrs: &[SendWr<'_>]) -> Result<(), PostError> {
        self.0.post_all(self.1, wrs)
    }

    fn pd(&mut self) -> Result<ProtectionDomain, ApiError> {
        Ok(self.0.query_qp(self.1)?.pd)
    }
}

/// The end of a send queue, with what its context knows of the queue pair.
pub(crate) struct SplitSends {
    pub(crate) poster: SendPoster,
    pub(crate) pd: ProtectionDomain,
}

impl SendTarget for SplitSends {
    #[inline]
    fn post_sends(&mut self, wrs: &[SendWr<'_>]) -> Result<(), (usize, PostError)> {
        self.poster.post_sends(wrs)
    }

    fn post_all(&mut self, wrs: &[SendWr<'_>]) -> Result<(), PostError> {
        self.poster.post_all(wrs)
    }

    fn pd(&mut self) -> Result<ProtectionDomain, ApiError> {
        Ok(self.pd)
    }
}
