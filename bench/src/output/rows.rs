//! The rows and notes of a report, which the terminal and the page both show.
//!
//! A latency is a full round trip; half of it follows where perftest prints the half. A ratio is ours over the
//! baseline's: the median over the rounds, and the extremes in brackets.

use crate::RttNs;
use crate::report::{Comparison, MedianRange, Report, TestResult};

/// A heading, and the cell of a result under it.
type Column = (&'static str, fn(&TestResult) -> Option<String>);

const IDENTITY: [Column; 4] = [
    ("test", |result| Some(result.name())),
    ("size", |result| Some(size(result.bytes))),
    ("MTU", |result| result.mtu.map(|mtu| mtu.to_string())),
    ("path", |result| result.path.map(|path| path.to_string())),
];
const LATENCY: [Column; 9] = [
    ("min", |result| round_trip(result, |rtt| rtt.min as f64)),
    ("p50", |result| round_trip(result, |rtt| rtt.p50 as f64)),
    ("half", |result| round_trip(result, |rtt| (rtt.p50 / 2) as f64).filter(|_| result.test.is_symmetric())),
    ("p90", |result| round_trip(result, |rtt| rtt.p90 as f64)),
    ("p99", |result| round_trip(result, |rtt| rtt.p99 as f64)),
    ("p99.9", |result| round_trip(result, |rtt| rtt.p999 as f64)),
    ("p99.99", |result| round_trip(result, |rtt| rtt.p9999 as f64)),
    ("max", |result| round_trip(result, |rtt| rtt.max as f64)),
    ("mean", |result| round_trip(result, |rtt| rtt.mean)),
];
const BANDWIDTH: [Column; 4] = [
    ("Gbit/s", |result| result.gbit_per_s.map(|gbit| format!("{gbit:.2}"))),
    ("messages/s", |result| result.messages_per_s.map(rate)),
    ("CPU µs/message", |result| result.cpu_ns_per_message.map(micros)),
    ("errors", |result| result.errors.map(|errors| errors.to_string())),
];
const SETUP: [Column; 8] = [
    ("set-ups/s", |result| result.setups_per_s.map(rate)),
    ("per core", |result| result.setups_per_s_per_core.map(rate)),
    ("p50", |result| setup(result, |setup| setup.p50)),
    ("p99", |result| setup(result, |setup| setup.p99)),
    ("p99.9", |result| setup(result, |setup| setup.p999)),
    ("max", |result| setup(result, |setup| setup.max)),
    ("CPU µs/set-up", |result| result.cpu_ns_per_message.map(micros)),
    ("failed", |result| result.errors.map(|errors| errors.to_string())),
];
/// Columns that a terminal has no space for.
const PAGE_ONLY: [&str; 3] = ["p90", "mean", "errors"];

/// The latencies or the bandwidths of a report.
pub(super) struct Section<'a> {
    pub title: &'static str,
    pub heads: Vec<String>,
    pub rows: Vec<Row<'a>>,
}

/// A result and its cells, one for each heading.
pub(super) struct Row<'a> {
    pub result: &'a TestResult,
    pub cells: Vec<String>,
}

/// Returns the sections that have results: for a page, or with fewer columns for a terminal.
pub(super) fn sections(report: &Report, for_page: bool) -> Vec<Section<'_>> {
    let (setups, others): (Vec<_>, Vec<_>) =
        report.results.iter().partition(|result| result.test.is_connection_setup());
    let (latencies, bandwidths): (Vec<_>, Vec<_>) =
        others.into_iter().partition(|result| result.test.is_latency());
    let sections = [
        section(
            "Latency: the full round trip, in microseconds (half: one way)",
            latencies,
            &LATENCY,
            |against| against.ratio_p50,
            for_page,
        ),
        section(
            "Bandwidth: goodput, application bytes alone",
            bandwidths,
            &BANDWIDTH,
            |against| against.ratio_gbit,
            for_page,
        ),
        section(
            "Connection set-up, from connect to established, in microseconds",
            setups,
            &SETUP,
            |against| against.ratio_p50,
            for_page,
        ),
    ];
    sections.into_iter().filter(|section| !section.rows.is_empty()).collect()
}

fn section<'a>(
    title: &'static str,
    results: Vec<&'a TestResult>,
    figures: &[Column],
    ratio: fn(&Comparison) -> Option<MedianRange>,
    for_page: bool,
) -> Section<'a> {
    let shown = |column: &&Column| for_page || !PAGE_ONLY.contains(&column.0);
    let columns: Vec<&Column> = IDENTITY.iter().chain(figures).filter(shown).collect();
    let mut baselines: Vec<&str> = Vec::new();
    for against in results.iter().flat_map(|result| result.against.iter().flatten()) {
        if !baselines.contains(&against.baseline.as_str()) {
            baselines.push(&against.baseline);
        }
    }
    let row = |result: &'a TestResult| {
        let compared = baselines.iter().map(|&baseline| {
            let mut all = result.against.iter().flatten();
            all.find(|against| against.baseline == baseline).and_then(ratio).map(|range| range_text(range, 2))
        });
        let cells = columns.iter().map(|column| column.1(result)).chain(compared);
        Row { result, cells: cells.map(or_dash).collect() }
    };
    let heads = columns.iter().map(|column| column.0.to_owned());
    let heads = heads.chain(baselines.iter().map(|name| format!("× {name}"))).collect();
    Section { title, heads, rows: results.into_iter().map(row).collect() }
}

/// Returns a line about the rounds, then a line for each result with errors and for each note of a result.
pub(super) fn notes(report: &Report) -> Vec<String> {
    let results = &report.results;
    let rounds: u32 = results.iter().filter_map(|result| result.rounds).sum();
    let dropped: u32 = results.iter().filter_map(|result| result.rounds_dropped).sum();
    let hop = MedianRange::of(results.iter().filter_map(|result| result.hop_ns));
    let hop = hop.map_or_else(String::new, |hop| format!("; core to core {} ns", range_text(hop, 0)));
    let mut notes =
        vec![format!("{rounds} slices count, {dropped} were dropped because the floor moved{hop}")];
    for result in results {
        let errors = result.errors.filter(|&errors| errors > 0).map(|errors| format!("{errors} errors"));
        let lines = errors.iter().chain(&result.notes);
        notes.extend(lines.map(|line| format!("{} {}: {line}", result.name(), size(result.bytes))));
    }
    notes
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

/// Returns the text, or a dash for a figure that the result does not have.
pub(super) fn or_dash(text: Option<String>) -> String {
    text.unwrap_or_else(|| "–".to_owned())
}

/// Formats a time in nanoseconds as microseconds with about three digits.
pub(crate) fn micros(ns: f64) -> String {
    match ns / 1000.0 {
        us if us < 10.0 => format!("{us:.2}"),
        us if us < 1000.0 => format!("{us:.1}"),
        us => format!("{us:.0}"),
    }
}

/// Formats a size in the largest unit that gives a whole number.
pub(crate) fn size(bytes: u64) -> String {
    let units = [(30, "GiB"), (20, "MiB"), (10, "KiB")];
    let whole = units.into_iter().find(|(shift, _)| bytes > 0 && bytes.is_multiple_of(1 << shift));
    let (shift, unit) = whole.unwrap_or((0, "B"));
    format!("{} {unit}", bytes >> shift)
}

/// Formats a rate with about three digits.
pub(crate) fn rate(per_s: f64) -> String {
    match per_s {
        rate if rate >= 1e6 => format!("{:.2} M", rate / 1e6),
        rate if rate >= 1e3 => format!("{:.1} k", rate / 1e3),
        rate => format!("{rate:.0}"),
    }
}
