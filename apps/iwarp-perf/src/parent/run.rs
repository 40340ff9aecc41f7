//! Sessions one after the other, each in a near end's process.

use std::fs::File;
use std::io;
use std::io::Write;
use std::os::unix::net::UnixStream;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::PathBuf;
use std::process::{Child, ExitStatus, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use ironwarp_bench::Latency;
use ironwarp_bench::output::{Outcome, Progress};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use super::workdir::WorkDir;
use crate::child::Role;
use crate::cli::LogLevel;
use crate::control::{Channel, Dispatch, FromClient, Measured, ToClient};
use crate::plan::{Plan, Session};

/// How long a near end may take to leave after its last word.
const EXIT_TIMEOUT: Duration = Duration::from_secs(10);
/// Where DPDK keeps a folder a process; it never removes them, so they go with the run's own.
const EAL_RUNTIME: &str = "RUNTIME_DIRECTORY";
/// Lines of an end's own output that are shown when it dies.
const LAST_LINES: usize = 8;

/// How a run ended.
#[derive(Debug, PartialEq, Eq)]
pub enum RunOutcome {
    /// All of it was measured.
    Complete,
    /// The user stopped it.
    Interrupted,
    /// Something failed: a line that says what.
    Failed(String),
}

/// A run under way.
pub struct Run {
    progress: Progress,
    folder: PathBuf,
    output: PathBuf,
    /// What the ends say, where the user asked for it; to the terminal then.
    log: Option<LogLevel>,
    interrupt: Interrupt,
}

/// What Ctrl-C does: it tells the near end to stop, whichever one runs.
#[derive(Clone, Default)]
struct Interrupt(Arc<Mutex<StopState>>);

#[derive(Default)]
struct StopState {
    requested: bool,
    client: Option<UnixStream>,
}

impl Run {
    /// Gets ready to run a plan.
    pub fn new(plan: &Plan, folder: &WorkDir, log: Option<LogLevel>) -> Self {
        let interrupt = Interrupt::default();
        interrupt.install();
        Run {
            progress: Progress::new(plan.slices(), plan.expected_duration()),
            folder: folder.path().to_owned(),
            output: folder.path().join("processes.log"),
            log,
            interrupt,
        }
    }

    /// Runs every session; results go into `outcome` as they come.
    pub fn run_all(self, plan: &Plan, outcome: &mut Outcome) -> RunOutcome {
        for session in &plan.sessions {
            match self.session(session, outcome) {
                RunOutcome::Complete if self.interrupt.is_requested() => return RunOutcome::Interrupted,
                RunOutcome::Complete => {}
                other => return other,
            }
        }
        RunOutcome::Complete
    }

    fn session(&self, session: &Session, outcome: &mut Outcome) -> RunOutcome {
        self.progress.set_message("starting two processes");
        match self.start() {
            Ok((mut client, channel)) => {
                let run_outcome = self.collect_results(session, &channel, outcome);
                self.interrupt.clear_client();
                let status = wait_for_exit(&mut client);
                self.final_outcome(run_outcome, status)
            }
            Err(error) => RunOutcome::Failed(format!("the near end could not be started: {error}")),
        }
    }

    /// Starts a near end in a process group of its own, so that Ctrl-C reaches the parent alone.
    fn start(&self) -> io::Result<(Child, Channel<FromClient>)> {
        let (ours, theirs) = UnixStream::pair()?;
        let (stdout, stderr) = if self.log.is_some() {
            (Stdio::from(io::stderr()), Stdio::inherit())
        } else {
            let file = File::options().create(true).append(true).open(&self.output)?;
            (Stdio::from(file.try_clone()?), Stdio::from(file))
        };
        let client = Role::Client
            .command(theirs, self.log.unwrap_or(LogLevel::Warn).name())?
            .env(EAL_RUNTIME, &self.folder)
            .stdout(stdout)
            .stderr(stderr)
            .process_group(0)
            .spawn()?;
        let channel = Channel::new(ours, Dispatch::Queue, || {})?;
        self.interrupt.set_client(channel.try_clone_socket()?);
        Ok((client, channel))
    }

    /// Hears the near end out. `None` when it went without a last word.
    fn collect_results(
        &self,
        session: &Session,
        channel: &Channel<FromClient>,
        outcome: &mut Outcome,
    ) -> Option<RunOutcome> {
        channel.send(&ToClient::Run(Box::new(session.clone()))).ok()?;
        loop {
            match channel.recv().ok()? {
                FromClient::Slice { title } => self.progress.advance(&title),
                FromClient::Results(measured) => {
                    measured.into_iter().for_each(|one| store_result(one, outcome))
                }
                FromClient::Failed(line) => return Some(RunOutcome::Failed(line)),
                FromClient::Done => return Some(RunOutcome::Complete),
            }
        }
    }

    /// What the near end said counts, and how it left where it said nothing.
    fn final_outcome(&self, reported: Option<RunOutcome>, status: Option<ExitStatus>) -> RunOutcome {
        match reported {
            Some(RunOutcome::Complete) if self.interrupt.is_requested() => RunOutcome::Interrupted,
            Some(run_outcome) => run_outcome,
            None => RunOutcome::Failed(format!(
                "the near end {}{}",
                exit_description(status),
                self.last_output_lines()
            )),
        }
    }

    /// The last lines that the ends printed themselves.
    fn last_output_lines(&self) -> String {
        let text = std::fs::read(&self.output).unwrap_or_default();
        let text = String::from_utf8_lossy(&text);
        let lines: Vec<&str> = text.lines().filter(|line| !line.trim().is_empty()).collect();
        let last = &lines[lines.len().saturating_sub(LAST_LINES)..];
        if last.is_empty() { String::new() } else { format!("; it printed last:\n  {}", last.join("\n  ")) }
    }
}

/// Takes a result in.
fn store_result(measured: Measured, outcome: &mut Outcome) {
    outcome.latencies.push(measured.latency.as_deref().and_then(Latency::from_text));
    outcome.report.results.push(measured.result);
}

/// Waits for the near end to leave by itself, then makes it.
fn wait_for_exit(client: &mut Child) -> Option<ExitStatus> {
    let start = Instant::now();
    loop {
        match client.try_wait() {
            Ok(Some(status)) => return Some(status),
            Ok(None) if start.elapsed() < EXIT_TIMEOUT => std::thread::sleep(Duration::from_millis(5)),
            _ => break,
        }
    }
    let _ = client.kill();
    client.wait().ok()
}

/// How a process died, in words.
fn exit_description(status: Option<ExitStatus>) -> String {
    let signal = status.and_then(|status| status.signal());
    match (signal.map(Signal::try_from), status.and_then(|status| status.code())) {
        (Some(Ok(Signal::SIGSEGV)), _) => {
            "died of SIGSEGV; a driver whose far end has gone may do that, memif for one".to_owned()
        }
        (Some(Ok(signal)), _) => format!("died of {signal}"),
        (Some(Err(_)), _) => format!("died of signal {}", signal.unwrap_or(0)),
        (None, Some(code)) => format!("left with exit code {code} and no last word"),
        (None, None) => "left without a word".to_owned(),
    }
}

impl Interrupt {
    /// Installs the handler. The second Ctrl-C does not wait for anybody: the ends die with their parents.
    fn install(&self) {
        let this = self.clone();
        let installed = ctrlc::set_handler(move || {
            let mut state = this.0.lock().unwrap_or_else(PoisonError::into_inner);
            if state.requested {
                let _ = kill(Pid::this(), Signal::SIGKILL);
            }
            state.requested = true;
            state.send_stop();
        });
        if let Err(error) = installed {
            eprintln!("iwarp-perf: Ctrl-C will not print what was measured: {error}");
        }
    }

    fn set_client(&self, client: UnixStream) {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        state.client = Some(client);
        if state.requested {
            state.send_stop();
        }
    }

    fn clear_client(&self) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).client = None;
    }

    fn is_requested(&self) -> bool {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).requested
    }
}

impl StopState {
    fn send_stop(&mut self) {
        let Ok(line) = serde_json::to_string(&ToClient::Stop) else { return };
        if let Some(client) = &mut self.client {
            let _ = client.write_all(format!("{line}\n").as_bytes());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status(script: &str) -> Option<ExitStatus> {
        std::process::Command::new("sh").args(["-c", script]).status().ok()
    }

    #[test]
    fn a_death_is_named_by_its_signal() {
        assert_eq!(exit_description(status("kill -9 $$")), "died of SIGKILL");
        assert!(exit_description(status("kill -11 $$")).contains("SIGSEGV; a driver"));
        assert_eq!(exit_description(status("exit 3")), "left with exit code 3 and no last word");
        assert_eq!(exit_description(None), "left without a word");
    }
}
