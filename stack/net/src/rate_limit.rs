//! A rate limiter: the generic cell rate algorithm.

use ironwarp_types::Nanos;

/// Allows a number of events per second on average, and a burst after a pause. One check takes one
/// addition and one comparison.
#[derive(Clone, Debug)]
pub struct RateLimiter {
    /// The time between two events at the average rate.
    interval: Nanos,
    /// The duration of a whole burst at the average rate.
    burst: Nanos,
    /// The theoretical arrival time: the end of all allowed events at the average rate.
    arrival: Nanos,
}

impl RateLimiter {
    /// Allows `per_second` events on average and `burst` at once. 0 for either allows none.
    pub fn new(per_second: u32, burst: u32) -> Self {
        let interval = 1_000_000_000u64.checked_div(u64::from(per_second)).map_or(Nanos::MAX, Nanos);
        let none = per_second == 0 || burst == 0;
        RateLimiter {
            interval,
            burst: if none { Nanos::ZERO } else { interval.times(u64::from(burst)) },
            arrival: if none { Nanos::MAX } else { Nanos::ZERO },
        }
    }

    /// Returns whether an event is allowed now, and counts it if it is.
    pub fn allows(&mut self, now: Nanos) -> bool {
        let next = self.arrival.max(now) + self.interval;
        let allowed = self.arrival != Nanos::MAX && next <= now + self.burst;
        if allowed {
            self.arrival = next;
        }
        allowed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_burst_is_allowed_and_then_the_average_rate() {
        let mut rate_limit = RateLimiter::new(10, 3);
        let now = Nanos::from_secs(5);
        let allowed = (0..10).filter(|_| rate_limit.allows(now)).count();
        assert_eq!(allowed, 3);
        assert!(!rate_limit.allows(now + Nanos::from_millis(99)));
        assert!(rate_limit.allows(now + Nanos::from_millis(100)));
        assert!(!rate_limit.allows(now + Nanos::from_millis(100)));
    }

    #[test]
    fn zero_allows_none() {
        assert!(!RateLimiter::new(0, 5).allows(Nanos::from_secs(1)));
        assert!(!RateLimiter::new(5, 0).allows(Nanos::from_secs(1)));
    }
}
