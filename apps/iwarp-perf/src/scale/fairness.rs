//! `iwarp-perf qp-fairness`: small Writes of one queue pair beside bulk Writes of others on the same core.
//!
//! Two stacks of one process are joined by in-memory ports, one thread each. A round has two slices. In the first the small
//! Writes run alone, one at a time. In the second every bulk queue pair has two large Writes outstanding. The latency of a
//! small Write is the time from its post to its completion: the peer has acknowledged it.
//!
//! Exit codes: 0 success, 1 the run failed, 2 bad arguments.

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use clap::{Parser, value_parser};
use ironwarp::{Access, Completion, CompletionStatus, QpAttr, QueuePair, Region, RemoteMemory, SendWr};
use ironwarp_bench::host::{Build, Machine};
use ironwarp_bench::report::SCHEMA;
use ironwarp_bench::{Latency, nanos};
use ironwarp_cli::{CliExit, parse_args, print_stdout};
use serde::Serialize;

use super::ends::{End, Ends};
use super::{AnyError, median, write_json};

const EXAMPLES: &str = "\
Examples:
  iwarp-perf qp-fairness                          64 B Writes beside one queue pair with 1 MiB Writes
  iwarp-perf qp-fairness --bulk-qps 4 --bulk-size 65536 --json out.json

Exit codes: 0 success, 1 the run failed, 2 bad arguments.";

/// Measures the latency of small Writes beside bulk Writes of other queue pairs on the same core
#[derive(Debug, Parser)]
#[command(name = "iwarp-perf qp-fairness", bin_name = "iwarp-perf qp-fairness", version, after_help = EXAMPLES)]
pub(crate) struct Args {
    /// Bytes of a small Write
    #[arg(long, short = 's', default_value_t = 64, value_parser = value_parser!(u32).range(1..=256))]
    size: u32,
    /// Bytes of a bulk Write
    #[arg(long, default_value_t = 1 << 20, value_parser = value_parser!(u32).range(1..=1 << 26))]
    bulk_size: u32,
    /// Queue pairs with bulk Writes
    #[arg(long, default_value_t = 1, value_parser = value_parser!(u32).range(1..=64))]
    bulk_qps: u32,
    /// Small Writes of a slice
    #[arg(long, short = 'n', default_value_t = 10_000, value_parser = value_parser!(u32).range(1..=10_000_000))]
    iterations: u32,
    /// Rounds
    #[arg(long, default_value_t = 10, value_parser = value_parser!(u32).range(1..=1000))]
    rounds: u32,
    /// Writes the figures as JSON
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

/// The latencies of a slice in nanoseconds.
#[derive(Clone, Copy, PartialEq, Debug, Default, Serialize)]
struct Figures {
    p50_ns: f64,
    p99_ns: f64,
}

/// Medians of the rounds.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
struct Results {
    alone: Figures,
    beside_bulk: Figures,
    /// Of the p99, to the slice of the same round without bulk Writes.
    p99_ratio: f64,
    bulk_gbit_per_s: f64,
}

/// The JSON of a run.
#[derive(Serialize)]
struct Report {
    schema: u32,
    machine: Machine,
    build: Build,
    bytes: u32,
    bulk_bytes: u32,
    bulk_queue_pairs: u32,
    iterations: u32,
    rounds: u32,
    results: Results,
}

/// Outstanding Writes of a bulk queue pair.
const BULK_DEPTH: u32 = 2;
/// A small Write completes in microseconds.
const WRITE_TIMEOUT: Duration = Duration::from_secs(20);
/// The request id of a small Write. A bulk Write has the index of its queue pair.
const SMALL_ID: u64 = u64::MAX;

/// Measures and prints. `arguments` are those of the program without the word `qp-fairness`.
pub fn run(arguments: Vec<OsString>) -> Result<ExitCode, CliExit> {
    let args: Args = parse_args(arguments)?;
    let results = measure(&args).map_err(CliExit::failed)?;
    let Results { alone, beside_bulk, p99_ratio, bulk_gbit_per_s } = results;
    print_stdout(format_args!(
        "Writes of {} B beside {} queue pairs with Writes of {} B, medians of {} rounds\n\
         {:>12} {:>10} {:>10}\n{:>12} {:>10.0} {:>10.0}\n{:>12} {:>10.0} {:>10.0}\n\
         p99 ratio {p99_ratio:.2}, bulk {bulk_gbit_per_s:.2} Gbit/s\n",
        args.size,
        args.bulk_qps,
        args.bulk_size,
        args.rounds,
        "",
        "p50 ns",
        "p99 ns",
        "alone",
        alone.p50_ns,
        alone.p99_ns,
        "beside bulk",
        beside_bulk.p50_ns,
        beside_bulk.p99_ns,
    ));
    if let Some(path) = &args.json {
        write_json(&report(&args, results), path)?;
    }
    Ok(ExitCode::SUCCESS)
}

fn report(args: &Args, results: Results) -> Report {
    Report {
        schema: SCHEMA,
        machine: Machine::local(),
        build: Build::current(crate::parent::FEATURES),
        bytes: args.size,
        bulk_bytes: args.bulk_size,
        bulk_queue_pairs: args.bulk_qps,
        iterations: args.iterations,
        rounds: args.rounds,
        results,
    }
}

fn measure(args: &Args) -> Result<Results, AnyError> {
    let (mut client, mut server) = Client::open(args)?;
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !is_over.load(Ordering::Relaxed) {
                server.worker.poll(1);
            }
        });
        let results = client.rounds(args);
        is_over.store(true, Ordering::Relaxed);
        results
    })
}

