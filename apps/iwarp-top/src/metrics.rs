//! A page in the text format of Prometheus.
//!
//! Each counter becomes `ironwarp_NAME_total` with label `core`; one that is counted by port has
//! label `port` too. NVMe namespaces are `ironwarp_nvmf_NAME_total` with labels `nqn` and `nsid`,
//! and a histogram of latencies in seconds. What their target counts is
//! `ironwarp_nvmf_target_total` with the label `counter`. `ironwarp_up` is 1 while the process
//! counts, `ironwarp_build_info` has the version of this program.
//!
//! The page may be of any build, of another user, or damaged: a name that Prometheus does not
//! allow, or that is there twice, is left out. A text beyond [`TEXT_BYTES_MAX`] is not made: then
//! `ironwarp_up` is 0, and the log says why.

use std::collections::HashSet;
use std::fmt::{Error, Write};
use std::path::Path;

use ironwarp_stats::{CounterInfo, ReadError, Sample, StatsReader};
use prometheus_client::collector::Collector;
use prometheus_client::encoding::prometheus_text::encode;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric, NoLabelSet};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::Registry;

use crate::namespaces::{self, Namespace, Namespaces};
use crate::snapshot::{PORT_LAYERS, has_ended};

pub(crate) use prometheus_client::encoding::prometheus_text::CONTENT_TYPE;

/// The largest text: ten times that of 64 cores with 8 ports. Each connection may hold one.
const TEXT_BYTES_MAX: usize = 16 << 20;

/// Reads the page as it is now. A page that is absent, incomplete or left by an ended process gives
/// `ironwarp_up 0`, and neither counters nor namespaces.
pub(crate) fn scrape(page: &Path) -> String {
    let text = read(page).and_then(|observed| text_of(Some(observed)).ok_or(ScrapeError::TooLong));
    text.unwrap_or_else(|error| {
        tracing::info!("{}: {error}", page.display());
        text_of(None).unwrap_or_default()
    })
}

#[derive(Debug, thiserror::Error)]
enum ScrapeError {
    #[error(transparent)]
    Read(#[from] ReadError),
    #[error("process {0} has ended")]
    Ended(u32),
    #[error("more than {TEXT_BYTES_MAX} bytes of text")]
    TooLong,
}

/// What a page says at a moment.
#[derive(Debug)]
struct Observed {
    reader: StatsReader,
    sample: Sample,
    namespaces: Option<Namespaces>,
}

/// Opens the page anew: the process may have been started again and have another page of that name.
fn read(page: &Path) -> Result<Observed, ScrapeError> {
    let reader = StatsReader::open(page)?;
    let sample = reader.sample()?;
    if has_ended(&reader) {
        return Err(ScrapeError::Ended(reader.pid()));
    }
    let namespaces = namespaces::read(page, reader.pid());
    Ok(Observed { reader, sample, namespaces })
}

fn text_of(observed: Option<Observed>) -> Option<String> {
    let mut registry = Registry::with_prefix("ironwarp");
    registry.register_collector(Box::new(Page { observed }));
    let mut text = BoundedText::default();
    encode(&mut text, &registry).ok()?;
    Some(text.0)
}

/// A text that takes no more than [`TEXT_BYTES_MAX`].
#[derive(Default)]
struct BoundedText(String);

impl Write for BoundedText {
    fn write_str(&mut self, part: &str) -> Result<(), Error> {
        if self.0.len() + part.len() > TEXT_BYTES_MAX {
            return Err(Error);
        }
        self.0.push_str(part);
        Ok(())
    }
}

/// The metrics of a page; `None`: no process counts in it.
#[derive(Debug)]
struct Page {
    observed: Option<Observed>,
}

impl Collector for Page {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), Error> {
        let build = encoder.encode_descriptor("build", "The version of iwarp-top.", None, MetricType::Info);
        build?.encode_info(&[("version", env!("CARGO_PKG_VERSION"))])?;
        let up = i64::from(self.observed.is_some());
        gauge(&mut encoder, "up", "Whether a process counts in the page.", up)?;
        let Some(observed) = &self.observed else { return Ok(()) };
        gauge(&mut encoder, "cores", "Cores of the process.", observed.reader.cores() as i64)?;
        gauge(&mut encoder, "ports", "Ports of each core.", observed.reader.ports() as i64)?;
        counters(&mut encoder, &observed.reader, &observed.sample)?;
        observed.namespaces.as_ref().map_or(Ok(()), |namespaces| of_namespaces(&mut encoder, namespaces))
    }
}

fn gauge(encoder: &mut DescriptorEncoder<'_>, name: &str, help: &str, value: i64) -> Result<(), Error> {
    ConstGauge::new(value).encode(encoder.encode_descriptor(name, help, None, MetricType::Gauge)?)
}

