//! From options to cases: options that a command does not take, defaults, and limits.

use std::ops::RangeInclusive;
use std::time::Duration;

use ironwarp_bench::rounds::RoundPlan;
use ironwarp_bench::{Budget, Case, PathKind, Test, Transport, Wait, WordOwner};

use super::{Args, AtomicsArg, CliExit, Command};
use crate::plan::Intervals;
use crate::rdma::QueueSizes;

/// Limits of a case, from the command line or from another machine. A number is in the units of its option.
pub const BYTES: RangeInclusive<u64> = 1..=1 << 30;
pub const QPS: RangeInclusive<i64> = 1..=1024;
pub const DEPTH: RangeInclusive<i64> = 1..=4096;
/// Connections of conn-rate at a time: the default of `limits.half_open` at the server.
pub const CONNECTIONS: RangeInclusive<u32> = 1..=256;
/// Connections of conn-rate at a time without `--depth`.
const DEFAULT_CONNECTIONS: u32 = 16;
pub const POST_LIST: RangeInclusive<i64> = 1..=64;
pub const SIGNAL_EVERY: RangeInclusive<i64> = 1..=64;
pub const INLINE: RangeInclusive<i64> = 0..=256;
pub const WORDS: RangeInclusive<i64> = 1..=65_536;
/// Bytes of memory that an end may register for one case.
const MEMORY_MAX: u64 = 1 << 30;
/// Receives that a shared receive queue of the library may have.
const SRQ_DEPTH_MAX: u64 = 65_536;
/// The interval of `--run-infinitely` in seconds, as in perftest.
const DEFAULT_INTERVAL_S: f64 = 5.0;
/// The powers of two of `--all-sizes`, as in perftest.
const ALL_SIZES: RangeInclusive<u32> = 1..=23;

impl Command {
    /// Returns whether an option has a meaning for this command.
    fn takes(self, option: &str) -> bool {
        let always = matches!(option, "config" | "port" | "warmup" | "log");
        let both_ends = always || matches!(option, "pair" | "json" | "hdr" | "html" | "format");
        match self {
            Command::Test(test) => test_takes(test, option),
            Command::Suite => both_ends || option == "quick",
            Command::Scaling => {
                both_ends || matches!(option, "size" | "duration" | "iterations" | "mtu" | "cores")
            }
            Command::Atomics => both_ends || matches!(option, "duration" | "iterations" | "mtu" | "cores"),
            Command::Server => {
                always || matches!(option, "pcap" | "clients" | "client-timeout" | "slice-limit" | "memory")
            }
        }
    }
}

fn test_takes(test: Test, option: &str) -> bool {
    let (rdma, tcp) = (test.transport() == Transport::Ironwarp, test.transport() == Transport::KernelTcp);
    let (latency, atomic) = (test.is_latency(), test.is_atomic());
    let read = matches!(test, Test::ReadLat | Test::ReadBw | Test::ReadWriteBw);
    let one_connection_each =
        ["qps", "all-sizes", "events", "post-list", "signal-every", "bidirectional", "validate"];
    if test.is_connection_setup() && one_connection_each.contains(&option) {
        return false;
    }
    match option {
        "size" | "all-sizes" => test.fixed_bytes().is_none(),
        "operation" | "words" | "atomics" | "owner" => atomic,
        "qps" | "cores" | "events" | "connect" | "app-core" | "markers" | "no-crc" => rdma,
        "depth" => rdma && !latency,
        "post-list" | "signal-every" | "bidirectional" => rdma && !latency && !atomic,
        "inline" => rdma && !read && !atomic && !test.is_immediate() && test != Test::SendInvLat,
        "rate" => rdma && !(atomic && latency),
        // A Write and a Read alternately use the same memory.
        "validate" => test.transport() != Transport::Frames && test != Test::ReadWriteBw,
        "srq" => rdma && test.has_receives(),
        // perftest has no test of connection set-up.
        "format" => test != Test::ConnRate,
        "wait" | "path" => tcp,
        "pair" | "pcap" | "stats-page" => !tcp,
        "quick" | "port" | "clients" | "client-timeout" | "slice-limit" | "memory" => false,
        _ => true,
    }
}

