//! The rows and notes of a report, which the terminal and the page both show.
//!
//! A latency is a full round trip; half of it follows where perftest prints the half. A ratio is
//! ours over the baseline's: the median over the rounds, and the extremes in brackets.

use super::units::{micros, rate, size};
use super::verdict;
use crate::report::{Comparison, MedianRange, Report, TestResult};
use crate::{EndPercent, RttNs};

/// A heading, and the cell of a result under it.
type Column = (&'static str, fn(&TestResult) -> Option<String>);

const IDENTITY: [Column; 2] =
    [("test", |result| Some(result.name())), ("size", |result| Some(size(result.bytes)))];
/// Settings that the title names if all results of a section have the same.
const SETTINGS: [Column; 3] = [
    CORES,
    ("MTU", |result| result.mtu.map(|mtu| mtu.to_string())),
    ("path", |result| result.path.map(|path| path.to_string())),
];
/// Cores at each end. One is usual.
const CORES: Column = ("cores", |result| result.cores.map(|cores| cores.to_string()));
const LATENCY: [Column; 11] = [
    ("min", |result| round_trip(result, |rtt| rtt.min as f64)),
    ("p50", |result| round_trip(result, |rtt| rtt.p50 as f64)),
    ("half", |result| round_trip(result, |rtt| (rtt.p50 / 2) as f64).filter(|_| result.test.is_symmetric())),
    ("p90", |result| round_trip(result, |rtt| rtt.p90 as f64)),
    ("p99", |result| round_trip(result, |rtt| rtt.p99 as f64)),
    ("p99.9", |result| round_trip(result, |rtt| rtt.p999 as f64)),
    ("p99.99", |result| round_trip(result, |rtt| rtt.p9999 as f64)),
    ("max", |result| round_trip(result, |rtt| rtt.max as f64)),
    ("mean", |result| round_trip(result, |rtt| rtt.mean)),
    CPU_PERCENT,
    BUSY_PERCENT,
];
const BANDWIDTH: [Column; 7] = [
    ("Gbit/s", |result| result.gbit_per_s.map(|gbit| format!("{gbit:.2}"))),
    ("messages/s", |result| result.messages_per_s.map(rate)),
    CPU_MICROS,
    CPU_PERCENT,
    BUSY_PERCENT,
    ("errors", |result| result.errors.map(|errors| errors.to_string())),
    WORKING_SET,
];
const SETUP: [Column; 9] = [
    ("set-ups/s", |result| result.setups_per_s.map(rate)),
    ("per core", |result| result.setups_per_s_per_core.map(rate)),
    ("p50", |result| setup(result, |setup| setup.p50)),
    ("p99", |result| setup(result, |setup| setup.p99)),
    ("p99.9", |result| setup(result, |setup| setup.p999)),
    ("max", |result| setup(result, |setup| setup.max)),
    CPU_MICROS,
    BUSY_PERCENT,
    ("failed", |result| result.errors.map(|errors| errors.to_string())),
];
const WORKING_SET: Column = ("set MiB", |result| {
    result.working_set_bytes.map(|bytes| format!("{:.1}", bytes as f64 / f64::from(1 << 20)))
});
const CPU_MICROS: Column = ("CPU µs", |result| result.cpu_ns_per_message.map(micros));
/// A mark shows that an end that spins got too little; a note says how much.
const CPU_PERCENT: Column = ("CPU %", |result| {
    let mark = if result.short_of_cpu == Some(true) { "!" } else { "" };
    result.cpu_percent.map(|percent| both_ends(percent) + mark)
});
const BUSY_PERCENT: Column = ("busy %", |result| result.busy_percent.map(both_ends));
/// Columns that a terminal has no space for.
const PAGE_ONLY: [&str; 3] = ["p90", "mean", "errors"];
/// Columns that a terminal shows where they fit. The first one is left out first.
const IF_THEY_FIT: [&str; 4] = ["CPU %", "busy %", "set MiB", "min"];
/// The explanation of the columns of processor time.
const CPU_LEGEND: &str = "CPU and polls with work: client/server";
/// The explanation of the working set.
const WORKING_SET_LEGEND: &str = "set: memory that messages pass through";

/// One table of a report.
pub(super) struct Section<'a> {
    pub title: String,
    pub heads: Vec<String>,
    pub rows: Vec<Row<'a>>,
}

/// A result and its cells, one for each heading.
pub(super) struct Row<'a> {
    pub result: &'a TestResult,
    pub cells: Vec<String>,
}

/// A kind of results: the title and the columns of its figures, and what is compared with
/// baselines.
struct Kind {
    title: &'static str,
    columns: &'static [Column],
    compared: &'static str,
    ratio: fn(&Comparison) -> Option<MedianRange>,
}

