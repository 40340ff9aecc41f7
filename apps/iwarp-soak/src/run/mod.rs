//! A run: it starts the ends, injects failures for a while, stops everything in order and decides.
//!
//! What must hold: no end reports a violation, no connection ends that no failure explains, every
//! end stops in order and holds nothing then, the file of a namespace has what was confirmed, and
//! the memory and descriptors of long-lived ends do not grow.

mod configs;
mod failures;
mod process;
mod samples;

use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use ironwarp_cli::{CliExit, on_interrupt, print_stdout};
use ironwarp_types::{Entropy, SeededEntropy};
use serde_json::{Value, json};

use crate::args::{Args, Role};
use crate::end::{self, DiskState, HOSTS, Order};
use configs::Setup;
use failures::{Failure, SPAN_MAX, Step};
use process::Process;

/// The time in which an end starts, with its device.
const START_TIMEOUT: Duration = Duration::from_secs(60);
/// The time in which an end stops after the order.
const STOP_TIMEOUT: Duration = Duration::from_secs(90);
/// The time after a failure of a link or a process during which connections may end: keep-alive
/// finds a silent peer in 8 s, and the process that replaces it resets connections with outstanding
/// data when they retransmit.
const AFTERMATH: Duration = Duration::from_secs(30);
/// The time after a fault of the disk during which commands may still fail: what it had, and what
/// it has not synced.
const DISK_AFTERMATH: Duration = Duration::from_secs(5);
/// The interval between two looks at the ends.
const TICK: Duration = Duration::from_millis(50);
/// The time without failures at the start, and at the end.
const CALM: Duration = Duration::from_secs(2);
const OPERATIONS: [&str; 5] = ["writes", "reads", "zeroes", "compares", "flushes"];
/// Operations a second below which a run has not tested anything.
const OPERATIONS_PER_S_MIN: u64 = 10;

/// Runs it, prints a line, and fails if anything is not as it must be.
pub(crate) fn run(args: &Args) -> Result<(), CliExit> {
    let stop = on_interrupt().map_err(CliExit::Failed)?;
    let seed = match args.seed {
        Some(seed) => seed,
        None => getrandom::u64().map_err(|error| CliExit::failed(format!("no entropy: {error}")))?,
    };
    print_stdout(format_args!("seed {seed}\n"));
    let mut run = Run::start(args.calm, seed).map_err(CliExit::failed)?;
    run.work(Duration::from_secs_f64(args.minutes * 60.0), &stop);
    let (mut result, faults) = run.finish();
    if let Some(path) = &args.json {
        (result["seed"], result["faults"]) = (seed.into(), json!(faults));
        std::fs::write(path, format!("{result:#}\n"))
            .map_err(|error| CliExit::failed(format!("--json {}: {error}", path.display())))?;
    }
    if faults.is_empty() {
        print_stdout("soak passed\n");
        return Ok(());
    }
    Err(CliExit::failed(format!("{} faults, with seed {seed}:\n  {}", faults.len(), faults.join("\n  "))))
}

struct Run {
    setup: Setup,
    rng: SeededEntropy,
    is_calm: bool,
    started: Instant,
    /// The target, then the hosts.
    ends: Vec<Process>,
    /// Failures that have an end: when, and what ends them.
    pending: VecDeque<(Instant, Step)>,
    injected: BTreeMap<&'static str, u64>,
    last_failure: Option<Instant>,
    last_disk_fault: Option<Instant>,
    is_disk_bad: bool,
    epoch: u64,
    /// Sums over processes that are gone.
    counts: BTreeMap<String, u64>,
    faults: Vec<String>,
}

impl Run {
    fn start(is_calm: bool, seed: u64) -> Result<Self, String> {
        let mut run = Run {
            setup: Setup::new()?,
            rng: SeededEntropy::new(seed),
            is_calm,
            started: Instant::now(),
            ends: Vec::new(),
            pending: VecDeque::new(),
            injected: BTreeMap::new(),
            last_failure: None,
            last_disk_fault: None,
            is_disk_bad: false,
            epoch: 0,
            counts: BTreeMap::new(),
            faults: Vec::new(),
        };
        let hosts = (0..HOSTS).map(|number| (Role::Host, number));
        for (role, number) in core::iter::once((Role::Target, 0)).chain(hosts) {
            let end = run.start_end(role, number)?;
            run.ends.push(end);
        }
        run.started = Instant::now();
        Ok(run)
    }