impl Args {
    /// Rejects options that do not apply to the command.
    pub fn check(&self) -> Result<(), CliExit> {
        let (command, config) = (self.command, self.config.is_some());
        let is_rdma = command.test().is_some_and(|test| test.transport() == Transport::Ironwarp);
        let problem = match self.cores {
            Some(cores) if cores > 1 && config => format!(
                "--cores {cores}: 1 with --config; several polled cores are measured with both ends on one machine: use \
                 --pair"
            ),
            _ if command == Command::Server => return self.check_server(),
            _ if self.connect.is_some() && !is_rdma => format!(
                "--connect: {command} is measured with both ends on one machine: use --pair, without --connect"
            ),
            _ if config && self.connect.is_none() => format!(
                "--config: {command} needs --connect ADDR; --pair runs both ends here without a configuration"
            ),
            _ => return self.check_options(),
        };
        Err(problem.into())
    }

    fn check_server(&self) -> Result<(), CliExit> {
        self.check_options()?;
        match self.config {
            Some(_) => Ok(()),
            None => Err("server needs --config FILE, the device and address of this end".to_owned().into()),
        }
    }

    fn check_options(&self) -> Result<(), CliExit> {
        match self.given.iter().find(|option| !self.command.takes(option)) {
            Some(option) => Err(format!("--{option} does not apply to {}", self.command).into()),
            None => Ok(()),
        }
    }

    /// Returns the cases of a single test over a device, one for each size.
    pub fn cases(&self, test: Test, device: PathKind) -> Result<Vec<Case>, CliExit> {
        if self.owner == WordOwner::Remote && self.cores.is_none_or(|cores| cores == 1) {
            let line = "--owner remote: needs --cores 2 or more, because a single core owns every word";
            return Err(line.to_owned().into());
        }
        if self.srq && self.cores.is_some_and(|cores| cores > 1) {
            let line = "--srq: needs one polled core at each end, because each core has receives of its own";
            return Err(line.to_owned().into());
        }
        let default_bytes = match test {
            Test::ConnRate => 0,
            test if test.is_latency() => 64,
            _ => 64 << 10,
        };
        let bytes = test.fixed_bytes().or(self.size).unwrap_or(default_bytes);
        let sizes: Vec<u64> = match self.all_sizes {
            true => ALL_SIZES.map(|power| 1 << power).filter(|&bytes| bytes >= test.bytes_min()).collect(),
            false => vec![bytes],
        };
        let cases: Vec<Case> = sizes.into_iter().map(|bytes| self.case(test, bytes, device)).collect();
        cases.iter().try_for_each(check_limits)?;
        Ok(cases)
    }

    fn case(&self, test: Test, bytes: u64, device: PathKind) -> Case {
        let path = if test.transport() == Transport::KernelTcp { self.path } else { device };
        let streaming_depth = || self.depth.unwrap_or_else(|| Case::streaming_depth(bytes));
        let depth = match test {
            Test::ConnRate => self.depth.unwrap_or(DEFAULT_CONNECTIONS),
            test if test.is_latency() => 1,
            _ => streaming_depth(),
        };
        Case {
            wait: if self.events { Wait::Block } else { self.wait },
            qps: self.qps,
            depth,
            post_list: self.post_list.min(depth),
            signal_every: self.signal_every,
            inline: self.inline,
            bidirectional: self.bidirectional,
            rate: self.rate,
            validate: self.validate,
            srq: self.srq,
            operation: test.is_atomic().then_some(self.operation),
            locked: self.atomics == AtomicsArg::Locked,
            words: self.words,
            owner: self.owner,
            cores: self.cores.unwrap_or(1).into(),
            ..Case::new(test, bytes, self.mtu, path)
        }
    }

