//! Valid and invalid histories.

use ironwarp::AtomicOp;
use ironwarp_types::SeededEntropy;

use super::check;
use crate::atomics::history::{History, NEVER, Op, OpKind};

/// An operation: invocation time, completion time, kind, values read.
fn op(invoked_at: u64, returned_at: u64, kind: OpKind, seen: &[u64]) -> Op {
    Op { invoked_at, returned_at, name: 0, effect_deadline: NEVER, kind, seen: seen.to_vec() }
}

fn add(word: usize, by: u64) -> OpKind {
    OpKind::Modify(word, AtomicOp::add(by))
}

fn swap(word: usize, from: u64, to: u64) -> OpKind {
    OpKind::Modify(word, AtomicOp::compare_and_swap(from, to))
}

fn holds(streams: Vec<Vec<Op>>, end: &[u64]) -> bool {
    let mut history = History::default();
    history.streams = streams;
    check(&history, end).is_ok()
}

#[test]
fn concurrent_additions_may_take_effect_in_either_order() {
    for seen in [[0, 5], [3, 0]] {
        let streams = vec![vec![op(1, 9, add(0, 5), &seen[..1])], vec![op(2, 8, add(0, 3), &seen[1..])]];
        assert!(holds(streams, &[8]));
    }
}

#[test]
fn a_lost_addition_is_detected() {
    let both_first = vec![vec![op(1, 9, add(0, 5), &[0])], vec![op(2, 8, add(0, 3), &[0])]];
    assert!(!holds(both_first, &[8]));
    assert!(!holds(vec![vec![op(1, 2, add(0, 5), &[0])]], &[0]), "the end lacks it");
    assert!(!holds(vec![vec![op(1, 2, add(0, 5), &[0])]], &[10]), "the end has it twice");
}

#[test]
fn an_effect_before_its_invocation_or_after_its_completion_is_detected() {
    let late = vec![vec![op(1, 2, add(0, 5), &[3])], vec![op(3, 4, add(0, 3), &[0])]];
    assert!(!holds(late, &[8]), "the first completed before the second was invoked");
}

/// RFC 7306 s5.4: an observer sees one stream's effects on several words in stream order.
#[test]
fn effects_that_violate_stream_order_are_detected() {
    let stream = || vec![op(1, 20, add(0, 1), &[0]), op(2, 21, add(1, 1), &[0])];
    let sees = |first: u64, second: u64| {
        vec![op(5, 6, OpKind::Read(1, 1), &[second]), op(7, 8, OpKind::Read(0, 1), &[first])]
    };
    for (first, second) in [(0, 0), (1, 0), (1, 1)] {
        assert!(holds(vec![stream(), sees(first, second)], &[1, 1]), "{first} {second}");
    }
    assert!(!holds(vec![stream(), sees(0, 1)], &[1, 1]));
    assert!(!holds(vec![stream(), vec![op(5, 6, OpKind::Read(0, 2), &[0, 1])]], &[1, 1]));
}

#[test]
fn an_operation_without_a_result_may_have_taken_effect_or_not() {
    let lost = || vec![op(1, NEVER, add(0, 5), &[]), op(2, NEVER, add(0, 7), &[])];
    for end in [0, 5, 12] {
        assert!(holds(vec![lost()], &[end]), "{end}");
    }
    assert!(!holds(vec![lost()], &[7]), "the second without the first");
    assert!(holds(vec![lost(), vec![op(3, 4, swap(0, 5, 1), &[5])]], &[8]));
    assert!(!holds(vec![lost(), vec![op(3, 4, swap(0, 5, 1), &[5])]], &[6]));
}

#[test]
fn a_failed_comparison_changes_nothing() {
    let streams = |end: u64| (vec![vec![op(1, 2, swap(0, 4, 9), &[0]), op(3, 4, add(0, 1), &[0])]], [end]);
    let (good, end) = streams(1);
    assert!(holds(good, &end));
    let (wrong, end) = streams(9);
    assert!(!holds(wrong, &end));
}

/// A value that recurs: the search has to backtrack.
#[test]
fn a_recurring_value_does_not_mislead_the_search() {
    let streams = vec![
        vec![op(1, 20, swap(0, 0, 1), &[0]), op(2, 21, swap(0, 0, 2), &[0])],
        vec![op(3, 22, swap(0, 1, 0), &[1])],
        vec![op(4, 23, OpKind::Read(0, 1), &[1]), op(5, 24, OpKind::Read(0, 1), &[2])],
    ];
    assert!(holds(streams, &[2]));
}

/// An operation by an invalidated tag takes effect before the invalidation, or never.
#[test]
fn an_operation_without_a_result_takes_effect_before_its_deadline() {
    let lost = |effect_deadline| Op { effect_deadline, ..op(1, NEVER, add(0, 5), &[]) };
    let looks = || vec![op(6, 6, OpKind::Read(0, 1), &[0]), op(8, 8, OpKind::Read(0, 1), &[5])];
    assert!(holds(vec![vec![lost(7)], looks()], &[5]));
    assert!(!holds(vec![vec![lost(5)], looks()], &[5]), "the word changed after the tag was invalidated");
    assert!(holds(vec![vec![lost(5)]], &[5]));
    assert!(!holds(vec![vec![lost(5)], vec![op(6, 7, add(0, 1), &[0])]], &[6]));
}

