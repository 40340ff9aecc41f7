//! Results as tables for a terminal: one for latencies, one for bandwidths.
//!
//! A latency is a full round trip and its table says so; half of it stands beside it where perftest would print the
//! half. A ratio is ours over the baseline's: the median over rounds, and between brackets the extremes.

use comfy_table::presets::UTF8_FULL_CONDENSED;
use comfy_table::{Cell, CellAlignment, ContentArrangement, Table};

use super::{micros, size};
use crate::report::{Comparison, MedianRange, Report, TestResult};

/// Columns of text at the left; numbers follow and are set to the right.
const TEXT_COLUMNS: usize = 1;

/// The report for a terminal `width` columns wide; as wide as it needs where the width is unknown.
pub fn tables(report: &Report, width: Option<u16>) -> String {
    let (latency, bandwidth): (Vec<_>, Vec<_>) =
        report.results.iter().partition(|result| result.test.is_latency());
    let mut text = format!("{}\n{}\n", report.machine.summary(), report.build.summary());
    if !latency.is_empty() {
        text.push_str("\nLatency: the full round trip, in microseconds (half: one way)\n");
        text.push_str(&latency_table(&latency, width));
    }
    if !bandwidth.is_empty() {
        text.push_str("\nBandwidth: goodput, application bytes alone\n");
        text.push_str(&bandwidth_table(&bandwidth, width));
    }
    text.push_str(&notes(report));
    text
}

fn latency_table(results: &[&TestResult], width: Option<u16>) -> String {
    let names = baselines(results);
    let fixed = ["test", "size", "MTU", "path", "min", "p50", "half", "p90", "p99", "p99.9", "max"];
    let mut table = new_table(&fixed, &names, width);
    for result in results {
        let rtt = result.rtt_ns;
        let at = |value: Option<u64>| value.map_or_else(dash, |ns| micros(ns as f64));
        let half = rtt.filter(|_| result.test.is_symmetric()).map(|rtt| rtt.p50 / 2);
        let figures = [
            rtt.map(|rtt| rtt.min),
            rtt.map(|rtt| rtt.p50),
            half,
            rtt.map(|rtt| rtt.p90),
            rtt.map(|rtt| rtt.p99),
            rtt.map(|rtt| rtt.p999),
            rtt.map(|rtt| rtt.max),
        ];
        let cells = identity_cells(result).into_iter().chain(figures.map(at));
        table.add_row(cells.chain(comparisons(result, &names, |against| against.ratio_p50)));
    }
    render(&mut table)
}

fn bandwidth_table(results: &[&TestResult], width: Option<u16>) -> String {
    let names = baselines(results);
    let fixed = ["test", "size", "MTU", "path", "Gbit/s", "messages/s", "CPU µs/message"];
    let mut table = new_table(&fixed, &names, width);
    for result in results {
        let figures = [
            result.gbit_per_s.map_or_else(dash, |gbit| format!("{gbit:.2}")),
            result.messages_per_s.map_or_else(dash, count),
            result.cpu_ns_per_message.map_or_else(dash, micros),
        ];
        let cells = identity_cells(result).into_iter().chain(figures);
        table.add_row(cells.chain(comparisons(result, &names, |against| against.ratio_gbit)));
    }
    render(&mut table)
}

fn new_table(fixed: &[&str], baselines: &[String], width: Option<u16>) -> Table {
    let mut table = Table::new();
    table.load_style(UTF8_FULL_CONDENSED);
    if let Some(width) = width {
        table.set_content_arrangement(ContentArrangement::Dynamic).set_width(width);
    }
    let heads = fixed.iter().map(|&head| head.to_owned());
    table.set_header(heads.chain(baselines.iter().map(|name| format!("× {name}"))).map(Cell::new));
    table
}

fn render(table: &mut Table) -> String {
    for column in table.column_iter_mut().skip(TEXT_COLUMNS) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    format!("{table}\n")
}

/// Every baseline that any of the results is compared with, in the order of appearance.
fn baselines(results: &[&TestResult]) -> Vec<String> {
    let mut names: Vec<String> = Vec::new();
    for against in results.iter().flat_map(|result| result.against.iter().flatten()) {
        if !names.contains(&against.baseline) {
            names.push(against.baseline.clone());
        }
    }
    names
}

fn identity_cells(result: &TestResult) -> [String; 4] {
    [
        result.name(),
        size(result.bytes),
        result.mtu.map_or_else(dash, |mtu| mtu.to_string()),
        result.path.map_or_else(dash, |path| path.name().to_owned()),
    ]
}

