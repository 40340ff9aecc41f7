//! Clocks of slices; the client's in a bandwidth slice: warm-up, budget, and the rate of an open
//! loop.

use std::time::{Duration, Instant};

use ironwarp_bench::{Slice, StopCondition, nanos};

use crate::error::Result;

/// Polls on for a millisecond, so that the last received data is acknowledged.
pub fn linger(mut poll: impl FnMut() -> Result<()>) -> Result<()> {
    let start = Instant::now();
    while start.elapsed() < Duration::from_millis(1) {
        poll()?;
    }
    Ok(())
}

const CALLS_PER_CLOCK_READ: u64 = 8;

pub struct Timer<'a> {
    until: StopCondition<'a>,
    rate: Option<f64>,
    started: Instant,
    /// The end of the warm-up, and the messages completed by then.
    measured_from: Option<(Instant, u64)>,
    calls: u64,
    over: bool,
}

impl<'a> Timer<'a> {
    pub fn new(until: StopCondition<'a>, rate: Option<f64>) -> Self {
        let now = Instant::now();
        let measured_from = (until.budget.warmup == 0).then_some((now, 0));
        Timer { until, rate, started: now, measured_from, calls: 0, over: false }
    }

    /// Whether the slice is over after `completed` messages. Unless halted it has at least one: on
    /// a slow path a large message takes longer than the slice and would never be counted.
    pub fn is_over(&mut self, completed: u64) -> bool {
        self.calls += 1;
        let reads_clock = self.calls.is_multiple_of(CALLS_PER_CLOCK_READ);
        if self.measured_from.is_none() && self.is_warm(completed, reads_clock) {
            self.measured_from = Some((Instant::now(), completed));
        }
        let Some((start, base)) = self.measured_from else { return self.until.halted() };
        if reads_clock || self.until.budget.iterations.is_some() {
            let spent = self.until.is_spent(completed - base, nanos(start.elapsed()));
            self.over = spent && (completed > base || self.until.halted());
        }
        self.over
    }

    /// Whether the warm-up is over.
    pub fn is_measuring(&self) -> bool {
        self.measured_from.is_some()
    }

    /// When message `number`, from 0, should start in an open loop. `None` in a closed loop.
    pub fn intended_start(&self, number: u64) -> Option<Instant> {
        self.rate.map(|rate| self.started + Duration::from_secs_f64(number as f64 / rate))
    }

    fn is_warm(&self, completed: u64, reads_clock: bool) -> bool {
        let elapsed_ns = if reads_clock { nanos(self.started.elapsed()) } else { 0 };
        self.until.budget.is_warm(completed, elapsed_ns)
    }

    /// Messages that may be posted now: limited in an open loop only.
    pub fn allowance(&self, posted: u64) -> u64 {
        match self.rate {
            Some(rate) => ((self.started.elapsed().as_secs_f64() * rate) as u64 + 1).saturating_sub(posted),
            None => u64::MAX,
        }
    }

    pub fn slice(&self, completed: u64, bytes: u64) -> Slice {
        let (start, base) = self.measured_from.unwrap_or((self.started, completed));
        let messages = completed - base;
        Slice { messages, bytes: messages * bytes, elapsed_ns: nanos(start.elapsed()), ..Slice::default() }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::time::Duration;

    use ironwarp_bench::Budget;

    use super::*;

    /// A slice of zero length.
    fn no_time(halt: &AtomicBool) -> Timer<'_> {
        Timer::new(StopCondition { budget: Budget::duration(Duration::ZERO, 200), halt }, None)
    }

    /// Whether a slice is over within two clock reads.
    fn is_over_soon(timer: &mut Timer<'_>, completed: u64) -> bool {
        (0..2 * CALLS_PER_CLOCK_READ).any(|_| timer.is_over(completed))
    }

    #[test]
    fn a_slow_warm_up_gives_way_to_the_slice() {
        let halt = AtomicBool::new(false);
        let mut timer = no_time(&halt);
        assert!(!is_over_soon(&mut timer, 0), "nothing was counted yet");
        assert!(is_over_soon(&mut timer, 1), "the 200 messages of the warm-up were not waited for");
        assert_eq!(timer.slice(1, 4096).messages, 1);
    }

    #[test]
    fn a_halt_waits_for_no_message() {
        let halt = AtomicBool::new(false);
        let mut timer = no_time(&halt);
        assert!(!is_over_soon(&mut timer, 0));
        halt.store(true, Ordering::Relaxed);
        assert!(is_over_soon(&mut timer, 0));
    }
}
