//! Shared receive queues, of which every core has its part.

use ironwarp::Event;

use crate::bench::{Bench, Plan};

/// SRQ_LIMIT is one event for an arming, however many cores find their part low.
#[test]
fn running_low_is_told_once_however_many_cores_run_low() {
    let mut bench = Plan { cores: 3, rule: None, tune: |_| () }.bench();
    let pd = bench.far.pd;
    let srq = bench.far.ctx.create_srq(pd, 4, 1).unwrap();
    let told = |bench: &Bench| {
        let is_low = |event: &&Event| matches!(event, Event::SharedReceiveLimit { srq: low } if *low == srq);
        bench.far.events.iter().filter(is_low).count()
    };
    for armings in 1..=3 {
        bench.far.ctx.arm_srq(srq, 1).unwrap();
        (0..8).for_each(|_| bench.turn());
        assert_eq!(told(&bench), armings, "nothing is posted: every part is low when it is armed");
    }
    bench.far.ctx.arm_srq(srq, 0).unwrap();
    (0..8).for_each(|_| bench.turn());
    assert_eq!(told(&bench), 3, "a limit of 0 asks for nothing");
}
