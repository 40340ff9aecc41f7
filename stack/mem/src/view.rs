//! A core's side: look-ups, and the spans they grant.
//!
//! A span borrows its core's handle, and passing a quiescent point takes that handle exclusively. So no span outlives
//! the iteration in which it was granted, and the compiler checks it.

use crate::access::{Access, AccessError, AccessScope, RangeError, check_range};
use crate::copy;
use crate::epoch::EpochSlot;
use crate::table::{BaseToMode, Extent, NO_PD, Rights, Slot, StagCodec, TableInner};
use ironwarp_types::{CoreId, PdId, STag};
use std::fmt;
use std::marker::PhantomData;
use std::ops::Range;
use std::sync::Arc;

/// One core's view of the registered memory. Made parked.
///
/// In the loop: [`CoreMem::quiesce`] once an iteration while there is work; [`CoreMem::go_offline`] before the loop
/// sleeps, or hands control to code that may not come back soon. A look-up brings a parked core online by itself, at
/// the price of one fence.
pub struct CoreMem {
    tags: StagCodec,
    base_to_mode: BaseToMode,
    cores: u16,
    slots: Arc<[Slot]>,
    // Parks when dropped, hence before the table that it holds alive.
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

    /// The TO of the first byte of a region.
    pub(crate) fn base_to(&self, stag: STag, base: *const u8) -> u64 {
        self.base_to_mode.base_to(self.tags.slot_of(stag), base)
    }

    pub(crate) fn epoch_slot(&self) -> &EpochSlot {
        &self.epoch_slot
    }

    /// This core's number.
    pub(crate) fn core(&self) -> CoreId {
        CoreId(self.epoch_slot.core() as u16)
    }

    /// How many cores the table was made for.
    pub(crate) fn cores(&self) -> u16 {
        self.cores
    }

    /// Grants access to the bytes \[`to`, `to + len`) of the region that `stag` names, to a stream: a [`AccessScope`], or
    /// a protection domain alone.
    ///
    /// `need` are the rights that the operation asks for, all of them: `REMOTE_WRITE` for an RDMA Write,
    /// `REMOTE_READ` for the source of a Read, `LOCAL_WRITE` for receives and Read Responses, none for a local
    /// source. The errors are in the order of the checks, so one that several apply to names the first.
    ///
    /// A message of no bytes must not be looked up at all: neither its STag nor its TO may be checked (RFC 5041
    /// s5.2, RFC 5040 s5.2.1). With `len` 0 this makes the same checks as ever.
    #[inline]
    pub fn resolve(
        &self,
        stag: STag,
        scope: impl Into<AccessScope>,
        to: u64,
        len: u32,
        need: Access,
    ) -> Result<Span<'_>, AccessError> {
        let scope = scope.into();
        self.epoch_slot.ensure_online();
        let at = self.tags.slot_of(stag);
        let slot = self.slots.get(at).ok_or(AccessError::UnknownStag)?;
        let (granted, extent) = slot.read(stag)?;
        // RFC 5041 s8.2: a stream reaches only the regions of its own protection domain. Tags of narrower scope fail
        // this compare too.
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

    /// The rest of the association: tags of one stream, windows and fast regions, whose region must be live itself.
    /// Answers the first TO of a window or fast region, whose offsets are its region's.
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
        // RFC 5040 s8.1.1 (2): no other stream uses a tag that is limited to one.
        if rights.is(Rights::STREAM) && cold.qp() != scope.qp() {
            return Err(AccessError::WrongStream);
        }
        // A window is for the peer alone: no request of ours may name it.
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
        // The same tag may come back for other memory: the mark tells one registration from another.
        let same = self.table.cold_slots.get(index).is_some_and(|cold| cold.epoch() == parent.epoch);
        if same { Ok(Some(base_to)) } else { Err(AccessError::Revoked) }
    }

    /// States that this core holds nothing from before. Once an iteration; one load, and a store when something has
    /// been revoked since.
    #[inline]
    pub fn quiesce(&mut self) {
        self.epoch_slot.quiesce();
    }

    /// States that this core holds nothing and holds nobody up until its next look-up. One store, or nothing.
    #[inline]
    pub fn go_offline(&mut self) {
        self.epoch_slot.go_offline();
    }

    /// Notes that the calling thread runs this core, so that [`Quiescence::wait`](crate::Quiescence::wait) is refused
    /// on it. Coming online notes it too, so a loop needs this only to be refused from the start. The note stays
    /// until another thread takes the core over.
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
    // A region never wraps, so what lies within one does not either: one test for the usual case.
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

/// Registered bytes that a look-up granted, for the rest of the iteration.
#[derive(Clone, Copy)]
pub struct Span<'a> {
    base: *mut u8,
    len: usize,
    writable: bool,
    core: PhantomData<&'a CoreMem>,
}

impl Span<'_> {
    /// Bytes.
    #[inline]
    pub fn len(&self) -> usize {
        self.len
    }

    /// The first byte, for a word's look-up.
    #[inline(always)]
    pub(crate) fn first(&self) -> *mut u8 {
        self.base
    }

    /// Whether it has no bytes.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The addresses of its bytes, to tell whether two spans share any. Nothing can be reached with them.
    #[inline]
    pub fn addresses(&self) -> Range<usize> {
        let first = self.base.addr();
        // The bytes lie in one allocation, which does not wrap.
        first..first.wrapping_add(self.len)
    }

    /// Places `bytes` at `offset`: all but the last by copy, the last by a release store, so that an application
    /// that polls it sees the others.
    #[inline]
    pub fn copy_in(&self, offset: usize, bytes: &[u8]) -> Result<(), RangeError> {
        check_range(self.len, offset, bytes.len())?;
        if !self.writable {
            return Err(RangeError::ReadOnly);
        }
        // SAFETY: in range, and the memory is kept until this core quiesces, which the span's borrow forbids.
        unsafe { copy::copy_in(self.base.add(offset), bytes) }
        Ok(())
    }

    /// Copies the bytes from `offset` until `bytes` is full.
    #[inline]
    pub fn copy_out(&self, offset: usize, bytes: &mut [u8]) -> Result<(), RangeError> {
        check_range(self.len, offset, bytes.len())?;
        // SAFETY: as in `copy_in`.
        unsafe { copy::copy_out(self.base.add(offset), bytes) }
        Ok(())
    }
}

impl fmt::Debug for Span<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Span").field("base", &self.base).field("len", &self.len).finish_non_exhaustive()
    }
}
