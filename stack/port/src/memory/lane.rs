//! One direction between two ports: the receiver's rings and pools, and the copy of each frame.

use core::sync::atomic::{AtomicUsize, Ordering};
use std::collections::VecDeque;
use std::sync::Arc;

use parking_lot::{Mutex, MutexGuard};

use super::control::{Knobs, add, count};
use super::device::{self, Verdicts};
use super::packet::Ipv4Tcp;
use super::ring::Ring;
use super::{MemoryFrame, MemorySealed};
use crate::pool::Pool;
use crate::{Burst, Frame, RxMeta, Sealed, TxMeta};

/// The receive queues of one device, and the rule that selects one.
pub(super) struct Queues {
    lanes: Box<[Arc<Lane>]>,
    rule: QueueRule,
}

/// Which receive queue of several a frame goes into.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum QueueRule {
    /// The queue with the number of the transmit queue, modulo the receiver's number of queues, as
    /// memif and rings do.
    #[default]
    AsSent,
    /// Always this queue, as a device without receive-side scaling does.
    All(u16),
    /// The queue of [`Spread::Toeplitz`](crate::Spread::Toeplitz) for TCP over IPv4, the first
    /// queue for all other frames, as network cards do.
    Toeplitz,
}

/// Entries of the redirection table from hashes to queues.
pub(super) const TABLE_ENTRIES: u16 = 128;

impl Queues {
    /// At least one lane.
    pub(super) fn new(lanes: Box<[Arc<Lane>]>, rule: QueueRule) -> Arc<Self> {
        Arc::new(Queues { lanes, rule })
    }

    /// Returns the queue `number`, modulo the number of queues.
    pub(super) fn lane(&self, number: usize) -> &Arc<Lane> {
        &self.lanes[number % self.lanes.len()]
    }

    pub(super) fn lanes(&self) -> &[Arc<Lane>] {
        &self.lanes
    }

    /// Returns the receive queue for a frame of transmit queue `sent_from`.
    pub(super) fn choose(&self, sent_from: usize, frame: &[u8]) -> &Lane {
        self.lane(match self.rule {
            QueueRule::AsSent => sent_from,
            QueueRule::All(queue) => queue.into(),
            QueueRule::Toeplitz => {
                let hash = Ipv4Tcp::locate(frame).and_then(|at| device::symmetric_hash(frame, &at));
                hash.map_or(0, |hash| hash as usize % usize::from(TABLE_ENTRIES))
            }
        })
    }

    /// Moves frames from a sender's ring until the next frame's queue is full.
    pub(super) fn deliver(&self, sent_from: usize, from: &mut VecDeque<MemorySealed>) {
        let mut left = from.len() + 1;
        while from.len() < left {
            left = from.len();
            let Some(sealed) = from.front() else { return };
            self.choose(sent_from, sealed.bytes()).deliver(from, 1);
        }
    }
}

/// One receive queue: its pool with its ring.
pub(super) struct Lane {
    stock: Mutex<Stock>,
    /// The ring's length, so that polling an empty ring takes no lock.
    waiting: AtomicUsize,
    verdicts: Verdicts,
    knobs: Arc<Knobs>,
}

/// The buffers of a receive queue, and the frames that wait in them.
pub(super) struct Stock {
    pool: Pool,
    ring: Ring,
}

/// Why a frame was not copied.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum NotCopied {
    /// The pool is empty.
    NoBuffer,
    /// The frame is longer than a buffer.
    TooLong,
}

impl Stock {
    /// Copies a frame to a free buffer.
    #[inline(always)]
    fn copy(&mut self, bytes: &[u8]) -> Result<MemoryFrame, NotCopied> {
        let mut frame = self.pool.take_any().ok_or(NotCopied::NoBuffer)?;
        if frame.set(bytes) { Ok(frame) } else { Err(NotCopied::TooLong) }
    }
}

impl Lane {
    /// The ring holds `depth` frames of `pool`.
    pub(super) fn new(depth: usize, pool: Pool, verdicts: Verdicts, knobs: Arc<Knobs>) -> Self {
        let stock = Mutex::new(Stock { pool, ring: Ring::new(depth) });
        Lane { stock, waiting: AtomicUsize::new(0), verdicts, knobs }
    }

    pub(super) fn knobs(&self) -> &Arc<Knobs> {
        &self.knobs
    }

    pub(super) fn free_frames(&self) -> usize {
        self.stock.lock().pool.free_frames()
    }

    #[inline]
    pub(super) fn waiting_frames(&self) -> usize {
        self.waiting.load(Ordering::Acquire)
    }

    /// [`Lane::deliver_fast`] of one frame. Returns whether it is delivered.
    #[inline(always)]
    pub(super) fn deliver_single(&self, sealed: &MemorySealed, bytes_max: usize) -> bool {
        let bytes = sealed.bytes();
        let is_plain = sealed.tx().offloads.is_empty() && bytes.len() <= bytes_max;
        if !is_plain || !self.verdicts.is_empty() || self.knobs.has_faults() {
            return false;
        }
        let mut stock = self.stock.lock();
        if !stock.ring.has_room() {
            return false;
        }
        let Ok(copy) = stock.copy(bytes) else { return false };
        stock.ring.push_back(copy);
        self.waiting.store(stock.ring.len(), Ordering::Release);
        drop(stock);
        add(&self.knobs.taken, 1);
        add(&self.knobs.delivered, 1);
        true
    }

