//! Frames of the in-memory backend.

use super::pool::Handle;
use crate::{Frame, RxMeta, Sealed, TxMeta};

/// A frame with one owner.
pub struct MemoryFrame {
    handle: Handle,
}

impl MemoryFrame {
    /// Returns an empty frame in a buffer without other handles.
    #[inline]
    pub(super) fn new(handle: Handle) -> Self {
        MemoryFrame { handle }
    }

    /// Returns a frame of no pool that holds `bytes`, in a buffer of `capacity` bytes or as many as there are.
    pub fn detached(bytes: &[u8], capacity: usize) -> Self {
        let mut frame = MemoryFrame::new(Handle::detached(capacity.max(bytes.len())));
        frame.resize(bytes.len());
        frame.bytes_mut().copy_from_slice(bytes);
        frame
    }
}

impl Frame for MemoryFrame {
    type Sealed = MemorySealed;

    #[inline]
    fn bytes(&self) -> &[u8] {
        self.handle.bytes()
    }

    #[inline]
    fn bytes_mut(&mut self) -> &mut [u8] {
        self.handle.bytes_mut()
    }

    #[inline]
    fn capacity(&self) -> usize {
        self.handle.capacity()
    }

    #[inline]
    fn resize(&mut self, len: usize) {
        self.handle.resize(len);
    }

    #[inline(always)]
    fn rx(&self) -> RxMeta {
        self.handle.rx()
    }

    #[inline]
    fn set_rx(&mut self, rx: RxMeta) {
        self.handle.set_rx(rx);
    }

    #[inline]
    fn seal(self, tx: TxMeta) -> MemorySealed {
        MemorySealed { handle: self.handle, tx }
    }
}

/// A frame whose bytes are fixed; clones share them.
#[derive(Clone)]
pub struct MemorySealed {
    handle: Handle,
    tx: TxMeta,
}

impl MemorySealed {
    /// Returns what the device must fill in.
    #[inline]
    pub fn tx(&self) -> TxMeta {
        self.tx
    }

    /// Returns the frame with other transmit metadata.
    pub(super) fn with_tx(self, tx: TxMeta) -> Self {
        MemorySealed { tx, ..self }
    }
}

impl Sealed for MemorySealed {
    #[inline]
    fn bytes(&self) -> &[u8] {
        self.handle.bytes()
    }
}

// A port, with every frame it holds, moves to the thread that polls it.
const _: fn() = || {
    fn sendable<T: Send>() {}
    sendable::<MemoryFrame>();
    sendable::<MemorySealed>();
};
