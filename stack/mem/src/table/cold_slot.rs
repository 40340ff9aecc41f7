//! The part of a slot that its cache line has no room for: the scope of a tag that is narrower than
//! a protection domain, and the region of a window or fast registration.
//!
//! Tags of a whole domain never read it. As in the slot itself, the fields change only while the
//! tag is not valid, and after every other core has passed a quiescent point.

use crate::sync::{AtomicU32, AtomicU64, Ordering};
use ironwarp_types::{CoreId, PdId, QpNum, STag};

/// The cold half of a slot.
pub(crate) struct ColdSlot {
    pd: AtomicU32,
    qp: AtomicU32,
    parent: AtomicU32,
    /// The core that owns its words, or [`NO_PIN`].
    pin: AtomicU32,
    /// For a region, the epoch of its registration; for a window or fast region, the one that its
    /// last end must wait for.
    epoch: AtomicU64,
    /// The epoch of the region under a window or fast region: with its tag, it identifies the
    /// registration.
    parent_epoch: AtomicU64,
    /// The tagged offset of the first byte of a window or fast region.
    base_to: AtomicU64,
    /// Added to its tagged offsets before the hash that selects owners, wrapping. A window's equals
    /// that of its region.
    owner_hash_offset: AtomicU64,
}

/// No core has this number.
const NO_PIN: u32 = u32::MAX;

/// The region under a window or fast region.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Parent {
    pub stag: STag,
    pub epoch: u64,
}

impl ColdSlot {
    pub(crate) fn new() -> Self {
        Self {
            pd: AtomicU32::new(0),
            qp: AtomicU32::new(0),
            parent: AtomicU32::new(0),
            pin: AtomicU32::new(NO_PIN),
            epoch: AtomicU64::new(0),
            parent_epoch: AtomicU64::new(0),
            base_to: AtomicU64::new(0),
            owner_hash_offset: AtomicU64::new(0),
        }
    }

    pub(crate) fn pd(&self) -> PdId {
        PdId(self.pd.load(Ordering::Relaxed))
    }

    pub(crate) fn qp(&self) -> QpNum {
        QpNum(self.qp.load(Ordering::Relaxed))
    }

    pub(crate) fn epoch(&self) -> u64 {
        self.epoch.load(Ordering::Relaxed)
    }

    pub(crate) fn parent(&self) -> Parent {
        Parent {
            stag: STag(self.parent.load(Ordering::Relaxed)),
            epoch: self.parent_epoch.load(Ordering::Relaxed),
        }
    }

    pub(crate) fn base_to(&self) -> u64 {
        self.base_to.load(Ordering::Relaxed)
    }

    pub(crate) fn pin(&self) -> Option<CoreId> {
        u16::try_from(self.pin.load(Ordering::Relaxed)).ok().map(CoreId)
    }

    pub(crate) fn owner_hash_offset(&self) -> u64 {
        self.owner_hash_offset.load(Ordering::Relaxed)
    }

    /// Sets the data that selects the owner of its words.
    pub(crate) fn set_owner(&self, pin: Option<CoreId>, owner_hash_offset: u64) {
        self.pin.store(pin.map_or(NO_PIN, |core| core.0.into()), Ordering::Relaxed);
        self.owner_hash_offset.store(owner_hash_offset, Ordering::Relaxed);
    }

    pub(crate) fn set_base_to(&self, base_to: u64) {
        self.base_to.store(base_to, Ordering::Relaxed);
    }

    pub(crate) fn set_pd_qp(&self, pd: PdId, qp: QpNum) {
        self.pd.store(pd.0, Ordering::Relaxed);
        self.qp.store(qp.0, Ordering::Relaxed);
    }

    pub(crate) fn set_epoch(&self, epoch: u64) {
        self.epoch.store(epoch, Ordering::Relaxed);
    }

    pub(crate) fn set_parent(&self, parent: Parent) {
        self.parent.store(parent.stag.0, Ordering::Relaxed);
        self.parent_epoch.store(parent.epoch, Ordering::Relaxed);
    }
}
