//! One level of the wheel: 256 slots, each the head of a list, and a bitmap of the occupied ones.

use super::NIL;

pub(super) const SLOTS: usize = 256;

pub(super) struct Level {
    heads: Box<[u32; SLOTS]>,
    occupied: [u64; 4],
    /// A slot covers 2^shift ticks.
    shift: u32,
}

#[expect(clippy::indexing_slicing, reason = "a u8 is below the 256 slots, and word indices are below 4")]
impl Level {
    pub(super) fn new(shift: u32) -> Self {
        Level { heads: Box::new([NIL; SLOTS]), occupied: [0; 4], shift }
    }

    pub(super) fn head(&self, slot: u8) -> Option<u32> {
        let head = self.heads[usize::from(slot)];
        (head != NIL).then_some(head)
    }

    /// Makes an id the head of a slot's list and returns the previous head.
    pub(super) fn push(&mut self, slot: u8, id: u32) -> u32 {
        let before = self.heads[usize::from(slot)];
        self.set_head(slot, id);
        before
    }

    pub(super) fn set_head(&mut self, slot: u8, id: u32) {
        self.heads[usize::from(slot)] = id;
        let (word, bit) = (usize::from(slot >> 6), 1u64 << (slot & 63));
        if id == NIL {
            self.occupied[word] &= !bit;
        } else {
            self.occupied[word] |= bit;
        }
    }

    /// Returns the first tick after `tick` at which an occupied slot of this level is due.
    #[inline(never)]
    pub(super) fn next_tick(&self, tick: u64) -> Option<u64> {
        let rotation = tick >> self.shift;
        let current = (rotation % SLOTS as u64) as u8;
        let distance = self.distance_to_occupied(current)?;
        Some((rotation + u64::from(distance)) << self.shift)
    }

    /// Returns the distance from `current` to the next occupied slot, 1 to 256. `current` itself is
    /// a full rotation away.
    fn distance_to_occupied(&self, current: u8) -> Option<u16> {
        let first = current.wrapping_add(1);
        let (start, offset) = (usize::from(first >> 6), u32::from(first & 63));
        let from = |slot: u16| (slot + 256 - u16::from(first)) % 256 + 1;
        let masked = self.occupied[start] & (u64::MAX << offset);
        if masked != 0 {
            return Some(from((start as u16) * 64 + masked.trailing_zeros() as u16));
        }
        (1..=4)
            .map(|step| (start + step) % 4)
            .find(|&word| self.occupied[word] != 0)
            .map(|word| from((word as u16) * 64 + self.occupied[word].trailing_zeros() as u16))
    }
}
