//! How long an operation on another core's word takes, in turns: no timer and no luck is part of it.

use crate::atomics::{bench, owned, sink, there, words};
use crate::bench::Bench;
use ironwarp::{QueuePair, Region};

/// Turns until additions to these words, asked for together over one queue pair, are complete.
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
        .expect("they are complete in a hundred turns")
}

/// Design decision 6: a call waits for one turn of its word's owner and the answer for one of the asking core, whichever of
/// them is polled first. So an operation on another core's word takes at most two turns more than one at hand, and so do eight
/// on words of that core; eight on words of two cores in turn, each of which waits for the one before, take two more each.
#[test]
fn an_atomic_of_another_core_takes_two_more_iterations() {
    for home in 0..3 {
        let mut bench = bench(3);
        let near = bench.connect([Some(home)])[0];
        let target = words(&bench.far);
        let mine = owned(&target, home, 3)[0];
        let [one, two] = [1, 2].map(|step| owned(&target, (home + step) % 3, 3)[0]);
        // The first one warms the connection up.
        turns(&mut bench, near, &target, &[mine]);
        let at_hand = turns(&mut bench, near, &target, &[mine]);
        for remote in [one, two] {
            let single = turns(&mut bench, near, &target, &[remote]);
            assert!(single > at_hand && single <= at_hand + 2, "{single} turns, and {at_hand} at hand");
            let eight = turns(&mut bench, near, &target, &[remote; 8]);
            assert!(eight <= at_hand + 2, "{eight} turns for eight, and {at_hand} at hand");
        }
        let alternating = [one, two, one, two, one, two, one, two];
        let taken = turns(&mut bench, near, &target, &alternating);
        assert!(taken <= at_hand + 2 * alternating.len(), "{taken} turns, and {at_hand} at hand");
        assert_eq!(bench.far.counter("atomics_no_credit"), 0);
    }
}
