//! Private buffers of frames, and the frames over them: the pools of the ports that are not DPDK's.
//!
//! A pool keeps one reference to each of its buffers; a buffer without another reference is free.
//! So releasing a frame is one atomic subtraction on any thread, without a lock or a list, and
//! taking one is a load and an addition by the one thread that owns the pool. The pool takes
//! buffers in a circle over the first `window` ones. The window grows while they are in use and
//! shrinks after quiet laps, so that a lightly loaded port stays in a few cache lines.
//!
//! Whether a buffer is free is looked up one by one. [`Pool::take`] looks at [`SEARCH`] buffers at
//! most and returns `None` if it finds no free one; the next call searches on. [`Pool::take_any`]
//! looks at all of them.
//!
//! The bytes of a buffer are on the heap, or in shared memory ([`Pool::over`]), where a frame is
//! sent as it lies. A peer may change shared bytes at any time. So what is read back from such a
//! frame decides nothing: it is copied, to be retransmitted for example, and never parsed.
#![allow(unsafe_code)]

use core::cell::UnsafeCell;
use core::ptr::NonNull;
use core::sync::atomic::{AtomicU64, Ordering, fence};
use std::sync::Arc;

use ironwarp_arch::prefetch_address_for_write;

use crate::{Checksum, Frame, RxMeta, Sealed, TxMeta};

/// The smallest window, in buffers.
const WINDOW_MIN: usize = 64;
/// Buffers in use after which a call gives up.
const SEARCH: usize = 128;

const CACHE_LINE_BYTES: usize = 64;

/// The initial value of all bytes, so that a sender that leaves bytes unwritten is noticed.
const UNWRITTEN: u8 = 0xa5;

/// What owns shared memory.
pub(crate) type Owner = Arc<dyn Send + Sync>;

/// The bytes of one frame.
struct Buffer {
    bytes: NonNull<[UnsafeCell<u8>]>,
    /// The owner of the bytes; `None`: they are a box of this buffer.
    owner: Option<Owner>,
    /// The receive metadata of the frame, as [`pack`] stores it. Here, so that a frame is two
    /// words.
    rx: AtomicU64,
}

// SAFETY: the bytes are the buffer's own, as those of a box, or live as long as `owner`.
unsafe impl Send for Buffer {}
// SAFETY: bytes are written through a `PoolFrame` alone, which is the only frame of its buffer and
// has `&mut` access; all other access reads. See `PoolFrame`.
unsafe impl Sync for Buffer {}

impl Buffer {
    fn new(bytes: usize) -> Arc<Self> {
        Self::over(vec![UNWRITTEN; bytes].into())
    }

    fn over(bytes: Box<[u8]>) -> Arc<Self> {
        let bytes = NonNull::from(Box::leak(bytes));
        // A cell has the layout of what it holds.
        let bytes = NonNull::slice_from_raw_parts(bytes.cast(), bytes.len());
        Arc::new(Buffer { bytes, owner: None, rx: AtomicU64::new(NO_RX) })
    }

    #[inline(always)]
    fn cells(&self) -> &[UnsafeCell<u8>] {
        // SAFETY: valid until the buffer is dropped.
        unsafe { self.bytes.as_ref() }
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        if self.owner.is_none() {
            // SAFETY: it was leaked from a box in `over`, and nobody else has it.
            drop(unsafe { Box::from_raw(self.bytes.as_ptr()) });
        }
    }
}

/// The buffers of one direction of a port.
pub(crate) struct Pool {
    buffers: Arc<[Arc<Buffer>]>,
    next: usize,
    window: usize,
    /// Buffers of this lap that were in use.
    busy: usize,
}

impl Pool {
    /// Creates a pool of `frames` buffers of `frame_bytes` each.
    pub(crate) fn new(frames: usize, frame_bytes: usize) -> Self {
        Self::of((0..frames).map(|_| Buffer::new(frame_bytes)).collect())
    }

    /// Creates a pool over shared memory.
    ///
    /// # Safety
    /// The buffers do not overlap and are valid for reads and writes as long as `owner` lives. This
    /// process accesses them through frames of the pool alone.
    pub(crate) unsafe fn over(
        buffers: impl Iterator<Item = NonNull<[UnsafeCell<u8>]>>,
        owner: &Owner,
    ) -> Self {
        let buffer =
            |bytes| Arc::new(Buffer { bytes, owner: Some(owner.clone()), rx: AtomicU64::new(NO_RX) });
        Self::of(buffers.map(buffer).collect())
    }

