//! Nanoseconds from the time-stamp counter.
//!
//! The counter is read without a system call and converted by a fixed-point multiplication. A
//! reading takes 9.5 ns where a virtual machine makes the counter slow, against 20 to 45 ns for the
//! system's clock. The rate is measured once against the system's monotonic clock. The counter is
//! used if it has a constant rate, as reported by the processor or because Linux itself uses it,
//! unless Linux has found it unstable; otherwise the system's clock is read. Cannot fail.

use std::sync::OnceLock;
use std::time::{Duration, Instant};

/// How long the counter is compared with the system's clock: 20 ms gives a rate that is accurate to
/// a few parts in a million.
const CALIBRATION: Duration = Duration::from_millis(20);

/// Readings of both clocks, of which the fastest pair is used: at least one is not interrupted.
const SAMPLES: usize = 16;

/// A clock in nanoseconds since its creation. It never goes back on one thread. Copies on other
/// cores agree if the processor keeps their counters synchronised, which one with a constant rate
/// does.
#[derive(Clone, Copy, Debug)]
pub struct TscClock {
    source: Source,
}

#[derive(Clone, Copy, Debug)]
enum Source {
    /// The counter at creation, and nanoseconds per tick in 32.32 fixed point.
    Counter { start: u64, ns_per_tick: u64 },
    /// The system's clock since this instant.
    System(Instant),
}

impl TscClock {
    /// Measures the counter's rate, which takes 20 ms of this thread's time at the first call in a
    /// process.
    pub fn calibrated() -> Self {
        let steady = system_verdict().unwrap_or_else(counter_is_steady);
        // The rate is the processor's: one measurement serves every stack of the process.
        static NS_PER_TICK: OnceLock<Option<u64>> = OnceLock::new();
        let measured = if steady { *NS_PER_TICK.get_or_init(measure) } else { None };
        TscClock { source: Source::starting_now(measured) }
    }

    /// Returns the nanoseconds since creation.
    #[inline]
    pub fn now_ns(&self) -> u64 {
        match self.source {
            Source::Counter { start, ns_per_tick } => {
                // A core whose counter lags may read less than the start at first: that is time
                // zero.
                scale(read_counter().saturating_sub(start), ns_per_tick)
            }
            Source::System(start) => system_ns(start),
        }
    }
}

impl Source {
    fn starting_now(ns_per_tick: Option<u64>) -> Self {
        match ns_per_tick {
            Some(ns_per_tick) => Source::Counter { start: read_counter(), ns_per_tick },
            None => Source::System(Instant::now()),
        }
    }
}

#[cold]
fn measure() -> Option<u64> {
    let (first, start) = both_clocks();
    while start.elapsed() < CALIBRATION {
        core::hint::spin_loop();
    }
    let (last, end) = both_clocks();
    ns_per_tick(last.saturating_sub(first), end.duration_since(start))
}

/// Reads the counter and the system's clock at one moment: the fastest of several pairs of
/// readings.
fn both_clocks() -> (u64, Instant) {
    let samples = (0..SAMPLES).map(|_| {
        let (before, now, after) = (read_counter(), Instant::now(), read_counter());
        let took = after.wrapping_sub(before);
        (took, before.wrapping_add(took / 2), now)
    });
    samples.min_by_key(|(took, ..)| *took).map_or((0, Instant::now()), |(_, ticks, now)| (ticks, now))
}

/// Returns nanoseconds per tick in 32.32 fixed point, or `None` for a counter that stands still or
/// is slower than 1 Hz.
fn ns_per_tick(ticks: u64, elapsed: Duration) -> Option<u64> {
    let ns = (elapsed.as_nanos() << 32).checked_div(ticks.into())?;
    ns.try_into().ok().filter(|ns| *ns > 0)
}

#[inline(always)]
fn scale(ticks: u64, ns_per_tick: u64) -> u64 {
    ((u128::from(ticks) * u128::from(ns_per_tick)) >> 32) as u64
}

