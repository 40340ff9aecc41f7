//! Shared memory: regions of a memfd, bounds-checked copies to and from them, and the words of a ring.
//!
//! The peer maps the same pages and may change any byte at any time. So no reference to shared bytes exists: words are read
//! and written as atomics, payloads are copied between shared memory and private buffers by address. A region keeps its
//! mapping until the last user drops it. A region of the peer is taken only if nothing can take pages away under the mapping
//! (`F_SEAL_SHRINK`, on tmpfs): otherwise a truncated file ends the process with SIGBUS at the next access.
//!
//! Every offset and length is checked against the mapping here, whatever the caller checked before. This is the only file of
//! the port with shared memory in `unsafe` code.

use core::ffi::c_void;
use core::ptr::{self, NonNull};
use core::sync::atomic::{AtomicU16, AtomicU32, AtomicU64, Ordering};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use ironwarp_arch::prefetch_address;
use rustix::fs::{
    MemfdFlags, SealFlags, fcntl_add_seals, fcntl_get_seals, fstat, fstatfs, ftruncate, memfd_create,
};
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};

/// The most bytes of one region.
pub(super) const REGION_BYTES_MAX: u64 = 1 << 30;
/// The file system of an ordinary memfd (`TMPFS_MAGIC`). Huge pages may be taken away by punching a hole.
const TMPFS_MAGIC: i64 = 0x0102_1994;
const CACHE_LINE_BYTES: usize = 64;
/// What is fetched of a frame before it is copied: a small one. The processor itself follows a longer copy.
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
}

// SAFETY: the mapping belongs to the region until it is dropped. Threads access it as the peer does: words as atomics,
// payloads by copies that need no exclusion.
unsafe impl Send for Region {}
// SAFETY: as above.
unsafe impl Sync for Region {}

/// Why a region of the peer is refused.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum RegionFault {
    /// Another kind of file than a memfd of ordinary pages, or one that can shrink.
    Unsealed,
    /// Longer than its file or than [`REGION_BYTES_MAX`], or empty.
    Size,
    /// The system refused the mapping.
    Map,
}