    /// Creates a pool whose buffers take memory when they are first used.
    pub(crate) fn zeroed(frames: usize, frame_bytes: usize) -> Self {
        Self::of((0..frames).map(|_| Buffer::over(vec![0; frame_bytes].into())).collect())
    }

    fn of(buffers: Arc<[Arc<Buffer>]>) -> Self {
        let window = WINDOW_MIN.min(buffers.len());
        Pool { buffers, next: 0, window, busy: 0 }
    }

    /// Fetches the first `bytes` bytes of the buffer that is taken next, for writing.
    #[inline]
    pub(crate) fn prefetch_next(&self, bytes: usize) {
        let Some(next) = self.buffers.get(self.next) else { return };
        let cells = next.cells();
        for line in (0..bytes.min(cells.len())).step_by(CACHE_LINE_BYTES) {
            prefetch_address_for_write(cells.as_ptr().cast::<u8>().wrapping_add(line));
        }
    }

    /// Takes a free buffer, as an empty frame without receive metadata.
    #[inline]
    pub(crate) fn take(&mut self) -> Option<PoolFrame> {
        self.take_next().or_else(|| self.search())
    }

    /// [`Pool::take`] that returns `None` only if no buffer is free.
    #[inline(always)]
    pub(crate) fn take_any(&mut self) -> Option<PoolFrame> {
        self.take_next().or_else(|| self.search_all())
    }

    #[inline(always)]
    fn take_next(&mut self) -> Option<PoolFrame> {
        let frame = PoolFrame::over(self.buffers.get(self.next)?)?;
        self.advance();
        Some(frame)
    }

    #[inline(always)]
    fn advance(&mut self) {
        // At most the length of a slice.
        self.next = self.next.wrapping_add(1);
        if self.next >= self.window {
            self.end_lap();
        }
    }

    /// Starts the next lap, with a smaller window if few buffers were in use.
    #[cold]
    #[inline(never)]
    fn end_lap(&mut self) {
        self.next = 0;
        if self.busy * 8 < self.window && self.window > WINDOW_MIN {
            self.window = (self.window / 2).max(WINDOW_MIN);
        }
        self.busy = 0;
    }

    /// Looks further, and widens the window where too many buffers are in use.
    #[cold]
    #[inline(never)]
    fn search(&mut self) -> Option<PoolFrame> {
        for _ in 0..SEARCH {
            self.busy += 1;
            if self.busy * 2 > self.window && self.window < self.buffers.len() {
                self.next = self.window;
                self.window = (self.window * 2).min(self.buffers.len());
                self.busy = 0;
            } else {
                self.advance();
            }
            if let Some(frame) = self.take_next() {
                return Some(frame);
            }
        }
        None
    }

    #[cold]
    #[inline(never)]
    fn search_all(&mut self) -> Option<PoolFrame> {
        self.search().or_else(|| self.buffers.iter().find_map(PoolFrame::over))
    }

    /// Returns whether all buffers are free.
    pub(crate) fn is_free(&self) -> bool {
        self.buffers.iter().all(is_free)
    }

    /// Returns the number of free buffers. Walks all of them.
    pub(crate) fn free_frames(&self) -> usize {
        self.level().free_frames()
    }

    /// Returns a handle that counts the free buffers, on any thread.
    pub(crate) fn level(&self) -> PoolLevel {
        PoolLevel { buffers: self.buffers.clone() }
    }
}

/// Counts the free buffers of a pool.
#[derive(Clone)]
pub(crate) struct PoolLevel {
    buffers: Arc<[Arc<Buffer>]>,
}

impl PoolLevel {
    /// Returns the number of free buffers. Walks all of them.
    pub(crate) fn free_frames(&self) -> usize {
        self.buffers.iter().filter(|buffer| Arc::strong_count(buffer) == 1).count()
    }
}

/// Returns whether the pool has the only reference. None can appear then: the pool alone could make
/// one.
#[inline]
fn is_free(buffer: &Arc<Buffer>) -> bool {
    let free = Arc::strong_count(buffer) == 1;
    // All that other threads did with the buffer comes before their release of it, and what the
    // next frame does after.
    fence(Ordering::Acquire);
    free
}

/// A frame with one owner: of all frames, only this one has its buffer.
pub struct PoolFrame {
    buffer: Arc<Buffer>,
    len: u32,
}

