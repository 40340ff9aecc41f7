//! The failures that a run injects.

use std::collections::BTreeMap;
use std::time::Duration;

use ironwarp_types::SeededEntropy;

use crate::args::Device;

/// The longest failure.
pub(super) const SPAN_MAX: Duration = Duration::from_secs(4);
/// How long a link is down.
pub(super) const LINK_DOWN: Duration = Duration::from_millis(1500);

/// Frames in a million that are dropped, duplicated, reordered, corrupted, truncated and delayed.
pub(super) type Rates = [u32; 6];

/// A kind of failure.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Failure {
    /// A few frames of each fault.
    BadFrames,
    /// One frame in twenty is lost.
    HeavyLoss,
    /// No frame passes.
    Silence,
    /// A process does not run.
    Suspend,
    /// Linux takes the link of an end down.
    LinkDown,
    /// A process is killed and started again.
    Kill,
}

/// One step of a failure.
#[derive(Clone, Copy, Debug)]
pub(super) enum Step {
    Faults(Rates),
    Suspend(usize),
    Resume(usize),
    Link(bool),
    Kill(usize),
    Restart(usize),
}

/// Draws a failure that a device can have. A process whose peer over DPDK's memif or over rings is killed may crash or is
/// killed with it, so that happens over taps and the native memif only.
pub(super) fn draw(rng: &mut SeededEntropy, device: Device) -> Failure {
    let all = [
        Failure::BadFrames,
        Failure::HeavyLoss,
        Failure::Silence,
        Failure::Suspend,
        Failure::Kill,
        Failure::LinkDown,
    ];
    let kinds = match device {
        Device::Tap => all.len(),
        Device::MemifNative => all.len() - 1,
        Device::Memif | Device::Ring => all.len() - 2,
    };
    all[rng.below(kinds as u64) as usize]
}

impl Failure {
    /// Its name in results.
    pub(super) fn name(self) -> &'static str {
        match self {
            Failure::BadFrames => "bad frames",
            Failure::HeavyLoss => "heavy loss",
            Failure::Silence => "silence",
            Failure::Suspend => "suspended",
            Failure::LinkDown => "link down",
            Failure::Kill => "killed",
        }
    }

    /// Its first step, the step that ends it, and the time between them.
    pub(super) fn steps(self, rng: &mut SeededEntropy, ends: usize) -> (Step, Option<Step>, Duration) {
        let over = Some(Step::Faults([0; 6]));
        let end = rng.below(ends as u64) as usize;
        let between =
            |rng: &mut SeededEntropy, low: u64, high: u64| Duration::from_millis(low + rng.below(high - low));
        match self {
            Failure::BadFrames => {
                (Step::Faults([2000, 2000, 2000, 500, 200, 1000]), over, between(rng, 1000, 4000))
            }
            Failure::HeavyLoss => (Step::Faults([50_000, 0, 0, 0, 0, 0]), over, between(rng, 500, 2000)),
            Failure::Silence => (Step::Faults([1_000_000, 0, 0, 0, 0, 0]), over, between(rng, 100, 2000)),
            Failure::Suspend => (Step::Suspend(end), Some(Step::Resume(end)), between(rng, 100, 3000)),
            Failure::LinkDown => (Step::Link(false), Some(Step::Link(true)), LINK_DOWN),
            Failure::Kill => (Step::Kill(end), Some(Step::Restart(end)), between(rng, 1, 1000)),
        }
    }
}

/// The injected failures in one line.
pub(super) fn text(injected: &BTreeMap<&'static str, u64>) -> String {
    if injected.is_empty() {
        return "none".to_owned();
    }
    injected.iter().map(|(name, count)| format!("{count} × {name}")).collect::<Vec<_>>().join(", ")
}
