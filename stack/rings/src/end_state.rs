//! What one end of a ring publishes to the other: its index, and that it was dropped.

use core::cell::Cell;
use core::marker::PhantomData;

use crate::sync::{AtomicU32, Ordering};

/// Makes an end `!Sync` but leaves it `Send`.
pub(crate) type NotSync = PhantomData<Cell<()>>;

/// The words that one end writes and the other reads. The user pads it to a cache line.
#[repr(C)]
pub(crate) struct EndState {
    index: AtomicU32,
    /// Not 0: the end was dropped.
    dropped: AtomicU32,
}

impl EndState {
    pub(crate) fn new() -> Self {
        EndState { index: AtomicU32::new(0), dropped: AtomicU32::new(0) }
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

    /// Marks the end as there, and returns its last index, from which it goes on.
    pub(crate) fn attach(&self) -> u32 {
        self.dropped.store(0, Ordering::Release);
        self.published()
    }

    /// Marks the end as dropped. Nothing may be published after this.
    pub(crate) fn mark_dropped(&self) {
        self.dropped.store(1, Ordering::Release);
    }

    /// Returns whether the end was dropped. If so, the next [`EndState::published`] returns its
    /// final index.
    #[inline]
    pub(crate) fn is_dropped(&self) -> bool {
        self.dropped.load(Ordering::Acquire) != 0
    }
}
