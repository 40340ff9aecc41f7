//! One line for each interval of a run in progress.

use super::rows::or_dash;
use super::units::{micros, rate, size};
use crate::report::TestResult;

const LATENCY_HEADER: &str =
    "        seconds  messages/s   min µs   p50 µs   p99 µs p99.9 µs   max µs  errors";
const BANDWIDTH_HEADER: &str = "        seconds  messages/s   Gbit/s  errors";

/// The intervals of a run so far.
#[derive(Debug, Default)]
pub struct Intervals {
    /// The name and size of the case in progress.
    title: String,
    /// Measured seconds of that case.
    seconds: f64,
}

impl Intervals {
    /// Formats the next interval as a line. The first interval of a case has a title and a header
    /// before it. Round trips are full ones. The seconds are measured time, without warm-up.
    pub fn line(&mut self, result: &TestResult) -> String {
        let title = format!("{} {}", result.name(), size(result.bytes));
        let header = if self.title == title {
            String::new()
        } else {
            self.seconds = 0.0;
            let header = if result.test.is_latency() { LATENCY_HEADER } else { BANDWIDTH_HEADER };
            format!("{title}, each interval:\n{header}\n")
        };
        self.title = title;
        let start = self.seconds;
        self.seconds += result.seconds.unwrap_or(0.0);
        let time = format!("{start:.1}–{:.1}", self.seconds);
        let messages = or_dash(result.messages_per_s.map(rate));
        let errors = result.errors.unwrap_or(0);
        format!("{header}{time:>15} {messages:>11}{} {errors:>7}\n", figures(result))
    }
}

fn figures(result: &TestResult) -> String {
    let cells: Vec<String> = match &result.rtt_ns {
        _ if !result.test.is_latency() => vec![or_dash(result.gbit_per_s.map(|gbit| format!("{gbit:.2}")))],
        Some(rtt) => [rtt.min, rtt.p50, rtt.p99, rtt.p999, rtt.max].map(|ns| micros(ns as f64)).to_vec(),
        None => vec![or_dash(None); 5],
    };
    cells.iter().map(|cell| format!(" {cell:>8}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rounds::CaseTotals;
    use crate::{Case, Latency, PathKind, Slice, Test};

    fn result(test: Test, bytes: u64, latency: Option<Latency>) -> TestResult {
        let case = Case::new(test, bytes, 1500, PathKind::Memif);
        let slice = Slice {
            latency,
            messages: 1000,
            bytes: 1000 * bytes,
            elapsed_ns: 500_000_000,
            ..Slice::default()
        };
        CaseTotals::of_slice(&case, &slice)
    }

    #[test]
    fn the_first_interval_of_a_case_has_a_header_and_the_others_continue_its_time() {
        let mut intervals = Intervals::default();
        let first = intervals.line(&result(Test::WriteBw, 1 << 20, None));
        assert!(first.starts_with("write-bw 1 MiB, each interval:\n"), "{first}");
        let words: Vec<&str> = first.lines().nth(2).expect("a row").split_whitespace().collect();
        assert_eq!(words, ["0.0–0.5", "2.0", "k", "16.78", "0"]);
        let second = intervals.line(&result(Test::WriteBw, 1 << 20, None));
        assert_eq!(second.lines().count(), 1);
        assert!(second.contains("0.5–1.0"), "{second}");
        assert!(
            intervals.line(&result(Test::WriteBw, 64, None)).contains("0.0–0.5"),
            "another size begins at 0"
        );
    }

    #[test]
    fn a_latency_has_percentiles_and_dashes_if_no_message_came_back() {
        let mut latency = Latency::new();
        latency.record(2000);
        let line = Intervals::default().line(&result(Test::SendLat, 64, Some(latency)));
        assert_eq!(line.matches("2.00").count(), 5, "{line}");
        let line = Intervals::default().line(&result(Test::SendLat, 64, Some(Latency::new())));
        assert_eq!(line.matches(" –").count(), 5, "{line}");
    }
}
