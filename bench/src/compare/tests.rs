//! Decisions and texts, with made-up reports.

use super::*;
use crate::host::Build;
use crate::{Case, PathKind, RttNs};

fn report(results: Vec<TestResult>) -> Report {
    let machine = Machine { cpu: Some("a processor".into()), ..Machine::default() };
    Report { schema: SCHEMA, command: None, machine, build: Build::default(), results }
}

/// A Send latency whose rounds have these medians.
fn latency(p50: u64, rounds: &[u64]) -> TestResult {
    let rtt = RttNs {
        min: 1,
        p50,
        p90: p50,
        p99: p50,
        p999: 2 * p50,
        p9999: p50,
        max: p50,
        mean: 1.0,
        stddev: 0.0,
    };
    let round = |&ns: &u64| RoundLog { p50_ns: Some(ns), p999_ns: Some(2 * ns), ..no_round() };
    TestResult {
        rtt_ns: Some(rtt),
        messages_per_s: Some(1e6),
        errors: Some(0),
        round_log: Some(rounds.iter().map(round).collect()),
        ..TestResult::unmeasured(&Case::new(Test::SendLat, 64, 1500, PathKind::Memif), None)
    }
}

fn bandwidth(gbit: f64) -> TestResult {
    TestResult {
        gbit_per_s: Some(gbit),
        messages_per_s: Some(gbit * 1e6),
        ..TestResult::unmeasured(&Case::new(Test::WriteBw, 65_536, 1500, PathKind::Memif), None)
    }
}

#[test]
fn connection_set_up_is_compared_by_rate_and_latency() {
    let setup = |p50, rate| {
        let measured = latency(p50, &[]);
        TestResult {
            setup_ns: measured.rtt_ns,
            setups_per_s: Some(rate),
            errors: Some(0),
            ..TestResult::unmeasured(&Case::new(Test::ConnRate, 0, 1500, PathKind::Memif), None)
        }
    };
    let expected = [("p50", Verdict::Worse), ("p99.9", Verdict::Worse), ("setups_per_s", Verdict::Better)];
    let verdicts = verdicts(setup(1_000, 10_000.0), setup(2_000, 20_000.0));
    let changed: Vec<_> = verdicts.iter().filter(|(_, verdict)| *verdict != Verdict::Unchanged).collect();
    assert_eq!(changed.len(), expected.len());
    for ((name, verdict), expected) in changed.into_iter().zip(expected) {
        assert_eq!((name.as_str(), *verdict), expected);
    }
}

fn no_round() -> RoundLog {
    RoundLog {
        hop_ns: None,
        floor_moved_percent: None,
        steal_ms: None,
        context_switches: None,
        dropped: false,
        p50_ns: None,
        p999_ns: None,
        gbit_per_s: None,
        messages_per_s: None,
    }
}

fn verdicts(old: TestResult, new: TestResult) -> Vec<(String, Verdict)> {
    let comparison = ReportComparison::new(&report(vec![old]), &report(vec![new]), 10.0);
    comparison.figures.into_iter().map(|figure| (figure.figure, figure.verdict)).collect()
}

#[test]
fn a_difference_within_the_threshold_is_noise() {
    for new in [900, 1000, 1100] {
        let verdicts = verdicts(latency(1000, &[]), latency(new, &[]));
        assert!(!verdicts.is_empty(), "{new}");
        assert!(verdicts.iter().all(|(_, verdict)| *verdict == Verdict::Unchanged), "{new}: {verdicts:?}");
    }
}

#[test]
fn a_difference_is_noise_while_the_ranges_of_the_rounds_overlap() {
    let old = || latency(1000, &[900, 1000, 1300]);
    let p50 = |new| verdicts(old(), new)[0].clone();
    assert_eq!(p50(latency(1400, &[1300, 1400])), ("p50".to_owned(), Verdict::Unchanged));
    assert_eq!(p50(latency(1400, &[1301, 1400])).1, Verdict::Worse);
    assert_eq!(p50(latency(700, &[600, 899])).1, Verdict::Better);
    assert_eq!(p50(latency(1400, &[1400])).1, Verdict::Worse, "one round has no range");
}

#[test]
fn dropped_rounds_are_not_in_the_range() {
    let mut old = latency(1000, &[900, 1000, 5000]);
    old.round_log.as_mut().expect("rounds")[2].dropped = true;
    assert_eq!(verdicts(old, latency(1400, &[1300, 1500]))[0].1, Verdict::Worse);
}

#[test]
fn less_bandwidth_is_worse_and_more_is_better() {
    let expect = |verdict| vec![("gbit_per_s".to_owned(), verdict), ("messages_per_s".to_owned(), verdict)];
    assert_eq!(verdicts(bandwidth(10.0), bandwidth(8.0)), expect(Verdict::Worse));
    assert_eq!(verdicts(bandwidth(10.0), bandwidth(12.0)), expect(Verdict::Better));
    assert_eq!(verdicts(bandwidth(0.0), bandwidth(12.0)), expect(Verdict::Better));
}

#[test]
fn a_lost_message_is_a_regression_without_a_threshold() {
    let new = TestResult { errors: Some(1), ..latency(1000, &[]) };
    assert!(verdicts(latency(1000, &[]), new).contains(&("errors".to_owned(), Verdict::Worse)));
}

