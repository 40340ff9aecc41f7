//! The memory and the descriptors of a process over its life.

use std::time::{Duration, Instant};

use nix::unistd::Pid;
use serde_json::{Map, Value, json};

/// The interval between two samples.
const INTERVAL: Duration = Duration::from_secs(1);
/// A shorter life has no quarters to compare: the failures of a run are the first to use most of
/// the buffers, one after the other.
const SAMPLES_MIN: usize = 120;
/// Growth of resident memory between the second and the last quarter of a life that is no leak:
/// buffers of connections that come and go.
const GROWTH_KIB_MAX: u64 = 2048;
/// What a connection may add beside, and what stays when it is gone: its buffers, queues and
/// tables. After a host is killed, the target has its connections and those of the next one.
const CONNECTION_KIB: u64 = 256;

/// Samples of a process.
#[derive(Default)]
pub(super) struct Samples {
    last: Option<Instant>,
    rss_kib: Vec<u64>,
    descriptors: Vec<u64>,
    /// The most connections until then.
    connections: Vec<u64>,
}

impl Samples {
    /// Takes a sample of a process with this number of connections if it is time.
    ///
    /// DPDK's memory and what is shared with the other end of a link do not count: both have a
    /// fixed size, and are resident as far as frames have used them. A failure uses more of it at
    /// once.
    pub(super) fn take(&mut self, pid: Pid, connections: u64) {
        if self.last.is_some_and(|at| at.elapsed() < INTERVAL) {
            return;
        }
        self.last = Some(Instant::now());
        let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
        let rss = status
            .lines()
            .find_map(|line| line.strip_prefix("RssAnon:")?.trim().split(' ').next()?.parse().ok());
        let descriptors =
            std::fs::read_dir(format!("/proc/{pid}/fd")).map_or(0, |entries| entries.count() as u64);
        if let Some(rss) = rss {
            self.rss_kib.push(rss);
            self.descriptors.push(descriptors);
            self.connections.push(connections.max(self.connections.last().copied().unwrap_or(0)));
        }
    }

    /// What grew between the second and the last quarter of the life.
    pub(super) fn growth(&self) -> Option<String> {
        if self.rss_kib.len() < SAMPLES_MIN {
            return None;
        }
        let [(early, late), (early_fds, late_fds), (few, many)] =
            [&self.rss_kib, &self.descriptors, &self.connections].map(|values| quarters(values));
        let growth_max = GROWTH_KIB_MAX.max(early / 100) + (many - few) * CONNECTION_KIB;
        if late > early + growth_max {
            return Some(format!("memory grew from {early} to {late} KiB"));
        }
        (late_fds > early_fds).then(|| format!("descriptors grew from {early_fds} to {late_fds}"))
    }

    /// Both quarters, for results.
    pub(super) fn json(&self) -> Value {
        let [(early, late), (early_fds, late_fds)] =
            [&self.rss_kib, &self.descriptors].map(|values| quarters(values));
        json!({ "rss_kib": [early, late], "descriptors": [early_fds, late_fds], "samples": self.rss_kib.len() })
    }
}

/// The medians of the second and of the last quarter.
fn quarters(values: &[u64]) -> (u64, u64) {
    let at = |part: usize| values.len() * part / 4;
    (median(&values[at(1)..at(2)]), median(&values[at(3)..]))
}

fn median(values: &[u64]) -> u64 {
    let mut sorted = values.to_vec();
    sorted.sort_unstable();
    sorted.get(sorted.len() / 2).copied().unwrap_or(0)
}

pub(super) fn text(memory: &Map<String, Value>) -> String {
    let of = |(name, value): (&String, &Value)| {
        let mib = |at: usize| value["rss_kib"][at].as_f64().unwrap_or(0.0) / 1024.0;
        format!("{name} {:.1} → {:.1} MiB", mib(0), mib(1))
    };
    memory.iter().map(of).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn samples(rss_kib: impl Iterator<Item = u64>) -> Samples {
        let rss_kib: Vec<u64> = rss_kib.collect();
        let [descriptors, connections] = [9, 64].map(|count| vec![count; rss_kib.len()]);
        Samples { last: None, descriptors, connections, rss_kib }
    }

    #[test]
    fn only_lasting_growth_is_growth() {
        assert_eq!(samples((0..200).map(|at| 50_000 + at % 7 * 100)).growth(), None);
        // Growth at the start is no leak, and a short life says nothing.
        assert_eq!(samples((0..200).map(|at| if at < 40 { 1000 } else { 90_000 })).growth(), None);
        assert_eq!(samples((0..100).map(|at| at * 10_000)).growth(), None);
        let leak = samples((0..200).map(|at| 50_000 + at * 100)).growth();
        assert!(leak.is_some_and(|text| text.starts_with("memory grew")));
        // More connections than ever need more memory.
        let mut grown = samples((0..200).map(|at| if at < 120 { 50_000 } else { 60_000 }));
        assert!(grown.growth().is_some());
        grown.connections[120..].fill(128);
        assert_eq!(grown.growth(), None);
        let mut leak = samples((0..200).map(|_| 50_000));
        leak.descriptors = (0..200).map(|at| 9 + at / 100).collect();
        assert_eq!(leak.growth(), Some("descriptors grew from 9 to 10".to_owned()));
    }
}
