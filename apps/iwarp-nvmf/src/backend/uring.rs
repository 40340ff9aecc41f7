//! A medium in a file or block device, by io_uring.
//!
//! Each core has a ring for each namespace. The core's arena is registered with the ring where the
//! system allows it, so a request names memory that the kernel has pinned already. O_DIRECT avoids
//! the page cache where the file system has it.
//!
//! | operation | what the kernel does |
//! | --- | --- |
//! | Read, Write | read or write in the arena; a short one continues |
//! | Flush, Force Unit Access | fdatasync: one at a time, which serves all that waited for it |
//! | Write Zeroes | fallocate: zero range, else punch hole, else writes of zeros |
//! | Deallocate | fallocate: punch hole; ignored where it is not supported |
//!
//! Linux reports a write-back error to one fdatasync of an open file description. Each core has a
//! description of its own and one fdatasync in flight, so no Flush returns success after another
//! one of its core has taken the error. What follows is in [`super::FileMedium`].
#![allow(unsafe_code, reason = "io_uring takes pointers to memory that the kernel reads and writes")]

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use io_uring::{IoUring, opcode, squeue, types};
use ironwarp::Region;

use super::faults::{DiskFaults, NoFaults};
use super::medium::PAGE_BYTES;
use super::{
    Arena, Backend, BlockCompletion, BlockError, BlockOperation, BlockRequest, Budget, FileMedium, Submission,
};
use crate::target::IoCounters;

/// Requests in flight for each core and namespace.
const RING_ENTRIES: u32 = 256;
/// The longest wait for a disk when a backend is closed.
const DROP_TIMEOUT: Duration = Duration::from_secs(5);
/// Bytes of zeros that are written at once where fallocate is not supported.
const ZEROS_BYTES: usize = 64 << 10;
/// The number of the fdatasync in flight, which is no slot of a request.
const SYNC: u64 = RING_ENTRIES as u64;

/// Zeros, aligned for O_DIRECT.
#[repr(C, align(4096))]
struct Zeros([u8; ZEROS_BYTES]);
static ZEROS: Zeros = Zeros([0; ZEROS_BYTES]);
const _: () = assert!(align_of::<Zeros>() == PAGE_BYTES);

/// What the kernel is doing for a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Stage {
    /// Reads.
    Read,
    /// Writes.
    Write,
    /// fdatasync.
    Sync,
    /// fallocate that makes zeros.
    ZeroRange,
    /// fallocate that makes zeros and releases the space.
    PunchHole,
    /// Writes zeros, since fallocate cannot.
    WriteZeros,
    /// fallocate that releases the space.
    Deallocate,
}

/// A request in flight.
#[derive(Clone, Copy, Debug)]
struct InFlight {
    token: u64,
    stage: Stage,
    /// What is left.
    offset: u64,
    bytes: u64,
    arena_offset: usize,
    /// Whether fdatasync follows.
    durable: bool,
}

/// The fdatasync in flight and the requests, by their slots, that wait for one.
#[derive(Default)]
struct SyncGroup {
    /// What the one in flight is for. Empty: none is in flight.
    running: Vec<usize>,
    /// Requests that arrived after it began, so the next one is for them.
    waiting: Vec<usize>,
}

/// A namespace in a file, for one core. `F` makes the disk fail in tests.
pub struct FileBackend<F: DiskFaults = NoFaults> {
    /// Declared before what the kernel may still use: dropping waits for the kernel first.
    ring: IoUring,
    medium: Arc<FileMedium>,
    /// The medium, in an open file description of this core.
    file: File,
    arena: Arc<Region>,
    /// Whether the arena is registered with the ring.
    is_registered: bool,
    requests: Vec<Option<InFlight>>,
    free: Vec<usize>,
    syncs: SyncGroup,
    /// Entries that the kernel has not been told of.
    unsubmitted: bool,
    /// Entries without a completion: the kernel may use their memory.
    in_kernel: usize,
    counters: Arc<IoCounters>,
    faults: F,
    /// Completions that the faults hold back: number and result.
    held: Vec<(u64, i32)>,
}

