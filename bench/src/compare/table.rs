//! A comparison as text for a terminal.

use comfy_table::presets::UTF8_FULL_CONDENSED;
use comfy_table::{CellAlignment, ContentArrangement, Table};

use super::{FigureChange, ReportComparison, ResultId, Verdict};
use crate::output::{micros, rate, size};

/// Text columns at the left.
const TEXT_COLUMNS: usize = 5;

/// Formats a comparison for a terminal `width` columns wide. Shows the figures that changed, or `all` of them.
pub fn comparison_text(comparison: &ReportComparison, all: bool, width: u16) -> String {
    let shown = comparison.figures.iter().filter(|figure| all || figure.verdict != Verdict::Unchanged);
    let rows: Vec<_> = shown.map(row).collect();
    let mut text = String::new();
    for difference in &comparison.machine_differences {
        let (key, old, new) = (difference.key, &difference.old, &difference.new);
        text += &format!("The machines differ: {key}: {old} → {new}\n");
    }
    if !rows.is_empty() {
        text += &format!("{}\n", table(rows, width));
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

fn table(rows: Vec<[String; 9]>, width: u16) -> Table {
    let mut table = Table::new();
    table.load_style(UTF8_FULL_CONDENSED);
    table.set_content_arrangement(ContentArrangement::Dynamic).set_width(width);
    table.set_header(["test", "size", "path", "transport", "figure", "old", "new", "ratio", ""]);
    table.add_rows(rows);
    for column in table.column_iter_mut().skip(TEXT_COLUMNS) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    table
}

fn row(change: &FigureChange) -> [String; 9] {
    let id = &change.id;
    [
        id.name.clone(),
        size(id.bytes),
        id.path.map_or_else(|| "–".to_owned(), |path| path.to_string()),
        transport(id),
        change.figure.clone(),
        value(change.old, change.unit),
        value(change.new, change.unit),
        change.ratio.map_or_else(|| "–".to_owned(), |ratio| format!("{ratio:.2}")),
        match change.verdict {
            Verdict::Unchanged => "=".to_owned(),
            Verdict::Better => "better".to_owned(),
            Verdict::Worse => "WORSE".to_owned(),
        },
    ]
}

/// The transport as JSON has it.
fn transport(id: &ResultId) -> String {
    let json = serde_json::to_value(id.transport).unwrap_or_default();
    json.as_str().unwrap_or_default().to_owned()
}

fn title(id: &ResultId) -> String {
    let path = id.path.map_or_else(String::new, |path| format!(" {path}"));
    let number =
        |name: &str, value: Option<u32>| value.map_or_else(String::new, |value| format!(" {name} {value}"));
    // Settings that are not given on the command line have no words.
    let inline = id.inline.filter(|&bytes| bytes > 0);
    let signal_every = id.signal_every.filter(|&every| every > 1);
    let bidirectional = if id.bidirectional == Some(true) { " bidirectional" } else { "" };
    let rate = id.rate.map_or_else(String::new, |rate| format!(" rate {rate}"));
    let settings = [
        number("qps", id.qps),
        number("depth", id.depth),
        number("post_list", id.post_list),
        number("inline", inline),
        number("signal_every", signal_every),
        bidirectional.to_owned(),
        rate,
    ]
    .concat();
    let mtu = id.mtu.map_or_else(String::new, |mtu| format!(" MTU {mtu}"));
    format!("{} {}{path}{mtu}{settings}", id.name, size(id.bytes))
}

fn value(value: f64, unit: &str) -> String {
    match unit {
        "ns" => format!("{} µs", micros(value)),
        "1/s" => rate(value),
        "messages" => format!("{value:.0}"),
        _ => format!("{value:.2}"),
    }
}
