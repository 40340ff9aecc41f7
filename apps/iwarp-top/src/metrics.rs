//! A page in the text format of Prometheus.
//!
//! Each counter becomes `ironwarp_NAME_total` with label `core`; one that is counted by port has label `port` too.
//! NVMe namespaces are `ironwarp_nvmf_NAME_total` with labels `nqn` and `nsid`, and a histogram of latencies in seconds.
//! `ironwarp_up` is 1 while the process counts. The page may be of any build or damaged: a name that Prometheus does not
//! allow is left out. The size is bounded by what `ironwarp_stats` and [`namespaces`] read.

use std::fmt::Write;
use std::path::Path;

use ironwarp_stats::{CounterInfo, ReadError, Sample, StatsReader};

use crate::namespaces::{self, Namespace};
use crate::snapshot::{PORT_LAYERS, has_ended};

/// The type of the text.
pub(crate) const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// Reads the page as it is now. A page that is absent, incomplete or left by an ended process gives `ironwarp_up 0` alone.
pub(crate) fn scrape(page: &Path) -> String {
    match read(page) {
        Ok((reader, sample)) => {
            let mut text = metrics(&reader, &sample);
            if let Some(namespaces) = namespaces::read(page, reader.pid()) {
                namespace_metrics(&mut text, &namespaces.all);
            }
            text
        }
        Err(error) => {
            tracing::info!("{}: {error}", page.display());
            up(0)
        }
    }
}

#[derive(Debug, thiserror::Error)]
enum ScrapeError {
    #[error(transparent)]
    Read(#[from] ReadError),
    #[error("process {0} has ended")]
    Ended(u32),
}

/// Opens the page anew: the process may have been started again and have another page of that name.
fn read(page: &Path) -> Result<(StatsReader, Sample), ScrapeError> {
    let reader = StatsReader::open(page)?;
    let sample = reader.sample()?;
    if has_ended(&reader) { Err(ScrapeError::Ended(reader.pid())) } else { Ok((reader, sample)) }
}

fn up(value: u8) -> String {
    let help = "Whether a process counts in the page.";
    format!("# HELP ironwarp_up {help}\n# TYPE ironwarp_up gauge\nironwarp_up {value}\n")
}

fn metrics(reader: &StatsReader, sample: &Sample) -> String {
    let mut text = up(1);
    for (index, info) in reader.counters().iter().enumerate().filter(|(_, info)| is_allowed(&info.name)) {
        let CounterInfo { layer, name, help } = info;
        let help = help.replace('\\', "\\\\");
        let _ = writeln!(text, "# HELP ironwarp_{name}_total {help}");
        let _ = writeln!(text, "# TYPE ironwarp_{name}_total counter");
        let by_port = PORT_LAYERS.contains(&layer.as_str());
        for core in 0..reader.cores() {
            let value =
                |port| sample.port(port, core).and_then(|values| values.get(index)).copied().unwrap_or(0);
            if by_port {
                for port in 0..reader.ports() {
                    let labels = format_args!("core=\"{core}\",port=\"{port}\"");
                    let _ = writeln!(text, "ironwarp_{name}_total{{{labels}}} {}", value(port));
                }
            } else {
                let sum = (0..reader.ports()).map(value).fold(0, u64::wrapping_add);
                let _ = writeln!(text, "ironwarp_{name}_total{{core=\"{core}\"}} {sum}");
            }
        }
    }
    text
}

/// The counters of namespaces: name, meaning, value.
type NamespaceCounter = (&'static str, &'static str, fn(&Namespace) -> u64);
const NAMESPACE_COUNTERS: [NamespaceCounter; 5] = [
    ("reads", "Read and Compare commands.", |one| one.reads),
    ("writes", "Write commands.", |one| one.writes),
    ("read_bytes", "Bytes read.", |one| one.read_bytes),
    ("written_bytes", "Bytes written.", |one| one.written_bytes),
    ("media_errors", "Commands that the backend failed.", |one| one.media_errors),
];

/// The bounds of the histogram's buckets are 1, 2 and 5 of each. They never change, as Prometheus expects.
const LATENCY_DECADES_NS: [u64; 7] =
    [1_000, 10_000, 100_000, 1_000_000, 10_000_000, 100_000_000, 1_000_000_000];

fn namespace_metrics(text: &mut String, namespaces: &[Namespace]) {
    for (name, help, value) in NAMESPACE_COUNTERS {
        let _ = writeln!(text, "# HELP ironwarp_nvmf_{name}_total {help}");
        let _ = writeln!(text, "# TYPE ironwarp_nvmf_{name}_total counter");
        for one in namespaces {
            let _ = writeln!(text, "ironwarp_nvmf_{name}_total{{{}}} {}", labels(one), value(one));
        }
    }
    let name = "ironwarp_nvmf_latency_seconds";
    let _ = writeln!(text, "# HELP {name} From the arrival of a command to its response.");
    let _ = writeln!(text, "# TYPE {name} histogram");
    for one in namespaces {
        let labels = labels(one);
        let counted = |most_ns: u64| {
            let below = one.latency_ns.iter().filter(|(upper_ns, _)| *upper_ns <= most_ns);
            below.fold(0u64, |sum, (_, count)| sum.saturating_add(*count))
        };
        for decade_ns in LATENCY_DECADES_NS {
            for bound_ns in [1, 2, 5].map(|part| part * decade_ns) {
                let (seconds, count) = (bound_ns as f64 / 1e9, counted(bound_ns));
                let _ = writeln!(text, "{name}_bucket{{{labels},le=\"{seconds}\"}} {count}");
            }
        }
        let all = counted(u64::MAX);
        let _ = writeln!(text, "{name}_bucket{{{labels},le=\"+Inf\"}} {all}");
        let _ = writeln!(text, "{name}_count{{{labels}}} {all}");
    }
}

/// The labels of a namespace. What Prometheus does not take in a label is escaped.
fn labels(one: &Namespace) -> String {
    let nqn = one.nqn.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
    format!("nqn=\"{nqn}\",nsid=\"{}\"", one.nsid)
}

/// Whether a name may be part of a metric's name. It stands behind a prefix, so it may begin with a digit.
fn is_allowed(name: &str) -> bool {
    !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
}