impl PoolFrame {
    /// Returns an empty frame over a buffer of a pool, if it is free.
    #[inline(always)]
    fn over(buffer: &Arc<Buffer>) -> Option<Self> {
        if !is_free(buffer) {
            return None;
        }
        buffer.rx.store(NO_RX, Ordering::Relaxed);
        Some(PoolFrame { buffer: buffer.clone(), len: 0 })
    }

    /// Returns a frame of no pool that holds `bytes`, in a buffer of `capacity` bytes or as many as
    /// there are.
    pub fn detached(bytes: &[u8], capacity: usize) -> Self {
        let mut frame = PoolFrame { buffer: Buffer::new(capacity.max(bytes.len())), len: 0 };
        frame.resize(bytes.len());
        frame.bytes_mut().copy_from_slice(bytes);
        frame
    }

    /// Makes `bytes` the content of the frame. Returns `false`, with nothing changed, if the buffer
    /// is shorter.
    #[inline(always)]
    pub(crate) fn set(&mut self, bytes: &[u8]) -> bool {
        let Some(cells) = self.buffer.cells().get(..bytes.len()) else { return false };
        self.len = bytes.len() as u32;
        // SAFETY: as in `bytes_mut`, of as many bytes. Nobody else borrows this buffer, so they do
        // not overlap.
        unsafe {
            cells.as_ptr().cast_mut().cast::<u8>().copy_from_nonoverlapping(bytes.as_ptr(), bytes.len())
        };
        true
    }

    /// Makes the frame `more` bytes longer and returns them for writing. `None`: longer than the
    /// buffer.
    #[inline(always)]
    pub(crate) fn extend(&mut self, more: usize) -> Option<&mut [u8]> {
        let start = self.len as usize;
        let end = start.checked_add(more).filter(|end| *end <= self.buffer.cells().len())?;
        self.len = end as u32;
        self.bytes_mut().get_mut(start..)
    }
}

impl Frame for PoolFrame {
    type Sealed = PoolSealed;

    #[inline]
    fn bytes(&self) -> &[u8] {
        bytes_of(&self.buffer, self.len)
    }

    #[inline]
    fn bytes_mut(&mut self) -> &mut [u8] {
        let cells = self.buffer.cells().get(..self.len as usize).unwrap_or_default();
        // SAFETY: this frame is the only one with the buffer: the pool hands a buffer out only if
        // no other reference exists, a `PoolFrame` cannot be cloned, and the pool itself never
        // looks at the bytes. The frame is borrowed mutably. The pool's check synchronises with the
        // release of the last reference (`is_free`), so older reads are over.
        unsafe { core::slice::from_raw_parts_mut(cells.as_ptr().cast_mut().cast::<u8>(), cells.len()) }
    }

    #[inline]
    fn capacity(&self) -> usize {
        self.buffer.cells().len()
    }

    #[inline]
    fn resize(&mut self, len: usize) {
        self.len = len.min(self.buffer.cells().len()) as u32;
    }

    #[inline(always)]
    fn rx(&self) -> RxMeta {
        unpack(self.buffer.rx.load(Ordering::Relaxed))
    }

    #[inline]
    fn set_rx(&mut self, rx: RxMeta) {
        self.buffer.rx.store(pack(rx), Ordering::Relaxed);
    }

    fn is_shared(&self) -> bool {
        self.buffer.owner.is_some()
    }

    #[inline]
    fn seal(self, tx: TxMeta) -> PoolSealed {
        PoolSealed { buffer: self.buffer, len: self.len, tx }
    }
}

/// A frame whose bytes are fixed; clones share them.
#[derive(Clone)]
pub struct PoolSealed {
    buffer: Arc<Buffer>,
    len: u32,
    tx: TxMeta,
}

// Tuning: a frame is two words, which fit in registers.
const _: () = assert!(size_of::<PoolFrame>() == 16 && size_of::<PoolSealed>() == 16);

impl PoolSealed {
    /// Returns the frame with other transmit metadata.
    pub(crate) fn with_tx(self, tx: TxMeta) -> Self {
        PoolSealed { tx, ..self }
    }
}

impl Sealed for PoolSealed {
    #[inline]
    fn bytes(&self) -> &[u8] {
        bytes_of(&self.buffer, self.len)
    }

    #[inline]
    fn tx(&self) -> TxMeta {
        self.tx
    }
}

