//! The near end's clock: warm-up, budget, and the rate of an open loop.

use std::time::{Duration, Instant};

use ironwarp_bench::{Pace, Slice};

/// Turns between two looks at the clock.
const TURNS_A_LOOK: u64 = 8;

/// A slice's clock.
pub struct Timer<'a> {
    pace: Pace<'a>,
    rate: Option<f64>,
    begun: Instant,
    /// When the warm-up ended, and how many messages were complete by then.
    counted_from: Option<(Instant, u64)>,
    turns: u64,
    over: bool,
}

impl<'a> Timer<'a> {
    /// Starts a slice.
    pub fn new(pace: Pace<'a>, rate: Option<f64>) -> Self {
        let now = Instant::now();
        let counted_from = (pace.budget.warmup == 0).then_some((now, 0));
        Timer { pace, rate, begun: now, counted_from, turns: 0, over: false }
    }

    /// Whether the slice is over with so many messages complete.
    pub fn is_over(&mut self, completed: u64) -> bool {
        self.turns += 1;
        if self.counted_from.is_none() && completed >= self.pace.budget.warmup {
            self.counted_from = Some((Instant::now(), completed));
        }
        let Some((start, base)) = self.counted_from else { return self.pace.halted() };
        if self.turns.is_multiple_of(TURNS_A_LOOK) || self.pace.budget.iterations.is_some() {
            self.over = self.pace.is_spent(completed - base, nanos(start.elapsed()));
        }
        self.over
    }

    /// Messages that may be posted now, in an open loop; any number otherwise.
    pub fn allowance(&self, posted: u64) -> u64 {
        match self.rate {
            Some(rate) => ((self.begun.elapsed().as_secs_f64() * rate) as u64 + 1).saturating_sub(posted),
            None => u64::MAX,
        }
    }

    /// The figures of the slice.
    pub fn slice(&self, completed: u64, bytes: u64) -> Slice {
        let (start, base) = self.counted_from.unwrap_or((self.begun, completed));
        let messages = completed - base;
        Slice { messages, bytes: messages * bytes, elapsed_ns: nanos(start.elapsed()), ..Slice::default() }
    }
}

/// Nanoseconds.
pub fn nanos(span: Duration) -> u64 {
    u64::try_from(span.as_nanos()).unwrap_or(u64::MAX)
}
