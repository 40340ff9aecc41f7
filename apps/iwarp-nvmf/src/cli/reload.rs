//! `iwarp-nvmf reload`, and what the target does for it.
//!
//! The target that runs has its process number in the lock file of `state_dir`. SIGHUP makes it
//! read its configuration again; it writes the outcome to `reload.json` in the same folder, with a
//! number that increases, and `reload` waits for that.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use ironwarp_cli::{CliExit, print_stdout};
use iwarp_nvmf::config::TargetConfig;
use iwarp_nvmf::identities::Identities;
use iwarp_nvmf::namespaces::Namespaces;
use iwarp_nvmf::replace::{Durability, replace};
use rustix::process::{Pid, Signal, kill_process};
use serde::{Deserialize, Serialize};

use super::PROGRAM;

const FILE: &str = "reload.json";
/// The longest time for a reload: a core has ten seconds to open a device.
const TIMEOUT: Duration = Duration::from_secs(120);
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// The outcome of a reload.
#[derive(Serialize, Deserialize, Default)]
struct Outcome {
    /// One more than that of the last reload.
    number: u64,
    /// Whether everything was done.
    is_complete: bool,
    text: String,
}

/// The reloads of a target that runs.
pub(super) struct Reloads {
    path: Option<PathBuf>,
    number: u64,
}

impl Reloads {
    pub(super) fn new(state_dir: Option<&Path>) -> Self {
        let path = state_dir.map(|folder| folder.join(FILE));
        let number = path.as_deref().and_then(read).map_or(0, |last| last.number);
        Reloads { path, number }
    }

    /// Makes the namespaces those of a configuration that was read again. A bad one changes
    /// nothing.
    pub(super) fn reload(&mut self, namespaces: &mut Namespaces, config: Result<TargetConfig, CliExit>) {
        let (is_complete, text) = match config {
            Ok(config) => {
                let report = namespaces.reload(&config);
                (report.is_complete(), format!("reloaded: {report}"))
            }
            Err(CliExit::BadArguments(why) | CliExit::Failed(why) | CliExit::Help(why)) => {
                (false, format!("not reloaded: {why}"))
            }
        };
        eprintln!("{PROGRAM}: {text}");
        self.number += 1;
        let outcome = Outcome { number: self.number, is_complete, text };
        if let Some(path) = &self.path
            && let Err(error) = write(path, &outcome)
        {
            tracing::warn!("{}: {error}: `{PROGRAM} reload` will not see the outcome", path.display());
        }
    }
}

/// Orders a reload from the target that runs with a configuration, and prints the outcome.
pub(super) fn order(config: &TargetConfig) -> Result<(), CliExit> {
    let none = "no state_dir, and no home folder for a default: which target runs is not known";
    let folder = config.state_dir.as_deref().ok_or_else(|| CliExit::bad_arguments(none))?;
    let process = Identities::process(folder).map_err(CliExit::failed)?;
    let path = folder.join(FILE);
    let before = read(&path).map_or(0, |last| last.number);
    let pid = i32::try_from(process).ok().and_then(Pid::from_raw);
    let pid = pid.ok_or_else(|| CliExit::failed(format!("{process} is no process")))?;
    kill_process(pid, Signal::HUP)
        .map_err(|error| CliExit::failed(format!("process {process}: {}", io::Error::from(error))))?;
    let deadline = Instant::now() + TIMEOUT;
    loop {
        if let Some(outcome) = read(&path).filter(|one| one.number > before) {
            let text = outcome.text;
            return if outcome.is_complete {
                print_stdout(format!("{text}\n"));
                Ok(())
            } else {
                Err(CliExit::Failed(text))
            };
        }
        if !Identities::is_in_use(folder) || Instant::now() > deadline {
            return Err(CliExit::failed(format!("process {process} has not reloaded")));
        }
        std::thread::sleep(POLL_INTERVAL);
    }
}

fn read(path: &Path) -> Option<Outcome> {
    serde_json::from_slice(&fs::read(path).ok()?).ok()
}

fn write(path: &Path, outcome: &Outcome) -> io::Result<()> {
    replace(path, Durability::Visible, |file| Ok(serde_json::to_writer(file, outcome)?))
}
