//! Counts, and the client's round trips as a histogram. Allocates nothing after the start.

use core::fmt;
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use serde_json::{Value, json};

/// The longest round trip that the histogram resolves; a longer one is counted as this.
const RTT_NS_MAX: u64 = 60_000_000_000;
/// Significant decimal digits.
const DIGITS: u8 = 3;

/// The counts of a client.
pub struct ClientStats {
    bytes: u32,
    verified: bool,
    rtts: Option<Histogram<u64>>,
    pings: u64,
    started: Instant,
    /// The time since the connection.
    elapsed: Duration,
}

impl ClientStats {
    /// Creates empty counts for texts of `bytes` bytes.
    pub fn new(bytes: u32, verified: bool) -> Self {
        // The histogram accepts these bounds.
        let rtts = Histogram::new_with_bounds(1, RTT_NS_MAX, DIGITS).ok();
        ClientStats { bytes, verified, rtts, pings: 0, started: Instant::now(), elapsed: Duration::ZERO }
    }

    pub fn pings(&self) -> u64 {
        self.pings
    }

    pub(crate) fn start(&mut self) {
        self.started = Instant::now();
    }

    pub(crate) fn record(&mut self, rtt: Duration) {
        self.pings += 1;
        if let Some(rtts) = &mut self.rtts {
            rtts.saturating_record(u64::try_from(rtt.as_nanos()).unwrap_or(u64::MAX));
        }
    }

    pub(crate) fn stop(&mut self) {
        self.elapsed = self.started.elapsed();
    }

    /// The summary as one JSON object. Figures without samples are `null`.
    pub fn json(&self, server: &str) -> Value {
        json!({
            "event": "summary", "role": "client", "server": server, "bytes": self.bytes, "pings": self.pings,
            "verified": self.verified_json(), "seconds": self.elapsed.as_secs_f64(), "rtt_ns": self.rtt_ns(),
        })
    }

    /// Returns whether every byte was checked, or `None` if no ping was completed.
    fn verified_json(&self) -> Option<bool> {
        (self.pings > 0).then_some(self.verified)
    }

    fn rtt_ns(&self) -> Option<Value> {
        let rtts = self.rtts.as_ref().filter(|rtts| !rtts.is_empty())?;
        let at = |share| rtts.value_at_quantile(share);
        Some(json!({
            "min": rtts.min(), "p50": at(0.5), "p90": at(0.9), "p99": at(0.99), "p999": at(0.999),
            "p9999": at(0.9999), "max": rtts.max(), "mean": rtts.mean(), "stddev": rtts.stdev(),
        }))
    }
}

impl fmt::Display for ClientStats {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let checked = if self.verified_json() == Some(true) { ", every byte checked" } else { "" };
        let (pings, bytes, seconds) = (self.pings, self.bytes, self.elapsed.as_secs_f64());
        writeln!(f, "{pings} pings of {bytes} bytes in {seconds:.3} s{checked}")?;
        let Some(rtts) = self.rtts.as_ref().filter(|rtts| !rtts.is_empty()) else { return Ok(()) };
        let us = |ns: u64| ns as f64 / 1e3;
        let at = |share| us(rtts.value_at_quantile(share));
        let (least, most, mean) = (us(rtts.min()), us(rtts.max()), rtts.mean() / 1e3);
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

/// The counts of a server.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ServerStats {
    /// Clients that left in order.
    pub served: u64,
    pub failed: u64,
    pub pings: u64,
    pub bytes: u64,
}

impl ServerStats {
    pub fn json(&self) -> Value {
        json!({
            "event": "summary", "role": "server", "served": self.served, "failed": self.failed,
            "pings": self.pings, "bytes": self.bytes,
        })
    }
}

impl fmt::Display for ServerStats {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ServerStats { served, failed, pings, bytes } = self;
        writeln!(f, "{served} clients served, {failed} failed; {pings} pings, {bytes} bytes")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_summary_has_the_round_trips_that_were_recorded() {
        let mut stats = ClientStats::new(64, true);
        stats.start();
        (1..=100).for_each(|us| stats.record(Duration::from_micros(us)));
        stats.stop();
        let json = stats.json("10.0.0.1:7174");
        assert_eq!(
            (&json["pings"], &json["bytes"], &json["verified"]),
            (&100.into(), &64.into(), &true.into())
        );
        let p50 = json["rtt_ns"]["p50"].as_u64().expect("a number");
        assert!((49_900..=50_100).contains(&p50), "{p50}");
        let text = stats.to_string();
        assert!(text.contains("100 pings of 64 bytes") && text.contains("every byte checked"), "{text}");
        assert!(text.contains("p99.9 10") && text.contains("min 1.00"), "{text}");
    }

    #[test]
    fn nothing_measured_is_null_and_no_line() {
        let stats = ClientStats::new(64, true);
        assert_eq!(stats.json("x")["rtt_ns"], Value::Null);
        assert_eq!(stats.json("x")["verified"], Value::Null);
        assert!(!stats.to_string().contains("checked"), "{stats}");
        assert_eq!(stats.to_string().lines().count(), 1);
    }
}
