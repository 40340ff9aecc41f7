//! Buffers of one size, allocated at the start and kept in a free list, and the ring of frames that wait in them.
//!
//! Dropping the last handle of a buffer returns the buffer to its pool. Of two threads that drop a handle at the same
//! time, exactly one returns the buffer.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::{Mutex, MutexGuard};

use crate::{Checksum, RxMeta};

/// The buffers of one port or queue. When the pool is gone, buffers that are still in use are freed with their last handle.
pub(super) struct Pool {
    home: Arc<Home>,
}

/// Where the buffers of one pool return to.
struct Home(Mutex<Stock>);

/// The free buffers of one pool, and the ring of a receive queue. The list has no capacity once the pool is gone.
///
/// No [`Handle`] is dropped while the stock is locked, because that locks it.
#[derive(Default)]
pub(super) struct Stock {
    free: Vec<Arc<Buffer>>,
    pub(super) ring: VecDeque<Handle>,
}

struct Buffer {
    bytes: Box<[u8]>,
    home: Option<Arc<Home>>,
    /// The receive metadata of the frame in the buffer, as [`pack`] stores it.
    rx: AtomicU64,
}

impl Buffer {
    fn new(bytes: usize, home: Option<Arc<Home>>) -> Self {
        Buffer { bytes: vec![UNWRITTEN; bytes].into(), home, rx: AtomicU64::new(pack(RxMeta::default())) }
    }
}

/// The initial value of all bytes, so that a sender that leaves bytes unwritten is noticed.
const UNWRITTEN: u8 = 0xa5;

impl Pool {
    /// `frames` buffers of `frame_bytes` each, and a ring for `ring_frames` of them.
    pub(super) fn new(frames: usize, frame_bytes: usize, ring_frames: usize) -> Arc<Pool> {
        let stock = Stock { free: Vec::with_capacity(frames), ring: VecDeque::with_capacity(ring_frames) };
        let home = Arc::new(Home(Mutex::new(stock)));
        let buffer = || Arc::new(Buffer::new(frame_bytes, Some(home.clone())));
        home.0.lock().free.extend((0..frames).map(|_| buffer()));
        Arc::new(Pool { home })
    }

    /// Takes a free buffer. Its handle has length 0 and no receive metadata.
    #[inline]
    pub(super) fn take(&self) -> Option<Handle> {
        let buffer = self.lock().take()?;
        Some(Handle { buffer: Some(buffer), len: 0 })
    }

    /// Locks the free buffers and the ring.
    #[inline]
    pub(super) fn lock(&self) -> MutexGuard<'_, Stock> {
        self.home.0.lock()
    }

    /// Returns the number of free buffers.
    pub(super) fn free_frames(&self) -> usize {
        self.lock().free.len()
    }
}

impl Drop for Pool {
    /// Buffers refer to the list and the list to buffers, so the list must be emptied.
    fn drop(&mut self) {
        let stock = core::mem::take(&mut *self.lock());
        drop(stock);
    }
}

/// Why a frame was not copied.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum NotCopied {
    /// The pool is empty.
    NoBuffer,
    /// The frame is longer than a buffer.
    TooLong,
}

impl Stock {
    /// Takes a free buffer without receive metadata.
    #[inline]
    fn take(&mut self) -> Option<Arc<Buffer>> {
        let buffer = self.free.pop()?;
        buffer.rx.store(pack(RxMeta::default()), Ordering::Relaxed);
        Some(buffer)
    }

    /// Copies a frame to a free buffer.
    #[inline]
    pub(super) fn copy(&mut self, bytes: &[u8]) -> Result<Handle, NotCopied> {
        let mut buffer = self.take().ok_or(NotCopied::NoBuffer)?;
        match Arc::get_mut(&mut buffer).and_then(|buffer| buffer.bytes.get_mut(..bytes.len())) {
            Some(room) => room.copy_from_slice(bytes),
            None => {
                self.free.push(buffer);
                return Err(NotCopied::TooLong);
            }
        }
        Ok(Handle { buffer: Some(buffer), len: bytes.len() })
    }
}

impl Home {
    /// Keeps a buffer without other handles, or frees it if the pool is gone.
    #[inline]
    fn keep(&self, buffer: Arc<Buffer>) {
        let free = &mut self.0.lock().free;
        if free.len() < free.capacity() {
            free.push(buffer);
        }
    }
}