impl<F: DiskFaults> FileBackend<F> {
    /// A ring for `medium` and the memory of `arena`.
    ///
    /// # Errors
    ///
    /// The system refuses io_uring: it lacks it, or a policy forbids it
    /// (`kernel.io_uring_disabled`, seccomp).
    pub fn new(
        medium: Arc<FileMedium>,
        arena: &Arena,
        counters: Arc<IoCounters>,
        faults: F,
    ) -> io::Result<Self> {
        let ring = IoUring::new(RING_ENTRIES)?;
        let file = medium.file_of_core()?;
        let arena = arena.region().clone();
        let whole = libc::iovec { iov_base: arena.base_to() as *mut libc::c_void, iov_len: arena.len() };
        // SAFETY: the region is alive until the ring has ended, which `drop` waits for.
        let is_registered = unsafe { ring.submitter().register_buffers(&[whole]) }.is_ok();
        if !is_registered {
            tracing::warn!("the arena is not registered with io_uring: raise the limit of locked memory");
        }
        let requests = vec![None; RING_ENTRIES as usize];
        let free = (0..requests.len()).rev().collect();
        let (syncs, held) = (SyncGroup::default(), Vec::new());
        Ok(FileBackend {
            ring,
            medium,
            file,
            arena,
            is_registered,
            requests,
            free,
            syncs,
            unsubmitted: false,
            in_kernel: 0,
            counters,
            faults,
            held,
        })
    }

    /// Returns the first address of bytes in the arena.
    fn address(&self, offset: usize, bytes: u64) -> Result<*mut u8, BlockError> {
        let bytes = u32::try_from(bytes).map_err(|_| BlockError::Range)?;
        let at = self.arena.slice(offset, bytes).map_err(|_| BlockError::Range)?;
        Ok(at.addr as *mut u8)
    }

    fn entry(&self, request: &InFlight) -> Result<squeue::Entry, BlockError> {
        let file = types::Fd(self.file.as_raw_fd());
        let length = u32::try_from(request.bytes).unwrap_or(u32::MAX);
        Ok(match request.stage {
            Stage::Read => {
                let at = self.address(request.arena_offset, request.bytes)?;
                if self.is_registered {
                    opcode::ReadFixed::new(file, at, length, 0).offset(request.offset).build()
                } else {
                    opcode::Read::new(file, at, length).offset(request.offset).build()
                }
            }
            Stage::Write => {
                let at = self.address(request.arena_offset, request.bytes)?;
                if self.is_registered {
                    opcode::WriteFixed::new(file, at, length, 0).offset(request.offset).build()
                } else {
                    opcode::Write::new(file, at, length).offset(request.offset).build()
                }
            }
            // `start_sync` makes its entry.
            Stage::Sync => return Err(BlockError::Range),
            Stage::WriteZeros => {
                let length = length.min(ZEROS_BYTES as u32);
                opcode::Write::new(file, ZEROS.0.as_ptr(), length).offset(request.offset).build()
            }
            Stage::ZeroRange | Stage::PunchHole | Stage::Deallocate => {
                let kind = match request.stage {
                    Stage::ZeroRange => libc::FALLOC_FL_ZERO_RANGE,
                    _ => libc::FALLOC_FL_PUNCH_HOLE,
                };
                let mode = kind | libc::FALLOC_FL_KEEP_SIZE;
                opcode::Fallocate::new(file, request.bytes).offset(request.offset).mode(mode).build()
            }
        })
    }

    /// Queues the stage of the request in a slot. Fails if the ring is full.
    fn queue(&mut self, place: usize, request: InFlight) -> Result<bool, BlockError> {
        if request.stage == Stage::Sync {
            if let Some(slot) = self.requests.get_mut(place) {
                *slot = Some(request);
            }
            self.syncs.waiting.push(place);
            self.start_sync();
            return Ok(true);
        }
        let entry = self.entry(&request)?.user_data(place as u64);
        let queued = self.push(&entry);
        if queued && let Some(slot) = self.requests.get_mut(place) {
            *slot = Some(request);
        }
        Ok(queued)
    }

    /// Adds an entry to the ring. Returns whether it had room.
    fn push(&mut self, entry: &squeue::Entry) -> bool {
        if self.ring.submission().is_full() {
            // Errors show as missing completions of this poll; the next one tries again.
            let _ = self.ring.submit();
        }
        // SAFETY: the memory is in the arena, within bounds, or static; the file and the arena live
        // until the ring has ended, which `drop` waits for.
        let queued = unsafe { self.ring.submission().push(entry) }.is_ok();
        self.unsubmitted |= queued;
        self.in_kernel += usize::from(queued);
        queued
    }