const KINDS: [Kind; 3] = [
    Kind {
        title: "Latency: the full round trip, in microseconds (half: one way)",
        columns: &LATENCY,
        compared: "p50",
        ratio: |against| against.ratio_p50,
    },
    Kind {
        title: "Bandwidth: goodput, application bytes alone; CPU µs of both ends a message",
        columns: &BANDWIDTH,
        compared: "Gbit/s",
        ratio: |against| against.ratio_gbit,
    },
    Kind {
        title: "Connection set-up, from connect to established, in microseconds; CPU µs a set-up",
        columns: &SETUP,
        compared: "p50",
        ratio: |against| against.ratio_p50,
    },
];

/// Returns the sections that have results: for a terminal `width` columns wide, or without a width
/// for a page, which has more columns. Comparisons with baselines have a section of their own, so
/// that every table fits a laptop's window.
pub(super) fn sections(report: &Report, width: Option<usize>) -> Vec<Section<'_>> {
    let mut of_kind: [Vec<&TestResult>; 3] = Default::default();
    for result in &report.results {
        let kind = match result.test {
            test if test.is_connection_setup() => 2,
            test if test.is_latency() => 0,
            _ => 1,
        };
        of_kind[kind].push(result);
    }
    let both = |(kind, results): (&Kind, Vec<_>)| {
        [figures(kind, results.clone(), width), comparisons(kind, results)]
    };
    let sections = KINDS.iter().zip(of_kind).flat_map(both);
    sections.filter(|section| !section.rows.is_empty()).collect()
}

impl<'a> Section<'a> {
    /// A table of `results` with the cells of each under `heads`, and a title with remarks.
    fn new<'h>(
        (what, remarks): (&str, Vec<String>),
        heads: impl Iterator<Item = &'h str>,
        results: Vec<&'a TestResult>,
        cells: impl Fn(&TestResult) -> Vec<Option<String>>,
    ) -> Self {
        let title = match remarks.is_empty() {
            true => what.to_owned(),
            false => format!("{what}\n({})", remarks.join("; ")),
        };
        let row = |result| Row { result, cells: cells(result).into_iter().map(or_dash).collect() };
        let rows = results.into_iter().map(row).collect();
        Section { title, heads: heads.map(str::to_owned).collect(), rows }
    }
}

fn figures<'a>(kind: &Kind, results: Vec<&'a TestResult>, width: Option<usize>) -> Section<'a> {
    let (settings, mut remarks) = settings(&results);
    let mut columns: Vec<&Column> = IDENTITY.iter().chain(settings).chain(kind.columns).collect();
    if width.is_some() {
        columns.retain(|column| !PAGE_ONLY.contains(&column.0));
    }
    // A column without any value says nothing.
    let is_empty = |column: &Column| results.iter().all(|result| column.1(result).is_none());
    columns.retain(|column| !IF_THEY_FIT.contains(&column.0) || !is_empty(column));
    for name in IF_THEY_FIT {
        if width.is_some_and(|width| table_width(&columns, &results) > width) {
            columns.retain(|column| column.0 != name);
        }
    }
    if columns.iter().any(|column| matches!(column.0, "CPU %" | "busy %")) {
        remarks.push(CPU_LEGEND.to_owned());
    }
    if columns.iter().any(|column| column.0 == WORKING_SET.0) {
        remarks.push(WORKING_SET_LEGEND.to_owned());
    }
    let cells = |result: &TestResult| columns.iter().map(|column| column.1(result)).collect();
    Section::new((kind.title, remarks), columns.iter().map(|column| column.0), results, cells)
}

/// Ratios of the results that have baselines.
fn comparisons<'a>(kind: &Kind, mut results: Vec<&'a TestResult>) -> Section<'a> {
    results.retain(|result| result.against.as_ref().is_some_and(|against| !against.is_empty()));
    let mut baselines: Vec<&str> = Vec::new();
    for against in results.iter().flat_map(|result| result.against.iter().flatten()) {
        if !baselines.contains(&against.baseline.as_str()) {
            baselines.push(&against.baseline);
        }
    }
    let (settings, remarks) = settings(&results);
    let columns: Vec<&Column> = IDENTITY.iter().chain(settings).collect();
    let ratio = |result: &TestResult, baseline: &str| {
        let mut all = result.against.iter().flatten();
        let range = all.find(|against| against.baseline == baseline).and_then(kind.ratio)?;
        // Three digits.
        Some(range_text(range, if range.max < 10.0 { 2 } else { 1 }))
    };
    let cells = |result: &TestResult| {
        let ratios = baselines.iter().map(|baseline| ratio(result, baseline));
        columns.iter().map(|column| column.1(result)).chain(ratios).collect()
    };
    let heads = columns.iter().map(|column| column.0).chain(baselines.iter().copied());
    let what = format!("{} to that of baselines in the same round: median [range]", kind.compared);
    Section::new((&what, remarks), heads, results, cells)
}

