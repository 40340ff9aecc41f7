//! Buffers for regions: owners whose bytes do not move.

mod guarded;
mod presence;

use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::ops::{Deref, DerefMut};
use std::ptr::{NonNull, slice_from_raw_parts_mut};
use thiserror::Error;

pub use guarded::{GuardZones, GuardedBuf, guarded};
pub use presence::MemoryAbsent;

use crate::access::Access;
use crate::guard;

/// An owner of bytes that stay at one address while the owner exists.
///
/// # Safety
/// While the value exists, even while it is moved, the bytes must
/// - stay where they are, valid for reads and writes from any thread;
/// - be accessed by no other code: neither the value's own code nor another value that shares them,
///   except in `drop`.
pub unsafe trait StableBytes {
    /// Returns the bytes. Called once, after the owner was moved to its final address.
    fn stable_bytes(&mut self) -> NonNull<[u8]>;
}

// SAFETY: a vector's bytes are on the heap, uniquely owned, and move only when it is changed, which
// a region never does.
unsafe impl StableBytes for Vec<u8> {
    fn stable_bytes(&mut self) -> NonNull<[u8]> {
        let bytes = slice_from_raw_parts_mut(self.as_mut_ptr(), self.len());
        // A vector's pointer is never null, even if it owns nothing.
        NonNull::new(bytes).unwrap_or(NonNull::slice_from_raw_parts(NonNull::dangling(), 0))
    }
}

// SAFETY: a box's bytes are on the heap, uniquely owned, and never move.
unsafe impl StableBytes for Box<[u8]> {
    fn stable_bytes(&mut self) -> NonNull<[u8]> {
        NonNull::from(&mut **self)
    }
}

// SAFETY: the allocation is uniquely owned and never moves.
unsafe impl StableBytes for AlignedBuf {
    fn stable_bytes(&mut self) -> NonNull<[u8]> {
        NonNull::slice_from_raw_parts(self.bytes, self.layout.size())
    }
}

/// Bytes that the application manages itself: a pool of huge pages, a mapping, its own heap. A
/// region made of them owns and frees nothing.
///
/// ```
/// use ironwarp_mem::{Access, MemLimits, MemTable, RawMemory};
/// use ironwarp_types::PdId;
/// use std::{ptr::NonNull, time::Duration};
///
/// let table = MemTable::new(MemLimits::default())?;
/// let base = NonNull::from(Box::leak(vec![0u8; 4096].into_boxed_slice()));
/// // SAFETY: no other code accesses the bytes before the token below is complete.
/// let pool = unsafe { RawMemory::new(base.cast(), 4096) };
/// let region = table.register(PdId(1), pool, Access::LOCAL_WRITE)?;
/// region.write_at(0, b"placed")?;
/// region.deregister().wait(Duration::from_secs(1))?;
/// // SAFETY: it was leaked above, and belongs to the application alone again.
/// let pool = unsafe { Box::from_raw(base.as_ptr()) };
/// assert_eq!(&pool[..6], b"placed");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct RawMemory(NonNull<[u8]>);

impl RawMemory {
    /// Names `len` bytes at `base`.
    ///
    /// # Safety
    /// From this call until the [`Quiescence`](crate::Quiescence) of the region that is made of
    /// them is complete, or until the stack that registered them is gone with every worker, region
    /// and context, the bytes must be initialised, valid for reads and writes from any thread and
    /// within one allocation; no reference to any of them may exist, and nobody may reach them but
    /// through the region.
    pub unsafe fn new(base: NonNull<u8>, len: usize) -> Self {
        RawMemory(NonNull::slice_from_raw_parts(base, len))
    }

    /// Checks that the bytes are mapped now, and may be read, or written if `access` lets anybody
    /// write them. No page is allocated or touched. For interfaces whose callers cannot promise
    /// what [`RawMemory::new`] asks for.
    pub fn check(&self, access: Access) -> Result<(), MemoryAbsent> {
        guard::renew();
        let first = self.0.cast::<u8>().as_ptr().addr();
        let end = first.checked_add(self.0.len()).ok_or(MemoryAbsent::Wraps)?;
        presence::check(first..end, access.intersects(Access::WRITING))
    }
}