/// A reference to one buffer and a length. Clones share the buffer.
#[derive(Clone)]
pub(super) struct Handle {
    /// `Some` until the handle is dropped.
    buffer: Option<Arc<Buffer>>,
    len: usize,
}

impl Handle {
    /// A buffer of no pool.
    pub(super) fn detached(bytes: usize) -> Self {
        Handle { buffer: Some(Arc::new(Buffer::new(bytes, None))), len: 0 }
    }

    #[inline]
    pub(super) fn bytes(&self) -> &[u8] {
        let bytes = self.buffer.as_ref().map_or(&[][..], |buffer| &buffer.bytes);
        bytes.get(..self.len).unwrap_or(bytes)
    }

    /// Returns the writable bytes; empty if the buffer has another handle.
    #[inline]
    pub(super) fn bytes_mut(&mut self) -> &mut [u8] {
        let buffer = self.buffer.as_mut().and_then(Arc::get_mut);
        buffer.and_then(|buffer| buffer.bytes.get_mut(..self.len)).unwrap_or_default()
    }

    /// Returns the receive metadata of the frame.
    #[inline(always)]
    pub(super) fn rx(&self) -> RxMeta {
        self.buffer.as_ref().map_or(RxMeta::default(), |buffer| unpack(buffer.rx.load(Ordering::Relaxed)))
    }

    /// Replaces the receive metadata of the frame.
    #[inline]
    pub(super) fn set_rx(&mut self, rx: RxMeta) {
        if let Some(buffer) = &self.buffer {
            buffer.rx.store(pack(rx), Ordering::Relaxed);
        }
    }

    #[inline]
    pub(super) fn capacity(&self) -> usize {
        self.buffer.as_ref().map_or(0, |buffer| buffer.bytes.len())
    }

    #[inline]
    pub(super) fn resize(&mut self, len: usize) {
        self.len = len.min(self.capacity());
    }
}

impl Drop for Handle {
    #[inline]
    fn drop(&mut self) {
        let Some(buffer) = self.buffer.take() else { return };
        // Clones come only from a live handle, so a count of one cannot grow.
        if Arc::strong_count(&buffer) == 1 { keep(buffer) } else { drop_shared(buffer) }
    }
}

/// Drops one of several handles. It is the last one after all if another thread dropped its own meanwhile. Not inlined,
/// because it moves a buffer on the stack.
#[inline(never)]
fn drop_shared(buffer: Arc<Buffer>) {
    if let Some(buffer) = Arc::into_inner(buffer) {
        keep(Arc::new(buffer));
    }
}

/// Returns a buffer without handles to its pool. A buffer without a pool is freed.
#[inline(never)]
fn keep(buffer: Arc<Buffer>) {
    if let Some(home) = buffer.home.clone() {
        home.keep(buffer);
    }
}

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
    if word == 0 { RxMeta::default() } else { unpack_fields(word) }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn receive_metadata_is_what_was_set_until_the_buffer_returns() {
        let pool = Pool::new(1, 64, 0);
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
    fn a_buffer_returns_when_its_last_handle_goes() {
        let pool = Pool::new(1, 64, 0);
        let first = pool.take().unwrap();
        let second = first.clone();
        assert!(pool.take().is_none());
        drop(first);
        assert_eq!(pool.free_frames(), 0);
        drop(second);
        assert_eq!(pool.free_frames(), 1);
    }

    #[test]
    fn a_shared_buffer_cannot_be_written() {
        let pool = Pool::new(1, 64, 0);
        let mut first = pool.take().unwrap();
        first.resize(10);
        assert_eq!(first.bytes_mut().len(), 10);
        let second = first.clone();
        assert!(first.bytes_mut().is_empty());
        drop(second);
        assert_eq!(first.bytes_mut().len(), 10);
    }

    #[test]
    fn a_buffer_may_outlive_its_pool() {
        let pool = Pool::new(2, 64, 0);
        let mut kept = pool.take().unwrap();
        kept.resize(64);
        drop(pool);
        kept.bytes_mut().fill(9);
        assert_eq!(kept.bytes(), [9; 64]);
    }

    #[test]
    fn two_threads_that_let_go_at_once_lose_no_buffer() {
        let pool = Pool::new(1, 64, 0);
        for _ in 0..2_000 {
            let first = pool.take().expect("the one buffer came back");
            let second = first.clone();
            std::thread::scope(|scope| {
                scope.spawn(move || drop(first));
                drop(second);
            });
        }
        assert_eq!(pool.free_frames(), 1);
    }
}
