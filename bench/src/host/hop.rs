//! The transfer time of a cache line between two cores: the lower bound of two polling loops.
//!
//! Two threads, pinned to the two cores, exchange a number through one cache line each way; half a
//! round trip is a hop. Both ends of the test must be idle meanwhile. The address of a line selects
//! its slice of the shared cache, which changes the time by up to a third, so each batch uses two
//! other lines. Batches are short and the median counts, so a preempted thread affects one batch
//! only. Takes about two milliseconds.

use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Instant;

use crossbeam_utils::CachePadded;

use serde::{Deserialize, Serialize};

use super::{CorePair, pin};
use crate::report::MedianRange;

/// Round trips a batch: some ten microseconds, far shorter than a scheduler's slice.
const ROUND_TRIPS: u64 = 100;
/// Batches a measurement.
const BATCHES: usize = 41;
/// Batches before the first that counts.
const WARMUP_BATCHES: usize = 4;

/// One hop between two cores, in nanoseconds; `None` when they are one and the same, or may not be
/// used.
pub fn hop_ns(cores: CorePair) -> Option<f64> {
    if !cores.is_distinct() {
        return None;
    }
    let shared = &SharedLines::default();
    thread::scope(|scope| {
        let echo = scope.spawn(move || pin(cores.server).map(|()| shared.echo()));
        let pinger = scope.spawn(move || {
            let times = pin(cores.client).ok().map(|()| shared.measure(&|| echo.is_finished()));
            shared.stop.store(true, Ordering::Release);
            times
        });
        let times = pinger.join().ok()??;
        MedianRange::of(times).map(|spread| spread.median)
    })
}

/// The least and the largest hop between two processors, in nanoseconds.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
pub struct Hops {
    pub near_ns: f64,
    pub far_ns: f64,
}

impl Hops {
    /// Measures every pair of the first 32 of these processors, which takes a second at most.
    /// `None` of a single one.
    pub fn between(processors: &[usize]) -> Option<Self> {
        const PROCESSORS_MAX: usize = 32;
        let processors = &processors[..processors.len().min(PROCESSORS_MAX)];
        let pairs = processors.iter().enumerate().flat_map(|(index, &client)| {
            processors[index + 1..].iter().map(move |&server| CorePair { client, server })
        });
        let MedianRange { min, max, .. } = MedianRange::of(pairs.filter_map(hop_ns))?;
        Some(Hops { near_ns: min, far_ns: max })
    }
}

/// What the two threads share.
struct SharedLines {
    lines: Box<[LinePair]>,
    stop: CachePadded<AtomicBool>,
}

/// A cache line each way.
#[derive(Default)]
struct LinePair {
    request: CachePadded<AtomicU64>,
    reply: CachePadded<AtomicU64>,
}

impl Default for SharedLines {
    fn default() -> Self {
        let lines = (0..WARMUP_BATCHES + BATCHES).map(|_| LinePair::default()).collect();
        SharedLines { lines, stop: CachePadded::default() }
    }
}

impl SharedLines {
    /// Returns every number until the last batch or the stop.
    fn echo(&self) {
        for lines in &self.lines {
            for number in 1..=ROUND_TRIPS + 1 {
                while lines.request.load(Ordering::Acquire) != number {
                    if self.stop.load(Ordering::Relaxed) {
                        return;
                    }
                    core::hint::spin_loop();
                }
                lines.reply.store(number, Ordering::Release);
            }
        }
    }

    /// Half round trips in nanoseconds, one per batch. Ends early when the echo thread has ended.
    fn measure(&self, echo_ended: &dyn Fn() -> bool) -> Vec<f64> {
        let mut hops = Vec::new();
        for (batch, lines) in self.lines.iter().enumerate() {
            // The first round trip misses the cache.
            if !lines.round_trip(1, echo_ended) {
                return hops;
            }
            let start = Instant::now();
            if !(2..=ROUND_TRIPS + 1).all(|number| lines.round_trip(number, echo_ended)) {
                return hops;
            }
            if batch >= WARMUP_BATCHES {
                hops.push(start.elapsed().as_nanos() as f64 / (2 * ROUND_TRIPS) as f64);
            }
        }
        hops
    }
}

impl LinePair {
    fn round_trip(&self, number: u64, echo_ended: &dyn Fn() -> bool) -> bool {
        /// Spins between two checks of the other thread.
        const SPINS_PER_CHECK: u32 = 1 << 16;
        self.request.store(number, Ordering::Release);
        let mut spins = 0;
        while self.reply.load(Ordering::Acquire) != number {
            core::hint::spin_loop();
            spins += 1;
            if spins % SPINS_PER_CHECK == 0 && echo_ended() {
                return false;
            }
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::allowed;

    #[test]
    fn one_core_has_no_hop() {
        assert_eq!(hop_ns(CorePair { client: 0, server: 0 }), None);
    }

    #[test]
    fn two_cores_have_one() {
        let cores = CorePair::choose(&allowed());
        if cores.is_distinct() {
            let hop = hop_ns(cores).expect("two usable cores");
            assert!(hop > 1.0, "{hop} ns: nothing crosses two cores in a nanosecond");
            let hops = Hops::between(&allowed()).expect("a pair");
            assert!(hops.near_ns > 1.0 && hops.near_ns <= hops.far_ns, "{hops:?}");
        }
    }

    #[test]
    fn a_core_that_does_not_exist_gives_no_figure_and_no_hang() {
        assert_eq!(hop_ns(CorePair { client: 0, server: 1 << 14 }), None);
    }
}
