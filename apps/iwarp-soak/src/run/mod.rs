//! A run: for each device it starts the ends, injects failures for a while, stops everything in
//! order and decides.
//!
//! What must hold: no end reports a violation, no connection ends that no killed process explains,
//! every end stops in order and holds nothing then, and the memory and descriptors of long-lived
//! ends do not grow.

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

use crate::args::{Args, Device, Role};
use crate::end::DiskState;
use crate::storage::{self, HOSTS};
use configs::Setup;
use failures::{Failure, LINK_DOWN, Step};
use process::{Process, name};

/// The time in which an end starts, with its device.
const START_TIMEOUT: Duration = Duration::from_secs(60);
/// The time in which an end stops after the order.
const STOP_TIMEOUT: Duration = Duration::from_secs(90);
/// The time after a killed process during which connections may end: keep-alive finds a silent peer
/// in 13 s, and the process that replaces it resets connections with outstanding data when they
/// retransmit.
const KILL_AFTERMATH: Duration = Duration::from_secs(30);
/// The time after a fault of the disk during which commands may still fail: what it had, and what
/// it has not synced.
const DISK_AFTERMATH: Duration = Duration::from_secs(5);
/// The interval between two looks at the ends.
const TICK: Duration = Duration::from_millis(50);
/// The time without failures at the start of a device's part, and at its end.
const CALM: Duration = Duration::from_secs(2);
const OPERATIONS: [&str; 8] =
    ["writes", "reads", "atomics", "sends", "immediates", "zeroes", "compares", "flushes"];
/// Operations a second below which a part has not tested anything.
const OPERATIONS_PER_S_MIN: u64 = 10;

/// Runs all devices, prints a line for each, and fails if anything is not as it must be.
pub(crate) fn run(args: &Args) -> Result<(), CliExit> {
    let stop = on_interrupt().map_err(CliExit::Failed)?;
    let seed = match args.seed {
        Some(seed) => seed,
        None => draw_seed().map_err(|error| CliExit::failed(format!("no entropy: {error}")))?,
    };
    print_stdout(format_args!("seed {seed}, {} queue pairs at each end\n", args.queue_pairs));
    let span = Duration::from_secs_f64(args.minutes * 60.0 / args.devices.len() as f64);
    let (mut parts, mut faults) = (Vec::new(), Vec::new());
    for (number, device) in args.devices.iter().enumerate() {
        if stop.load(Ordering::Relaxed) {
            break;
        }
        let part_seed = SeededEntropy::new(seed.wrapping_add(number as u64)).next_u64();
        let outcome = Part::start(args, *device, part_seed).and_then(|mut part| {
            part.run(span, &stop);
            part.finish()
        });
        let (part, part_faults) =
            outcome.map_err(|error| CliExit::failed(format!("{}: {error}", name(*device))))?;
        faults.extend(part_faults.into_iter().map(|fault| format!("{}: {fault}", name(*device))));
        parts.push(part);
    }
    if let Some(path) = &args.json {
        let result =
            json!({ "seed": seed, "queue_pairs": args.queue_pairs, "parts": parts, "faults": faults });
        std::fs::write(path, format!("{result:#}\n"))
            .map_err(|error| CliExit::failed(format!("--json {}: {error}", path.display())))?;
    }
    if faults.is_empty() {
        print_stdout("soak passed\n");
        return Ok(());
    }
    Err(CliExit::failed(format!("{} faults, with seed {seed}:\n  {}", faults.len(), faults.join("\n  "))))
}

fn draw_seed() -> std::io::Result<u64> {
    let mut bytes = [0; 8];
    std::io::Read::read_exact(&mut std::fs::File::open("/dev/urandom")?, &mut bytes)?;
    Ok(u64::from_le_bytes(bytes))
}

/// One device's part of a run.
struct Part {
    device: Device,
    setup: Setup,
    rng: SeededEntropy,
    is_calm: bool,
    queue_pairs: u32,
    started: Instant,
    /// The server and the client, or the process with both.
    ends: Vec<Process>,
    /// Failures that have an end: when, and what ends them.
    pending: VecDeque<(Instant, Step)>,
    injected: BTreeMap<&'static str, u64>,
    last_kill: Option<Instant>,
    last_disk_fault: Option<Instant>,
    is_disk_bad: bool,
    epoch: u64,
    /// Sums over processes that are gone.
    counts: BTreeMap<String, u64>,
    faults: Vec<String>,
}

