//! The STag table of a stack: registration and release of memory.
//!
//! Takes owners or raw ranges from application threads and gives [`Region`]s. Gives each core a
//! [`CoreMem`]. All slots are allocated at the start; if all are in use, registration fails with
//! [`RegisterError::TableFull`].
//!
//! The next call that registers, deregisters, polls a token or reclaims releases revoked memory: a
//! bounded number of regions at a time, outside the lock, on the thread of the call. Cores release
//! none, since an owner's destructor may be slow.

mod cold_slot;
mod error;
mod owner_map;
mod register;
mod registry;
mod slot;
mod tag;
mod window;

pub(crate) use cold_slot::{ColdSlot, Parent};
pub use error::{CoreError, RegisterError, TableError};
pub(crate) use slot::{BaseToMode, BindClaim, BindClaimError, Extent, Rights, Slot, SlotState};
pub(crate) use tag::{StagCodec, TagRng};
pub use window::{FastRegion, Window};

pub(crate) use crate::access::NO_PD;
use crate::access::{Access, AccessScope};
use crate::atomic::LineSharing;
use crate::buffer::StableBytes;
use crate::epoch::{ClaimError, EpochSlot, Epochs};
use crate::region::Region;
use crate::view::CoreMem;
use ironwarp_types::{CoreId, PdId, QpNum, STag};
use owner_map::OwnerMap;
use register::NewRange;
use registry::{KeepAlive, Registration, Registry, User};
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The largest number of regions of a table. Beyond 2^20 a tag would have fewer than 12 random
/// bits, and guessing one would become feasible.
pub const REGIONS_MAX: u32 = 1 << 20;

/// The minimum number of slots: with fewer, a tag would be reused too soon.
const SLOTS_MIN: u32 = 16;

/// The sizes of a [`MemTable`], fixed at its creation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MemLimits {
    /// Regions that exist at once, revoked ones that wait for release included: 1 to
    /// [`REGIONS_MAX`]. Each costs 32 bytes of table and about 80 bytes of bookkeeping.
    pub regions_max: u32,
    /// Cores that may look up tags, numbered from 0. The words of atomic operations are distributed
    /// over all of them.
    pub cores_max: u16,
}

impl Default for MemLimits {
    /// 4096 regions, enough for pools of buffers, in 128 KiB of table; 64 cores.
    fn default() -> Self {
        Self { regions_max: 4096, cores_max: 64 }
    }
}

/// The table of registered memory that the cores of a stack share. Clones are handles of the same
/// table.
///
/// When the last handle, region and core handle are gone, everything registered is dropped.
///
/// ```
/// use ironwarp_mem::{Access, MemLimits, MemTable};
/// use ironwarp_types::{CoreId, PdId};
///
/// let table = MemTable::new(MemLimits::default())?;
/// let core = table.core(CoreId(0))?;
/// let region = table.register(PdId(1), vec![0u8; 64], Access::LOCAL_WRITE | Access::REMOTE_WRITE)?;
///
/// let span = core.resolve(region.stag(), PdId(1), region.base_to() + 8, 5, Access::REMOTE_WRITE)?;
/// span.copy_in(0, b"hello")?;
///
/// let mut text = [0; 5];
/// region.read_at(8, &mut text)?;
/// assert_eq!(&text, b"hello");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct MemTable {
    shared: Arc<TableInner>,
    /// The context of the registrations through this handle.
    user: Option<Arc<User>>,
}

impl MemTable {
    /// Creates a table with unpredictable tags.
    pub fn new(limits: MemLimits) -> Result<Self, TableError> {
        let secret = || getrandom::u64().map_err(|_| TableError::Entropy);
        Self::create(limits, [secret()?, secret()?], BaseToMode::Address)
    }

    /// Creates a table whose tags follow from `secret`. For tests and simulations only.
    pub fn with_secret(limits: MemLimits, secret: [u64; 2]) -> Result<Self, TableError> {
        Self::create(limits, secret, BaseToMode::Address)
    }

    /// Creates a deterministic table: its tags and tagged offsets follow from `secret`, so that the
    /// bytes on the wire do not depend on the allocator. For simulations that must replay exactly,
    /// and for nothing else.
    pub fn replayable(limits: MemLimits, secret: [u64; 2]) -> Result<Self, TableError> {
        Self::create(limits, secret, BaseToMode::Slot)
    }

    pub(crate) fn shared(&self) -> &Arc<TableInner> {
        &self.shared
    }

