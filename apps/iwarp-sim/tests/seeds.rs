//! Seeds of every scenario, each run twice; those that failed in the past come first.

use core::sync::atomic::AtomicBool;

use iwarp_sim::campaign;
use iwarp_sim::plan::Scenario;
use iwarp_sim::regressions;
use iwarp_sim::trial::Trial;

#[track_caller]
fn all_pass(trials: &[Trial]) {
    let summary = campaign::run(trials, 2, &AtomicBool::new(false), &|_| {});
    let failures: Vec<String> = summary
        .failures
        .iter()
        .map(|failure| format!("{}\n    again: {}", failure.fault, failure.trial.command()))
        .collect();
    assert!(failures.is_empty(), "{}", failures.join("\n"));
    assert_eq!(summary.passed, trials.len() as u64);
    assert!(summary.totals.succeeded > 0 || trials.is_empty());
}

fn trials(scenario: Scenario, count: u64) -> Vec<Trial> {
    (0..count).map(|seed| Trial { scenario, seed }).collect()
}

#[test]
fn seeds_that_failed_in_the_past_pass() {
    all_pass(&regressions::all().unwrap());
}

#[test]
fn mixed_seeds_pass() {
    all_pass(&trials(Scenario::Mixed, 16));
}

#[test]
fn every_scenario_passes() {
    let others = Scenario::ALL.iter().copied().filter(|scenario| *scenario != Scenario::Mixed);
    let trials: Vec<Trial> = others.flat_map(|scenario| trials(scenario, 3)).collect();
    all_pass(&trials);
}

/// A run does not depend on the thread or on the addresses that the allocator returns.
#[test]
fn a_seed_gives_the_same_run_on_another_thread() {
    let trial = Trial { scenario: Scenario::Mixed, seed: 4 };
    let kept: Vec<Vec<u8>> = (1..200).map(|kib| vec![1; kib << 10]).collect();
    let here = trial.run().unwrap();
    drop(kept);
    let there = std::thread::spawn(move || trial.run().unwrap()).join().unwrap();
    assert_eq!(here, there);
    let other = Trial { seed: 5, ..trial }.run().unwrap();
    assert_ne!(here.hash, other.hash);
}
