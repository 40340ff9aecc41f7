//! One slot of the STag table, as cores read it.
//!
//! The head word holds tag, state and rights, so that one load shows whether a tag is valid. The
//! other fields change only while the slot is free. A slot becomes free only after every core has
//! passed a quiescent point, so a core that found its tag valid reads the fields that belong to it.

use crate::access::{Access, AccessError, NO_PD};
use crate::sync::{AtomicPtr, AtomicU32, AtomicU64, Ordering};
use ironwarp_types::{PdId, STag};

/// A slot: 32 bytes, so that no slot straddles a cache line.
#[cfg_attr(not(loom), repr(align(32)))]
pub(crate) struct Slot {
    head: AtomicU64,
    base: AtomicPtr<u8>,
    len: AtomicU64,
    pd: AtomicU32,
}

#[cfg(not(loom))]
const _: () = assert!(size_of::<Slot>() == 32);

/// The memory of a valid tag.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Extent {
    /// The first byte.
    pub base: *mut u8,
    /// The length in bytes.
    pub len: u64,
    /// The protection domain; [`NO_PD`] for a tag of another scope, which is in the module
    /// `cold_slot`.
    pub pd: PdId,
}

/// The tagged offset of a region's first byte.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum BaseToMode {
    /// The address of the byte, as in verbs.
    Address,
    /// A number that the slot determines: the same in every run of a simulation.
    Slot,
}

/// The range of tagged offsets of each slot under [`BaseToMode::Slot`]: more than memory has bytes.
const SLOT_SHIFT: u32 = 40;

impl BaseToMode {
    /// Returns the tagged offset of the first byte of the region in `slot`.
    #[inline(always)]
    pub(crate) fn base_to(self, slot: usize, base: *const u8) -> u64 {
        match self {
            BaseToMode::Address => base.addr() as u64,
            BaseToMode::Slot => (slot as u64 + 1) << SLOT_SHIFT,
        }
    }
}

/// The state of a slot.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum SlotState {
    Free = 0,
    /// The tag grants access.
    Live = 1,
    /// The tag of a revoked region, or of a window that was released.
    Revoked = 2,
    /// The tag of a window or fast region that is not bound.
    Unbound = 3,
    /// A core is binding it.
    Binding = 4,
    /// It was invalidated, and the epoch of that is not recorded yet.
    Unbinding = 5,
}

/// The rights and the kind of a tag: the lowest 16 bits of a head.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Rights(u16);

impl Rights {
    /// The scope is one stream, not a protection domain.
    pub(crate) const STREAM: u16 = 1 << 15;
    /// The tag is bound to a part of a region and outlives its binding.
    pub(crate) const CHILD: u16 = 1 << 14;
    /// A window: only the peer may use it.
    pub(crate) const WINDOW: u16 = 1 << 13;

    pub(crate) const fn new(access: Access, kind: u16) -> Self {
        Self(access.bits() | kind)
    }

    pub(crate) const fn access(self) -> Access {
        Access::from_bits_truncate(self.0)
    }

    pub(crate) const fn is(self, kind: u16) -> bool {
        self.0 & kind != 0
    }

    /// Returns whether all rights of `need` are granted.
    #[inline(always)]
    pub(crate) const fn grants(self, need: Access) -> bool {
        self.0 & need.bits() == need.bits()
    }
}

impl Slot {
    pub(crate) fn new() -> Self {
        Self {
            head: AtomicU64::new(head(STag(0), SlotState::Free, NO_RIGHTS)),
            base: AtomicPtr::new(core::ptr::null_mut()),
            len: AtomicU64::new(0),
            pd: AtomicU32::new(0),
        }
    }

    /// Returns rights and extent of `stag`, if this slot holds it and it is valid.
    #[inline(always)]
    pub(crate) fn read(&self, stag: STag) -> Result<(Rights, Extent), AccessError> {
        let found = self.head.load(Ordering::Acquire);
        if found >> STATE_SHIFT != head(stag, SlotState::Live, NO_RIGHTS) >> STATE_SHIFT {
            return Err(not_live(found, stag));
        }
        Ok((Rights(found as u16), self.extent()))
    }

    /// Returns rights and state of `stag`, if the slot holds it, valid or not.
    pub(crate) fn find(&self, stag: STag) -> Option<(Rights, SlotState)> {
        let found = self.head.load(Ordering::Acquire);
        (stag_of(found) == stag).then_some((Rights(found as u16), state_of(found)))
    }

    /// Returns the tag that the slot holds, if it is valid.
    pub(crate) fn live_stag(&self) -> Option<STag> {
        let found = self.head.load(Ordering::Acquire);
        (state_of(found) == SlotState::Live).then_some(stag_of(found))
    }

    pub(crate) fn pd(&self) -> PdId {
        PdId(self.pd.load(Ordering::Relaxed))
    }

    #[inline(always)]
    fn extent(&self) -> Extent {
        Extent {
            base: self.base.load(Ordering::Relaxed),
            len: self.len.load(Ordering::Relaxed),
            pd: PdId(self.pd.load(Ordering::Relaxed)),
        }
    }

