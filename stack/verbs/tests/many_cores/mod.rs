//! Stacks of several cores: flows spread over them, frames that arrive on another core, and state
//! that all cores share.

mod atomics;
mod bench;
mod bound_queues;
mod network;
mod rates;
mod revocation;
mod shared_receives;
mod stress;
mod threads;

use bench::{Bench, Plan, contents, far_addr, pattern};
use ironwarp::memory::QueueRule;
use ironwarp::{
    Config, Event, Nanos, QpAttr, RemoteMemory, ResourceUsage, SendWr, SetupError, Stack, VerbsError, memory,
};

fn spread_over(cores: u16, rule: Option<QueueRule>) -> Bench {
    Plan { cores, rule, tune: |_| () }.bench()
}

/// design decision 4: whichever core the device selects for a frame, connections spread over all
/// cores and every byte arrives.
#[test]
fn connections_spread_over_all_cores_with_any_device_hash() {
    let rules = [None, Some(QueueRule::All(0)), Some(QueueRule::All(1)), Some(QueueRule::Toeplitz)];
    for (cores, rule) in [2, 4].into_iter().flat_map(|cores| rules.map(|rule| (cores, rule))) {
        let mut bench = spread_over(cores, rule);
        let qps = bench.connect([None; 16]);
        let even = vec![16 / usize::from(cores); cores.into()];
        assert_eq!(bench.near.spread(), even, "{cores} cores, {rule:?}");
        assert!(bench.far.spread().iter().all(|&qps| qps > 0), "{:?}, {rule:?}", bench.far.spread());
        bench.exchange(&qps, 20_000);
        // Frames in the rings between cores arrive.
        (0..4).for_each(|_| bench.turn());
        for node in [&bench.near, &bench.far] {
            assert_eq!(node.counter("cores_steered_dropped"), 0);
            assert_eq!(node.counter("cores_steered_out"), node.counter("cores_steered_in"));
            assert_eq!(node.counter("tcp_tx_retransmits"), 0);
            assert_eq!(node.counter("tcp_drop_no_connection"), 0);
        }
    }
}

/// Equal stacks with their queues joined one to one agree on the core of a flow, and so does a
/// device that hashes. No frame is steered to another core.
#[test]
fn frames_that_arrive_on_their_core_are_not_steered() {
    for rule in [None, Some(QueueRule::Toeplitz)] {
        let mut bench = spread_over(4, rule);
        let qps = bench.connect([None; 16]);
        bench.exchange(&qps, 20_000);
        for node in [&bench.near, &bench.far] {
            let segments = (0..4).map(|core| node.core_counter(core, "tcp_rx_segments"));
            assert!(segments.min().unwrap_or_default() > 0);
            // Only ARP needs the leader core.
            assert!(node.counter("cores_steered_out") < 16, "{:?}, {rule:?}", node.counted());
        }
    }
}

/// A device that puts every frame into one queue: that core steers frames of other cores to them,
/// without loss.
#[test]
fn frames_that_arrive_on_another_core_are_steered() {
    let mut bench = Plan::one_queue(4, 2).bench();
    let qps = bench.connect([Some(0), Some(1), Some(3)]);
    bench.exchange(&qps, 50_000);
    assert_eq!(bench.near.spread(), [1, 1, 0, 1]);
    assert_eq!(bench.near.core_counter(2, "tcp_rx_segments"), 0);
    assert!(bench.near.core_counter(2, "cores_steered_out") > 100);
    for core in [0, 1, 3] {
        assert!(bench.near.core_counter(core, "cores_steered_in") > 30);
        assert_eq!(bench.near.core_counter(core, "cores_steered_out"), 0);
    }
}

