//! What a run writes: tables, JSON, a page with plots, a log of histograms, a progress bar.

mod intervals;
mod page;
mod perftest;
mod plots;
mod progress;
mod rows;
mod table;

use std::io;
use std::path::Path;
use std::time::{Duration, SystemTime};

use serde::Serialize;

pub use indicatif::ProgressBar;
pub use intervals::Intervals;
pub use page::write_html;
pub use perftest::{perftest_row, perftest_text};
pub use progress::progress_bar;
pub(crate) use rows::{micros, or_dash, rate, size};
pub(crate) use table::text_table;
pub use table::{tables, terminal_width};

use crate::report::Report;
use crate::{Latency, LogEntry, write_hdr_log};

/// A finished run: the report, and the histogram of each latency in it.
#[derive(Debug)]
pub struct Outcome {
    /// The report.
    pub report: Report,
    /// One entry for each result; `None` for bandwidths.
    pub latencies: Vec<Option<Latency>>,
}

impl Outcome {
    /// Writes the report as JSON.
    pub fn write_json(&self, path: &Path) -> io::Result<()> {
        write_json(path, &self.report)
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

/// Writes JSON for scripts and for people.
pub fn write_json(path: &Path, value: &impl Serialize) -> io::Result<()> {
    std::fs::write(path, serde_json::to_string_pretty(value)? + "\n")
}

#[cfg(test)]
mod tests;