    /// Returns the intervals of a run that prints them.
    pub fn intervals(&self) -> Result<Option<Intervals>, CliExit> {
        if self.interval.is_none() && !self.run_infinitely {
            return Ok(None);
        }
        let length = Duration::from_secs_f64(self.interval.unwrap_or(DEFAULT_INTERVAL_S));
        let total = self.budget().duration.unwrap_or_default();
        if self.run_infinitely {
            return Ok(Some(Intervals { length, count: RoundPlan::UNLIMITED }));
        }
        if length > total {
            let (length, total) = (length.as_secs_f64(), total.as_secs_f64());
            return Err(format!("--interval {length}: at most the duration, which is {total} seconds").into());
        }
        Ok(Some(Intervals { length, count: total.div_duration_f64(length).ceil() as u32 }))
    }

    /// Returns how long to measure each case.
    pub fn budget(&self) -> Budget {
        let default = if self.all_sizes { 0.5 } else { 2.0 };
        match self.iterations {
            Some(iterations) => Budget::iterations(iterations, self.warmup),
            None => Budget::duration(Duration::from_secs_f64(self.duration.unwrap_or(default)), self.warmup),
        }
    }
}

/// Checks a case that another machine asks for like a case from the command line.
pub fn check_case(case: &Case) -> Result<(), String> {
    let is_bare_connection = case.test.is_connection_setup() && case.bytes == 0;
    let in_range = (BYTES.contains(&case.bytes) || is_bare_connection)
        && QPS.contains(&case.qps.into())
        && DEPTH.contains(&case.depth.into())
        && POST_LIST.contains(&case.post_list.into())
        && SIGNAL_EVERY.contains(&case.signal_every.into())
        && INLINE.contains(&case.inline.into())
        && WORDS.contains(&case.words.into());
    let consistent = case.post_list <= case.depth
        && case.test.fixed_bytes().is_none_or(|bytes| bytes == case.bytes)
        && case.test.is_atomic() == case.operation.is_some()
        && (!case.srq || case.test.has_receives());
    if !in_range || !consistent {
        return Err("a number of the case is out of its range".to_owned());
    }
    check_limits(case)
}

fn check_limits(case: &Case) -> Result<(), String> {
    check_size(case)?;
    check_memory(case)?;
    check_signals(case)?;
    check_connections(case)?;
    check_srq(case)
}

fn check_size(case: &Case) -> Result<(), String> {
    let (test, bytes, least) = (case.test, case.bytes, case.test.bytes_min());
    if bytes >= least || test.is_connection_setup() {
        return Ok(());
    }
    Err(format!("--size {bytes}: {test} takes {least} bytes or more, because messages hold a steering tag"))
}

fn check_memory(case: &Case) -> Result<(), String> {
    // A validated message keeps its slot until it is checked; 8 more slots are spare.
    let slots = if case.validate { u64::from(case.depth) + 8 } else { 1 };
    let bytes = case.bytes.saturating_mul(slots).saturating_mul(case.qps.into());
    if bytes <= MEMORY_MAX {
        return Ok(());
    }
    let product = if case.validate { "--size × --qps × --depth" } else { "--size × --qps" };
    Err(format!("{product} = {bytes} bytes: at most {MEMORY_MAX} bytes of memory at each end"))
}

fn check_connections(case: &Case) -> Result<(), String> {
    if !case.test.is_connection_setup() || CONNECTIONS.contains(&case.depth) {
        return Ok(());
    }
    let (test, depth, most) = (case.test, case.depth, CONNECTIONS.end());
    Err(format!("--depth {depth}: {test} takes 1 to {most} connections at a time"))
}

/// A shared receive queue holds the receives of all queue pairs.
fn check_srq(case: &Case) -> Result<(), String> {
    let receives = QueueSizes::of(case).shared_receives(case);
    if !case.srq || receives <= SRQ_DEPTH_MAX {
        return Ok(());
    }
    Err(format!(
        "--srq: --qps × --depth need {receives} receives; a shared receive queue holds {SRQ_DEPTH_MAX}"
    ))
}

fn check_signals(case: &Case) -> Result<(), String> {
    let (every, depth) = (case.signal_every, case.depth);
    if every <= depth || case.test.is_latency() {
        return Ok(());
    }
    Err(format!("--signal-every {every}: at most the depth, which is {depth}"))
}