    /// Begins an fdatasync for all that wait for one, unless one is in flight or the ring is full.
    fn start_sync(&mut self) {
        if self.syncs.waiting.is_empty() || !self.syncs.running.is_empty() {
            return;
        }
        let file = types::Fd(self.file.as_raw_fd());
        let entry = opcode::Fsync::new(file).flags(types::FsyncFlags::DATASYNC).build().user_data(SYNC);
        if self.push(&entry) {
            core::mem::swap(&mut self.syncs.running, &mut self.syncs.waiting);
        }
    }

    /// An fdatasync has ended, and so have the requests that it was for.
    fn on_sync(&mut self, result: i32, completions: &mut Vec<BlockCompletion>) {
        let mut served = core::mem::take(&mut self.syncs.running);
        if is_again(result) {
            served.append(&mut self.syncs.waiting);
            self.syncs.waiting = served;
            return self.start_sync();
        }
        if result < 0 {
            self.counters.sync_errors.fetch_add(1, Ordering::Relaxed);
            self.medium.record_sync_error(-result);
        }
        // Another core may have taken the error of what these requests wrote.
        let outcome = self.medium.sync_error().map_or(Ok(()), |error| Err(BlockError::SyncLost(error)));
        for place in served.drain(..) {
            if let Some(request) = self.requests.get_mut(place).and_then(Option::take) {
                self.free.push(place);
                completions.push((request.token, outcome));
            }
        }
        // Keeps its memory.
        self.syncs.running = served;
        self.start_sync();
    }

    /// Continues a request after a stage. `None`: it has completed.
    fn next_stage(&self, request: &InFlight, result: i32) -> Result<Option<InFlight>, BlockError> {
        let mut next = *request;
        match (request.stage, result) {
            (_, again) if is_again(again) => return Ok(Some(next)),
            (Stage::ZeroRange, unsupported) if is_unsupported(unsupported) => next.stage = Stage::PunchHole,
            (Stage::PunchHole, unsupported) if is_unsupported(unsupported) => next.stage = Stage::WriteZeros,
            (Stage::Deallocate, unsupported) if is_unsupported(unsupported) => return Ok(None),
            (stage, error) if error < 0 => return Err(block_error(stage, -error)),
            (Stage::Read | Stage::Write | Stage::WriteZeros, moved) => {
                let moved = u64::from(moved.unsigned_abs());
                next.bytes = request.bytes.saturating_sub(moved);
                next.offset = request.offset + moved;
                next.arena_offset = request.arena_offset + moved as usize;
                if moved == 0 {
                    // The file has become shorter than its namespace.
                    return Err(block_error(request.stage, libc::EIO));
                }
                if next.bytes > 0 && request.stage != Stage::WriteZeros {
                    self.counters.short_transfers.fetch_add(1, Ordering::Relaxed);
                }
                if next.bytes == 0 {
                    return Ok(request.durable.then_some(InFlight { stage: Stage::Sync, ..next }));
                }
            }
            (Stage::ZeroRange | Stage::PunchHole, _) => {
                return Ok(request.durable.then_some(InFlight { stage: Stage::Sync, ..next }));
            }
            (Stage::Sync | Stage::Deallocate, _) => return Ok(None),
        }
        Ok(Some(next))
    }

    fn on_completion(&mut self, number: u64, result: i32, completions: &mut Vec<BlockCompletion>) {
        if number == SYNC {
            return self.on_sync(result, completions);
        }
        let place = number as usize;
        let Some(request) = self.requests.get_mut(place).and_then(Option::take) else { return };
        let outcome = match self.next_stage(&request, result) {
            Ok(Some(next)) => match self.queue(place, next) {
                Ok(true) => return,
                // The slot of the stage that ended is free in the ring, so this is a failure of the
                // kernel.
                Ok(false) => Err(block_error(request.stage, libc::EBUSY)),
                Err(error) => Err(error),
            },
            Ok(None) => Ok(()),
            Err(error) => Err(error),
        };
        if let Err(error) = outcome {
            self.count(error);
        }
        self.free.push(place);
        completions.push((request.token, outcome));
    }

    #[cold]
    fn count(&self, error: BlockError) {
        let counters = &self.counters;
        let counter: &AtomicU64 = match error {
            BlockError::NoSpace => &counters.no_space,
            BlockError::Read(_) => &counters.read_errors,
            _ => &counters.write_errors,
        };
        counter.fetch_add(1, Ordering::Relaxed);
    }

