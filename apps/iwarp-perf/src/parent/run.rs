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
use crate::cli::Log;
use crate::control::{Channel, FromNear, Hear, Measured, ToNear};
use crate::plan::{Plan, Session};

/// How long a near end may take to leave after its last word.
const LEAVE_WITHIN: Duration = Duration::from_secs(10);
/// Where DPDK keeps a folder a process; it never removes them, so they go with the run's own.
const EAL_RUNTIME: &str = "RUNTIME_DIRECTORY";
/// Lines of an end's own output that are shown when it dies.
const LAST_LINES: usize = 8;

/// How a run ended.
#[derive(Debug, PartialEq, Eq)]
pub enum Ended {
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
    log: Option<Log>,
    interrupt: Interrupt,
}

/// What Ctrl-C does: it tells the near end to stop, whichever one runs.
#[derive(Clone, Default)]
struct Interrupt(Arc<Mutex<Stopping>>);

#[derive(Default)]
struct Stopping {
    asked: bool,
    near: Option<UnixStream>,
}

impl Run {
    /// Gets ready to run a plan.
    pub fn new(plan: &Plan, folder: &WorkDir, log: Option<Log>) -> Self {
        let interrupt = Interrupt::default();
        interrupt.listen();
        Run {
            progress: Progress::new(plan.slices(), plan.expected()),
            folder: folder.path().to_owned(),
            output: folder.path().join("ends.log"),
            log,
            interrupt,
        }
    }

    /// Runs every session; results go into `outcome` as they come.
    pub fn all(self, plan: &Plan, outcome: &mut Outcome) -> Ended {
        for session in &plan.sessions {
            match self.session(session, outcome) {
                Ended::Complete if self.interrupt.asked() => return Ended::Interrupted,
                Ended::Complete => {}
                other => return other,
            }
        }
        Ended::Complete
    }

    fn session(&self, session: &Session, outcome: &mut Outcome) -> Ended {
        self.progress.say("starting two processes");
        match self.start() {
            Ok((mut near, channel)) => {
                let ended = self.listen(session, &channel, outcome);
                self.interrupt.forget();
                let status = leave(&mut near);
                self.judge(ended, status)
            }
            Err(error) => Ended::Failed(format!("the near end could not be started: {error}")),
        }
    }

    /// Starts a near end in a process group of its own, so that Ctrl-C reaches the parent alone.
    fn start(&self) -> io::Result<(Child, Channel<FromNear>)> {
        let (ours, theirs) = UnixStream::pair()?;
        let (stdout, stderr) = if self.log.is_some() {
            (Stdio::from(io::stderr()), Stdio::inherit())
        } else {
            let file = File::options().create(true).append(true).open(&self.output)?;
            (Stdio::from(file.try_clone()?), Stdio::from(file))
        };
        let near = Role::Near
            .command(theirs, self.log.unwrap_or(Log::Warn).name())?
            .env(EAL_RUNTIME, &self.folder)
            .stdout(stdout)
            .stderr(stderr)
            .process_group(0)
            .spawn()?;
        let channel = Channel::new(ours, Hear::Queue, || {})?;
        self.interrupt.tell(channel.speaker()?);
        Ok((near, channel))
    }

    /// Hears the near end out. `None` when it went without a last word.
    fn listen(&self, session: &Session, channel: &Channel<FromNear>, outcome: &mut Outcome) -> Option<Ended> {
        channel.send(&ToNear::Run(Box::new(session.clone()))).ok()?;
        loop {
            match channel.recv().ok()? {
                FromNear::Slice { title } => self.progress.advance(&title),
                FromNear::Results(measured) => measured.into_iter().for_each(|one| keep(one, outcome)),
                FromNear::Failed(line) => return Some(Ended::Failed(line)),
                FromNear::Done => return Some(Ended::Complete),
            }
        }
    }

    /// What the near end said counts, and how it left where it said nothing.
    fn judge(&self, said: Option<Ended>, status: Option<ExitStatus>) -> Ended {
        match said {
            Some(Ended::Complete) if self.interrupt.asked() => Ended::Interrupted,
            Some(ended) => ended,
            None => Ended::Failed(format!("the near end {}{}", death(status), self.last_words())),
        }
    }

    /// The last lines that the ends printed themselves.
    fn last_words(&self) -> String {
        let text = std::fs::read(&self.output).unwrap_or_default();
        let text = String::from_utf8_lossy(&text);
        let lines: Vec<&str> = text.lines().filter(|line| !line.trim().is_empty()).collect();
        let last = &lines[lines.len().saturating_sub(LAST_LINES)..];
        if last.is_empty() { String::new() } else { format!("; it printed last:\n  {}", last.join("\n  ")) }
    }
}

/// Takes a result in.
fn keep(measured: Measured, outcome: &mut Outcome) {
    outcome.latencies.push(measured.latency.as_deref().and_then(Latency::from_text));
    outcome.report.results.push(measured.result);
}

/// Waits for the near end to leave by itself, then makes it.
fn leave(near: &mut Child) -> Option<ExitStatus> {
    let start = Instant::now();
    loop {
        match near.try_wait() {
            Ok(Some(status)) => return Some(status),
            Ok(None) if start.elapsed() < LEAVE_WITHIN => std::thread::sleep(Duration::from_millis(5)),
            _ => break,
        }
    }
    let _ = near.kill();
    near.wait().ok()
}

/// How a process died, in words.
fn death(status: Option<ExitStatus>) -> String {
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
    fn listen(&self) {
        let this = self.clone();
        let installed = ctrlc::set_handler(move || {
            let mut stopping = this.0.lock().unwrap_or_else(PoisonError::into_inner);
            if stopping.asked {
                let _ = kill(Pid::this(), Signal::SIGKILL);
            }
            stopping.asked = true;
            stopping.say_stop();
        });
        if let Err(error) = installed {
            eprintln!("iwarp-perf: Ctrl-C will not print what was measured: {error}");
        }
    }

    fn tell(&self, near: UnixStream) {
        let mut stopping = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        stopping.near = Some(near);
        if stopping.asked {
            stopping.say_stop();
        }
    }

    fn forget(&self) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).near = None;
    }

    fn asked(&self) -> bool {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).asked
    }
}

impl Stopping {
    fn say_stop(&mut self) {
        let Ok(line) = serde_json::to_string(&ToNear::Stop) else { return };
        if let Some(near) = &mut self.near {
            let _ = near.write_all(format!("{line}\n").as_bytes());
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
        assert_eq!(death(status("kill -9 $$")), "died of SIGKILL");
        assert!(death(status("kill -11 $$")).contains("SIGSEGV; a driver"));
        assert_eq!(death(status("exit 3")), "left with exit code 3 and no last word");
        assert_eq!(death(None), "left without a word");
    }
}