/// semantics "Atomics": steered frames may be dropped. A core that falls behind loses frames and
/// counts them, and TCP recovers.
#[test]
fn a_slow_core_loses_steered_frames_and_tcp_recovers() {
    let small = |config: &mut Config| {
        (config.port.ring_size, config.port.rx_frames) = (Some(64), 64 + 1024);
        // The initial windows of eight connections are twice the capacity of the ring between two
        // cores.
        config.tcp.initial_window_segments = 64;
    };
    let mut bench = Plan { cores: 2, rule: Some(QueueRule::All(0)), tune: small }.bench();
    let qps = bench.connect([Some(1); 8]);
    let what = pattern(200_000, 5);
    let (source, target) = (bench.near.memory(&what), bench.far.memory(&vec![0; what.len()]));
    let remote = RemoteMemory { stag: target.stag(), tagged_offset: target.base_to() };
    // The Reads go to the near node, whose core 1 polls rarely: responses arrive faster than it
    // polls.
    let sinks: Vec<_> = qps.iter().map(|_| bench.near.memory(&vec![0; what.len()])).collect();
    let write = [source.slice(0, what.len() as u32).expect("inside")];
    bench.near.ctx.post_send(qps[0], &SendWr::write(1, &write, remote)).expect("room");
    bench.until("the Write", |bench| bench.near.completions.len() == 1);
    for (qp, sink) in qps.iter().zip(&sinks) {
        let into = [sink.slice(0, what.len() as u32).expect("inside")];
        bench.near.ctx.post_send(*qp, &SendWr::read(2, &into, remote)).expect("room");
    }
    let mut turns = 0;
    bench.until("the Reads", |bench| {
        // Core 1 polls once while core 0 polls forty times.
        turns += 1;
        for _ in 0..40 {
            bench.advance(ironwarp::Nanos::from_micros(5));
            bench.near.poll_core(0);
            bench.far.poll();
            bench.carry();
        }
        bench.near.completions.len() == 9
    });
    assert!(
        turns > 1 && bench.near.core_counter(0, "cores_steered_dropped") > 0,
        "{:?}",
        bench.near.counted()
    );
    assert!(bench.far.counter("tcp_tx_retransmits") > 0);
    assert!(sinks.iter().all(|sink| contents(sink) == what));
}

/// A completion queue has one ring for each core: it keeps the order of each queue pair, and loses
/// nothing.
#[test]
fn one_completion_queue_is_fed_by_all_cores_in_the_order_of_each_queue_pair() {
    let mut bench = Plan::one_queue(4, 0).bench();
    let qps = bench.connect([None; 8]);
    let target = bench.far.memory(&[0; 8]);
    let remote = RemoteMemory { stag: target.stag(), tagged_offset: target.base_to() };
    for round in 0..50 {
        for qp in &qps {
            bench.near.ctx.post_send(*qp, &SendWr::write_inline(round, b"in order", remote)).expect("room");
        }
        bench.turn();
    }
    bench.until("every completion", |bench| bench.near.completions.len() == 400);
    for qp in &qps {
        let order = bench.near.completions.iter().filter(|one| one.qp == qp.num()).map(|one| one.wr_id);
        assert!(order.eq(0..50));
    }
}

#[test]
fn a_queue_pair_connects_from_its_requested_core() {
    let mut bench = Plan::one_queue(4, 0).bench();
    bench.connect([Some(2), Some(2), None, None, None]);
    assert_eq!(bench.near.spread(), [1, 1, 2, 1]);
    let beyond = QpAttr { core: Some(4), ..QpAttr::new(bench.near.cq) };
    let refused = bench.near.ctx.create_qp(bench.near.pd, &beyond);
    assert!(matches!(refused, Err(VerbsError::OutOfRange { what: "core", value: 4, .. })));
}

