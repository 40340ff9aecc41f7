//! A medium in a file or block device, by io_uring.
//!
//! Each core has a ring for each namespace. The core's arena is registered with the ring where the system allows it, so a
//! request names memory that the kernel has pinned already. O_DIRECT avoids the page cache where the file system has it.
//!
//! | operation | what the kernel does |
//! | --- | --- |
//! | Read, Write | read or write in the arena; a short one continues |
//! | Flush, Force Unit Access | fdatasync |
//! | Write Zeroes | fallocate: zero range, else punch hole, else writes of zeros |
//! | Deallocate | fallocate: punch hole; ignored where it is not supported |
#![allow(unsafe_code, reason = "io_uring takes pointers to memory that the kernel reads and writes")]

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::fs::{FileExt, FileTypeExt, OpenOptionsExt};
use std::path::Path;
use std::sync::Arc;

use io_uring::{IoUring, opcode, squeue, types};
use ironwarp::{Region, Sge};

use super::{Arena, Backend, BlockCompletion, BlockError, BlockOperation, BlockRequest, Budget, Submission};

/// How a file is opened.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FileOptions {
    /// Uses O_DIRECT if the file system has it.
    pub direct: bool,
    /// Opens for reading only.
    pub read_only: bool,
}

/// An open file. All cores share it.
#[derive(Debug)]
pub struct FileMedium {
    file: File,
    bytes: u64,
    /// Whether it was opened with O_DIRECT.
    pub is_direct: bool,
}

impl FileMedium {
    /// Opens a file or block device.
    ///
    /// # Errors
    ///
    /// Those of the system. A file system without O_DIRECT is not an error.
    pub fn open(path: &Path, options: FileOptions) -> io::Result<Self> {
        let open =
            |flags| OpenOptions::new().read(true).write(!options.read_only).custom_flags(flags).open(path);
        let direct = if options.direct { open(libc::O_DIRECT).ok() } else { None };
        let is_direct = direct.is_some();
        let file = direct.map_or_else(|| open(0), Ok)?;
        let kind = file.metadata()?;
        let bytes = if kind.file_type().is_block_device() {
            io::Seek::seek(&mut &file, io::SeekFrom::End(0))?
        } else {
            kind.len()
        };
        Ok(FileMedium { file, bytes, is_direct })
    }

    /// Checks that blocks of `bytes` can be read: O_DIRECT takes whole sectors of the disk only.
    ///
    /// # Errors
    ///
    /// The disk has larger sectors, or cannot be read.
    pub fn check_block(&self, bytes: u32) -> io::Result<()> {
        let mut block = Box::new(Zeros([0; ZEROS_BYTES]));
        let Some(block) = block.0.get_mut(..bytes as usize) else { return Ok(()) };
        match self.file.read_at(block, 0) {
            Err(error) if self.is_direct && error.raw_os_error() == Some(libc::EINVAL) => {
                let text = format!(
                    "O_DIRECT does not take blocks of {bytes} bytes: raise block_bytes, or direct = false"
                );
                Err(io::Error::new(io::ErrorKind::InvalidInput, text))
            }
            outcome => outcome.map(drop),
        }
    }

    /// Returns its size in bytes.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }
}

/// Requests in flight for each core and namespace.
const RING_ENTRIES: u32 = 256;
/// Bytes of zeros that are written at once where fallocate is not supported.
const ZEROS_BYTES: usize = 64 << 10;
/// The alignment of memory that O_DIRECT takes.
const PAGE_BYTES: usize = 4096;

/// Zeros, aligned for O_DIRECT.
#[repr(C, align(4096))]
struct Zeros([u8; ZEROS_BYTES]);
static ZEROS: Zeros = Zeros([0; ZEROS_BYTES]);
const _: () = assert!(align_of::<Zeros>() == PAGE_BYTES);

/// What the kernel is doing for a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Stage {
    Read,
    Write,
    Sync,
    ZeroRange,
    PunchHole,
    WriteZeros,
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

/// A namespace in a file, for one core.
pub struct FileBackend {
    /// Declared before what the kernel may still use: dropping waits for the kernel first.
    ring: IoUring,
    medium: Arc<FileMedium>,
    arena: Arc<Region>,
    /// Whether the arena is registered with the ring.
    is_registered: bool,
    requests: Vec<Option<InFlight>>,
    free: Vec<usize>,
    /// Entries that the kernel has not been told of.
    unsubmitted: bool,
}

impl FileBackend {
    /// A ring for `medium` and the memory of `arena`.
    ///
    /// # Errors
    ///
    /// The system refuses io_uring: it lacks it, or a policy forbids it (`kernel.io_uring_disabled`, seccomp).
    pub fn new(medium: Arc<FileMedium>, arena: &Arena) -> io::Result<Self> {
        let ring = IoUring::new(RING_ENTRIES)?;
        let arena = arena.region().clone();
        let whole = libc::iovec { iov_base: arena.base_to() as *mut libc::c_void, iov_len: arena.len() };
        // SAFETY: the region is alive until the ring has ended, which `drop` waits for.
        let is_registered = unsafe { ring.submitter().register_buffers(&[whole]) }.is_ok();
        if !is_registered {
            tracing::warn!("the arena is not registered with io_uring: raise the limit of locked memory");
        }
        let requests = vec![None; RING_ENTRIES as usize];
        let free = (0..requests.len()).rev().collect();
        Ok(FileBackend { ring, medium, arena, is_registered, requests, free, unsubmitted: false })
    }