fn comparisons<'a>(
    result: &'a TestResult,
    names: &'a [String],
    ratio: fn(&Comparison) -> Option<MedianRange>,
) -> impl Iterator<Item = String> + 'a {
    names.iter().map(move |name| {
        let mut against = result.against.iter().flatten();
        against.find(|against| against.baseline == *name).and_then(ratio).map_or_else(dash, spread)
    })
}

fn spread(spread: MedianRange) -> String {
    format!("{:.2} [{:.2}–{:.2}]", spread.median, spread.min, spread.max)
}

fn dash() -> String {
    "–".to_owned()
}

/// A rate with a unit that keeps three digits in sight.
fn count(per_s: f64) -> String {
    match per_s {
        rate if rate >= 1e6 => format!("{:.2} M", rate / 1e6),
        rate if rate >= 1e3 => format!("{:.1} k", rate / 1e3),
        rate => format!("{rate:.0}"),
    }
}

/// Rounds, hops, errors and remarks, one line each.
fn notes(report: &Report) -> String {
    let results = &report.results;
    let rounds: u32 = results.iter().filter_map(|result| result.rounds).sum();
    let dropped: u32 = results.iter().filter_map(|result| result.rounds_dropped).sum();
    let mut text = format!("\n{rounds} slices count, {dropped} were dropped because the floor moved");
    if let Some(hop) = MedianRange::of(results.iter().filter_map(|result| result.hop_ns)) {
        text.push_str(&format!("; core to core {:.0} ns [{:.0}–{:.0}]", hop.median, hop.min, hop.max));
    }
    text.push('\n');
    for result in results {
        let title = format!("{} {}", result.name(), size(result.bytes));
        if let Some(errors) = result.errors.filter(|&errors| errors > 0) {
            text.push_str(&format!("{title}: {errors} errors\n"));
        }
        result.notes.iter().for_each(|note| text.push_str(&format!("{title}: {note}\n")));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::output::samples;

    fn line<'a>(text: &'a str, start: &str) -> Vec<&'a str> {
        let line = text.lines().find(|line| line.contains(start)).expect("the row is there");
        line.split(['│', '┆']).map(str::trim).filter(|cell| !cell.is_empty()).collect()
    }

    #[test]
    fn a_latency_row_has_the_round_trip_and_its_half_and_its_ratio() {
        let text = tables(&samples::outcome().report, None);
        let cells = line(&text, "send-lat");
        assert_eq!(&cells[..4], ["send-lat", "64 B", "1500", "memif"]);
        let (p50, half): (f64, f64) =
            (cells[5].parse().expect("a number"), cells[6].parse().expect("a number"));
        assert!((p50 / 2.0 - half).abs() <= 0.01, "{cells:?}");
        assert!(cells[11].starts_with("3.0") && cells[11].contains('–'), "{cells:?}");
        assert!(text.contains("full round trip"));
    }

    #[test]
    fn a_baseline_has_dashes_where_it_would_be_compared() {
        let text = tables(&samples::outcome().report, None);
        assert_eq!(line(&text, "│ frame-lat").last(), Some(&"–"));
        assert_eq!(line(&text, "tcp-lat (blocking)")[3], "veth");
    }

    #[test]
    fn a_bandwidth_row_has_goodput_and_ratio() {
        let cells: Vec<String> = line(&tables(&samples::outcome().report, None), "write-bw")
            .iter()
            .map(|c| c.to_string())
            .collect();
        assert_eq!(cells[4], "72.00");
        assert_eq!(cells[7], "0.30 [0.30–0.30]");
    }

    #[test]
    fn errors_and_notes_are_not_hidden() {
        let mut report = samples::outcome().report;
        report.results[1].errors = Some(2);
        report.results[1].notes.push("loopback stands in for veth".into());
        let text = tables(&report, None);
        assert!(text.contains("send-lat 64 B: 2 errors"));
        assert!(text.contains("send-lat 64 B: loopback stands in for veth"));
    }

    #[test]
    fn a_narrow_terminal_gets_no_line_wider_than_itself() {
        let text = tables(&samples::outcome().report, Some(100));
        let rows = text.lines().filter(|line| line.starts_with(['│', '├', '┌', '└', '╞']));
        assert!(rows.map(|row| row.chars().count()).all(|width| width <= 100));
    }
}
