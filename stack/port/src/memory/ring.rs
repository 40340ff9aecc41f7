//! The frames that wait in a receive queue.
//!
//! A ring whose number of slots is a power of two: a slot is found with a mask, where `VecDeque`
//! compares and calls.

use super::MemoryFrame;

/// A queue of a fixed number of frames.
pub(super) struct Ring {
    slots: Box<[Option<MemoryFrame>]>,
    head: usize,
    len: usize,
    depth: usize,
}

impl Ring {
    /// Creates a ring for `depth` frames.
    pub(super) fn new(depth: usize) -> Self {
        let slots = (0..depth.next_power_of_two()).map(|_| None).collect();
        Ring { slots, head: 0, len: 0, depth }
    }

    #[inline(always)]
    pub(super) fn len(&self) -> usize {
        self.len
    }

    #[inline(always)]
    pub(super) fn has_room(&self) -> bool {
        self.len < self.depth
    }

    /// Appends a frame. The ring must have room.
    #[inline(always)]
    pub(super) fn push_back(&mut self, frame: MemoryFrame) {
        debug_assert!(self.has_room());
        if let Some(slot) = self.slots.get_mut(self.place_after(self.len)) {
            *slot = Some(frame);
            self.len = self.len.wrapping_add(1);
        }
    }

    /// Removes the oldest frame.
    #[inline(always)]
    pub(super) fn pop_front(&mut self) -> Option<MemoryFrame> {
        let frame = self.slots.get_mut(self.head)?.take()?;
        self.head = self.place_after(1);
        // The frame was counted.
        self.len = self.len.wrapping_sub(1);
        Some(frame)
    }

    /// Returns the slot that is `frames` after the head. Indices wrap at the number of slots, which
    /// is a power of two.
    #[inline(always)]
    fn place_after(&self, frames: usize) -> usize {
        self.head.wrapping_add(frames) & self.slots.len().wrapping_sub(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Frame;

    #[test]
    fn frames_leave_in_order_and_a_full_ring_has_no_room() {
        for depth in [1, 3, 4] {
            let mut ring = Ring::new(depth);
            for round in 0..7u8 {
                for n in 0..depth as u8 {
                    assert!(ring.has_room());
                    ring.push_back(MemoryFrame::detached(&[round, n], 2));
                }
                assert_eq!((ring.len(), ring.has_room()), (depth, false));
                for n in 0..depth as u8 {
                    assert_eq!(ring.pop_front().map(|frame| frame.bytes().to_vec()), Some(vec![round, n]));
                }
                assert!(ring.pop_front().is_none() && ring.len() == 0);
            }
        }
        assert!(!Ring::new(0).has_room());
    }
}
