//! A word of atomic operations: its owner core, and how it is changed.
//!
//! [`CoreMem::word`] looks up the target of a request and gives a [`Word`] or the reason why not;
//! memory is not accessed then. The word knows its owner core. [`Word::claim`] allows that core
//! alone to change it with a plain load and store, without a lock. [`Word::apply_locked`] changes
//! it with locked instructions instead, from any core. A stack must use one of the two everywhere;
//! mixed, neither is atomic.
//!
//! *Source.* RFC 7306 s5, s8.2; the checks of a Read's source (RFC 5040 s7.2) by analogy. *Cost.*
//! The look-up; the owner's hash is two multiplications; the operation two plain accesses.

use crate::access::{Access, AccessError, AccessScope, RangeError};
use crate::atomic::AtomicOp;
use crate::atomic::sharing::LineGroup;
use crate::copy::{self, Faulted};
use crate::region::Region;
use crate::table::{MemTable, TableInner};
use crate::view::CoreMem;
use ironwarp_types::{CoreId, STag};
use std::fmt;
use thiserror::Error;

/// Why no atomic operation is possible on the target of a request. Nothing was accessed.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Error)]
pub enum WordError {
    /// The tag does not reach it, or lacks the required right.
    #[error(transparent)]
    Access(#[from] AccessError),
    /// Its address is not a multiple of 8.
    #[error("the word does not lie at a multiple of 8 bytes")]
    Misaligned,
}

/// The target of an operation and the scope of its stream.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct AtomicTarget {
    /// The tag.
    pub stag: STag,
    /// The tagged offset of the word's first byte.
    pub to: u64,
    /// The scope.
    pub scope: AccessScope,
    /// The required right: `REMOTE_ATOMIC` for the peer, `LOCAL_WRITE` for the application.
    pub need: Access,
}

/// The size of a word in bytes.
const WORD_BYTES: u32 = size_of::<u64>() as u32;

impl CoreMem {
    /// Looks up one word for atomic operations. Access is checked first and alignment last. The
    /// alignment is that of the address: a tagged offset may be odd if its region begins at an odd
    /// address.
    pub fn word(&self, target: &AtomicTarget) -> Result<Word<'_>, WordError> {
        if !target.need.intersects(Access::WRITING) {
            return Err(AccessError::NoRight.into());
        }
        let AtomicTarget { stag, to, scope, need } = *target;
        let at = self.resolve(stag, scope, to, WORD_BYTES, need)?.first();
        // RFC 7306 s8.2: the address is checked, not the tagged offset.
        if !at.cast::<u64>().is_aligned() {
            return Err(WordError::Misaligned);
        }
        let (owner_key, pin) = self.table().owner_key_and_pin(stag, to, at);
        Ok(Word { at, owner_key, pin, core: self })
    }
}

impl MemTable {
    /// Returns the owner core of the word at `offset` of a region of this table, and the target for
    /// a call to that core on behalf of the application. The tag may be revoked already: the owner
    /// looks it up.
    pub fn local_word(&self, region: &Region, offset: usize) -> Result<(CoreId, AtomicTarget), WordError> {
        let table = self.shared();
        if !region.belongs_to(table) {
            return Err(AccessError::UnknownStag.into());
        }
        let need = Access::LOCAL_WRITE;
        if !region.access().contains(need) {
            return Err(AccessError::NoRight.into());
        }
        let at = region.word_at(offset).map_err(|refused| match refused {
            RangeError::Misaligned => WordError::Misaligned,
            _ => AccessError::Bounds.into(),
        })?;
        let (stag, to) = (region.stag(), region.base_to().wrapping_add(offset as u64));
        let (owner_key, pin) = table.owner_key_and_pin(stag, to, at);
        let owner = pin.unwrap_or_else(|| CoreId::owner_of(owner_key, table.epochs.cores() as u16));
        Ok((owner, AtomicTarget { stag, to, scope: region.scope(), need }))
    }
}

impl TableInner {
    /// Returns the number that selects the owner of the word at address `at`, and the core it is
    /// pinned to.
    #[inline]
    fn owner_key_and_pin(&self, stag: STag, to: u64, at: *mut u8) -> (u64, Option<CoreId>) {
        if self.owners_by_address() {
            return (at.addr() as u64, None);
        }
        self.scoped_owner_key(stag, to).unwrap_or((at.addr() as u64, None))
    }

    /// The same if memory is pinned or the table is deterministic.
    #[inline(never)]
    fn scoped_owner_key(&self, stag: STag, to: u64) -> Option<(u64, Option<CoreId>)> {
        let cold = self.cold_slots.get(self.tags.slot_of(stag))?;
        Some((to.wrapping_add(cold.owner_hash_offset()), cold.pin()))
    }
}

/// A word for atomic operations, for the rest of the iteration.
#[derive(Clone, Copy)]
pub struct Word<'a> {
    at: *mut u8,
    owner_key: u64,
    pin: Option<CoreId>,
    core: &'a CoreMem,
}