/// The client: its queue pairs, and the outstanding Writes.
struct Client {
    end: End,
    small: QueuePair,
    bulk: Vec<QueuePair>,
    payload: Vec<u8>,
    source: Region,
    remote: RemoteMemory,
    /// The target of all Writes.
    _target: Region,
    bulk_size: u32,
    /// Bulk Writes that have completed.
    bulk_done: u64,
    /// Completed bulk Writes are posted again.
    is_bulk_on: bool,
    /// Bulk Writes outstanding.
    outstanding: u32,
}

impl Client {
    /// Opens both ends, connected. The server is to be polled.
    fn open(args: &Args) -> Result<(Self, End), AnyError> {
        let qps = args.bulk_qps + 1;
        let mut ends = Ends::open(qps, 2 * BULK_DEPTH * qps)?;
        let attr = |cq| QpAttr { send_depth: BULK_DEPTH, recv_depth: 1, max_sge: 1, ..QpAttr::new(cq) };
        let mut client = ends.client.create_qps(qps, &attr(ends.client.cq))?;
        let server = ends.server.create_qps(qps, &attr(ends.server.cq))?;
        ends.connect(&client, &server)?;
        let bytes = args.bulk_size.max(args.size) as usize;
        let rights = Access::LOCAL_WRITE | Access::REMOTE_WRITE;
        let target = ends.server.context.register(ends.server.pd, vec![0; bytes], rights)?;
        let source = ends.client.context.register(ends.client.pd, vec![0x5a; bytes], Access::empty())?;
        let remote = RemoteMemory { stag: target.stag(), tagged_offset: target.base_to() };
        let Ends { client: end, server } = ends;
        let bulk = client.split_off(1);
        let client = Client {
            end,
            small: client[0],
            bulk,
            payload: vec![0x5a; args.size as usize],
            source,
            remote,
            _target: target,
            bulk_size: args.bulk_size,
            bulk_done: 0,
            is_bulk_on: false,
            outstanding: 0,
        };
        Ok((client, server))
    }

