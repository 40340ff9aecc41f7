//! A block of memory that the two ends of a ring share: a header, then entries, at fixed offsets.
//!
//! A block holds no pointer, so it may lie at another address in each process that maps it. An end
//! keeps its own pointer to the block, its own copy of the number of entries, and what keeps the
//! memory in place. It masks each index that it reads from the block, so whatever another process
//! writes there, no access leaves the block.
//!
//! A block is on the heap, or in memory that the caller provides. Zeroed memory is an empty block.

use core::alloc::Layout;
use core::any::Any;
use core::ops::Deref;
use core::ptr::NonNull;
use std::alloc::{alloc, dealloc, handle_alloc_error};

use crate::sync::{Arc, AtomicUsize, Ordering};

/// What may lie in memory that processes share: plain data.
///
/// `Copy` excludes what owns memory. The types must not hold addresses either, and all processes
/// must have them from the same build, since only that has the same layout.
pub trait PlainData: Copy + Send + Sync + 'static {}

impl<T: Copy + Send + Sync + 'static> PlainData for T {}

/// Memory for a block, and what keeps it in place.
pub struct BlockMemory {
    start: NonNull<u8>,
    bytes: usize,
    mapping: Arc<dyn Any + Send + Sync>,
}

impl BlockMemory {
    /// Returns the `bytes` bytes from `start`, which are mapped as long as `mapping` lives.
    ///
    /// # Safety
    /// - The bytes may be read and written for as long, and were zero before the first end
    ///   attached.
    /// - Only ends of one ring, doorbell or [`Shared`] value access them: at most one of each kind
    ///   at a time, in all processes, all with the same numbers and types.
    /// - Those types hold no addresses. The processes write only values of these types.
    pub unsafe fn new(start: NonNull<u8>, bytes: usize, mapping: Arc<dyn Any + Send + Sync>) -> Self {
        BlockMemory { start, bytes, mapping }
    }

    /// Splits memory for two blocks.
    pub(crate) fn split_at(self, bytes: usize) -> Option<(Self, Self)> {
        let rest = self.bytes.checked_sub(bytes)?;
        // SAFETY: `bytes` is not beyond the end of the memory.
        let second = unsafe { self.start.add(bytes) };
        let second = BlockMemory { start: second, bytes: rest, mapping: self.mapping.clone() };
        Some((BlockMemory { bytes, ..self }, second))
    }
}

/// One end's pointer to a block, with what keeps the memory in place.
pub(crate) struct Block<H, E> {
    parts: Parts<H, E>,
    owner: NonNull<Owner<H, E>>,
}

/// A pointer to the header; the entries follow it.
pub(crate) struct Parts<H, E> {
    start: NonNull<H>,
    entries: core::marker::PhantomData<E>,
}

/// What the ends in this process share. It follows a block on the heap in the same allocation: an
/// allocation of its own would cost each queue pair three more.
struct Owner<H, E> {
    /// The number of ends.
    ends: AtomicUsize,
    memory: Memory<H, E>,
}

enum Memory<H, E> {
    /// On the heap: the number of entries, and what drops the values that are left in them.
    Heap(u32, fn(&Parts<H, E>, u32)),
    Mapped(#[expect(dead_code, reason = "it keeps the memory mapped")] Arc<dyn Any + Send + Sync>),
}

// SAFETY: a block gives shared references to its header and entries only, and its memory may be
// freed by any thread.
unsafe impl<H: Send + Sync, E: Send + Sync> Send for Block<H, E> {}
// SAFETY: as above.
unsafe impl<H: Send + Sync, E: Send + Sync> Sync for Block<H, E> {}

impl<H, E> Clone for Block<H, E> {
    fn clone(&self) -> Self {
        // SAFETY: the owner lives as long as an end, and this is one.
        unsafe { self.owner.as_ref() }.ends.fetch_add(1, Ordering::Relaxed);
        Block { parts: self.parts.clone(), owner: self.owner }
    }
}

impl<H, E> Clone for Parts<H, E> {
    fn clone(&self) -> Self {
        Parts { start: self.start, entries: self.entries }
    }
}

impl<H, E> Block<H, E> {
    /// Returns the size and the alignment of a block, or `None` if the size overflows.
    pub(crate) fn layout(entries: usize) -> Option<Layout> {
        let (layout, _) = Layout::new::<H>().extend(Layout::array::<E>(entries).ok()?).ok()?;
        Some(layout.pad_to_align())
    }

