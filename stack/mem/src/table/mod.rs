//! The STag table of a stack: registering, and giving memory up again.
//!
//! Takes owners or raw ranges from application threads and gives [`Region`]s; gives each core a [`CoreMem`]. All
//! slots are allocated at the start. Regions are the only thing here that can run out, and that is
//! [`RegisterError::TableFull`].
//!
//! Memory of revoked regions is dropped by whoever registers, deregisters or polls a token next, or by a core that has
//! nothing else to do, a bounded number of regions at a time and outside the lock.

mod admit;
mod books;
mod pins;
mod scope;
mod slot;
mod tag;
mod window;

pub(crate) use scope::{Parent, Scope};
pub(crate) use slot::{Extent, NotUnbound, Origin, Rights, Slot, State, Taken};
pub(crate) use tag::{Draws, TagSpace};
pub use window::{FastRegion, Window};

pub(crate) use crate::access::NO_PD;
use crate::access::{Access, Reach};
use crate::epoch::{Attendance, ClaimError, Epochs};
use crate::owner::StableBytes;
use crate::region::Region;
use crate::view::CoreMem;
use admit::Piece;
use books::{Books, Kept, Owner, Tenant};
use ironwarp_types::{CoreId, PdId, STag};
use pins::Pins;
use std::fmt;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use thiserror::Error;

/// The most regions that a table may be asked for: beyond 2^20 a tag would have fewer than 12 random bits, and
/// guessing one would become thinkable.
pub const REGIONS_MAX: u32 = 1 << 20;

/// With fewer slots the tags of one would return too soon.
const SLOTS_MIN: u32 = 16;

/// The sizes of a [`MemTable`], fixed at its start.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MemLimits {
    /// Regions at once, those in the graveyard included: 1 to [`REGIONS_MAX`]. Each costs 32 bytes of table and
    /// about 80 of bookkeeping.
    pub regions_max: u32,
    /// Cores that may look tags up, numbered from 0. The words of atomic operations are shared out among all of them,
    /// so a table for atomic operations is made for as many cores as there are.
    pub cores_max: u16,
}

impl Default for MemLimits {
    /// 4096 regions, enough for pools of buffers and 128 KiB of table; 64 cores.
    fn default() -> Self {
        Self { regions_max: 4096, cores_max: 64 }
    }
}

/// Why a table could not be made.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
pub enum TableError {
    /// The number of regions is 0 or above [`REGIONS_MAX`].
    #[error("a table holds 1 to {REGIONS_MAX} regions")]
    RegionsOutOfRange,
    /// The system gave no random bytes, without which tags would be predictable.
    #[error("the system gave no random bytes")]
    Entropy,
}

/// Why memory could not be registered. The owner has been dropped.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
pub enum RegisterError {
    /// The table's limit of regions is reached. Deregistered ones count until every core has quiesced.
    #[error("the limit of {limit} regions is reached")]
    TableFull {
        /// The limit, from [`MemLimits::regions_max`].
        limit: u32,
    },
    /// The handle's own share of the table is used up ([`MemTable::share`]).
    #[error("the share of {limit} regions is used up")]
    ShareUsedUp {
        /// The share.
        limit: u32,
    },
    /// A region of no bytes.
    #[error("a region needs at least one byte")]
    Empty,
    /// A remote write or atomic right without the local one (the rule of verbs).
    #[error("remote write and atomic rights need the local write right")]
    NeedsLocalWrite,
    /// The range ends beyond the address space.
    #[error("the range wraps")]
    Wrap,
    /// The protection domain is one of the two that are nobody's.
    #[error("the two highest protection domains are nobody's")]
    NobodysPd,
    /// Some of the bytes are registered already, or are not released yet, and belong to another core or to none. In a
    /// table that replays also: they lie across two registrations that were made apart.
    #[error("some of the bytes are registered with another pinning")]
    PinConflict,
    /// The core that the range should be pinned to does not exist.
    #[error("the table was made for fewer cores")]
    NoSuchCore,
}

/// Why a core's handle could not be had.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
pub enum CoreError {
    /// The table was made for fewer cores.
    #[error("the table was made for fewer cores")]
    NoSuchCore,
    /// The core has a handle already.
    #[error("the core has a handle already")]
    Taken,
}

/// The table of registered memory that one stack's cores share. A clone is another handle to it.
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
    shared: Arc<Shared>,
    /// Whom what is registered through this handle counts for.
    tenant: Option<Arc<Tenant>>,
}

