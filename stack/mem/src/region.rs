//! The application's side: a registered region, and the token of its release.

use crate::access::{Access, AccessScope, RangeError, Sge, check_range};
use crate::copy;
use crate::table::{RegisteredRange, TableInner};
use ironwarp_types::{PdId, STag};
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};
use thiserror::Error;

/// A registered byte range.
///
/// Its bytes are shared with cores and, if the rights allow it, with the peer. A read during a
/// write sees any mixture of old and new bytes; a byte that is loaded with acquire ordering shows
/// everything placed before it.
///
/// Dropping a region revokes it at once and never waits. The table releases the memory later.
pub struct Region {
    shared: Arc<TableInner>,
    registered: RegisteredRange,
    deregistered: bool,
}

// SAFETY: the pointer is to memory that the table keeps until the region is released, valid from
// any thread, and accessed only through `copy`.
unsafe impl Send for Region {}
// SAFETY: as above; all methods may run on several threads at once, since all access is by racing
// copies.
unsafe impl Sync for Region {}

impl Region {
    pub(crate) fn new(shared: Arc<TableInner>, registered: RegisteredRange) -> Self {
        Self { shared, registered, deregistered: false }
    }

    /// Returns the tag that names this region, to the peer and in [`Sge::lkey`].
    pub fn stag(&self) -> STag {
        self.registered.stag
    }

    /// Returns its protection domain.
    pub fn pd(&self) -> PdId {
        self.registered.pd
    }

    /// Returns its access rights.
    pub fn access(&self) -> Access {
        self.registered.access
    }

    /// Returns its length in bytes.
    #[expect(clippy::len_without_is_empty, reason = "a region always has a byte")]
    pub fn len(&self) -> usize {
        self.registered.len
    }

    /// Returns the tagged offset of the first byte: its address, unless the table is deterministic.
    pub fn base_to(&self) -> u64 {
        self.shared.base_to_mode.base_to(self.registered.slot as usize, self.registered.base.as_ptr())
    }

    /// Returns the element for `len` bytes from `offset`, for a work request.
    pub fn slice(&self, offset: usize, len: u32) -> Result<Sge, RangeError> {
        check_range(self.len(), offset, len as usize)?;
        Ok(Sge { addr: self.base_to().wrapping_add(offset as u64), len, lkey: self.stag() })
    }

    /// Writes `bytes` at `offset`, the last one with release ordering.
    pub fn write_at(&self, offset: usize, bytes: &[u8]) -> Result<(), RangeError> {
        let at = self.at(offset, bytes.len())?;
        // SAFETY: `at` leads to as many bytes of the region, which is alive and touched only
        // through `copy`.
        Ok(unsafe { copy::copy_in(at, bytes) }?)
    }

    /// Reads into `bytes` from `offset`.
    pub fn read_at(&self, offset: usize, bytes: &mut [u8]) -> Result<(), RangeError> {
        let at = self.at(offset, bytes.len())?;
        // SAFETY: as in `write_at`.
        Ok(unsafe { copy::copy_out(at, bytes) }?)
    }

    /// Sets `len` bytes from `offset` to `byte`.
    pub fn fill(&self, offset: usize, len: usize, byte: u8) -> Result<(), RangeError> {
        let at = self.at(offset, len)?;
        // SAFETY: as in `write_at`.
        Ok(unsafe { copy::fill(at, byte, len) }?)
    }

    /// Loads one byte with acquire ordering. Once the last byte of a message is seen, all its bytes
    /// are visible.
    pub fn load_u8_acquire(&self, offset: usize) -> Result<u8, RangeError> {
        let at = self.at(offset, 1)?;
        // SAFETY: as in `write_at`.
        Ok(unsafe { copy::load_u8(at) }?)
    }

    /// Loads 8 bytes in native order in one piece. The address of `offset` must be a multiple of 8.
    ///
    /// A word that the peer is placing may be seen half written: only its last byte shows that it
    /// is complete.
    pub fn load_u64_acquire(&self, offset: usize) -> Result<u64, RangeError> {
        let at = self.word_at(offset)?;
        // SAFETY: as in `write_at`; `word_at` checked the alignment.
        Ok(unsafe { copy::load_u64(at) }?)
    }

    /// Stores 8 bytes in native order in one piece. The address of `offset` must be a multiple of
    /// 8.
    pub fn store_u64_release(&self, offset: usize, value: u64) -> Result<(), RangeError> {
        let at = self.word_at(offset)?;
        // SAFETY: as in `write_at`; `word_at` checked the alignment.
        Ok(unsafe { copy::store_u64(at, value) }?)
    }

