//! Values that threads hand to a core now and then: a list behind a lock, and a flag that shows
//! whether it is empty.
//!
//! The flag is set after a value is in the list, and cleared before the list is taken. So a value
//! that is in the list has its flag set, or is taken by the call that cleared it. Cost: one load
//! when nothing has arrived; the lock is held for a push or a swap.

use crate::sync::{AtomicBool, Mutex, Ordering, lock};

/// Values that have arrived and were not taken.
#[derive(Debug)]
pub struct Arrivals<T> {
    is_waiting: AtomicBool,
    values: Mutex<Vec<T>>,
}

impl<T> Default for Arrivals<T> {
    fn default() -> Self {
        Arrivals { is_waiting: AtomicBool::new(false), values: Mutex::new(Vec::new()) }
    }
}

impl<T> Arrivals<T> {
    /// Adds a value. Any thread.
    pub fn push(&self, value: T) {
        lock(&self.values).push(value);
        self.is_waiting.store(true, Ordering::Release);
    }

    /// Returns whether a value may wait. A value whose [`Arrivals::push`] has returned waits until
    /// it is taken.
    #[inline]
    pub fn is_waiting(&self) -> bool {
        self.is_waiting.load(Ordering::Relaxed)
    }

    /// Takes the values, oldest first, or `None` if there are none.
    #[inline]
    pub fn take(&self) -> Option<Vec<T>> {
        self.is_waiting().then(|| self.take_all())
    }

    #[cold]
    #[inline(never)]
    fn take_all(&self) -> Vec<T> {
        self.is_waiting.store(false, Ordering::Relaxed);
        core::mem::take(&mut *lock(&self.values))
    }
}
