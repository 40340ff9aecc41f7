//! What a run writes: tables, JSON, a page, a log of histograms, a progress bar.

mod intervals;
mod page;
mod perftest;
mod rows;
mod scale;
mod units;
mod verdict;

use std::io;
use std::path::Path;
use std::time::{Duration, SystemTime};

use comfy_table::presets::UTF8_FULL_CONDENSED;
use comfy_table::{CellAlignment, ContentArrangement, Table};
pub use indicatif::ProgressBar;
use indicatif::{ProgressDrawTarget, ProgressFinish, ProgressStyle};

use crate::report::Report;
use crate::{Latency, LogEntry, write_hdr_log};
pub use intervals::Intervals;
pub use page::write_html;
pub use perftest::{perftest_row, perftest_text};
use rows::{Row, notes, sections};
pub use scale::scale_table;

/// A finished run: the report, and the histogram of each latency in it.
#[derive(Debug)]
pub struct Outcome {
    pub report: Report,
    /// One entry for each result; `None` for bandwidths.
    pub latencies: Vec<Option<Latency>>,
}

impl Outcome {
    pub fn write_json(&self, path: &Path) -> io::Result<()> {
        std::fs::write(path, serde_json::to_string_pretty(&self.report)? + "\n")
    }

    /// Writes the histograms as an HdrHistogram log.
    pub fn write_hdr(&self, path: &Path) -> io::Result<()> {
        let pairs = self.report.results.iter().zip(&self.latencies);
        let entries = pairs.filter_map(|(result, latency)| {
            let path = result.path.map_or_else(|| "-".to_owned(), |path| path.to_string());
            Some(LogEntry {
                tag: format!("{}_{}B_{path}", result.name(), result.bytes),
                latency: latency.as_ref()?,
                duration: Duration::from_secs_f64(result.seconds.unwrap_or(0.0)),
            })
        });
        let start = SystemTime::UNIX_EPOCH + Duration::from_secs(self.report.machine.unix_time);
        let file = io::BufWriter::new(std::fs::File::create(path)?);
        write_hdr_log(file, start, &entries.collect::<Vec<_>>())
    }
}

/// The width of a table that goes to a file or a pipe.
const DEFAULT_WIDTH: u16 = 100;

/// Formats the report for a terminal `width` columns wide; without a width, for one of 100 columns.
pub fn tables(report: &Report, width: Option<u16>) -> String {
    let width = width.unwrap_or(DEFAULT_WIDTH);
    let tables = sections(report, Some(width.into()))
        .into_iter()
        .map(|section| format!("\n{}\n{}\n", section.title, table(section.heads, section.rows, width)));
    let (machine, build) = (report.machine.summary(), report.build.summary());
    format!("{machine}\n{build}\n{}\n{}\n", tables.collect::<String>(), notes(report).join("\n"))
}

/// Returns the columns of the terminal on standard output, `None` if it is no terminal.
pub fn terminal_width() -> Option<u16> {
    Table::new().width().filter(|&columns| columns > 0)
}

fn table(heads: Vec<String>, rows: Vec<Row<'_>>, width: u16) -> Table {
    let mut table = Table::new();
    table.load_style(UTF8_FULL_CONDENSED);
    table.set_content_arrangement(ContentArrangement::Dynamic).set_width(width);
    table.set_header(heads);
    table.add_rows(rows.into_iter().map(|row| row.cells));
    // The name of the test is text.
    for column in table.column_iter_mut().skip(1) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    table
}

/// Shorter runs show no bar.
const SHOWN_FROM: Duration = Duration::from_secs(2);

/// Creates the progress bar of a run of `slices` steps, on standard error, so that standard output
/// has only results. It draws nothing if standard error is no terminal or the run is short.
pub fn progress_bar(slices: u64, expected: Duration) -> ProgressBar {
    let target = match expected > SHOWN_FROM {
        true => ProgressDrawTarget::stderr_with_hz(5),
        false => ProgressDrawTarget::hidden(),
    };
    let template = "{wide_msg} {bar:30} {percent:>3}% {elapsed} of about {duration}";
    let style = ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar());
    ProgressBar::with_draw_target(Some(slices), target)
        .with_style(style)
        .with_finish(ProgressFinish::AndClear)
}

#[cfg(test)]
mod tests;
