//! A run of one test, with one size or all sizes.

use std::time::Duration;

use ironwarp_bench::{Budget, Case};

use super::{Group, Plan, Session};

/// Rounds of a single test: enough to detect a disturbed machine.
const ROUNDS: u32 = 10;
/// The longest slice. Ctrl-C discards the round in progress.
const SLICE_MAX: Duration = Duration::from_secs(1);
/// The most messages of a slice: about a second of the fastest test.
const SLICE_MESSAGES_MAX: u64 = 1 << 20;

/// The intervals of a run that prints a line for each. An interval is a round.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Intervals {
    pub length: Duration,
    pub count: u32,
}

/// Returns a plan with a group for each case. The rounds share the budget, or are the intervals.
pub fn single(mut session: Session, cases: Vec<Case>, total: Budget, intervals: Option<Intervals>) -> Plan {
    let (rounds, budget) = match intervals {
        Some(Intervals { length, count }) => (count, Budget::duration(length, total.warmup)),
        None => split_budget(total),
    };
    for case in cases {
        let mut group = Group { rounds, reports_slices: intervals.is_some(), ..Group::default() };
        group.add(case, budget, &[]);
        session.groups.push(group);
    }
    Plan { sessions: vec![session] }
}

fn split_budget(total: Budget) -> (u32, Budget) {
    let by_time = total.duration.map_or(0, |limit| limit.div_duration_f64(SLICE_MAX).ceil() as u32);
    let to_u32 = |count: u64| u32::try_from(count).unwrap_or(u32::MAX);
    let most = total.iterations.map_or(u32::MAX, to_u32).max(1);
    let by_count = total.iterations.map_or(0, |limit| to_u32(limit.div_ceil(SLICE_MESSAGES_MAX)));
    let rounds = ROUNDS.max(by_time).max(by_count).min(most);
    let per_round = Budget {
        iterations: total.iterations.map(|limit| limit.div_ceil(u64::from(rounds))),
        duration: total.duration.map(|limit| limit / rounds),
        warmup: total.warmup,
    };
    (rounds, per_round)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rounds_share_the_whole_budget() {
        let (rounds, per_round) = split_budget(Budget::duration(Duration::from_secs(2), 5));
        assert_eq!((rounds, per_round.duration, per_round.warmup), (10, Some(Duration::from_millis(200)), 5));
        let (rounds, per_round) = split_budget(Budget::iterations(1001, 0));
        assert!(u64::from(rounds) * per_round.iterations.expect("counted") >= 1001);
    }

    #[test]
    fn a_long_run_has_slices_of_a_second() {
        let (rounds, per_round) = split_budget(Budget::duration(Duration::from_secs(60), 0));
        assert_eq!((rounds, per_round.duration), (60, Some(SLICE_MAX)));
    }

    #[test]
    fn a_slice_has_at_most_a_million_messages() {
        let (rounds, per_round) = split_budget(Budget::iterations(100_000_000, 0));
        assert_eq!(rounds, 96);
        let each = per_round.iterations.expect("counted");
        assert!(each <= SLICE_MESSAGES_MAX && each * 96 >= 100_000_000);
    }

    #[test]
    fn three_messages_are_three_rounds() {
        assert_eq!(split_budget(Budget::iterations(3, 0)), (3, Budget::iterations(1, 0)));
    }
}
