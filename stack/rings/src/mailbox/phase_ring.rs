//! Slots that carry plain values from one core to another; a mark in each slot shows whether it is
//! filled.
//!
//! ```text
//!  value    0   1   2   3 | 4   5   6   7 | 8   9 ...
//!  slot    0   1   2   3 | 0   1   2   3 | 0   1 ...
//!  its phase once the value is there:
//!           1   1   1   1 | 0   0   0   0 | 1   1 ...
//! ```
//! Values are numbered and use the slots in a circle. The mark of a slot (its phase) changes each
//! time it is filled. The mark lies in the same cache line as the value, so a value that the reader
//! waits for costs the latency of one line. There is no shared index: the writer must know by other
//! means that the slot's last value was taken. A writer prefetches the slot before it computes the
//! value, because the reader has a copy of the line. After the write it demotes the line to the
//! cache that both cores share. Cost: under a nanosecond to read an empty slot; 60 to 150 ns, the
//! latency of one line, for a value that is waited for.

use core::mem::MaybeUninit;

use ironwarp_arch::{demote_line, prefetch_write};

use crate::sync::{AtomicU8, Ordering, UnsafeCell};

/// The mark of a slot that was never filled. It equals the mark of every second round.
const INITIAL_PHASE: u8 = 0;

/// The slots; their number is a power of two.
pub(super) struct PhaseRing<T> {
    slots: Box<[Slot<T>]>,
}

/// A value and its mark, on separate cache lines from other slots.
#[repr(align(64))]
struct Slot<T> {
    value: UnsafeCell<MaybeUninit<T>>,
    phase: AtomicU8,
}

// SAFETY: the ring only moves values, and the callers of `put` and `take` promise that one thread
// at a time uses a slot.
unsafe impl<T: Send> Send for PhaseRing<T> {}
// SAFETY: as above.
unsafe impl<T: Send> Sync for PhaseRing<T> {}

impl<T: Copy> PhaseRing<T> {
    /// The size of a slot: whole cache lines.
    #[cfg(test)]
    pub(super) const SLOT_BYTES: usize = size_of::<Slot<T>>();

    /// Creates a ring of at least `slots` empty slots.
    pub(super) fn new(slots: usize) -> Self {
        let empty =
            || Slot { value: UnsafeCell::new(MaybeUninit::uninit()), phase: AtomicU8::new(INITIAL_PHASE) };
        PhaseRing { slots: (0..slots.next_power_of_two()).map(|_| empty()).collect() }
    }

    /// Fills a slot with release ordering.
    ///
    /// # Safety
    /// One thread at a time calls this, once for each number, in order. The taking of the slot's
    /// last value must happen before this call.
    #[inline(always)]
    pub(super) unsafe fn put(&self, number: u32, value: T) {
        let slot = self.slot(number);
        // SAFETY: the slot's last value was taken, and the reader does not access the slot before
        // it is marked.
        slot.value.with_mut(|slot| unsafe { (*slot).write(value) });
        slot.phase.store(self.phase(number), Ordering::Release);
        demote_line(slot);
    }

    /// Prefetches the slot of `number` for a [`Self::put`] on this core.
    #[inline(always)]
    pub(super) fn prefetch(&self, number: u32) {
        prefetch_write(self.slot(number));
    }

    /// Takes the value of `number` with acquire ordering, if it is there.
    ///
    /// # Safety
    /// One thread at a time calls this, once for each number, in order. A slot is not filled again
    /// before its value was taken.
    #[inline(always)]
    pub(super) unsafe fn take(&self, number: u32) -> Option<T> {
        let slot = self.slot(number);
        if slot.phase.load(Ordering::Acquire) != self.phase(number) {
            return None;
        }
        // SAFETY: the mark shows that the value of this number was written. It stays until this
        // call takes it.
        Some(slot.value.with(|slot| unsafe { (*slot).assume_init() }))
    }

    /// Returns whether the value of `number` is there.
    #[inline(always)]
    pub(super) fn is_ready(&self, number: u32) -> bool {
        self.slot(number).phase.load(Ordering::Acquire) == self.phase(number)
    }

    /// Returns the mark of a slot that holds the value of `number`. It alternates from round to
    /// round.
    #[inline(always)]
    fn phase(&self, number: u32) -> u8 {
        u8::from(number & self.slots.len() as u32 == 0)
    }

    #[inline(always)]
    fn slot(&self, number: u32) -> &Slot<T> {
        let at = number as usize & self.slots.len().wrapping_sub(1);
        debug_assert!(at < self.slots.len());
        // SAFETY: the number of slots is a power of two and at least one, so the masked index is in
        // range.
        unsafe { self.slots.get_unchecked(at) }
    }
}
