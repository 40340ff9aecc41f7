//! Shared memory: regions of a memfd, bounds-checked copies to and from them, and the words of a
//! ring.
//!
//! The peer maps the same pages and may change any byte at any time. So no reference to shared
//! bytes exists: words are read and written as atomics, payloads are copied between shared memory
//! and private buffers by address. The exception are frames that are built here to be sent as they
//! lie ([`Region::pool`]), whose bytes decide nothing once they are written. A region keeps its
//! mapping until the last user drops it.
//!
//! A region of the peer is taken only if no page can be taken away under the mapping, and none is
//! missing:
//!
//! - A file that shrinks ends the process with SIGBUS at the next access. The peer must have set
//!   `F_SEAL_SHRINK`, on tmpfs.
//! - A hole costs a fault at a copy, the page belongs to the memory of the process that touches it
//!   first, and there may be none left, which is SIGBUS too (`vm.overcommit_memory = 2`). So this
//!   end sets `F_SEAL_FUTURE_WRITE` (Linux 5.1) once it has its mapping: from then on the kernel
//!   refuses to punch holes. Then it looks for holes, and no later one can appear.
//! - Of a peer that is trusted with this end's memory, holes are filled at once ([`Holes::Fill`]),
//!   so that no copy faults.
//!
//! Every offset and length is checked against the mapping here, whatever the caller checked before.
//! This is the only file of the port with shared memory in `unsafe` code.

#[cfg(test)]
mod tests;

use core::ffi::c_void;
use core::ptr::{self, NonNull};
use core::sync::atomic::{AtomicU16, AtomicU32, AtomicU64, Ordering};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use ironwarp_arch::prefetch_address;
use rustix::fs::{
    MemfdFlags, SealFlags, SeekFrom, fcntl_add_seals, fcntl_get_seals, fstat, fstatfs, ftruncate,
    memfd_create, seek,
};
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap, munmap};

use crate::pool::{Owner, Pool};

/// The most bytes of one region.
pub(super) const REGION_BYTES_MAX: u64 = 1 << 30;
/// The file system of an ordinary memfd (`TMPFS_MAGIC`). Huge pages may be taken away by punching a
/// hole.
const TMPFS_MAGIC: i64 = 0x0102_1994;
/// What is written at once to a new region.
const FILL_BYTES: usize = 64 << 10;
const CACHE_LINE_BYTES: usize = 64;
/// What is fetched of a frame before it is copied: a small one. The processor itself follows a
/// longer copy.
const PREFETCH_BYTES: usize = 3 * CACHE_LINE_BYTES;
/// The first word of every ring.
const COOKIE: u32 = 0x03E3_1F20;
/// The bytes before a ring's descriptors.
pub(super) const RING_HEADER_BYTES: usize = 128;
/// The bytes of a descriptor.
pub(super) const DESCRIPTOR_BYTES: usize = 16;
/// The ring's alignment that the accesses need.
const RING_ALIGN: usize = 8;

/// A mapped region.
pub(super) struct Region {
    base: NonNull<u8>,
    bytes: usize,
    /// The thread that has dropped it.
    #[cfg(test)]
    pub(super) dropped_by: DroppedBy,
}

#[cfg(test)]
pub(super) type DroppedBy = Arc<std::sync::OnceLock<std::thread::ThreadId>>;

// SAFETY: the mapping belongs to the region until it is dropped. Threads access it as the peer
// does: words as atomics, payloads by copies that need no exclusion.
unsafe impl Send for Region {}
// SAFETY: as above.
unsafe impl Sync for Region {}

/// Why a region of the peer is refused.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum RegionFault {
    /// Another kind of file than a memfd of ordinary pages, or one that can shrink or get holes.
    Unsealed,
    /// Pages are missing: the peer has not written to all of them.
    Holes,
    /// Longer than its file or than [`REGION_BYTES_MAX`], or empty.
    Size,
    /// The system refused the mapping.
    Map,
}

/// What to do with missing pages of a peer's region.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Holes {
    /// The region is refused.
    Refuse,
    /// They become pages of this process's memory.
    Fill,
}