/// RFC 6581 s10, design decision 4: the second attempt, in revision 1, starts while a steered frame
/// is processed. Its replies are steered to the same core as those of any other connection.
#[test]
fn a_retry_uses_a_port_that_hashes_to_the_same_core() {
    const ATTEMPTS: usize = 8;
    let mut bench = Plan::one_queue(2, 0).bench();
    let qps: Vec<_> = (0..ATTEMPTS).map(|_| bench.near.dial(Some(1), far_addr())).collect();
    // Every request arrives, and the application does not decide on it.
    for _ in 0..200 {
        bench.advance(Nanos::from_micros(10));
        bench.near.poll();
        (0..2).for_each(|core| bench.far.poll_core(core));
        bench.carry();
    }
    let incoming =
        |bench: &Bench| bench.far.workers.iter().map(|one| one.resource_usage().incoming).sum::<usize>();
    assert_eq!(incoming(&bench), ATTEMPTS);
    // The listening context is dropped, which resets its waiting connections. Another context
    // listens.
    let next = bench.far.stack.context().expect("room");
    drop(std::mem::replace(&mut bench.far.ctx, next));
    while incoming(&bench) > 0 {
        (0..2).for_each(|core| bench.far.poll_core(core));
    }
    (bench.far.pd, bench.far.cq) = (bench.far.ctx.alloc_pd(), bench.far.ctx.create_cq(1024).expect("room"));
    bench.far.ctx.listen(far_addr()).expect("room");
    (0..4).for_each(|_| (0..2).for_each(|core| bench.far.poll_core(core)));
    bench.until("second attempts", |bench| {
        let up = qps.iter().filter(|qp| bench.near.is_up(**qp)).count();
        assert!(bench.near.events.len() == up, "{:?}", bench.near.events);
        up == ATTEMPTS && bench.far.accepted.iter().all(|qp| bench.far.is_up(*qp))
    });
    assert_eq!(bench.near.core_counter(1, "iwarp_revision_fallbacks"), ATTEMPTS as u64);
    bench.exchange(&qps, 1000);
}

/// Every core releases everything, in whichever order the two sides close.
#[test]
fn closing_leaves_no_state_on_any_core() {
    let mut bench = Plan::one_queue(4, 3).bench();
    let qps = bench.connect([None; 12]);
    for qp in qps.iter().step_by(2) {
        bench.near.ctx.disconnect(*qp).expect("room");
    }
    bench.until("the first half", |bench| {
        let far = bench.far.accepted.iter().filter(|qp| bench.far.is_down(**qp));
        far.count() == 6 && qps.iter().step_by(2).all(|qp| bench.near.is_down(*qp))
    });
    for qp in bench.far.accepted.clone() {
        if !bench.far.is_down(qp) {
            bench.far.ctx.disconnect(qp).expect("room");
        }
    }
    bench.until("every end", |bench| {
        qps.iter().all(|qp| bench.near.is_down(*qp))
            && bench.far.accepted.iter().all(|qp| bench.far.is_down(*qp))
    });
    qps.iter().for_each(|qp| bench.near.ctx.destroy_qp(*qp).expect("room"));
    for qp in bench.far.accepted.drain(..) {
        bench.far.ctx.destroy_qp(qp).expect("room");
    }
    bench.far.ctx.unlisten(far_addr()).expect("room");
    let nothing = ResourceUsage { completion_queues: 1, ..ResourceUsage::default() };
    bench.until("nothing held", |bench| {
        let workers = bench.near.workers.iter().chain(&bench.far.workers);
        workers.into_iter().all(|worker| worker.resource_usage() == nothing)
    });
}

/// Every core listens, and one core reports for all. An address belongs to one context on all
/// cores, and is free on all cores when that context is dropped.
#[test]
fn listeners_are_the_same_on_every_core() {
    let mut bench = Plan::one_queue(4, 1).bench();
    let mut rival = bench.far.stack.context().expect("a second context");
    rival.listen(far_addr()).expect("room");
    (0..4).for_each(|_| bench.turn());
    let heard: Vec<_> = core::iter::from_fn(|| rival.poll_event()).collect();
    assert!(matches!(heard.as_slice(), [Event::ListenFailed { .. }]), "{heard:?}");
    assert!(bench.far.workers.iter().all(|worker| worker.resource_usage().listeners == 1));
    bench.far.ctx.unlisten(far_addr()).expect("room");
    (0..4).for_each(|_| bench.turn());
    assert!(bench.far.workers.iter().all(|worker| worker.resource_usage().listeners == 0));
    rival.listen(far_addr()).expect("room");
    (0..4).for_each(|_| bench.turn());
    assert!(rival.poll_event().is_none());
    drop(rival);
    (0..4).for_each(|_| bench.turn());
    assert!(bench.far.workers.iter().all(|worker| worker.resource_usage().listeners == 0));
    bench.far.ctx.listen(far_addr()).expect("room");
    (0..4).for_each(|_| bench.turn());
    assert!(bench.far.events.is_empty(), "{:?}", bench.far.events);
    bench.connect([None; 4]);
}

