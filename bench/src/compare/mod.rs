//! Compares two reports of `iwarp-perf`, and decides which figures changed beyond noise.
//!
//! A figure changed if it differs by more than the threshold **and** the ranges of its rounds do not overlap. A figure
//! without rounds in one of the files is judged by the threshold alone. Lost or wrong messages are judged without a
//! threshold: from none to some is a regression.

mod input;
mod table;

use serde::Serialize;

pub use input::{InputError, read_report};
pub use table::comparison_text;

use crate::host::Machine;
use crate::report::{Comparison, MedianRange, Report, RoundLog, SCHEMA, TestResult};
use crate::{PathKind, Test, Transport};

/// The comparison of two reports, as `--json` writes it.
#[derive(Debug, Serialize)]
pub struct ReportComparison {
    /// [`SCHEMA`].
    pub schema: u32,
    /// Smaller differences do not count, in percent of the old figure.
    pub threshold_percent: f64,
    /// The properties in which the two machines differ.
    pub machine_differences: Vec<MachineDifference>,
    /// Every figure that both files have.
    pub figures: Vec<FigureChange>,
    /// Results that only the old file has.
    pub only_old: Vec<ResultId>,
    /// Results that only the new file has.
    pub only_new: Vec<ResultId>,
    /// Figures that are worse beyond noise.
    pub regressions: usize,
    /// Figures that are better beyond noise.
    pub improvements: usize,
}

/// A property of the machine with different values in the two files.
#[derive(PartialEq, Debug, Serialize)]
pub struct MachineDifference {
    /// The key in the object `machine`.
    pub key: &'static str,
    /// Its value in the old file, `null` if unknown.
    pub old: serde_json::Value,
    /// Its value in the new file, `null` if unknown.
    pub new: serde_json::Value,
}

/// What a result measured.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct ResultId {
    /// The test.
    pub test: Test,
    /// The test and its unusual options, as in tables.
    pub name: String,
    /// The implementation that carried the bytes.
    pub transport: Transport,
    /// Bytes of one message.
    pub bytes: u64,
    /// The largest network-layer packet, in bytes.
    pub mtu: Option<u16>,
    /// Queue pairs.
    pub qps: Option<u32>,
    /// Cores at each end.
    pub cores: Option<u32>,
    /// Outstanding messages for each queue pair.
    pub depth: Option<u32>,
    /// Work requests posted together.
    pub post_list: Option<u32>,
    /// The largest message that was posted inline, in bytes.
    pub inline: Option<u32>,
    /// One work request in this many was signaled.
    pub signal_every: Option<u32>,
    /// Whether both ends sent.
    pub bidirectional: Option<bool>,
    /// Messages a second of an open loop.
    pub rate: Option<f64>,
    /// The path between the ends.
    pub path: Option<PathKind>,
}

/// A figure in both files.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct FigureChange {
    /// What was measured.
    #[serde(flatten)]
    pub id: ResultId,
    /// The figure: `p50`, `p99.9`, `gbit_per_s`, `messages_per_s`, `setups_per_s`, `errors`, or one of the first three
    /// over that of a baseline of the same rounds, as `p50 / frame-lat`. The latencies of `conn-rate` are those of set-up.
    pub figure: String,
    /// The unit: `ns`, `Gbit/s`, `1/s`, `messages`, or `ratio`.
    pub unit: &'static str,
    /// The old value.
    pub old: f64,
    /// The new value.
    pub new: f64,
    /// The range of the old value over rounds, `null` if the file does not have it.
    pub old_range: Option<MedianRange>,
    /// The range of the new value over rounds.
    pub new_range: Option<MedianRange>,
    /// New over old, `null` if the old value is 0.
    pub ratio: Option<f64>,
    /// The decision.
    pub verdict: Verdict,
}

/// Whether a figure changed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// Within the threshold, or the ranges of the rounds overlap.
    Unchanged,
    /// Better beyond noise.
    Better,
    /// Worse beyond noise.
    Worse,
}

/// A value with its range over rounds.
#[derive(Clone, Copy)]
struct Sample {
    value: f64,
    range: Option<MedianRange>,
}