/// A read changes nothing. Taken too early, it would still exclude operations with a deadline from
/// preceding it.
#[test]
fn a_read_does_not_overtake_an_operation_with_a_deadline() {
    let lost = Op { effect_deadline: 5, ..op(1, NEVER, add(0, 5), &[]) };
    let looks = vec![op(6, 7, OpKind::Read(1, 1), &[0]), op(8, 9, OpKind::Read(0, 1), &[5])];
    assert!(holds(vec![vec![lost], looks], &[5, 0]));
}

/// The second operation of a stream may have a deadline while the first one has a later deadline.
#[test]
fn a_later_operation_of_a_stream_may_have_an_earlier_deadline() {
    let deadlines = Op { effect_deadline: 4, ..op(2, 10, add(1, 1), &[0]) };
    let streams = vec![vec![op(1, 9, add(0, 1), &[0]), deadlines], vec![op(6, 7, add(2, 1), &[0])]];
    assert!(holds(streams, &[1, 1, 1]));
    let deadlines = Op { effect_deadline: 4, ..op(2, NEVER, add(1, 1), &[]) };
    let look = op(3, 8, OpKind::Read(0, 1), &[0]);
    let streams =
        vec![vec![op(1, NEVER, add(0, 0), &[]), deadlines], vec![op(6, 7, add(2, 0), &[0])], vec![look]];
    assert!(holds(streams, &[0, 1, 0]));
}

#[test]
fn a_required_effect_implies_the_earlier_effects_of_its_stream() {
    let lost = || vec![op(1, NEVER, add(0, 5), &[]), op(2, NEVER, add(1, 7), &[])];
    let sees = |first, second| vec![op(5, 6, OpKind::Read(0, 2), &[first, second])];
    assert!(holds(vec![lost(), sees(5, 7)], &[5, 7]));
    assert!(!holds(vec![lost(), sees(0, 7)], &[0, 7]));
    assert!(!holds(vec![lost(), sees(0, 7)], &[5, 7]), "the reads see the effects in the wrong order");
}

