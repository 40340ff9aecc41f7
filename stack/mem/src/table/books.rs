//! Who owns which slot: the part of the table behind the lock, which no core takes on its data path.

use super::pins::Pins;
use super::tag::Draws;
use arrayvec::ArrayVec;
use std::collections::VecDeque;

/// What keeps a region's memory alive. Regions registered raw have none.
pub(crate) type Owner = Option<Box<dyn Send>>;

/// Graves emptied per call: enough that a table in steady use never fills with them, few enough that no caller pays
/// for a thousand others.
pub(crate) const COLLECT_MAX: usize = 4;

/// Free slots, owners, and revoked regions that wait for quiescence. Sized at the start.
pub(crate) struct Books {
    /// First in, first out: a slot rests as long as possible, and its last tag with it.
    free: VecDeque<u32>,
    owners: Box<[Owner]>,
    /// In the order of their epochs.
    graves: VecDeque<Grave>,
    regions_max: usize,
    pub(crate) pins: Pins,
    pub(crate) draws: Draws,
}

struct Grave {
    slot: u32,
    /// Quiescent once no core is in an earlier epoch.
    target: u64,
}

/// A region that nobody can reach any more.
pub(crate) struct Remains {
    pub slot: u32,
    /// To be dropped after the lock is released: it may run the application's code.
    pub owner: Owner,
}

impl Books {
    /// Books for `slots` slots of which `regions_max` may be in use at once.
    pub(crate) fn new(slots: u32, regions_max: usize, pins: Pins, mut draws: Draws) -> Self {
        Self {
            free: mixed(slots, &mut draws),
            owners: (0..slots).map(|_| None).collect(),
            graves: VecDeque::with_capacity(slots as usize),
            regions_max,
            pins,
            draws,
        }
    }

    /// Regions that exist or wait in the graveyard.
    pub(crate) fn in_use(&self) -> usize {
        self.owners.len() - self.free.len()
    }

    /// The slot that the next registration gets.
    pub(crate) fn next_slot(&self) -> Option<u32> {
        self.free.front().copied()
    }

    /// A slot for `owner`, or the owner back if the limit is reached.
    pub(crate) fn take_slot(&mut self, owner: Owner) -> Result<u32, Owner> {
        if self.in_use() >= self.regions_max {
            return Err(owner);
        }
        let Some(slot) = self.free.pop_front() else { return Err(owner) };
        self.owners[slot as usize] = owner;
        Ok(slot)
    }

    /// Puts a revoked region aside until no core is in an epoch before `target`.
    pub(crate) fn bury(&mut self, slot: u32, target: u64) {
        debug_assert!(self.graves.back().is_none_or(|last| last.target < target));
        self.graves.push_back(Grave { slot, target });
    }

    /// Takes out some of the regions that are quiescent, given the oldest epoch that a core is in.
    pub(crate) fn exhume(&mut self, oldest: u64) -> ArrayVec<Remains, COLLECT_MAX> {
        let mut taken = ArrayVec::new();
        while !taken.is_full() && self.graves.front().is_some_and(|first| first.target <= oldest) {
            let Some(grave) = self.graves.pop_front() else { break };
            self.pins.release(grave.slot);
            taken.push(Remains { slot: grave.slot, owner: self.owners[grave.slot as usize].take() });
            self.free.push_back(grave.slot);
        }
        taken
    }
}

/// The numbers below `count` in an order that the secret decides.
fn mixed(count: u32, draws: &mut Draws) -> VecDeque<u32> {
    let mut list: Vec<u32> = (0..count).collect();
    for end in (1..count).rev() {
        list.swap(end as usize, draws.below(end + 1) as usize);
    }
    list.into()
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::table::Origin;

    fn books(slots: u32) -> Books {
        Books::new(slots, slots as usize, Pins::new(slots, Origin::Address), Draws::new([5, 6]))
    }

    #[test]
    fn a_slot_rests_until_all_others_had_their_turn() {
        let mut books = books(8);
        let first = books.take_slot(None).ok();
        books.bury(first.unwrap(), 2);
        assert_eq!(books.exhume(2).len(), 1);
        for _ in 0..7 {
            assert_ne!(books.take_slot(None).ok(), first);
        }
        assert_eq!(books.take_slot(None).ok(), first);
    }

    #[test]
    fn the_limit_counts_regions_in_the_graveyard_too() {
        let mut books = Books::new(4, 1, Pins::new(4, Origin::Address), Draws::new([5, 6]));
        let slot = books.take_slot(None).ok().unwrap();
        assert!(books.take_slot(None).is_err());
        books.bury(slot, 2);
        assert!(books.take_slot(None).is_err());
        assert_eq!(books.exhume(1).len(), 0);
        assert_eq!(books.exhume(2).len(), 1);
        assert!(books.take_slot(None).is_ok());
    }

    #[test]
    fn one_call_empties_a_bounded_number_of_graves() {
        let mut books = books(16);
        for target in 1..=6 {
            let slot = books.take_slot(None).ok().unwrap();
            books.bury(slot, target);
        }
        assert_eq!(books.exhume(u64::MAX).len(), COLLECT_MAX);
        assert_eq!(books.exhume(u64::MAX).len(), 2);
        assert_eq!(books.in_use(), 0);
    }
}
