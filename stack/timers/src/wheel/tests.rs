//! Compares the wheel with a sorted map of deadlines.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;

const TICK: u64 = 1 << TICK_SHIFT;

fn drain(wheel: &mut Wheel, now: Nanos) -> Vec<u32> {
    let mut fired: Vec<u32> = std::iter::from_fn(|| wheel.pop_expired(now)).collect();
    fired.sort_unstable();
    fired
}

#[test]
fn every_id_fires_at_its_deadline_or_within_one_tick_after_it() {
    for span in [1, TICK, 300 * TICK, 70_000 * TICK, 20_000_000 * TICK] {
        let mut wheel = Wheel::new(1, Nanos(777));
        wheel.arm(0, Nanos(777 + span));
        assert!(drain(&mut wheel, Nanos(777 + span - 1)).is_empty(), "span {span}");
        assert_eq!(drain(&mut wheel, Nanos(777 + span + TICK)), [0], "span {span}");
        assert_eq!(wheel.next_deadline(), None);
    }
}

#[test]
fn a_deadline_moved_later_fires_once_at_the_later_time() {
    let mut wheel = Wheel::new(1, Nanos::ZERO);
    wheel.arm(0, Nanos(10 * TICK));
    wheel.arm(0, Nanos(1_000 * TICK));
    assert!(drain(&mut wheel, Nanos(500 * TICK)).is_empty());
    assert_eq!(drain(&mut wheel, Nanos(1_001 * TICK)), [0]);
}

#[test]
fn a_disarmed_id_does_not_fire_and_can_be_armed_again() {
    let mut wheel = Wheel::new(2, Nanos::ZERO);
    wheel.arm(1, Nanos(10 * TICK));
    wheel.disarm(1);
    assert!(drain(&mut wheel, Nanos(20 * TICK)).is_empty());
    wheel.arm(1, Nanos(25 * TICK));
    assert_eq!(drain(&mut wheel, Nanos(26 * TICK)), [1]);
}

#[test]
fn an_id_beyond_the_limit_is_ignored() {
    let mut wheel = Wheel::new(1, Nanos::ZERO);
    wheel.arm(1, Nanos(1));
    assert_eq!(wheel.next_deadline(), None);
    assert!(drain(&mut wheel, Nanos::from_secs(1)).is_empty());
}

#[derive(Clone, Debug)]
enum Step {
    Arm(u32, u64),
    Disarm(u32),
    Advance(u64),
    /// Jump to the wheel's next deadline.
    Jump,
}

fn spans() -> impl Strategy<Value = u64> {
    prop_oneof![0..4 * TICK, 0..600 * TICK, 0..100_000 * TICK, 0..40_000_000 * TICK]
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        4 => (0u32..16, spans()).prop_map(|(id, span)| Step::Arm(id, span)),
        1 => (0u32..16).prop_map(Step::Disarm),
        2 => spans().prop_map(Step::Advance),
        2 => Just(Step::Jump),
    ];
    prop::collection::vec(step, 1..200)
}

proptest! {
    #[test]
    fn the_wheel_agrees_with_a_map_of_deadlines(start in spans(), steps in steps()) {
        let mut now = Nanos(start);
        let mut wheel = Wheel::new(16, now);
        let mut oracle: BTreeMap<u32, Nanos> = BTreeMap::new();
        for step in steps {
            match step {
                Step::Arm(id, span) => {
                    wheel.arm(id, now + Nanos(span));
                    oracle.insert(id, now + Nanos(span));
                }
                Step::Disarm(id) => {
                    wheel.disarm(id);
                    oracle.remove(&id);
                }
                Step::Advance(span) => now += Nanos(span),
                Step::Jump => now = wheel.next_deadline().map_or(now, |at| at.max(now)),
            }
            for id in drain(&mut wheel, now) {
                let deadline = oracle.remove(&id);
                prop_assert!(deadline.is_some_and(|at| at <= now), "{id} fired early or twice: {deadline:?}");
            }
            for (id, &deadline) in &oracle {
                prop_assert!(deadline + Nanos(TICK) > now, "{id} is late");
                // Equal when the deadline is now and now is the edge of a tick.
                prop_assert!(wheel.next_deadline().is_some_and(|at| at.0 <= deadline.0 + TICK));
            }
        }
    }
}
