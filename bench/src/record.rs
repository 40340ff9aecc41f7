//! Round trips of one test, in nanoseconds.
//!
//! An HdrHistogram from 1 ns to a minute with three significant digits: the error is at most 0.1 %.
//! Recording takes a few nanoseconds and never allocates. Recorders can be merged, so rounds are
//! kept or dropped afterwards.

use std::io;
use std::time::{Duration, SystemTime};

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use hdrhistogram::Histogram;
use hdrhistogram::serialization::interval_log::{IntervalLogWriterBuilder, Tag};
use hdrhistogram::serialization::{Deserializer, Serializer, V2DeflateSerializer};
use serde::{Deserialize, Serialize};

/// Longer round trips count as this.
const RTT_NS_MAX: u64 = 60_000_000_000;
/// Significant decimal digits.
const DIGITS: u8 = 3;

/// A recorder of round trips.
#[derive(Clone, Debug)]
pub struct Latency {
    histogram: Histogram<u64>,
}

/// A summary of round trips, in nanoseconds.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
pub struct RttNs {
    pub min: u64,
    pub p50: u64,
    /// Nine in ten are at most this long.
    pub p90: u64,
    /// 99 in 100.
    pub p99: u64,
    /// 999 in 1000.
    pub p999: u64,
    /// 9999 in 10 000.
    pub p9999: u64,
    pub max: u64,
    pub mean: f64,
    pub stddev: f64,
}

impl Default for Latency {
    fn default() -> Self {
        Self::new()
    }
}

impl Latency {
    /// An empty recorder with all memory allocated.
    pub fn new() -> Self {
        let histogram = Histogram::new_with_bounds(1, RTT_NS_MAX, DIGITS)
            .expect("1, 60 s and 3 digits are bounds that the histogram accepts");
        Latency { histogram }
    }

    #[inline]
    pub fn record(&mut self, ns: u64) {
        self.histogram.saturating_record(ns);
    }

    /// Adds the round trips of another recorder.
    pub fn merge(&mut self, other: &Latency) {
        // Both have the same bounds, so no value is out of range.
        let added = self.histogram.add(&other.histogram);
        debug_assert!(added.is_ok());
    }

    /// Round trips recorded.
    pub fn len(&self) -> u64 {
        self.histogram.len()
    }

    pub fn is_empty(&self) -> bool {
        self.histogram.is_empty()
    }

    /// The round trip that a share `q` of all stays within, `None` when nothing was recorded.
    pub fn quantile(&self, q: f64) -> Option<u64> {
        (!self.is_empty()).then(|| self.histogram.value_at_quantile(q))
    }

    /// The figures of reports, `None` when nothing was recorded.
    pub fn summary(&self) -> Option<RttNs> {
        let at = |q| self.histogram.value_at_quantile(q);
        (!self.is_empty()).then(|| RttNs {
            min: self.histogram.min(),
            p50: at(0.5),
            p90: at(0.9),
            p99: at(0.99),
            p999: at(0.999),
            p9999: at(0.9999),
            max: self.histogram.max(),
            mean: self.histogram.mean(),
            stddev: self.histogram.stdev(),
        })
    }

    /// The recorder as text: HdrHistogram's compressed V2 encoding in base 64.
    pub fn to_text(&self) -> String {
        let mut bytes = Vec::new();
        let written = V2DeflateSerializer::new().serialize(&self.histogram, &mut bytes);
        debug_assert!(written.is_ok(), "writing to memory cannot fail");
        BASE64_STANDARD.encode(bytes)
    }

    /// What [`Latency::to_text`] wrote, `None` when the text is anything else.
    pub fn from_text(text: &str) -> Option<Self> {
        let bytes = BASE64_STANDARD.decode(text).ok()?;
        let read: Histogram<u64> = Deserializer::new().deserialize(&mut bytes.as_slice()).ok()?;
        let mut latency = Latency::new();
        latency.histogram.add(&read).ok()?;
        Some(latency)
    }
}

/// Nanoseconds a millisecond: the log's column of maxima is in milliseconds by custom.
const NS_PER_MS: f64 = 1e6;

/// One test of the log: its tag, its round trips, the time they took.
pub struct LogEntry<'a> {
    /// The tag; characters that the format reserves become underscores.
    pub tag: String,
    pub latency: &'a Latency,
    pub duration: Duration,
}

