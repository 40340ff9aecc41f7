//! Buffers of one size, allocated at the start and kept in a free list.
//!
//! Dropping the last handle of a buffer returns the buffer to its pool. Handles are dropped under the lock of the free
//! list: of two threads that drop a handle at the same time, exactly one returns the buffer.

use std::sync::{Arc, Weak};

use parking_lot::Mutex;

/// The free buffers of one pool.
pub(super) struct Pool {
    free: Mutex<Vec<Arc<Buffer>>>,
}

struct Buffer {
    bytes: Box<[u8]>,
    home: Weak<Pool>,
}

impl Buffer {
    fn new(bytes: usize, home: Weak<Pool>) -> Self {
        Buffer { bytes: vec![UNWRITTEN; bytes].into(), home }
    }
}

/// The initial value of all bytes, so that a sender that leaves bytes unwritten is noticed.
const UNWRITTEN: u8 = 0xa5;

impl Pool {
    /// `frames` buffers of `frame_bytes` each.
    pub(super) fn new(frames: usize, frame_bytes: usize) -> Arc<Pool> {
        Arc::new_cyclic(|home| {
            let buffer = || Arc::new(Buffer::new(frame_bytes, home.clone()));
            Pool { free: Mutex::new((0..frames).map(|_| buffer()).collect()) }
        })
    }

    /// Takes a free buffer. Its handle has length 0.
    #[inline]
    pub(super) fn take(&self) -> Option<Handle> {
        let buffer = self.free.lock().pop()?;
        Some(Handle { buffer: Some(buffer), len: 0 })
    }

    /// Returns the number of free buffers.
    pub(super) fn free_frames(&self) -> usize {
        self.free.lock().len()
    }

    fn let_go(&self, buffer: Arc<Buffer>) {
        let mut free = self.free.lock();
        // Clones come only from a live handle, so a count of one cannot grow while the lock is held.
        if Arc::strong_count(&buffer) == 1 {
            free.push(buffer);
        } else {
            // Dropped while the lock is held, so that the next thread sees the lower count.
            drop(buffer);
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
        Handle { buffer: Some(Arc::new(Buffer::new(bytes, Weak::new()))), len: 0 }
    }

    #[inline]
    pub(super) fn bytes(&self) -> &[u8] {
        let bytes = self.buffer.as_ref().map_or(&[][..], |buffer| &buffer.bytes);
        bytes.get(..self.len).unwrap_or(bytes)
    }

    /// Returns the writable bytes; empty if the buffer has another handle.
    pub(super) fn bytes_mut(&mut self) -> &mut [u8] {
        let buffer = self.buffer.as_mut().and_then(Arc::get_mut);
        buffer.and_then(|buffer| buffer.bytes.get_mut(..self.len)).unwrap_or_default()
    }

    /// Replaces the bytes and the length. Returns `false`, with nothing changed, if the buffer is too short or has another
    /// handle.
    #[inline]
    pub(super) fn copy_from(&mut self, bytes: &[u8]) -> bool {
        let buffer = self.buffer.as_mut().and_then(Arc::get_mut);
        let Some(room) = buffer.and_then(|buffer| buffer.bytes.get_mut(..bytes.len())) else { return false };
        room.copy_from_slice(bytes);
        self.len = bytes.len();
        true
    }

    pub(super) fn capacity(&self) -> usize {
        self.buffer.as_ref().map_or(0, |buffer| buffer.bytes.len())
    }

    pub(super) fn resize(&mut self, len: usize) {
        self.len = len.min(self.capacity());
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        let Some(buffer) = self.buffer.take() else { return };
        // A buffer without a pool is freed.
        if let Some(home) = buffer.home.upgrade() {
            home.let_go(buffer);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_buffer_returns_when_its_last_handle_goes() {
        let pool = Pool::new(1, 64);
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
        let pool = Pool::new(1, 64);
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
        let pool = Pool::new(2, 64);
        let mut kept = pool.take().unwrap();
        kept.resize(64);
        drop(pool);
        kept.bytes_mut().fill(9);
        assert_eq!(kept.bytes(), [9; 64]);
    }

    #[test]
    fn two_threads_that_let_go_at_once_lose_no_buffer() {
        let pool = Pool::new(1, 64);
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