#[cold]
fn system_ns(start: Instant) -> u64 {
    start.elapsed().as_nanos() as u64
}

#[inline(always)]
fn read_counter() -> u64 {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    // SAFETY: every x86-64 processor has the instruction, and Linux lets programs use it.
    return unsafe { core::arch::x86_64::_rdtsc() };
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    return 0;
}

/// Returns whether the counter has a constant rate in every power state: CPUID leaf 0x80000007, EDX
/// bit 8.
fn counter_is_steady() -> bool {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    {
        use core::arch::x86_64::__cpuid;
        const POWER: u32 = 0x8000_0007;
        __cpuid(0x8000_0000).eax >= POWER && __cpuid(POWER).edx & (1 << 8) != 0
    }
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    false
}

/// Returns what Linux thinks of the counter; `None` if it does not say.
fn system_verdict() -> Option<bool> {
    const SOURCES: &str = "/sys/devices/system/clocksource/clocksource0/";
    if !cfg!(all(target_arch = "x86_64", not(miri))) {
        return Some(false);
    }
    let read = |file: &str| std::fs::read_to_string(format!("{SOURCES}{file}")).ok();
    Some(verdict(&read("available_clocksource")?, &read("current_clocksource")?, counter_is_steady))
}

/// Judges by the lists of clock sources. Linux compares the counter with other clocks, and takes it
/// off the list when it has found it unstable. Virtual machines often have a constant rate but do
/// not report it; there Linux may use the counter although the processor does not call it steady.
fn verdict(available: &str, current: &str, is_steady: impl Fn() -> bool) -> bool {
    let available = available.split_whitespace().any(|name| name == "tsc");
    available && (current.trim_end() == "tsc" || is_steady())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_counter_that_linux_found_unstable_is_not_used() {
        assert!(verdict("tsc hpet acpi_pm \n", "tsc\n", || false));
        assert!(verdict("kvm-clock tsc acpi_pm\n", "kvm-clock\n", || true));
        assert!(!verdict("kvm-clock tsc\n", "kvm-clock\n", || false));
        assert!(!verdict("hpet acpi_pm\n", "hpet\n", || true));
    }

    fn readings_do_not_go_back(clock: TscClock) {
        let mut last = 0;
        for _ in 0..1000 {
            let now = clock.now_ns();
            assert!(now >= last);
            last = now;
        }
        assert!(last > 0);
    }

    #[test]
    fn time_does_not_go_back_on_either_source() {
        readings_do_not_go_back(TscClock::calibrated());
        // With the rate of the first.
        readings_do_not_go_back(TscClock::calibrated());
        readings_do_not_go_back(TscClock { source: Source::System(Instant::now()) });
    }

    #[test]
    fn a_second_of_ticks_is_a_second_and_a_year_of_them_is_a_year() {
        let hz = 2_700_000_000u64;
        let rate = ns_per_tick(hz, Duration::from_secs(1)).unwrap();
        let second = scale(hz, rate);
        assert!(second.abs_diff(1_000_000_000) <= 1, "{second}");
        let year = 365 * 86_400;
        // One unit in the last place of the rate is 0.6 parts in 10^9.
        assert!(scale(hz * year, rate).abs_diff(year * 1_000_000_000) < year);
    }

    #[test]
    fn a_counter_that_stands_still_has_no_rate() {
        assert_eq!(ns_per_tick(0, CALIBRATION), None);
        assert_eq!(ns_per_tick(1, Duration::from_secs(1 << 40)), None);
        assert_eq!(ns_per_tick(u64::MAX, Duration::from_nanos(1)), None);
    }

    #[test]
    fn a_counter_behind_the_start_reads_zero() {
        let start = u64::MAX - 1;
        let clock = TscClock { source: Source::Counter { start, ns_per_tick: 1 << 32 } };
        assert_eq!(clock.now_ns(), 0);
    }
}