/// Writes an HdrHistogram log that begins at `start`: what `--hdr` writes and HdrHistogram's own
/// tools read (log format 1.3, encoding V2). One line a test, tagged with its name. The tests of a
/// run are laid end to end in time, since readers plot intervals; the true order of slices
/// alternates.
pub fn write_hdr_log<W: io::Write>(
    mut into: W,
    start: SystemTime,
    entries: &[LogEntry<'_>],
) -> io::Result<()> {
    let mut serializer = V2DeflateSerializer::new();
    let mut writer = IntervalLogWriterBuilder::new()
        .add_comment("[Histogram log format version 1.3]")
        .add_comment("iwarp-perf: full round trips in nanoseconds")
        .with_start_time(start)
        .with_base_time(start)
        .with_max_value_divisor(NS_PER_MS)
        .begin_log_with(&mut into, &mut serializer)?;
    let mut at = Duration::ZERO;
    for entry in entries {
        let tag = entry.tag.replace(|c: char| c == ',' || c.is_whitespace(), "_");
        writer
            .write_histogram(&entry.latency.histogram, at, entry.duration, Tag::new(&tag))
            .map_err(|error| io::Error::other(format!("{error:?}")))?;
        at += entry.duration;
    }
    into.flush()
}

#[cfg(test)]
mod tests {
    use hdrhistogram::serialization::interval_log::{IntervalLogIterator, LogEntry as Read};

    use super::*;

    fn recorded(values: impl IntoIterator<Item = u64>) -> Latency {
        let mut latency = Latency::new();
        values.into_iter().for_each(|ns| latency.record(ns));
        latency
    }

    /// One part in a thousand, and one more for rounding.
    fn is_close(actual: u64, expected: u64) -> bool {
        actual.abs_diff(expected) <= 1 + expected / 1000
    }

    #[test]
    fn one_to_ten_thousand_has_the_percentiles_that_it_must_have() {
        let s = recorded(1..=10_000).summary().expect("ten thousand values");
        assert_eq!(s.min, 1);
        for (actual, expected) in
            [(s.p50, 5000), (s.p90, 9000), (s.p99, 9900), (s.p999, 9990), (s.p9999, 9999), (s.max, 10_000)]
        {
            assert!(is_close(actual, expected), "{actual} should be {expected}");
        }
        assert!((s.mean - 5000.5).abs() < 5.0, "{}", s.mean);
        assert!((s.stddev - 2886.75).abs() < 5.0, "{}", s.stddev);
    }

    #[test]
    fn nothing_recorded_has_no_figures() {
        assert_eq!(Latency::new().summary(), None);
        assert_eq!(Latency::new().quantile(0.5), None);
    }

    #[test]
    fn a_round_trip_longer_than_a_minute_counts_as_the_longest() {
        let s = recorded([u64::MAX]).summary().expect("one value");
        assert!(s.max >= RTT_NS_MAX, "{}", s.max);
    }

    #[test]
    fn rounds_add_up() {
        let mut all = recorded(1..=50);
        all.merge(&recorded(51..=100));
        assert_eq!(all.summary(), recorded(1..=100).summary());
    }

    #[test]
    fn a_recorder_survives_the_way_through_text() {
        let latency = recorded([3, 300, 30_000, 3_000_000]);
        let read = Latency::from_text(&latency.to_text()).expect("what was written");
        assert_eq!(read.summary(), latency.summary());
        assert!(Latency::from_text("not a histogram").is_none());
        assert!(Latency::from_text("").is_none());
    }

    #[test]
    fn a_log_reads_back_with_its_tags_and_its_round_trips() {
        let (mut short, mut long) = (Latency::new(), Latency::new());
        short.record(300);
        (1..=1000).for_each(|us| long.record(us * 1000));
        let second = Duration::from_secs(1);
        let entries = [
            LogEntry { tag: "send-lat 64 B, memif".into(), latency: &short, duration: second },
            LogEntry { tag: "tcp-lat".into(), latency: &long, duration: 2 * second },
        ];
        let mut bytes = Vec::new();
        write_hdr_log(&mut bytes, SystemTime::UNIX_EPOCH + second, &entries).expect("memory takes it");

        let read: Vec<_> = IntervalLogIterator::new(&bytes)
            .filter_map(|entry| match entry.expect("a well-formed log") {
                Read::Interval(interval) => Some(interval),
                _ => None,
            })
            .collect();
        let tags: Vec<_> = read.iter().map(|i| i.tag().expect("a tag").as_str()).collect();
        assert_eq!(tags, ["send-lat_64_B__memif", "tcp-lat"]);
        assert_eq!(read[1].start_timestamp(), second);
        let latency = Latency::from_text(read[1].encoded_histogram()).expect("a histogram");
        assert_eq!(latency.summary(), long.summary());
    }
}
