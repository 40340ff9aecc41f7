//! A slice: one case measured for a short time.
//!
//! The client runs until its [`Budget`] is spent. The server serves until its [`StopSignal`] is
//! raised, so it reads no clock and makes no system call while it serves.

use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use core::time::Duration;

use serde::{Deserialize, Serialize};

use crate::{EndUsage, Latency};

/// How long a slice lasts. At least one of the two limits is set; the first one reached ends the
/// slice.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
pub struct Budget {
    /// Messages.
    pub iterations: Option<u64>,
    /// Time.
    pub duration: Option<Duration>,
    /// Messages before the measurement, which count in no figure; fewer where they would take
    /// longer than `duration`.
    pub warmup: u64,
}

impl Budget {
    /// A slice that lasts `duration`.
    pub fn duration(duration: Duration, warmup: u64) -> Self {
        Budget { iterations: None, duration: Some(duration), warmup }
    }

    /// A slice of `iterations` messages.
    pub fn iterations(iterations: u64, warmup: u64) -> Self {
        Budget { iterations: Some(iterations), duration: None, warmup }
    }

    /// Whether the warm-up is over after `done` messages and `elapsed_ns`.
    pub fn is_warm(&self, done: u64, elapsed_ns: u64) -> bool {
        done >= self.warmup || self.is_time_over(elapsed_ns).unwrap_or(false)
    }

    fn is_time_over(&self, elapsed_ns: u64) -> Option<bool> {
        self.duration.map(|limit| u128::from(elapsed_ns) >= limit.as_nanos())
    }

    /// Whether the slice is over after `done` messages and `elapsed_ns`. A budget without limits is
    /// spent at once.
    pub fn is_spent(&self, done: u64, elapsed_ns: u64) -> bool {
        let count = self.iterations.map(|limit| done >= limit);
        let time = self.is_time_over(elapsed_ns);
        match (count, time) {
            (None, None) => true,
            (count, time) => count.unwrap_or(false) || time.unwrap_or(false),
        }
    }
}

/// A budget, and a flag that ends the slice early.
#[derive(Clone, Copy, Debug)]
pub struct StopCondition<'a> {
    /// How long the slice should last.
    pub budget: Budget,
    /// Set when the user interrupts or the server fails.
    pub halt: &'a AtomicBool,
}

impl StopCondition<'_> {
    /// Ends a slice by its budget alone.
    pub fn unhalted(budget: Budget) -> Self {
        static NEVER: AtomicBool = AtomicBool::new(false);
        StopCondition { budget, halt: &NEVER }
    }

    /// Whether the slice is over after `done` messages and `elapsed_ns`.
    #[inline]
    pub fn is_spent(&self, done: u64, elapsed_ns: u64) -> bool {
        self.halted() || self.budget.is_spent(done, elapsed_ns)
    }

    /// Whether the slice is to end early.
    #[inline]
    pub fn halted(&self) -> bool {
        self.halt.load(Ordering::Relaxed)
    }
}

/// The client's measurement of a slice.
#[derive(Debug, Default)]
pub struct Slice {
    /// Round trips in nanoseconds, for latency tests.
    pub latency: Option<Latency>,
    /// Completed messages, without the warm-up.
    pub messages: u64,
    /// Application bytes of those messages.
    pub bytes: u64,
    pub elapsed_ns: u64,
    /// Processor time of both ends, in nanoseconds, where both report it.
    pub cpu_ns: Option<u64>,
    pub client: EndUsage,
    pub server: EndUsage,
    /// Messages lost, late, short or wrong.
    pub errors: u64,
    /// Bytes compared with the pattern that they should hold.
    pub verified_bytes: u64,
    /// Completed messages of each queue pair, warm-up included; empty for tests that do not count
    /// them.
    pub messages_by_qp: Vec<u64>,
}

/// The server's measurement of a slice.
#[derive(Clone, Copy, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct ServerSlice {
    pub messages: u64,
    pub bytes: u64,
    /// Time from the first arrival to the last, in nanoseconds.
    pub elapsed_ns: u64,
    /// Messages that were lost or arrived wrong.
    pub errors: u64,
    /// Bytes compared with the pattern that they should hold.
    pub verified_bytes: u64,
    #[serde(default)]
    pub usage: EndUsage,
}

impl Slice {
    /// The figure that rounds compare: the median round trip, or the time a gigabyte takes.
    pub fn cost(&self) -> Option<f64> {
        match &self.latency {
            Some(latency) => latency.quantile(0.5).map(|ns| ns as f64),
            None => (self.bytes > 0).then(|| self.elapsed_ns as f64 * 1e9 / self.bytes as f64),
        }
    }