#[inline]
fn bytes_of(buffer: &Buffer, len: u32) -> &[u8] {
    let cells = buffer.cells().get(..len as usize).unwrap_or_default();
    // SAFETY: nobody writes: the writer needs a `PoolFrame` of this buffer, borrowed mutably.
    // Either the caller borrows that frame, or it was sealed and no `PoolFrame` of the buffer
    // exists until all clones are dropped.
    unsafe { core::slice::from_raw_parts(cells.as_ptr().cast::<u8>(), cells.len()) }
}

/// [`pack`] of no metadata.
const NO_RX: u64 =
    pack(RxMeta { rss_hash: None, ip_checksum: Checksum::Unknown, l4_checksum: Checksum::Unknown });

/// Receive metadata in one word: the hash, whether there is one, and two bits for each checksum.
#[inline(always)]
const fn pack(rx: RxMeta) -> u64 {
    let hash = match rx.rss_hash {
        Some(hash) => 1 << 32 | hash as u64,
        None => 0,
    };
    hash | (rx.ip_checksum as u64) << 34 | (rx.l4_checksum as u64) << 36
}

#[inline(always)]
fn unpack(word: u64) -> RxMeta {
    // The usual case: the device computes nothing.
    if word == NO_RX { RxMeta::default() } else { unpack_fields(word) }
}

#[inline(never)]
fn unpack_fields(word: u64) -> RxMeta {
    let checksum = |at: u32| match word >> at & 3 {
        0 => Checksum::Unknown,
        1 => Checksum::Good,
        _ => Checksum::Bad,
    };
    RxMeta {
        rss_hash: (word >> 32 & 1 == 1).then_some(word as u32),
        ip_checksum: checksum(34),
        l4_checksum: checksum(36),
    }
}

// The values that `unpack` expects.
const _: () = assert!(Checksum::Unknown as u8 == 0 && Checksum::Good as u8 == 1 && Checksum::Bad as u8 == 2);