#[test]
fn a_ratio_to_a_baseline_is_judged_by_its_own_range() {
    let with = |median: f64, min: f64, max: f64| {
        let ratio_p50 = Some(MedianRange { median, min, max });
        let (baseline, path) = ("frame-lat".to_owned(), Some(PathKind::Memif));
        let against =
            Comparison { baseline, path, ratio_p50, ratio_p999: None, ratio_gbit: None, added_ns_p50: None };
        TestResult { against: Some(vec![against]), ..latency(1000, &[]) }
    };
    let of = |new| verdicts(with(4.0, 3.5, 4.5), new).pop().expect("the ratio is last");
    assert_eq!(of(with(5.0, 4.4, 6.0)), ("p50 / frame-lat memif".to_owned(), Verdict::Unchanged));
    assert_eq!(of(with(5.0, 4.6, 6.0)).1, Verdict::Worse);
    assert_eq!(of(with(3.0, 2.5, 3.4)).1, Verdict::Better);
}

#[test]
fn results_pair_by_what_they_measured_and_the_others_are_listed() {
    let four = TestResult { qps: Some(4), ..bandwidth(5.0) };
    let old = report(vec![bandwidth(10.0), four.clone(), latency(1000, &[])]);
    let new = report(vec![four, bandwidth(10.0), TestResult { crc: Some(false), ..latency(1000, &[]) }]);
    let mut old_crc = old.clone();
    old_crc.results[2].crc = Some(true);
    let comparison = ReportComparison::new(&old_crc, &new, 10.0);
    assert_eq!((comparison.regressions, comparison.improvements, comparison.figures.len()), (0, 0, 4));
    assert_eq!((comparison.only_old.len(), comparison.only_new.len()), (1, 1));
    let text = comparison_text(&comparison, false, 100);
    assert!(text.contains("only in the old file: send-lat 64 B memif MTU 1500 qps 1"), "{text}");
    assert!(!text.contains('│'), "nothing changed: {text}");
}

/// Each of the settings tells two results apart that are equal otherwise.
#[test]
fn results_with_other_settings_are_not_compared() {
    let others: [fn(&mut TestResult); 4] = [
        |result| result.inline = Some(64),
        |result| result.signal_every = Some(16),
        |result| result.bidirectional = Some(true),
        |result| result.rate = Some(1000.0),
    ];
    for (change, words) in
        others.into_iter().zip(["inline 64", "signal_every 16", "bidirectional", "rate 1000"])
    {
        let mut other = bandwidth(5.0);
        change(&mut other);
        let both = report(vec![bandwidth(10.0), other.clone()]);
        let swapped = report(vec![other.clone(), bandwidth(10.0)]);
        let comparison = ReportComparison::new(&both, &swapped, 0.0);
        assert!(comparison.only_old.is_empty() && comparison.only_new.is_empty(), "{words}");
        assert!(!comparison.figures.is_empty(), "{words}");
        assert!(comparison.figures.iter().all(|figure| figure.verdict == Verdict::Unchanged), "{words}");
        let comparison = ReportComparison::new(&report(vec![bandwidth(10.0)]), &report(vec![other]), 0.0);
        let text = comparison_text(&comparison, false, 100);
        assert!(text.contains("only in the old file: write-bw 64 KiB memif MTU 1500 qps 1"), "{text}");
        assert!(text.contains(words), "{text}");
    }
}

/// A file of a version that did not write a setting is compared with any.
#[test]
fn an_older_file_without_settings_is_compared() {
    let mut old = bandwidth(10.0);
    (old.inline, old.signal_every, old.bidirectional) = (None, None, None);
    let new = TestResult { rate: Some(5.0), inline: Some(64), ..bandwidth(10.0) };
    let comparison = ReportComparison::new(&report(vec![old]), &report(vec![new]), 0.0);
    assert_eq!((comparison.figures.len(), comparison.only_new.len()), (2, 0));
}

#[test]
fn a_table_has_the_changes_and_fits_a_hundred_columns() {
    let mut new = report(vec![bandwidth(5.0), latency(1000, &[])]);
    new.machine.cpu = Some("another processor".into());
    let comparison = ReportComparison::new(&report(vec![bandwidth(10.0), latency(1000, &[])]), &new, 10.0);
    let text = comparison_text(&comparison, false, 100);
    assert!(text.contains("cpu: \"a processor\" → \"another processor\""), "{text}");
    assert!(text.contains("WORSE") && text.contains("0.50") && !text.contains("p50"), "{text}");
    assert!(comparison_text(&comparison, true, 100).contains("p50"));
    assert!(text.lines().all(|line| line.chars().count() <= 100), "{text}");
    assert!(text.ends_with("threshold 10 %: 2 worse, 0 better\n"), "{text}");
    let unchanged = "3 figures unchanged; the largest difference of these is +0.0 %:\n  errors of send-lat 64 B memif MTU \
                     1500 qps 1 depth 1 post_list 1\n";
    assert!(text.contains(unchanged), "{text}");
}

#[test]
fn a_report_equals_itself() {
    let file = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("results/suite.json");
    let report = read_report(&file).expect("a report of the repository");
    let comparison = ReportComparison::new(&report, &report, 0.0);
    assert_eq!((comparison.regressions, comparison.improvements), (0, 0));
    assert!(comparison.only_old.is_empty() && comparison.only_new.is_empty());
    assert!(comparison.figures.len() > report.results.len());
    assert_eq!(comparison.machine_differences, []);
}
