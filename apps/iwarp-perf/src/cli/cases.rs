//! From options to cases: options that a command does not take, and defaults.

use std::ops::RangeInclusive;
use std::time::Duration;

use ironwarp_bench::rounds::RoundPlan;
use ironwarp_bench::{Budget, Case, PathKind, Test, Transport, Wait, WordOwner};

use super::{Args, AtomicsArg, CliExit, Command};
use crate::limits::check_limits;
use crate::plan::Intervals;

/// Connections of conn-rate at a time without `--depth`.
const DEFAULT_CONNECTIONS: u32 = 16;
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
            Command::Suite => both_ends || matches!(option, "quick" | "iterations"),
            Command::Scaling => {
                both_ends || matches!(option, "size" | "duration" | "iterations" | "mtu" | "cores")
            }
            Command::Atomics => both_ends || matches!(option, "duration" | "iterations" | "mtu" | "cores"),
            Command::Cores => both_ends || matches!(option, "quick" | "oversubscribe" | "duration" | "cores"),
            Command::Server => always || matches!(option, "pcap" | "client-timeout" | "slice-limit"),
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
        "qps" | "cores" | "events" | "connect" | "app-core" | "markers" | "no-crc" | "transport" => rdma,
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
        "quick" | "oversubscribe" | "port" | "client-timeout" | "slice-limit" => false,
        _ => true,
    }
}

impl Args {
    /// Rejects options that do not apply to the command.
    pub fn check(&self) -> Result<(), CliExit> {
        let (command, config) = (self.command, self.config.is_some());
        let (is_server, connects) = (command == Command::Server, self.connect.is_some());
        let is_rdma = command.test().is_some_and(|test| test.transport() == Transport::Ironwarp);
        let cores = self.cores.unwrap_or(1);
        let other = self.given.iter().find(|option| !command.takes(option));
        let problem = if cores > 1 && config {
            format!(
                "--cores {cores}: 1 with --config; several polled cores are measured with both ends on one machine: use \
                 --pair"
            )
        } else if !is_server && connects && !is_rdma {
            format!(
                "--connect: {command} is measured with both ends on one machine: use --pair, without --connect"
            )
        } else if !is_server && config && !connects {
            format!(
                "--config: {command} needs --connect ADDR; --pair runs both ends here without a configuration"
            )
        } else if let Some(option) = other {
            format!("--{option} does not apply to {command}")
        } else if is_server && !config {
            "server needs --config FILE, the device and address of this end".to_owned()
        } else {
            return Ok(());
        };
        Err(problem.into())
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
        let default = match (self.command, self.quick) {
            (Command::Cores, true) => 0.6,
            (Command::Cores, false) => 4.0,
            _ if self.all_sizes => 0.5,
            _ => 2.0,
        };
        match self.iterations {
            Some(iterations) => Budget::iterations(iterations, self.warmup),
            None => Budget::duration(Duration::from_secs_f64(self.duration.unwrap_or(default)), self.warmup),
        }
    }
}