// A port, with every frame it holds, moves to the thread that polls it; cores pass frames to each
// other.
const _: fn() = || {
    fn sendable<T: Send>() {}
    sendable::<PoolFrame>();
    sendable::<PoolSealed>();
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_buffer_can_be_taken_and_comes_back() {
        // More than one call searches.
        let (frames, calls) = if cfg!(miri) { (150, 170) } else { (300, 1000) };
        let mut pool = Pool::new(frames, 64);
        let mut held = Vec::new();
        // A call may give up; the next one searches on.
        for _ in 0..calls {
            held.extend(pool.take());
        }
        assert_eq!((held.len(), pool.free_frames()), (frames, 0));
        let distinct: std::collections::BTreeSet<_> =
            held.iter().map(|frame| Arc::as_ptr(&frame.buffer)).collect();
        assert_eq!(distinct.len(), frames);
        held.truncate(1);
        assert_eq!(pool.free_frames(), frames - 1);
        let laps = if cfg!(miri) { 400 } else { 10_000 };
        assert!((0..laps).all(|_| pool.take().is_some()));
        assert_eq!(pool.window, WINDOW_MIN, "a lightly loaded pool uses few buffers");
    }

    #[test]
    fn a_sealed_frame_keeps_its_bytes_until_the_last_clone_goes() {
        let mut pool = Pool::new(1, 64);
        let mut frame = pool.take().expect("a free buffer");
        frame.extend(10).expect("room").fill(3);
        assert!(frame.extend(55).is_none() && frame.extend(usize::MAX).is_none());
        let first = frame.seal(TxMeta::default());
        let second = first.clone();
        drop(first);
        assert!(pool.take().is_none());
        assert_eq!(second.bytes(), [3; 10]);
        drop(second);
        assert_eq!(pool.take().map(|frame| frame.bytes().len()), Some(0));
    }

    #[test]
    fn frames_that_other_threads_release_come_back() {
        let mut pool = Pool::new(8, 64);
        let (send, receive) = std::sync::mpsc::channel::<PoolSealed>();
        let releaser =
            std::thread::spawn(move || receive.into_iter().filter(|frame| frame.bytes()[0] == 9).count());
        let count = if cfg!(miri) { 200 } else { 20_000 };
        let mut sent = 0;
        while sent < count {
            let Some(mut frame) = pool.take() else {
                std::thread::yield_now();
                continue;
            };
            frame.extend(1).expect("room").fill(9);
            send.send(frame.seal(TxMeta::default())).expect("the thread runs");
            sent += 1;
        }
        drop(send);
        assert_eq!(releaser.join().expect("no panic"), count);
        assert_eq!(pool.free_frames(), 8);
    }

    #[test]
    fn receive_metadata_is_what_was_set_until_the_buffer_returns() {
        let mut pool = Pool::new(1, 64);
        let mut frame = pool.take().unwrap();
        for rss_hash in [None, Some(0), Some(u32::MAX)] {
            for ip_checksum in [Checksum::Unknown, Checksum::Good, Checksum::Bad] {
                for l4_checksum in [Checksum::Unknown, Checksum::Good, Checksum::Bad] {
                    let rx = RxMeta { rss_hash, ip_checksum, l4_checksum };
                    frame.set_rx(rx);
                    assert_eq!(frame.rx(), rx);
                }
            }
        }
        drop(frame);
        assert_eq!(pool.take().unwrap().rx(), RxMeta::default());
    }

    #[test]
    fn a_frame_is_set_to_what_fits_its_buffer() {
        let mut frame = Pool::new(1, 64).take().unwrap();
        assert!(frame.set(&[7; 64]) && frame.set(&[3; 10]) && !frame.set(&[0; 65]));
        assert_eq!(frame.bytes(), [3; 10]);
        frame.resize(12);
        assert_eq!(frame.seal(TxMeta::default()).bytes(), [3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 7, 7]);
    }

    #[test]
    fn frames_over_shared_memory_keep_its_owner_until_the_last_one_goes() {
        let memory: Box<[UnsafeCell<u8>]> = (0..256).map(|_| UnsafeCell::new(0)).collect();
        let start = NonNull::from(Box::leak(memory));
        let owner: Owner = Arc::new(());
        let buffer = |number: usize| {
            // SAFETY: inside the 256 bytes.
            let first = unsafe { start.cast::<UnsafeCell<u8>>().add(number * 64) };
            NonNull::slice_from_raw_parts(first, 64)
        };
        // SAFETY: four buffers side by side, which nothing else uses before the pool has gone.
        let mut pool = unsafe { Pool::over((0..4).map(buffer), &owner) };
        let mut frames: Vec<_> = (0..4).map_while(|_| pool.take()).collect();
        assert!(pool.take().is_none() && !pool.is_free());
        for (number, frame) in (0..).zip(&mut frames) {
            assert!(frame.is_shared() && frame.set(&[number; 64]) && !frame.set(&[0; 65]));
            pool.prefetch_next(usize::MAX);
        }
        let sealed: Vec<_> = frames.into_iter().map(|frame| frame.seal(TxMeta::default())).collect();
        assert!((0..).zip(&sealed).all(|(number, sealed)| sealed.bytes() == [number; 64]));
        drop(pool);
        assert_eq!(Arc::strong_count(&owner), 5);
        drop(sealed);
        assert_eq!(Arc::strong_count(&owner), 1);
        // SAFETY: leaked above, and the pool has gone.
        drop(unsafe { Box::from_raw(start.as_ptr()) });
        assert!(!Pool::new(1, 64).take().unwrap().is_shared());
    }

    #[test]
    fn a_buffer_may_outlive_its_pool() {
        let mut pool = Pool::new(2, 64);
        let mut kept = pool.take().unwrap();
        kept.resize(64);
        drop(pool);
        kept.bytes_mut().fill(9);
        assert_eq!(kept.bytes(), [9; 64]);
    }

    #[test]
    fn the_last_free_buffer_of_many_is_found() {
        let mut pool = Pool::new(3 * SEARCH, 8);
        let mut held: Vec<_> = core::iter::from_fn(|| pool.take_any()).collect();
        assert_eq!((held.len(), pool.free_frames()), (3 * SEARCH, 0));
        for place in [0, SEARCH, 3 * SEARCH - 1] {
            drop(held.swap_remove(place));
            assert_eq!(pool.level().free_frames(), 1);
            held.push(pool.take_any().expect("one is free"));
            assert!(pool.take_any().is_none());
        }
        assert!(Pool::new(0, 8).take_any().is_none());
    }

    #[test]
    fn two_threads_that_release_at_once_lose_no_buffer() {
        let mut pool = Pool::new(1, 64);
        for _ in 0..if cfg!(miri) { 50 } else { 2_000 } {
            let first = pool.take().expect("the one buffer came back").seal(TxMeta::default());
            let second = first.clone();
            std::thread::scope(|scope| {
                scope.spawn(move || drop(first));
                drop(second);
            });
        }
        assert_eq!(pool.free_frames(), 1);
    }
}