    /// Returns the first address of bytes in the arena.
    fn address(&self, offset: usize, bytes: u64) -> Result<*mut u8, BlockError> {
        let bytes = u32::try_from(bytes).map_err(|_| BlockError::Range)?;
        let at = self.arena.slice(offset, bytes).map_err(|_| BlockError::Range)?;
        Ok(at.addr as *mut u8)
    }

    fn entry(&self, request: &InFlight) -> Result<squeue::Entry, BlockError> {
        let file = types::Fd(self.fd());
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
            Stage::Sync => opcode::Fsync::new(file).flags(types::FsyncFlags::DATASYNC).build(),
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

    fn fd(&self) -> RawFd {
        self.medium.file.as_raw_fd()
    }

    /// Queues the stage of the request in a place. Fails if the ring is full.
    fn queue(&mut self, place: usize, request: InFlight) -> Result<bool, BlockError> {
        let entry = self.entry(&request)?.user_data(place as u64);
        if self.ring.submission().is_full() {
            // Errors show as missing completions of this poll; the next one tries again.
            let _ = self.ring.submit();
        }
        // SAFETY: the memory is in the arena, within bounds, or static; the file and the arena live until the ring has
        // ended, which `drop` waits for.
        let queued = unsafe { self.ring.submission().push(&entry) }.is_ok();
        if queued {
            self.unsubmitted = true;
            if let Some(slot) = self.requests.get_mut(place) {
                *slot = Some(request);
            }
        }
        Ok(queued)
    }

    /// Continues a request after a stage. `None`: it has completed.
    fn next_stage(&self, request: &InFlight, result: i32) -> Result<Option<InFlight>, BlockError> {
        let mut next = *request;
        match (request.stage, result) {
            (_, again) if again == -libc::EAGAIN || again == -libc::EINTR => return Ok(Some(next)),
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

    fn on_completion(&mut self, place: usize, result: i32, completions: &mut Vec<BlockCompletion>) {
        let Some(request) = self.requests.get_mut(place).and_then(Option::take) else { return };
        let outcome = match self.next_stage(&request, result) {
            Ok(Some(next)) => match self.queue(place, next) {
                Ok(true) => return,
                // The place of the stage that ended is free in the ring, so this is a failure of the kernel.
                Ok(false) => Err(block_error(request.stage, libc::EBUSY)),
                Err(error) => Err(error),
            },
            Ok(None) => Ok(()),
            Err(error) => Err(error),
        };
        self.free.push(place);
        completions.push((request.token, outcome));
    }

    fn collect(&mut self, completions: &mut Vec<BlockCompletion>) {
        loop {
            // The queue is borrowed for one entry only, since a stage that ended may queue the next.
            let Some(entry) = self.ring.completion().next() else { break };
            self.on_completion(entry.user_data() as usize, entry.result(), completions);
        }
    }

    fn in_flight(&self) -> usize {
        self.requests.len() - self.free.len()
    }
}

impl Backend for FileBackend {
    fn mapped(&self, _offset: u64, _bytes: u32, _to_medium: bool) -> Option<Sge> {
        None
    }

    fn read_bytes(&self, _offset: u64, _into: &mut [u8]) -> bool {
        false
    }

    fn write_bytes(&self, _offset: u64, _from: &[u8]) -> bool {
        false
    }

    /// The kernel touches the bytes, not this core.
    fn submit(&mut self, token: u64, request: &BlockRequest, _budget: &mut Budget) -> Submission {
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
        if self.unsubmitted {
            // A failure leaves the entries in the ring; the next poll submits them again.
            self.unsubmitted = self.ring.submit().is_err();
        }
    }

    fn needs_poll(&self) -> bool {
        true
    }
}

impl Drop for FileBackend {
    /// Waits until the kernel uses none of the memory.
    fn drop(&mut self) {
        let mut completions = Vec::new();
        while self.in_flight() > 0 {
            if let Err(error) = self.ring.submit_and_wait(1)
                && error.raw_os_error() != Some(libc::EINTR)
            {
                // Memory that the kernel may still write must not be freed.
                std::mem::forget(self.arena.clone());
                return;
            }
            self.collect(&mut completions);
        }
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    /// Every disk has sectors of at least 512 bytes, so O_DIRECT never takes 100.
    #[test]
    fn a_block_smaller_than_a_sector_is_named() {
        let folder = tempfile::tempdir_in(env!("CARGO_MANIFEST_DIR")).expect("a folder");
        let path = folder.path().join("disk");
        std::fs::write(&path, vec![0; 8192]).expect("written");
        let open = |direct| FileMedium::open(&path, FileOptions { direct, read_only: true }).expect("open");
        let direct = open(true);
        if direct.is_direct {
            let error = direct.check_block(100).expect_err("too small").to_string();
            assert!(error.contains("100") && error.contains("block_bytes"), "{error}");
        }
        assert!(direct.check_block(4096).is_ok());
        assert!(open(false).check_block(100).is_ok());
    }
}
