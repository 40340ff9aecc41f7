//! A core's view of registered memory: look-ups and spans.
//!
//! A span borrows its core's handle, and a quiescent point takes that handle exclusively. So the
//! compiler ensures that no span outlives the iteration in which it was looked up.

use crate::access::{Access, AccessError, AccessScope, RangeError, check_range};
use crate::copy;
use crate::epoch::EpochSlot;
use crate::table::{BaseToMode, Extent, NO_PD, Rights, Slot, StagCodec, TableInner};
use ironwarp_arch::one_pass::{CrcAndSum, Kernel};
use ironwarp_types::{CoreId, PdId, STag};
use std::fmt;
use std::marker::PhantomData;
use std::ops::Range;
use std::sync::Arc;

/// One core's view of the registered memory. Starts offline.
///
/// The loop calls [`CoreMem::quiesce`] once in an iteration with work, and [`CoreMem::go_offline`]
/// before it sleeps or calls code that may take long. A look-up brings an offline core online, at
/// the cost of one fence.
pub struct CoreMem {
    tags: StagCodec,
    base_to_mode: BaseToMode,
    cores: u16,
    slots: Arc<[Slot]>,
    // Goes offline when dropped, before the table that it refers to.
    epoch_slot: EpochSlot,
    table: Arc<TableInner>,
}

impl CoreMem {
    pub(crate) fn new(table: Arc<TableInner>, epoch_slot: EpochSlot) -> Self {
        let slots = Arc::clone(&table.slots);
        let cores = table.epochs.cores() as u16;
        Self { tags: table.tags, base_to_mode: table.base_to_mode, cores, slots, epoch_slot, table }
    }

    pub(crate) fn table(&self) -> &TableInner {
        &self.table
    }

    /// Returns the tagged offset of the first byte of a region.
    pub(crate) fn base_to(&self, stag: STag, base: *const u8) -> u64 {
        self.base_to_mode.base_to(self.tags.slot_of(stag), base)
    }

    pub(crate) fn epoch_slot(&self) -> &EpochSlot {
        &self.epoch_slot
    }

    /// Returns this core's number.
    pub(crate) fn core(&self) -> CoreId {
        CoreId(self.epoch_slot.core() as u16)
    }

    /// Returns the number of cores that the table was created for.
    pub(crate) fn cores(&self) -> u16 {
        self.cores
    }

    /// Looks up the bytes \[`to`, `to + len`) of the region `stag` for a scope: an [`AccessScope`]
    /// or a protection domain.
    ///
    /// `need` lists all rights that the operation requires: `REMOTE_WRITE` for an RDMA Write,
    /// `REMOTE_READ` for the source of a Read, `LOCAL_WRITE` for receives and Read Responses, none
    /// for a local source.
    ///
    /// A message without bytes must not be looked up: neither its STag nor its tagged offset may be
    /// checked (RFC 5041 s5.2, RFC 5040 s5.2.1). With `len` 0 this function makes all checks.
    ///
    /// # Errors
    ///
    /// The first check that fails, in the order of the variants of [`AccessError`].
    #[inline]
    pub fn resolve(
        &self,
        stag: STag,
        scope: impl Into<AccessScope>,
        to: u64,
        len: u32,
        need: Access,
    ) -> Result<Span<'_>, AccessError> {
        self.resolve_inlined(stag, scope.into(), to, len, need)
    }

    /// [`CoreMem::resolve`], always inlined.
    ///
    /// # Errors
    ///
    /// As [`CoreMem::resolve`].
    #[inline(always)]
    pub fn resolve_inlined(
        &self,
        stag: STag,
        scope: AccessScope,
        to: u64,
        len: u32,
        need: Access,
    ) -> Result<Span<'_>, AccessError> {
        self.epoch_slot.ensure_online();
        let at = self.tags.slot_of(stag);
        let slot = self.slots.get(at).ok_or(AccessError::UnknownStag)?;
        let (granted, extent) = slot.read(stag)?;
        // RFC 5041 s8.2: a stream reaches only the regions of its own protection domain. Tags of
        // narrower scope fail this comparison too.
        let mut base_to = self.base_to_mode.base_to(at, extent.base);
        if extent.pd != scope.pd() {
            base_to = self.check_scope((at, extent.pd, granted), scope, need)?.unwrap_or(base_to);
        }
        if !granted.grants(need) {
            return Err(AccessError::NoRight);
        }
        let offset = offset_within(&extent, base_to, to, len)?;
        // SAFETY: `offset` and `len` lie within the extent, which is one allocation.
        let base = unsafe { extent.base.add(offset) };
        Ok(Span { base, len: len as usize, writable: need.intersects(Access::WRITING), core: PhantomData })
    }

    /// Checks tags of one stream, windows and fast regions; the region of the latter two must be
    /// valid. Returns the first tagged offset of a window or fast region, which is that of its
    /// region.
    #[inline(never)]
    fn check_scope(
        &self,
        (index, pd, rights): (usize, PdId, Rights),
        scope: AccessScope,
        need: Access,
    ) -> Result<Option<u64>, AccessError> {
        if pd != NO_PD {
            return Err(AccessError::WrongPd);
        }
        let cold = self.table.cold_slots.get(index).ok_or(AccessError::UnknownStag)?;
        if cold.pd() != scope.pd() {
            return Err(AccessError::WrongPd);
        }
        // RFC 5040 s8.1.1 (2): no other stream may use a tag that is limited to one.
        if rights.is(Rights::STREAM) && cold.qp() != scope.qp() {
            return Err(AccessError::WrongStream);
        }
        // A window is for the peer only: no local request may name it.
        if rights.is(Rights::WINDOW) && !need.intersects(Access::REMOTE) {
            return Err(AccessError::NoRight);
        }
        if !rights.is(Rights::CHILD) {
            return Ok(None);
        }
        let base_to = cold.base_to();
        let parent = cold.parent();
        let index = self.tags.slot_of(parent.stag);
        self.slots.get(index).ok_or(AccessError::UnknownStag)?.read(parent.stag)?;
        // A tag may be reused for other memory: the epoch distinguishes the registrations.
        let same = self.table.cold_slots.get(index).is_some_and(|cold| cold.epoch() == parent.epoch);
        if same { Ok(Some(base_to)) } else { Err(AccessError::Revoked) }
    }

    /// Declares that this core holds no span of earlier iterations. Call once in an iteration.
    /// Costs one load, and a store if something was revoked since.
    #[inline]
    pub fn quiesce(&mut self) {
        self.epoch_slot.quiesce();
    }

    /// Declares that this core holds no span and delays no release until its next look-up. Costs
    /// one store, or nothing.
    #[inline]
    pub fn go_offline(&mut self) {
        self.epoch_slot.go_offline();
    }

    /// Records that the calling thread runs this core, so that
    /// [`Quiescence::wait`](crate::Quiescence::wait) fails on it. Coming online records it too. The
    /// record stays until another thread runs the core.
    pub fn record_thread(&mut self) {
        self.epoch_slot.record_thread();
    }
}

