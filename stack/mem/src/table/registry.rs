//! The owners of slots: the part of the table that a lock protects, which no core takes on its data
//! path.

use super::owner_map::OwnerMap;
use super::tag::TagRng;
use arrayvec::ArrayVec;
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

/// Keeps a region's memory alive. Windows and fast regions have none.
pub(crate) type KeepAlive = Option<Box<dyn Send>>;

/// The contents of a slot in use: the owner of the memory, and the context that registered it.
#[derive(Default)]
pub(crate) struct Registration {
    pub buffer: KeepAlive,
    pub user: Option<Arc<User>>,
}

impl Registration {
    pub(crate) fn has_room(&self) -> bool {
        self.user.as_ref().is_none_or(|user| user.has_room())
    }
}

/// A context that uses the table: the number of its regions, those that wait for release included,
/// and the limit. Changed under the lock only.
pub(crate) struct User {
    pub(crate) context: u16,
    used: AtomicU32,
    pub(crate) regions_max: u32,
}

impl User {
    pub(crate) fn new(context: u16, regions_max: u32) -> Self {
        Self { context, used: AtomicU32::new(0), regions_max }
    }

    fn has_room(&self) -> bool {
        self.used.load(Ordering::Relaxed) < self.regions_max
    }

    fn adjust(&self, by: i32) {
        self.used.store(self.used.load(Ordering::Relaxed).saturating_add_signed(by), Ordering::Relaxed);
    }
}

/// Regions released in one call: enough that a table in steady use never fills with them, few
/// enough that no caller pays for thousands of others.
pub(crate) const RECLAIM_MAX: usize = 4;

/// Free slots, owners, and revoked regions that wait for quiescence. Sized at the start.
pub(crate) struct Registry {
    /// First in, first out: a slot and its last tag stay unused as long as possible.
    free: VecDeque<u32>,
    registrations: Box<[Registration]>,
    /// In the order of their epochs.
    pending_frees: VecDeque<PendingFree>,
    regions_max: usize,
    pub(crate) owner_map: OwnerMap,
    pub(crate) rng: TagRng,
}

struct PendingFree {
    slot: u32,
    /// Quiescent once no core is in an earlier epoch.
    target: u64,
}

/// A region without a valid tag.
pub(crate) struct Reclaimed {
    pub slot: u32,
    /// Dropped after the lock is released: it may run the application's code.
    pub buffer: KeepAlive,
}

impl Registry {
    /// Creates a registry of `slots` slots of which `regions_max` may be in use at once.
    pub(crate) fn new(slots: u32, regions_max: usize, owner_map: OwnerMap, mut rng: TagRng) -> Self {
        Self {
            free: shuffled(slots, &mut rng),
            registrations: (0..slots).map(|_| Registration::default()).collect(),
            pending_frees: VecDeque::with_capacity(slots as usize),
            regions_max,
            owner_map,
            rng,
        }
    }

    /// Returns the number of regions that exist or wait for release.
    pub(crate) fn in_use(&self) -> usize {
        self.registrations.len() - self.free.len()
    }

    /// Returns the slots of a context.
    pub(crate) fn slots_of(&self, context: u16) -> impl Iterator<Item = usize> {
        let users = self.registrations.iter().map(|registration| registration.user.as_ref());
        users
            .enumerate()
            .filter(move |(_, user)| user.is_some_and(|user| user.context == context))
            .map(|(slot, _)| slot)
    }

    /// Returns the slot of the next registration.
    pub(crate) fn next_slot(&self) -> Option<u32> {
        self.free.front().copied()
    }

    /// Returns a slot for the registration, or the registration if the limit of the table or of its
    /// context is reached.
    pub(crate) fn take_slot(&mut self, registration: Registration) -> Result<u32, Registration> {
        if self.in_use() >= self.regions_max || !registration.has_room() {
            return Err(registration);
        }
        let Some(slot) = self.free.pop_front() else { return Err(registration) };
        if let Some(user) = &registration.user {
            user.adjust(1);
        }
        self.registrations[slot as usize] = registration;
        Ok(slot)
    }

    /// Queues a revoked region until no core is in an epoch before `target`.
    pub(crate) fn defer_free(&mut self, slot: u32, target: u64) {
        debug_assert!(self.pending_frees.back().is_none_or(|last| last.target < target));
        self.pending_frees.push_back(PendingFree { slot, target });
    }

    /// Removes some of the regions that are quiescent, given the oldest epoch that a core is in.
    pub(crate) fn reclaim(&mut self, oldest: u64) -> ArrayVec<Reclaimed, RECLAIM_MAX> {
        let mut taken = ArrayVec::new();
        while !taken.is_full() && self.pending_frees.front().is_some_and(|first| first.target <= oldest) {
            let Some(pending) = self.pending_frees.pop_front() else { break };
            self.owner_map.remove(pending.slot);
            let Registration { buffer, user } =
                core::mem::take(&mut self.registrations[pending.slot as usize]);
            if let Some(user) = user {
                user.adjust(-1);
            }
            taken.push(Reclaimed { slot: pending.slot, buffer });
            self.free.push_back(pending.slot);
        }
        taken
    }
}

/// Returns the numbers below `count` in an order that the secret determines.
fn shuffled(count: u32, rng: &mut TagRng) -> VecDeque<u32> {
    let mut list: Vec<u32> = (0..count).collect();
    for end in (1..count).rev() {
        list.swap(end as usize, rng.below(end + 1) as usize);
    }
    list.into()
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::table::BaseToMode;

    fn registry(slots: u32) -> Registry {
        Registry::new(slots, slots as usize, OwnerMap::new(slots, BaseToMode::Address), TagRng::new([5, 6]))
    }

    #[test]
    fn a_slot_rests_until_all_others_had_their_turn() {
        let mut registry = registry(8);
        let first = registry.take_slot(Registration::default()).ok();
        registry.defer_free(first.unwrap(), 2);
        assert_eq!(registry.reclaim(2).len(), 1);
        for _ in 0..7 {
            assert_ne!(registry.take_slot(Registration::default()).ok(), first);
        }
        assert_eq!(registry.take_slot(Registration::default()).ok(), first);
    }

    #[test]
    fn the_limit_counts_regions_in_the_graveyard_too() {
        let mut registry = Registry::new(4, 1, OwnerMap::new(4, BaseToMode::Address), TagRng::new([5, 6]));
        let slot = registry.take_slot(Registration::default()).ok().unwrap();
        assert!(registry.take_slot(Registration::default()).is_err());
        registry.defer_free(slot, 2);
        assert!(registry.take_slot(Registration::default()).is_err());
        assert_eq!(registry.reclaim(1).len(), 0);
        assert_eq!(registry.reclaim(2).len(), 1);
        assert!(registry.take_slot(Registration::default()).is_ok());
    }

    #[test]
    fn one_call_empties_a_bounded_number_of_graves() {
        let mut registry = registry(16);
        for target in 1..=6 {
            let slot = registry.take_slot(Registration::default()).ok().unwrap();
            registry.defer_free(slot, target);
        }
        assert_eq!(registry.reclaim(u64::MAX).len(), RECLAIM_MAX);
        assert_eq!(registry.reclaim(u64::MAX).len(), 2);
        assert_eq!(registry.in_use(), 0);
    }
}
