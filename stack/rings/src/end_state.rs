//! What one end of a ring publishes to the other: its index, and that it was dropped.

use core::cell::Cell;
use core::marker::PhantomData;

use crate::sync::{AtomicBool, AtomicU32, Ordering};

/// Makes an end `!Sync` but leaves it `Send`.
pub(crate) type NotSync = PhantomData<Cell<()>>;

/// The words that one end writes and the other reads. The user pads it to a cache line.
pub(crate) struct EndState {
    index: AtomicU32,
    dropped: AtomicBool,
}

impl EndState {
    pub(crate) fn new() -> Self {
        EndState { index: AtomicU32::new(0), dropped: AtomicBool::new(false) }
    }

    /// Publishes all slots before `index` with their contents.
    #[inline(always)]
    pub(crate) fn publish(&self, index: u32) {
        self.index.store(index, Ordering::Release);
    }

    /// Returns the published index; the slots before it are visible to the caller.
    #[inline(always)]
    pub(crate) fn published(&self) -> u32 {
        self.index.load(Ordering::Acquire)
    }

    /// Marks the end as dropped. Nothing may be published after this.
    pub(crate) fn mark_dropped(&self) {
        self.dropped.store(true, Ordering::Release);
    }

    /// Returns whether the end was dropped. If so, the next [`EndState::published`] returns its
    /// final index.
    #[inline]
    pub(crate) fn is_dropped(&self) -> bool {
        self.dropped.load(Ordering::Acquire)
    }
}
