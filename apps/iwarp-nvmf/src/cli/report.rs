//! The lines of `serve --interval`: what each namespace has done since the last line.

use std::collections::HashMap;
use std::sync::atomic::Ordering;

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
    #[serde(skip)]
    pub(super) latency: LatencySnapshot,
}

impl Counts {
    pub(super) fn of(counters: &IoCounters) -> Self {
        Counts {
            reads: counters.reads.load(Ordering::Relaxed),
            writes: counters.writes.load(Ordering::Relaxed),
            read_bytes: counters.read_bytes.load(Ordering::Relaxed),
            written_bytes: counters.written_bytes.load(Ordering::Relaxed),
            media_errors: counters.media_errors.load(Ordering::Relaxed),
            latency: counters.latency.snapshot(),
        }
    }

    fn since(&self, before: &Counts) -> Counts {
        Counts {
            reads: self.reads.wrapping_sub(before.reads),
            writes: self.writes.wrapping_sub(before.writes),
            read_bytes: self.read_bytes.wrapping_sub(before.read_bytes),
            written_bytes: self.written_bytes.wrapping_sub(before.written_bytes),
            media_errors: self.media_errors.wrapping_sub(before.media_errors),
            latency: self.latency.since(&before.latency),
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
    latency_us: serde_json::Value,
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
                let us = |percent| counts.latency.percentile_ns(percent) as f64 / 1e3;
                let line = serde_json::json!(Line {
                    nqn: subsystem.nqn(),
                    nsid,
                    controllers,
                    counts: &counts,
                    latency_us: serde_json::json!({
                        "p50": us(50.0), "p99": us(99.0), "p99.9": us(99.9), "max": us(100.0)
                    }),
                });
                print_stdout(format!("{line}\n"));
            }
        }
    }
}
