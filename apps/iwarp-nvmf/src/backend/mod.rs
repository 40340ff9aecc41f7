//! Backends: where the blocks of a namespace are.
//!
//! A [`Backend`] belongs to one namespace and one core. Bytes are named by their offset in the
//! core's [`Arena`], or the backend lends its medium as registered memory ([`Backend::mapped`]) and
//! the transport moves data there directly.
//!
//! A core polls everything itself, so no call takes long: each may touch as many bytes of its
//! medium as the [`Budget`] it gets, and returns [`Submission::Progress`] when there is more to do.
//! [`BUDGET_BYTES_MAX`] bounds a budget.
//!
//! | backend | copies of a Read | copies of a Write |
//! | --- | --- | --- |
//! | memory, null | none: RDMA Write from the medium | none: RDMA Read into the medium; one from a capsule |
//! | file | none: the kernel reads into the arena, RDMA Write from there | none: RDMA Read or capsule into the arena, the kernel writes from there |
//!
//! A file that is not opened with O_DIRECT adds the kernel's copy to or from its page cache.

pub mod faults;
mod media;
mod medium;
mod memory;
mod null;
mod uring;

use std::sync::Arc;

use ironwarp::{Region, Sge};

pub use media::{Inherited, Media, stored_name};
pub use medium::{Claim, FileMedium, FileOptions, MediumId};
pub use memory::MemoryBackend;
pub use null::NullBackend;
pub use uring::FileBackend;

use crate::wire::Status;

/// What a backend does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum BlockOperation {
    /// Reads into the arena.
    Read,
    /// Writes from the arena.
    Write {
        /// Makes the data durable before the completion.
        durable: bool,
    },
    /// Makes everything durable that was written.
    Flush,
    /// Makes the bytes zeros.
    WriteZeroes {
        /// Makes the zeros durable before the completion.
        durable: bool,
        /// May release the space.
        may_deallocate: bool,
    },
    /// Releases the space of the bytes, if it can. They read as zeros then.
    Deallocate,
}

/// A request to a backend.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BlockRequest {
    /// The operation.
    pub operation: BlockOperation,
    /// The first byte of the medium.
    pub offset: u64,
    /// Bytes.
    pub bytes: u64,
    /// The first byte in the arena, for Read and Write.
    pub arena_offset: usize,
}

/// Why a request failed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum BlockError {
    /// No space is left.
    #[error("no space is left")]
    NoSpace,
    /// The medium cannot be read.
    #[error("the medium cannot be read, error {0}")]
    Read(i32),
    /// The medium cannot be written.
    #[error("the medium cannot be written, error {0}")]
    Write(i32),
    /// An earlier fdatasync has failed, with this error: nothing tells whether what was written
    /// before is there.
    #[error("fdatasync has failed before, error {0}: a reload opens the medium again")]
    SyncLost(i32),
    /// The request does not fit the medium or the arena.
    #[error("the request is outside of the medium")]
    Range,
}

impl From<BlockError> for Status {
    fn from(error: BlockError) -> Status {
        match error {
            BlockError::NoSpace => Status::CAPACITY_EXCEEDED,
            BlockError::Read(_) => Status::UNRECOVERED_READ_ERROR,
            BlockError::Write(_) | BlockError::SyncLost(_) => Status::WRITE_FAULT,
            BlockError::Range => Status::LBA_OUT_OF_RANGE,
        }
    }
}

/// The largest budget of one call: some microseconds of a core that fills memory.
pub const BUDGET_BYTES_MAX: u64 = 64 << 10;

/// Bytes that a call on a polled core may still touch.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Budget {
    left: u64,
}

impl Budget {
    /// A budget of at most [`BUDGET_BYTES_MAX`] bytes.
    pub fn new(bytes: u64) -> Self {
        Budget { left: bytes.min(BUDGET_BYTES_MAX) }
    }

    /// Returns the bytes that are left.
    pub fn left(&self) -> u64 {
        self.left
    }

    /// Takes up to `wanted` bytes. Returns how many may be touched.
    #[must_use]
    pub fn take(&mut self, wanted: u64) -> u64 {
        let granted = wanted.min(self.left);
        self.left -= granted;
        granted
    }
}

/// The result of submitting a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Submission {
    /// It has completed.
    Done(Result<(), BlockError>),
    /// The first bytes are done and the budget is used up. The caller submits the rest later.
    Progress(u64),
    /// [`Backend::poll`] returns its token.
    Pending,
    /// The backend's queue is full: try again after a poll.
    Busy,
}

/// The result of a request that was pending.
pub type BlockCompletion = (u64, Result<(), BlockError>);

/// A namespace's medium, as one core uses it.
pub trait Backend: Send {
    /// Returns registered memory that is the medium, for RDMA from (`to_medium` false) or into it.
    /// `None` if the medium is not memory, as here.
    fn mapped(&self, _offset: u64, _bytes: u32, _to_medium: bool) -> Option<Sge> {
        None
    }

    /// Copies bytes of a mapped medium. Returns whether it did.
    fn read_bytes(&self, _offset: u64, _into: &mut [u8]) -> bool {
        false
    }

    /// Copies bytes into a mapped medium. Returns whether it did.
    fn write_bytes(&self, _offset: u64, _from: &[u8]) -> bool {
        false
    }

    /// Begins a request. Never waits, and touches at most `budget` bytes of the medium itself.
    fn submit(&mut self, token: u64, request: &BlockRequest, budget: &mut Budget) -> Submission;

    /// Collects completions and passes what was submitted to the kernel. Touches no byte of the
    /// medium.
    fn poll(&mut self, completions: &mut Vec<BlockCompletion>);

    /// Returns whether it has to be polled.
    fn needs_poll(&self) -> bool;
}

/// Registered memory of one core: data buffers, capsules and submission queue entries.
#[derive(Clone)]
pub struct Arena {
    region: Arc<Region>,
}

impl Arena {
    /// An arena of a region that only this core's connections use.
    pub fn new(region: Region) -> Self {
        Arena { region: Arc::new(region) }
    }

    /// Returns its memory.
    pub fn region(&self) -> &Arc<Region> {
        &self.region
    }
}

#[cfg(test)]
mod tests;