    /// Starts an end, waits until its device is open, and lets it begin.
    fn start_end(&mut self, role: Role, number: usize) -> Result<Process, String> {
        let seed = self.rng.next_u64();
        let mut end = Process::start(&self.setup, (role, number), seed)?;
        let deadline = Instant::now() + START_TIMEOUT;
        while !end.is_ready {
            end.read_reports();
            if let Some(why) = end.exited() {
                return Err(format!("{} did not start: {why}", end.name()));
            }
            if Instant::now() > deadline {
                return Err(format!("{} did not start within {START_TIMEOUT:?}", end.name()));
            }
            std::thread::sleep(TICK);
        }
        end.order(Order::Go);
        Ok(end)
    }

    /// Injects failures until the time is over, an end fails, or the run is stopped.
    fn work(&mut self, span: Duration, stop: &AtomicBool) {
        let end = self.started + span;
        let mut next_failure = self.started + CALM;
        while Instant::now() < end && !stop.load(Ordering::Relaxed) && self.faults.is_empty() {
            std::thread::sleep(TICK);
            self.watch();
            let now = Instant::now();
            while self.pending.front().is_some_and(|(at, _)| *at <= now) {
                if let Some((_, step)) = self.pending.pop_front() {
                    self.apply(step);
                }
            }
            if !self.is_calm && now >= next_failure && now + CALM + SPAN_MAX < end {
                let before: u64 = self.injected.values().sum();
                let failure = failures::draw(&mut self.rng, before as usize, now + span / 2 > end);
                *self.injected.entry(failure.name()).or_default() += 1;
                let lasts = self.inject(failure);
                next_failure = Instant::now() + lasts + Duration::from_millis(500 + self.rng.below(2500));
            }
        }
        // What is under way ends at once.
        for (_, step) in std::mem::take(&mut self.pending) {
            self.apply(step);
        }
    }

    /// Begins a failure. Returns how long it lasts.
    fn inject(&mut self, failure: Failure) -> Duration {
        let (first, then, lasts) = failure.steps(&mut self.rng);
        self.apply(first);
        if let Some(step) = then {
            self.pending.push_back((Instant::now() + lasts, step));
        }
        lasts
    }

    fn apply(&mut self, step: Step) {
        // Hosts connect again, so their connections end sooner than a failure is over.
        if !matches!(step, Step::Reload | Step::Disk(_) | Step::Reopen) {
            self.last_failure = Some(Instant::now());
        }
        match step {
            Step::Faults(rates) => self.ends.iter_mut().for_each(|end| end.order(Order::Faults(rates))),
            Step::Suspend(end) => self.ends[end].signal(nix::sys::signal::Signal::SIGSTOP),
            Step::Resume(end) => self.ends[end].signal(nix::sys::signal::Signal::SIGCONT),
            Step::Kill(end) => {
                self.watch();
                self.ends[end].kill();
                self.end_is_gone(end);
            }
            Step::Restart(end) => {
                let (role, number) = (self.ends[end].role, self.ends[end].number);
                match self.start_end(role, number) {
                    Ok(process) => self.ends[end] = process,
                    Err(error) => self.faults.push(error),
                }
                self.last_failure = Some(Instant::now());
            }
            Step::Reload => self.ends[0].order(Order::Reload),
            Step::Disk(state) => {
                self.last_disk_fault = Some(Instant::now());
                self.is_disk_bad = state != DiskState::default();
                self.ends[0].order(Order::Disk(state));
            }
            Step::Reopen => {
                self.apply(Step::Disk(DiskState::default()));
                self.ends[0].order(Order::Reload);
            }
            Step::Panic => {
                self.watch();
                self.faults.extend(self.ends[0].panic().err());
                self.end_is_gone(0);
            }
        }
    }

