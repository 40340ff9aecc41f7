//! Runs sessions one after the other, each in its own client process.

use std::fs::File;
use std::io;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use ironwarp_bench::Latency;
use ironwarp_bench::output::{Intervals, Outcome, ProgressBar, perftest_row, progress_bar};
use ironwarp_cli::print_stdout;

use crate::child::{DEFAULT_LOG, Role, exit_text, wait_or_kill};
use crate::cli::Format;
use crate::control::{Channel, FromClient, ToClient};
use crate::error::{Error, Result};
use crate::plan::{Plan, Session};

/// The time that a client has to exit after its last message.
const EXIT_TIMEOUT: Duration = Duration::from_secs(10);
/// The time between two checks for Ctrl-C.
const INTERRUPT_POLL_INTERVAL: Duration = Duration::from_millis(100);
/// The variable with DPDK's folder. DPDK never removes the files of a process there, so the folder
/// of the run is used.
const EAL_RUNTIME: &str = "RUNTIME_DIRECTORY";
/// Lines of the output of a client or server that an error shows.
const LAST_LINES: usize = 8;

/// A run in progress.
pub struct Run<'a> {
    progress: ProgressBar,
    folder: &'a Path,
    /// The output of client and server, unless `log` sends it to the terminal.
    output: PathBuf,
    log: Option<&'a str>,
    format: Format,
    /// Ctrl-C is the usual end.
    is_unlimited: bool,
    interrupted: Arc<AtomicBool>,
}

impl<'a> Run<'a> {
    /// Prepares to run a plan. `interrupted` is set at Ctrl-C.
    pub fn new(
        plan: &Plan,
        folder: &'a Path,
        log: Option<&'a str>,
        format: Format,
        interrupted: Arc<AtomicBool>,
    ) -> Self {
        let progress = match plan.reports_slices() {
            true => ProgressBar::hidden(),
            false => progress_bar(plan.slices(), plan.expected_duration()),
        };
        let (output, is_unlimited) = (folder.join("processes.log"), plan.is_unlimited());
        Run { progress, folder, output, log, format, is_unlimited, interrupted }
    }

    /// Runs a session and adds its results to `outcome`. Fails with the reason why the run is
    /// incomplete.
    pub fn session(&self, session: &Session, outcome: &mut Outcome) -> Result<(), String> {
        self.progress.set_message("starting two processes");
        let started = self.start().map_err(|error| format!("the client could not be started: {error}"));
        let (mut client, channel) = started?;
        let reported = self.collect_results(session, &channel, outcome);
        let status = wait_or_kill(&mut client, EXIT_TIMEOUT);
        match reported {
            Some(Ok(())) if self.interrupted.load(Ordering::Relaxed) && !self.is_unlimited => {
                Err("interrupted; the results so far are above".to_owned())
            }
            Some(reported) => reported,
            None => Err(format!("the client {}{}", exit_text(status), self.last_output_lines())),
        }
    }

    /// Starts a client in its own process group, so that only the parent receives Ctrl-C.
    fn start(&self) -> Result<(Child, Channel<FromClient>)> {
        let (ours, theirs) = UnixStream::pair()?;
        let (stdout, stderr) = if self.log.is_some() {
            (Stdio::from(io::stderr()), Stdio::inherit())
        } else {
            let file = File::options().create(true).append(true).open(&self.output)?;
            (Stdio::from(file.try_clone()?), Stdio::from(file))
        };
        let client = Role::Client
            .command(theirs, self.log.unwrap_or(DEFAULT_LOG))?
            .env(EAL_RUNTIME, self.folder)
            .stdout(stdout)
            .stderr(stderr)
            .process_group(0)
            .spawn()?;
        Ok((client, Channel::new(ours, Some, || {})?))
    }

    /// Collects the results of a client until it reports success or failure. `None` if it exits
    /// before.
    fn collect_results(
        &self,
        session: &Session,
        channel: &Channel<FromClient>,
        outcome: &mut Outcome,
    ) -> Option<Result<(), String>> {
        channel.send(&ToClient::Run(Box::new(session.clone()))).ok()?;
        let (mut stopped, mut intervals, mut silent) = (false, Intervals::default(), Duration::ZERO);
        loop {
            if !stopped && self.interrupted.load(Ordering::Relaxed) {
                stopped = true;
                let _ = channel.send(&ToClient::Stop);
            }
            let received = channel.recv_within(INTERRUPT_POLL_INTERVAL);
            // Counted, not read from a clock: a machine that was suspended is not silent.
            silent = if received.is_ok() { Duration::ZERO } else { silent + INTERRUPT_POLL_INTERVAL };
            if let Some(limit) = session.silent_max.filter(|&limit| silent > limit) {
                let (device, cores) = (session.device.as_deref().unwrap_or_default(), session.cores);
                return Some(Err(format!("{device}, {cores} cores a side: no slice ended within {limit:?}")));
            }
            match received {
                Ok(FromClient::Slice { title }) => {
                    self.progress.set_message(title);
                    self.progress.inc(1);
                }
                Ok(FromClient::Interval(result)) => print_stdout(match self.format {
                    Format::Table => intervals.line(&result),
                    Format::Perftest => format!("{}\n", perftest_row(&result)),
                }),
                Ok(FromClient::Results(all)) => all.into_iter().for_each(|measured| {
                    outcome.latencies.push(measured.latency.as_deref().and_then(Latency::from_text));
                    outcome.report.results.push(measured.result);
                }),
                Ok(FromClient::Failed(line)) => return Some(Err(line)),
                Ok(FromClient::Done) => return Some(Ok(())),
                Err(Error::Silent(_)) => {}
                Err(_) => return None,
            }
        }
    }

    fn last_output_lines(&self) -> String {
        let text = std::fs::read(&self.output).unwrap_or_default();
        let text = String::from_utf8_lossy(&text);
        let lines: Vec<&str> = text.lines().filter(|line| !line.trim().is_empty()).collect();
        let last = &lines[lines.len().saturating_sub(LAST_LINES)..];
        if last.is_empty() { String::new() } else { format!("; its last output:\n  {}", last.join("\n  ")) }
    }
}