    fn create(limits: MemLimits, secret: [u64; 2], base_to_mode: BaseToMode) -> Result<Self, TableError> {
        if limits.regions_max == 0 || limits.regions_max > REGIONS_MAX {
            return Err(TableError::RegionsOutOfRange);
        }
        Ok(Self { shared: Arc::new(TableInner::new(limits, secret, base_to_mode)), user: None })
    }

    /// Returns another handle of the same table for the context with a number. What is registered
    /// through it and its clones belongs to that context, and ends with it
    /// ([`MemTable::revoke_context`]). At most `regions_max` regions, windows and fast regions of
    /// it exist at once, so that no context takes more than its share (RFC 5042 s6.4.1).
    #[must_use]
    pub fn for_context(&self, context: u16, regions_max: u32) -> Self {
        Self { shared: Arc::clone(&self.shared), user: Some(Arc::new(User::new(context, regions_max))) }
    }

    /// Makes every tag of a context invalid at once, as [`Region::revoke`] does, and permanently:
    /// none of its windows and fast regions can be bound again. The context registers nothing more.
    /// Returns the number of tags that were in use. Reads every slot.
    pub fn revoke_context(&self, context: u16) -> usize {
        let revoked = {
            let registry = self.shared.registry();
            registry.slots_of(context).filter(|slot| self.shared.slots[*slot].end()).count()
        };
        self.shared.epochs.advance();
        revoked
    }

    /// Sets after how many calls of other cores the owner of a cache line shares it: from then on
    /// every core changes its words itself, with locked instructions. 0, as at the start: never. At
    /// most [`SHARE_AFTER_MAX`]. Pinned words are not shared.
    ///
    /// [`SHARE_AFTER_MAX`]: crate::SHARE_AFTER_MAX
    pub fn share_lines_after(&self, calls: u8) {
        self.shared.sharing.set_share_after(calls);
    }

    /// Returns whether tags may be limited to the stream `qp`. `false` is certain; `true` may be
    /// due to a tag of the past. It reads every slot.
    pub fn may_have_tags_of(&self, qp: QpNum) -> bool {
        self.shared.cold_slots.iter().any(|cold| cold.qp() == qp)
    }

    /// Returns the handle through which `core` looks up tags. Each core has one at a time.
    pub fn core(&self, core: CoreId) -> Result<CoreMem, CoreError> {
        let epoch_slot =
            EpochSlot::claim(&self.shared.epochs, usize::from(core.0)).map_err(|error| match error {
                ClaimError::NoSuchCore => CoreError::NoSuchCore,
                ClaimError::InUse => CoreError::InUse,
            })?;
        Ok(CoreMem::new(Arc::clone(&self.shared), epoch_slot))
    }

    /// Registers the bytes of `buffer`, which the table keeps until the region is gone and every
    /// core has quiesced.
    ///
    /// A later call to this table drops the owner on its own thread. The owner must not hold a
    /// handle, region or token of this table: both would then live for ever.
    pub fn register<O>(&self, pd: PdId, buffer: O, access: Access) -> Result<Region, RegisterError>
    where
        O: StableBytes + Send + 'static,
    {
        self.register_in_scope(pd.into(), buffer, access)
    }

    /// As [`MemTable::register`], but limited to a stream if `scope` names one: no other stream can
    /// use the tag, not even one of the same protection domain, and its peer may invalidate it
    /// (RFC 5040 s8.1.1, 2 and 7).
    pub fn register_in_scope<O>(
        &self,
        scope: AccessScope,
        buffer: O,
        access: Access,
    ) -> Result<Region, RegisterError>
    where
        O: StableBytes + Send + 'static,
    {
        self.register_owned(scope, buffer, access, None)
    }

    /// As [`MemTable::register_in_scope`], with all words of the region owned by `core`. Atomic
    /// operations on them execute there, instead of on the core that each line's hash selects.
    ///
    /// Bytes that are registered several times must be pinned to the same core in all
    /// registrations.
    pub fn register_on_core<O>(
        &self,
        scope: AccessScope,
        buffer: O,
        access: Access,
        core: CoreId,
    ) -> Result<Region, RegisterError>
    where
        O: StableBytes + Send + 'static,
    {
        self.register_owned(scope, buffer, access, Some(core))
    }

