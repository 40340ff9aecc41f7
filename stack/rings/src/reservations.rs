//! The account of a completion queue's entries, if several threads or cores reserve some.
//!
//! Depth and reservations are one word, so that no reservation exceeds a depth that is being
//! lowered. The thread that polls frees slots of the completion ring, then releases their
//! reservations. Releases and reservations are read-modify-writes with release and acquire order.
//! So a core that completes a request finds the slot that the request's reservation stands for,
//! whichever thread reserved it. Cost: one read-modify-write to reserve and one to release.

use crate::sync::{AtomicU64, Ordering};

/// Entries that are reserved, and the depth. Any thread.
pub struct Reservations(AtomicU64);

const DEPTH_SHIFT: u32 = 32;

impl Reservations {
    /// No reservation.
    pub fn new(depth: u32) -> Self {
        Reservations(AtomicU64::new(u64::from(depth) << DEPTH_SHIFT))
    }

    /// Reserves an entry. Returns whether there was one.
    pub fn try_reserve(&self) -> bool {
        let more = |word: u64| ((word as u32) < (word >> DEPTH_SHIFT) as u32).then(|| word + 1);
        self.0.fetch_update(Ordering::Acquire, Ordering::Relaxed, more).is_ok()
    }

    /// Releases reservations.
    pub fn release(&self, count: u32) {
        debug_assert!(count <= self.reserved());
        self.0.fetch_sub(count.into(), Ordering::Release);
    }

    /// Returns the number of entries that are reserved.
    pub fn reserved(&self) -> u32 {
        self.0.load(Ordering::Relaxed) as u32
    }

    /// Takes over the reservations of one thread, before others reserve.
    pub fn init(&self, reserved: u32, depth: u32) {
        self.0.store(u64::from(depth) << DEPTH_SHIFT | u64::from(reserved), Ordering::Release);
    }

    /// Changes the depth. Reservations above it stay.
    pub fn set_depth(&self, depth: u32) {
        let with = |word: u64| Some(u64::from(depth) << DEPTH_SHIFT | u64::from(word as u32));
        let _ = self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, with);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn no_more_entries_are_reserved_than_the_depth_allows() {
        let entries = Reservations::new(2);
        assert_eq!([(); 3].map(|()| entries.try_reserve()), [true, true, false]);
        entries.set_depth(1);
        entries.release(1);
        assert_eq!((entries.try_reserve(), entries.reserved()), (false, 1));
        entries.set_depth(2);
        assert_eq!((entries.try_reserve(), entries.reserved()), (true, 2));
    }

    #[test]
    fn the_account_of_one_thread_is_taken_over() {
        let entries = Reservations::new(8);
        entries.init(3, 4);
        assert_eq!([(); 2].map(|()| entries.try_reserve()), [true, false]);
    }
}
