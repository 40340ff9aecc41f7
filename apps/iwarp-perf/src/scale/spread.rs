//! `iwarp-perf qp-scale`: the cost of a message when messages are spread over many queue pairs.
//!
//! Writes go round robin over N queue pairs, at most a window of them outstanding. The client is polled before a queue
//! pair gets another Write, so each Write leaves in its own segment, and after each window. One thread runs both ends and
//! both applications, so a message costs the sum of both, and the state of both ends shares one cache. The numbers of
//! queue pairs alternate, round by round.
//!
//! Exit codes: 0 success, 1 the run failed, 2 bad arguments.

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Instant;

use clap::{Parser, value_parser};
use ironwarp::{
    Access, Completion, CompletionStatus, PostError, QpAttr, QueuePair, Region, RemoteMemory, SendWr,
};
use ironwarp_bench::host::{Build, Machine};
use ironwarp_bench::report::SCHEMA;
use ironwarp_cli::{CliExit, parse_args, print_stdout};
use serde::Serialize;

use super::ends::Ends;
use super::{AnyError, median, write_json};

const EXAMPLES: &str = "\
Examples:
  iwarp-perf qp-scale                                          1 to 10 000 queue pairs, 16 Writes outstanding
  iwarp-perf qp-scale --qps 1,100000 --window 1 --json out.json

Exit codes: 0 success, 1 the run failed, 2 bad arguments.";

/// Measures the cost of a small Write over few and many queue pairs
#[derive(Debug, Parser)]
#[command(name = "iwarp-perf qp-scale", bin_name = "iwarp-perf qp-scale", version, after_help = EXAMPLES)]
pub(crate) struct Args {
    /// Numbers of queue pairs. The others are compared with the first
    #[arg(long, short = 'q', value_delimiter = ',', default_value = "1,10,100,1000,10000",
          value_parser = value_parser!(u32).range(1..=131_072))]
    qps: Vec<u32>,
    /// Bytes of a Write
    #[arg(long, short = 's', default_value_t = 64, value_parser = value_parser!(u32).range(1..=256))]
    size: u32,
    /// Writes outstanding on all queue pairs together
    #[arg(long, default_value_t = 16, value_parser = value_parser!(u32).range(1..=64))]
    window: u32,
    /// Writes of a round, at least the number of queue pairs
    #[arg(long, short = 'n', default_value_t = 100_000, value_parser = value_parser!(u32).range(1..=100_000_000))]
    iterations: u32,
    /// Rounds
    #[arg(long, default_value_t = 10, value_parser = value_parser!(u32).range(1..=1000))]
    rounds: u32,
    /// Writes the figures as JSON
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

/// The figures of one number of queue pairs: medians of the rounds.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
struct Figures {
    queue_pairs: u32,
    /// Both ends together.
    ns_per_message: f64,
    /// To the first number of queue pairs, of the same round.
    ratio: f64,
}

/// The JSON of a run.
#[derive(Serialize)]
struct Report {
    schema: u32,
    machine: Machine,
    build: Build,
    bytes: u32,
    window: u32,
    iterations: u32,
    rounds: u32,
    results: Vec<Figures>,
}

/// Measures and prints. `arguments` are those of the program without the word `qp-scale`.
pub fn run(arguments: Vec<OsString>) -> Result<ExitCode, CliExit> {
    let args: Args = parse_args(arguments)?;
    let results = measure(&args).map_err(CliExit::failed)?;
    print_stdout(format_args!("{}", text(&args, &results)));
    let Args { size, window, iterations, rounds, json, .. } = args;
    if let Some(path) = &json {
        let (machine, build) = (Machine::local(), Build::current(crate::parent::FEATURES));
        let report =
            Report { schema: SCHEMA, machine, build, bytes: size, window, iterations, rounds, results };
        write_json(&report, path)?;
    }
    Ok(ExitCode::SUCCESS)
}

fn text(args: &Args, results: &[Figures]) -> String {
    let mut text = format!(
        "Writes of {} B, {} outstanding, both ends in one thread, medians of {} rounds\n{:>12} {:>12} {:>8}\n",
        args.size, args.window, args.rounds, "queue pairs", "ns/message", "ratio"
    );
    for Figures { queue_pairs, ns_per_message, ratio } in results {
        text += &format!("{queue_pairs:>12} {ns_per_message:>12.0} {ratio:>8.2}\n");
    }
    text
}

