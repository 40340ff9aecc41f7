//! The NVMe namespaces that a process exports, from the file that iwarp-nvmf keeps beside its page.
//!
//! The file is JSON that another program writes: it may be absent, of another process, damaged or
//! of another version, and is then not shown. Its size is bounded by [`FILE_BYTES_MAX`].

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::time::Instant;

use serde::Deserialize;
use serde_json::{Value, json};

use crate::printable::printable;
use crate::table::{number, some_number, table};

const FILE_BYTES_MAX: u64 = 16 << 20;
const SCHEMA: u32 = 1;

#[derive(Deserialize)]
struct Counts {
    schema: u32,
    pid: u32,
    controllers: u64,
    #[serde(default)]
    counters: BTreeMap<String, u64>,
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
    /// Commands that ended because the disk did not answer in time, and how many of those it has
    /// answered since.
    #[serde(default)]
    pub(crate) timeouts: u64,
    #[serde(default)]
    pub(crate) late_answers: u64,
    /// Commands that were refused because the disk had not answered others.
    #[serde(default)]
    pub(crate) refused: u64,
    /// The largest latency and the count of each bucket that is not empty.
    pub(crate) latency_ns: Vec<(u64, u64)>,
}

/// The namespaces of a process at a moment.
#[derive(Clone, Debug)]
pub(crate) struct Namespaces {
    at: Instant,
    pub(crate) controllers: u64,
    /// What the target refused, ended or let wait, by name.
    pub(crate) counters: BTreeMap<String, u64>,
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
        // A counter's name is a word. Others would break a line or a label.
        counters: counts.counters.into_iter().filter(|(name, _)| is_word(name)).collect(),
        all: counts.namespaces,
    })
}

fn is_word(name: &str) -> bool {
    (1..=64).contains(&name.len()) && name.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_')
}

impl Namespace {
    /// Commands that failed at the disk: by its error, or because it does not answer.
    fn errors(&self) -> u64 {
        self.media_errors.saturating_add(self.timeouts).saturating_add(self.refused)
    }
}

impl Namespaces {
    /// A table with a line for each: rates since `before`, counts without it.
    pub(crate) fn table(&self, before: Option<&Namespaces>) -> String {
        let unit = if before.is_some() { "/s" } else { "" };
        let rate = |name: &str| format!("{name}{unit}");
        let [p50, p99] = ["p50 us", "p99 us"].map(str::to_owned);
        let heads = [
            "namespace".to_owned(),
            rate("reads"),
            rate("writes"),
            p50,
            p99,
            rate("MB in"),
            rate("MB out"),
            "errors".to_owned(),
        ];
        let rows = self.all.iter().map(|one| {
            let of =
                before.and_then(|before| before.find(one).map(|then| (then, self.seconds_since(before))));
            row(one, of)
        });
        table(&heads, &[0], rows)
    }

    /// The part of the JSON: every count, and percentiles since `before` in microseconds.
    pub(crate) fn json(&self, before: Option<&Namespaces>) -> Value {
        let one = |now: &Namespace| {
            let then = before.and_then(|before| before.find(now));
            let us = |percent| percentile_ns(now, then, percent).map(|ns| ns as f64 / 1e3);
            json!({
                "nqn": now.nqn, "nsid": now.nsid, "reads": now.reads, "writes": now.writes,
                "read_bytes": now.read_bytes, "written_bytes": now.written_bytes, "media_errors": now.media_errors,
                "timeouts": now.timeouts, "late_answers": now.late_answers, "refused": now.refused,
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

fn row(now: &Namespace, before: Option<(&Namespace, f64)>) -> Vec<String> {
    let value = |get: fn(&Namespace) -> u64| match before {
        Some((then, seconds)) => get(now).wrapping_sub(get(then)) as f64 / seconds,
        None => get(now) as f64,
    };
    let us = |percent| percentile_ns(now, before.map(|(then, _)| then), percent).map(|ns| ns as f64 / 1e3);
    vec![
        format!("{} {}", printable(&now.nqn), now.nsid),
        number(value(|one| one.reads), 0),
        number(value(|one| one.writes), 0),
        some_number(us(50.0), 1),
        some_number(us(99.0), 1),
        number(value(|one| one.written_bytes) / 1e6, 1),
        number(value(|one| one.read_bytes) / 1e6, 1),
        number(now.errors() as f64, 0),
    ]
}

/// Returns the latency that `percent` of the commands since `before` do not exceed. `None`: there
/// were none.
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
            timeouts: 0,
            late_answers: 0,
            refused: 0,
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
        let text = r#"{"schema":1,"pid":1,"controllers":3,"counters":{"waits_for_turn":7,"a\u001b":1,"":2},"namespaces":[]}"#;
        std::fs::write(&file, text).expect("written");
        let found = read(&page, 1).expect("namespaces");
        assert_eq!(found.controllers, 3);
        assert_eq!(found.counters, BTreeMap::from([("waits_for_turn".to_owned(), 7)]));
    }

    /// Another user's file: its name of a subsystem cannot steer the terminal.
    #[test]
    fn a_row_has_the_counts_and_a_printable_name() {
        let mut one = namespace(9, &[(1000, 9)]);
        one.nqn.push('\u{1b}');
        (one.timeouts, one.refused) = (3, 4);
        let counters = BTreeMap::new();
        let table = Namespaces { at: Instant::now(), controllers: 1, counters, all: vec![one] }.table(None);
        let row: Vec<_> = table.lines().nth(1).expect("a row").split_whitespace().collect();
        assert_eq!(
            row,
            ["nqn.2014-08.org.example:disk\\u{1b}", "1", "9", "0", "1.0", "1.0", "0.0", "0.0", "9"]
        );
    }
}