impl Region {
    /// Creates a region that cannot shrink, and returns it with its file. All of its pages exist,
    /// and belong to the memory of this process.
    ///
    /// # Errors
    /// What the system reports: without memory this is an error, and no signal at a later access.
    pub(super) fn create(bytes: usize) -> io::Result<(Self, OwnedFd)> {
        let file = memfd_create("ironwarp-memif", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
        ftruncate(&file, bytes as u64)?;
        fcntl_add_seals(&file, SealFlags::SHRINK | SealFlags::GROW)?;
        fill(&file, bytes)?;
        Ok((Self::map(&file, bytes)?, file))
    }

    /// Maps a region of the peer.
    ///
    /// # Errors
    /// [`RegionFault`].
    pub(super) fn open(file: &OwnedFd, bytes: u64, holes: Holes) -> Result<Self, RegionFault> {
        // A file that has no seals at all fails here.
        let seals = fcntl_get_seals(file).map_err(|_| RegionFault::Unsealed)?;
        let system = fstatfs(file).map_err(|_| RegionFault::Unsealed)?;
        if !seals.contains(SealFlags::SHRINK) || system.f_type != TMPFS_MAGIC {
            return Err(RegionFault::Unsealed);
        }
        let there = fstat(file).map_err(|_| RegionFault::Size)?.st_size;
        if bytes == 0 || bytes > REGION_BYTES_MAX || bytes > u64::try_from(there).unwrap_or(0) {
            return Err(RegionFault::Size);
        }
        let len = usize::try_from(bytes).map_err(|_| RegionFault::Size)?;
        // The seal allows no new mapping, so this end's comes first; pages that are found after it
        // are there to stay.
        let region = Self::map(file, len).map_err(|_| RegionFault::Map)?;
        if !forbid_holes(file) {
            return Err(RegionFault::Unsealed);
        }
        match holes {
            Holes::Refuse if has_holes(file, bytes) => Err(RegionFault::Holes),
            Holes::Refuse => Ok(region),
            Holes::Fill => region.populate().map(|()| region).map_err(|_| RegionFault::Map),
        }
    }

    /// Maps a region without any check, as a peer does that has made it.
    #[cfg(any(test, fuzzing))]
    pub(super) fn view(file: &OwnedFd, bytes: usize) -> io::Result<Self> {
        Self::map(file, bytes)
    }

    /// Has the kernel provide all pages, or say that it cannot.
    fn populate(&self) -> io::Result<()> {
        // SAFETY: the advice reads and changes no byte of the mapping, which is the region's own.
        unsafe { madvise(self.base.as_ptr().cast(), self.bytes, Advice::LinuxPopulateWrite)? };
        Ok(())
    }

    fn map(file: impl AsFd, bytes: usize) -> io::Result<Self> {
        let access = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new mapping at an address that the kernel chooses; nothing else is there.
        let base = unsafe { mmap(ptr::null_mut(), bytes, access, MapFlags::SHARED, file, 0)? };
        let base = NonNull::new(base.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Region {
            base,
            bytes,
            #[cfg(test)]
            dropped_by: DroppedBy::default(),
        })
    }

    /// Returns the address of `len` bytes at `offset`, if all of them are inside.
    #[inline]
    fn at(&self, offset: usize, len: usize) -> Option<*mut u8> {
        let inside = offset.checked_add(len).is_some_and(|end| end <= self.bytes);
        // SAFETY: the offset is inside the mapping or at its end.
        inside.then(|| unsafe { self.base.as_ptr().add(offset) })
    }

    /// Returns whether `len` bytes at `offset` are inside.
    #[inline]
    pub(super) fn contains(&self, offset: usize, len: usize) -> bool {
        self.at(offset, len).is_some()
    }

    /// Returns the offset of bytes that are inside.
    #[inline]
    pub(super) fn offset_of(&self, bytes: &[u8]) -> Option<u32> {
        let offset = bytes.as_ptr().addr().wrapping_sub(self.base.addr().get());
        u32::try_from(offset).ok().filter(|_| offset < self.bytes)
    }

    /// Returns a pool over `buffers` whole cache lines long, the first at `offset`. `None`: there
    /// are none, or not all of them are inside. Only the caller, which has laid out the region, may
    /// use this part of it, and only so.
    pub(super) fn pool(self: &Arc<Self>, offset: usize, buffers: usize, bytes: usize) -> Option<Pool> {
        let all = buffers.checked_mul(bytes).filter(|all| *all > 0)?;
        let first = NonNull::new(self.at(offset, all)?)?;
        let owner: Owner = self.clone();
        let buffer = |number: usize| {
            // SAFETY: inside the bytes that `at` has checked.
            let start = unsafe { first.add(number * bytes) };
            NonNull::slice_from_raw_parts(start.cast(), bytes)
        };
        // SAFETY: they are side by side in the mapping, which the region keeps. The copies by
        // address are of rings and their buffers, which have another part of the region.
        Some(unsafe { Pool::over((0..buffers).map(buffer), &owner) })
    }

    /// Has the first lines at `offset` fetched, while other work is done.
    #[inline]
    pub(super) fn prefetch(&self, offset: usize) {
        let Some(first) = self.at(offset, PREFETCH_BYTES) else { return };
        for line in (0..PREFETCH_BYTES).step_by(CACHE_LINE_BYTES) {
            prefetch_address(first.wrapping_add(line));
        }
    }

    /// Copies bytes of the region into `to`. The peer may change them meanwhile: the copy is what
    /// the caller parses. Returns `false`, and copies nothing, if they are not all inside.
    #[inline]
    pub(super) fn read(&self, offset: usize, to: &mut [u8]) -> bool {
        let Some(from) = self.at(offset, to.len()) else { return false };
        // SAFETY: the source is inside the mapping, the target is a private buffer, so they do not
        // overlap. A store of the peer during the copy changes which bytes are copied and nothing
        // else: no reference to the source exists.
        unsafe { ptr::copy_nonoverlapping(from, to.as_mut_ptr(), to.len()) };
        true
    }

    /// Copies `from` into the region. Returns `false`, and copies nothing, if there is no room, or
    /// if `from` lies there: a peer may name the place of a frame that it has sent.
    #[inline]
    pub(super) fn write(&self, offset: usize, from: &[u8]) -> bool {
        let Some(to) = self.at(offset, from.len()) else { return false };
        if to.addr().abs_diff(from.as_ptr().addr()) < from.len() {
            return false;
        }
        // SAFETY: as in `read`, in the other direction; they do not overlap.
        unsafe { ptr::copy_nonoverlapping(from.as_ptr(), to, from.len()) };
        true
    }
}

/// Writes zeros to every byte of a new file, so that every page exists.
fn fill(file: &OwnedFd, bytes: usize) -> io::Result<()> {
    let zeros = [0; FILL_BYTES];
    let mut offset = 0;
    while offset < bytes {
        let part = zeros.get(..bytes - offset).unwrap_or(&zeros);
        match rustix::io::pwrite(file, part, offset as u64)? {
            0 => return Err(io::ErrorKind::WriteZero.into()),
            written => offset += written,
        }
    }
    Ok(())
}

/// Has the kernel refuse holes in a file that is mapped already. Returns whether it does.
pub(super) fn forbid_holes(file: &OwnedFd) -> bool {
    // It fails if the file was sealed against seals: then this seal must be there already.
    let _ = fcntl_add_seals(file, SealFlags::FUTURE_WRITE);
    fcntl_get_seals(file).is_ok_and(|seals| seals.contains(SealFlags::FUTURE_WRITE))
}

/// Returns whether a page of the first `bytes` bytes is missing. One that was reserved and never
/// written is.
pub(super) fn has_holes(file: &OwnedFd, bytes: u64) -> bool {
    // The number of blocks says less: a file may have some behind its end.
    seek(file, SeekFrom::Hole(0)).is_ok_and(|hole| hole < bytes)
}

impl Drop for Region {
    fn drop(&mut self) {
        #[cfg(test)]
        let _ = self.dropped_by.set(std::thread::current().id());
        // SAFETY: the mapping is the region's own, and no user is left.
        let _ = unsafe { munmap(self.base.as_ptr().cast::<c_void>(), self.bytes) };
    }
}

/// A descriptor, copied once.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Descriptor {
    pub(super) flags: u16,
    pub(super) region: u16,
    pub(super) len: u32,
    pub(super) offset: u32,
}

