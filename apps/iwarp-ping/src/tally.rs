//! What was done: counts, and the client's round trips as a histogram. Nothing is allocated after the start.

use core::fmt;
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use serde_json::{Value, json};

/// The longest round trip told apart; a longer one counts as this.
const LONGEST_NS: u64 = 60_000_000_000;
/// Significant decimal digits.
const DIGITS: u8 = 3;

/// What a client has done.
pub struct ClientTally {
    bytes: u32,
    verified: bool,
    trips: Option<Histogram<u64>>,
    /// Pings that came back.
    pings: u64,
    begun: Instant,
    /// The time from the connection on.
    took: Duration,
}

impl ClientTally {
    /// Nothing yet, of texts of `bytes` bytes.
    pub fn new(bytes: u32, verified: bool) -> Self {
        // These bounds are ones that the histogram accepts.
        let trips = Histogram::new_with_bounds(1, LONGEST_NS, DIGITS).ok();
        ClientTally { bytes, verified, trips, pings: 0, begun: Instant::now(), took: Duration::ZERO }
    }

    /// Pings that came back.
    pub fn pings(&self) -> u64 {
        self.pings
    }

    pub(crate) fn begin(&mut self) {
        self.begun = Instant::now();
    }

    pub(crate) fn record(&mut self, trip: Duration) {
        self.pings += 1;
        if let Some(trips) = &mut self.trips {
            trips.saturating_record(u64::try_from(trip.as_nanos()).unwrap_or(u64::MAX));
        }
    }

    pub(crate) fn end(&mut self) {
        self.took = self.begun.elapsed();
    }

    /// The same as one JSON object: figures that there are none of are `null`.
    pub fn json(&self, server: &str) -> Value {
        json!({
            "event": "summary", "role": "client", "server": server, "bytes": self.bytes, "pings": self.pings,
            "verified": self.verdict(), "seconds": self.took.as_secs_f64(), "rtt_ns": self.rtt_ns(),
        })
    }

    /// Whether every byte was checked: of no byte nobody knows.
    fn verdict(&self) -> Option<bool> {
        (self.pings > 0).then_some(self.verified)
    }

    fn rtt_ns(&self) -> Option<Value> {
        let trips = self.trips.as_ref().filter(|trips| !trips.is_empty())?;
        let at = |share| trips.value_at_quantile(share);
        Some(json!({
            "min": trips.min(), "p50": at(0.5), "p90": at(0.9), "p99": at(0.99), "p999": at(0.999),
            "p9999": at(0.9999), "max": trips.max(), "mean": trips.mean(), "stddev": trips.stdev(),
        }))
    }
}

impl fmt::Display for ClientTally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let checked = if self.verdict() == Some(true) { ", every byte checked" } else { "" };
        let (pings, bytes, seconds) = (self.pings, self.bytes, self.took.as_secs_f64());
        writeln!(f, "{pings} pings of {bytes} bytes in {seconds:.3} s{checked}")?;
        let Some(trips) = self.trips.as_ref().filter(|trips| !trips.is_empty()) else { return Ok(()) };
        let us = |ns: u64| ns as f64 / 1e3;
        let at = |share| us(trips.value_at_quantile(share));
        let (least, most, mean) = (us(trips.min()), us(trips.max()), trips.mean() / 1e3);
        writeln!(
            f,
            "round trip in µs, from the text's advertisement to its return: min {least:.2}, p50 {:.2}, p90 {:.2}, \
             p99 {:.2}, p99.9 {:.2}, max {most:.2}, mean {mean:.2}",
            at(0.5),
            at(0.9),
            at(0.99),
            at(0.999),
        )
    }
}

/// What a server has done.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ServerTally {
    /// Clients that left in order.
    pub served: u64,
    /// Clients that were given up.
    pub failed: u64,
    /// Pings of all of them.
    pub pings: u64,
    /// Bytes of their texts.
    pub bytes: u64,
}

impl ServerTally {
    /// The same as one JSON object.
    pub fn json(&self) -> Value {
        json!({
            "event": "summary", "role": "server", "served": self.served, "failed": self.failed,
            "pings": self.pings, "bytes": self.bytes,
        })
    }
}

impl fmt::Display for ServerTally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ServerTally { served, failed, pings, bytes } = self;
        writeln!(f, "{served} clients served, {failed} failed; {pings} pings, {bytes} bytes")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_summary_has_the_round_trips_that_were_recorded() {
        let mut tally = ClientTally::new(64, true);
        tally.begin();
        (1..=100).for_each(|us| tally.record(Duration::from_micros(us)));
        tally.end();
        let json = tally.json("10.0.0.1:7174");
        assert_eq!(
            (&json["pings"], &json["bytes"], &json["verified"]),
            (&100.into(), &64.into(), &true.into())
        );
        let p50 = json["rtt_ns"]["p50"].as_u64().expect("a number");
        assert!((49_900..=50_100).contains(&p50), "{p50}");
        let text = tally.to_string();
        assert!(text.contains("100 pings of 64 bytes") && text.contains("every byte checked"), "{text}");
        assert!(text.contains("p99.9 10") && text.contains("min 1.00"), "{text}");
    }

    #[test]
    fn nothing_measured_is_null_and_no_line() {
        let tally = ClientTally::new(64, true);
        assert_eq!(tally.json("x")["rtt_ns"], Value::Null);
        assert_eq!(tally.json("x")["verified"], Value::Null);
        assert!(!tally.to_string().contains("checked"), "{tally}");
        assert_eq!(tally.to_string().lines().count(), 1);
    }
}
