//! Compares two reports of `iwarp-perf`, and decides which figures changed beyond noise.
//!
//! A figure changed if it differs by more than the threshold **and** the ranges of its rounds do
//! not overlap. A figure without rounds in one of the files is judged by the threshold alone. Lost
//! or wrong messages are judged without a threshold: from none to some is a regression.

mod table;

use std::path::Path;

use serde::Serialize;
use serde_json::{Map, Value};

pub use table::comparison_text;

use crate::host::Machine;
use crate::report::{Comparison, MedianRange, Report, RoundLog, SCHEMA, TestResult};
use crate::{InputError, Test, input};

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

/// A property of the machine with different values in the two files, `null` if unknown.
#[derive(PartialEq, Debug, Serialize)]
pub struct MachineDifference {
    key: String,
    old: Value,
    new: Value,
}

/// What a result measured: its name in tables as `name`, and its values of `SETTINGS`.
pub type ResultId = Map<String, Value>;

/// A figure in both files.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct FigureChange {
    /// What was measured.
    #[serde(flatten)]
    id: ResultId,
    /// The figure: `p50`, `p99.9`, `gbit_per_s`, `messages_per_s`, `setups_per_s`, `errors`, or one
    /// of the first three over that of a baseline of the same rounds, as `p50 / frame-lat`. The
    /// latencies of `conn-rate` are those of set-up.
    pub figure: String,
    /// The unit: `ns`, `Gbit/s`, `1/s`, `messages`, or `ratio`.
    unit: &'static str,
    old: f64,
    new: f64,
    /// The range of the old value over rounds, `null` if the file does not have it.
    old_range: Option<MedianRange>,
    new_range: Option<MedianRange>,
    /// New over old, `null` if the old value is 0.
    ratio: Option<f64>,
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

/// The keys of a result that tell what it measured.
const SETTINGS: &str =
    "test transport bytes mtu qps cores depth post_list inline signal_every bidirectional rate path";
/// What MPA start-up negotiated. It tells results apart too.
const FRAMING: &str = "crc markers";
/// The properties of a machine that differ from run to run, or that no figure depends on.
const OTHER_PROPERTIES: [&str; 2] = ["unix_time", "hugepage_kib"];

/// A result, what it measured, and its JSON.
struct Measured<'a> {
    result: &'a TestResult,
    id: ResultId,
    json: Value,
}

/// A figure of a result: how it is named and judged, its value, and the range over rounds.
struct Sample {
    name: String,
    unit: &'static str,
    less_is_better: bool,
    value: f64,
    range: Option<MedianRange>,
}

/// Reads a report that `iwarp-perf --json` wrote.
pub fn read_report(file: &Path) -> Result<Report, InputError> {
    input::read(file)
}

impl ReportComparison {
    /// Compares two reports. Each result of the new report is paired with the first equal result of
    /// the old one.
    pub fn new(old: &Report, new: &Report, threshold_percent: f64) -> Self {
        let mut unpaired: Vec<Measured<'_>> = old.results.iter().map(Measured::of).collect();
        let (mut figures, mut only_new) = (Vec::new(), Vec::new());
        for result in new.results.iter().map(Measured::of) {
            match unpaired.iter().position(|old| old.is_same_case(&result)) {
                Some(index) => {
                    figures.extend(result.changes_since(unpaired.remove(index).result, threshold_percent))
                }
                None => only_new.push(result.id),
            }
        }
        let count =
            |verdict| figures.iter().filter(|figure: &&FigureChange| figure.verdict == verdict).count();
        ReportComparison {
            schema: SCHEMA,
            threshold_percent,
            machine_differences: machine_differences(&old.machine, &new.machine),
            only_old: unpaired.into_iter().map(|result| result.id).collect(),
            only_new,
            regressions: count(Verdict::Worse),
            improvements: count(Verdict::Better),
            figures,
        }
    }
}

impl<'a> Measured<'a> {
    fn of(result: &'a TestResult) -> Self {
        let json = serde_json::to_value(result).unwrap_or_default();
        let settings = SETTINGS.split(' ').map(|key| (key.to_owned(), json[key].clone()));
        let id = settings.chain([("name".to_owned(), result.name().into())]).collect();
        Measured { result, id, json }
    }