/// [`Descriptor::flags`]: the frame goes on in the next descriptor.
pub(super) const NEXT: u16 = 1;
/// [`Descriptor::flags`]: the TCP checksum of this frame is the sum of its pseudo-header. It is not
/// in the protocol, so it is only used between two ends that have said that they know it.
pub(super) const PARTIAL_CHECKSUM: u16 = 2;
/// The ring's flags: its consumer polls and wants no interrupts.
const MASK_INTERRUPT: u16 = 1;

/// The words of a ring in a region: cookie, flags and head in one cache line, tail in the next,
/// then the descriptors.
pub(super) struct RingWords {
    base: NonNull<u8>,
    mask: u16,
    /// Keeps the mapping.
    _region: Arc<Region>,
}

// SAFETY: as for `Region`, which it keeps.
unsafe impl Send for RingWords {}

impl RingWords {
    /// Returns the ring of 2^`log2` descriptors at `offset`. `None`: not inside the region, or at
    /// an odd address.
    pub(super) fn new(region: &Arc<Region>, offset: usize, log2: u8) -> Option<Self> {
        let slots = 1usize.checked_shl(log2.into()).filter(|slots| *slots <= 1 << 15)?;
        let base = region.at(offset, RING_HEADER_BYTES + slots * DESCRIPTOR_BYTES)?;
        if base.addr() % RING_ALIGN != 0 {
            return None;
        }
        Some(RingWords { base: NonNull::new(base)?, mask: (slots - 1) as u16, _region: region.clone() })
    }

