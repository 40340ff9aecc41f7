//! One seed, run twice: both runs must be identical to the last byte and the last nanosecond. The
//! second run has every fast path off, so it also verifies that the general path gives the same
//! results.

use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};

use ironwarp_port::instrument::{Capture, CaptureLimits};

use crate::plan::{Plan, Scenario};
pub use crate::world::Outcome;
use crate::world::World;

/// A seed of a scenario.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Trial {
    pub scenario: Scenario,
    pub seed: u64,
}

/// Whether the hosts take the fast path where it applies.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FastPath {
    On,
    /// They take the general path always.
    Off,
}

/// A seed that failed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Failure {
    pub trial: Trial,
    pub fault: String,
}

impl Trial {
    /// Runs the seed with the fast path on, then with it off. If the outcomes differ, a third run
    /// tells whether the seed does not repeat or the paths differ.
    pub fn run(self) -> Result<Outcome, Failure> {
        let fast = self.run_once(FastPath::On, None)?;
        let general = self.run_once(FastPath::Off, None)?;
        if fast == general {
            return Ok(fast);
        }
        let again = self.run_once(FastPath::On, None)?;
        Err(self.failure(match fast == again {
            true => format!("the fast path gave {fast:?}, the general path {general:?}"),
            false => format!("the run did not repeat: {fast:?} and then {again:?}"),
        }))
    }

    /// Runs the seed once and writes its frames to `path`, whether it passes or fails.
    pub fn trace(self, path: &Path, fast_path: FastPath) -> Result<Outcome, Failure> {
        if let Some(folder) = path.parent().filter(|folder| !folder.as_os_str().is_empty()) {
            fs::create_dir_all(folder).map_err(|error| self.failure(error.to_string()))?;
        }
        let capture = Capture::create(path, CaptureLimits::default());
        let capture = capture.map_err(|error| self.failure(format!("{}: {error}", path.display())))?;
        self.run_once(fast_path, Some(&capture))
    }

    /// The command that runs this seed again.
    pub fn command(self) -> String {
        match self.scenario {
            Scenario::Mixed => format!("iwarp-sim --seed {} --trace", self.seed),
            scenario => format!("iwarp-sim --scenario {} --seed {} --trace", scenario.name(), self.seed),
        }
    }

    /// Where the frames of a failing seed go.
    pub fn trace_path(self, folder: &Path) -> PathBuf {
        folder.join(format!("{}-{}.pcapng", self.scenario.name(), self.seed))
    }

    /// Where the frames of the same seed on the general path go.
    pub fn general_trace_path(self, folder: &Path) -> PathBuf {
        folder.join(format!("{}-{}-general.pcapng", self.scenario.name(), self.seed))
    }

    /// A panic, such as a failed assertion of the stack, fails only its own seed.
    fn run_once(self, fast_path: FastPath, capture: Option<&Capture>) -> Result<Outcome, Failure> {
        let mut plan = Plan::new(self.seed, self.scenario);
        plan.set_fast_path(fast_path == FastPath::On);
        let run = catch_unwind(AssertUnwindSafe(|| World::run(&plan, capture)));
        match run {
            Ok(outcome) => outcome.map_err(|fault| self.failure(fault)),
            Err(panic) => Err(self.failure(format!("panicked: {}", text_of(panic.as_ref())))),
        }
    }

    fn failure(self, fault: String) -> Failure {
        Failure { trial: self, fault }
    }
}

fn text_of(panic: &(dyn core::any::Any + Send)) -> &str {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("a panic without a message")
}
