//! The NVMe namespaces that a process exports, from the file that iwarp-nvmf keeps beside its page.
//!
//! The file is JSON that another program writes: it may be absent, of another process, damaged or of another version, and is
//! then not shown. Its size is bounded by [`FILE_BYTES_MAX`].

use std::fmt::Write;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::time::Instant;

use serde::Deserialize;
use serde_json::{Value, json};

const FILE_BYTES_MAX: u64 = 16 << 20;
const SCHEMA: u32 = 1;
/// Characters of a name that the screen shows; the end differs more than the beginning.
const NAME_CHARACTERS: usize = 30;

#[derive(Deserialize)]
struct Counts {
    schema: u32,
    pid: u32,
    controllers: u64,
    namespaces: Vec<Namespace>,
}

/// The counts of a namespace since the start of its process.
#[derive(Clone, PartialEq, Eq, Debug, Deserialize)]
pub(crate) struct Namespace {
    pub(crate) nqn: String,
    pub(crate) nsid: u32,
    pub(crate) reads: u64,
    pub(crate) writes: u64,
    pub(crate) read_bytes: u64,
    pub(crate) written_bytes: u64,
    pub(crate) media_errors: u64,
    /// The largest latency and the count of each bucket that is not empty.
    pub(crate) latency_ns: Vec<(u64, u64)>,
}

/// The namespaces of a process at a moment.
#[derive(Clone, Debug)]
pub(crate) struct Namespaces {
    at: Instant,
    pub(crate) controllers: u64,
    pub(crate) all: Vec<Namespace>,
}

/// Reads the namespaces of the process `pid`, if it exports any.
pub(crate) fn read(page: &Path, pid: u32) -> Option<Namespaces> {
    let path: PathBuf = page.with_added_extension("namespaces");
    let mut text = String::new();
    File::open(path).ok()?.take(FILE_BYTES_MAX).read_to_string(&mut text).ok()?;
    let counts: Counts = serde_json::from_str(&text).ok()?;
    let is_shown = counts.schema == SCHEMA && counts.pid == pid;
    is_shown.then(|| Namespaces {
        at: Instant::now(),
        controllers: counts.controllers,
        all: counts.namespaces,
    })
}

impl Namespaces {
    /// The table of the screen: rates since `before`, counts without it.
    pub(crate) fn screen(&self, before: Option<&Namespaces>) -> String {
        let unit = if before.is_some() { "/s" } else { "" };
        let title = |name: &str| format!("{name}{unit}");
        let mut text = format!("\n{} controllers\n{:<36}", self.controllers, "namespace");
        let titles = [title("reads"), title("writes"), title("MB in"), title("MB out")];
        titles.iter().for_each(|one| _ = write!(text, "{one:>9}"));
        let _ = writeln!(text, "{:>7}{:>8}{:>8}", "errors", "p50 us", "p99 us");
        for one in &self.all {
            let of =
                before.and_then(|before| before.find(one).map(|then| (then, self.seconds_since(before))));
            self.row(&mut text, one, of);
        }
        text
    }

    fn row(&self, text: &mut String, now: &Namespace, before: Option<(&Namespace, f64)>) {
        let skipped = now.nqn.chars().count().saturating_sub(NAME_CHARACTERS);
        let name: String = now.nqn.chars().skip(skipped).collect();
        let _ = write!(text, "{:<36}", format!("{name} {}", now.nsid));
        let value = |get: fn(&Namespace) -> u64| match before {
            Some((then, seconds)) => get(now).wrapping_sub(get(then)) as f64 / seconds,
            None => get(now) as f64,
        };
        let (reads, writes) = (value(|one| one.reads), value(|one| one.writes));
        let (bytes_in, bytes_out) = (value(|one| one.written_bytes) / 1e6, value(|one| one.read_bytes) / 1e6);
        let _ =
            write!(text, "{reads:>9.0}{writes:>9.0}{bytes_in:>9.1}{bytes_out:>9.1}{:>7}", now.media_errors);
        for percent in [50.0, 99.0] {
            match percentile_ns(now, before.map(|(then, _)| then), percent) {
                Some(ns) => _ = write!(text, "{:>8.1}", ns as f64 / 1e3),
                None => _ = write!(text, "{:>8}", "–"),
            }
        }
        text.push('\n');
    }

