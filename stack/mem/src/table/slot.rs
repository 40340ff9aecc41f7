//! One slot of the STag table, as cores read it.
//!
//! The head word holds tag, state and rights, so that one load answers "is this tag live?". The other fields change
//! only while the slot is free, and a slot becomes free only after every core has passed a quiescent point; so a core
//! that found its tag live reads the fields that belong to it.

use crate::access::{Access, AccessError};
use crate::sync::{AtomicPtr, AtomicU32, AtomicU64, Ordering};
use ironwarp_types::{PdId, STag};

/// A slot: 32 bytes, so that one never straddles a cache line.
#[cfg_attr(not(loom), repr(align(32)))]
pub(crate) struct Slot {
    head: AtomicU64,
    base: AtomicPtr<u8>,
    len: AtomicU64,
    pd: AtomicU32,
}

#[cfg(not(loom))]
const _: () = assert!(size_of::<Slot>() == 32);

/// What a live tag leads to.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Extent {
    /// The first byte.
    pub base: *mut u8,
    /// Bytes.
    pub len: u64,
    pub pd: PdId,
}

/// Where a region's tagged offsets begin.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Origin {
    /// At the address of its first byte, as verbs have it.
    Address,
    /// At a number that its slot decides: the same in every run of a simulation.
    Slot,
}

/// Tagged offsets that each slot has to itself under [`Origin::Slot`]: more than memory has bytes.
const SLOT_SHIFT: u32 = 40;

impl Origin {
    /// The TO of the first byte of the region in `slot`.
    #[inline(always)]
    pub(crate) fn first_to(self, slot: usize, base: *const u8) -> u64 {
        match self {
            Origin::Address => base.addr() as u64,
            Origin::Slot => (slot as u64 + 1) << SLOT_SHIFT,
        }
    }
}

/// What a slot is for at present. Memory windows will add their own.
#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    Free = 0,
    Live = 1,
    Revoked = 2,
}

impl Slot {
    pub(crate) fn new() -> Self {
        Self {
            head: AtomicU64::new(head(STag(0), State::Free, Access::empty())),
            base: AtomicPtr::new(core::ptr::null_mut()),
            len: AtomicU64::new(0),
            pd: AtomicU32::new(0),
        }
    }

    /// Rights and extent of `stag`, if this slot holds it and it is live.
    #[inline(always)]
    pub(crate) fn read(&self, stag: STag) -> Result<(Access, Extent), AccessError> {
        let found = self.head.load(Ordering::Acquire);
        if found >> STATE_SHIFT != head(stag, State::Live, Access::empty()) >> STATE_SHIFT {
            return Err(not_live(found, stag));
        }
        let extent = Extent {
            base: self.base.load(Ordering::Relaxed),
            len: self.len.load(Ordering::Relaxed),
            pd: PdId(self.pd.load(Ordering::Relaxed)),
        };
        Ok((Access::from_bits_retain(found as u16), extent))
    }

    /// Fills a free slot and makes its tag live.
    pub(crate) fn open(&self, stag: STag, extent: Extent, access: Access) {
        self.base.store(extent.base, Ordering::Relaxed);
        self.len.store(extent.len, Ordering::Relaxed);
        self.pd.store(extent.pd.0, Ordering::Relaxed);
        self.head.store(head(stag, State::Live, access), Ordering::Release);
    }

    /// Makes the tag invalid at once. Harmless where it is invalid already.
    pub(crate) fn revoke(&self, stag: STag, access: Access) {
        let (live, revoked) = (head(stag, State::Live, access), head(stag, State::Revoked, access));
        let _ = self.head.compare_exchange(live, revoked, Ordering::AcqRel, Ordering::Relaxed);
    }

    /// Marks a revoked slot free. It remembers its tag, so that the next one differs.
    pub(crate) fn close(&self) {
        self.head.store(head(self.last_stag(), State::Free, Access::empty()), Ordering::Release);
    }

    /// The tag that the slot holds or held last; 0 where there was none.
    pub(crate) fn last_stag(&self) -> STag {
        stag_of(self.head.load(Ordering::Relaxed))
    }
}

const STAG_SHIFT: u32 = 32;
const STATE_SHIFT: u32 = 16;

#[inline(always)]
const fn head(stag: STag, state: State, access: Access) -> u64 {
    (stag.0 as u64) << STAG_SHIFT | (state as u64) << STATE_SHIFT | access.bits() as u64
}

fn stag_of(head: u64) -> STag {
    STag((head >> STAG_SHIFT) as u32)
}

#[cold]
fn not_live(found: u64, stag: STag) -> AccessError {
    let revoked = head(stag, State::Revoked, Access::empty()) >> STATE_SHIFT;
    if found >> STATE_SHIFT == revoked { AccessError::Revoked } else { AccessError::UnknownStag }
}

/// Run with `RUSTFLAGS="--cfg loom" cargo test -p ironwarp-mem --lib --release`.
#[cfg(all(test, loom))]
mod model {
    use super::*;
    use crate::epoch::{Attendance, Epochs};
    use loom::thread;
    use std::sync::Arc;

    fn extent(len: u64) -> Extent {
        Extent { base: core::ptr::null_mut(), len, pd: PdId(len as u32) }
    }

    /// The rights and length that go with a tag in this model.
    fn belongs_to(stag: STag) -> (Access, u64) {
        if stag == STag(1) { (Access::REMOTE_READ, 10) } else { (Access::REMOTE_WRITE, 20) }
    }

    fn open(slot: &Slot, stag: STag) {
        let (access, len) = belongs_to(stag);
        slot.open(stag, extent(len), access);
    }

    #[test]
    fn a_core_never_sees_one_tag_with_the_extent_of_another() {
        loom::model(|| {
            let (epochs, slot) = (Arc::new(Epochs::new(1)), Arc::new(Slot::new()));
            open(&slot, STag(1));
            let mut core = Attendance::claim(&epochs, 0).expect("a free core");
            let seen = Arc::clone(&slot);
            let runner = thread::spawn(move || {
                for stag in [STag(1), STag(2)] {
                    core.attend();
                    if let Ok((access, extent)) = seen.read(stag) {
                        assert_eq!((access, extent.len), belongs_to(stag));
                        assert_eq!(u64::from(extent.pd.0), extent.len);
                    }
                    core.quiesce();
                }
            });

            slot.revoke(STag(1), Access::REMOTE_READ);
            let target = epochs.advance();
            if epochs.oldest() >= target {
                slot.close();
                open(&slot, STag(2));
            }
            runner.join().expect("the core ran");
        });
    }
}
