//! Entry of a region, a window or a fast region in the table.
//!
//! Takes a range or nothing, and gives a slot and a new tag. Refuses an invalid range, one that is
//! registered for another owner core, and one without a free slot. Runs on application threads.

use super::owner_map::OwnedRange;
use super::registry::{Registration, Registry};
use super::{Extent, NO_PD, RegisterError, RegisteredRange, Rights, TableInner, TagRng};
use crate::access::{Access, AccessScope};
use ironwarp_types::{CoreId, PdId, STag};
use std::ptr::NonNull;
use std::sync::atomic::Ordering;

/// The bytes of a new region and their rights.
pub(super) struct NewRange {
    pub base: NonNull<u8>,
    pub len: usize,
    pub access: Access,
    /// The core that owns its words.
    pub pin: Option<CoreId>,
}

impl TableInner {
    /// Checks a range and enters it in the table.
    pub(super) fn register(
        &self,
        scope: AccessScope,
        new_range: NewRange,
        registration: Registration,
    ) -> Result<RegisteredRange, RegisterError> {
        let NewRange { base, len, access, pin } = new_range;
        check_registration(scope.pd(), base, len, access)?;
        if pin.is_some_and(|core| usize::from(core.0) >= self.epochs.cores()) {
            return Err(RegisterError::NoSuchCore);
        }
        self.reclaim();
        let (slot, stag, owner_hash_offset) = self.take_region(&new_range, registration)?;
        let stream_scope = scope.qp() != AccessScope::NO_STREAM;
        let (pd, kind) = if stream_scope { (NO_PD, Rights::STREAM) } else { (scope.pd(), 0) };
        let cold = &self.cold_slots[slot as usize];
        cold.set_pd_qp(scope.pd(), scope.qp());
        cold.set_epoch(self.epochs.now());
        cold.set_owner(pin, owner_hash_offset);
        let extent = Extent { base: base.as_ptr(), len: len as u64, pd };
        self.slots[slot as usize].publish(stag, extent, Rights::new(access, kind));
        Ok(RegisteredRange { slot, stag, pd: scope.pd(), base, len, access })
    }

    /// Enters a tag without memory, and returns it with the generator of its later tags.
    pub(super) fn reserve(
        &self,
        pd: PdId,
        kind: u16,
        registration: Registration,
    ) -> Result<(RegisteredRange, TagRng), RegisterError> {
        if !AccessScope::is_usable_pd(pd) {
            return Err(RegisterError::ReservedPd);
        }
        self.reclaim();
        let (slot, stag) = self.take_slot(registration)?;
        let rng = self.registry().rng.fork();
        let cold = &self.cold_slots[slot as usize];
        cold.set_pd_qp(pd, AccessScope::NO_STREAM);
        cold.set_epoch(0);
        self.slots[slot as usize].reserve(stag, Rights::new(Access::empty(), kind));
        let (base, len, access) = (NonNull::dangling(), 0, Access::empty());
        Ok((RegisteredRange { slot, stag, pd, base, len, access }, rng))
    }

    /// Returns a slot for a range whose owner cores agree with all others, its tag, and the number
    /// that is added to its offsets before the hash that selects owners.
    fn take_region(
        &self,
        new_range: &NewRange,
        registration: Registration,
    ) -> Result<(u32, STag, u64), RegisterError> {
        let (start, len, pin) = (new_range.base.addr().get(), new_range.len, new_range.pin);
        let mut registry = self.registry();
        let next = registry
            .next_slot()
            .map(|slot| self.base_to_mode.base_to(slot as usize, new_range.base.as_ptr()));
        let range = OwnedRange { start, len, pin, owner_hash_offset: 0 };
        // A full table is detected below.
        let Ok(owner_hash_offset) = next.map_or(Ok(0), |base_to| registry.owner_map.check(range, base_to))
        else {
            // Here and below the owner is dropped after the lock is released: its code may use this
            // table.
            drop(registry);
            return Err(RegisterError::PinConflict);
        };
        let taken = self.take_slot_of(&mut registry, registration);
        if let Ok((slot, _)) = taken {
            registry.owner_map.insert(slot, OwnedRange { owner_hash_offset, ..range });
        }
        drop(registry);
        let (slot, stag) = taken.map_err(|registration| self.limit_error(&registration))?;
        // Written before the slot becomes valid, so a core that finds the tag valid sees it.
        if pin.is_some() {
            self.has_pinned.store(true, Ordering::Relaxed);
        }
        Ok((slot, stag, owner_hash_offset))
    }

    /// Returns a slot that keeps `owner`, and its tag.
    fn take_slot(&self, registration: Registration) -> Result<(u32, STag), RegisterError> {
        let mut registry = self.registry();
        let taken = self.take_slot_of(&mut registry, registration);
        // The returned owner is dropped after the lock is released: its code may use this table.
        drop(registry);
        taken.map_err(|registration| self.limit_error(&registration))
    }

    /// The limit that was reached.
    fn limit_error(&self, registration: &Registration) -> RegisterError {
        match &registration.user {
            Some(user) if !registration.has_room() => {
                RegisterError::QuotaExceeded { limit: user.regions_max }
            }
            _ => RegisterError::TableFull { limit: self.regions_max },
        }
    }

    fn take_slot_of(
        &self,
        registry: &mut Registry,
        registration: Registration,
    ) -> Result<(u32, STag), Registration> {
        registry.take_slot(registration).map(|slot| {
            let previous = self.slots[slot as usize].last_stag();
            (slot, self.tags.new_stag(slot, previous, &mut registry.rng))
        })
    }
}

fn check_registration(pd: PdId, base: NonNull<u8>, len: usize, access: Access) -> Result<(), RegisterError> {
    if !AccessScope::is_usable_pd(pd) {
        return Err(RegisterError::ReservedPd);
    }
    if len == 0 {
        return Err(RegisterError::Empty);
    }
    if access.intersects(Access::NEEDS_LOCAL_WRITE) && !access.contains(Access::LOCAL_WRITE) {
        return Err(RegisterError::NeedsLocalWrite);
    }
    // The address after the last byte must exist too, as in any allocation.
    match (base.addr().get()).checked_add(len) {
        Some(_) if isize::try_from(len).is_ok() => Ok(()),
        _ => Err(RegisterError::Wrap),
    }
}
