//! `iwarp-perf qp-fairness`: small Writes of one queue pair beside bulk Writes of others on the
//! same core.
//!
//! Two stacks of one process are joined by in-memory ports, one thread each. A round has two
//! slices. In the first the small Writes run alone, one at a time. In the second every bulk queue
//! pair has two large Writes outstanding. The latency of a small Write is the time from its post to
//! its completion: the peer has acknowledged it.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use clap::value_parser;
use ironwarp::{QpAttr, Region, SendWr};
use ironwarp_bench::{Latency, nanos};
use serde::Serialize;

use super::ends::{End, Ends, Target};
use super::{AnyError, Measurement, Results, median};

const EXAMPLES: &str = "\
Examples:
  iwarp-perf qp-fairness                          64 B Writes beside one queue pair with 1 MiB Writes
  iwarp-perf qp-fairness --bulk-qps 4 --bulk-size 65536 --json out.json

Exit codes: 0 success, 1 the run failed, 2 bad arguments.";

/// Measures the latency of small Writes beside bulk Writes of other queue pairs on the same core
#[derive(Debug, clap::Args, Serialize)]
#[command(after_help = EXAMPLES)]
pub struct QpFairness {
    /// Bytes of a small Write
    #[arg(long, short = 's', default_value_t = 64, value_parser = value_parser!(u32).range(1..=256))]
    #[serde(rename = "bytes")]
    size: u32,
    /// Bytes of a bulk Write
    #[arg(long, default_value_t = 1 << 20, value_parser = value_parser!(u32).range(1..=1 << 26))]
    #[serde(rename = "bulk_bytes")]
    bulk_size: u32,
    /// Queue pairs with bulk Writes
    #[arg(long, default_value_t = 1, value_parser = value_parser!(u32).range(1..=64))]
    #[serde(rename = "bulk_queue_pairs")]
    bulk_qps: u32,
    /// Small Writes of a slice
    #[arg(long, short = 'n', default_value_t = 10_000, value_parser = value_parser!(u32).range(1..=10_000_000))]
    iterations: u32,
    /// Rounds
    #[arg(long, default_value_t = 10, value_parser = value_parser!(u32).range(1..=1000))]
    rounds: u32,
}

/// The latencies of a slice in nanoseconds.
#[derive(Clone, Copy, PartialEq, Debug, Default, Serialize)]
pub struct Figures {
    p50_ns: f64,
    p99_ns: f64,
}

/// Medians of the rounds.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct Fairness {
    alone: Figures,
    beside_bulk: Figures,
    /// Of the p99, to the slice of the same round without bulk Writes.
    p99_ratio: f64,
    bulk_gbit_per_s: f64,
}

/// Outstanding Writes of a bulk queue pair.
const BULK_DEPTH: u32 = 2;
/// A small Write completes in microseconds.
const WRITE_TIMEOUT: Duration = Duration::from_secs(20);
/// The request id of a small Write. A bulk Write has the index of its queue pair, from 1.
const SMALL_ID: u64 = 0;

impl Measurement for QpFairness {
    type Measured = Results<Fairness>;

    fn measure(&self) -> Result<Results<Fairness>, AnyError> {
        let (mut client, mut server) = Client::open(self)?;
        let is_over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !is_over.load(Ordering::Relaxed) {
                    server.worker.poll(1);
                }
            });
            let results = client.rounds(self);
            is_over.store(true, Ordering::Relaxed);
            Ok(Results { results: results? })
        })
    }

    fn text(&self, Results { results }: &Results<Fairness>) -> String {
        let Fairness { alone, beside_bulk, p99_ratio, bulk_gbit_per_s } = results;
        let row = |name: &str, Figures { p50_ns, p99_ns }: &Figures| {
            format!("{name:>12} {p50_ns:>10.0} {p99_ns:>10.0}\n")
        };
        format!(
            "Writes of {} B beside {} queue pairs with Writes of {} B, medians of {} rounds\n\
             {:>12} {:>10} {:>10}\n{}{}\
             p99 ratio {p99_ratio:.2}, bulk {bulk_gbit_per_s:.2} Gbit/s\n",
            self.size,
            self.bulk_qps,
            self.bulk_size,
            self.rounds,
            "",
            "p50 ns",
            "p99 ns",
            row("alone", alone),
            row("beside bulk", beside_bulk),
        )
    }
}

