//! What a disk still does for commands that have ended: requests that it did not answer in time.
//!
//! All cores share the list of a namespace. A Write that ended without an answer of the disk may
//! reach the medium at any later time, and would replace what a later Write has written. So nothing
//! changes those bytes until it is over.
//!
//! Asking costs one load while the list is empty, which is always, except while a disk hangs.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// First byte and bytes of a request. A request that changes nothing has no bytes.
pub type Extent = (u64, u64);

/// The late requests of a namespace.
#[derive(Debug, Default)]
pub struct LateRequests {
    count: AtomicUsize,
    extents: Mutex<Vec<Extent>>,
}

impl LateRequests {
    /// Returns how many there are.
    #[inline]
    pub fn count(&self) -> usize {
        self.count.load(Ordering::Acquire)
    }

    /// Adds one. Call it before the response of its command is posted.
    pub fn add(&self, extent: Extent) {
        let mut extents = self.lock();
        extents.push(extent);
        self.count.store(extents.len(), Ordering::Release);
    }

    /// Removes one that is over.
    pub fn remove(&self, extent: Extent) {
        let mut extents = self.lock();
        if let Some(at) = extents.iter().position(|one| *one == extent) {
            extents.swap_remove(at);
        }
        self.count.store(extents.len(), Ordering::Release);
    }

    /// Returns whether one may still change some of these bytes.
    pub fn may_change(&self, (offset, bytes): Extent) -> bool {
        let end = offset.saturating_add(bytes);
        self.lock().iter().any(|(first, length)| *first < end && offset < first.saturating_add(*length))
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Extent>> {
        self.extents.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_free_when_the_last_request_for_them_is_over() {
        let late = LateRequests::default();
        assert!(late.count() == 0 && !late.may_change((0, u64::MAX)));
        for extent in [(4096, 8192), (4096, 8192), (0, 0)] {
            late.add(extent);
        }
        assert_eq!(late.count(), 3);
        for (extent, expected) in [
            ((0, 4096), false),
            ((0, 4097), true),
            ((12_287, 1), true),
            ((12_288, 1), false),
            ((5000, 0), true),
        ] {
            // A request of no bytes touches what is around it: it changes nothing, and may wait.
            assert_eq!(late.may_change(extent), expected, "{extent:?}");
        }
        late.remove((4096, 8192));
        assert!(late.may_change((4096, 1)), "the other one");
        late.remove((4096, 8192));
        late.remove((1, 1));
        assert!(!late.may_change((0, u64::MAX)) && late.count() == 1);
    }
}