    /// Returns the number of descriptors.
    #[inline]
    pub(super) fn slots(&self) -> u16 {
        self.mask + 1
    }

    /// Returns the index that counts offered descriptors.
    #[inline]
    pub(super) fn head(&self) -> &AtomicU16 {
        // SAFETY: inside the mapping, which lives with the ring; even, since the ring is at a
        // multiple of 8; accessed as an atomic alone.
        unsafe { AtomicU16::from_ptr(self.base.as_ptr().add(6).cast()) }
    }

    /// Returns the index that counts completed descriptors.
    #[inline]
    pub(super) fn tail(&self) -> &AtomicU16 {
        // SAFETY: as in `head`.
        unsafe { AtomicU16::from_ptr(self.base.as_ptr().add(64).cast()) }
    }

    fn cookie(&self) -> &AtomicU32 {
        // SAFETY: as in `head`; at the ring's start, a multiple of 8.
        unsafe { AtomicU32::from_ptr(self.base.as_ptr().cast()) }
    }

    fn flags(&self) -> &AtomicU16 {
        // SAFETY: as in `head`.
        unsafe { AtomicU16::from_ptr(self.base.as_ptr().add(4).cast()) }
    }

    /// Writes the ring's header: the cookie, and both indices zero.
    pub(super) fn initialise(&self) {
        self.cookie().store(COOKIE, Ordering::Relaxed);
        self.flags().store(MASK_INTERRUPT, Ordering::Relaxed);
        self.head().store(0, Ordering::Relaxed);
        self.tail().store(0, Ordering::Release);
    }

    /// Returns whether the ring has a header.
    pub(super) fn has_cookie(&self) -> bool {
        self.cookie().load(Ordering::Acquire) == COOKIE
    }

    /// States that this end polls, so the peer writes no interrupt descriptor.
    pub(super) fn mask_interrupt(&self) {
        self.flags().store(MASK_INTERRUPT, Ordering::Relaxed);
    }

    /// Returns the two words of a slot, whose number is taken modulo the ring's size.
    #[inline]
    fn words(&self, slot: u16) -> [&AtomicU64; 2] {
        let at = RING_HEADER_BYTES + usize::from(slot & self.mask) * DESCRIPTOR_BYTES;
        // SAFETY: the masked slot is inside the ring, which is inside the mapping; multiples of 8;
        // accessed as atomics alone.
        unsafe {
            let first = self.base.as_ptr().add(at);
            [AtomicU64::from_ptr(first.cast()), AtomicU64::from_ptr(first.add(8).cast())]
        }
    }

    /// Copies the descriptor of a slot. Each word is read once.
    #[inline]
    pub(super) fn descriptor(&self, slot: u16) -> Descriptor {
        let [first, second] = self.words(slot).map(|word| word.load(Ordering::Relaxed));
        Descriptor {
            flags: first as u16,
            region: (first >> 16) as u16,
            len: (first >> 32) as u32,
            offset: second as u32,
        }
    }

    /// Returns flags and length of a slot, for a ring whose buffers are known. The word is read
    /// once.
    #[inline]
    pub(super) fn flags_and_len(&self, slot: u16) -> (u16, u32) {
        let first = self.words(slot)[0].load(Ordering::Relaxed);
        (first as u16, (first >> 32) as u32)
    }

    /// Writes the first word of a slot: all but the offset.
    #[inline]
    pub(super) fn set_first(&self, slot: u16, flags: u16, region: u16, len: u32) {
        let word = u64::from(flags) | u64::from(region) << 16 | u64::from(len) << 32;
        self.words(slot)[0].store(word, Ordering::Relaxed);
    }

    /// Writes the descriptor of a slot.
    #[inline]
    pub(super) fn set_descriptor(&self, slot: u16, descriptor: Descriptor) {
        self.words(slot)[1].store(descriptor.offset.into(), Ordering::Relaxed);
        self.set_first(slot, descriptor.flags, descriptor.region, descriptor.len);
    }
}