impl fmt::Debug for CoreMem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CoreMem").field("slots", &self.slots.len()).finish_non_exhaustive()
    }
}

/// Checks 3 to 5 of RFC 5041 s7.1: the sum does not wrap, and both ends lie in the region.
#[inline(always)]
pub(crate) fn offset_within(extent: &Extent, base_to: u64, to: u64, len: u32) -> Result<usize, AccessError> {
    // A region never wraps, so a range within one does not wrap either: one test in the usual case.
    match to.checked_sub(base_to) {
        Some(offset) if extent.len.checked_sub(offset).is_some_and(|rest| u64::from(len) <= rest) => {
            Ok(offset as usize)
        }
        _ => Err(outside(to, len)),
    }
}

#[cold]
fn outside(to: u64, len: u32) -> AccessError {
    if to.checked_add(u64::from(len)).is_none() { AccessError::Wrap } else { AccessError::Bounds }
}

/// Registered bytes that a look-up returned, for the rest of the iteration.
#[derive(Clone, Copy)]
pub struct Span<'a> {
    base: *mut u8,
    len: usize,
    writable: bool,
    core: PhantomData<&'a CoreMem>,
}

impl Span<'_> {
    /// Returns the length in bytes.
    #[inline]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Returns the address of the first byte, for the look-up of a word.
    #[inline(always)]
    pub(crate) fn first(&self) -> *mut u8 {
        self.base
    }

    /// Returns whether it is empty.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns the addresses of its bytes, to detect spans that overlap. They give no access.
    #[inline]
    pub fn addresses(&self) -> Range<usize> {
        let first = self.base.addr();
        // The bytes lie in one allocation, which does not wrap.
        first..first.wrapping_add(self.len)
    }

    /// Places `bytes` at `offset`: all but the last by copy, the last by a release store, so that
    /// an application that polls the last byte sees the others.
    #[inline]
    pub fn copy_in(&self, offset: usize, bytes: &[u8]) -> Result<(), RangeError> {
        check_range(self.len, offset, bytes.len())?;
        if !self.writable {
            return Err(RangeError::ReadOnly);
        }
        // SAFETY: in range, and the memory is kept until this core quiesces, which the span's
        // borrow forbids.
        Ok(unsafe { copy::copy_in(self.base.add(offset), bytes) }?)
    }

    /// Copies the bytes from `offset` until `bytes` is full.
    #[inline]
    pub fn copy_out(&self, offset: usize, bytes: &mut [u8]) -> Result<(), RangeError> {
        check_range(self.len, offset, bytes.len())?;
        // SAFETY: as in `copy_in`.
        Ok(unsafe { copy::copy_out(self.base.add(offset), bytes) }?)
    }

    /// [`Span::copy_out`] that also returns the CRC of the bytes of `crc` followed by the copied
    /// ones, and their sum.
    #[inline]
    pub fn copy_out_in_one_pass(
        &self,
        offset: usize,
        bytes: &mut [u8],
        (kernel, crc): (Kernel, u32),
    ) -> Result<CrcAndSum, RangeError> {
        check_range(self.len, offset, bytes.len())?;
        // SAFETY: as in `copy_in`.
        Ok(unsafe { copy::copy_out_in_one_pass(self.base.add(offset), bytes, (kernel, crc)) }?)
    }
}

impl fmt::Debug for Span<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Span").field("base", &self.base).field("len", &self.len).finish_non_exhaustive()
    }
}