/// How a figure is named and judged.
struct Kind {
    name: String,
    unit: &'static str,
    less_is_better: bool,
}

impl ReportComparison {
    /// Compares two reports. Each result of the new report is paired with the first equal result of the old one.
    pub fn new(old: &Report, new: &Report, threshold_percent: f64) -> Self {
        let mut unpaired: Vec<&TestResult> = old.results.iter().collect();
        let (mut figures, mut only_new) = (Vec::new(), Vec::new());
        for result in &new.results {
            match unpaired.iter().position(|other| is_same_case(other, result)) {
                Some(index) => {
                    figures.extend(compare_results(unpaired.remove(index), result, threshold_percent))
                }
                None => only_new.push(ResultId::of(result)),
            }
        }
        let count =
            |verdict| figures.iter().filter(|figure: &&FigureChange| figure.verdict == verdict).count();
        ReportComparison {
            schema: SCHEMA,
            threshold_percent,
            machine_differences: machine_differences(&old.machine, &new.machine),
            only_old: unpaired.into_iter().map(ResultId::of).collect(),
            only_new,
            regressions: count(Verdict::Worse),
            improvements: count(Verdict::Better),
            figures,
        }
    }
}

impl ResultId {
    fn of(result: &TestResult) -> Self {
        let &TestResult { test, transport, bytes, mtu, qps, cores, depth, path, .. } = result;
        let &TestResult { post_list, inline, signal_every, bidirectional, rate, .. } = result;
        ResultId {
            test,
            name: result.name(),
            transport,
            bytes,
            mtu,
            qps,
            cores,
            depth,
            post_list,
            inline,
            signal_every,
            bidirectional,
            rate,
            path,
        }
    }
}

/// Whether two results measured the same. A setting that one of the files does not have is equal to any.
fn is_same_case(old: &TestResult, new: &TestResult) -> bool {
    fn equal<T: PartialEq>(old: &Option<T>, new: &Option<T>) -> bool {
        old.is_none() || new.is_none() || old == new
    }
    old.name() == new.name()
        && old.transport == new.transport
        && old.bytes == new.bytes
        && equal(&old.mtu, &new.mtu)
        && equal(&old.qps, &new.qps)
        && equal(&old.cores, &new.cores)
        && equal(&old.depth, &new.depth)
        && equal(&old.post_list, &new.post_list)
        && equal(&old.inline, &new.inline)
        && equal(&old.signal_every, &new.signal_every)
        && equal(&old.bidirectional, &new.bidirectional)
        && has_equal_rate(old, new)
        && equal(&old.crc, &new.crc)
        && equal(&old.markers, &new.markers)
        && equal(&old.path, &new.path)
}

/// Whether both results have the same rate of an open loop, or both have none. A file without the other settings of a run
/// is older than the key, so its rate is unknown.
fn has_equal_rate(old: &TestResult, new: &TestResult) -> bool {
    let is_known = |result: &TestResult| result.rate.is_some() || result.signal_every.is_some();
    !is_known(old) || !is_known(new) || old.rate == new.rate
}

/// The figures that both results have.
fn compare_results(old: &TestResult, new: &TestResult, threshold_percent: f64) -> Vec<FigureChange> {
    let (id, older) = (ResultId::of(new), samples(old));
    let pairs = samples(new).into_iter().filter_map(|(kind, new)| {
        let (_, old) = older.iter().find(|(other, _)| other.name == kind.name)?;
        Some((kind, *old, new))
    });
    pairs
        .map(|(kind, old, new)| FigureChange {
            id: id.clone(),
            verdict: judge(&kind, old, new, threshold_percent),
            figure: kind.name,
            unit: kind.unit,
            old: old.value,
            new: new.value,
            old_range: old.range,
            new_range: new.range,
            ratio: (old.value > 0.0).then(|| new.value / old.value),
        })
        .collect()
}