/// The client and its outstanding Writes. Its first queue pair has the small Writes, the others are
/// bulk ones.
struct Client {
    end: End,
    payload: Vec<u8>,
    source: Region,
    target: Target,
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
    fn open(&QpFairness { size, bulk_size, bulk_qps, .. }: &QpFairness) -> Result<(Self, End), AnyError> {
        let qps = bulk_qps + 1;
        let mut ends = Ends::pair(qps, 2 * BULK_DEPTH * qps)?;
        let default = QpAttr::new(ends.server.cq);
        ends.create_qps(qps, &QpAttr { send_depth: BULK_DEPTH, recv_depth: 1, max_sge: 1, ..default })?;
        ends.connect()?;
        let (end, server) = ends.split()?;
        let bytes = bulk_size.max(size);
        let client = Client {
            payload: vec![0x5a; size as usize],
            source: end.source(bytes)?,
            target: server.target(bytes)?,
            end,
            bulk_size,
            bulk_done: 0,
            is_bulk_on: false,
            outstanding: 0,
        };
        Ok((client, server))
    }

    fn rounds(&mut self, options: &QpFairness) -> Result<Fairness, AnyError> {
        self.slice(options.iterations / 4)?;
        let (mut alone, mut beside, mut gbit) = (Vec::new(), Vec::new(), Vec::new());
        for _ in 0..options.rounds {
            alone.push(self.slice(options.iterations)?);
            self.is_bulk_on = true;
            for _ in 0..BULK_DEPTH {
                (1..self.end.qps.len()).try_for_each(|index| self.post_bulk(index))?;
            }
            let (start, before) = (Instant::now(), self.bulk_done);
            beside.push(self.slice(options.iterations)?);
            let bits = (self.bulk_done - before) as f64 * f64::from(self.bulk_size) * 8.0;
            gbit.push(bits / start.elapsed().as_nanos() as f64);
            self.is_bulk_on = false;
            let stopped = Instant::now();
            while self.outstanding > 0 {
                self.poll()?;
                if stopped.elapsed() > WRITE_TIMEOUT {
                    return Err("a bulk Write took too long".into());
                }
            }
        }
        let figures = |slices: &[Figures]| Figures {
            p50_ns: median(slices.iter().map(|slice| slice.p50_ns)),
            p99_ns: median(slices.iter().map(|slice| slice.p99_ns)),
        };
        let ratios = alone.iter().zip(&beside).map(|(alone, beside)| beside.p99_ns / alone.p99_ns);
        Ok(Fairness {
            alone: figures(&alone),
            beside_bulk: figures(&beside),
            p99_ratio: median(ratios),
            bulk_gbit_per_s: median(gbit),
        })
    }

    /// Small Writes, one at a time.
    fn slice(&mut self, writes: u32) -> Result<Figures, AnyError> {
        let mut latency = Latency::new();
        for _ in 0..writes {
            let start = Instant::now();
            let write = SendWr::write_inline(SMALL_ID, &self.payload, self.target.remote);
            self.end.context.post_send(self.end.qps[0], &write)?;
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

    fn post_bulk(&mut self, index: usize) -> Result<(), AnyError> {
        let gather = [self.source.slice(0, self.bulk_size)?];
        let write = SendWr::write(index as u64, &gather, self.target.remote);
        self.end.context.post_send(self.end.qps[index], &write)?;
        self.outstanding += 1;
        Ok(())
    }

    /// Polls once and posts completed bulk Writes again. Returns whether the small Write has
    /// completed.
    fn poll(&mut self) -> Result<bool, AnyError> {
        self.end.worker.poll(1);
        let mut is_done = false;
        for id in self.end.reap::<16>()? {
            if id == SMALL_ID {
                is_done = true;
                continue;
            }
            self.bulk_done += 1;
            self.outstanding -= 1;
            if self.is_bulk_on {
                self.post_bulk(id as usize)?;
            }
        }
        Ok(is_done)
    }
}
