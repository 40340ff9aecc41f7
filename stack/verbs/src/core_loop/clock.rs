//! A core's time, which never goes back.
//!
//! Timers, time stamps and round trips all assume it (RFC 7323 s5.4: a peer drops segments whose
//! time stamp is older than the last). A virtual machine that is restored or moved to another host
//! may read an earlier counter than before, and so may a processor whose counters are not
//! synchronised. Time then continues from the last reading. Each step is counted. Cost: an addition
//! and a comparison for each reading.

use ironwarp_stats::{CoreStats, Counter};
use ironwarp_types::{Clock, Nanos};

/// The clock of one core.
pub(crate) struct CoreClock<C> {
    clock: C,
    last: Nanos,
    /// The sum of all steps back.
    offset: Nanos,
    stats: CoreStats,
}

impl<C: Clock> CoreClock<C> {
    pub(crate) fn new(clock: C, stats: CoreStats) -> Self {
        let last = clock.now();
        CoreClock { clock, last, offset: Nanos::ZERO, stats }
    }

    /// Returns the time: at least that of the call before.
    #[inline]
    pub(crate) fn now(&mut self) -> Nanos {
        let now = self.read();
        self.checked(now)
    }

    /// Reads the clock. The result is the time unless [`CoreClock::is_behind`] says otherwise.
    #[inline(always)]
    pub(crate) fn read(&self) -> Nanos {
        Nanos(self.clock.now().0.wrapping_add(self.offset.0))
    }

    /// Returns whether a reading is earlier than the last one that was checked.
    #[inline(always)]
    pub(crate) fn is_behind(&self, read: Nanos) -> bool {
        read < self.last
    }

    /// Returns the time for a reading.
    #[inline(always)]
    pub(crate) fn checked(&mut self, now: Nanos) -> Nanos {
        if self.is_behind(now) {
            return self.on_step_back(now);
        }
        self.last = now;
        now
    }

    /// Returns the time without recording it.
    pub(crate) fn peek(&self) -> Nanos {
        self.last.max(self.read())
    }

    #[cold]
    fn on_step_back(&mut self, now: Nanos) -> Nanos {
        self.stats.count(Counter::CoresClockSteps);
        self.offset += self.last.since(now);
        self.last
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    #[test]
    fn time_continues_where_it_was_when_the_clock_goes_back() {
        let read = Cell::new(Nanos::from_secs(100));
        let stats = CoreStats::detached();
        let mut clock = CoreClock::new(|| read.get(), stats.clone());
        assert_eq!(clock.now(), Nanos::from_secs(100));
        read.set(Nanos::from_secs(40));
        assert_eq!((clock.peek(), clock.now()), (Nanos::from_secs(100), Nanos::from_secs(100)));
        read.set(Nanos::from_secs(41));
        assert_eq!((clock.peek(), clock.now()), (Nanos::from_secs(101), Nanos::from_secs(101)));
        read.set(Nanos::ZERO);
        assert_eq!(clock.now(), Nanos::from_secs(101));
        read.set(Nanos::from_secs(1));
        assert_eq!(clock.now(), Nanos::from_secs(102));
        assert_eq!(stats.read(Counter::CoresClockSteps), 2);
    }
}
