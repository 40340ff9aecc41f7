//! Runs many seeds on several threads. Each thread takes the next seed when it has finished one.

use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::Mutex;
use std::sync::PoisonError;

use crate::app::Totals;
use crate::trial::{Failure, Trial};
use crate::world::Outcome;

/// The results of many seeds.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Summary {
    /// Seeds that passed.
    pub passed: u64,
    /// Seeds that failed, in order.
    pub failures: Vec<Failure>,
    /// The totals of all seeds.
    pub totals: Totals,
    /// Frames sent.
    pub frames: u64,
}

/// Runs every trial, `jobs` at a time, until all are done or `stop` is set. Calls `seen` with each result.
pub fn run(
    trials: &[Trial],
    jobs: usize,
    stop: &AtomicBool,
    seen: &(dyn Fn(&Result<Outcome, Failure>) + Sync),
) -> Summary {
    let next = AtomicU64::new(0);
    let summary = Mutex::new(Summary::default());
    std::thread::scope(|scope| {
        for _ in 0..jobs.max(1) {
            scope.spawn(|| {
                while !stop.load(Ordering::Relaxed) {
                    let index = next.fetch_add(1, Ordering::Relaxed);
                    let Some(trial) = trials.get(index as usize) else { break };
                    let outcome = trial.run();
                    seen(&outcome);
                    summary.lock().unwrap_or_else(PoisonError::into_inner).add(outcome);
                }
            });
        }
    });
    let mut summary = summary.into_inner().unwrap_or_else(PoisonError::into_inner);
    summary.failures.sort_by_key(|failure| failure.trial.seed);
    summary
}

impl Summary {
    fn add(&mut self, outcome: Result<Outcome, Failure>) {
        match outcome {
            Ok(outcome) => {
                self.passed += 1;
                self.frames += outcome.frames;
                self.totals.add(&outcome.totals);
            }
            Err(failure) => self.failures.push(failure),
        }
    }
}
