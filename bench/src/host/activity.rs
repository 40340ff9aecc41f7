//! Disturbances of a measurement: stolen time, context switches, processor time.
//!
//! Sources: `/proc/stat` for time that the hypervisor gave to others, `getrusage` for context
//! switches, `CLOCK_THREAD_CPUTIME_ID` and `CLOCK_PROCESS_CPUTIME_ID` for processor time. A value
//! that the kernel does not report is `None`.

use nix::sys::resource::{UsageWho, getrusage};
use nix::time::{ClockId, clock_gettime};

use super::read_kernel_file;

/// Clock ticks a second in `/proc`: the kernel's ABI fixes USER_HZ at 100 on every architecture
/// DPDK runs on.
const TICKS_PER_S: u64 = 100;
/// The index of stolen time in a `cpu` line: user, nice, system, idle, iowait, irq, softirq, steal.
const STEAL_FIELD: usize = 7;

/// A reading, or the difference of two.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Activity {
    /// Time that the hypervisor took from this machine's processors, in nanoseconds.
    pub steal_ns: Option<u64>,
    /// Context switches of this process, voluntary or not.
    pub context_switches: Option<u64>,
}

impl Activity {
    pub fn now() -> Self {
        Activity {
            steal_ns: read_kernel_file("/proc/stat").and_then(|stat| steal_ns(&stat)),
            context_switches: context_switches(),
        }
    }

    /// The sum of two differences.
    pub fn plus(&self, other: &Activity) -> Activity {
        self.with(other, u64::saturating_add)
    }

    /// The difference between `before` and this reading.
    pub fn since(&self, before: &Activity) -> Activity {
        self.with(before, u64::saturating_sub)
    }

    fn with(&self, other: &Activity, combine: fn(u64, u64) -> u64) -> Activity {
        let both = |ours: Option<u64>, theirs: Option<u64>| Some(combine(ours?, theirs?));
        Activity {
            steal_ns: both(self.steal_ns, other.steal_ns),
            context_switches: both(self.context_switches, other.context_switches),
        }
    }
}

/// Processor time of the calling thread so far, in nanoseconds.
pub fn cpu_ns() -> u64 {
    clock_ns(ClockId::CLOCK_THREAD_CPUTIME_ID)
}

/// Processor time of all threads of this process so far, in nanoseconds.
pub fn process_cpu_ns() -> u64 {
    clock_ns(ClockId::CLOCK_PROCESS_CPUTIME_ID)
}

fn clock_ns(clock: ClockId) -> u64 {
    clock_gettime(clock)
        .map(|time| {
            (time.tv_sec() as u64).saturating_mul(1_000_000_000).saturating_add(time.tv_nsec() as u64)
        })
        .unwrap_or(0)
}

fn steal_ns(stat: &str) -> Option<u64> {
    let all = stat.lines().find_map(|line| line.strip_prefix("cpu "))?;
    let ticks: u64 = all.split_whitespace().nth(STEAL_FIELD)?.parse().ok()?;
    Some(ticks.saturating_mul(1_000_000_000 / TICKS_PER_S))
}

fn context_switches() -> Option<u64> {
    let usage = getrusage(UsageWho::RUSAGE_SELF).ok()?;
    let all = usage.voluntary_context_switches().checked_add(usage.involuntary_context_switches())?;
    u64::try_from(all).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stolen_time_is_the_eighth_field_of_the_line_of_all_processors() {
        let stat = "cpu  14290 0 7355 280693 940 0 152 82 0 0\ncpu0 1 2 3 4 5 6 7 8\n";
        assert_eq!(steal_ns(stat), Some(820_000_000));
    }

    #[test]
    fn a_kernel_that_does_not_say_gives_no_figure() {
        assert_eq!(steal_ns("cpu0 1 2 3\n"), None);
        assert_eq!(steal_ns("cpu  1 2 3\n"), None);
    }

    #[test]
    fn work_costs_processor_time() {
        let before = [cpu_ns(), process_cpu_ns()];
        let sum =
            (0..2_000_000_u64).fold(1_u64, |sum, next| std::hint::black_box(sum.wrapping_mul(next | 1)));
        std::hint::black_box(sum);
        assert!(cpu_ns() > before[0] && process_cpu_ns() > before[1]);
    }

    #[test]
    fn a_difference_with_an_unknown_reading_is_unknown() {
        let known = Activity { steal_ns: Some(5), context_switches: Some(9) };
        let earlier = Activity { steal_ns: None, context_switches: Some(4) };
        assert_eq!(known.since(&earlier), Activity { steal_ns: None, context_switches: Some(5) });
    }
}
