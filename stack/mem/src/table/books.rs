//! Who owns which slot: the part of the table behind the lock, which no core takes on its data path.

use super::pins::Pins;
use super::tag::Draws;
use arrayvec::ArrayVec;
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

/// What keeps a region's memory alive. Regions registered raw have none.
pub(crate) type Owner = Option<Box<dyn Send>>;

/// What a slot in use stands for: what is kept alive, and whom it counts for, where somebody counts.
#[derive(Default)]
pub(crate) struct Kept {
    pub owner: Owner,
    pub tenant: Option<Arc<Tenant>>,
}

impl Kept {
    pub(crate) fn has_room(&self) -> bool {
        self.tenant.as_ref().is_none_or(|tenant| tenant.has_room())
    }
}

/// One of those who share a table: how many regions it has, those in the graveyard included, and how many it may have.
/// Changed within the lock alone.
pub(crate) struct Tenant {
    held: AtomicU32,
    pub(crate) regions_max: u32,
}

impl Tenant {
    pub(crate) fn new(regions_max: u32) -> Self {
        Self { held: AtomicU32::new(0), regions_max }
    }

    fn has_room(&self) -> bool {
        self.held.load(Ordering::Relaxed) < self.regions_max
    }

    fn change(&self, by: i32) {
        self.held.store(self.held.load(Ordering::Relaxed).saturating_add_signed(by), Ordering::Relaxed);
    }
}

/// Graves emptied per call: enough that a table in steady use never fills with them, few enough that no caller pays
/// for a thousand others.
pub(crate) const COLLECT_MAX: usize = 4;

/// Free slots, owners, and revoked regions that wait for quiescence. Sized at the start.
pub(crate) struct Books {
    /// First in, first out: a slot rests as long as possible, and its last tag with it.
    free: VecDeque<u32>,
    kept: Box<[Kept]>,
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
            kept: (0..slots).map(|_| Kept::default()).collect(),
            graves: VecDeque::with_capacity(slots as usize),
            regions_max,
            pins,
            draws,
        }
    }

    /// Regions that exist or wait in the graveyard.
    pub(crate) fn in_use(&self) -> usize {
        self.kept.len() - self.free.len()
    }

    /// The slot that the next registration gets.
    pub(crate) fn next_slot(&self) -> Option<u32> {
        self.free.front().copied()
    }

    /// A slot for what is to be kept, or that back if the limit of all or of its tenant is reached.
    pub(crate) fn take_slot(&mut self, kept: Kept) -> Result<u32, Kept> {
        if self.in_use() >= self.regions_max || !kept.has_room() {
            return Err(kept);
        }
        let Some(slot) = self.free.pop_front() else { return Err(kept) };
        if let Some(tenant) = &kept.tenant {
            tenant.change(1);
        }
        self.kept[slot as usize] = kept;
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
            let Kept { owner, tenant } = core::mem::take(&mut self.kept[grave.slot as usize]);
            if let Some(tenant) = tenant {
                tenant.change(-1);
            }
            taken.push(Remains { slot: grave.slot, owner });
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
        let first = books.take_slot(Kept::default()).ok();
        books.bury(first.unwrap(), 2);
        assert_eq!(books.exhume(2).len(), 1);
        for _ in 0..7 {
            assert_ne!(books.take_slot(Kept::default()).ok(), first);
        }
        assert_eq!(books.take_slot(Kept::default()).ok(), first);
    }

    #[test]
    fn the_limit_counts_regions_in_the_graveyard_too() {
        let mut books = Books::new(4, 1, Pins::new(4, Origin::Address), Draws::new([5, 6]));
        let slot = books.take_slot(Kept::default()).ok().unwrap();
        assert!(books.take_slot(Kept::default()).is_err());
        books.bury(slot, 2);
        assert!(books.take_slot(Kept::default()).is_err());
        assert_eq!(books.exhume(1).len(), 0);
        assert_eq!(books.exhume(2).len(), 1);
        assert!(books.take_slot(Kept::default()).is_ok());
    }

    #[test]
    fn one_call_empties_a_bounded_number_of_graves() {
        let mut books = books(16);
        for target in 1..=6 {
            let slot = books.take_slot(Kept::default()).ok().unwrap();
            books.bury(slot, target);
        }
        assert_eq!(books.exhume(u64::MAX).len(), COLLECT_MAX);
        assert_eq!(books.exhume(u64::MAX).len(), 2);
        assert_eq!(books.in_use(), 0);
    }
}
