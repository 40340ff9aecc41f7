//! A core that does not run, while its context asks for more than the control ring holds: no call
//! fails, and everything is carried out in order once the core runs, or ends with the context or
//! the worker.

use super::common;

use common::{Node, Pair};
use ironwarp::{
    Access, AtomicOp, Completion, CompletionStatus, ConnectFailure, ConnectionRequest, Event, QpAttr,
    QpState, QueuePair, RecvWr, VerbsError,
};
use std::os::fd::{AsFd, BorrowedFd};

/// More than the ring of 1024 control messages holds.
const QUEUE_PAIRS: usize = 1_500;

fn pair() -> Pair {
    common::joined_with(|address| {
        let mut config = common::config(address);
        config.limits.queue_pairs = QUEUE_PAIRS as u32;
        config.limits.context_quota_percent = 100;
        config
    })
}

/// Creates and connects queue pairs without polling the core; nobody listens at the peer.
fn connect_all(pair: &mut Pair) -> Vec<QueuePair> {
    let attr = QpAttr { send_depth: 1, recv_depth: 1, ..QpAttr::new(pair.near.cq) };
    let (node, at) = (&mut pair.near, pair.at);
    let connect_one = |_| {
        let qp = node.ctx.create_qp(node.pd, &attr).expect("a queue pair");
        node.ctx.connect(qp, at, b"").expect("the context keeps what the ring has no room for");
        qp
    };
    (0..QUEUE_PAIRS).map(connect_one).collect()
}

/// Fills the ring to the core of a node: atomic operations on local memory are not kept.
fn fill_ring(node: &mut Node) {
    let all = Access::LOCAL_WRITE | Access::REMOTE_ATOMIC;
    let words =
        node.ctx.register(node.pd, ironwarp::AlignedBuf::pages(8).expect("memory"), all).expect("a region");
    let cq = node.ctx.create_cq(1 << 12).expect("a completion queue");
    let full = (0..1 << 12).find_map(|_| node.ctx.atomic(cq, 0, (&words, 0), &AtomicOp::add(1)).err());
    assert!(matches!(full, Some(VerbsError::Busy)), "{full:?}");
}

fn is_readable(fd: BorrowedFd<'_>) -> bool {
    let mut polled = [rustix::event::PollFd::new(&fd, rustix::event::PollFlags::IN)];
    rustix::event::poll(&mut polled, Some(&rustix::time::Timespec::default())).expect("poll") == 1
}

fn failures(events: &[Event]) -> usize {
    events.iter().filter(|event| matches!(event, Event::ConnectFailed { .. })).count()
}

#[test]
fn queue_pairs_are_destroyed_while_the_ring_is_full() {
    let mut pair = pair();
    let queue_pairs = connect_all(&mut pair);
    for &qp in &queue_pairs {
        pair.near.ctx.destroy_qp(qp).expect("a destroy never waits");
        let again = pair.near.ctx.destroy_qp(qp);
        assert!(matches!(again, Err(VerbsError::UnknownQueuePair)), "{again:?}");
        assert!(matches!(pair.near.ctx.qp_state(qp), Err(VerbsError::UnknownQueuePair)));
    }
    let in_use = pair.near.ctx.destroy_cq(pair.near.cq);
    assert!(matches!(in_use, Err(VerbsError::CompletionQueueInUse)), "the core has its halves: {in_use:?}");
    pair.until("the core has none", |pair| pair.near.worker.resource_usage().queue_pairs == 0);
    pair.until("the last halves are returned", |pair| {
        pair.near.ctx.query_cq(pair.near.cq).expect("it exists").users == 0
    });
    // Attempts that the core began before it learned of the destroy.
    assert_eq!(failures(&pair.near.events), pair.near.events.len(), "{:?}", pair.near.events);
    // The slots are free again.
    assert_eq!(connect_all(&mut pair).len(), QUEUE_PAIRS);
}

#[test]
fn a_context_ends_while_its_calls_wait() {
    let mut pair = pair();
    let queue_pairs = connect_all(&mut pair);
    queue_pairs
        .iter()
        .step_by(2)
        .for_each(|&qp| pair.near.ctx.destroy_qp(qp).expect("a destroy never waits"));
    let next = pair.near.stack.context().expect("a second context");
    drop(core::mem::replace(&mut pair.near.ctx, next));
    (pair.near.pd, pair.near.cq) = (pair.near.ctx.alloc_pd(), pair.near.ctx.create_cq(16).expect("a queue"));
    (0..2_000).for_each(|_| pair.turn());
    assert_eq!(pair.near.worker.resource_usage().queue_pairs, 0);
    assert_eq!(connect_all(&mut pair).len(), QUEUE_PAIRS, "every slot is free again");
}

#[test]
fn a_worker_ends_while_calls_wait() {
    let mut pair = pair();
    let queue_pairs = connect_all(&mut pair);
    let (first, last) = (queue_pairs[0], queue_pairs[QUEUE_PAIRS - 1]);
    let word = pair.near.memory(&[0; 8]);
    let sges = [word.slice(0, 8).expect("inside")];
    pair.near.ctx.post_recv(last, &RecvWr::new(7, &sges)).expect("room");
    pair.near.ctx.destroy_qp(first).expect("a destroy never waits");
    let Pair { near: Node { worker, mut ctx, cq, .. }, .. } = pair;
    drop(worker);
    let events: Vec<Event> = std::iter::from_fn(|| ctx.poll_event()).collect();
    let failed = events.iter().filter_map(|event| match event {
        Event::ConnectFailed { qp, reason: ConnectFailure::WorkerDropped } => Some(*qp),
        _ => None,
    });
    // The first one's attempt has begun: its event may follow the destroy.
    assert!(failed.filter(|qp| *qp != first).eq(queue_pairs[1..].iter().copied()));
    // It never reached the core: it is idle, and its receive is given up with it.
    assert_eq!(ctx.qp_state(last).expect("it exists"), QpState::Idle);
    ctx.destroy_qp(last).expect("no worker is needed");
    assert!(matches!(ctx.qp_state(first), Err(VerbsError::UnknownQueuePair)));
    assert_eq!(ctx.query_cq(cq).expect("it exists").reserved_cqes, 0);
}

