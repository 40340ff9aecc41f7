//! Words that other processes can read: a file mapped into memory, accessed as atomics.
//!
//! The writer maps its own file, and every thread of the process may load and store its words at
//! any time. A reader reads the file as a file, so its contents cannot harm it. Without a file the
//! words are on the heap. Creation can fail as file operations do; access cannot. Cost of a load or
//! store: one bounds check and one plain instruction.

use core::ops::{Deref, Range};
use core::ptr::NonNull;
use core::sync::atomic::AtomicU64;
use std::fs::File;
use std::io;
use std::sync::Arc;

use rustix::fs::FallocateFlags;
use rustix::mm::{MapFlags, ProtFlags};

/// Words of a line. A line starts at a multiple of its size, so two lines share neither a cache
/// line nor the pair of lines that a processor fetches together.
pub const LINE_WORDS: usize = 16;

/// A range of 64-bit words, shared with its clones and slices, and through its file with other
/// processes.
///
/// The first word is at a multiple of 128 bytes.
#[derive(Clone)]
pub struct SharedWords {
    first: NonNull<AtomicU64>,
    words: usize,
    /// Keeps the words allocated.
    _memory: Arc<Memory>,
}

// SAFETY: `first` points to atomics that `_memory`, which is sendable itself, keeps alive.
unsafe impl Send for SharedWords {}
// SAFETY: as above.
unsafe impl Sync for SharedWords {}

impl SharedWords {
    /// Returns at least `words` zeroed words, in whole lines, on the heap.
    pub fn on_heap(words: usize) -> Self {
        let lines: Box<[Line]> = (0..words.div_ceil(LINE_WORDS)).map(|_| Line::default()).collect();
        let words = lines.len() * LINE_WORDS;
        let first = NonNull::from(Box::leak(lines)).cast();
        SharedWords { first, words, _memory: Arc::new(Memory { first, words, mapped: false }) }
    }

    /// Returns at least `words` words, in whole lines, of an open file. The file grows to hold
    /// them, and the new part is zero.
    ///
    /// The file must be open for reading and writing. Choose a file system that lives in memory
    /// (`/run`, `/dev/shm`): elsewhere the kernel may stop a storing thread while it writes the
    /// file out. A process that may write the file may also cut it short, which ends this process
    /// by a signal at its next access.
    pub fn in_file(file: &File, words: usize) -> io::Result<Self> {
        let words = words.max(1).next_multiple_of(LINE_WORDS);
        let bytes = words.checked_mul(size_of::<AtomicU64>()).ok_or(io::ErrorKind::InvalidInput)?;
        reserve(file, bytes)?;
        let first = map(file, bytes)?;
        Ok(SharedWords { first, words, _memory: Arc::new(Memory { first, words, mapped: true }) })
    }

    /// Returns the words of `range` as another handle, or `None` if they do not all exist. A slice
    /// that begins at a multiple of [`LINE_WORDS`] shares no cache line with the words before it.
    pub fn slice(&self, range: Range<usize>) -> Option<Self> {
        let words = self.get(range)?;
        let first = NonNull::from(words).cast();
        Some(SharedWords { first, words: words.len(), _memory: self._memory.clone() })
    }
}

impl Deref for SharedWords {
    type Target = [AtomicU64];

    #[inline(always)]
    fn deref(&self) -> &[AtomicU64] {
        // SAFETY: `first` begins `words` words that `_memory` keeps alive and in place,
        // initialised. They are accessed only as atomics in this process, and by the kernel when a
        // reader copies them.
        unsafe { core::slice::from_raw_parts(self.first.as_ptr(), self.words) }
    }
}

impl core::fmt::Debug for SharedWords {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("SharedWords").field("words", &self.words).finish_non_exhaustive()
    }
}

/// At least `N` shared words, which are accessed without a bounds check.
#[derive(Clone, Debug)]
pub struct SharedArray<const N: usize> {
    words: SharedWords,
}

impl<const N: usize> SharedArray<N> {
    /// Returns the first `N` words of `words`, or `None` if there are fewer.
    pub fn new(words: SharedWords) -> Option<Self> {
        (words.len() >= N).then_some(SharedArray { words })
    }
}

impl<const N: usize> Deref for SharedArray<N> {
    type Target = [AtomicU64; N];

    #[inline(always)]
    fn deref(&self) -> &[AtomicU64; N] {
        // SAFETY: `new` has checked that there are `N` words, and their number never changes. As
        // for `SharedWords`.
        unsafe { self.words.first.cast::<[AtomicU64; N]>().as_ref() }
    }
}