impl Region {
    /// Creates a region that cannot shrink, and returns it with its file.
    ///
    /// # Errors
    /// What the system reports.
    pub(super) fn create(bytes: usize) -> io::Result<(Self, OwnedFd)> {
        let file = memfd_create("ironwarp-memif", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
        ftruncate(&file, bytes as u64)?;
        fcntl_add_seals(&file, SealFlags::SHRINK | SealFlags::GROW)?;
        Ok((Self::map(&file, bytes)?, file))
    }

    /// Maps a region of the peer.
    ///
    /// # Errors
    /// [`RegionFault`].
    pub(super) fn open(file: &OwnedFd, bytes: u64) -> Result<Self, RegionFault> {
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
        let bytes = usize::try_from(bytes).map_err(|_| RegionFault::Size)?;
        Self::map(file, bytes).map_err(|_| RegionFault::Map)
    }

    fn map(file: impl AsFd, bytes: usize) -> io::Result<Self> {
        let access = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new mapping at an address that the kernel chooses; nothing else is there.
        let base = unsafe { mmap(ptr::null_mut(), bytes, access, MapFlags::SHARED, file, 0)? };
        let base = NonNull::new(base.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Region { base, bytes })
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

    /// Has the first lines at `offset` fetched, while other work is done.
    #[inline]
    pub(super) fn prefetch(&self, offset: usize) {
        let Some(first) = self.at(offset, PREFETCH_BYTES) else { return };
        for line in (0..PREFETCH_BYTES).step_by(CACHE_LINE_BYTES) {
            prefetch_address(first.wrapping_add(line));
        }
    }

    /// Copies bytes of the region into `to`. The peer may change them meanwhile: the copy is what the caller parses. Returns
    /// `false`, and copies nothing, if they are not all inside.
    #[inline]
    pub(super) fn read(&self, offset: usize, to: &mut [u8]) -> bool {
        let Some(from) = self.at(offset, to.len()) else { return false };
        // SAFETY: the source is inside the mapping, the target is a private buffer, so they do not overlap. A store of the
        // peer during the copy changes which bytes are copied and nothing else: no reference to the source exists.
        unsafe { ptr::copy_nonoverlapping(from, to.as_mut_ptr(), to.len()) };
        true
    }

    /// Copies `from` into the region. Returns `false`, and copies nothing, if there is no room.
    #[inline]
    pub(super) fn write(&self, offset: usize, from: &[u8]) -> bool {
        let Some(to) = self.at(offset, from.len()) else { return false };
        // SAFETY: as in `read`, in the other direction.
        unsafe { ptr::copy_nonoverlapping(from.as_ptr(), to, from.len()) };
        true
    }
}

impl Drop for Region {
    fn drop(&mut self) {
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
/// The ring's flags: its consumer polls and wants no interrupts.
const MASK_INTERRUPT: u16 = 1;

/// The words of a ring in a region: cookie, flags and head in one cache line, tail in the next, then the descriptors.
pub(super) struct RingWords {
    base: NonNull<u8>,
    mask: u16,
    /// Keeps the mapping.
    _region: Arc<Region>,
}

// SAFETY: as for `Region`, which it keeps.
unsafe impl Send for RingWords {}

impl RingWords {
    /// Returns the ring of 2^`log2` descriptors at `offset`. `None`: not inside the region, or at an odd address.
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
        // SAFETY: inside the mapping, which lives with the ring; even, since the ring is at a multiple of 8; accessed as an
        // atomic alone.
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
        // SAFETY: the masked slot is inside the ring, which is inside the mapping; multiples of 8; accessed as atomics alone.
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

    /// Returns flags and length of a slot, for a ring whose buffers are known. The word is read once.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn accesses_outside_a_region_do_nothing() {
        let (region, _file) = Region::create(4096).expect("a memfd");
        let mut copy = [7; 16];
        assert!(region.write(4080, &[1; 16]) && region.read(4080, &mut copy));
        assert_eq!(copy, [1; 16]);
        for offset in [4081, 4096, usize::MAX, usize::MAX - 15] {
            assert!(!region.write(offset, &[2; 16]) && !region.read(offset, &mut copy));
        }
        assert_eq!(copy, [1; 16]);
        assert!(region.contains(0, 4096) && region.contains(4096, 0) && !region.contains(0, 4097));
    }

    #[test]
    fn a_file_that_can_shrink_is_refused() {
        let plain = memfd_create("t", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING).expect("a memfd");
        ftruncate(&plain, 8192).expect("a length");
        assert_eq!(Region::open(&plain, 4096).err(), Some(RegionFault::Unsealed));
        fcntl_add_seals(&plain, SealFlags::GROW).expect("a seal");
        assert_eq!(Region::open(&plain, 4096).err(), Some(RegionFault::Unsealed));
        fcntl_add_seals(&plain, SealFlags::SHRINK).expect("a seal");
        assert!(Region::open(&plain, 8192).is_ok());
        for bytes in [0, 8193, REGION_BYTES_MAX + 1, u64::MAX] {
            assert_eq!(Region::open(&plain, bytes).err(), Some(RegionFault::Size));
        }
        let file = OwnedFd::from(std::fs::File::open("/dev/null").expect("a file"));
        assert_eq!(Region::open(&file, 4096).err(), Some(RegionFault::Unsealed));
        assert!(ftruncate(&plain, 0).is_err(), "the seal holds");
    }

    #[test]
    fn a_region_sealed_against_writing_cannot_be_mapped() {
        let file = memfd_create("t", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING).expect("a memfd");
        ftruncate(&file, 4096).expect("a length");
        fcntl_add_seals(&file, SealFlags::SHRINK | SealFlags::WRITE).expect("seals");
        assert_eq!(Region::open(&file, 4096).err(), Some(RegionFault::Map));
    }

    #[test]
    fn a_ring_is_inside_its_region_and_aligned() {
        let region = Arc::new(Region::create(4096).expect("a memfd").0);
        assert!(RingWords::new(&region, 0, 7).is_some() && RingWords::new(&region, 0, 8).is_none());
        assert!(RingWords::new(&region, 4, 1).is_none() && RingWords::new(&region, 8, 1).is_some());
        assert!(RingWords::new(&region, usize::MAX, 1).is_none());
        for log2 in [16, 31, 63, 64, 255] {
            assert!(RingWords::new(&region, 0, log2).is_none());
        }
        let ring = RingWords::new(&region, 0, 2).expect("a ring");
        ring.initialise();
        let written = Descriptor { flags: NEXT, region: 2, len: 3, offset: 4 };
        ring.set_descriptor(5, written);
        assert_eq!((ring.descriptor(1), ring.flags_and_len(1)), (written, (NEXT, 3)));
        let mut bytes = [0; 16];
        assert!(region.read(128 + 16, &mut bytes));
        assert_eq!(bytes, [1, 0, 2, 0, 3, 0, 0, 0, 4, 0, 0, 0, 0, 0, 0, 0]);
        ring.head().store(0x1234, Ordering::Relaxed);
        ring.tail().store(0x5678, Ordering::Relaxed);
        assert!(region.read(0, &mut bytes) && ring.has_cookie());
        assert_eq!(bytes[..8], [0x20, 0x1f, 0xe3, 0x03, 1, 0, 0x34, 0x12]);
        assert!(region.read(64, &mut bytes[..2]));
        assert_eq!(bytes[..2], [0x78, 0x56]);
    }
}