    fn set_extent(&self, extent: Extent) {
        self.base.store(extent.base, Ordering::Relaxed);
        self.len.store(extent.len, Ordering::Relaxed);
        self.pd.store(extent.pd.0, Ordering::Relaxed);
    }

    /// Fills a free slot and makes its tag valid.
    pub(crate) fn publish(&self, stag: STag, extent: Extent, rights: Rights) {
        self.set_extent(extent);
        self.head.store(head(stag, SlotState::Live, rights), Ordering::Release);
    }

    /// Gives a free slot a tag without memory.
    pub(crate) fn reserve(&self, stag: STag, rights: Rights) {
        self.pd.store(NO_PD.0, Ordering::Relaxed);
        self.head.store(head(stag, SlotState::Unbound, rights), Ordering::Release);
    }

    /// Makes the tag invalid at once: a region's permanently, that of a window or fast region until
    /// it is bound again. Returns whether it was valid. A window or fast region waits for
    /// [`Slot::finish_invalidate`] before it can be bound.
    pub(crate) fn mark_invalid(&self, stag: STag) -> bool {
        let found = self.head.load(Ordering::Acquire);
        if found >> STATE_SHIFT != head(stag, SlotState::Live, NO_RIGHTS) >> STATE_SHIFT {
            return false;
        }
        let rights = Rights(found as u16);
        let state = if rights.is(Rights::CHILD) { SlotState::Unbinding } else { SlotState::Revoked };
        self.exchange(found, head(stag, state, rights))
    }

    /// Marks that the epoch of an invalidation is recorded: the tag may be bound again.
    pub(crate) fn finish_invalidate(&self, stag: STag) {
        if let Some((rights, SlotState::Unbinding)) = self.find(stag) {
            self.exchange(head(stag, SlotState::Unbinding, rights), head(stag, SlotState::Unbound, rights));
        }
    }

    /// Claims an unbound window or fast region for the caller alone and returns its kind. Never
    /// waits.
    pub(crate) fn claim_for_bind(&self) -> Result<BindClaim, BindClaimError> {
        let found = self.head.load(Ordering::Acquire);
        let (stag, rights) = (stag_of(found), Rights(found as u16));
        match state_of(found) {
            SlotState::Unbound if rights.is(Rights::CHILD) => {}
            SlotState::Unbinding => return Err(BindClaimError::NotQuiescent),
            _ => return Err(BindClaimError::NotBindable),
        }
        let busy = head(stag, SlotState::Binding, rights);
        if self.exchange(found, busy) {
            Ok(BindClaim { found, busy })
        } else {
            Err(BindClaimError::NotBindable)
        }
    }

    /// Fills a window or fast region that [`Slot::claim_for_bind`] claimed and makes `stag` valid.
    /// Fails if it was released meanwhile.
    pub(crate) fn bind(&self, claim: BindClaim, stag: STag, extent: Extent, rights: Rights) -> bool {
        self.set_extent(extent);
        self.exchange(claim.busy, head(stag, SlotState::Live, rights))
    }

    /// Returns what [`Slot::claim_for_bind`] claimed.
    pub(crate) fn cancel_bind(&self, claim: BindClaim) {
        self.exchange(claim.busy, claim.found);
    }

    /// Ends a window or fast region, in any state; it is not bound again. Its last tag is
    /// remembered, bound or not.
    pub(crate) fn retire(&self, stag: STag) {
        self.head.swap(head(stag, SlotState::Revoked, NO_RIGHTS), Ordering::AcqRel);
    }

    /// Ends the tag that the slot holds permanently, in any state. Returns whether it could still
    /// be used or bound.
    pub(crate) fn end(&self) -> bool {
        let ended = |found| match state_of(found) {
            SlotState::Free | SlotState::Revoked => None,
            _ => Some(head(stag_of(found), SlotState::Revoked, NO_RIGHTS)),
        };
        self.head.fetch_update(Ordering::AcqRel, Ordering::Acquire, ended).is_ok()
    }

    /// Marks a revoked slot free. It remembers its tag, so that the next one differs.
    pub(crate) fn mark_free(&self) {
        self.head.store(head(self.last_stag(), SlotState::Free, NO_RIGHTS), Ordering::Release);
    }

    /// Returns the tag that the slot holds or held last; 0 if there was none.
    pub(crate) fn last_stag(&self) -> STag {
        stag_of(self.head.load(Ordering::Relaxed))
    }

    fn exchange(&self, from: u64, to: u64) -> bool {
        self.head.compare_exchange(from, to, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    }
}

/// A window or fast region that the binder claimed.
#[derive(Clone, Copy)]
pub(crate) struct BindClaim {
    found: u64,
    busy: u64,
}

impl BindClaim {
    pub(crate) fn rights(&self) -> Rights {
        Rights(self.found as u16)
    }

    pub(crate) fn stag(&self) -> STag {
        stag_of(self.found)
    }
}

/// Why a window or fast region could not be claimed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum BindClaimError {
    /// It was invalidated recently.
    NotQuiescent,
    /// It is bound, or cannot be bound.
    NotBindable,
}

const NO_RIGHTS: Rights = Rights(0);