impl<'a> Word<'a> {
    /// Returns the owner core: the one the word is pinned to, or the one that its cache line's hash
    /// selects. It is the same under all tags.
    #[inline]
    pub fn owner(&self) -> CoreId {
        self.pin.unwrap_or_else(|| CoreId::owner_of(self.owner_key, self.core.cores()))
    }

    /// Returns the word if this core may change it: as its owner, or because its line is shared.
    /// Otherwise returns the owner.
    #[inline]
    pub fn claim(self) -> Result<ClaimedWord<'a>, CoreId> {
        let claimed = self.claimed();
        if claimed.is_owner || claimed.is_shared() { Ok(claimed) } else { Err(self.owner()) }
    }

    /// Returns the word for its owner, which executes a call of another core. The call counts
    /// towards sharing the line.
    #[inline]
    pub(crate) fn claim_for_call(self) -> Result<ClaimedWord<'a>, CoreId> {
        let claimed = self.claimed();
        if !claimed.is_owner {
            return Err(self.owner());
        }
        if let Some(lines) = claimed.lines {
            self.core.table().sharing.count_call(lines);
        }
        Ok(claimed)
    }

    #[inline]
    fn claimed(self) -> ClaimedWord<'a> {
        let owner = self.owner();
        // Pinned words are changed by their core alone.
        let lines =
            if self.pin.is_none() { self.core.table().sharing.group(owner, self.owner_key) } else { None };
        ClaimedWord { word: self, is_owner: owner == self.core.core(), lines }
    }

    /// Executes an operation with locked instructions and returns the word's value before it. Fails
    /// only if the memory faults. Atomic against other such calls on any core, but not against
    /// changes of an owner core whose line is not shared.
    #[inline]
    pub fn apply_locked(&self, operation: &AtomicOp) -> Result<u64, AccessError> {
        // SAFETY: `CoreMem::word` found an aligned word that the core may write. The memory is kept
        // until the core quiesces, which the borrow forbids.
        let original = unsafe {
            match *operation {
                AtomicOp::FetchAdd { add, mask: 0 } => copy::locked_add_u64(self.at, add),
                AtomicOp::Swap { swap } => copy::locked_swap_u64(self.at, swap),
                AtomicOp::CmpSwap { compare, compare_mask: u64::MAX, swap, swap_mask: u64::MAX } => {
                    copy::locked_compare_exchange_u64(self.at, compare, swap)
                }
                _ => self.retry_locked(operation),
            }
        };
        Ok(original?)
    }

    /// Operations without a processor instruction: computes and retries until no other core
    /// interfered.
    ///
    /// # Safety
    /// As for [`Word::apply_locked`], which checked it.
    unsafe fn retry_locked(&self, operation: &AtomicOp) -> Result<u64, Faulted> {
        // SAFETY: passed on to the caller.
        let mut original = unsafe { copy::load_u64(self.at) }?;
        loop {
            let next = operation.apply(original);
            // An unchanged word needs no store: its value at the load is its value before and
            // after.
            if next == original {
                return Ok(original);
            }
            // SAFETY: passed on to the caller.
            let found = unsafe { copy::locked_compare_exchange_u64(self.at, original, next) }?;
            if found == original {
                return Ok(original);
            }
            original = found;
        }
    }
}

impl fmt::Debug for Word<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Word").field("at", &self.at).field("owner", &self.owner()).finish_non_exhaustive()
    }
}

/// A word that this core may change.
#[derive(Clone, Copy)]
pub struct ClaimedWord<'a> {
    word: Word<'a>,
    is_owner: bool,
    /// The group of its cache line; `None` if it is never shared.
    lines: Option<&'a LineGroup>,
}

impl ClaimedWord<'_> {
    /// Returns whether every core changes the word with locked instructions.
    #[inline]
    pub fn is_shared(&self) -> bool {
        self.lines.is_some_and(LineGroup::is_shared)
    }

    /// Executes an operation and returns the word's value before it, both in the machine's order.
    /// The word is loaded and stored in one piece each, so that no reader sees half of it. The
    /// owner does not store an unchanged word.
    #[inline]
    pub fn apply(&self, operation: &AtomicOp) -> Result<u64, AccessError> {
        // Only the owner shares a line, so the answer stays true for the owner until the store
        // below.
        if !self.is_owner || self.is_shared() {
            return self.word.apply_locked(operation);
        }
        // SAFETY: as in `Word::apply_locked`.
        let original = unsafe { copy::load_u64(self.word.at) }?;
        let next = operation.apply(original);
        if next != original {
            // SAFETY: as above.
            unsafe { copy::store_u64(self.word.at, next) }?;
        }
        Ok(original)
    }
}

impl fmt::Debug for ClaimedWord<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClaimedWord").field("word", &self.word).field("is_shared", &self.is_shared()).finish()
    }
}
