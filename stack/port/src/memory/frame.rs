//! Frames of the in-memory backend.

use crate::pool::{PoolFrame, PoolSealed};
use crate::{Frame, RxMeta, Sealed, TxMeta};

/// A frame with one owner.
pub struct MemoryFrame {
    frame: PoolFrame,
}

impl MemoryFrame {
    #[inline]
    pub(super) fn new(frame: PoolFrame) -> Self {
        MemoryFrame { frame }
    }

    /// Returns a frame of no pool that holds `bytes`, in a buffer of `capacity` bytes or as many as there are.
    pub fn detached(bytes: &[u8], capacity: usize) -> Self {
        let mut frame = MemoryFrame::new(PoolFrame::detached(capacity.max(bytes.len())));
        frame.resize(bytes.len());
        frame.bytes_mut().copy_from_slice(bytes);
        frame
    }
}

impl Frame for MemoryFrame {
    type Sealed = MemorySealed;

    #[inline]
    fn bytes(&self) -> &[u8] {
        self.frame.bytes()
    }

    #[inline]
    fn bytes_mut(&mut self) -> &mut [u8] {
        self.frame.bytes_mut()
    }

    #[inline]
    fn capacity(&self) -> usize {
        self.frame.capacity()
    }

    #[inline]
    fn resize(&mut self, len: usize) {
        self.frame.resize(len);
    }

    #[inline(always)]
    fn rx(&self) -> RxMeta {
        self.frame.rx()
    }

    #[inline]
    fn set_rx(&mut self, rx: RxMeta) {
        self.frame.set_rx(rx);
    }

    #[inline]
    fn seal(self, tx: TxMeta) -> MemorySealed {
        MemorySealed { sealed: self.frame.seal(tx), tx }
    }
}

/// A frame whose bytes are fixed; clones share them.
#[derive(Clone)]
pub struct MemorySealed {
    sealed: PoolSealed,
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
        self.sealed.bytes()
    }
}

// A port, with every frame it holds, moves to the thread that polls it.
const _: fn() = || {
    fn sendable<T: Send>() {}
    sendable::<MemoryFrame>();
    sendable::<MemorySealed>();
};
