//! The clock of the programs that count instructions.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use ironwarp_types::{Clock, Nanos};

/// A clock that advances with each reading, by about the time of a poll. Real time passes fifty
/// times faster beside the slowed program, so that timers would be counted that a message does not
/// meet.
#[derive(Clone, Default)]
pub struct StepClock(Arc<AtomicU64>);

impl Clock for StepClock {
    fn now(&self) -> Nanos {
        Nanos(self.0.fetch_add(STEP_NS, Ordering::Relaxed))
    }
}

/// Nanoseconds from one reading of the clock to the next.
const STEP_NS: u64 = 250;
