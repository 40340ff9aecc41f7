//! A comparison as text for a terminal.

use serde_json::Value;

use super::{FigureChange, ReportComparison, ResultId, Verdict};
use crate::output::{micros, or_dash, rate, size, text_table};

/// Text columns at the left.
const TEXT_COLUMNS: usize = 5;

/// Formats a comparison for a terminal `width` columns wide. Shows the figures that changed, or
/// `all` of them.
pub fn comparison_text(comparison: &ReportComparison, all: bool, width: u16) -> String {
    let shown = comparison.figures.iter().filter(|figure| all || figure.verdict != Verdict::Unchanged);
    let rows: Vec<_> = shown.map(row).collect();
    let mut text = String::new();
    for difference in &comparison.machine_differences {
        let (key, old, new) = (&difference.key, &difference.old, &difference.new);
        text += &format!("The machines differ: {key}: {old} → {new}\n");
    }
    if !rows.is_empty() {
        let heads = ["test", "size", "path", "transport", "figure", "old", "new", "ratio", ""];
        text += &format!("{}\n", text_table(heads, rows, width, TEXT_COLUMNS));
    }
    for (side, results) in [("old", &comparison.only_old), ("new", &comparison.only_new)] {
        for result in results {
            text += &format!("only in the {side} file: {}\n", title(result));
        }
    }
    text += &unchanged(comparison);
    let (figures, threshold) = (comparison.figures.len(), comparison.threshold_percent);
    let (worse, better) = (comparison.regressions, comparison.improvements);
    text + &format!("{figures} figures compared, threshold {threshold} %: {worse} worse, {better} better\n")
}

/// A line that sums up the figures that did not change, and names the one that differs most.
fn unchanged(comparison: &ReportComparison) -> String {
    let figures = comparison.figures.iter().filter(|figure| figure.verdict == Verdict::Unchanged);
    let figures: Vec<&FigureChange> = figures.collect();
    let difference = |figure: &&FigureChange| figure.ratio.map_or(0.0, |ratio| (ratio - 1.0).abs());
    let Some(most) = figures.iter().max_by(|one, other| difference(one).total_cmp(&difference(other))) else {
        return String::new();
    };
    let percent = most.ratio.map_or(0.0, |ratio| (ratio - 1.0) * 100.0);
    format!(
        "{} figures unchanged; the largest difference of these is {percent:+.1} %:\n  {} of {}\n",
        figures.len(),
        most.figure,
        title(&most.id)
    )
}

fn row(change: &FigureChange) -> [String; 9] {
    let word = |key: &str| or_dash(change.id[key].as_str().map(str::to_owned));
    let verdict = match change.verdict {
        Verdict::Unchanged => "=",
        Verdict::Better => "better",
        Verdict::Worse => "WORSE",
    };
    [
        word("name"),
        size(change.id["bytes"].as_u64().unwrap_or(0)),
        word("path"),
        word("transport"),
        change.figure.clone(),
        value(change.old, change.unit),
        value(change.new, change.unit),
        or_dash(change.ratio.map(|ratio| format!("{ratio:.2}"))),
        verdict.to_owned(),
    ]
}

/// What a result measured, on one line. Settings that are not given on the command line have no
/// words.
fn title(id: &ResultId) -> String {
    let mut text =
        format!("{} {}", id["name"].as_str().unwrap_or(""), size(id["bytes"].as_u64().unwrap_or(0)));
    for key in "path mtu qps depth post_list inline signal_every bidirectional rate".split(' ') {
        text += &match (key, &id[key]) {
            (_, Value::Null | Value::Bool(false)) => continue,
            ("inline", value) if *value == 0 => continue,
            ("signal_every", value) if *value == 1 => continue,
            ("path", value) => format!(" {}", value.as_str().unwrap_or("")),
            ("mtu", value) => format!(" MTU {value}"),
            (_, Value::Bool(true)) => format!(" {key}"),
            (_, value) => format!(" {key} {value}"),
        };
    }
    text
}

fn value(value: f64, unit: &str) -> String {
    match unit {
        "ns" => format!("{} µs", micros(value)),
        "1/s" => rate(value),
        "messages" => format!("{value:.0}"),
        _ => format!("{value:.2}"),
    }
}