/// Connection requests wait for the far node's answers, and its ring is full.
#[test]
fn requests_are_rejected_and_connections_disconnected_while_the_ring_is_full() {
    let mut pair = common::joined();
    let (near, far) = pair.connect();
    let attr = QpAttr::new(pair.near.cq);
    for _ in 0..20 {
        let qp = pair.near.ctx.create_qp(pair.near.pd, &attr).expect("a queue pair");
        pair.near.ctx.connect(qp, pair.at, b"").expect("connect");
    }
    let mut requests: Vec<ConnectionRequest> = Vec::new();
    pair.until("the requests", |pair| {
        requests.extend(pair.far.events.drain(..).filter_map(|event| match event {
            Event::ConnectRequest { request, .. } => Some(request),
            _ => None,
        }));
        requests.len() == 20
    });
    fill_ring(&mut pair.far);
    for request in &requests {
        pair.far.ctx.reject(request, b"first").expect("a reject never waits");
        pair.far.ctx.reject(request, b"second").expect("a repeated one replaces the one that waits");
    }
    for _ in 0..3 {
        pair.far.ctx.disconnect(far).expect("a disconnect never waits");
    }
    let unlisten = pair.far.ctx.unlisten(pair.at);
    assert!(unlisten.is_ok(), "{unlisten:?}");
    let listen = pair.far.ctx.listen(pair.at);
    assert!(matches!(listen, Err(VerbsError::Busy)), "it may be repeated without limit: {listen:?}");
    let rejected = |pair: &Pair| {
        let second = |event: &&Event| matches!(event, Event::Rejected { private_data, .. } if &private_data[..] == b"second");
        pair.near.events.iter().filter(second).count()
    };
    pair.until("both ends", |pair| pair.near.is_disconnected(near) && rejected(pair) == 20);
    assert_eq!(pair.far.worker.resource_usage().listeners, 0);
}

/// An application that sleeps until the next event does not sleep while its calls wait for room.
#[test]
fn the_descriptor_of_events_is_readable_while_calls_wait() {
    let mut pair = pair();
    pair.near.ctx.arm_events();
    assert!(!is_readable(pair.near.ctx.event_fd()));
    connect_all(&mut pair);
    pair.near.ctx.arm_events();
    assert!(is_readable(pair.near.ctx.event_fd()));
    assert!(rustix::io::read(pair.near.ctx.event_fd().as_fd(), &mut [0; 8]).is_ok());
    pair.until("every attempt ends", |pair| failures(&pair.near.events) == QUEUE_PAIRS);
    pair.near.ctx.arm_events();
    assert!(!is_readable(pair.near.ctx.event_fd()));
}

/// An application that only polls and arms completion queues neither waits for ever nor sleeps
/// while its calls wait.
#[test]
fn calls_that_wait_are_sent_by_polls_that_find_no_completion() {
    let mut pair = common::joined();
    fill_ring(&mut pair.near);
    let word = pair.near.memory(&[0; 8]);
    let (cq, attr) = (pair.near.cq, QpAttr::new(pair.near.cq));
    let qp = pair.near.ctx.create_qp(pair.near.pd, &attr).expect("a queue pair");
    let sges = [word.slice(0, 8).expect("inside")];
    pair.near.ctx.post_recv(qp, &RecvWr::new(7, &sges)).expect("room");
    pair.near.ctx.arm_cq(cq, false).expect("it exists");
    assert!(!is_readable(pair.near.ctx.cq_fd(cq).expect("it exists")));
    pair.near.ctx.abort(qp).expect("an abort never waits");
    pair.near.ctx.arm_cq(cq, false).expect("it exists");
    assert!(is_readable(pair.near.ctx.cq_fd(cq).expect("it exists")));
    let mut done = [Completion::default()];
    let flushed = (0..4096).find_map(|_| {
        pair.near.worker.poll(1);
        let polled = pair.near.ctx.poll_cq(cq, &mut done).expect("it exists");
        (polled == 1).then_some((done[0].wr_id, done[0].status))
    });
    assert_eq!(flushed, Some((7, CompletionStatus::FlushedInError)));
}

/// Idle queue pairs that are aborted complete their receives in the order of the calls.
#[test]
fn idle_queue_pairs_are_aborted_while_the_ring_is_full() {
    let mut pair = common::joined();
    fill_ring(&mut pair.near);
    let word = pair.near.memory(&[0; 8]);
    let attr = QpAttr::new(pair.near.cq);
    for wr_id in 0..3 {
        let qp = pair.near.ctx.create_qp(pair.near.pd, &attr).expect("a queue pair");
        let sges = [word.slice(0, 8).expect("inside")];
        pair.near.ctx.post_recv(qp, &RecvWr::new(wr_id, &sges)).expect("room");
        pair.near.ctx.abort(qp).expect("an abort never waits");
        pair.near.ctx.abort(qp).expect("nor a second one");
    }
    pair.until("the receives", |pair| pair.near.completions.len() == 3);
    let flushed = pair.near.completions.iter().map(|done| (done.wr_id, done.status));
    assert!(flushed.eq((0..3).map(|wr_id| (wr_id, CompletionStatus::FlushedInError))));
}