const STAG_SHIFT: u32 = 32;
const STATE_SHIFT: u32 = 16;

#[inline(always)]
const fn head(stag: STag, state: SlotState, rights: Rights) -> u64 {
    (stag.0 as u64) << STAG_SHIFT | (state as u64) << STATE_SHIFT | rights.0 as u64
}

fn stag_of(head: u64) -> STag {
    STag((head >> STAG_SHIFT) as u32)
}

fn state_of(head: u64) -> SlotState {
    match (head >> STATE_SHIFT) as u16 {
        0 => SlotState::Free,
        1 => SlotState::Live,
        3 => SlotState::Unbound,
        4 => SlotState::Binding,
        5 => SlotState::Unbinding,
        _ => SlotState::Revoked,
    }
}

#[cold]
fn not_live(found: u64, stag: STag) -> AccessError {
    let known = stag_of(found) == stag && state_of(found) != SlotState::Free;
    if known { AccessError::Revoked } else { AccessError::UnknownStag }
}

/// Run with `RUSTFLAGS="--cfg loom" cargo test -p ironwarp-mem --lib --release`.
#[cfg(all(test, loom))]
mod model {
    use super::*;
    use crate::epoch::{EpochSlot, Epochs};
    use loom::thread;
    use std::sync::Arc;

    fn extent(len: u64) -> Extent {
        Extent { base: core::ptr::null_mut(), len, pd: PdId(len as u32) }
    }

    /// The rights and length of a tag in this model.
    fn belongs_to(stag: STag) -> (Access, u64) {
        if stag == STag(1) { (Access::REMOTE_READ, 10) } else { (Access::REMOTE_WRITE, 20) }
    }

    fn publish(slot: &Slot, stag: STag) {
        let (access, len) = belongs_to(stag);
        slot.publish(stag, extent(len), Rights::new(access, 0));
    }

    #[test]
    fn a_core_never_sees_one_tag_with_the_extent_of_another() {
        loom::model(|| {
            let (epochs, slot) = (Arc::new(Epochs::new(1)), Arc::new(Slot::new()));
            publish(&slot, STag(1));
            let mut core = EpochSlot::claim(&epochs, 0).expect("a free core");
            let seen = Arc::clone(&slot);
            let runner = thread::spawn(move || {
                for stag in [STag(1), STag(2)] {
                    core.ensure_online();
                    if let Ok((rights, extent)) = seen.read(stag) {
                        assert_eq!((rights.access(), extent.len), belongs_to(stag));
                        assert_eq!(u64::from(extent.pd.0), extent.len);
                    }
                    core.quiesce();
                }
            });

            slot.mark_invalid(STag(1));
            let target = epochs.advance();
            if epochs.oldest() >= target {
                slot.mark_free();
                publish(&slot, STag(2));
            }
            runner.join().expect("the core ran");
        });
    }

    /// One core invalidates a window and binds it again while another looks up its old and its new
    /// tag.
    #[test]
    fn a_core_never_sees_a_windows_old_tag_with_its_new_extent() {
        const CHILD: u16 = Rights::CHILD | Rights::WINDOW;
        loom::model(|| {
            let (epochs, slot) = (Arc::new(Epochs::new(2)), Arc::new(Slot::new()));
            slot.publish(STag(1), extent(10), Rights::new(Access::REMOTE_READ, CHILD));
            let mut core = EpochSlot::claim(&epochs, 0).expect("a free core");
            let seen = Arc::clone(&slot);
            let runner = thread::spawn(move || {
                for stag in [STag(1), STag(2)] {
                    core.ensure_online();
                    if let Ok((rights, extent)) = seen.read(stag) {
                        assert_eq!((rights.access(), extent.len), belongs_to(stag));
                    }
                    core.quiesce();
                }
            });

            let binder = EpochSlot::claim(&epochs, 1).expect("a free core");
            binder.ensure_online();
            assert!(slot.mark_invalid(STag(1)));
            let target = epochs.advance();
            slot.finish_invalidate(STag(1));
            if binder.others_reached(target) {
                let claim = slot.claim_for_bind().expect("an unbound window");
                let rights = Rights::new(Access::REMOTE_WRITE, CHILD);
                assert!(slot.bind(claim, STag(2), extent(20), rights));
            }
            drop(binder);
            runner.join().expect("the core ran");
        });
    }

    /// A window that is released while a core binds it is never valid afterwards.
    #[test]
    fn a_window_given_up_while_it_is_bound_stays_dead() {
        loom::model(|| {
            let slot = Arc::new(Slot::new());
            slot.reserve(STag(1), Rights::new(Access::empty(), Rights::CHILD));
            let theirs = Arc::clone(&slot);
            let binder = thread::spawn(move || {
                if let Ok(claim) = theirs.claim_for_bind() {
                    theirs.bind(claim, STag(2), extent(20), Rights::new(Access::REMOTE_WRITE, Rights::CHILD));
                }
            });
            slot.retire(STag(2));
            binder.join().expect("the core ran");
            assert!(slot.read(STag(2)).is_err() && slot.claim_for_bind().is_err());
        });
    }
}