    /// Copies frames of at most `bytes_max` bytes into the ring, up to the first one that needs the
    /// general path: a device computes something, there is no room, or the link may lose it.
    /// Returns their number.
    #[inline(never)]
    pub(super) fn deliver_fast(&self, frames: &[MemorySealed], bytes_max: usize) -> usize {
        if !self.verdicts.is_empty() || self.knobs.has_faults() {
            return 0;
        }
        let mut stock = self.stock.lock();
        let mut delivered = 0;
        for sealed in frames {
            let bytes = sealed.bytes();
            let is_plain = sealed.tx().offloads.is_empty() && bytes.len() <= bytes_max;
            if !is_plain || !stock.ring.has_room() {
                break;
            }
            let Ok(copy) = stock.copy(bytes) else { break };
            stock.ring.push_back(copy);
            delivered += 1;
        }
        self.waiting.store(stock.ring.len(), Ordering::Release);
        drop(stock);
        add(&self.knobs.taken, delivered);
        add(&self.knobs.delivered, delivered);
        delivered
    }

    /// Moves up to `frames_max` frames from the sender's ring while the receive ring has room.
    pub(super) fn deliver(&self, from: &mut VecDeque<MemorySealed>, frames_max: usize) {
        let mut entrance = self.open();
        for _ in 0..frames_max {
            if !entrance.has_room() {
                break;
            }
            let Some(sealed) = from.pop_front() else { break };
            entrance.deliver(sealed.bytes(), sealed.tx());
        }
    }

    /// Puts one frame into the ring, with `rx` or else the metadata that the device computes.
    /// Returns whether it is there.
    pub(super) fn inject(&self, bytes: &[u8], rx: Option<RxMeta>) -> bool {
        let mut entrance = self.open();
        entrance.has_room() && entrance.arrive(bytes, TxMeta::default(), rx)
    }

    /// Locks the ring for the frames of a burst.
    pub(super) fn open(&self) -> Entrance<'_> {
        Entrance { lane: self, stock: self.stock.lock() }
    }

    /// Appends waiting frames to `into`, up to its room.
    #[inline]
    pub(super) fn receive(&self, into: &mut Burst<MemoryFrame>) {
        if self.waiting_frames() > 0 {
            self.receive_waiting(into);
        }
    }

    #[inline(never)]
    fn receive_waiting(&self, into: &mut Burst<MemoryFrame>) {
        // Tuning: one frame is usual, and needs no loop, whose state would take registers.
        if self.waiting_frames() != 1 || !into.is_empty() {
            return self.receive_several(into);
        }
        let mut stock = self.stock.lock();
        if let Some(frame) = stock.ring.pop_front() {
            let _ = into.try_push(frame);
        }
        self.waiting.store(stock.ring.len(), Ordering::Release);
    }

    #[inline(never)]
    fn receive_several(&self, into: &mut Burst<MemoryFrame>) {
        let mut stock = self.stock.lock();
        while !into.is_full()
            && let Some(frame) = stock.ring.pop_front()
        {
            into.push(frame);
        }
        self.waiting.store(stock.ring.len(), Ordering::Release);
    }
}

/// A receive ring while a burst enters it. Its frames can be received once it is dropped.
pub(super) struct Entrance<'a> {
    lane: &'a Lane,
    stock: MutexGuard<'a, Stock>,
}

impl Entrance<'_> {
    pub(super) fn has_room(&self) -> bool {
        self.stock.ring.has_room()
    }

    /// Copies a sent frame into the ring, which has room. The device fills in what `tx` says.
    pub(super) fn deliver(&mut self, bytes: &[u8], tx: TxMeta) {
        self.arrive(bytes, tx, None);
    }

    /// Copies the frame to a buffer of the receiver. Returns `false`, and counts the loss, if the
    /// pool is empty or the buffer too short. The sender does not learn of it, as with a network
    /// card.
    fn arrive(&mut self, from: &[u8], tx: TxMeta, rx: Option<RxMeta>) -> bool {
        let Lane { knobs, verdicts, .. } = self.lane;
        let mut frame = match self.stock.copy(from) {
            Ok(frame) => frame,
            Err(NotCopied::NoBuffer) => {
                count(&knobs.no_buffer);
                return false;
            }
            Err(NotCopied::TooLong) => {
                count(&knobs.too_long_for_receiver);
                return false;
            }
        };
        if !tx.offloads.is_empty() {
            device::fill_checksums(frame.bytes_mut(), tx);
        }
        match rx {
            Some(rx) => frame.set_rx(rx),
            None if verdicts.is_empty() => {}
            None => frame.set_rx(verdicts.of(frame.bytes())),
        }
        self.stock.ring.push_back(frame);
        count(&knobs.delivered);
        true
    }
}

impl Drop for Entrance<'_> {
    fn drop(&mut self) {
        self.lane.waiting.store(self.stock.ring.len(), Ordering::Release);
    }
}