fn measure(args: &Args) -> Result<Vec<Figures>, AnyError> {
    let mut spreads =
        args.qps.iter().map(|&qps| Spread::open(qps, args)).collect::<Result<Vec<_>, AnyError>>()?;
    let mut ns: Vec<Vec<f64>> = vec![Vec::new(); spreads.len()];
    for _ in 0..args.rounds {
        for (spread, ns) in spreads.iter_mut().zip(&mut ns) {
            ns.push(spread.round(args.iterations)?);
        }
    }
    let first = ns.first().cloned().unwrap_or_default();
    let figures = |(&queue_pairs, ns): (&u32, &Vec<f64>)| Figures {
        queue_pairs,
        ns_per_message: median(ns.clone()),
        ratio: median(ns.iter().zip(&first).map(|(ns, first)| ns / first).collect()),
    };
    Ok(args.qps.iter().zip(&ns).map(figures).collect())
}

/// Connected queue pairs, and the Writes over them.
struct Spread {
    ends: Ends,
    qps: Vec<QueuePair>,
    payload: Vec<u8>,
    remote: RemoteMemory,
    /// The target of all Writes.
    _target: Region,
    window: u32,
    /// The queue pair of the next Write.
    next: usize,
    outstanding: u32,
}

impl Spread {
    fn open(qps: u32, args: &Args) -> Result<Self, AnyError> {
        let mut ends = Ends::open(qps, 2 * args.window)?;
        let attr = |cq| QpAttr {
            send_depth: args.window.div_ceil(qps),
            recv_depth: 1,
            max_sge: 1,
            inline_bytes: args.size as usize,
            ..QpAttr::new(cq)
        };
        let client = ends.client.create_qps(qps, &attr(ends.client.cq))?;
        let server = ends.server.create_qps(qps, &attr(ends.server.cq))?;
        ends.connect(&client, &server)?;
        let bytes = args.size as usize;
        let target = ends.server.context.register(
            ends.server.pd,
            vec![0; bytes],
            Access::LOCAL_WRITE | Access::REMOTE_WRITE,
        )?;
        let remote = RemoteMemory { stag: target.stag(), tagged_offset: target.base_to() };
        let mut spread = Spread {
            ends,
            qps: client,
            payload: vec![0x5a; bytes],
            remote,
            _target: target,
            window: args.window,
            next: 0,
            outstanding: 0,
        };
        // The first round warms up.
        spread.writes(qps.max(args.iterations / 4))?;
        Ok(spread)
    }

    /// Returns the nanoseconds of a message.
    fn round(&mut self, iterations: u32) -> Result<f64, AnyError> {
        let writes = iterations.max(self.qps.len() as u32);
        let start = Instant::now();
        self.writes(writes)?;
        Ok(start.elapsed().as_nanos() as f64 / f64::from(writes))
    }

    #[inline(never)]
    fn writes(&mut self, writes: u32) -> Result<(), AnyError> {
        let mut left = writes;
        while left > 0 || self.outstanding > 0 {
            while left > 0 && self.outstanding < self.window && self.post()? {
                left -= 1;
            }
            self.ends.client.worker.poll(1);
            self.ends.server.worker.poll(1);
            self.ends.client.worker.poll(1);
            self.reap()?;
        }
        Ok(())
    }

    /// Posts a Write to the next queue pair. Polls the client when every queue pair had one. Returns whether the queue pair had room.
    fn post(&mut self) -> Result<bool, AnyError> {
        let write = SendWr::write_inline(1, &self.payload, self.remote);
        match self.ends.client.context.post_send(self.qps[self.next], &write) {
            Err(PostError::QueueFull) => return Ok(false),
            posted => posted?,
        }
        self.outstanding += 1;
        self.next += 1;
        if self.next == self.qps.len() {
            self.next = 0;
            self.ends.client.worker.poll(1);
        }
        Ok(true)
    }

    fn reap(&mut self) -> Result<(), AnyError> {
        let mut completions = [Completion::default(); 64];
        let count = self.ends.client.context.poll_cq(self.ends.client.cq, &mut completions)?;
        for completion in &completions[..count] {
            if completion.status != CompletionStatus::Success {
                return Err(format!("a Write failed: {:?}", completion.status).into());
            }
        }
        self.outstanding -= count as u32;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn writes_go_round_robin_and_all_complete() {
        let args = Args::parse_from(["x", "--qps", "3", "--window", "8", "--iterations", "100"]);
        let mut spread = Spread::open(3, &args).expect("two stacks");
        spread.writes(100).expect("they complete");
        assert_eq!((spread.outstanding, spread.next), (0, (25 + 100) % 3));
    }
}