fn counters(encoder: &mut DescriptorEncoder<'_>, reader: &StatsReader, sample: &Sample) -> Result<(), Error> {
    let mut seen = HashSet::new();
    for (index, info) in reader.counters().iter().enumerate() {
        let CounterInfo { layer, name, help } = info;
        if !is_allowed(name) || !seen.insert(name) {
            continue;
        }
        let mut metric = encoder.encode_descriptor(name, help, None, MetricType::Counter)?;
        let by_port = PORT_LAYERS.contains(&layer.as_str());
        for core in 0..reader.cores() {
            let value =
                |port| sample.port(port, core).and_then(|values| values.get(index)).copied().unwrap_or(0);
            if by_port {
                for port in 0..reader.ports() {
                    let labels = [("core", core.to_string()), ("port", port.to_string())];
                    ConstCounter::new(value(port)).encode(metric.encode_family(&labels)?)?;
                }
            } else {
                let sum = (0..reader.ports()).map(value).fold(0, u64::wrapping_add);
                ConstCounter::new(sum).encode(metric.encode_family(&[("core", core.to_string())])?)?;
            }
        }
    }
    Ok(())
}

/// The counters of namespaces: name, meaning, value.
type NamespaceCounter = (&'static str, &'static str, fn(&Namespace) -> u64);
const NAMESPACE_COUNTERS: [NamespaceCounter; 8] = [
    ("nvmf_reads", "Read and Compare commands.", |one| one.reads),
    ("nvmf_writes", "Write commands.", |one| one.writes),
    ("nvmf_read_bytes", "Bytes read.", |one| one.read_bytes),
    ("nvmf_written_bytes", "Bytes written.", |one| one.written_bytes),
    ("nvmf_media_errors", "Commands that the backend failed.", |one| one.media_errors),
    ("nvmf_timeouts", "Commands that ended because the disk did not answer in time.", |one| one.timeouts),
    ("nvmf_late_answers", "Answers of the disk to commands that had ended.", |one| one.late_answers),
    ("nvmf_refused", "Commands refused because the disk does not answer.", |one| one.refused),
];

/// The bounds of the histogram's buckets are 1, 2 and 5 of each. They never change, as Prometheus
/// expects.
const LATENCY_DECADES_NS: [u64; 7] =
    [1_000, 10_000, 100_000, 1_000_000, 10_000_000, 100_000_000, 1_000_000_000];

fn of_namespaces(encoder: &mut DescriptorEncoder<'_>, namespaces: &Namespaces) -> Result<(), Error> {
    let controllers = i64::try_from(namespaces.controllers).unwrap_or(i64::MAX);
    gauge(encoder, "nvmf_controllers", "Controllers that hosts have.", controllers)?;
    let help = "What the target refused, ended or let wait.";
    let mut metric = encoder.encode_descriptor("nvmf_target", help, None, MetricType::Counter)?;
    for (name, count) in &namespaces.counters {
        let label = [("counter", name.clone())];
        ConstCounter::new(*count).encode(metric.encode_family(&label)?)?;
    }
    // A series that is there twice makes Prometheus refuse the whole text.
    let mut seen = HashSet::new();
    let all: Vec<_> = namespaces.all.iter().filter(|one| seen.insert((&one.nqn, one.nsid))).collect();
    for (name, help, value) in NAMESPACE_COUNTERS {
        let mut metric = encoder.encode_descriptor(name, help, None, MetricType::Counter)?;
        for one in &all {
            ConstCounter::new(value(one)).encode(metric.encode_family(&labels(one))?)?;
        }
    }
    let help =
        "From the arrival of a command to its response. The sum is that of the upper bounds of its buckets.";
    let mut metric = encoder.encode_descriptor("nvmf_latency_seconds", help, None, MetricType::Histogram)?;
    for one in &all {
        let Latencies { sum_s, count, buckets } = latencies(one);
        metric.encode_family(&labels(one))?.encode_histogram::<NoLabelSet>(sum_s, count, &buckets, None)?;
    }
    Ok(())
}

fn labels(one: &Namespace) -> [(&'static str, String); 2] {
    [("nqn", one.nqn.clone()), ("nsid", one.nsid.to_string())]
}

/// A histogram for Prometheus: upper bounds in seconds, and the count of each bucket alone.
struct Latencies {
    sum_s: f64,
    count: u64,
    buckets: Vec<(f64, u64)>,
}

/// No sum overflows, whatever the file says: beyond 2^64 further commands are not counted.
fn latencies(one: &Namespace) -> Latencies {
    let below = |most_ns: u64| {
        let buckets = one.latency_ns.iter().filter(|(upper_ns, _)| *upper_ns <= most_ns);
        buckets.fold(0u64, |sum, (_, count)| sum.saturating_add(*count))
    };
    let mut cumulative = 0;
    let bounds = LATENCY_DECADES_NS.into_iter().flat_map(|decade_ns| [1, 2, 5].map(|part| part * decade_ns));
    let bucket = |bound_ns: u64| {
        let (all, before) = (below(bound_ns), cumulative);
        cumulative = all;
        (bound_ns as f64 / 1e9, all - before)
    };
    let buckets = bounds.map(bucket).collect();
    let sums_ns = one.latency_ns.iter().map(|(upper_ns, count)| u128::from(*upper_ns) * u128::from(*count));
    let sum_s = sums_ns.fold(0, u128::saturating_add) as f64 / 1e9;
    Latencies { sum_s, count: below(u64::MAX), buckets }
}

/// Whether a name may be part of a metric's name. It stands behind a prefix, so it may begin with a
/// digit.
fn is_allowed(name: &str) -> bool {
    !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
}
