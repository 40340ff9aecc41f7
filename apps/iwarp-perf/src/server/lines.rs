//! A limit of the lines that peers make a server write.

use std::time::{Duration, Instant};

/// Lines in an interval.
const LINES_MAX: u32 = 100;
const INTERVAL: Duration = Duration::from_secs(10);

/// How many lines are left of an interval.
pub struct LineLimit {
    left: u32,
    left_out: u64,
    since: Instant,
}

impl LineLimit {
    pub fn new(now: Instant) -> Self {
        LineLimit { left: LINES_MAX, left_out: 0, since: now }
    }

    /// Returns whether a line may be written. If not, it is counted.
    pub fn take(&mut self) -> bool {
        let allowed = self.left > 0;
        self.left = self.left.saturating_sub(1);
        self.left_out = self.left_out.saturating_add(u64::from(!allowed));
        allowed
    }

    /// Counts lines that were left out elsewhere.
    pub fn left_out(&mut self, lines: u64) {
        self.left_out = self.left_out.saturating_add(lines);
    }

    /// Begins the next interval if this one is over. Returns the line about those that were left out.
    pub fn refill(&mut self, now: Instant) -> Option<String> {
        if now.saturating_duration_since(self.since) < INTERVAL {
            return None;
        }
        let left_out = std::mem::replace(self, LineLimit::new(now)).left_out;
        (left_out > 0).then(|| format!("{left_out} lines about clients were left out"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interval_has_so_many_lines_and_one_about_the_others() {
        let start = Instant::now();
        let mut limit = LineLimit::new(start);
        assert_eq!((0..1000).filter(|_| limit.take()).count(), LINES_MAX as usize);
        limit.left_out(5);
        assert_eq!(limit.refill(start + INTERVAL / 2), None);
        let line = limit.refill(start + INTERVAL);
        assert_eq!(line.as_deref(), Some("905 lines about clients were left out"));
        assert!(limit.take());
        assert_eq!(limit.refill(start + INTERVAL * 2), None, "none was left out");
    }
}