    /// The part of the JSON: every count, and percentiles since `before` in microseconds.
    pub(crate) fn json(&self, before: Option<&Namespaces>) -> Value {
        let one = |now: &Namespace| {
            let then = before.and_then(|before| before.find(now));
            let us = |percent| percentile_ns(now, then, percent).map(|ns| ns as f64 / 1e3);
            json!({
                "nqn": now.nqn, "nsid": now.nsid, "reads": now.reads, "writes": now.writes,
                "read_bytes": now.read_bytes, "written_bytes": now.written_bytes, "media_errors": now.media_errors,
                "latency_us": { "p50": us(50.0), "p99": us(99.0), "p99.9": us(99.9), "max": us(100.0) },
            })
        };
        Value::Array(self.all.iter().map(one).collect())
    }

    fn find(&self, of: &Namespace) -> Option<&Namespace> {
        self.all.iter().find(|one| (&one.nqn, one.nsid) == (&of.nqn, of.nsid))
    }

    fn seconds_since(&self, before: &Namespaces) -> f64 {
        self.at.duration_since(before.at).as_secs_f64().max(f64::EPSILON)
    }
}

/// Returns the latency that `percent` of the commands since `before` do not exceed. `None`: there were none.
fn percentile_ns(now: &Namespace, before: Option<&Namespace>, percent: f64) -> Option<u64> {
    let before = |upper: u64| {
        let bucket = before?.latency_ns.iter().find(|(one, _)| *one == upper)?;
        Some(bucket.1)
    };
    let grown: Vec<(u64, u64)> = now
        .latency_ns
        .iter()
        .map(|&(upper, count)| (upper, count.saturating_sub(before(upper).unwrap_or(0))))
        .filter(|(_, count)| *count > 0)
        .collect();
    let total = grown.iter().fold(0u64, |sum, (_, count)| sum.saturating_add(*count));
    let wanted = (total as f64 * percent / 100.0).ceil().max(1.0) as u64;
    let mut seen = 0u64;
    grown.iter().find_map(|(upper, count)| {
        seen = seen.saturating_add(*count);
        (seen >= wanted).then_some(*upper)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn namespace(reads: u64, latency_ns: &[(u64, u64)]) -> Namespace {
        Namespace {
            nqn: "nqn.2014-08.org.example:disk".to_owned(),
            nsid: 1,
            reads,
            writes: 0,
            read_bytes: reads * 4096,
            written_bytes: 0,
            media_errors: 2,
            latency_ns: latency_ns.to_vec(),
        }
    }

    #[test]
    fn percentiles_are_of_the_commands_since_the_snapshot_before() {
        let then = namespace(10, &[(1000, 10)]);
        let now = namespace(110, &[(1000, 10), (2000, 99), (9000, 1)]);
        assert_eq!(percentile_ns(&now, None, 1.0), Some(1000));
        assert_eq!(percentile_ns(&now, Some(&then), 1.0), Some(2000));
        assert_eq!(percentile_ns(&now, Some(&then), 99.5), Some(9000));
        assert_eq!(percentile_ns(&then, Some(&then), 50.0), None);
    }

    #[test]
    fn a_damaged_file_and_one_of_another_process_are_not_shown() {
        let folder = tempfile::tempdir().expect("a folder");
        let page = folder.path().join("page");
        assert!(read(&page, 1).is_none());
        let file = folder.path().join("page.namespaces");
        for text in [
            "",
            "{}",
            "[[",
            r#"{"schema":9,"pid":1,"controllers":0,"namespaces":[]}"#,
            r#"{"schema":1,"pid":2,"controllers":0,"namespaces":[]}"#,
            r#"{"schema":1,"pid":1,"controllers":-1,"namespaces":[]}"#,
        ] {
            std::fs::write(&file, text).expect("written");
            assert!(read(&page, 1).is_none(), "{text}");
        }
        std::fs::write(&file, r#"{"schema":1,"pid":1,"controllers":3,"namespaces":[]}"#).expect("written");
        assert_eq!(read(&page, 1).map(|one| one.controllers), Some(3));
    }

    #[test]
    fn the_screen_fits_a_laptop() {
        let of = |one| Namespaces { at: Instant::now(), controllers: 1, all: vec![one] };
        let text = of(namespace(9, &[(1000, 9)])).screen(None);
        assert!(text.lines().all(|line| line.chars().count() <= 100), "{text}");
        let row: Vec<_> = text.lines().last().expect("a row").split_whitespace().collect();
        assert_eq!(row[1..], ["1", "9", "0", "0.0", "0.0", "2", "1.0", "1.0"], "{text}");
    }
}