#[derive(Default)]
#[repr(align(128))]
struct Line {
    _words: [AtomicU64; LINE_WORDS],
}

const _: () = assert!(size_of::<Line>() == LINE_WORDS * size_of::<AtomicU64>());

/// Owns the memory of [`SharedWords`].
struct Memory {
    first: NonNull<AtomicU64>,
    words: usize,
    mapped: bool,
}

// SAFETY: it owns atomics and is only used to free them.
unsafe impl Send for Memory {}
// SAFETY: as above.
unsafe impl Sync for Memory {}

impl Drop for Memory {
    fn drop(&mut self) {
        if self.mapped {
            // SAFETY: `in_file` mapped exactly these bytes, and every handle of them is gone.
            let unmapped = unsafe { rustix::mm::munmap(self.first.as_ptr().cast(), self.words * 8) };
            debug_assert!(unmapped.is_ok());
        } else {
            let lines = core::ptr::slice_from_raw_parts_mut(
                self.first.as_ptr().cast::<Line>(),
                self.words / LINE_WORDS,
            );
            // SAFETY: `on_heap` leaked exactly this box, and every handle of it is gone.
            drop(unsafe { Box::from_raw(lines) });
        }
    }
}

/// Allocates the file's blocks, so that a store never finds the file system full.
fn reserve(file: &File, bytes: usize) -> io::Result<()> {
    match rustix::fs::fallocate(file, FallocateFlags::empty(), 0, bytes as u64) {
        Err(rustix::io::Errno::OPNOTSUPP) => file.set_len(bytes as u64),
        reserved => Ok(reserved?),
    }
}

fn map(file: &File, bytes: usize) -> io::Result<NonNull<AtomicU64>> {
    let rights = ProtFlags::READ | ProtFlags::WRITE;
    // SAFETY: a new mapping at an address that the kernel chooses replaces no other memory.
    let address =
        unsafe { rustix::mm::mmap(core::ptr::null_mut(), bytes, rights, MapFlags::SHARED, file, 0) }?;
    NonNull::new(address.cast()).ok_or_else(|| io::ErrorKind::OutOfMemory.into())
}

#[cfg(test)]
mod tests {
    use core::sync::atomic::Ordering::Relaxed;
    #[cfg(not(miri))]
    use std::os::unix::fs::FileExt;

    use super::*;

    #[test]
    fn heap_words_begin_at_zero_and_clones_and_slices_are_the_same_words() {
        let words = SharedWords::on_heap(40);
        assert_eq!(words.len(), 48, "whole lines");
        assert!(words.iter().all(|word| word.load(Relaxed) == 0));
        assert_eq!(words.as_ptr() as usize % 128, 0);
        let slice = words.clone().slice(16..32).unwrap();
        slice[3].store(7, Relaxed);
        assert_eq!(words[19].load(Relaxed), 7);
        drop(words);
        assert_eq!((slice.len(), slice[3].load(Relaxed)), (16, 7));
    }

    #[test]
    fn a_slice_outside_the_words_is_refused() {
        let words = SharedWords::on_heap(16);
        assert!(words.slice(8..17).is_none());
        #[expect(clippy::reversed_empty_ranges, reason = "the mistake under test")]
        let reversed = words.slice(9..8);
        assert!(reversed.is_none());
        assert_eq!(words.slice(16..16).unwrap().len(), 0);
    }

    // Miri cannot map files.
    #[cfg(not(miri))]
    #[test]
    fn a_store_is_visible_to_readers_of_the_file() {
        let path = std::env::temp_dir().join(format!("ironwarp-arch-{}", std::process::id()));
        let file = File::options().read(true).write(true).create_new(true).open(&path).unwrap();
        std::fs::remove_file(&path).unwrap();
        let words = SharedWords::in_file(&file, 17).unwrap();
        words[16].store(0x0102_0304_0506_0708, Relaxed);
        let mut bytes = [0; 8];
        file.read_exact_at(&mut bytes, 16 * 8).unwrap();
        assert_eq!(u64::from_ne_bytes(bytes), 0x0102_0304_0506_0708);
        assert_eq!((words.len(), file.metadata().unwrap().len()), (32, 32 * 8));
    }

    #[cfg(not(miri))]
    #[test]
    fn a_file_that_cannot_be_written_is_an_error() {
        let file = File::open("/proc/self/exe").unwrap();
        assert!(SharedWords::in_file(&file, 16).is_err());
    }
}
