//! Slots that carry plain values from one core to another; a mark in each slot shows whether it is filled.
//!
//! ```text
//!  value    0   1   2   3 | 4   5   6   7 | 8   9 ...
//!  slot    0   1   2   3 | 0   1   2   3 | 0   1 ...
//!  its phase once the value is there:
//!           1   1   1   1 | 0   0   0   0 | 1   1 ...
//! ```
//! Values are numbered and use the slots in a circle. The mark of a slot changes each time it is filled and lies in the same
//! cache line as the value, so a value that the reader waits for costs the latency of one line. There is no shared index: the
//! writer must know otherwise that the slot's last value was taken. A writer prefetches the slot before it computes the value,
//! because the reader has a copy of the line. After the write it demotes the line to the cache that both cores share.
//! Cost: under a nanosecond to read an empty slot; 60 to 150 ns, the latency of one line, for a value that is waited for.

use core::mem::MaybeUninit;

use ironwarp_arch::{demote_line, prefetch_write};

use crate::sync::{AtomicU8, Ordering, UnsafeCell};

/// The mark of a place that has never been filled: that of every other round.
const INITIAL_PHASE: u8 = 0;

/// A row of places: a power of two of them.
pub(super) struct PhaseRing<T> {
    slots: Box<[Slot<T>]>,
}

/// On cache lines of its own.
#[repr(align(64))]
struct Slot<T> {
    value: UnsafeCell<MaybeUninit<T>>,
    phase: AtomicU8,
}

// SAFETY: values only move through a row, and the callers of `put` and `take` promise that one thread at a time uses a slot.
unsafe impl<T: Send> Send for PhaseRing<T> {}
// SAFETY: as above.
unsafe impl<T: Send> Sync for PhaseRing<T> {}

impl<T: Copy> PhaseRing<T> {
    /// What a place takes: whole cache lines.
    #[cfg(test)]
    pub(super) const SLOT_BYTES: usize = size_of::<Slot<T>>();

    /// At least `slots` of them, all empty.
    pub(super) fn new(slots: usize) -> Self {
        let empty =
            || Slot { value: UnsafeCell::new(MaybeUninit::uninit()), phase: AtomicU8::new(INITIAL_PHASE) };
        PhaseRing { slots: (0..slots.next_power_of_two()).map(|_| empty()).collect() }
    }

    /// Fills a place, and hands over with it whatever was done before.
    ///
    /// # Safety
    /// One thread at a time fills, each number once, in order; and it has seen, by way of something that happened after it, that
    /// the last value of this place was taken.
    #[inline(always)]
    pub(super) unsafe fn put(&self, number: u32, value: T) {
        let slot = self.slot(number);
        // SAFETY: the value that was here has been taken, and nobody looks at the place before it is marked.
        slot.value.with_mut(|slot| unsafe { (*slot).write(value) });
        slot.phase.store(self.phase(number), Ordering::Release);
        demote_line(slot);
    }

    /// The place of this number is filled soon, by this core: fetches its line meanwhile.
    #[inline(always)]
    pub(super) fn prefetch(&self, number: u32) {
        prefetch_write(self.slot(number));
    }

    /// Takes a value, with everything that was done before it was put there, if it is there.
    ///
    /// # Safety
    /// One thread at a time takes, each number once, in order, and nobody fills a place again before its value was taken.
    #[inline(always)]
    pub(super) unsafe fn take(&self, number: u32) -> Option<T> {
        let slot = self.slot(number);
        if slot.phase.load(Ordering::Acquire) != self.phase(number) {
            return None;
        }
        // SAFETY: the mark says that the value of this number was written, and it stays until it has been taken, which is now.
        Some(slot.value.with(|slot| unsafe { (*slot).assume_init() }))
    }

    /// Whether the value of this number is there.
    #[inline(always)]
    pub(super) fn is_ready(&self, number: u32) -> bool {
        self.slot(number).phase.load(Ordering::Acquire) == self.phase(number)
    }

    /// What a place is marked with when the value of this number is there: the other than in the round before.
    #[inline(always)]
    fn phase(&self, number: u32) -> u8 {
        u8::from(number & self.slots.len() as u32 == 0)
    }

    #[inline(always)]
    fn slot(&self, number: u32) -> &Slot<T> {
        let at = number as usize & (self.slots.len() - 1);
        debug_assert!(at < self.slots.len());
        // SAFETY: there is at least one place and a power of two of them, so the mask stays inside.
        unsafe { self.slots.get_unchecked(at) }
    }
}
