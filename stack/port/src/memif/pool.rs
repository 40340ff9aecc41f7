//! Private buffers of frames, and the frames over them.
//!
//! A pool keeps one reference to each of its buffers; a buffer without another reference is free. So releasing a frame is one
//! atomic subtraction on any thread, without a lock or a list, and taking one is a load and an addition by the one thread that
//! owns the pool. The pool takes buffers in a circle over the first `window` ones. The window grows while they are in use and
//! shrinks after quiet laps, so that a lightly loaded port stays in a few cache lines.
//!
//! [`Pool::take`] returns `None` if it finds no free buffer within [`SEARCH`] of them; the next call searches on.

use core::cell::UnsafeCell;
use core::sync::atomic::{Ordering, fence};
use std::sync::Arc;

use crate::{Frame, RxMeta, Sealed, TxMeta};

/// The smallest window, in buffers.
const WINDOW_MIN: usize = 64;
/// Buffers in use after which a call gives up.
const SEARCH: usize = 128;

/// The bytes of one frame.
struct Buffer {
    bytes: Box<[UnsafeCell<u8>]>,
}

// SAFETY: bytes are written through a `MemifFrame` alone, which is the only frame of its buffer and has `&mut` access; all
// other access reads. See `MemifFrame`.
unsafe impl Sync for Buffer {}

/// The buffers of one direction of a port.
pub(super) struct Pool {
    buffers: Box<[Arc<Buffer>]>,
    next: usize,
    window: usize,
    /// Buffers of this lap that were in use.
    busy: usize,
}

impl Pool {
    /// Creates a pool of `frames` buffers of `frame_bytes` each; at least one.
    pub(super) fn new(frames: usize, frame_bytes: usize) -> Self {
        let bytes = || vec![0u8; frame_bytes].into_iter().map(UnsafeCell::new).collect();
        let buffers = (0..frames.max(1)).map(|_| Arc::new(Buffer { bytes: bytes() }));
        Pool { buffers: buffers.collect(), next: 0, window: WINDOW_MIN.min(frames.max(1)), busy: 0 }
    }

    /// Takes a free buffer, as an empty frame.
    #[inline]
    pub(super) fn take(&mut self) -> Option<MemifFrame> {
        let buffer = self.buffers.get(self.next)?;
        if !is_free(buffer) {
            return self.search();
        }
        let buffer = buffer.clone();
        self.advance();
        Some(MemifFrame { buffer, len: 0, rx: RxMeta::default() })
    }

    #[inline]
    fn advance(&mut self) {
        self.next += 1;
        if self.next >= self.window {
            self.end_lap();
        }
    }

    /// Starts the next lap, with a smaller window if few buffers were in use.
    #[cold]
    fn end_lap(&mut self) {
        self.next = 0;
        if self.busy * 8 < self.window && self.window > WINDOW_MIN {
            self.window = (self.window / 2).max(WINDOW_MIN);
        }
        self.busy = 0;
    }

    /// Looks further, and widens the window where too many buffers are in use.
    #[cold]
    fn search(&mut self) -> Option<MemifFrame> {
        for _ in 0..SEARCH {
            self.busy += 1;
            if self.busy * 2 > self.window && self.window < self.buffers.len() {
                self.next = self.window;
                self.window = (self.window * 2).min(self.buffers.len());
                self.busy = 0;
            } else {
                self.advance();
            }
            let buffer = self.buffers.get(self.next)?;
            if is_free(buffer) {
                let buffer = buffer.clone();
                self.advance();
                return Some(MemifFrame { buffer, len: 0, rx: RxMeta::default() });
            }
        }
        None
    }

    /// Returns the number of free buffers. Walks all of them.
    pub(super) fn free_frames(&self) -> usize {
        self.buffers.iter().filter(|buffer| Arc::strong_count(buffer) == 1).count()
    }
}

/// Returns whether the pool has the only reference. None can appear then: the pool alone could make one.
#[inline]
fn is_free(buffer: &Arc<Buffer>) -> bool {
    let free = Arc::strong_count(buffer) == 1;
    // All that other threads did with the buffer comes before their release of it, and what the next frame does after.
    fence(Ordering::Acquire);
    free
}

/// A frame with one owner: of all frames, only this one has its buffer.
pub struct MemifFrame {
    buffer: Arc<Buffer>,
    len: u32,
    rx: RxMeta,
}

impl MemifFrame {
    /// Makes the frame `len` bytes long and returns them for writing. `None`: longer than the buffer.
    #[inline]
    pub(super) fn extend(&mut self, more: usize) -> Option<&mut [u8]> {
        let start = self.len as usize;
        let end = start.checked_add(more).filter(|end| *end <= self.buffer.bytes.len())?;
        self.len = end as u32;
        self.bytes_mut().get_mut(start..)
    }
}

impl Frame for MemifFrame {
    type Sealed = MemifSealed;

    #[inline]
    fn bytes(&self) -> &[u8] {
        bytes_of(&self.buffer, self.len)
    }

    #[inline]
    fn bytes_mut(&mut self) -> &mut [u8] {
        let cells = self.buffer.bytes.get(..self.len as usize).unwrap_or_default();
        // SAFETY: this frame is the only one with the buffer: the pool hands a buffer out only if no other reference exists,
        // a `MemifFrame` cannot be cloned, and the pool itself never looks at the bytes. The frame is borrowed mutably. The
        // pool's check synchronises with the release of the last reference (`is_free`), so older reads are over.
        unsafe { core::slice::from_raw_parts_mut(cells.as_ptr().cast_mut().cast::<u8>(), cells.len()) }
    }

    fn capacity(&self) -> usize {
        self.buffer.bytes.len()
    }

    #[inline]
    fn resize(&mut self, len: usize) {
        self.len = len.min(self.buffer.bytes.len()) as u32;
    }

    fn rx(&self) -> RxMeta {
        self.rx
    }

    fn set_rx(&mut self, rx: RxMeta) {
        self.rx = rx;
    }

    #[inline]
    fn seal(self, _: TxMeta) -> MemifSealed {
        // The device has no offloads.
        MemifSealed { buffer: self.buffer, len: self.len }
    }
}

/// A frame whose bytes are fixed; clones share them.
#[derive(Clone)]
pub struct MemifSealed {
    buffer: Arc<Buffer>,
    len: u32,
}

impl Sealed for MemifSealed {
    #[inline]
    fn bytes(&self) -> &[u8] {
        bytes_of(&self.buffer, self.len)
    }
}

#[inline]
fn bytes_of(buffer: &Buffer, len: u32) -> &[u8] {
    let cells = buffer.bytes.get(..len as usize).unwrap_or_default();
    // SAFETY: nobody writes: the writer needs a `MemifFrame` of this buffer, borrowed mutably. Either the caller borrows that
    // frame, or it was sealed and no `MemifFrame` of the buffer exists until all clones are dropped.
    unsafe { core::slice::from_raw_parts(cells.as_ptr().cast::<u8>(), cells.len()) }
}

// A port, with every frame it holds, moves to the thread that polls it; cores pass frames to each other.
const _: fn() = || {
    fn sendable<T: Send>() {}
    sendable::<MemifFrame>();
    sendable::<MemifSealed>();
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
        let (send, receive) = std::sync::mpsc::channel::<MemifSealed>();
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
}
