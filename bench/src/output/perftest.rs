//! Results in the columns of perftest's tools, for scripts that parse their output.
//!
//! perftest prints half of the round trip for Sends and Writes, and the full round trip for Reads
//! and atomic operations. Its MB are 2^20 bytes. Its peak bandwidth is that of its fastest single
//! message; here it is that of the fastest round.

use std::fmt::Write;

use crate::report::{Report, TestResult};

const MB: f64 = 1_048_576.0;
const BYTES_PER_GBIT: f64 = 125_000_000.0;
const LATENCY_HEADER: &str = " #bytes #iterations    t_min[usec]    t_max[usec]  t_typical[usec]    t_avg[usec]    \
    t_stdev[usec]   99% percentile[usec]   99.9% percentile[usec] ";
const BANDWIDTH_HEADER: &str =
    " #bytes     #iterations    BW peak[MB/sec]    BW average[MB/sec]   MsgRate[Mpps]";

/// Formats every result as perftest does: a header for each change of the test, then one line for
/// each result.
pub fn perftest_text(report: &Report) -> String {
    let mut text = String::new();
    let mut last_test = None;
    for result in &report.results {
        if last_test != Some(result.test) {
            let header = if result.test.is_latency() { LATENCY_HEADER } else { BANDWIDTH_HEADER };
            let rule = "-".repeat(LATENCY_HEADER.len());
            // Writing to a string cannot fail.
            let _ = writeln!(text, "{rule}\n{:^1$}\n{rule}\n{header}", result.name(), rule.len());
            last_test = Some(result.test);
        }
        text += &perftest_row(result);
        text.push('\n');
    }
    text
}

/// Formats a result as one line of perftest. A figure that was not measured is 0, as there.
pub fn perftest_row(result: &TestResult) -> String {
    if result.test.is_latency() { latency_row(result) } else { bandwidth_row(result) }
}

fn latency_row(result: &TestResult) -> String {
    let divisor = if result.test.is_symmetric() { 2000.0 } else { 1000.0 };
    let rtt = result.rtt_ns.as_ref();
    let us = |figure: fn(&crate::RttNs) -> f64| rtt.map_or(0.0, |rtt| figure(rtt) / divisor);
    format!(
        " {:<7} {}          {:<7.2}        {:<7.2}      {:<7.2}  \t       {:<7.2}     \t{:<7.2}\t\t{:<7.2} \t\t{:<7.2}",
        result.bytes,
        result.iterations.unwrap_or(0),
        us(|rtt| rtt.min as f64),
        us(|rtt| rtt.max as f64),
        us(|rtt| rtt.p50 as f64),
        us(|rtt| rtt.mean),
        us(|rtt| rtt.stddev),
        us(|rtt| rtt.p99 as f64),
        us(|rtt| rtt.p999 as f64),
    )
}

fn bandwidth_row(result: &TestResult) -> String {
    let mb_per_s = |gbit: f64| gbit * BYTES_PER_GBIT / MB;
    let average = result.gbit_per_s.unwrap_or(0.0);
    // A dropped round is in no average, so it is no peak either.
    let rounds = result.counted_rounds().filter_map(|round| round.gbit_per_s);
    let peak = rounds.fold(average, f64::max);
    format!(
        " {:<7}    {:<10}       {:<7.2}            {:<7.2}\t\t   {:<7.6}",
        result.bytes,
        result.iterations.unwrap_or(0),
        mb_per_s(peak),
        mb_per_s(average),
        result.messages_per_s.unwrap_or(0.0) / 1e6,
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Case, PathKind, RttNs, Test};

    fn latency(test: Test) -> TestResult {
        let rtt = RttNs {
            min: 1000,
            p50: 2000,
            p90: 3000,
            p99: 4000,
            p999: 5000,
            p9999: 5500,
            max: 6000,
            mean: 2200.0,
            stddev: 100.0,
        };
        let case = Case::new(test, 64, 1500, PathKind::Memif);
        TestResult { rtt_ns: Some(rtt), iterations: Some(1000), ..TestResult::unmeasured(&case, None) }
    }

    fn bandwidth(rounds: &str) -> TestResult {
        let case = Case::new(Test::WriteBw, 65_536, 1500, PathKind::Memif);
        TestResult {
            gbit_per_s: Some(8.388608),
            messages_per_s: Some(16_000.0),
            iterations: Some(5000),
            round_log: Some(serde_json::from_str(rounds).expect("rounds")),
            ..TestResult::unmeasured(&case, None)
        }
    }

    fn fields(line: &str) -> Vec<&str> {
        line.split_whitespace().collect()
    }

    #[test]
    fn a_send_has_half_of_the_round_trip_and_a_read_all_of_it() {
        assert_eq!(
            fields(&perftest_row(&latency(Test::SendLat))),
            ["64", "1000", "0.50", "3.00", "1.00", "1.10", "0.05", "2.00", "2.50"]
        );
        for test in [Test::ReadLat, Test::AtomicLat] {
            assert_eq!(
                fields(&perftest_row(&latency(test))),
                ["64", "1000", "1.00", "6.00", "2.00", "2.20", "0.10", "4.00", "5.00"]
            );
        }
    }

    #[test]
    fn bandwidth_is_in_units_of_two_to_the_twenty_and_the_peak_is_a_round_that_counts() {
        let round = |gbit: f64, dropped: bool| format!(r#"{{"dropped": {dropped}, "gbit_per_s": {gbit}}}"#);
        let rounds = [round(16.777216, false), round(80.0, true), round(4.0, false)].join(",");
        assert_eq!(
            fields(&perftest_row(&bandwidth(&format!("[{rounds}]")))),
            ["65536", "5000", "2000.00", "1000.00", "0.016000"]
        );
        assert_eq!(fields(&perftest_row(&bandwidth("[]")))[2], "1000.00", "no rounds: the average");
    }

    #[test]
    fn every_test_has_one_header_and_a_line_for_each_size() {
        let results = vec![latency(Test::SendLat), latency(Test::SendLat), bandwidth("[]")];
        let text = perftest_text(&Report { schema: 1, results, ..Report::default() });
        let lines: Vec<&str> = text.lines().filter(|line| !line.starts_with('-')).collect();
        assert_eq!(lines[1], LATENCY_HEADER);
        assert_eq!(lines[5], BANDWIDTH_HEADER);
        assert_eq!(lines.len(), 7, "{text}");
        assert_eq!(fields(LATENCY_HEADER)[..4], ["#bytes", "#iterations", "t_min[usec]", "t_max[usec]"]);
    }
}