    /// Whether two results measured the same. A setting that one of the files does not have is
    /// equal to any. But without a rate a loop is closed, unless the file is older than the key:
    /// then it has no `signal_every` either.
    fn is_same_case(&self, other: &Measured<'_>) -> bool {
        let is_equal = |key: &str| {
            let (old, new) = (&self.json[key], &other.json[key]);
            key == "rate" || old.is_null() || new.is_null() || old == new
        };
        let is_rate_known =
            |one: &Measured<'_>| one.result.rate.is_some() || one.result.signal_every.is_some();
        self.id["name"] == other.id["name"]
            && SETTINGS.split(' ').chain(FRAMING.split(' ')).all(is_equal)
            && (!is_rate_known(self) || !is_rate_known(other) || self.result.rate == other.result.rate)
    }

    /// The figures that this result and an older one have.
    fn changes_since(&self, old: &TestResult, threshold_percent: f64) -> impl Iterator<Item = FigureChange> {
        let older = samples(old);
        samples(self.result).into_iter().filter_map(move |sample| {
            let old = older.iter().find(|other| other.name == sample.name)?;
            Some(FigureChange {
                id: self.id.clone(),
                verdict: judge(old, &sample, threshold_percent),
                figure: sample.name,
                unit: sample.unit,
                old: old.value,
                new: sample.value,
                old_range: old.range,
                new_range: sample.range,
                ratio: (old.value > 0.0).then(|| sample.value / old.value),
            })
        })
    }
}

/// The figures of a result that are compared: its own, and ratios to baselines of the same rounds.
fn samples(result: &TestResult) -> Vec<Sample> {
    // Fewer than two rounds have no spread.
    let rounds = |figure: fn(&RoundLog) -> Option<f64>| {
        let values: Vec<f64> = result.counted_rounds().filter_map(figure).collect();
        MedianRange::of(values.iter().copied()).filter(|_| values.len() > 1)
    };
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
        Some(Sample { name: name.to_owned(), unit, less_is_better, value: value?, range })
    });
    own.chain(result.against.iter().flatten().flat_map(ratios)).collect()
}

/// The ratios of a result to one baseline of the same rounds.
fn ratios(against: &Comparison) -> impl Iterator<Item = Sample> {
    let path = against.path.map_or_else(String::new, |path| format!(" {path}"));
    let baseline = format!("{}{path}", against.baseline);
    let ratios = [
        ("p50", true, against.ratio_p50),
        ("p99.9", true, against.ratio_p999),
        ("gbit_per_s", false, against.ratio_gbit),
    ];
    ratios.into_iter().filter_map(move |(figure, less_is_better, range)| {
        let name = format!("{figure} / {baseline}");
        Some(Sample { name, unit: "ratio", less_is_better, value: range?.median, range })
    })
}

fn judge(old: &Sample, new: &Sample, threshold_percent: f64) -> Verdict {
    let difference = (new.value - old.value).abs();
    let is_noise = new.unit != "messages" && difference <= old.value.abs() * threshold_percent / 100.0;
    let overlap = old.range.zip(new.range).is_some_and(|(a, b)| a.min <= b.max && b.min <= a.max);
    match (new.value < old.value) == new.less_is_better {
        _ if difference == 0.0 || is_noise || overlap => Verdict::Unchanged,
        true => Verdict::Better,
        false => Verdict::Worse,
    }
}

/// Compares the properties of the machines that figures depend on.
fn machine_differences(old: &Machine, new: &Machine) -> Vec<MachineDifference> {
    let [old, new] = [old, new].map(|machine| serde_json::to_value(machine).unwrap_or_default());
    let Value::Object(properties) = old else { return Vec::new() };
    let differences = properties.into_iter().filter_map(|(key, old)| {
        let new = new[key.as_str()].clone();
        let counts = old != new && !OTHER_PROPERTIES.contains(&key.as_str());
        counts.then_some(MachineDifference { key, old, new })
    });
    differences.collect()
}

#[cfg(test)]
mod tests;