    /// Makes the tag invalid at once, with every window and fast region that is bound to it. The
    /// application keeps the memory while the region lives.
    ///
    /// RFC 5040 s8.1.1 (6): after revocation the network can no longer modify the buffer. That
    /// holds when the token is complete; before, a core may be in the middle of its last copy.
    pub fn revoke(&self) -> Quiescence {
        let RegisteredRange { slot, stag, .. } = self.registered;
        Quiescence::new(&self.shared, self.shared.revoke(slot, stag))
    }

    /// Makes the tag invalid at once, and releases the memory when the token is complete.
    pub fn deregister(mut self) -> Quiescence {
        let target = self.deregister_now();
        Quiescence::new(&self.shared, target)
    }

    fn deregister_now(&mut self) -> u64 {
        self.deregistered = true;
        let RegisteredRange { slot, stag, .. } = self.registered;
        let target = self.shared.deregister(slot, stag);
        self.shared.reclaim();
        target
    }

    fn at(&self, offset: usize, len: usize) -> Result<*mut u8, RangeError> {
        check_range(self.len(), offset, len)?;
        // SAFETY: `offset` is at most the length of the region, which is one allocation.
        Ok(unsafe { self.registered.base.as_ptr().add(offset) })
    }

    /// Returns whether it belongs to a table.
    pub(crate) fn belongs_to(&self, table: &Arc<TableInner>) -> bool {
        Arc::ptr_eq(&self.shared, table)
    }

    /// Returns its scope: a domain or one stream.
    pub(crate) fn scope(&self) -> AccessScope {
        let cold = self.shared.cold_slots.get(self.registered.slot as usize);
        AccessScope::new(self.pd(), cold.map_or(AccessScope::NO_STREAM, |cold| cold.qp()))
    }

    pub(crate) fn word_at(&self, offset: usize) -> Result<*mut u8, RangeError> {
        let at = self.at(offset, size_of::<u64>())?;
        if at.cast::<u64>().is_aligned() { Ok(at) } else { Err(RangeError::Misaligned) }
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        if !self.deregistered {
            self.deregister_now();
        }
    }
}

impl fmt::Debug for Region {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Region")
            .field("stag", &self.stag())
            .field("base_to", &format_args!("{:#x}", self.base_to()))
            .field("len", &self.len())
            .field("pd", &self.pd())
            .field("access", &self.access())
            .finish_non_exhaustive()
    }
}

/// Reports when no core can access what was revoked.
///
/// After [`Region::deregister`] the owner is dropped then or soon after, by a later call to the
/// table. Memory that was registered raw belongs to the application again. Dropping the token has
/// no effect.
#[must_use = "memory registered raw may be freed only when the token is complete"]
pub struct Quiescence {
    shared: Arc<TableInner>,
    target: u64,
}

/// Why a wait ended before quiescence.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
pub enum WaitError {
    /// The calling thread runs a core, which could never quiesce during the wait.
    #[error("the calling thread runs a core: poll the token instead")]
    OnCoreThread,
    /// A core has neither quiesced nor gone offline within the limit: its thread does not poll it.
    #[error("a core did not quiesce in time")]
    TimedOut,
}

impl Quiescence {
    pub(crate) fn new(shared: &Arc<TableInner>, target: u64) -> Self {
        Self { shared: Arc::clone(shared), target }
    }

    /// Returns whether every core has passed a quiescent point or is offline. Never waits. Releases
    /// some memory that is due.
    pub fn poll(&self) -> bool {
        self.shared.reclaim();
        self.shared.epochs.oldest() >= self.target
    }

    /// Waits at most `limit` until [`Quiescence::poll`] returns true.
    ///
    /// Cores do not wake waiters, so this polls with growing pauses.
    pub fn wait(&self, limit: Duration) -> Result<(), WaitError> {
        if self.shared.epochs.is_core_thread() {
            return Err(WaitError::OnCoreThread);
        }
        let start = Instant::now();
        let mut pause = PAUSE_MIN;
        while !self.poll() {
            if start.elapsed() >= limit {
                return Err(WaitError::TimedOut);
            }
            std::thread::sleep(pause);
            pause = (pause * 2).min(PAUSE_MAX);
        }
        Ok(())
    }
}

/// Longer than an iteration of a busy core.
const PAUSE_MIN: Duration = Duration::from_micros(5);
/// Short enough to be unnoticeable, long enough to cause no load.
const PAUSE_MAX: Duration = Duration::from_millis(1);

impl fmt::Debug for Quiescence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Quiescence").field("target", &self.target).finish_non_exhaustive()
    }
}
