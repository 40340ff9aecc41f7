//! Prints findings: a line each, or one JSON object.

use std::path::Path;
use std::process::ExitCode;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use ironwarp::host::{Finding, Severity};
use ironwarp_cli::print_stdout;
use serde_json::json;

/// The findings so far, of a configuration file.
pub struct Report {
    config: String,
    json: bool,
    findings: Mutex<Vec<Finding>>,
}

const TOO_LONG: &str = "a step did not end: a driver or the kernel hangs";

impl Report {
    /// An empty report on a configuration file. Threads share it.
    pub fn new(config: &Path, json: bool) -> Arc<Self> {
        Arc::new(Report { config: config.display().to_string(), json, findings: Mutex::default() })
    }

    /// Adds a finding, and prints it unless JSON is requested.
    pub fn add(&self, finding: Finding) {
        if !self.json {
            let (word, check) = (finding.severity.name(), finding.check);
            print_stdout(format_args!("{word:<8} {check:<11} {finding}\n"));
        }
        self.lock().push(finding);
    }

    pub fn worst(&self) -> Severity {
        self.lock().iter().map(|finding| finding.severity).max().unwrap_or(Severity::Good)
    }

    /// Ends the program with the findings so far after `limit`.
    pub fn start_watchdog(self: &Arc<Self>, limit: Duration) {
        let report = self.clone();
        std::thread::spawn(move || {
            std::thread::sleep(limit);
            report.add(Finding::fault("time", TOO_LONG, "look at dmesg, and ask again with --dry"));
            let _ = report.end();
            std::process::exit(1);
        });
    }

    /// Prints the summary or the JSON. Returns the exit code.
    pub fn end(&self) -> ExitCode {
        let worst = self.worst();
        let ok = worst != Severity::Fault;
        if self.json {
            let findings = self.lock();
            let lines = findings.iter().map(|one| {
                json!({
                    "check": one.check,
                    "severity": one.severity.name(),
                    "found": one.found,
                    "remedy": if one.remedy.is_empty() { None } else { Some(&one.remedy) },
                })
            });
            let findings: Vec<_> = lines.collect();
            let json = json!({"schema": 1, "config": self.config, "ok": ok, "findings": findings});
            print_stdout(format_args!("{json}\n"));
        } else {
            print_stdout(match worst {
                Severity::Fault => "something is wrong\n",
                Severity::Warning => "it works; see the warnings\n",
                Severity::Good => "all is well\n",
            });
        }
        if ok { ExitCode::SUCCESS } else { ExitCode::FAILURE }
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Finding>> {
        self.findings.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