impl Part {
    fn start(args: &Args, device: Device, seed: u64) -> Result<Self, String> {
        let setup = Setup::new(device, args.queue_pairs)?;
        let mut part = Part {
            device,
            setup,
            rng: SeededEntropy::new(seed),
            is_calm: args.calm,
            queue_pairs: args.queue_pairs,
            started: Instant::now(),
            ends: Vec::new(),
            pending: VecDeque::new(),
            injected: BTreeMap::new(),
            last_kill: None,
            last_disk_fault: None,
            is_disk_bad: false,
            epoch: 0,
            counts: BTreeMap::new(),
            faults: Vec::new(),
        };
        for (role, number) in roles(device) {
            let end = part.start_end(role, number)?;
            part.ends.push(end);
        }
        part.started = Instant::now();
        Ok(part)
    }

    /// Starts an end, waits until its device is open, and lets it begin.
    fn start_end(&mut self, role: Role, number: usize) -> Result<Process, String> {
        let seed = self.rng.next_u64();
        let mut end = Process::start(&self.setup, (role, number), self.queue_pairs, seed)?;
        let deadline = Instant::now() + START_TIMEOUT;
        while end.ready < end.ends() {
            end.read_reports();
            if let Some(why) = end.exited() {
                return Err(format!("{} did not start: {why}", end.name()));
            }
            if Instant::now() > deadline {
                return Err(format!("{} did not start within {START_TIMEOUT:?}", end.name()));
            }
            std::thread::sleep(TICK);
        }
        self.setup.on_opened(role)?;
        end.order("go");
        Ok(end)
    }

