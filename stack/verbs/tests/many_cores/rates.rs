//! The duration of an operation on another core's word, in turns. It depends on no timer and on no
//! chance.

use crate::many_cores::atomics::{bench, owned, sink, there, words};
use crate::many_cores::bench::Bench;
use ironwarp::{QueuePair, Region};

/// Turns until additions to these words, posted together on one queue pair, are complete.
fn turns(bench: &mut Bench, qp: QueuePair, target: &Region, places: &[usize]) -> usize {
    let before = bench.near.memory(&[0; 64]);
    bench.near.completions.clear();
    for (id, at) in places.iter().enumerate() {
        bench.add(qp, id as u64, sink(&before, id), there(target, *at));
    }
    let all = |bench: &Bench| bench.near.completions.len() == places.len();
    (1..100)
        .find(|_| {
            bench.turn();
            all(bench)
        })
        .expect("complete within a hundred turns")
}

/// Design decision 6: a call waits for one turn of the owner core, and its reply waits for one turn
/// of the calling core, whichever is polled first. So an operation on another core's word takes at
/// most two turns more than one on a local word. Eight operations on words of one other core take
/// the same. Eight operations that alternate between words of two cores each wait for the previous
/// one, and take two more turns each.
#[test]
fn an_atomic_of_another_core_takes_two_more_iterations() {
    for home in 0..3 {
        let mut bench = bench(3);
        let near = bench.connect([Some(home)])[0];
        let target = words(&bench.far);
        let mine = owned(&target, home, 3)[0];
        let [one, two] = [1, 2].map(|step| owned(&target, (home + step) % 3, 3)[0]);
        // The first operation warms up the connection.
        turns(&mut bench, near, &target, &[mine]);
        let at_hand = turns(&mut bench, near, &target, &[mine]);
        for remote in [one, two] {
            let single = turns(&mut bench, near, &target, &[remote]);
            assert!(
                single > at_hand && single <= at_hand + 2,
                "{single} turns, and {at_hand} for a local word"
            );
            let eight = turns(&mut bench, near, &target, &[remote; 8]);
            assert!(eight <= at_hand + 2, "{eight} turns for eight, and {at_hand} for a local word");
        }
        let alternating = [one, two, one, two, one, two, one, two];
        let taken = turns(&mut bench, near, &target, &alternating);
        assert!(taken <= at_hand + 2 * alternating.len(), "{taken} turns, and {at_hand} for a local word");
        assert_eq!(bench.far.counter("atomics_no_credit"), 0);
    }
}
