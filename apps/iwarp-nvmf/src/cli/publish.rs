//! The counts of the namespaces, in a file beside the page of the stack's counters.
//!
//! `stats.page` with the extension `namespaces` is replaced every second, and removed at the end.
//! iwarp-top shows it. It is JSON: `pid`, `counters` of what the target refused or ended, and for
//! each namespace its names, counts since the start, and `latency_ns`, the largest value and the
//! number of each bucket of its histogram that is not empty, of all commands, and of Reads and
//! Writes apart. A file that cannot be written is reported once.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use iwarp_nvmf::replace::{Durability, replace};
use iwarp_nvmf::target::Target;
use serde::Serialize;

use super::report::Counts;

/// The version of the JSON.
const SCHEMA: u32 = 1;
const INTERVAL: Duration = Duration::from_secs(1);

/// The file, if the configuration has a page.
pub(super) struct Publisher {
    path: Option<PathBuf>,
    next: Instant,
}

impl Publisher {
    /// A file beside `page`.
    pub(super) fn new(page: Option<&Path>) -> Self {
        Publisher { path: page.map(|page| page.with_added_extension("namespaces")), next: Instant::now() }
    }

    /// Writes the counts if it is time.
    pub(super) fn publish(&mut self, target: &Target) {
        let Some(path) = self.path.as_deref().filter(|_| Instant::now() >= self.next) else { return };
        self.next = Instant::now() + INTERVAL;
        let contents = contents(target);
        let replaced = replace(path, Durability::Visible, |file| Ok(serde_json::to_writer(file, &contents)?));
        if let Err(error) = replaced {
            tracing::warn!("{}: {error}: iwarp-top does not show the namespaces", path.display());
            self.path = None;
        }
    }
}

impl Drop for Publisher {
    fn drop(&mut self) {
        if let Some(path) = &self.path {
            // It is gone already if someone has removed it.
            let _ = fs::remove_file(path);
        }
    }
}

/// The file's contents.
#[derive(Serialize)]
struct File {
    schema: u32,
    pid: u32,
    controllers: usize,
    counters: BTreeMap<&'static str, u64>,
    namespaces: Vec<Namespace>,
}

/// A namespace and its counts since the start.
#[derive(Serialize)]
struct Namespace {
    nqn: String,
    nsid: u32,
    #[serde(flatten)]
    counts: Counts,
    /// Of all commands.
    latency_ns: Vec<(u64, u64)>,
    read_latency_ns: Vec<(u64, u64)>,
    write_latency_ns: Vec<(u64, u64)>,
}

fn contents(target: &Target) -> File {
    let mut namespaces = Vec::new();
    for subsystem in target.subsystems() {
        for (&nsid, namespace) in subsystem.namespaces().iter() {
            let counts = Counts::of(&namespace.counters);
            let latency_ns = counts.latency().buckets().collect();
            let read_latency_ns = counts.read_latency.buckets().collect();
            let write_latency_ns = counts.write_latency.buckets().collect();
            let nqn = subsystem.nqn().to_owned();
            namespaces.push(Namespace { nqn, nsid, counts, latency_ns, read_latency_ns, write_latency_ns });
        }
    }
    let (pid, controllers) = (std::process::id(), target.controllers().len());
    let counters = target.counters.all().collect();
    File { schema: SCHEMA, pid, controllers, counters, namespaces }
}
