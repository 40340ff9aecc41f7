//! Completion queues and shared receive queues that are bound to one core.

use ironwarp::{
    Access, AtomicOp, Completion, CqAttr, Event, QpAttr, RecvWr, RemoteMemory, SendWr, SrqAttr, VerbsError,
};

use crate::many_cores::bench::{Bench, Plan, far_addr};

fn two_cores() -> Bench {
    Plan { cores: 2, rule: None, tune: |_| () }.bench()
}

fn is_on_other_core<T>(result: Result<T, VerbsError>, bound: u16, core: u16) -> bool {
    matches!(result, Err(VerbsError::QueueOnOtherCore { bound: b, core: c }) if (b, c) == (bound, core))
}

/// The queue pair follows its queue, and no other core has a part of the queue.
#[test]
fn a_queue_pair_connects_from_the_core_of_its_queue() {
    for core in [0, 1] {
        let mut bench = two_cores();
        let before: Vec<_> =
            bench.near.workers.iter().map(|one| one.resource_usage().completion_queues).collect();
        let cq = bench.near.ctx.create_cq_with(&CqAttr { depth: 8, core: Some(core) }).expect("a queue");
        let qp = bench.near.ctx.create_qp(bench.near.pd, &QpAttr::new(cq)).expect("a queue pair");
        bench.near.ctx.connect(qp, far_addr(), b"").expect("connect");
        bench.until("the connection", |bench| bench.near.is_up(qp));
        assert_eq!(bench.near.ctx.query_qp(qp).expect("there").core, Some(core));
        let info = bench.near.ctx.query_cq(cq).expect("there");
        assert_eq!((info.core, info.depth, info.users), (Some(core), 8, 2));
        let parts = bench.near.workers.iter().map(|one| one.resource_usage().completion_queues);
        let added: Vec<_> = parts.zip(&before).map(|(now, before)| now - before).collect();
        assert_eq!(added, if core == 0 { [1, 0] } else { [0, 1] });

        let target = bench.far.memory(&[0; 8]);
        let remote = RemoteMemory { stag: target.stag(), tagged_offset: target.base_to() };
        bench.near.ctx.resize_cq(cq, 32).expect("no work is outstanding");
        let mut done = [Completion::default(); 4];
        bench.near.ctx.post_send(qp, &SendWr::write_inline(7, b"bound", remote)).expect("room");
        bench.until("the completion", |bench| bench.near.ctx.poll_cq(cq, &mut done).expect("there") == 1);
        assert_eq!(done[0].wr_id, 7);
        assert_eq!(bench.near.ctx.query_cq(cq).expect("there").depth, 32);
        bench.near.ctx.destroy_qp(qp).expect("there");
        bench.until("the end", |bench| bench.near.ctx.destroy_cq(cq).is_ok());
        for _ in 0..4 {
            bench.turn();
        }
        let left: Vec<_> =
            bench.near.workers.iter().map(|one| one.resource_usage().completion_queues).collect();
        assert_eq!(left, before);
    }
}

#[test]
fn queues_of_different_cores_do_not_go_together() {
    let mut bench = two_cores();
    let ctx = &mut bench.near.ctx;
    let [first, second] =
        [0, 1].map(|core| ctx.create_cq_with(&CqAttr { depth: 8, core: Some(core) }).expect("a queue"));
    let wrong = QpAttr { core: Some(0), ..QpAttr::new(second) };
    assert!(is_on_other_core(ctx.create_qp(bench.near.pd, &wrong), 1, 0));
    let mixed = QpAttr { recv_cq: second, ..QpAttr::new(first) };
    assert!(is_on_other_core(ctx.create_qp(bench.near.pd, &mixed), 1, 0));
    let srq = ctx
        .create_srq_with(bench.near.pd, &SrqAttr { depth: 4, max_sge: 1, core: Some(1) })
        .expect("a queue");
    let shared = QpAttr { srq: Some(srq), ..QpAttr::new(first) };
    assert!(is_on_other_core(ctx.create_qp(bench.near.pd, &shared), 1, 0));
    // Nothing was counted for what failed.
    assert_eq!((ctx.query_cq(first).expect("there").users, ctx.query_srq(srq).expect("there").users), (0, 0));
    let words = ctx.register_on_core(bench.near.pd, vec![0; 8], Access::LOCAL_WRITE, 0).expect("a region");
    assert!(is_on_other_core(ctx.atomic(second, 1, (&words, 0), &AtomicOp::add(1)), 1, 0));
    assert_eq!(ctx.query_cq(second).expect("there").reserved_cqes, 0);
    ctx.atomic(first, 2, (&words, 0), &AtomicOp::add(1)).expect("its owner");
    let mut done = [Completion::default(); 1];
    bench.until("the atomic", |bench| bench.near.ctx.poll_cq(first, &mut done).expect("there") == 1);
    for core in [2, u16::MAX] {
        let made = bench.near.ctx.create_cq_with(&CqAttr { depth: 8, core: Some(core) });
        assert!(matches!(made, Err(VerbsError::OutOfRange { what: "core", .. })));
        let attr = SrqAttr { depth: 8, max_sge: 1, core: Some(core) };
        let made = bench.near.ctx.create_srq_with(bench.near.pd, &attr);
        assert!(matches!(made, Err(VerbsError::OutOfRange { what: "core", .. })));
    }
}

