//! The HdrHistogram log: what `--hdr` writes and HdrHistogram's own tools read (log format 1.3, encoding V2).
//!
//! One line a test, tagged with its name. The tests of a run are laid end to end in time, since readers plot
//! intervals; the true order of slices alternates.

use std::io;
use std::time::{Duration, SystemTime};

use hdrhistogram::serialization::V2DeflateSerializer;
use hdrhistogram::serialization::interval_log::{IntervalLogWriterBuilder, Tag};

use crate::Latency;

/// Nanoseconds a millisecond: the log's column of maxima is in milliseconds by custom.
const NS_PER_MS: f64 = 1e6;

/// One test of the log: its tag, its round trips, the time they took.
pub struct LogEntry<'a> {
    /// The tag; characters that the format reserves become underscores.
    pub tag: String,
    /// The round trips.
    pub latency: &'a Latency,
    /// The time they took.
    pub duration: Duration,
}

/// Writes a log that begins at `start`.
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
        let tag: String = entry.tag.chars().map(plain).collect();
        writer
            .write_histogram(entry.latency.histogram(), at, entry.duration, Tag::new(&tag))
            .map_err(|error| io::Error::other(format!("{error:?}")))?;
        at += entry.duration;
    }
    into.flush()
}

fn plain(c: char) -> char {
    if c == ',' || c.is_whitespace() { '_' } else { c }
}

#[cfg(test)]
mod tests {
    use hdrhistogram::serialization::interval_log::{IntervalLogIterator, LogEntry as Read};

    use super::*;

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
