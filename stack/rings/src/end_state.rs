//! What one end of a ring tells the other: how far it has come, and that it has gone.

use core::cell::Cell;
use core::marker::PhantomData;

use crate::sync::{AtomicBool, AtomicU32, Ordering};

/// Keeps an end from being used by two threads at once, though not from moving between them.
pub(crate) type NotSync = PhantomData<Cell<()>>;

/// The words that one end writes and the other reads. They belong on a cache line of their own.
pub(crate) struct EndState {
    index: AtomicU32,
    dropped: AtomicBool,
}

impl EndState {
    pub(crate) fn new() -> Self {
        EndState { index: AtomicU32::new(0), dropped: AtomicBool::new(false) }
    }

    /// Hands over every slot before `index`, with what was done to it.
    #[inline(always)]
    pub(crate) fn publish(&self, index: u32) {
        self.index.store(index, Ordering::Release);
    }

    /// Takes over every slot before the answer.
    #[inline(always)]
    pub(crate) fn published(&self) -> u32 {
        self.index.load(Ordering::Acquire)
    }

    /// The last thing an end does.
    pub(crate) fn mark_dropped(&self) {
        self.dropped.store(true, Ordering::Release);
    }

    /// Whether the end has left. If so, the next [`EndState::published`] is its last word.
    #[inline]
    pub(crate) fn is_dropped(&self) -> bool {
        self.dropped.load(Ordering::Acquire)
    }
}