    /// Injects failures until the time is over, an end fails, or the run is stopped.
    fn run(&mut self, span: Duration, stop: &AtomicBool) {
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
            if !self.is_calm && now >= next_failure && now + CALM + failures::span_max(self.device) < end {
                let failure = self.draw(now + span / 2 > end);
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

    fn draw(&mut self, is_late: bool) -> Failure {
        match self.device {
            Device::Storage => {
                let before: u64 = self.injected.values().sum();
                failures::draw_storage(&mut self.rng, before as usize, is_late)
            }
            device => failures::draw(&mut self.rng, device),
        }
    }

    /// Begins a failure. Returns how long it lasts.
    fn inject(&mut self, failure: Failure) -> Duration {
        let (first, then, lasts) = failure.steps(&mut self.rng, &self.ends);
        self.apply(first);
        if let Some(step) = then {
            self.pending.push_back((Instant::now() + lasts, step));
        }
        lasts
    }

    fn apply(&mut self, step: Step) {
        // Hosts of storage connect again, so their connections end sooner than a failure is over.
        if self.device == Device::Storage && !matches!(step, Step::Reload | Step::Disk(_) | Step::Reopen) {
            self.last_kill = Some(Instant::now());
        }
        match step {
            Step::Faults(rates) => {
                let line = format!("faults {}", rates.map(|rate| rate.to_string()).join(" "));
                self.ends.iter_mut().for_each(|end| end.order(&line));
            }
            Step::Suspend(end) => self.ends[end].signal(nix::sys::signal::Signal::SIGSTOP),
            Step::Resume(end) => self.ends[end].signal(nix::sys::signal::Signal::SIGCONT),
            Step::Link(up) => {
                if let Err(error) = self.setup.set_link(up) {
                    self.faults.push(error);
                }
            }
            Step::Kill(end) => {
                self.last_kill = Some(Instant::now());
                self.watch();
                let killed = &mut self.ends[end];
                killed.kill();
                if killed.role == Role::Target {
                    return self.target_is_gone();
                }
                add(&mut self.counts, &killed.counts);
                self.faults.extend(
                    killed.samples.growth(killed.role).map(|growth| format!("{}: {growth}", killed.name())),
                );
            }
            Step::Restart(end) => {
                let (role, number) = (self.ends[end].role, self.ends[end].number);
                match self.start_end(role, number) {
                    Ok(process) => self.ends[end] = process,
                    Err(error) => self.faults.push(error),
                }
                self.last_kill = Some(Instant::now());
            }
            Step::Reload => self.ends[0].order("reload"),
            Step::Disk(state) => {
                self.last_disk_fault = Some(Instant::now());
                self.is_disk_bad = state != DiskState::default();
                self.ends[0].order(&state.line());
            }
            Step::Reopen => {
                self.apply(Step::Disk(DiskState::default()));
                self.ends[0].order("reload");
            }
            Step::Panic => {
                self.watch();
                let order = DiskState { panic: true, ..DiskState::default() }.line();
                let ended = self.ends[0].panic(&order);
                self.faults.extend(ended.err());
                self.target_is_gone();
            }
        }
    }

    /// The target has ended, and what was in its memory is lost.
    fn target_is_gone(&mut self) {
        self.epoch += 1;
        let stored = storage::next_epoch(self.setup.folder(), self.epoch);
        self.faults.extend(stored.err().map(|error| format!("epoch: {error}")));
        let target = &mut self.ends[0];
        add(&mut self.counts, &target.counts);
        self.faults
            .extend(target.samples.growth(target.role).map(|growth| format!("{}: {growth}", target.name())));
    }

    /// Reads what the ends report, and looks at their memory.
    fn watch(&mut self) {
        let is_aftermath = self.last_kill.is_some_and(|at| at.elapsed() < KILL_AFTERMATH);
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

    /// Stops the client, then the server; each must release everything. Returns the result and the
    /// faults.
    fn finish(mut self) -> Result<(Value, Vec<String>), String> {
        let seconds = self.started.elapsed().as_secs_f64();
        if self.faults.is_empty() {
            std::thread::sleep(CALM);
        }
        self.watch();
        let mut memory = serde_json::Map::new();
        let mut counters = BTreeMap::new();
        for mut end in std::mem::take(&mut self.ends).into_iter().rev() {
            self.faults
                .extend(end.samples.growth(end.role).map(|growth| format!("{}: {growth}", end.name())));
            memory.insert(end.name().to_owned(), end.samples.json());
            end.order("stop");
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
            if end.stopped < end.ends() {
                let why = end.exited().unwrap_or_default();
                self.faults.push(format!("{} did not stop in order: {why}", end.name()));
            }
            add(&mut self.counts, &end.counts);
            counters.append(&mut end.counters);
        }
        if self.device == Device::Storage && self.faults.is_empty() {
            self.faults.extend(storage::check_disk(self.setup.folder()).err());
        }
        let count = |name: &str| self.counts.get(name).copied().unwrap_or(0);
        let operations: u64 = OPERATIONS.map(count).iter().sum();
        if operations < OPERATIONS_PER_S_MIN * seconds as u64 {
            self.faults.push(format!("{operations} operations in {seconds:.0} s"));
        }
        print_stdout(format_args!(
            "{:<12} {seconds:.0} s: {operations} operations, {:.1} GB, {} connects, {} aborts, {} lost by killed peers, \
             failures {}, memory {}, {}\n",
            name(self.device),
            count("bytes") as f64 / 1e9,
            count("connects"),
            count("aborts"),
            count("lost"),
            failures::text(&self.injected),
            samples::text(&memory),
            if self.faults.is_empty() { "passed" } else { "FAILED" },
        ));
        let part = json!({
            "device": name(self.device),
            "seconds": seconds,
            "operations": operations,
            "counts": self.counts,
            "failures": self.injected,
            "memory": memory,
            "counters": counters,
        });
        Ok((part, self.faults))
    }
}

/// The ends of a device, in the order in which they start, with their numbers among those of the
/// same role.
fn roles(device: Device) -> Vec<(Role, usize)> {
    match device {
        Device::Ring => vec![(Role::Both, 0)],
        Device::Memif | Device::MemifNative | Device::Tap => vec![(Role::Server, 0), (Role::Client, 0)],
        Device::Storage => {
            let hosts = (0..HOSTS as usize).map(|number| (Role::Host, number));
            core::iter::once((Role::Target, 0)).chain(hosts).collect()
        }
    }
}

/// Adds the counts of a process that is gone.
fn add(sum: &mut BTreeMap<String, u64>, counts: &BTreeMap<String, BTreeMap<String, u64>>) {
    // Clients and hosts count operations, and the server or the target the same ones once more.
    for (end, counts) in counts {
        let is_passive = ["server", "target"].contains(&end.as_str());
        for (name, count) in counts {
            let name = if is_passive { format!("{end}: {name}") } else { name.clone() };
            *sum.entry(name).or_default() += count;
        }
    }
}

const _: () = assert!(LINK_DOWN.as_millis() < KILL_AFTERMATH.as_millis());