    fn register_owned<O>(
        &self,
        scope: AccessScope,
        buffer: O,
        access: Access,
        pin: Option<CoreId>,
    ) -> Result<Region, RegisterError>
    where
        O: StableBytes + Send + 'static,
    {
        let mut buffer = Box::new(buffer);
        let bytes = buffer.stable_bytes();
        let new_range = NewRange { base: bytes.cast(), len: bytes.len(), access, pin };
        let registered = self.shared.register(scope, new_range, self.registration(Some(buffer)))?;
        Ok(Region::new(Arc::clone(&self.shared), registered))
    }

    /// Creates a memory window that is not bound. It occupies the slot of a region.
    ///
    /// ```
    /// use ironwarp_mem::{Access, Binding, MemLimits, MemTable, AccessScope};
    /// use ironwarp_types::{CoreId, PdId, QpNum};
    ///
    /// let table = MemTable::new(MemLimits::default())?;
    /// let core = table.core(CoreId(0))?;
    /// let stream = AccessScope::new(PdId(1), QpNum(7));
    /// let pool = table.register(PdId(1), vec![0u8; 4096], Access::LOCAL_WRITE | Access::BIND)?;
    /// let mut window = table.window(PdId(1))?;
    ///
    /// let (over, access) = (pool.slice(512, 512)?, Access::REMOTE_WRITE);
    /// core.bind(&Binding { stag: window.next_stag(), over, access, stream_scope: true }, stream)?;
    /// assert!(core.resolve(window.stag(), stream, over.addr, 512, Access::REMOTE_WRITE).is_ok());
    /// // Neither outside the window nor for another stream.
    /// assert!(core.resolve(window.stag(), stream, over.addr - 1, 1, Access::REMOTE_WRITE).is_err());
    /// assert!(core.resolve(window.stag(), PdId(1), over.addr, 1, Access::REMOTE_WRITE).is_err());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn window(&self, pd: PdId) -> Result<Window, RegisterError> {
        let (registered, rng) =
            self.shared.reserve(pd, Rights::CHILD | Rights::WINDOW, self.registration(None))?;
        Ok(Window::new(Arc::clone(&self.shared), registered, rng))
    }

    /// Creates a fast region without memory. It occupies the slot of a region.
    pub fn fast_region(&self, pd: PdId) -> Result<FastRegion, RegisterError> {
        let (registered, rng) = self.shared.reserve(pd, Rights::CHILD, self.registration(None))?;
        Ok(FastRegion::new(Arc::clone(&self.shared), registered, rng))
    }

    /// Releases the memory of some deregistered regions that no core uses any more and returns
    /// their number. Registering, deregistering and polling a token do this too.
    pub fn reclaim(&self) -> usize {
        self.shared.reclaim()
    }

    /// Returns the number of regions that exist or wait for release.
    pub fn regions_in_use(&self) -> usize {
        self.shared.registry().in_use()
    }

    fn registration(&self, buffer: KeepAlive) -> Registration {
        Registration { buffer, user: self.user.clone() }
    }
}

impl fmt::Debug for MemTable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemTable").field("regions_in_use", &self.regions_in_use()).finish_non_exhaustive()
    }
}

/// The state that all handles of a table share.
pub(crate) struct TableInner {
    pub tags: StagCodec,
    pub base_to_mode: BaseToMode,
    pub slots: Arc<[Slot]>,
    /// For each slot, the data that only tags of narrower scope need.
    pub cold_slots: Box<[ColdSlot]>,
    pub epochs: Arc<Epochs>,
    regions_max: u32,
    registry: Mutex<Registry>,
    /// The number of regions that wait for release, readable without the lock.
    pending_free_count: AtomicUsize,
    /// Whether a range was ever pinned.
    has_pinned: AtomicBool,
    /// The lines of words that every core may change.
    pub sharing: LineSharing,
}

/// A region that was just entered in the table.
pub(crate) struct RegisteredRange {
    pub slot: u32,
    pub stag: STag,
    pub pd: PdId,
    pub base: NonNull<u8>,
    pub len: usize,
    pub access: Access,
}

