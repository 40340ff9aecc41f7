//! A process with an end.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::thread;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::{Value, json};

use super::configs::Setup;
use super::samples::Samples;
use crate::args::Role;
use crate::end::{DiskState, Order};

/// The time that a target has to end after a panic of a core: it closes its other connections.
const PANIC_TIMEOUT: Duration = Duration::from_secs(40);

/// A process, and what it has reported.
pub(super) struct Process {
    pub(super) role: Role,
    /// Its number among the hosts.
    pub(super) number: usize,
    child: Child,
    orders: ChildStdin,
    reports: Receiver<Value>,
    /// It has opened its device.
    pub(super) is_ready: bool,
    /// It has stopped in order.
    pub(super) has_stopped: bool,
    pub(super) counts: BTreeMap<String, u64>,
    /// Counters of its stack when it has stopped in order; those that are zero are absent.
    pub(super) counters: BTreeMap<String, u64>,
    /// Reasons for which connections were lost, since they were taken last.
    pub(super) lost: Vec<String>,
    /// Commands that the disk has failed, since they were taken last.
    pub(super) disk_errors: Vec<String>,
    failures: Vec<String>,
    pub(super) samples: Samples,
    pub(super) is_killed: bool,
}

impl Process {
    pub(super) fn start(setup: &Setup, (role, number): (Role, usize), seed: u64) -> Result<Self, String> {
        let program = std::env::current_exe().map_err(|error| format!("this program's path: {error}"))?;
        let mut command = Command::new(program);
        let (name, at) = (name(role, number), Setup::at(number).to_string());
        let role_name = if role == Role::Target { "target" } else { "host" };
        command.args(["end", "--role", role_name, "--at", &at, "--seed", &seed.to_string()]);
        command.args(["--number", &number.to_string()]).arg("--folder").arg(setup.folder());
        for path in setup.configs(role, number) {
            command.arg("--config").arg(path);
        }
        // The queues of connections that come and go would leave holes in the arenas of the C
        // library, and resident memory would grow by megabytes in ten minutes although the memory
        // in use does not. Blocks of this size go back to the system.
        command.env("MALLOC_MMAP_THRESHOLD_", "16384");
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().map_err(|error| format!("{name} cannot be started: {error}"))?;
        let (Some(orders), Some(output)) = (child.stdin.take(), child.stdout.take()) else {
            return Err(format!("{name} has no pipes"));
        };
        let (sender, reports) = mpsc::channel();
        thread::spawn(move || {
            for line in BufReader::new(output).lines().map_while(Result::ok) {
                if let Ok(report) = serde_json::from_str(&line)
                    && sender.send(report).is_err()
                {
                    return;
                }
            }
        });
        Ok(Process {
            role,
            number,
            child,
            orders,
            reports,
            is_ready: false,
            has_stopped: false,
            counts: BTreeMap::new(),
            counters: BTreeMap::new(),
            lost: Vec::new(),
            disk_errors: Vec::new(),
            failures: Vec::new(),
            samples: Samples::default(),
            is_killed: false,
        })
    }

    /// Takes a sample of its memory and descriptors if it is time.
    pub(super) fn sample(&mut self) {
        let open = self.counts.get("open").copied().unwrap_or(0);
        let pid = self.pid();
        self.samples.take(pid, open);
    }

    pub(super) fn name(&self) -> &'static str {
        name(self.role, self.number)
    }

    pub(super) fn pid(&self) -> Pid {
        Pid::from_raw(self.child.id() as i32)
    }

    /// Sends an order. A process that is gone is found by [`Process::exited`].
    pub(super) fn order(&mut self, order: Order) {
        let _ = writeln!(self.orders, "{}", json!(order)).and_then(|()| self.orders.flush());
    }

    pub(super) fn signal(&self, signal: Signal) {
        if !self.is_killed {
            let _ = kill(self.pid(), signal);
        }
    }

    pub(super) fn kill(&mut self) {
        self.is_killed = true;
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    /// Orders a panic of a core, and waits for the end that must follow.
    pub(super) fn panic(&mut self) -> Result<(), String> {
        self.order(Order::Disk(DiskState { panic: true, ..DiskState::default() }));
        let deadline = Instant::now() + PANIC_TIMEOUT;
        while self.child.try_wait().ok().flatten().is_none() {
            self.read_reports();
            if Instant::now() > deadline {
                return Err(format!("{} goes on for {PANIC_TIMEOUT:?} after a core panicked", self.name()));
            }
            thread::sleep(Duration::from_millis(5));
        }
        self.is_killed = true;
        // The pipe's last lines follow the end of the process.
        thread::sleep(Duration::from_millis(50));
        self.read_reports();
        let is_failure = self.child.wait().is_ok_and(|status| status.code().is_some_and(|code| code != 0));
        let why = std::mem::take(&mut self.failures);
        match is_failure && why.len() == 1 && why[0].contains("panicked") {
            true => Ok(()),
            false => Err(format!("{} has ended as if no core had panicked: {why:?}", self.name())),
        }
    }

    /// How it ended, if it did.
    pub(super) fn exited(&mut self) -> Option<String> {
        self.child.try_wait().ok().flatten().map(|status| status.to_string())
    }

    pub(super) fn read_reports(&mut self) {
        while let Ok(report) = self.reports.try_recv() {
            let text = |key: &str| report[key].as_str().unwrap_or_default().to_owned();
            match report["event"].as_str() {
                Some("ready") => self.is_ready = true,
                Some("lost") => self.lost.push(text("reason")),
                Some("disk") => self.disk_errors.push(text("what")),
                Some("failed") => self.failures.push(text("why")),
                Some("stats") => self.counts = numbers(&report),
                Some("stopped") => {
                    self.has_stopped = true;
                    self.counts = numbers(&report["counts"]);
                    self.counters = numbers(&report["counters"]);
                }
                _ => {}
            }
        }
    }

    /// What must not be, since it was taken last.
    pub(super) fn take_failures(&mut self) -> Vec<String> {
        std::mem::take(&mut self.failures).into_iter().map(|why| format!("{}: {why}", self.name())).collect()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill();
    }
}

/// The name of an end in results.
fn name(role: Role, number: usize) -> &'static str {
    match role {
        Role::Target => "target",
        Role::Host => ["host 0", "host 1", "host 2"][number],
    }
}

/// The members of a JSON object that are numbers.
fn numbers(object: &Value) -> BTreeMap<String, u64> {
    let members = object.as_object().into_iter().flatten();
    members.filter_map(|(name, value)| Some((name.clone(), value.as_u64()?))).collect()
}