/// Returns the columns of the settings in which results differ, and the settings that all of them
/// have.
fn settings(results: &[&TestResult]) -> (Vec<&'static Column>, Vec<String>) {
    let (mut columns, mut common) = (Vec::new(), Vec::new());
    for column in &SETTINGS {
        let mut values = results.iter().map(|result| column.1(result));
        match values.next() {
            Some(Some(first)) if values.all(|value| value.as_ref() == Some(&first)) => {
                let is_usual = (column.0, first.as_str()) == (CORES.0, "1");
                common.extend((!is_usual).then(|| format!("{} {first}", column.0)));
            }
            Some(_) => columns.push(column),
            None => {}
        }
    }
    (columns, common)
}

/// The width of a table with a space at both sides of a cell and a rule between cells.
fn table_width(columns: &[&Column], results: &[&TestResult]) -> usize {
    let cell = |column: &Column, result: &TestResult| or_dash(column.1(result)).chars().count();
    let widest = |column: &&Column| {
        let cells = results.iter().map(|result| cell(column, result));
        cells.fold(column.0.chars().count(), usize::max)
    };
    columns.iter().map(widest).map(|width| width + 3).sum::<usize>() + 1
}

/// Returns a line about the rounds, a line for each result with errors and for each note of a
/// result, and one that compares them with kernel TCP.
pub(super) fn notes(report: &Report) -> Vec<String> {
    let results = &report.results;
    // The results may come from a file, with any numbers.
    let sum = |of: fn(&TestResult) -> Option<u32>| {
        results.iter().filter_map(of).fold(0, |sum: u64, rounds| sum.saturating_add(rounds.into()))
    };
    let (rounds, dropped) = (sum(|result| result.rounds), sum(|result| result.rounds_dropped));
    let hop = MedianRange::of(results.iter().filter_map(|result| result.hop_ns));
    let hop = hop.map_or_else(String::new, |hop| {
        format!("; core to core {} ns: {} processors", range_text(hop, 0), verdict::distance(hop.median))
    });
    let mut notes =
        vec![format!("{rounds} slices count, {dropped} were dropped because the floor moved{hop}")];
    for result in results {
        let errors = result.errors.filter(|&errors| errors > 0).map(|errors| format!("{errors} errors"));
        let shares = result.messages_by_qp.as_deref().and_then(shares_of_qps);
        let lines = errors.iter().chain(&shares).chain(&result.notes);
        notes.extend(lines.map(|line| format!("{} {}: {line}", result.name(), size(result.bytes))));
    }
    notes.extend(verdict::beside_kernel_tcp(results));
    notes
}

/// Returns the smallest and the largest share of a queue pair, and the fairness index of Jain, 1 if
/// all are equal.
fn shares_of_qps(messages: &[u64]) -> Option<String> {
    let (count, sum) = (messages.len() as f64, messages.iter().map(|&messages| messages as f64).sum::<f64>());
    let squares: f64 = messages.iter().map(|&messages| (messages as f64).powi(2)).sum();
    let (least, most) = (*messages.iter().min()? as f64, *messages.iter().max()? as f64);
    let percent = |messages: f64| messages * 100.0 / sum;
    (sum > 0.0).then(|| {
        format!(
            "{count} queue pairs carried {:.1} to {:.1} % of the messages each; fairness index {:.3}",
            percent(least),
            percent(most),
            sum * sum / (count * squares)
        )
    })
}

fn range_text(MedianRange { median, min, max }: MedianRange, decimals: usize) -> String {
    format!("{median:.decimals$} [{min:.decimals$}–{max:.decimals$}]")
}

fn round_trip(result: &TestResult, figure: fn(&RttNs) -> f64) -> Option<String> {
    result.rtt_ns.as_ref().map(|rtt| micros(figure(rtt)))
}

fn setup(result: &TestResult, figure: fn(&RttNs) -> u64) -> Option<String> {
    result.setup_ns.as_ref().map(|setup| micros(figure(setup) as f64))
}

fn both_ends(EndPercent { client, server }: EndPercent) -> String {
    let text = |percent: Option<f64>| or_dash(percent.map(|percent| format!("{percent:.0}")));
    format!("{}/{}", text(client), text(server))
}

/// Returns the text, or a dash for a figure that the result does not have.
pub(super) fn or_dash(text: Option<String>) -> String {
    text.unwrap_or_else(|| "–".to_owned())
}