impl TableInner {
    fn new(limits: MemLimits, secret: [u64; 2], base_to_mode: BaseToMode) -> Self {
        let slots = limits.regions_max.next_power_of_two().max(SLOTS_MIN);
        let mut rng = TagRng::new(secret);
        Self {
            tags: StagCodec::new(slots.ilog2(), &mut rng),
            base_to_mode,
            slots: (0..slots).map(|_| Slot::new()).collect(),
            cold_slots: (0..slots).map(|_| ColdSlot::new()).collect(),
            epochs: Arc::new(Epochs::new(usize::from(limits.cores_max))),
            regions_max: limits.regions_max,
            registry: Mutex::new(Registry::new(
                slots,
                limits.regions_max as usize,
                OwnerMap::new(slots, base_to_mode),
                rng,
            )),
            pending_free_count: AtomicUsize::new(0),
            has_pinned: AtomicBool::new(false),
            sharing: LineSharing::new(usize::from(limits.cores_max)),
        }
    }

    /// Returns whether owners follow from addresses alone: nothing is pinned, and the table is not
    /// deterministic.
    #[inline]
    pub(crate) fn owners_by_address(&self) -> bool {
        self.base_to_mode == BaseToMode::Address && !self.has_pinned.load(Ordering::Relaxed)
    }

    /// Makes a tag invalid for every later look-up. Returns the epoch after which no core is in the
    /// middle of a copy.
    pub(crate) fn revoke(&self, slot: u32, stag: STag) -> u64 {
        self.slots[slot as usize].mark_invalid(stag);
        self.epochs.advance()
    }

    /// As [`TableInner::revoke`], for any tag. A window or fast region may be bound again once the
    /// epoch has passed.
    pub(crate) fn invalidate_stag(&self, slot: &Slot, cold: &ColdSlot, stag: STag) -> u64 {
        let ended = slot.mark_invalid(stag);
        let target = self.epochs.advance();
        if ended
            && slot.pd() == NO_PD
            && slot.find(stag).is_some_and(|(_, state)| state == SlotState::Unbinding)
        {
            cold.set_epoch(target);
            slot.finish_invalidate(stag);
        }
        target
    }

    /// Ends the current binding of a window or fast region.
    pub(crate) fn invalidate_child(&self, slot: u32) -> u64 {
        let (slot, cold) = (&self.slots[slot as usize], &self.cold_slots[slot as usize]);
        self.invalidate_stag(slot, cold, slot.last_stag())
    }

    /// Revokes a tag permanently and queues its memory for release. Returns the epoch as
    /// [`TableInner::revoke`] does.
    pub(crate) fn deregister(&self, slot: u32, stag: STag) -> u64 {
        let mut registry = self.registry();
        // Within the lock, so that the queue stays in the order of epochs.
        let target = self.revoke(slot, stag);
        registry.defer_free(slot, target);
        self.pending_free_count.fetch_add(1, Ordering::Relaxed);
        target
    }

    /// Ends a window or fast region, even while a core uses it.
    pub(crate) fn deregister_child(&self, slot: u32, last_stag: STag) {
        let mut registry = self.registry();
        self.slots[slot as usize].retire(last_stag);
        let target = self.epochs.advance();
        registry.defer_free(slot, target);
        self.pending_free_count.fetch_add(1, Ordering::Relaxed);
    }

    /// Releases the memory of a bounded number of revoked regions that are quiescent.
    #[inline]
    pub(crate) fn reclaim(&self) -> usize {
        // An entry that is missed here is found by the next call.
        if self.pending_free_count.load(Ordering::Relaxed) == 0 { 0 } else { self.reclaim_slow() }
    }

    #[cold]
    #[inline(never)]
    fn reclaim_slow(&self) -> usize {
        let mut registry = self.registry();
        let reclaimed = registry.reclaim(self.epochs.oldest());
        self.pending_free_count.fetch_sub(reclaimed.len(), Ordering::Relaxed);
        for each in &reclaimed {
            self.slots[each.slot as usize].mark_free();
        }
        // Owners are dropped after the lock is released: their code may take long and may use this
        // table.
        drop(registry);
        reclaimed.into_iter().filter_map(|each| each.buffer).map(drop_owner).count()
    }

    fn registry(&self) -> MutexGuard<'_, Registry> {
        // No code in the lock can leave the registry inconsistent, so a poisoned lock is usable.
        self.registry.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Drops the owner of a region's memory. This may run in a call of another part of the application,
/// which a panic must not end: the panic is reported by the process's hook and goes no further.
fn drop_owner(owner: Box<dyn Send>) {
    if let Err(panic) = catch_unwind(AssertUnwindSafe(|| drop(owner)))
        && let Err(second) = catch_unwind(AssertUnwindSafe(|| drop(panic)))
    {
        // Its own destructor might panic again.
        core::mem::forget(second);
    }
}
