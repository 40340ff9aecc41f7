//! The clock of one host, which a plan may set forward and back.
//!
//! A host that was suspended, restored or moved reads another time than before. Its cores continue
//! from their last reading when the clock went back, so only steps forward move their time away
//! from that of the simulation.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use ironwarp_sim::VirtualClock;
use ironwarp_types::{Clock, Nanos};

/// A host's clock; clones show the same time.
#[derive(Clone)]
pub struct HostClock {
    base: VirtualClock,
    /// How far the clock is ahead of the simulation.
    ahead_ns: Arc<AtomicU64>,
    /// The sum of all steps forward: how far the time of its cores is ahead at most.
    cores_ahead_ns: Arc<AtomicU64>,
}

/// How late a core is polled at most, after its clock has been set: the time between its last
/// reading and a step back is lost to it.
const POLL_INTERVAL: Nanos = Nanos::from_micros(100);

impl HostClock {
    pub fn new(base: VirtualClock) -> Self {
        HostClock { base, ahead_ns: Arc::default(), cores_ahead_ns: Arc::default() }
    }

    /// Sets the clock to be `ahead` of the simulation.
    pub fn set_ahead(&self, ahead: Nanos) {
        let before = self.ahead_ns.swap(ahead.0, Ordering::Relaxed);
        self.cores_ahead_ns.fetch_add(ahead.0.saturating_sub(before), Ordering::Relaxed);
    }

    /// Returns the time of the simulation at which a core with this deadline is polled.
    pub fn to_simulation(&self, now: Nanos, deadline: Nanos) -> Nanos {
        match self.cores_ahead_ns.load(Ordering::Relaxed) {
            0 => deadline,
            ahead => Nanos(deadline.0.saturating_sub(ahead)).max(now + POLL_INTERVAL),
        }
    }
}

impl Clock for HostClock {
    fn now(&self) -> Nanos {
        self.base.now() + Nanos(self.ahead_ns.load(Ordering::Relaxed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_forward_move_the_deadlines_of_cores() {
        let (base, at) = (VirtualClock::new(), Nanos::from_secs);
        let clock = HostClock::new(base.clone());
        base.advance_to(at(1));
        assert_eq!((clock.now(), clock.to_simulation(at(1), at(5))), (at(1), at(5)));
        clock.set_ahead(at(100));
        assert_eq!((clock.now(), clock.to_simulation(at(1), at(105))), (at(101), at(5)));
        // Back: the cores go on from 101 s.
        clock.set_ahead(at(10));
        assert_eq!((clock.now(), clock.to_simulation(at(1), at(105))), (at(11), at(5)));
        clock.set_ahead(at(12));
        assert_eq!(clock.to_simulation(at(1), at(105)), at(3));
        assert_eq!(clock.to_simulation(at(1), at(50)), at(1) + POLL_INTERVAL);
    }
}