    /// Creates a block on the heap. `drop_left` drops the values in the entries with the last end.
    pub(crate) fn on_heap(
        header: H,
        entries: u32,
        entry: impl Fn() -> E,
        drop_left: fn(&Parts<H, E>, u32),
    ) -> Self {
        let (layout, owner_offset) =
            Self::heap_layout(entries as usize).expect("the block fits the address space");
        // SAFETY: the layout has a size, that of the owner at least.
        let memory = unsafe { alloc(layout) };
        let Some(start) = NonNull::new(memory.cast::<H>()) else { handle_alloc_error(layout) };
        let parts = Parts { start, entries: core::marker::PhantomData };
        // SAFETY: the memory has room for the header.
        unsafe { start.write(header) };
        for index in 0..entries {
            // SAFETY: the memory has room for this entry.
            unsafe { parts.entry_address(index as usize).write(entry()) };
        }
        // SAFETY: the memory has room for the owner there.
        let owner = unsafe { start.byte_add(owner_offset).cast::<Owner<H, E>>() };
        let memory = Memory::Heap(entries, drop_left);
        // SAFETY: as above.
        unsafe { owner.write(Owner { ends: AtomicUsize::new(1), memory }) };
        Block { parts, owner }
    }

    /// Returns the layout of a block on the heap with its owner, and the offset of the owner.
    fn heap_layout(entries: usize) -> Option<(Layout, usize)> {
        Self::layout(entries)?.extend(Layout::new::<Owner<H, E>>()).ok()
    }

    /// Returns the block in the caller's memory, or `None` if it is too small or not aligned.
    pub(crate) fn attach(memory: BlockMemory, entries: usize) -> Option<Self> {
        let layout = Self::layout(entries)?;
        let start = memory.start.cast::<H>();
        if memory.bytes < layout.size() || !start.addr().get().is_multiple_of(layout.align()) {
            return None;
        }
        let parts = Parts { start, entries: core::marker::PhantomData };
        let owner = Owner { ends: AtomicUsize::new(1), memory: Memory::Mapped(memory.mapping) };
        Some(Block { parts, owner: NonNull::from(Box::leak(Box::new(owner))) })
    }

    /// Frees the block and its owner after the last end.
    fn free(&mut self) {
        // SAFETY: nobody else has the owner any more, so it is moved out once.
        let Owner { memory, .. } = unsafe { self.owner.read() };
        let Memory::Heap(entries, drop_left) = memory else {
            // SAFETY: `attach` made it from a box of this type. Its contents were moved out above.
            unsafe { dealloc(self.owner.as_ptr().cast(), Layout::new::<Owner<H, E>>()) };
            return;
        };
        drop_left(&self.parts, entries);
        for index in 0..entries {
            // SAFETY: `on_heap` wrote the entry, and nobody else has the block any more.
            unsafe { self.parts.entry_address(index as usize).drop_in_place() };
        }
        // SAFETY: as above.
        unsafe { self.parts.start.drop_in_place() };
        if let Some((layout, _)) = Self::heap_layout(entries as usize) {
            // SAFETY: `on_heap` allocated the memory with this layout.
            unsafe { dealloc(self.parts.start.as_ptr().cast(), layout) };
        }
    }
}

impl<H, E> Deref for Block<H, E> {
    type Target = Parts<H, E>;

    #[inline(always)]
    fn deref(&self) -> &Parts<H, E> {
        &self.parts
    }
}

impl<H, E> Parts<H, E> {
    #[inline(always)]
    pub(crate) fn header(&self) -> &H {
        // SAFETY: the header is initialised, and the owner keeps it in place. It is accessed
        // through shared references only; other processes access its atomics.
        unsafe { self.start.as_ref() }
    }

    /// Returns an entry.
    ///
    /// # Safety
    /// The block has more than `index` entries.
    #[inline(always)]
    pub(crate) unsafe fn entry(&self, index: usize) -> &E {
        // SAFETY: the entry is in the block, by the caller's promise. The rest as in `header`.
        unsafe { self.entry_address(index).as_ref() }
    }

    /// # Safety
    /// The block has more than `index` entries.
    #[inline(always)]
    unsafe fn entry_address(&self, index: usize) -> NonNull<E> {
        let offset = size_of::<H>().next_multiple_of(align_of::<E>());
        // SAFETY: the entries follow the header, at the alignment of their type.
        unsafe { self.start.byte_add(offset).cast::<E>().add(index) }
    }
}

impl<H, E> Drop for Block<H, E> {
    fn drop(&mut self) {
        // SAFETY: the owner lives as long as an end, and this is one.
        let ends = unsafe { &self.owner.as_ref().ends };
        if ends.fetch_sub(1, Ordering::Release) == 1 {
            // What the other ends did before they were dropped comes before the end of the block.
            ends.load(Ordering::Acquire);
            self.free();
        }
    }
}

/// A value of atomics that two processes or threads share, in a block of its own.
pub struct Shared<T>(Block<T, ()>);

impl<T> Shared<T> {
    /// Creates a value on the heap.
    pub fn new(value: T) -> Self {
        Shared(Block::on_heap(value, 0, || (), |_, _| ()))
    }

    /// Returns the value in the caller's memory, or `None` if it is too small or not aligned.
    pub fn attach(memory: BlockMemory) -> Option<Self> {
        Block::attach(memory, 0).map(Shared)
    }
}

impl<T> Clone for Shared<T> {
    fn clone(&self) -> Self {
        Shared(self.0.clone())
    }
}

impl<T> Deref for Shared<T> {
    type Target = T;

    #[inline(always)]
    fn deref(&self) -> &T {
        self.0.header()
    }
}