/// Twelve connections failed with six additions pending each; an observer reads the words after
/// some of them.
#[test]
fn many_operations_without_a_result_are_decided_within_the_bound() {
    let by = |stream: u64, at: u64| (stream * 7 + at + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let lost = |stream: u64| -> Vec<Op> {
        let word = |at: u64| ((stream + at) % 3) as usize;
        (0..6).map(|at| op(1 + stream * 6 + at, NEVER, add(word(at), by(stream, at)), &[])).collect()
    };
    // This many of each stream's additions took effect, in rounds of a few with a read after each.
    let rounds = [[2, 0, 0, 1, 0], [1, 2, 0, 0, 3], [0, 1, 2, 0, 0]];
    let history = || {
        let mut history = History::default();
        history.streams = (0..12).map(lost).collect();
        let (mut done, mut words, mut looks) = ([0; 12], [0u64; 3], Vec::new());
        for (round, counts) in rounds.iter().enumerate() {
            for (place, count) in counts.iter().enumerate() {
                let stream = place * 2 + round;
                for at in done[stream]..done[stream] + count {
                    let word = ((stream as u64 + at) % 3) as usize;
                    words[word] = words[word].wrapping_add(by(stream as u64, at));
                }
                done[stream] += count;
            }
            let now = 100 + round as u64;
            looks.push(op(now, now, OpKind::Read(0, 3), &words));
        }
        history.streams.push(looks);
        (history, words)
    };
    let (good, end) = history();
    let states = check(&good, &end).unwrap();
    assert!(states < 300_000, "{states}");
}

/// Tries every order that the words allow, without heuristics.
fn tries_everything(streams: &[Vec<Op>], next: &mut Vec<usize>, words: &[u64], end: &[u64]) -> bool {
    let rest = || streams.iter().zip(&*next).flat_map(|(ops, next)| &ops[*next..]);
    if words == end && rest().all(|op| !op.has_returned()) {
        return true;
    }
    let bound = rest().map(|op| op.returned_at).min().unwrap_or(NEVER);
    let taken = streams.iter().zip(&*next).flat_map(|(ops, next)| &ops[..*next]);
    let clock = taken.map(|op| op.invoked_at).max().unwrap_or(0);
    for stream in 0..streams.len() {
        let Some(op) = streams[stream].get(next[stream]) else { continue };
        let sees = super::observations(op).all(|(word, value)| words[word] == value);
        if op.invoked_at > bound || op.latest() < clock.max(op.invoked_at) || !sees {
            continue;
        }
        let (word, _) = op.kind.words();
        let mut then = words.to_vec();
        then[word] = op.kind.apply(then[word]);
        next[stream] += 1;
        let found = tries_everything(streams, next, &then, end);
        next[stream] -= 1;
        if found {
            return true;
        }
    }
    false
}

/// Executes operations of four streams on two words at random times between invocation and
/// completion. Some streams fail, and some histories get one wrong entry.
fn random_history(rng: &mut SeededEntropy) -> (Vec<Vec<Op>>, Vec<u64>) {
    let (mut words, mut now) = (vec![0; 2], 0);
    let mut streams: Vec<Vec<Op>> = (0..4).map(|_| Vec::new()).collect();
    let mut done = [0; 4];
    let ends: [u64; 4] = core::array::from_fn(|_| if rng.chance(400_000) { rng.below(16) } else { NEVER });
    for step in 0..18 {
        now += 1;
        let stream = rng.below(4) as usize;
        let ops = &mut streams[stream];
        let is_open = step < ends[stream];
        if rng.chance(500_000) && is_open && ops.len() < 4 {
            let word = rng.below(2) as usize;
            let kind = match rng.below(4) {
                0 => OpKind::Read(0, 2),
                1 => swap(word, rng.below(3), rng.below(3)),
                _ => add(word, 1 + rng.below(2)),
            };
            ops.push(op(now, NEVER, kind, &[]));
        } else if let Some(op) = ops.get_mut(done[stream]) {
            let (word, count) = op.kind.words();
            let seen = words[word..word + count].to_vec();
            words[word] = op.kind.apply(words[word]);
            done[stream] += 1;
            // The operations of a failed stream have no result from then on.
            if is_open {
                (op.returned_at, op.seen) = (now, seen);
            }
        }
    }
    let effect_deadline = if rng.chance(500_000) { now + 1 } else { NEVER };
    let unreturned = |op: &&mut Op| !op.has_returned();
    streams.iter_mut().flatten().filter(unreturned).for_each(|op| op.effect_deadline = effect_deadline);
    corrupt(&mut streams, &mut words, now, rng);
    (streams, words)
}

fn corrupt(streams: &mut [Vec<Op>], words: &mut [u64], now: u64, rng: &mut SeededEntropy) {
    let mut ops: Vec<&mut Op> = streams.iter_mut().flatten().collect();
    let count = ops.len() as u64;
    if count == 0 {
        return;
    }
    let op = &mut ops[rng.below(count) as usize];
    match rng.below(8) {
        0 => words[0] = rng.below(4),
        1 => op.seen.iter_mut().for_each(|value| *value = rng.below(4)),
        2 if op.has_returned() => op.returned_at = op.invoked_at + (op.returned_at - op.invoked_at) / 2,
        3 => op.effect_deadline = op.invoked_at + rng.below(now),
        _ => {}
    }
}

/// The search prunes only irrelevant states: it finds an order exactly where there is one.
#[test]
fn the_search_agrees_with_an_exhaustive_search() {
    let mut rng = SeededEntropy::new(7);
    let (mut good, mut wrong) = (0, 0);
    for number in 0..5_000 {
        let (streams, end) = random_history(&mut rng);
        let there_is = tries_everything(&streams, &mut vec![0; 4], &[0, 0], &end);
        let story = format!("{streams:#?} {end:?}");
        assert_eq!(holds(streams, &end), there_is, "history {number}: {story}");
        *if there_is { &mut good } else { &mut wrong } += 1;
    }
    assert!(good > 200 && wrong > 200, "{good} {wrong}");
}

/// The replay rejects an order that does not explain the history.
#[test]
fn replay_rejects_an_order_that_does_not_explain_the_history() {
    let mut history = History::default();
    history.streams = vec![
        vec![op(1, 4, add(0, 5), &[0]), op(2, 5, add(1, 1), &[0])],
        vec![op(6, 7, add(0, 3), &[5])],
        vec![Op { effect_deadline: 5, ..op(3, NEVER, add(1, 2), &[]) }, op(4, NEVER, add(0, 1), &[])],
    ];
    let verify = |order: &[(usize, usize)], end: &[u64]| super::replay::verify(&history, end, order);
    assert_eq!(verify(&[(0, 0), (0, 1), (1, 0)], &[8, 1]), Ok(()));
    assert_eq!(verify(&[(0, 0), (0, 1), (2, 0), (1, 0)], &[8, 3]), Ok(()));
    for (order, end, why) in [
        (&[(0, 0), (0, 1), (1, 0)][..], [8, 2], "the final words differ"),
        (&[(0, 0), (0, 1)], [5, 1], "a result is missing"),
        (&[(0, 1), (0, 0), (1, 0)], [8, 1], "a stream is out of order"),
        (&[(1, 0), (0, 0), (0, 1)], [8, 1], "an operation precedes one that completed before its invocation"),
        (&[(0, 0), (0, 1), (1, 0), (2, 0)], [8, 3], "its tag was invalid"),
        (&[(0, 0), (0, 1), (1, 0), (2, 1)], [9, 1], "an earlier one of its stream is missing"),
        (&[(0, 0), (0, 1), (1, 0), (3, 0)], [8, 1], "there is no such request"),
        (&[(0, 0), (0, 0), (0, 1), (1, 0)], [13, 1], "one operation appears twice"),
    ] {
        assert!(verify(order, &end).is_err(), "{why}");
    }
}
