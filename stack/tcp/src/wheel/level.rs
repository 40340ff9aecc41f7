//! One level of the wheel: 256 places, each the head of a list, and a bit for each that is occupied.

use super::NIL;

pub(super) const PLACES: usize = 256;

pub(super) struct Level {
    heads: Box<[u32; PLACES]>,
    occupied: [u64; 4],
    /// A place covers 2^shift ticks.
    shift: u32,
}

impl Level {
    pub(super) fn new(shift: u32) -> Self {
        Level { heads: Box::new([NIL; PLACES]), occupied: [0; 4], shift }
    }

    pub(super) fn head(&self, place: u8) -> Option<u32> {
        let head = self.heads[usize::from(place)];
        (head != NIL).then_some(head)
    }

    /// Puts an id at the head of a place and answers the head before it.
    pub(super) fn push(&mut self, place: u8, id: u32) -> u32 {
        let before = self.heads[usize::from(place)];
        self.set_head(place, id);
        before
    }

    pub(super) fn set_head(&mut self, place: u8, id: u32) {
        self.heads[usize::from(place)] = id;
        let (word, bit) = (usize::from(place >> 6), 1u64 << (place & 63));
        if id == NIL {
            self.occupied[word] &= !bit;
        } else {
            self.occupied[word] |= bit;
        }
    }

    /// The first tick after `tick` at which an occupied place of this level comes up.
    #[inline(never)]
    pub(super) fn next_tick(&self, tick: u64) -> Option<u64> {
        let turn = tick >> self.shift;
        let here = (turn % PLACES as u64) as u8;
        let distance = self.distance_to_occupied(here)?;
        Some((turn + u64::from(distance)) << self.shift)
    }

    /// How many places after `here` the next occupied one is, 1 to 256: `here` itself is a whole turn away.
    fn distance_to_occupied(&self, here: u8) -> Option<u16> {
        let first = here.wrapping_add(1);
        let (start, offset) = (usize::from(first >> 6), u32::from(first & 63));
        let from = |place: u16| (place + 256 - u16::from(first)) % 256 + 1;
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