impl MemTable {
    /// A table whose tags nobody can predict.
    pub fn new(limits: MemLimits) -> Result<Self, TableError> {
        let secret = || getrandom::u64().map_err(|_| TableError::Entropy);
        Self::create(limits, [secret()?, secret()?], Origin::Address)
    }

    /// A table whose tags follow from `secret`: for tests and simulations, and for nothing else.
    pub fn with_secret(limits: MemLimits, secret: [u64; 2]) -> Result<Self, TableError> {
        Self::create(limits, secret, Origin::Address)
    }

    /// A table whose tags and tagged offsets both follow from `secret`, so that what goes over the wire does not hang
    /// on where the allocator put a region: for simulations that must replay to the last byte, and for nothing else.
    pub fn replayable(limits: MemLimits, secret: [u64; 2]) -> Result<Self, TableError> {
        Self::create(limits, secret, Origin::Slot)
    }

    pub(crate) fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }

    fn create(limits: MemLimits, secret: [u64; 2], origin: Origin) -> Result<Self, TableError> {
        if limits.regions_max == 0 || limits.regions_max > REGIONS_MAX {
            return Err(TableError::RegionsOutOfRange);
        }
        Ok(Self { shared: Arc::new(Shared::new(limits, secret, origin)), tenant: None })
    }

    /// Another handle to the same table, for one of its users: through it and its clones at most `regions_max` regions,
    /// windows and fast regions exist at once, whatever room there is. So nobody takes more than a fair share of the
    /// table (RFC 5042 s6.4.1).
    #[must_use]
    pub fn share(&self, regions_max: u32) -> Self {
        Self { shared: Arc::clone(&self.shared), tenant: Some(Arc::new(Tenant::new(regions_max))) }
    }

    /// The handle through which `core` looks tags up. Each core has one at a time.
    pub fn core(&self, core: CoreId) -> Result<CoreMem, CoreError> {
        let attendance =
            Attendance::claim(&self.shared.epochs, usize::from(core.0)).map_err(|error| match error {
                ClaimError::NoSuchCore => CoreError::NoSuchCore,
                ClaimError::Taken => CoreError::Taken,
            })?;
        Ok(CoreMem::new(Arc::clone(&self.shared), attendance))
    }

    /// Registers the bytes of `owner`, which the table keeps until the region is gone and every core has quiesced.
    ///
    /// The owner is dropped on the thread of some later call to this table. It must own no handle, region or token
    /// of this table, which would keep both alive for ever.
    pub fn register<O>(&self, pd: PdId, owner: O, access: Access) -> Result<Region, RegisterError>
    where
        O: StableBytes + Send + 'static,
    {
        self.register_for(pd.into(), owner, access)
    }

    /// As [`MemTable::register`], for one stream alone where `reach` names one: no other stream can use the tag, not
    /// even one of the same protection domain, and its peer may invalidate it (RFC 5040 s8.1.1, 2 and 7).
    pub fn register_for<O>(&self, reach: Reach, owner: O, access: Access) -> Result<Region, RegisterError>
    where
        O: StableBytes + Send + 'static,
    {
        self.register_owned(reach, owner, access, None)
    }

    /// As [`MemTable::register_for`], with all words of the region owned by `core`: atomic operations on them are run
    /// there and nowhere else, instead of where each line's hash says.
    ///
    /// Bytes that are registered more than once are pinned alike in all registrations, or the later one is refused.
    pub fn register_pinned<O>(
        &self,
        reach: Reach,
        owner: O,
        access: Access,
        core: CoreId,
    ) -> Result<Region, RegisterError>
    where
        O: StableBytes + Send + 'static,
    {
        self.register_owned(reach, owner, access, Some(core))
    }

    fn register_owned<O>(
        &self,
        reach: Reach,
        owner: O,
        access: Access,
        pin: Option<CoreId>,
    ) -> Result<Region, RegisterError>
    where
        O: StableBytes + Send + 'static,
    {
        let mut kept = Box::new(owner);
        let bytes = kept.stable_bytes();
        let piece = Piece { base: bytes.cast(), len: bytes.len(), access, pin };
        self.shared.admit(reach, piece, self.kept(Some(kept))).map(|admitted| self.region(admitted))
    }

    /// A memory window, bound to nothing. It takes the place of a region in the table.
    ///
    /// ```
    /// use ironwarp_mem::{Access, Binding, MemLimits, MemTable, Reach};
    /// use ironwarp_types::{CoreId, PdId, QpNum};
    ///
    /// let table = MemTable::new(MemLimits::default())?;
    /// let core = table.core(CoreId(0))?;
    /// let stream = Reach::new(PdId(1), QpNum(7));
    /// let pool = table.register(PdId(1), vec![0u8; 4096], Access::LOCAL_WRITE | Access::BIND)?;
    /// let mut window = table.window(PdId(1))?;
    ///
    /// let (over, access) = (pool.slice(512, 512)?, Access::REMOTE_WRITE);
    /// core.bind(&Binding { stag: window.renew(), over, access, stream_scope: true }, stream)?;
    /// assert!(core.resolve(window.stag(), stream, over.addr, 512, Access::REMOTE_WRITE).is_ok());
    /// // Neither outside the window nor for another stream.
    /// assert!(core.resolve(window.stag(), stream, over.addr - 1, 1, Access::REMOTE_WRITE).is_err());
    /// assert!(core.resolve(window.stag(), PdId(1), over.addr, 1, Access::REMOTE_WRITE).is_err());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn window(&self, pd: PdId) -> Result<Window, RegisterError> {
        let (admitted, draws) = self.shared.reserve(pd, Rights::CHILD | Rights::WINDOW, self.kept(None))?;
        Ok(Window::new(Arc::clone(&self.shared), admitted, draws))
    }

    /// A fast region, without memory. It takes the place of a region in the table.
    pub fn fast_region(&self, pd: PdId) -> Result<FastRegion, RegisterError> {
        let (admitted, draws) = self.shared.reserve(pd, Rights::CHILD, self.kept(None))?;
        Ok(FastRegion::new(Arc::clone(&self.shared), admitted, draws))
    }

    /// Registers `len` bytes at `base` that somebody else keeps alive.
    ///
    /// # Safety
    /// From this call until the region's [`Quiescence`](crate::Quiescence) is complete, or until every handle,
    /// region and core handle of the table is gone, the bytes must be initialised, valid for reads and writes from
    /// any thread, and within one allocation, and no reference to any of them may exist.
    pub unsafe fn register_raw(
        &self,
        pd: PdId,
        base: NonNull<u8>,
        len: usize,
        access: Access,
    ) -> Result<Region, RegisterError> {
        let piece = Piece { base, len, access, pin: None };
        self.shared.admit(pd.into(), piece, self.kept(None)).map(|admitted| self.region(admitted))
    }

    /// As [`MemTable::register_raw`], pinned as [`MemTable::register_pinned`] does it.
    ///
    /// # Safety
    /// As for [`MemTable::register_raw`].
    pub unsafe fn register_raw_pinned(
        &self,
        pd: PdId,
        bytes: NonNull<[u8]>,
        access: Access,
        core: CoreId,
    ) -> Result<Region, RegisterError> {
        let piece = Piece { base: bytes.cast(), len: bytes.len(), access, pin: Some(core) };
        self.shared.admit(pd.into(), piece, self.kept(None)).map(|admitted| self.region(admitted))
    }

    /// Drops the memory of some deregistered regions that no core can be touching any more, a bounded number of
    /// them, and says how many. Registering, deregistering and polling a token do this too.
    pub fn collect(&self) -> usize {
        self.shared.collect()
    }

    /// Regions that exist or wait for quiescence.
    pub fn regions_in_use(&self) -> usize {
        self.shared.books().in_use()
    }

    fn kept(&self, owner: Owner) -> Kept {
        Kept { owner, tenant: self.tenant.clone() }
    }

    fn region(&self, admitted: Admitted) -> Region {
        Region::new(Arc::clone(&self.shared), admitted)
    }
}

