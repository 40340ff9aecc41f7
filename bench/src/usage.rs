//! What an end uses during a slice: processor time, and polls with and without work.
//!
//! The figures are those of the end's own part of the slice: the client's from its first message to
//! its last completion, warm-up included, the server's from its first poll to its reply. A polled
//! core uses all of its processor's time whatever it carries, so the share of its polls with work
//! says how busy it is.

use std::time::Instant;

use serde::{Deserialize, Serialize};

use crate::host::{cpu_ns, process_cpu_ns};
use crate::nanos;
use crate::report::CorePolls;
use crate::slice::add_known;

/// What an end used.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct EndUsage {
    /// Processor time in nanoseconds, `None` if it cannot be told from that of the other end.
    pub cpu_ns: Option<u64>,
    /// The duration in nanoseconds.
    pub wall_ns: u64,
    /// Polls of its cores; 0 for a baseline, which has no such cores.
    pub polls: u64,
    /// Those of them without work.
    pub idle_polls: u64,
}

/// A percentage of each end. `None` is unknown.
#[derive(Clone, Copy, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct EndPercent {
    pub client: Option<f64>,
    pub server: Option<f64>,
}

/// The threads whose processor time belongs to an end.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CpuClock {
    Thread,
    Process,
    /// Threads that cannot be told from those of the other end.
    Unknown,
}

/// Measures the usage of an end.
#[derive(Debug)]
pub struct UsageMeter {
    clock: CpuClock,
    started: Instant,
    cpu_ns: Option<u64>,
    polls: Vec<CorePolls>,
}

impl UsageMeter {
    /// Starts to measure. `polls` are those of the end's cores so far.
    pub fn start(clock: CpuClock, polls: Vec<CorePolls>) -> Self {
        UsageMeter { clock, started: Instant::now(), cpu_ns: clock.now_ns(), polls }
    }

    /// Returns what was used since the start.
    pub fn stop(&self, polls: &[CorePolls]) -> EndUsage {
        let since = |count: fn(&CorePolls) -> u64| {
            let sum = |polls: &[CorePolls]| polls.iter().map(count).sum::<u64>();
            sum(polls).saturating_sub(sum(&self.polls))
        };
        let cpu_ns = self.clock.now_ns().zip(self.cpu_ns);
        EndUsage {
            cpu_ns: cpu_ns.map(|(now, before)| now.saturating_sub(before)),
            wall_ns: nanos(self.started.elapsed()),
            polls: since(|core| core.polls),
            idle_polls: since(|core| core.idle),
        }
    }
}

impl CpuClock {
    fn now_ns(self) -> Option<u64> {
        match self {
            CpuClock::Thread => Some(cpu_ns()),
            CpuClock::Process => Some(process_cpu_ns()),
            CpuClock::Unknown => None,
        }
    }
}

impl EndUsage {
    /// Adds the usage of another slice. Processor time is unknown if it is unknown in one of the
    /// two.
    pub fn merge(&mut self, other: &EndUsage) {
        if self.wall_ns == 0 {
            return *self = *other;
        }
        self.cpu_ns = add_known(self.cpu_ns, other.cpu_ns);
        self.wall_ns = self.wall_ns.saturating_add(other.wall_ns);
        self.polls = self.polls.saturating_add(other.polls);
        self.idle_polls = self.idle_polls.saturating_add(other.idle_polls);
    }

    /// Returns the processor time as a percentage of the duration: 100 for each processor that was
    /// in use all the time.
    pub fn cpu_percent(&self) -> Option<f64> {
        percent(self.cpu_ns?, self.wall_ns)
    }

    /// Returns the percentage of polls with work.
    pub fn busy_percent(&self) -> Option<f64> {
        percent(self.polls.saturating_sub(self.idle_polls), self.polls)
    }
}

impl EndPercent {
    /// Returns a percentage of both ends, `None` if it is unknown at both.
    pub fn of(ends: [&EndUsage; 2], percent: fn(&EndUsage) -> Option<f64>) -> Option<Self> {
        let [client, server] = ends.map(percent);
        (client.is_some() || server.is_some()).then_some(EndPercent { client, server })
    }
}

fn percent(part: u64, whole: u64) -> Option<f64> {
    (whole > 0).then(|| part as f64 * 100.0 / whole as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn core(core: u16, polls: u64, idle: u64) -> CorePolls {
        CorePolls { core, polls, idle }
    }

    #[test]
    fn the_polls_of_all_cores_since_the_start_count() {
        let meter = UsageMeter::start(CpuClock::Thread, vec![core(0, 100, 90), core(1, 0, 0)]);
        let usage = meter.stop(&[core(0, 150, 110), core(1, 50, 40)]);
        assert_eq!((usage.polls, usage.idle_polls, usage.busy_percent()), (100, 60, Some(40.0)));
        assert!(usage.cpu_ns.is_some());
    }

    #[test]
    fn two_processors_in_use_are_two_hundred_percent() {
        let mut usage = EndUsage { cpu_ns: Some(150), wall_ns: 100, ..EndUsage::default() };
        usage.merge(&EndUsage { cpu_ns: Some(250), wall_ns: 100, ..EndUsage::default() });
        assert_eq!((usage.cpu_percent(), usage.busy_percent()), (Some(200.0), None));
    }

    #[test]
    fn threads_of_both_ends_have_no_processor_time_of_one() {
        let usage = UsageMeter::start(CpuClock::Unknown, Vec::new()).stop(&[core(0, 4, 1)]);
        assert_eq!((usage.cpu_percent(), usage.busy_percent()), (None, Some(75.0)));
        let ends = EndPercent::of([&usage, &EndUsage::default()], EndUsage::busy_percent);
        assert_eq!(ends, Some(EndPercent { client: Some(75.0), server: None }));
        assert_eq!(EndPercent::of([&usage, &EndUsage::default()], EndUsage::cpu_percent), None);
    }

    #[test]
    fn a_sum_with_an_unknown_time_is_unknown() {
        let mut usage = EndUsage { cpu_ns: Some(1), wall_ns: 1, ..EndUsage::default() };
        usage.merge(&EndUsage { wall_ns: 1, ..EndUsage::default() });
        assert_eq!((usage.cpu_ns, usage.wall_ns), (None, 2));
    }
}
