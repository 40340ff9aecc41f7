//! From rounds to the figures of a report.

use super::CaseRounds;
use crate::report::{Comparison, MedianRange, RoundLog, TestResult};
use crate::{Case, EndPercent, EndUsage, Latency, Slice};

const NS_PER_S: f64 = 1e9;

/// One case's slices over the rounds that count, added up. Errors and verified bytes are those of
/// all rounds: a lost message always counts.
pub struct CaseTotals(Slice);

impl CaseTotals {
    /// Adds up the slices that count.
    pub fn of(rounds: &CaseRounds<'_>) -> Self {
        let mut sum = Slice { cpu_ns: Some(0), ..Slice::default() };
        rounds.counted().for_each(|slice| sum.merge(slice));
        let of_all = |count: fn(&Slice) -> u64| {
            rounds.all().map(|(_, slice)| count(slice)).fold(0, u64::saturating_add)
        };
        sum.errors = of_all(|slice| slice.errors);
        sum.verified_bytes = of_all(|slice| slice.verified_bytes);
        CaseTotals(sum)
    }

    /// Every round trip of those rounds, for latency tests.
    pub fn latency(&self) -> Option<&Latency> {
        self.0.latency.as_ref()
    }

    pub fn of_slice(case: &Case, slice: &Slice) -> TestResult {
        figures(case, None, slice).judge_cpu()
    }

