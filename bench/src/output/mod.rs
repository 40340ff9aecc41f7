//! What people look at: tables, a page with plots, a log of histograms, a progress bar.

mod html;
mod progress;
mod table;

use std::io;
use std::path::Path;
use std::time::{Duration, SystemTime};

use comfy_table::Table;

pub use html::write_html;
pub use progress::Progress;
pub use table::tables;

use crate::report::Report;
use crate::{Latency, LogEntry, write_hdr_log};

/// A finished run: the report, and the recorder behind each latency in it.
#[derive(Debug)]
pub struct Outcome {
    /// The report.
    pub report: Report,
    /// One entry a result; `None` for bandwidths.
    pub latencies: Vec<Option<Latency>>,
}

impl Outcome {
    /// Writes the report as JSON.
    pub fn write_json(&self, path: &Path) -> io::Result<()> {
        let mut text = serde_json::to_string_pretty(&self.report)?;
        text.push('\n');
        std::fs::write(path, text)
    }

    /// Writes every latency's histogram as an HdrHistogram log.
    pub fn write_hdr(&self, path: &Path) -> io::Result<()> {
        let pairs = self.report.results.iter().zip(&self.latencies);
        let entries: Vec<LogEntry<'_>> = pairs
            .filter_map(|(result, latency)| {
                let latency = latency.as_ref()?;
                let path = result.path.map_or("-", |path| path.name());
                let tag = format!("{}_{}B_{path}", result.name(), result.bytes);
                Some(LogEntry {
                    tag,
                    latency,
                    duration: Duration::from_secs_f64(result.seconds.unwrap_or(0.0)),
                })
            })
            .collect();
        let start = SystemTime::UNIX_EPOCH + Duration::from_secs(self.report.machine.unix_time);
        write_hdr_log(io::BufWriter::new(std::fs::File::create(path)?), start, &entries)
    }
}

/// Columns of the terminal on standard output, `None` where it is none.
pub fn terminal_width() -> Option<u16> {
    Table::new().width().filter(|&columns| columns > 0)
}

/// A time in nanoseconds as microseconds with enough digits to tell values apart.
fn micros(ns: f64) -> String {
    let us = ns / 1000.0;
    match us {
        us if us < 10.0 => format!("{us:.2}"),
        us if us < 1000.0 => format!("{us:.1}"),
        us => format!("{us:.0}"),
    }
}

/// A size as people say it.
fn size(bytes: u64) -> String {
    const KIB: u64 = 1 << 10;
    const MIB: u64 = 1 << 20;
    const GIB: u64 = 1 << 30;
    let whole = |unit: u64| bytes >= unit && bytes.is_multiple_of(unit);
    match bytes {
        _ if whole(GIB) => format!("{} GiB", bytes / GIB),
        _ if whole(MIB) => format!("{} MiB", bytes / MIB),
        _ if whole(KIB) => format!("{} KiB", bytes / KIB),
        _ => format!("{bytes} B"),
    }
}

#[cfg(test)]
pub(crate) mod samples;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_said_in_the_largest_whole_unit() {
        let said = [0, 64, 1024, 1500, 65_536, 1 << 20, 3 << 20, 1 << 30].map(size);
        assert_eq!(said, ["0 B", "64 B", "1 KiB", "1500 B", "64 KiB", "1 MiB", "3 MiB", "1 GiB"]);
    }

    #[test]
    fn short_times_keep_their_hundredths() {
        assert_eq!([310.0, 47_123.0, 2_345_678.0].map(micros), ["0.31", "47.1", "2346"]);
    }

    #[test]
    fn the_json_file_holds_the_keys_of_the_contract() {
        let path = std::env::temp_dir().join(format!("ironwarp-bench-{}.json", std::process::id()));
        samples::outcome().write_json(&path).expect("a writable folder");
        let text = std::fs::read_to_string(&path).expect("just written");
        std::fs::remove_file(&path).expect("just written");
        let json: serde_json::Value = serde_json::from_str(&text).expect("JSON");
        assert_eq!(json["schema"], 1);
        assert!(json["machine"].is_object() && json["build"].is_object());
        let ours = &json["results"][1];
        assert_eq!((&ours["test"], &ours["transport"]), (&"send-lat".into(), &"ironwarp".into()));
        for key in ["min", "p50", "p90", "p99", "p999", "p9999", "max", "mean", "stddev"] {
            assert!(ours["rtt_ns"][key].is_number(), "{key}");
        }
        assert_eq!(ours["against"][0]["baseline"], "frame-lat");
        assert!(ours["against"][0]["ratio_p50"]["median"].is_number());
    }

    #[test]
    fn the_histogram_log_has_a_line_a_latency() {
        let path = std::env::temp_dir().join(format!("ironwarp-bench-{}.hlog", std::process::id()));
        samples::outcome().write_hdr(&path).expect("a writable folder");
        let text = std::fs::read_to_string(&path).expect("just written");
        std::fs::remove_file(&path).expect("just written");
        let tags: Vec<_> =
            text.lines().filter_map(|line| line.strip_prefix("Tag=")?.split(',').next()).collect();
        assert_eq!(tags, ["frame-lat_64B_memif", "send-lat_64B_memif", "tcp-lat_(blocking)_64B_veth"]);
    }
}