// SAFETY: the caller of the unsafe constructor promised all of this.
unsafe impl StableBytes for RawMemory {
    fn stable_bytes(&mut self) -> NonNull<[u8]> {
        self.0
    }
}

// SAFETY: the bytes are valid from any thread, and only the region reaches them.
unsafe impl Send for RawMemory {}

/// Zeroed heap bytes with a chosen alignment.
///
/// Zeroing touches every page, so the data path takes no page fault on the first placement.
///
/// ```
/// let buffer = ironwarp_mem::AlignedBuf::pages(10_000)?;
/// assert_eq!(buffer.as_ptr() as usize % 4096, 0);
/// assert!(buffer.iter().all(|&byte| byte == 0));
/// # Ok::<(), ironwarp_mem::AlignedBufError>(())
/// ```
#[derive(Debug)]
pub struct AlignedBuf {
    bytes: NonNull<u8>,
    layout: Layout,
}

/// Why an [`AlignedBuf`] could not be created.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
pub enum AlignedBufError {
    /// The buffer has no bytes.
    #[error("a buffer needs at least one byte")]
    Empty,
    /// The alignment is not a power of two, or the size does not fit the address space.
    #[error("no such alignment, or a size beyond the address space")]
    Layout,
    /// The allocator is out of memory.
    #[error("out of memory")]
    OutOfMemory,
}

/// The page size of the supported processors.
const PAGE_BYTES: usize = 4096;

impl AlignedBuf {
    /// Returns `len` zeroed bytes that start on a page of 4096 bytes.
    pub fn pages(len: usize) -> Result<Self, AlignedBufError> {
        Self::zeroed(len, PAGE_BYTES)
    }

    /// Returns `len` zeroed bytes at a multiple of `align`, a power of two.
    pub fn zeroed(len: usize, align: usize) -> Result<Self, AlignedBufError> {
        if len == 0 {
            return Err(AlignedBufError::Empty);
        }
        let layout = Layout::from_size_align(len, align).map_err(|_| AlignedBufError::Layout)?;
        // SAFETY: the layout's size is not zero.
        let bytes = NonNull::new(unsafe { alloc_zeroed(layout) }).ok_or(AlignedBufError::OutOfMemory)?;
        Ok(Self { bytes, layout })
    }
}

impl Deref for AlignedBuf {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        // SAFETY: the allocation is initialised, `size` bytes long, and borrowed with `self`.
        unsafe { std::slice::from_raw_parts(self.bytes.as_ptr(), self.layout.size()) }
    }
}

impl DerefMut for AlignedBuf {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: the allocation is initialised, `size` bytes long, and exclusively borrowed with
        // `self`.
        unsafe { std::slice::from_raw_parts_mut(self.bytes.as_ptr(), self.layout.size()) }
    }
}

impl Drop for AlignedBuf {
    fn drop(&mut self) {
        // SAFETY: allocated in `zeroed` with this layout, and freed only here.
        unsafe { dealloc(self.bytes.as_ptr(), self.layout) }
    }
}

// SAFETY: the buffer is uniquely owned plain bytes.
unsafe impl Send for AlignedBuf {}
// SAFETY: a shared buffer can only be read.
unsafe impl Sync for AlignedBuf {}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn an_aligned_buffer_is_zeroed_writable_and_aligned() {
        let mut buffer = AlignedBuf::zeroed(100, 256).expect("a small buffer");
        assert_eq!((buffer.len(), buffer.as_ptr() as usize % 256), (100, 0));
        assert!(buffer.iter().all(|&byte| byte == 0));
        buffer[99] = 7;
        assert_eq!(buffer[99], 7);
    }

    #[test]
    fn an_impossible_buffer_is_a_named_error() {
        assert_eq!(AlignedBuf::pages(0).err(), Some(AlignedBufError::Empty));
        assert_eq!(AlignedBuf::zeroed(8, 3).err(), Some(AlignedBufError::Layout));
        assert_eq!(AlignedBuf::pages(usize::MAX).err(), Some(AlignedBufError::Layout));
    }
}