    /// An end has ended, and what was in its memory is lost.
    fn end_is_gone(&mut self, number: usize) {
        let end = &mut self.ends[number];
        add(&mut self.counts, end);
        self.faults.extend(end.samples.growth().map(|growth| format!("{}: {growth}", end.name())));
        if end.role == Role::Target {
            self.epoch += 1;
            let stored = end::next_epoch(self.setup.folder(), self.epoch);
            self.faults.extend(stored.err().map(|error| format!("epoch: {error}")));
        }
    }

    /// Reads what the ends report, and looks at their memory.
    fn watch(&mut self) {
        let is_aftermath = self.last_failure.is_some_and(|at| at.elapsed() < AFTERMATH);
        let disk_may_fail =
            self.is_disk_bad || self.last_disk_fault.is_some_and(|at| at.elapsed() < DISK_AFTERMATH);
        for end in self.ends.iter_mut().filter(|end| !end.is_killed) {
            end.read_reports();
            end.sample();
            self.faults.extend(end.take_failures());
            let disk_errors = std::mem::take(&mut end.disk_errors);
            if !disk_may_fail {
                let fault = |what: &String| format!("{}: the disk was good, but failed {what}", end.name());
                self.faults.extend(disk_errors.iter().map(fault));
            }
            let lost = std::mem::take(&mut end.lost);
            if !is_aftermath {
                self.faults
                    .extend(lost.iter().map(|reason| format!("{} lost a connection: {reason}", end.name())));
            }
            if let Some(why) = end.exited() {
                self.faults.push(format!("{} ended: {why}", end.name()));
            }
        }
    }

    /// Stops the hosts, then the target; each must release everything. Returns the result and the
    /// faults.
    fn finish(mut self) -> (Value, Vec<String>) {
        let seconds = self.started.elapsed().as_secs_f64();
        if self.faults.is_empty() {
            std::thread::sleep(CALM);
        }
        self.watch();
        let mut memory = serde_json::Map::new();
        let mut counters = BTreeMap::new();
        for mut end in std::mem::take(&mut self.ends).into_iter().rev() {
            self.faults.extend(end.samples.growth().map(|growth| format!("{}: {growth}", end.name())));
            memory.insert(end.name().to_owned(), end.samples.json());
            end.order(Order::Stop);
            let deadline = Instant::now() + STOP_TIMEOUT;
            while end.exited().is_none() {
                end.read_reports();
                if Instant::now() > deadline {
                    self.faults.push(format!("{} does not stop", end.name()));
                    end.kill();
                }
                std::thread::sleep(TICK);
            }
            end.read_reports();
            self.faults.extend(end.take_failures());
            if !end.has_stopped {
                let why = end.exited().unwrap_or_default();
                self.faults.push(format!("{} did not stop in order: {why}", end.name()));
            }
            add(&mut self.counts, &end);
            counters.insert(end.name(), std::mem::take(&mut end.counters));
        }
        if self.faults.is_empty() {
            self.faults.extend(end::check_disk(self.setup.folder()).err());
        }
        let count = |name: &str| self.counts.get(name).copied().unwrap_or(0);
        let operations: u64 = OPERATIONS.map(count).iter().sum();
        if operations < OPERATIONS_PER_S_MIN * seconds as u64 {
            self.faults.push(format!("{operations} operations in {seconds:.0} s"));
        }
        print_stdout(format_args!(
            "{seconds:.0} s: {operations} operations, {:.1} GB, {} connects, {} lost, failures {}, memory {}, {}\n",
            count("bytes") as f64 / 1e9,
            count("connects"),
            count("lost"),
            failures::text(&self.injected),
            samples::text(&memory),
            if self.faults.is_empty() { "passed" } else { "FAILED" },
        ));
        let result = json!({
            "seconds": seconds,
            "operations": operations,
            "counts": self.counts,
            "failures": self.injected,
            "memory": memory,
            "counters": counters,
        });
        (result, self.faults)
    }
}

/// Adds the counts of a process that is gone.
fn add(sum: &mut BTreeMap<String, u64>, end: &Process) {
    // Hosts count operations, and the target the same ones once more.
    for (name, count) in &end.counts {
        let name = if end.role == Role::Target { format!("target: {name}") } else { name.clone() };
        *sum.entry(name).or_default() += count;
    }
}
