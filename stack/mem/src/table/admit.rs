//! Entering a region, a window or a fast region in the table.
//!
//! Takes a range or nothing, and gives a slot and a fresh tag that leads to it; refuses a range that makes no sense,
//! that others have registered for another core, or that there is no slot for. Runs on application threads.

use super::books::{Books, Kept};
use super::pins::Holding;
use super::{Admitted, Draws, Extent, NO_PD, RegisterError, Rights, Shared};
use crate::access::{Access, Reach};
use ironwarp_types::{CoreId, PdId, STag};
use std::ptr::NonNull;
use std::sync::atomic::Ordering;

/// The bytes of a new region and what they may be used for.
pub(super) struct Piece {
    pub base: NonNull<u8>,
    pub len: usize,
    pub access: Access,
    /// The core that owns its words.
    pub pin: Option<CoreId>,
}

impl Shared {
    /// Checks a range and enters it in the table.
    pub(super) fn admit(&self, reach: Reach, piece: Piece, kept: Kept) -> Result<Admitted, RegisterError> {
        let Piece { base, len, access, pin } = piece;
        check_registration(reach.pd(), base, len, access)?;
        if pin.is_some_and(|core| usize::from(core.0) >= self.epochs.cores()) {
            return Err(RegisterError::NoSuchCore);
        }
        self.collect();
        let (slot, stag, owner_shift) = self.take_region(&piece, kept)?;
        let stream_scope = reach.qp() != Reach::NO_STREAM;
        let (pd, kind) = if stream_scope { (NO_PD, Rights::STREAM) } else { (reach.pd(), 0) };
        let scope = &self.scopes[slot as usize];
        scope.set_home(reach.pd(), reach.qp());
        scope.set_mark(self.epochs.now());
        scope.set_owner(pin, owner_shift);
        let extent = Extent { base: base.as_ptr(), len: len as u64, pd };
        self.slots[slot as usize].open(stag, extent, Rights::new(access, kind));
        Ok(Admitted { slot, stag, pd: reach.pd(), base, len, access })
    }

    /// Enters a tag without memory, and gives it what draws its later ones.
    pub(super) fn reserve(
        &self,
        pd: PdId,
        kind: u16,
        kept: Kept,
    ) -> Result<(Admitted, Draws), RegisterError> {
        if !Reach::is_somebodys(pd) {
            return Err(RegisterError::NobodysPd);
        }
        self.collect();
        let (slot, stag) = self.take_slot(kept)?;
        let draws = self.books().draws.fork();
        let scope = &self.scopes[slot as usize];
        scope.set_home(pd, Reach::NO_STREAM);
        scope.set_mark(0);
        self.slots[slot as usize].reserve(stag, Rights::new(Access::empty(), kind));
        let (base, len, access) = (NonNull::dangling(), 0, Access::empty());
        Ok((Admitted { slot, stag, pd, base, len, access }, draws))
    }

    /// A slot for a range that agrees with all others about its words' owners, its tag, and what is added to its
    /// offsets before the hash that decides owners.
    fn take_region(&self, piece: &Piece, kept: Kept) -> Result<(u32, STag, u64), RegisterError> {
        let (start, len, pin) = (piece.base.addr().get(), piece.len, piece.pin);
        let mut books = self.books();
        let next = books.next_slot().map(|slot| self.origin.first_to(slot as usize, piece.base.as_ptr()));
        let range = Holding { start, len, pin, owner_shift: 0 };
        // A full table is found full below.
        let Ok(owner_shift) = next.map_or(Ok(0), |first_to| books.pins.check(range, first_to)) else {
            // Here and below the owner is dropped after the lock is: its code may use this table.
            drop(books);
            return Err(RegisterError::PinConflict);
        };
        let taken = self.take_slot_of(&mut books, kept);
        if let Ok((slot, _)) = taken {
            books.pins.hold(slot, Holding { owner_shift, ..range });
        }
        drop(books);
        let (slot, stag) = taken.map_err(|kept| self.refusal(&kept))?;
        // Whoever finds the tag live finds this set: the slot is opened after it.
        if pin.is_some() {
            self.pins_used.store(true, Ordering::Relaxed);
        }
        Ok((slot, stag, owner_shift))
    }

    /// A slot that keeps `owner`, and the tag that will lead to it.
    fn take_slot(&self, kept: Kept) -> Result<(u32, STag), RegisterError> {
        let mut books = self.books();
        let taken = self.take_slot_of(&mut books, kept);
        // The owner that came back is dropped after the lock is: its code may use this table.
        drop(books);
        taken.map_err(|kept| self.refusal(&kept))
    }

    /// Whose limit is reached.
    fn refusal(&self, kept: &Kept) -> RegisterError {
        match &kept.tenant {
            Some(tenant) if !kept.has_room() => RegisterError::ShareUsedUp { limit: tenant.regions_max },
            _ => RegisterError::TableFull { limit: self.regions_max },
        }
    }

    fn take_slot_of(&self, books: &mut Books, kept: Kept) -> Result<(u32, STag), Kept> {
        books.take_slot(kept).map(|slot| {
            let previous = self.slots[slot as usize].last_stag();
            (slot, self.tags.fresh(slot, previous, &mut books.draws))
        })
    }
}

fn check_registration(pd: PdId, base: NonNull<u8>, len: usize, access: Access) -> Result<(), RegisterError> {
    if !Reach::is_somebodys(pd) {
        return Err(RegisterError::NobodysPd);
    }
    if len == 0 {
        return Err(RegisterError::Empty);
    }
    if access.intersects(Access::NEEDS_LOCAL_WRITE) && !access.contains(Access::LOCAL_WRITE) {
        return Err(RegisterError::NeedsLocalWrite);
    }
    // One byte past the end must have an address too, as in any allocation.
    match (base.addr().get()).checked_add(len) {
        Some(_) if isize::try_from(len).is_ok() => Ok(()),
        _ => Err(RegisterError::Wrap),
    }
}