/// A context slot is reused only after every core has released the previous context.
#[test]
fn dropped_contexts_release_their_slots_on_every_core() {
    let few = |config: &mut Config| (config.limits.contexts, config.limits.completion_queues) = (2, 3);
    let mut bench = Plan { cores: 2, rule: Some(QueueRule::All(0)), tune: few }.bench();
    for _ in 0..20 {
        let mut visitor = bench.near.stack.context().expect("a place");
        assert!(matches!(bench.near.stack.context(), Err(VerbsError::LimitReached("contexts"))));
        visitor.create_cq(4).expect("a place");
        visitor.listen(([10, 0, 0, 1], 9).into()).expect("room");
        bench.turn();
        drop(visitor);
        // The other core polls before the leader core, and must not release the context too early.
        bench.near.poll_core(1);
        assert!(matches!(bench.near.stack.context(), Err(VerbsError::LimitReached("contexts"))));
        (0..3).for_each(|_| bench.turn());
    }
}

/// semantics "Memory": memory that a core may still read is released after that core's epoch has
/// advanced.
#[test]
fn memory_is_released_after_every_core_is_quiescent() {
    let mut bench = Plan::one_queue(2, 0).bench();
    let qps = bench.connect([Some(1)]);
    let (source, target) = (bench.near.memory(&[7; 64]), bench.far.memory(&[0; 64]));
    let remote = RemoteMemory { stag: target.stag(), tagged_offset: target.base_to() };
    let gather = [source.slice(0, 64).expect("inside")];
    bench.near.ctx.post_send(qps[0], &SendWr::write(1, &gather, remote)).expect("room");
    while bench.near.workers[1].poll(1).work == 0 {}
    drop(source);
    let poll_0 = |bench: &mut Bench| {
        bench.near.poll_core(0);
        while bench.near.ctx.poll_event().is_some() {}
    };
    (0..10).for_each(|_| poll_0(&mut bench));
    assert_eq!(bench.near.workers[0].resource_usage().regions, 1, "core 1 may still read the memory");
    while bench.near.workers[1].poll(1).work > 0 {}
    poll_0(&mut bench);
    assert_eq!(bench.near.workers[0].resource_usage().regions, 0);
}

/// Both queue pairs are on one node, on any of its cores: looped-back frames are steered like
/// others.
#[test]
fn a_node_connects_to_itself_across_cores() {
    let mut bench = Plan::one_queue(4, 0).bench();
    let ours = ([10, 0, 0, 1], bench::PORT).into();
    bench.near.ctx.listen(ours).expect("room");
    bench.turn();
    let qps: Vec<_> = (0..8).map(|_| bench.near.dial(None, ours)).collect();
    bench.until("both sides of all connections", |bench| {
        let accepted = &bench.near.accepted;
        accepted.len() == 8 && accepted.iter().chain(&qps).all(|qp| bench.near.is_up(*qp))
    });
    assert_eq!(bench.near.spread().iter().sum::<usize>(), 16);
    let target = bench.near.memory(&vec![0; 100_000]);
    let remote = RemoteMemory { stag: target.stag(), tagged_offset: target.base_to() };
    let source = bench.near.memory(&pattern(100_000, 9));
    let all = [source.slice(0, 100_000).expect("inside")];
    for qp in &qps {
        bench.near.ctx.post_send(*qp, &SendWr::write(1, &all, remote)).expect("room");
    }
    bench.until("every Write", |bench| bench.near.completions.len() == 8);
    assert_eq!(contents(&target), pattern(100_000, 9));
    assert!(bench.near.counter("cores_steered_out") > 0);
}

#[test]
fn a_number_of_cores_that_does_not_fit_is_refused_with_what_is_allowed() {
    let two = || {
        let mut config = Config::in_memory("10.0.0.1/24").expect("a configuration");
        config.core.count = 2;
        config
    };
    let said = |outcome: Result<(Stack, Vec<ironwarp::Worker>), SetupError>| {
        outcome.err().expect("two cores do not fit").to_string()
    };
    let (port, _far) = memory::detached(&memory::MemoryConfig::default());
    let built = Stack::builder(two()).memory_port(port).build();
    assert_eq!(said(built), "core.count = 2: as many as there are ports");
    let one = Stack::builder(two()).build_one().map(|(stack, worker)| (stack, vec![worker]));
    assert_eq!(said(one), "core.count = 2: 1, where one worker is asked for");
}