impl fmt::Debug for MemTable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemTable").field("regions_in_use", &self.regions_in_use()).finish_non_exhaustive()
    }
}

/// What every handle of a table shares.
pub(crate) struct Shared {
    pub tags: TagSpace,
    pub origin: Origin,
    pub slots: Arc<[Slot]>,
    /// Beside each slot, what only tags of narrower scope need.
    pub scopes: Box<[Scope]>,
    pub epochs: Arc<Epochs>,
    regions_max: u32,
    books: Mutex<Books>,
    /// How many regions the graveyard holds, for whoever asks without the lock.
    graves: AtomicUsize,
    /// Whether any range has ever been pinned.
    pins_used: AtomicBool,
}

/// A region that has just been entered in the table.
pub(crate) struct Admitted {
    pub slot: u32,
    pub stag: STag,
    pub pd: PdId,
    pub base: NonNull<u8>,
    pub len: usize,
    pub access: Access,
}

impl Shared {
    fn new(limits: MemLimits, secret: [u64; 2], origin: Origin) -> Self {
        let slots = limits.regions_max.next_power_of_two().max(SLOTS_MIN);
        let mut draws = Draws::new(secret);
        Self {
            tags: TagSpace::new(slots.ilog2(), &mut draws),
            origin,
            slots: (0..slots).map(|_| Slot::new()).collect(),
            scopes: (0..slots).map(|_| Scope::new()).collect(),
            epochs: Arc::new(Epochs::new(usize::from(limits.cores_max))),
            regions_max: limits.regions_max,
            books: Mutex::new(Books::new(
                slots,
                limits.regions_max as usize,
                Pins::new(slots, origin),
                draws,
            )),
            graves: AtomicUsize::new(0),
            pins_used: AtomicBool::new(false),
        }
    }

