//! Alternation over made-up cases whose figures are known.

use super::*;
use crate::Latency;

/// Two ends that answer with scripted round trips.
#[derive(Default)]
struct Scripted {
    /// A case's round trips, one a slice; the last one repeats.
    rtt_ns: Vec<Vec<u64>>,
    measured: Vec<usize>,
    fail_at: Option<usize>,
    stop_after: Option<usize>,
}

impl Scripted {
    fn new(rtt_ns: &[&[u64]]) -> Self {
        Scripted { rtt_ns: rtt_ns.iter().map(|case| case.to_vec()).collect(), ..Scripted::default() }
    }
}

impl CaseRunner for Scripted {
    type Error = &'static str;

    fn slice(&mut self, case: usize) -> Result<Slice, &'static str> {
        if self.fail_at == Some(self.measured.len()) {
            return Err("the far end died");
        }
        let script = &self.rtt_ns[case];
        let turn = self.measured.iter().filter(|&&earlier| earlier == case).count();
        self.measured.push(case);
        let mut latency = Latency::new();
        latency.record(script[turn.min(script.len() - 1)]);
        Ok(Slice { latency: Some(latency), messages: 1, ..Slice::default() })
    }

    fn hop_ns(&mut self) -> Option<f64> {
        Some(80.0)
    }

    fn activity(&mut self) -> Activity {
        Activity::default()
    }

    fn interrupted(&mut self) -> bool {
        self.stop_after == Some(self.measured.len())
    }
}

fn plan(cases: usize, rounds: u32, spare_rounds: u32) -> RoundPlan {
    RoundPlan { cases, floor: Some(0), rounds, spare_rounds }
}

#[test]
fn baseline_and_tests_take_turns_and_the_floor_closes_the_last_round() {
    let mut runner = Scripted::new(&[&[100], &[200], &[300]]);
    let (rounds, why) = alternate(&mut runner, &plan(3, 2, 0));
    assert_eq!(why, None);
    assert_eq!(runner.measured, [0, 1, 2, 0, 1, 2, 0]);
    assert_eq!(rounds.rounds.len(), 2);
    assert!(rounds.rounds.iter().all(|round| round.slices.len() == 3 && round.hop_ns == Some(80.0)));
}

#[test]
fn a_round_under_which_the_floor_moved_is_dropped_and_made_up_for() {
    // The floor is 100, then jumps to 150 and stays: the first round alone is spoilt.
    let mut runner = Scripted::new(&[&[100, 150], &[200, 300]]);
    let (rounds, why) = alternate(&mut runner, &plan(2, 3, 5));
    assert_eq!(why, None);
    assert_eq!((rounds.rounds.len(), rounds.dropped(), rounds.counted().count()), (4, 1, 3));
    assert!(rounds.rounds[0].floor_moved.expect("both floors are known") > 0.49);
    let kept: Vec<_> = rounds.case(1).counted().filter_map(Slice::cost).collect();
    assert_eq!(kept, [300.0; 3]);
}

#[test]
fn a_floor_that_never_holds_still_ends_after_the_spare_rounds_and_all_rounds_count() {
    let restless: Vec<u64> = (0..20).map(|turn| 100 << (turn % 2)).collect();
    let mut runner = Scripted::new(&[&restless, &[300]]);
    let (rounds, _) = alternate(&mut runner, &plan(2, 3, 2));
    assert_eq!((rounds.rounds.len(), rounds.dropped()), (5, 5));
    assert!(!rounds.has_steady());
    assert_eq!(rounds.counted().count(), 5);
}

#[test]
fn a_floor_that_moves_by_a_fifth_still_counts() {
    let mut runner = Scripted::new(&[&[100, 119, 142], &[300]]);
    let (rounds, _) = alternate(&mut runner, &plan(2, 2, 0));
    assert_eq!(rounds.dropped(), 0);
}

#[test]
fn a_user_who_stops_a_run_keeps_the_complete_rounds() {
    let mut runner = Scripted::new(&[&[100], &[200]]);
    runner.stop_after = Some(3);
    let (rounds, why) = alternate(&mut runner, &plan(2, 10, 0));
    assert_eq!(why, Some(EndedEarly::ByUser));
    assert_eq!(rounds.rounds.len(), 1);
}

#[test]
fn a_round_interrupted_at_its_closing_floor_is_complete_all_the_same() {
    let mut runner = Scripted::new(&[&[100], &[200]]);
    runner.stop_after = Some(2);
    let (rounds, _) = alternate(&mut runner, &plan(2, 10, 0));
    assert_eq!(rounds.rounds.len(), 1);
    assert_eq!(rounds.rounds[0].floor_moved, None);
}

#[test]
fn an_unlimited_run_merges_its_rounds_and_keeps_every_message() {
    // Every fourth round is not steady.
    let hops: Vec<u64> = (0..2000).map(|turn| if turn % 4 == 3 { 200 } else { 100 }).collect();
    let mut runner = Scripted::new(&[&hops, &[300]]);
    runner.stop_after = Some(2 * 1000);
    let (rounds, why) = alternate(&mut runner, &plan(2, RoundPlan::UNLIMITED, 0));
    assert_eq!(why, Some(EndedEarly::ByUser));
    assert!(rounds.rounds.len() < 256, "{}", rounds.rounds.len());
    let all = rounds.case(1);
    assert_eq!(all.all().map(|(_, slice)| slice.messages).sum::<u64>(), 1000);
    let recorded = |slice: &Slice| slice.latency.as_ref().map_or(0, Latency::len);
    assert_eq!(all.all().map(|(_, slice)| recorded(slice)).sum::<u64>(), 1000);
    let steady: u64 = all.counted().map(|slice| slice.messages).sum();
    assert!((490..=510).contains(&steady), "half of the rounds have the same floor at both ends: {steady}");
}

#[test]
fn a_failed_slice_names_its_case() {
    let mut runner = Scripted::new(&[&[100], &[200]]);
    runner.fail_at = Some(1);
    let (rounds, why) = alternate(&mut runner, &plan(2, 10, 0));
    assert_eq!(why, Some(EndedEarly::Failed { case: 1, error: "the far end died" }));
    assert!(rounds.rounds.is_empty());
}

#[test]
fn without_a_floor_case_the_hop_is_the_floor() {
    let mut runner = Scripted::new(&[&[100]]);
    let (rounds, _) =
        alternate(&mut runner, &RoundPlan { cases: 1, floor: None, rounds: 2, spare_rounds: 0 });
    assert_eq!(runner.measured, [0, 0]);
    let moved: Vec<_> = rounds.rounds.iter().map(|round| round.floor_moved).collect();
    assert_eq!(moved, [Some(0.0); 2]);
}
