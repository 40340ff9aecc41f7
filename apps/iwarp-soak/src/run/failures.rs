//! The failures that a run injects.

use std::collections::BTreeMap;
use std::time::Duration;

use ironwarp_types::SeededEntropy;

use crate::end::{DiskState, HOSTS, Rates};

/// The longest failure.
pub(super) const SPAN_MAX: Duration = Duration::from_secs(6);

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Failure {
    BadFrames,
    /// One frame in twenty is lost.
    HeavyLoss,
    /// No frame passes.
    Silence,
    /// A process does not run.
    Suspend,
    /// A host is killed and started again.
    Kill,
    /// The target is killed and started again.
    KillTarget,
    /// No frame passes for so long that connections end.
    Cut,
    /// The target takes its next configuration.
    Reload,
    /// Some Reads and Writes of the disk fail or move a part.
    DiskErrors,
    /// An fdatasync fails: Writes and Flushes fail until the target opens the disk again.
    LostSync,
    DiskHang,
    /// A core of the target panics: the target ends and is started again.
    Panic,
}

/// All of them, in their order at first, with their names in results.
const ALL: [(Failure, &str); 12] = [
    (Failure::KillTarget, "target killed"),
    (Failure::Reload, "reloaded"),
    (Failure::DiskErrors, "disk errors"),
    (Failure::LostSync, "lost sync"),
    (Failure::Kill, "killed"),
    (Failure::Panic, "core panicked"),
    (Failure::DiskHang, "disk hung"),
    (Failure::Cut, "cut"),
    (Failure::BadFrames, "bad frames"),
    (Failure::Suspend, "suspended"),
    (Failure::HeavyLoss, "heavy loss"),
    (Failure::Silence, "silence"),
];

/// One step of a failure.
#[derive(Clone, Copy, Debug)]
pub(super) enum Step {
    Faults(Rates),
    Suspend(usize),
    Resume(usize),
    Kill(usize),
    Restart(usize),
    Reload,
    /// What the target's disk does.
    Disk(DiskState),
    /// The disk is good, and the target opens it again.
    Reopen,
    /// A core panics. The target must end.
    Panic,
}

/// Draws a failure after `before` others: each once, then any. A target that has lived for half of
/// the run stays, so that growth of its memory shows.
pub(super) fn draw(rng: &mut SeededEntropy, before: usize, target_stays: bool) -> Failure {
    let any = ALL[rng.below(ALL.len() as u64) as usize];
    match ALL.get(before).copied().unwrap_or(any).0 {
        Failure::KillTarget | Failure::Panic if target_stays => Failure::Reload,
        failure => failure,
    }
}

impl Failure {
    pub(super) fn name(self) -> &'static str {
        ALL.iter().find(|(one, _)| *one == self).map_or("", |(_, name)| name)
    }

    /// Its first step, the step that ends it, and the time between them. The first end is the
    /// target.
    pub(super) fn steps(self, rng: &mut SeededEntropy) -> (Step, Option<Step>, Duration) {
        let over = Some(Step::Faults([0; 6]));
        let first = usize::from(self == Failure::Kill);
        let end = first + rng.below((1 + HOSTS - first) as u64) as usize;
        let between =
            |rng: &mut SeededEntropy, low: u64, high: u64| Duration::from_millis(low + rng.below(high - low));
        match self {
            Failure::BadFrames => {
                (Step::Faults([2000, 2000, 2000, 500, 200, 1000]), over, between(rng, 1000, 4000))
            }
            Failure::HeavyLoss => (Step::Faults([50_000, 0, 0, 0, 0, 0]), over, between(rng, 500, 2000)),
            Failure::Silence => (Step::Faults([1_000_000, 0, 0, 0, 0, 0]), over, between(rng, 100, 2000)),
            Failure::Suspend => (Step::Suspend(end), Some(Step::Resume(end)), between(rng, 100, 3000)),
            Failure::Kill => (Step::Kill(end), Some(Step::Restart(end)), between(rng, 1, 1000)),
            Failure::KillTarget => (Step::Kill(0), Some(Step::Restart(0)), between(rng, 1, 1000)),
            Failure::Cut => (
                Step::Faults([1_000_000, 0, 0, 0, 0, 0]),
                over,
                between(rng, 4000, SPAN_MAX.as_millis() as u64),
            ),
            Failure::Reload => (Step::Reload, None, Duration::ZERO),
            Failure::DiskErrors => {
                let state = DiskState { eio: 300, short: 6000, ..DiskState::default() };
                (Step::Disk(state), Some(Step::Disk(DiskState::default())), between(rng, 1000, 4000))
            }
            Failure::LostSync => {
                let state = DiskState { lose_sync: true, ..DiskState::default() };
                (Step::Disk(state), Some(Step::Reopen), between(rng, 500, 3000))
            }
            Failure::DiskHang => {
                let state = DiskState { hang: true, ..DiskState::default() };
                (Step::Disk(state), Some(Step::Disk(DiskState::default())), between(rng, 500, 4000))
            }
            Failure::Panic => (Step::Panic, Some(Step::Restart(0)), between(rng, 1, 1000)),
        }
    }
}

pub(super) fn text(injected: &BTreeMap<&'static str, u64>) -> String {
    if injected.is_empty() {
        return "none".to_owned();
    }
    injected.iter().map(|(name, count)| format!("{count} × {name}")).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_failure_comes_once_and_then_the_target_stays() {
        let mut rng = SeededEntropy::new(1);
        let first: Vec<Failure> = (0..ALL.len()).map(|at| draw(&mut rng, at, false)).collect();
        assert_eq!(first, ALL.map(|(failure, _)| failure));
        let later =
            |rng: &mut SeededEntropy, stays| (ALL.len()..200).map(|at| draw(rng, at, stays)).collect();
        let (early, late): (Vec<_>, Vec<_>) = (later(&mut rng, false), later(&mut rng, true));
        assert!(ALL.iter().all(|(failure, _)| early.contains(failure)));
        assert!(![Failure::KillTarget, Failure::Panic].iter().any(|one| late.contains(one)));
        assert!(late.contains(&Failure::Kill) && late.contains(&Failure::LostSync));
    }
}