    fn rounds(&mut self, args: &Args) -> Result<Results, AnyError> {
        self.slice(args.iterations / 4)?;
        let (mut alone, mut beside, mut gbit) = (Vec::new(), Vec::new(), Vec::new());
        for _ in 0..args.rounds {
            alone.push(self.slice(args.iterations)?);
            self.start_bulk()?;
            let (start, before) = (Instant::now(), self.bulk_done);
            beside.push(self.slice(args.iterations)?);
            let bits = (self.bulk_done - before) as f64 * f64::from(self.bulk_size) * 8.0;
            gbit.push(bits / start.elapsed().as_nanos() as f64);
            self.stop_bulk()?;
        }
        let of =
            |slices: &[Figures], figure: fn(&Figures) -> f64| median(slices.iter().map(figure).collect());
        let figures = |slices: &[Figures]| Figures {
            p50_ns: of(slices, |slice| slice.p50_ns),
            p99_ns: of(slices, |slice| slice.p99_ns),
        };
        let ratios = alone.iter().zip(&beside).map(|(alone, beside)| beside.p99_ns / alone.p99_ns);
        Ok(Results {
            alone: figures(&alone),
            beside_bulk: figures(&beside),
            p99_ratio: median(ratios.collect()),
            bulk_gbit_per_s: median(gbit),
        })
    }

    /// Small Writes, one at a time.
    fn slice(&mut self, writes: u32) -> Result<Figures, AnyError> {
        let mut latency = Latency::new();
        for _ in 0..writes {
            let start = Instant::now();
            let write = SendWr::write_inline(SMALL_ID, &self.payload, self.remote);
            self.end.context.post_send(self.small, &write)?;
            while !self.poll()? {
                if start.elapsed() > WRITE_TIMEOUT {
                    return Err("a small Write took too long".into());
                }
            }
            latency.record(nanos(start.elapsed()));
        }
        let quantile = |q| latency.quantile(q).unwrap_or_default() as f64;
        Ok(Figures { p50_ns: quantile(0.5), p99_ns: quantile(0.99) })
    }

    fn start_bulk(&mut self) -> Result<(), AnyError> {
        self.is_bulk_on = true;
        for index in 0..self.bulk.len() {
            (0..BULK_DEPTH).try_for_each(|_| self.post_bulk(index))?;
        }
        Ok(())
    }

    /// Waits for the outstanding bulk Writes.
    fn stop_bulk(&mut self) -> Result<(), AnyError> {
        self.is_bulk_on = false;
        let start = Instant::now();
        while self.outstanding > 0 {
            self.poll()?;
            if start.elapsed() > WRITE_TIMEOUT {
                return Err("a bulk Write took too long".into());
            }
        }
        Ok(())
    }

    fn post_bulk(&mut self, index: usize) -> Result<(), AnyError> {
        let gather = [self.source.slice(0, self.bulk_size)?];
        let write = SendWr::write(index as u64, &gather, self.remote);
        self.end.context.post_send(self.bulk[index], &write)?;
        self.outstanding += 1;
        Ok(())
    }

    /// Polls once and posts completed bulk Writes again. Returns whether the small Write has completed.
    fn poll(&mut self) -> Result<bool, AnyError> {
        self.end.worker.poll(1);
        let mut completions = [Completion::default(); 16];
        let count = self.end.context.poll_cq(self.end.cq, &mut completions)?;
        let mut is_done = false;
        for completion in &completions[..count] {
            if completion.status != CompletionStatus::Success {
                return Err(format!("a Write failed: {:?}", completion.status).into());
            }
            match completion.wr_id {
                SMALL_ID => is_done = true,
                index => self.on_bulk_done(index as usize)?,
            }
        }
        Ok(is_done)
    }

    fn on_bulk_done(&mut self, index: usize) -> Result<(), AnyError> {
        self.bulk_done += 1;
        self.outstanding -= 1;
        if self.is_bulk_on { self.post_bulk(index) } else { Ok(()) }
    }
}
