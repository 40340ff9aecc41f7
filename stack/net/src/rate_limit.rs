//! A limit on how often something may happen.

use ironwarp_types::Nanos;

/// So many a second on average, and a burst after a pause. One addition and one comparison each.
#[derive(Clone, Debug)]
pub(crate) struct RateLimiter {
    interval: Nanos,
    /// How far the account may run ahead of the clock.
    credit: Nanos,
    /// When everything allowed so far would have happened at the even rate.
    even: Nanos,
}

impl RateLimiter {
    /// `per_second` events on average, `burst` at once; 0 for either allows none.
    pub(crate) fn new(per_second: u32, burst: u32) -> Self {
        let interval = 1_000_000_000u64.checked_div(u64::from(per_second)).map_or(Nanos::MAX, Nanos);
        let credit = match burst {
            0 => Nanos::ZERO,
            n => interval.times(u64::from(n)),
        };
        let none = per_second == 0 || burst == 0;
        RateLimiter { interval, credit, even: if none { Nanos::MAX } else { Nanos::ZERO } }
    }

    /// Whether one more may happen now; if so it is accounted for.
    pub(crate) fn allows(&mut self, now: Nanos) -> bool {
        let next = self.even.max(now) + self.interval;
        let allowed = self.even != Nanos::MAX && next <= now + self.credit;
        if allowed {
            self.even = next;
        }
        allowed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_burst_passes_and_then_the_even_rate_holds() {
        let mut rate_limit = RateLimiter::new(10, 3);
        let now = Nanos::from_secs(5);
        let passed = (0..10).filter(|_| rate_limit.allows(now)).count();
        assert_eq!(passed, 3);
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
