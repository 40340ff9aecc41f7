//! Virtual time.

use core::sync::atomic::{AtomicU64, Ordering};
use std::sync::Arc;

use ironwarp_types::{Clock, Nanos};

/// A virtual clock; clones show the same time.
#[derive(Clone, Debug, Default)]
pub struct VirtualClock {
    now_ns: Arc<AtomicU64>,
}

impl VirtualClock {
    /// Returns a clock at time zero.
    pub fn new() -> Self {
        VirtualClock::default()
    }

    /// Advances the clock to `to`; it never goes back.
    pub fn advance_to(&self, to: Nanos) {
        self.now_ns.fetch_max(to.0, Ordering::Relaxed);
    }
}

impl Clock for VirtualClock {
    fn now(&self) -> Nanos {
        Nanos(self.now_ns.load(Ordering::Relaxed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clones_move_together_and_never_back() {
        let clock = VirtualClock::new();
        let seen = clock.clone();
        clock.advance_to(Nanos(9));
        clock.advance_to(Nanos(4));
        assert_eq!(seen.now(), Nanos(9));
    }
}