/// A request arrives on the core of its flow. A queue pair of another core cannot accept it, and
/// the next one can.
#[test]
fn a_request_is_accepted_on_its_own_core_only() {
    let mut bench = two_cores();
    let far_cqs = [0, 1]
        .map(|core| bench.far.ctx.create_cq_with(&CqAttr { depth: 8, core: Some(core) }).expect("a queue"));
    let mut server = bench.far.stack.context().expect("a context");
    let at = server.listen(([10, 0, 0, 2], 5_000).into()).expect("room");
    (0..4).for_each(|_| bench.turn());
    let near = bench.near.dial(None, at);
    let mut request = None;
    bench.until("the request", |_| {
        if let Some(Event::ConnectRequest { request: arrived, .. }) = server.poll_event() {
            request = Some(arrived);
        }
        request.is_some()
    });
    let request = request.expect("a request");
    let (right, wrong) = (request.core(), 1 - request.core());
    let [right_qp, wrong_qp] = [right, wrong].map(|core| {
        let attr = QpAttr::new(far_cqs[usize::from(core)]);
        bench.far.ctx.create_qp(bench.far.pd, &attr).expect("a queue pair")
    });
    assert!(is_on_other_core(bench.far.ctx.accept(&request, wrong_qp, b""), wrong, right));
    bench.far.ctx.accept(&request, right_qp, b"").expect("its own core");
    bench.until("the connection", |bench| bench.near.is_up(near));
}

/// All receives are on the core that needs them: with a ring for each core, half of them would lie
/// on the other one.
#[test]
fn every_receive_of_a_bound_shared_queue_is_used() {
    const RECEIVES: u64 = 16;
    let mut bench = two_cores();
    let node = &mut bench.near;
    let cq = node.ctx.create_cq_with(&CqAttr { depth: 64, core: Some(1) }).expect("a queue");
    let attr = SrqAttr { depth: RECEIVES as u32, max_sge: 1, core: Some(1) };
    let srq = node.ctx.create_srq_with(node.pd, &attr).expect("a queue");
    let info = node.ctx.query_srq(srq).expect("there");
    assert_eq!((info.core, u64::from(info.depth)), (Some(1), RECEIVES), "not a ring for each core");
    for number in 0..RECEIVES {
        node.ctx.post_srq_recv(srq, &RecvWr::new(number, &[])).expect("room");
    }
    assert!(node.ctx.post_srq_recv(srq, &RecvWr::new(99, &[])).is_err(), "it is full");
    let qp =
        node.ctx.create_qp(node.pd, &QpAttr { srq: Some(srq), ..QpAttr::new(cq) }).expect("a queue pair");
    node.ctx.arm_srq(srq, 4).expect("room");
    node.ctx.connect(qp, far_addr(), b"").expect("connect");
    bench.until("the connection", |bench| bench.near.is_up(qp) && bench.far.accepted.len() == 1);
    let accepted = bench.far.accepted[0];
    bench.until("both ends", |bench| bench.far.is_up(accepted));
    for _ in 0..RECEIVES {
        bench.far.ctx.post_send(accepted, &SendWr::send_inline(1, b"").unsignaled()).expect("room");
    }
    let (mut done, mut received) = ([Completion::default(); 4], Vec::new());
    bench.until("every message", |bench| {
        let count = bench.near.ctx.poll_cq(cq, &mut done).expect("there");
        received.extend(done[..count].iter().map(|one| one.wr_id));
        received.len() as u64 == RECEIVES
    });
    assert!(received.into_iter().eq(0..RECEIVES));
    let low = |event: &Event| matches!(event, Event::SrqLimitReached { srq: one } if *one == srq);
    bench.until("the event", |bench| bench.near.events.iter().any(low));
    bench.near.ctx.destroy_qp(qp).expect("there");
    bench.until("the end", |bench| bench.near.ctx.destroy_srq(srq).is_ok());
}
