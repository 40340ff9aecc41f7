//! Faults of a disk, for tests: what a request returns, and when.
//!
//! [`super::FileBackend`] passes each result of the kernel through a [`DiskFaults`]. The product
//! uses [`NoFaults`], which compiles to nothing; tests and the soak use a [`FaultPlan`], which they
//! share with the cores and change meanwhile.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

pub use super::uring::Stage;

/// What may go wrong at the disk.
pub trait DiskFaults: Send {
    /// Whether there are any.
    const ENABLED: bool;

    /// Returns the result that the backend sees instead of the kernel's, or `None`: it sees it when
    /// the disk does not hang any more.
    fn result(&mut self, stage: Stage, result: i32) -> Option<i32>;

    /// Returns whether results are held back.
    fn is_hung(&self) -> bool;
}

/// No faults.
#[derive(Clone, Copy, Debug)]
pub struct NoFaults;

impl DiskFaults for NoFaults {
    const ENABLED: bool = false;

    fn result(&mut self, _stage: Stage, result: i32) -> Option<i32> {
        Some(result)
    }

    fn is_hung(&self) -> bool {
        false
    }
}

/// Faults that several cores take from one plan.
#[derive(Debug, Default)]
pub struct FaultPlan {
    /// Of 65536 Reads and Writes, how many fail with EIO.
    pub eio: AtomicU32,
    /// Of 65536 Reads and Writes, how many move only a part of their bytes.
    pub short: AtomicU32,
    /// The next fdatasync fails, once.
    pub lose_sync: AtomicBool,
    /// Nothing completes.
    pub hang: AtomicBool,
    /// The core that sees the next result panics.
    pub panic: AtomicBool,
    /// What was drawn last.
    drawn: AtomicU32,
}

impl FaultPlan {
    /// A fraction of 65536, evenly spread over the results of all cores.
    fn draws(&self, of_65536: &AtomicU32) -> bool {
        let rate = of_65536.load(Ordering::Relaxed);
        // A step that is odd visits every number once before it repeats: a Weyl sequence.
        rate > 0 && self.drawn.fetch_add(40_503, Ordering::Relaxed) as u16 as u32 <= rate
    }
}

/// The smallest sector: a short transfer ends at one.
const SECTOR_BYTES: i32 = 512;

impl DiskFaults for Arc<FaultPlan> {
    const ENABLED: bool = true;

    fn result(&mut self, stage: Stage, result: i32) -> Option<i32> {
        assert!(!self.panic.swap(false, Ordering::Relaxed), "a panic that a test asked for");
        if self.is_hung() {
            return None;
        }
        let moves = matches!(stage, Stage::Read | Stage::Write);
        if stage == Stage::Sync && self.lose_sync.swap(false, Ordering::Relaxed) {
            return Some(-libc::EIO);
        }
        if moves && self.draws(&self.eio) {
            return Some(-libc::EIO);
        }
        if moves && result > SECTOR_BYTES && self.draws(&self.short) {
            return Some(result / 2 / SECTOR_BYTES * SECTOR_BYTES).map(|half| half.max(SECTOR_BYTES));
        }
        Some(result)
    }

    fn is_hung(&self) -> bool {
        self.hang.load(Ordering::Relaxed)
    }
}