    /// Whether owners follow from addresses alone: nothing is pinned, and nothing need be replayed.
    #[inline]
    pub(crate) fn owners_are_plain(&self) -> bool {
        self.origin == Origin::Address && !self.pins_used.load(Ordering::Relaxed)
    }

    /// Makes a tag invalid for every look-up from now on, and returns the epoch that must pass before no core
    /// can still be in the middle of a copy.
    pub(crate) fn revoke(&self, slot: u32, stag: STag) -> u64 {
        self.slots[slot as usize].end(stag);
        self.epochs.advance()
    }

    /// As [`Shared::revoke`], of any tag: what can be bound again may be so when the epoch has passed.
    pub(crate) fn end(&self, slot: &Slot, scope: &Scope, stag: STag) -> u64 {
        let ended = slot.end(stag);
        let target = self.epochs.advance();
        if ended && slot.pd() == NO_PD && slot.find(stag).is_some_and(|(_, state)| state == State::Unbinding)
        {
            scope.set_mark(target);
            slot.settle(stag);
        }
        target
    }

    /// Ends the present binding of a window or fast region.
    pub(crate) fn end_child(&self, slot: u32) -> u64 {
        let (slot, scope) = (&self.slots[slot as usize], &self.scopes[slot as usize]);
        self.end(slot, scope, slot.last_stag())
    }

    /// Revokes a tag for good and puts its memory into the graveyard; returns the epoch as [`Shared::revoke`] does.
    pub(crate) fn bury(&self, slot: u32, stag: STag) -> u64 {
        let mut books = self.books();
        // Within the lock, so that the graveyard stays in the order of epochs.
        let target = self.revoke(slot, stag);
        books.bury(slot, target);
        self.graves.fetch_add(1, Ordering::Relaxed);
        target
    }

    /// Ends a window or fast region for good, whatever a core is doing to it.
    pub(crate) fn bury_child(&self, slot: u32, drawn: STag) {
        let mut books = self.books();
        self.slots[slot as usize].give_up(drawn);
        let target = self.epochs.advance();
        books.bury(slot, target);
        self.graves.fetch_add(1, Ordering::Relaxed);
    }

    /// Drops the memory of a bounded number of buried regions that are quiescent.
    #[inline]
    pub(crate) fn collect(&self) -> usize {
        // A grave that is missed here is found by the next call.
        if self.graves.load(Ordering::Relaxed) == 0 { 0 } else { self.exhume() }
    }

    #[cold]
    #[inline(never)]
    fn exhume(&self) -> usize {
        let mut books = self.books();
        let remains = books.exhume(self.epochs.oldest());
        self.graves.fetch_sub(remains.len(), Ordering::Relaxed);
        for each in &remains {
            self.slots[each.slot as usize].close();
        }
        // Owners are dropped after the lock is: their code may take long, and may use this table.
        drop(books);
        remains.into_iter().filter_map(|each| each.owner).map(drop).count()
    }

    fn books(&self) -> MutexGuard<'_, Books> {
        // Nothing in the lock can leave the books half written, so a poisoned lock is as good as any.
        self.books.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