    /// The report's entry for a case, compared with the baselines that ran in the same rounds.
    pub fn result(
        &self,
        case: &Case,
        device: Option<String>,
        rounds: &CaseRounds<'_>,
        baselines: &[(&Case, CaseRounds<'_>)],
    ) -> TestResult {
        let Slice { messages, verified_bytes, cpu_ns, .. } = self.0;
        let all = rounds.rounds();
        let is_restless = !all.has_steady() && !all.rounds.is_empty();
        let of_slices = figures(case, device, &self.0);
        let result = TestResult {
            hop_ns: MedianRange::of(all.counted().filter_map(|round| round.hop_ns)).map(|hop| hop.median),
            rounds: Some(all.counted().count() as u32),
            rounds_dropped: Some(all.dropped() as u32),
            seconds: of_slices.seconds.filter(|&seconds| seconds > 0.0),
            gbit_per_s: of_slices.gbit_per_s.filter(|_| messages > 0),
            cpu_ns_per_message: cpu_ns.filter(|_| messages > 0).map(|ns| ns as f64 / messages as f64),
            verified_bytes: (case.validate || verified_bytes > 0).then_some(verified_bytes),
            notes: is_restless.then(|| RESTLESS.to_owned()).into_iter().collect(),
            against: (!baselines.is_empty()).then(|| {
                baselines.iter().map(|(other, theirs)| compare(case, rounds, other, theirs)).collect()
            }),
            round_log: Some(log(rounds)),
            ..of_slices
        };
        let result = result.judge_cpu();
        if case.test.is_connection_setup() { of_setups(case, result) } else { result }
    }
}

fn figures(case: &Case, device: Option<String>, slice: &Slice) -> TestResult {
    TestResult {
        iterations: Some(slice.messages),
        seconds: Some(slice.elapsed_ns as f64 / NS_PER_S),
        rtt_ns: slice.latency.as_ref().and_then(Latency::summary),
        messages_per_s: slice.messages_per_s(),
        gbit_per_s: slice.gbit_per_s().filter(|_| !case.test.is_latency()),
        cpu_percent: EndPercent::of(slice.ends(), EndUsage::cpu_percent),
        busy_percent: EndPercent::of(slice.ends(), EndUsage::busy_percent),
        errors: Some(slice.errors),
        // Where several queue pairs are counted.
        messages_by_qp: (slice.messages_by_qp.len() > 1).then(|| slice.messages_by_qp.clone()),
        ..TestResult::unmeasured(case, device)
    }
}

/// A test of connection set-up has set-ups where other tests have messages and round trips.
fn of_setups(case: &Case, result: TestResult) -> TestResult {
    TestResult {
        setup_ns: result.rtt_ns,
        setups_per_s: result.messages_per_s,
        setups_per_s_per_core: result.messages_per_s.map(|rate| rate / f64::from(case.cores)),
        rtt_ns: None,
        messages_per_s: result.messages_per_s.filter(|_| case.bytes > 0),
        gbit_per_s: None,
        ..result
    }
}

const RESTLESS: &str = "the floor moved by more than 20 % under every round; all of them count";

/// Ratios of the rounds that count, ours over theirs.
fn compare(case: &Case, ours: &CaseRounds<'_>, other: &Case, theirs: &CaseRounds<'_>) -> Comparison {
    let pairs: Vec<(&Slice, &Slice)> = ours.counted().zip(theirs.counted()).collect();
    let at = |q: f64| {
        MedianRange::of(
            pairs.iter().filter_map(|(a, b)| Some(quantile(a, q)? / quantile(b, q).filter(|ns| *ns > 0.0)?)),
        )
    };
    let both_time = case.test.is_latency() && other.test.is_latency();
    let added = pairs.iter().filter_map(|(a, b)| Some(quantile(a, 0.5)? - quantile(b, 0.5)?));
    let gbit =
        pairs.iter().filter_map(|(a, b)| Some(a.gbit_per_s()? / b.gbit_per_s().filter(|gbit| *gbit > 0.0)?));
    Comparison {
        baseline: other.baseline_name(),
        path: Some(other.path),
        ratio_p50: both_time.then(|| at(0.5)).flatten(),
        ratio_p999: both_time.then(|| at(0.999)).flatten(),
        ratio_gbit: (!both_time).then(|| MedianRange::of(gbit)).flatten(),
        added_ns_p50: both_time.then(|| MedianRange::of(added).map(|spread| spread.median)).flatten(),
    }
}

fn quantile(slice: &Slice, q: f64) -> Option<f64> {
    slice.latency.as_ref()?.quantile(q).map(|ns| ns as f64)
}

fn log(rounds: &CaseRounds<'_>) -> Vec<RoundLog> {
    rounds
        .all()
        .map(|(round, slice)| RoundLog {
            hop_ns: round.hop_ns,
            floor_moved_percent: round.floor_moved.map(|moved| moved * 100.0),
            steal_ms: round.activity.steal_ns.map(|ns| ns as f64 / 1e6),
            context_switches: round.activity.context_switches,
            dropped: !round.is_steady(),
            p50_ns: slice.latency.as_ref().and_then(|latency| latency.quantile(0.5)),
            p999_ns: slice.latency.as_ref().and_then(|latency| latency.quantile(0.999)),
            gbit_per_s: slice.latency.is_none().then(|| slice.gbit_per_s()).flatten(),
            messages_per_s: slice.messages_per_s(),
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::Activity;
    use crate::rounds::{Round, Rounds};
    use crate::{PathKind, Test};

    fn lat(ns: u64) -> Slice {
        let mut latency = Latency::new();
        (0..100).for_each(|_| latency.record(ns));
        Slice {
            latency: Some(latency),
            messages: 100,
            elapsed_ns: 100 * ns,
            cpu_ns: Some(200),
            ..Slice::default()
        }
    }

    fn bw(bytes: u64) -> Slice {
        Slice { bytes, messages: 10, elapsed_ns: 1000, errors: 1, ..Slice::default() }
    }

    fn rounds(slices: Vec<(Slice, Slice, f64)>) -> Rounds {
        let round = |(floor, ours, moved)| Round {
            slices: vec![floor, ours],
            hop_ns: Some(80.0),
            activity: Activity::default(),
            floor_moved: Some(moved),
        };
        Rounds { rounds: slices.into_iter().map(round).collect() }
    }

    fn result(rounds: &Rounds, floor: Test, ours: Test) -> TestResult {
        let (floor, ours) = (case(floor), case(ours));
        CaseTotals::of(&rounds.case(1)).result(&ours, None, &rounds.case(1), &[(&floor, rounds.case(0))])
    }

    fn case(test: Test) -> Case {
        Case::new(test, 64, 1500, PathKind::Memif)
    }

    #[test]
    fn ratios_are_taken_round_by_round_and_not_over_the_whole() {
        // 2, 3 and 4 times the floor, which itself moves a hundredfold between rounds.
        let all = rounds(vec![
            (lat(100), lat(200), 0.0),
            (lat(10_000), lat(30_000), 0.0),
            (lat(1000), lat(4000), 0.0),
        ]);
        let result = result(&all, Test::FrameLat, Test::SendLat);
        let against = &result.against.expect("one baseline")[0];
        let ratio = against.ratio_p50.expect("both are latencies");
        assert!(
            (ratio.median - 3.0).abs() < 0.01
                && (ratio.min - 2.0).abs() < 0.01
                && (ratio.max - 4.0).abs() < 0.01
        );
        assert!((against.added_ns_p50.expect("both are latencies") - 3000.0).abs() < 10.0);
        assert_eq!((against.baseline.as_str(), against.ratio_gbit), ("frame-lat", None));
    }

    #[test]
    fn a_dropped_round_is_in_the_log_and_in_no_figure() {
        let all = rounds(vec![(lat(100), lat(200), 0.0), (lat(100), lat(9000), 0.5)]);
        let result = result(&all, Test::FrameLat, Test::SendLat);
        assert_eq!((result.rounds, result.rounds_dropped, result.iterations), (Some(1), Some(1), Some(100)));
        assert_eq!(result.rtt_ns.expect("a latency").max, 200);
        let log = result.round_log.expect("rounds");
        assert_eq!(log.iter().map(|round| round.dropped).collect::<Vec<_>>(), [false, true]);
    }

    #[test]
    fn bandwidth_is_compared_as_bandwidth() {
        let all = rounds(vec![(bw(1000), bw(500), 0.0), (bw(1000), bw(300), 0.0)]);
        let result = result(&all, Test::FrameBw, Test::WriteBw);
        let against = &result.against.expect("one baseline")[0];
        assert_eq!(against.ratio_gbit.expect("both are bandwidths").median, 0.4);
        assert_eq!((against.ratio_p50, against.added_ns_p50), (None, None));
        assert_eq!(result.gbit_per_s, Some(800.0 * 8.0 / 2000.0));
        assert_eq!((result.errors, result.cpu_ns_per_message), (Some(2), None));
    }

    #[test]
    fn a_connection_setup_has_a_rate_per_core_and_no_round_trip() {
        let all = rounds(vec![(lat(100), lat(50_000), 0.0)]);
        let setup = Case { cores: 2, ..Case::new(Test::ConnRate, 0, 1500, PathKind::Memif) };
        let result = CaseTotals::of(&all.case(1)).result(&setup, None, &all.case(1), &[]);
        // 100 connections in 100 times 50 microseconds.
        assert_eq!((result.setups_per_s, result.setups_per_s_per_core), (Some(20_000.0), Some(10_000.0)));
        assert_eq!(result.setup_ns.map(|setup| setup.p50 / 1000), Some(50));
        assert_eq!((result.rtt_ns, result.messages_per_s, result.gbit_per_s), (None, None, None));
        assert_eq!(result.qps, None);
    }

    #[test]
    fn a_restless_floor_is_said_aloud() {
        let all = rounds(vec![(lat(100), lat(200), 0.9)]);
        let result = result(&all, Test::FrameLat, Test::SendLat);
        assert_eq!(result.rounds, Some(1));
        assert!(result.notes[0].contains("every round"), "{:?}", result.notes);
    }

    #[test]
    fn a_case_that_never_ran_has_no_rates() {
        let result = result(&rounds(vec![]), Test::FrameLat, Test::SendLat);
        assert_eq!((result.rtt_ns, result.messages_per_s, result.cpu_ns_per_message), (None, None, None));
        assert_eq!(result.iterations, Some(0));
    }
}