/// The figures of a result that are compared.
fn samples(result: &TestResult) -> Vec<(Kind, Sample)> {
    let rounds = |figure: fn(&RoundLog) -> Option<f64>| range_over_rounds(result, figure);
    let rtt = result.rtt_ns.as_ref().or(result.setup_ns.as_ref());
    // The rate of a latency test is the inverse of its mean, which a single slow message moves.
    let rate = result.messages_per_s.filter(|_| rtt.is_none());
    // Nothing retransmits raw frames, so their losses depend on the load of the machine.
    let errors = result.errors.filter(|_| result.test != Test::FrameBw);
    let own = [
        ("p50", "ns", rtt.map(|rtt| rtt.p50 as f64), rounds(|round| round.p50_ns.map(|ns| ns as f64))),
        ("p99.9", "ns", rtt.map(|rtt| rtt.p999 as f64), rounds(|round| round.p999_ns.map(|ns| ns as f64))),
        ("gbit_per_s", "Gbit/s", result.gbit_per_s, rounds(|round| round.gbit_per_s)),
        ("messages_per_s", "1/s", rate, rounds(|round| round.messages_per_s)),
        ("setups_per_s", "1/s", result.setups_per_s, rounds(|round| round.messages_per_s)),
        ("errors", "messages", errors.map(|errors| errors as f64), None),
    ];
    let own = own.into_iter().filter_map(|(name, unit, value, range)| {
        let less_is_better = matches!(unit, "ns" | "messages");
        Some((Kind { name: name.to_owned(), unit, less_is_better }, Sample { value: value?, range }))
    });
    own.chain(result.against.iter().flatten().flat_map(ratios)).collect()
}

/// The ratios of a result to one baseline of the same rounds.
fn ratios(against: &Comparison) -> impl Iterator<Item = (Kind, Sample)> {
    let path = against.path.map_or_else(String::new, |path| format!(" {path}"));
    let baseline = format!("{}{path}", against.baseline);
    let ratios = [
        ("p50", true, against.ratio_p50),
        ("p99.9", true, against.ratio_p999),
        ("gbit_per_s", false, against.ratio_gbit),
    ];
    ratios.into_iter().filter_map(move |(figure, less_is_better, range)| {
        let kind = Kind { name: format!("{figure} / {baseline}"), unit: "ratio", less_is_better };
        Some((kind, Sample { value: range?.median, range }))
    })
}

/// The range of a figure over the rounds that count. `None` for fewer than two rounds, which have no spread.
fn range_over_rounds(result: &TestResult, figure: fn(&RoundLog) -> Option<f64>) -> Option<MedianRange> {
    let log = result.round_log.as_deref().unwrap_or_default();
    // If every round was dropped, all of them count.
    let all = log.iter().all(|round| round.dropped);
    let values: Vec<f64> = log.iter().filter(|round| all || !round.dropped).filter_map(figure).collect();
    MedianRange::of(values.iter().copied()).filter(|_| values.len() > 1)
}

fn judge(kind: &Kind, old: Sample, new: Sample, threshold_percent: f64) -> Verdict {
    let difference = (new.value - old.value).abs();
    let is_noise = kind.unit != "messages" && difference <= old.value.abs() * threshold_percent / 100.0;
    let overlap = old.range.zip(new.range).is_some_and(|(a, b)| a.min <= b.max && b.min <= a.max);
    match (new.value < old.value) == kind.less_is_better {
        _ if difference == 0.0 || is_noise || overlap => Verdict::Unchanged,
        true => Verdict::Better,
        false => Verdict::Worse,
    }
}

/// Compares the properties of the machines that figures depend on.
fn machine_differences(old: &Machine, new: &Machine) -> Vec<MachineDifference> {
    const KEYS: [&str; 11] = [
        "hostname",
        "cpu",
        "cores",
        "cores_allowed",
        "memory_mib",
        "kernel",
        "os",
        "hypervisor",
        "clock_source",
        "hugepages",
        "governor",
    ];
    let json = |machine| serde_json::to_value(machine).unwrap_or_default();
    let (old, new): (serde_json::Value, serde_json::Value) = (json(old), json(new));
    let differences = KEYS.into_iter().filter(|&key| old[key] != new[key]);
    differences.map(|key| MachineDifference { key, old: old[key].clone(), new: new[key].clone() }).collect()
}

#[cfg(test)]
mod tests;
