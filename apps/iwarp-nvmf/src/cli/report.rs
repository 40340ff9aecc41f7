//! The lines of `serve --interval`: what each namespace has done since the last line.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};

use ironwarp_cli::print_stdout;
use iwarp_nvmf::latency::LatencySnapshot;
use iwarp_nvmf::target::{IoCounters, Target};
use serde::Serialize;

/// The counts of a namespace at a moment.
#[derive(Clone, Serialize)]
pub(super) struct Counts {
    reads: u64,
    writes: u64,
    read_bytes: u64,
    written_bytes: u64,
    media_errors: u64,
    read_errors: u64,
    write_errors: u64,
    no_space: u64,
    sync_errors: u64,
    short_transfers: u64,
    timeouts: u64,
    late_answers: u64,
    refused: u64,
    #[serde(skip)]
    pub(super) read_latency: LatencySnapshot,
    #[serde(skip)]
    pub(super) write_latency: LatencySnapshot,
}

impl Counts {
    pub(super) fn of(counters: &IoCounters) -> Self {
        let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        Counts {
            reads: count(&counters.reads),
            writes: count(&counters.writes),
            read_bytes: count(&counters.read_bytes),
            written_bytes: count(&counters.written_bytes),
            media_errors: count(&counters.media_errors),
            read_errors: count(&counters.read_errors),
            write_errors: count(&counters.write_errors),
            no_space: count(&counters.no_space),
            sync_errors: count(&counters.sync_errors),
            short_transfers: count(&counters.short_transfers),
            timeouts: count(&counters.timeouts),
            late_answers: count(&counters.late_answers),
            refused: count(&counters.refused),
            read_latency: counters.read_latency.snapshot(),
            write_latency: counters.write_latency.snapshot(),
        }
    }

    /// Returns the latencies of all commands.
    pub(super) fn latency(&self) -> LatencySnapshot {
        self.read_latency.and(&self.write_latency)
    }

    fn since(&self, before: &Counts) -> Counts {
        Counts {
            reads: self.reads.wrapping_sub(before.reads),
            writes: self.writes.wrapping_sub(before.writes),
            read_bytes: self.read_bytes.wrapping_sub(before.read_bytes),
            written_bytes: self.written_bytes.wrapping_sub(before.written_bytes),
            media_errors: self.media_errors.wrapping_sub(before.media_errors),
            read_errors: self.read_errors.wrapping_sub(before.read_errors),
            write_errors: self.write_errors.wrapping_sub(before.write_errors),
            no_space: self.no_space.wrapping_sub(before.no_space),
            sync_errors: self.sync_errors.wrapping_sub(before.sync_errors),
            short_transfers: self.short_transfers.wrapping_sub(before.short_transfers),
            timeouts: self.timeouts.wrapping_sub(before.timeouts),
            late_answers: self.late_answers.wrapping_sub(before.late_answers),
            refused: self.refused.wrapping_sub(before.refused),
            read_latency: self.read_latency.since(&before.read_latency),
            write_latency: self.write_latency.since(&before.write_latency),
        }
    }
}

/// A line.
#[derive(Serialize)]
struct Line<'a> {
    nqn: &'a str,
    nsid: u32,
    controllers: usize,
    #[serde(flatten)]
    counts: &'a Counts,
    /// Of all commands.
    latency_us: serde_json::Value,
    read_latency_us: serde_json::Value,
    write_latency_us: serde_json::Value,
}

fn latency_us(latency: &LatencySnapshot) -> serde_json::Value {
    let us = |percent| latency.percentile_ns(percent) as f64 / 1e3;
    serde_json::json!({ "p50": us(50.0), "p99": us(99.0), "p99.9": us(99.9), "max": us(100.0) })
}

/// The counts at the last line.
#[derive(Default)]
pub(super) struct Report {
    last: HashMap<(String, u32), Counts>,
}

impl Report {
    /// Prints a line for each namespace.
    pub(super) fn print(&mut self, target: &Target) {
        let controllers = target.controllers().len();
        for subsystem in target.subsystems() {
            for (&nsid, namespace) in subsystem.namespaces().iter() {
                let now = Counts::of(&namespace.counters);
                let before = self.last.insert((subsystem.nqn().to_owned(), nsid), now.clone());
                let counts = before.map_or(now.clone(), |before| now.since(&before));
                let line = serde_json::json!(Line {
                    nqn: subsystem.nqn(),
                    nsid,
                    controllers,
                    counts: &counts,
                    latency_us: latency_us(&counts.latency()),
                    read_latency_us: latency_us(&counts.read_latency),
                    write_latency_us: latency_us(&counts.write_latency),
                });
                print_stdout(format!("{line}\n"));
            }
        }
    }
}