    fn collect(&mut self, completions: &mut Vec<BlockCompletion>) {
        loop {
            // The queue is borrowed for one entry only, since a stage that ended may queue the
            // next.
            let Some(entry) = self.ring.completion().next() else { break };
            let (number, mut result) = (entry.user_data(), entry.result());
            self.in_kernel -= 1;
            if F::ENABLED {
                let stage = self.requests.get(number as usize).copied().flatten();
                match self.faults.result(stage.map_or(Stage::Sync, |one| one.stage), result) {
                    Some(changed) => result = changed,
                    None => {
                        self.held.push((number, result));
                        continue;
                    }
                }
            }
            self.on_completion(number, result, completions);
        }
        if F::ENABLED && !self.held.is_empty() && !self.faults.is_hung() {
            for (number, result) in core::mem::take(&mut self.held) {
                self.on_completion(number, result, completions);
            }
        }
    }
}

impl<F: DiskFaults> Backend for FileBackend<F> {
    /// The kernel touches the bytes, not this core.
    fn submit(&mut self, token: u64, request: &BlockRequest, _budget: &mut Budget) -> Submission {
        if request.operation != BlockOperation::Read
            && let Some(error) = self.medium.sync_error()
        {
            return Submission::Done(Err(BlockError::SyncLost(error)));
        }
        let (stage, durable) = match request.operation {
            BlockOperation::Read => (Stage::Read, false),
            BlockOperation::Write { durable } => (Stage::Write, durable),
            BlockOperation::Flush => (Stage::Sync, false),
            BlockOperation::WriteZeroes { durable, may_deallocate: true } => (Stage::PunchHole, durable),
            BlockOperation::WriteZeroes { durable, .. } => (Stage::ZeroRange, durable),
            BlockOperation::Deallocate => (Stage::Deallocate, false),
        };
        let Some(place) = self.free.pop() else { return Submission::Busy };
        let BlockRequest { offset, bytes, arena_offset, .. } = *request;
        match self.queue(place, InFlight { token, stage, offset, bytes, arena_offset, durable }) {
            Ok(true) => Submission::Pending,
            outcome => {
                self.free.push(place);
                outcome.map_or_else(|error| Submission::Done(Err(error)), |_| Submission::Busy)
            }
        }
    }

    fn poll(&mut self, completions: &mut Vec<BlockCompletion>) {
        self.collect(completions);
        self.start_sync();
        if self.unsubmitted {
            // A failure leaves the entries in the ring; the next poll submits them again.
            self.unsubmitted = self.ring.submit().is_err();
        }
    }

    fn needs_poll(&self) -> bool {
        true
    }
}

impl<F: DiskFaults> Drop for FileBackend<F> {
    /// Waits until the kernel uses none of the memory, but not for a disk that hangs.
    fn drop(&mut self) {
        let deadline = Instant::now() + DROP_TIMEOUT;
        let mut completions = Vec::new();
        self.syncs.waiting.clear();
        while self.in_kernel > 0 {
            let wait = types::Timespec::from(Duration::from_millis(100));
            let wait = types::SubmitArgs::new().timespec(&wait);
            let outcome = self.ring.submitter().submit_with_args(1, &wait);
            let passing = [libc::EINTR, libc::ETIME, libc::EBUSY];
            let failed =
                outcome.is_err_and(|error| error.raw_os_error().is_none_or(|one| !passing.contains(&one)));
            if failed || Instant::now() > deadline {
                tracing::error!("a disk has kept {} requests for {DROP_TIMEOUT:?}", self.in_kernel);
                // Memory that the kernel may still write must not be freed.
                std::mem::forget(self.arena.clone());
                return;
            }
            self.collect(&mut completions);
        }
    }
}

fn is_again(result: i32) -> bool {
    result == -libc::EAGAIN || result == -libc::EINTR
}

fn is_unsupported(result: i32) -> bool {
    [libc::EOPNOTSUPP, libc::ENOSYS, libc::EINVAL, libc::ENODEV].iter().any(|&error| result == -error)
}

fn block_error(stage: Stage, error: i32) -> BlockError {
    match error {
        libc::ENOSPC | libc::EDQUOT | libc::EFBIG => BlockError::NoSpace,
        error if stage == Stage::Read => BlockError::Read(error),
        error => BlockError::Write(error),
    }
}
