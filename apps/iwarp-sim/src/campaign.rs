//! Runs many seeds on several threads. Each thread takes the next seed when it has finished one.

use core::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::Mutex;
use std::sync::PoisonError;

use crate::app::Totals;
use crate::trial::{Failure, Outcome, Trial};

/// The results of many seeds.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Summary {
    pub passed: u64,
    /// Seeds that failed, in order.
    pub failures: Vec<Failure>,
    pub totals: Totals,
    pub frames: u64,
}

/// Runs every trial, `jobs` at a time, until all are done or `stop` is set. Calls `seen` with each
/// result.
pub fn run(
    trials: &[Trial],
    jobs: usize,
    stop: &AtomicBool,
    seen: &(dyn Fn(&Result<Outcome, Failure>) + Sync),
) -> Summary {
    let summary = Mutex::new(Summary::default());
    on_threads(jobs, trials.len(), stop, |index| {
        let outcome = trials[index].run();
        seen(&outcome);
        summary.lock().unwrap_or_else(PoisonError::into_inner).add(outcome);
    });
    let mut summary = summary.into_inner().unwrap_or_else(PoisonError::into_inner);
    summary.failures.sort_by_key(|failure| failure.trial.seed);
    summary
}

/// Does `count` pieces of work on several threads, until all are done or `stop` is set.
pub(crate) fn on_threads(jobs: usize, count: usize, stop: &AtomicBool, work: impl Fn(usize) + Sync) {
    let next = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for _ in 0..jobs.max(1) {
            scope.spawn(|| {
                while !stop.load(Ordering::Relaxed) {
                    let index = next.fetch_add(1, Ordering::Relaxed);
                    if index >= count {
                        break;
                    }
                    work(index);
                }
            });
        }
    });
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
