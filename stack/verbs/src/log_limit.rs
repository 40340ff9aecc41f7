//! The rate limit of log lines that peers cause.
//!
//! A core, or a program on the stack, writes such lines itself. Lines beyond the limit are counted,
//! and a line says how many are missing.

use ironwarp_types::Nanos;

/// Lines that are written in a second. A line takes some microseconds.
const LINES_PER_SECOND: u32 = 1_000;

/// The limit of the lines of one core, or of one program.
#[derive(Debug)]
pub struct LogLimit {
    left: u32,
    suppressed: u64,
    refill_at: Nanos,
}

impl LogLimit {
    /// A limit whose first second begins `now`.
    pub fn new(now: Nanos) -> Self {
        LogLimit { left: LINES_PER_SECOND, suppressed: 0, refill_at: now + Nanos::from_secs(1) }
    }

    /// Returns whether a line may be written, or else counts it.
    pub fn take(&mut self) -> bool {
        let allowed = self.left > 0;
        self.left -= u32::from(allowed);
        self.suppressed += u64::from(!allowed);
        allowed
    }

    /// Begins the next second when this one is over, and says how many lines are missing.
    #[inline]
    pub fn refill(&mut self, core: u16, now: Nanos) {
        if now >= self.refill_at {
            self.refill_cold(core, now);
        }
    }

    #[cold]
    fn refill_cold(&mut self, core: u16, now: Nanos) {
        let suppressed = core::mem::replace(self, LogLimit::new(now)).suppressed;
        if suppressed > 0 {
            tracing::warn!(
                core,
                "{suppressed} lines about connections were left out, more than {LINES_PER_SECOND} in a second"
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_beyond_the_limit_of_a_second_are_counted_and_not_written() {
        let mut limit = LogLimit::new(Nanos::ZERO);
        let written = (0..LINES_PER_SECOND + 50).filter(|_| limit.take()).count();
        assert_eq!((written, limit.suppressed), (LINES_PER_SECOND as usize, 50));
        limit.refill(0, Nanos::from_millis(999));
        assert!(!limit.take());
        limit.refill(0, Nanos::from_millis(1_000));
        assert!(limit.take());
        assert_eq!(limit.suppressed, 0);
    }
}
