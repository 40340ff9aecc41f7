//! One direction between two ports: the receiver's ring, its pool, and the copy from one to the other.

use core::sync::atomic::{AtomicUsize, Ordering};
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::control::{Knobs, count};
use super::device::{self, Verdicts};
use super::frame::{MemoryFrame, MemorySealed};
use super::pool::Pool;
use crate::{Burst, Frame, RxMeta, Sealed, TxMeta};

/// The way to one receiver.
pub(super) struct Lane {
    ring: Mutex<VecDeque<MemoryFrame>>,
    /// The ring's length, so that polling an empty ring takes no lock.
    waiting: AtomicUsize,
    depth: usize,
    pool: Arc<Pool>,
    verdicts: Verdicts,
    knobs: Arc<Knobs>,
}

impl Lane {
    pub(super) fn new(depth: usize, pool: Arc<Pool>, verdicts: Verdicts, knobs: Arc<Knobs>) -> Self {
        let ring = Mutex::new(VecDeque::with_capacity(depth));
        Lane { ring, waiting: AtomicUsize::new(0), depth, pool, verdicts, knobs }
    }

    pub(super) fn knobs(&self) -> &Arc<Knobs> {
        &self.knobs
    }

    pub(super) fn free_frames(&self) -> usize {
        self.pool.free_frames()
    }

    pub(super) fn waiting_frames(&self) -> usize {
        self.waiting.load(Ordering::Acquire)
    }

    /// Moves frames from the sender's ring as long as the receiver's has room.
    pub(super) fn deliver(&self, from: &mut VecDeque<MemorySealed>) {
        let mut ring = self.lock();
        while ring.len() < self.depth {
            let Some(sealed) = from.pop_front() else { break };
            self.arrive(&mut ring, sealed.bytes(), sealed.tx(), None);
        }
        self.waiting.store(ring.len(), Ordering::Release);
    }

    /// Puts one frame into the ring, with the verdict given or else the device's own. Answers whether it is there.
    pub(super) fn inject(&self, bytes: &[u8], rx: Option<RxMeta>) -> bool {
        let mut ring = self.lock();
        let entered = ring.len() < self.depth && self.arrive(&mut ring, bytes, TxMeta::default(), rx);
        self.waiting.store(ring.len(), Ordering::Release);
        entered
    }

    /// Appends waiting frames to `into`, up to its room.
    pub(super) fn receive(&self, into: &mut Burst<MemoryFrame>) {
        if self.waiting_frames() == 0 {
            return;
        }
        let mut ring = self.lock();
        let count = ring.len().min(into.remaining_capacity());
        into.extend(ring.drain(..count));
        self.waiting.store(ring.len(), Ordering::Release);
    }

    /// The one copy, from the sender's buffer to the receiver's. Answers whether the frame found a buffer that
    /// holds it; like a network card's, the loss is silent.
    fn arrive(&self, ring: &mut VecDeque<MemoryFrame>, from: &[u8], tx: TxMeta, rx: Option<RxMeta>) -> bool {
        let Some(mut frame) = self.pool.take().map(MemoryFrame::new) else {
            count(&self.knobs.no_buffer);
            return false;
        };
        frame.resize(from.len());
        if frame.bytes().len() != from.len() {
            count(&self.knobs.too_long_for_receiver);
            return false;
        }
        frame.bytes_mut().copy_from_slice(from);
        device::fill_checksums(frame.bytes_mut(), tx);
        let rx = rx.unwrap_or_else(|| self.verdicts.of(frame.bytes()));
        frame.set_rx(rx);
        ring.push_back(frame);
        count(&self.knobs.delivered);
        true
    }

    fn lock(&self) -> MutexGuard<'_, VecDeque<MemoryFrame>> {
        // Nothing that runs under the lock leaves the ring half changed.
        self.ring.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
