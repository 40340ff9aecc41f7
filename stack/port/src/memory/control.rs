//! Controls that a test sets while traffic runs, and counters of frames.

use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::Arc;

use super::lane::Lane;
use crate::pool::PoolLevel;

/// Controls one port, from any thread. Clones control the same port.
#[derive(Clone)]
pub struct MemoryControl {
    knobs: Arc<Knobs>,
    tx_pool: PoolLevel,
    to_port: Arc<Lane>,
    from_port: Arc<Lane>,
}

impl MemoryControl {
    pub(super) fn new(tx_pool: PoolLevel, to_port: Arc<Lane>, from_port: Arc<Lane>) -> Self {
        MemoryControl { knobs: from_port.knobs().clone(), tx_pool, to_port, from_port }
    }

    pub(super) fn knobs(&self) -> &Knobs {
        &self.knobs
    }

    /// Makes allocations fail after the next `allocations`. `u64::MAX`, the default, is no limit.
    pub fn allow_allocations(&self, allocations: u64) {
        self.knobs.allocations_left.store(allocations, Ordering::Relaxed);
    }

    /// Limits the frames that the transmit ring takes of each burst. `u64::MAX`, the default, is no
    /// limit.
    pub fn limit_tx_burst(&self, frames: u64) {
        self.knobs.tx_burst_frames.store(frames, Ordering::Relaxed);
        self.knobs.note_faults();
    }

    /// Sets the link up or down. While it is down, frames are dropped in both directions.
    pub fn set_link(&self, up: bool) {
        self.knobs.link_down.store(!up, Ordering::Relaxed);
        self.knobs.note_faults();
    }

    /// Loses every `frames`-th frame that is sent from now on. 0 loses none, as at the start.
    pub fn lose_every(&self, frames: u64) {
        self.knobs.lose_every.store(frames, Ordering::Relaxed);
        self.knobs.note_faults();
    }

    /// What became of the frames until now.
    pub fn counts(&self) -> MemoryCounts {
        let read = |word: &AtomicU64| word.load(Ordering::Relaxed);
        let (tx, rx) = (&self.knobs, self.to_port.knobs());
        MemoryCounts {
            tx_frames: read(&tx.taken),
            tx_delivered: read(&tx.delivered),
            tx_offloads_refused: read(&tx.offloads_refused),
            tx_too_long: read(&tx.too_long),
            rx_frames: read(&rx.delivered),
            rx_no_buffer: read(&rx.no_buffer),
            rx_too_long: read(&rx.too_long_for_receiver),
        }
    }

    /// Returns the number of free buffers of both pools.
    pub fn free_frames(&self) -> PoolLevels {
        PoolLevels { rx: self.to_port.free_frames(), tx: self.tx_pool.free_frames() }
    }

    /// Returns the number of frames in this port's receive ring.
    pub fn rx_waiting_frames(&self) -> usize {
        self.to_port.waiting_frames()
    }

    /// Returns the number of frames in the peer's receive ring.
    pub fn far_waiting_frames(&self) -> usize {
        self.from_port.waiting_frames()
    }
}

/// Counters of a port's frames.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct MemoryCounts {
    /// Frames that the transmit ring took.
    pub tx_frames: u64,
    /// Frames that entered the receive ring of the peer.
    pub tx_delivered: u64,
    /// Frames that asked for an offload the port does not claim; they left with a wrong checksum.
    pub tx_offloads_refused: u64,
    /// Frames dropped because their packet was longer than the MTU.
    pub tx_too_long: u64,
    /// Frames that entered the receive ring.
    pub rx_frames: u64,
    /// Frames dropped because the receive pool was empty.
    pub rx_no_buffer: u64,
    /// Frames dropped because they were longer than a receive buffer.
    pub rx_too_long: u64,
}

/// Free buffers of both pools.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PoolLevels {
    /// In the receive pool.
    pub rx: usize,
    /// In the transmit pool.
    pub tx: usize,
}

/// The controls and counters of one direction: those of its sender, and those of its receiver.
pub(super) struct Knobs {
    allocations_left: AtomicU64,
    tx_burst_frames: AtomicU64,
    lose_every: AtomicU64,
    link_down: AtomicBool,
    /// The link is down, loses frames or takes part of a burst.
    has_faults: AtomicBool,
    pub(super) taken: AtomicU64,
    pub(super) offloads_refused: AtomicU64,
    pub(super) too_long: AtomicU64,
    pub(super) delivered: AtomicU64,
    pub(super) no_buffer: AtomicU64,
    pub(super) too_long_for_receiver: AtomicU64,
}

impl Knobs {
    pub(super) fn new() -> Arc<Knobs> {
        Arc::new(Knobs {
            allocations_left: AtomicU64::new(u64::MAX),
            tx_burst_frames: AtomicU64::new(u64::MAX),
            lose_every: AtomicU64::new(0),
            link_down: AtomicBool::new(false),
            has_faults: AtomicBool::new(false),
            taken: AtomicU64::new(0),
            offloads_refused: AtomicU64::new(0),
            too_long: AtomicU64::new(0),
            delivered: AtomicU64::new(0),
            no_buffer: AtomicU64::new(0),
            too_long_for_receiver: AtomicU64::new(0),
        })
    }

    pub(super) fn link_up(&self) -> bool {
        !self.link_down.load(Ordering::Relaxed)
    }

    /// Returns whether a sent frame may be lost or stay with its sender.
    #[inline]
    pub(super) fn has_faults(&self) -> bool {
        self.has_faults.load(Ordering::Relaxed)
    }

    fn note_faults(&self) {
        let loses = self.lose_every.load(Ordering::Relaxed) != 0;
        let limits = self.tx_burst_frames.load(Ordering::Relaxed) != u64::MAX;
        self.has_faults.store(loses || limits || !self.link_up(), Ordering::Relaxed);
    }

    /// Returns whether the frame that was counted last is lost.
    pub(super) fn loses_next(&self) -> bool {
        let every = self.lose_every.load(Ordering::Relaxed);
        every != 0 && self.taken.load(Ordering::Relaxed).is_multiple_of(every)
    }

    /// Whether one more allocation may succeed.
    pub(super) fn may_allocate(&self) -> bool {
        match self.allocations_left.load(Ordering::Relaxed) {
            u64::MAX => true,
            0 => false,
            _ => self.allocations_left.fetch_sub(1, Ordering::Relaxed) != 0,
        }
    }

    /// Returns the number of frames of a burst that the ring takes.
    pub(super) fn tx_burst_frames(&self) -> usize {
        usize::try_from(self.tx_burst_frames.load(Ordering::Relaxed)).unwrap_or(usize::MAX)
    }
}

/// Adds one.
pub(super) fn count(word: &AtomicU64) {
    add(word, 1);
}

/// Adds `n`.
#[inline]
pub(super) fn add(word: &AtomicU64, n: usize) {
    word.fetch_add(n as u64, Ordering::Relaxed);
}