    /// What the client and the server used.
    pub fn ends(&self) -> [&EndUsage; 2] {
        [&self.client, &self.server]
    }

    /// Goodput: application bits a nanosecond, which is gigabits a second.
    pub fn gbit_per_s(&self) -> Option<f64> {
        (self.elapsed_ns > 0).then(|| self.bytes as f64 * 8.0 / self.elapsed_ns as f64)
    }

    /// Adds another slice of the same case. Processor time is unknown if it is unknown in one of
    /// the two. The counts of a server may be any: they saturate.
    pub fn merge(&mut self, other: &Slice) {
        for (sum, more) in [
            (&mut self.messages, other.messages),
            (&mut self.bytes, other.bytes),
            (&mut self.elapsed_ns, other.elapsed_ns),
            (&mut self.errors, other.errors),
            (&mut self.verified_bytes, other.verified_bytes),
        ] {
            *sum = sum.saturating_add(more);
        }
        self.cpu_ns = add_known(self.cpu_ns, other.cpu_ns);
        self.client.merge(&other.client);
        self.server.merge(&other.server);
        self.messages_by_qp.resize(self.messages_by_qp.len().max(other.messages_by_qp.len()), 0);
        for (sum, messages) in self.messages_by_qp.iter_mut().zip(&other.messages_by_qp) {
            *sum = sum.saturating_add(*messages);
        }
        match (&mut self.latency, &other.latency) {
            (Some(latency), Some(other)) => latency.merge(other),
            (None, Some(other)) => self.latency = Some(other.clone()),
            (_, None) => {}
        }
    }

    /// Adds the messages that arrived at the server to those of the client, as a bidirectional test
    /// does.
    pub fn add_arrived(&mut self, server: &ServerSlice) {
        self.messages = self.messages.saturating_add(server.messages);
        self.bytes = self.bytes.saturating_add(server.bytes);
    }

    /// Messages a second, `None` without a message or without time.
    pub fn messages_per_s(&self) -> Option<f64> {
        let is_measured = self.elapsed_ns > 0 && self.messages > 0;
        is_measured.then(|| self.messages as f64 * 1e9 / self.elapsed_ns as f64)
    }

    /// Adds the server's measurement of the same slice. Where messages are counted on arrival, the
    /// server's count and clock replace the client's.
    pub fn with_server(mut self, server: &ServerSlice, counted_at_server: bool) -> Self {
        if counted_at_server {
            self.bytes = server.bytes;
            self.messages = server.messages;
            self.elapsed_ns = server.elapsed_ns;
        }
        self.errors = self.errors.saturating_add(server.errors);
        self.verified_bytes = self.verified_bytes.saturating_add(server.verified_bytes);
        self.cpu_ns = add_known(self.cpu_ns, server.usage.cpu_ns);
        self.server = server.usage;
        self
    }
}

/// The sum of two counts, unknown if one of them is.
pub(crate) fn add_known(one: Option<u64>, other: Option<u64>) -> Option<u64> {
    Some(one?.saturating_add(other?))
}

/// Nanoseconds; the largest number for a span of more than 584 years.
pub fn nanos(span: Duration) -> u64 {
    u64::try_from(span.as_nanos()).unwrap_or(u64::MAX)
}

/// Tells the server that the slice is over, and how much was sent.
#[derive(Debug, Default)]
pub struct StopSignal {
    raised: AtomicBool,
    /// No slice follows: the signal stays raised.
    closed: AtomicBool,
    expected: AtomicU64,
}

impl StopSignal {
    /// Ends the slice, in which `expected` messages, frames or bytes were sent.
    pub fn raise(&self, expected: u64) {
        self.expected.store(expected, Ordering::Relaxed);
        self.raised.store(true, Ordering::Release);
    }

    /// Ends the slice and all that would follow: the client is gone.
    pub fn close(&self) {
        // In one order with `reset`: either that finds the end, or this raises the signal after it.
        self.closed.store(true, Ordering::SeqCst);
        self.expected.store(0, Ordering::Relaxed);
        self.raised.store(true, Ordering::SeqCst);
    }

    /// Clears the signal for the next slice, if there can be one.
    pub fn reset(&self) {
        self.raised.store(false, Ordering::SeqCst);
        if self.closed.load(Ordering::SeqCst) {
            self.raised.store(true, Ordering::SeqCst);
        }
    }

