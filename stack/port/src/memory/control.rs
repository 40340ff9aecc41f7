//! Knobs that a test turns while traffic runs, and what became of the frames.

use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::Arc;

use super::lane::Lane;
use super::pool::Pool;

/// The control of one port; clones control the same port, from any thread.
#[derive(Clone)]
pub struct MemoryControl {
    knobs: Arc<Knobs>,
    tx_pool: Arc<Pool>,
    to_port: Arc<Lane>,
    from_port: Arc<Lane>,
}

impl MemoryControl {
    pub(super) fn new(tx_pool: Arc<Pool>, to_port: Arc<Lane>, from_port: Arc<Lane>) -> Self {
        MemoryControl { knobs: from_port.knobs().clone(), tx_pool, to_port, from_port }
    }

    pub(super) fn knobs(&self) -> &Knobs {
        &self.knobs
    }

    /// Lets the next `allocations` succeed, and none after them. `u64::MAX` is no limit, as at the start.
    pub fn allow_allocations(&self, allocations: u64) {
        self.knobs.allocations_left.store(allocations, Ordering::Relaxed);
    }

    /// Lets the transmit ring take at most `frames` of each burst. `u64::MAX` is no limit, as at the start.
    pub fn limit_tx_burst(&self, frames: u64) {
        self.knobs.tx_burst_frames.store(frames, Ordering::Relaxed);
    }

    /// Pulls the cable or puts it back. Without it frames are taken and lost, both ways.
    pub fn set_link(&self, up: bool) {
        self.knobs.link_down.store(!up, Ordering::Relaxed);
    }

    /// Loses every `frames`-th frame that is sent from now on. 0 loses none, as at the start.
    pub fn lose_every(&self, frames: u64) {
        self.knobs.lose_every.store(frames, Ordering::Relaxed);
    }

    /// What became of the frames until now.
    pub fn counts(&self) -> MemoryCounts {
        let read = |word: &AtomicU64| word.load(Ordering::Relaxed);
        let (tx, rx) = (&self.knobs, self.to_port.knobs());
        MemoryCounts {
            tx_frames: read(&tx.taken),
            tx_offloads_refused: read(&tx.offloads_refused),
            tx_too_long: read(&tx.too_long),
            rx_frames: read(&rx.delivered),
            rx_no_buffer: read(&rx.no_buffer),
            rx_too_long: read(&rx.too_long_for_receiver),
        }
    }

    /// Buffers that nobody holds.
    pub fn free_frames(&self) -> PoolLevels {
        PoolLevels { rx: self.to_port.free_frames(), tx: self.tx_pool.free_frames() }
    }

    /// Frames that wait to be received here.
    pub fn rx_waiting_frames(&self) -> usize {
        self.to_port.waiting_frames()
    }

    /// Frames from here that wait to be received at the far end.
    pub fn far_waiting_frames(&self) -> usize {
        self.from_port.waiting_frames()
    }
}

/// What became of a port's frames.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct MemoryCounts {
    /// Frames that the transmit ring took.
    pub tx_frames: u64,
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

/// The knobs and counters of one direction: those of its sender, and those of its arrival.
pub(super) struct Knobs {
    allocations_left: AtomicU64,
    tx_burst_frames: AtomicU64,
    lose_every: AtomicU64,
    link_down: AtomicBool,
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

    /// How many frames of a burst the ring takes.
    pub(super) fn tx_burst_frames(&self) -> usize {
        usize::try_from(self.tx_burst_frames.load(Ordering::Relaxed)).unwrap_or(usize::MAX)
    }
}

/// Adds one.
pub(super) fn count(word: &AtomicU64) {
    word.fetch_add(1, Ordering::Relaxed);
}