    /// `None` while the slice runs, then the expected count.
    pub fn raised(&self) -> Option<u64> {
        self.raised.load(Ordering::Acquire).then(|| self.expected.load(Ordering::Relaxed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_limit_reached_ends_a_slice() {
        let both = Budget { iterations: Some(10), duration: Some(Duration::from_nanos(100)), warmup: 0 };
        assert!(!both.is_spent(9, 99));
        assert!(both.is_spent(10, 0));
        assert!(both.is_spent(0, 100));
    }

    /// The counts of a server come from the network.
    #[test]
    fn any_counts_of_a_server_are_added_up() {
        let usage =
            EndUsage { cpu_ns: Some(u64::MAX), wall_ns: u64::MAX, polls: u64::MAX, idle_polls: u64::MAX };
        let server = ServerSlice {
            messages: u64::MAX,
            bytes: u64::MAX,
            elapsed_ns: u64::MAX,
            errors: u64::MAX,
            verified_bytes: u64::MAX,
            usage,
        };
        let slice = |counted_at_server| {
            let cpu_ns = Some(1);
            let ours = Slice { messages: 1, cpu_ns, messages_by_qp: vec![u64::MAX], ..Slice::default() };
            let mut slice = ours.with_server(&server, counted_at_server);
            slice.add_arrived(&server);
            slice
        };
        for counted_at_server in [false, true] {
            let mut sum = slice(counted_at_server);
            sum.merge(&slice(counted_at_server));
            assert_eq!([sum.messages, sum.bytes, sum.errors, sum.verified_bytes], [u64::MAX; 4]);
            assert_eq!((sum.cpu_ns, sum.messages_by_qp), (Some(u64::MAX), vec![u64::MAX]));
        }
    }

    /// 200 messages of 1 MiB can take minutes on a slow path.
    #[test]
    fn a_warm_up_lasts_no_longer_than_the_slice() {
        let budget = Budget::duration(Duration::from_nanos(100), 200);
        assert!(!budget.is_warm(199, 99));
        assert!(budget.is_warm(200, 0));
        assert!(budget.is_warm(0, 100));
        assert!(
            !Budget::iterations(10, 200).is_warm(199, u64::MAX),
            "a slice of a number of messages ends by that number alone"
        );
    }

    #[test]
    fn a_slice_that_begins_after_its_client_is_gone_ends_at_once() {
        let stop = StopSignal::default();
        stop.raise(7);
        assert_eq!(stop.raised(), Some(7));
        stop.reset();
        assert_eq!(stop.raised(), None);
        stop.close();
        stop.reset();
        assert_eq!(stop.raised(), Some(0));
    }

    #[test]
    fn a_budget_without_limits_cannot_run_for_ever() {
        assert!(Budget { iterations: None, duration: None, warmup: 0 }.is_spent(0, 0));
    }

    #[test]
    fn a_halt_ends_a_slice_whatever_its_budget() {
        let halt = AtomicBool::new(false);
        let until = StopCondition { budget: Budget::iterations(10, 0), halt: &halt };
        assert!(!until.is_spent(1, 1));
        halt.store(true, Ordering::Relaxed);
        assert!(until.is_spent(1, 1));
    }

    #[test]
    fn what_arrived_replaces_what_was_sent() {
        let sent = Slice { bytes: 1000, messages: 10, elapsed_ns: 50, cpu_ns: Some(7), ..Slice::default() };
        let server = ServerSlice {
            bytes: 900,
            messages: 9,
            elapsed_ns: 60,
            errors: 1,
            verified_bytes: 900,
            usage: EndUsage { cpu_ns: Some(5), wall_ns: 10, polls: 8, idle_polls: 2 },
        };
        let slice = sent.with_server(&server, true);
        assert_eq!((slice.bytes, slice.messages, slice.elapsed_ns, slice.errors), (900, 9, 60, 1));
        assert_eq!((slice.cpu_ns, slice.verified_bytes), (Some(12), 900));
        assert_eq!((slice.server.cpu_percent(), slice.server.busy_percent()), (Some(50.0), Some(75.0)));
    }

    #[test]
    fn eight_bits_a_nanosecond_are_eight_gigabits_a_second() {
        let slice = Slice { bytes: 1000, elapsed_ns: 1000, ..Slice::default() };
        assert_eq!(slice.gbit_per_s(), Some(8.0));
        assert_eq!(Slice::default().gbit_per_s(), None);
    }

    #[test]
    fn a_raised_signal_carries_what_should_have_arrived() {
        let signal = StopSignal::default();
        assert_eq!(signal.raised(), None);
        signal.raise(42);
        assert_eq!(signal.raised(), Some(42));
        signal.reset();
        assert_eq!(signal.raised(), None);
    }
}
