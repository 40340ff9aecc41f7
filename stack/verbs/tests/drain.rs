//! Orderly shutdown of a context: every connection is closed, and those that are not done by the
//! deadline are reset.
#![forbid(unsafe_code)]

use super::common;

use std::time::{Duration, Instant};

use common::pattern;
use ironwarp::{
    CompletionQueue, ConnectionRequest, DrainProgress, Event, PostError, ProtectionDomain, QpState,
    QueuePair, RemoteMemory, SendWr, SharedReceiveQueue, VerbsError,
};

fn far_off() -> Instant {
    Instant::now() + Duration::from_secs(3600)
}

/// RFC 5041 s6.2.1: requests posted before the disconnect are executed; later ones are refused.
#[test]
fn a_drain_carries_out_what_was_posted_and_then_closes() {
    let mut pair = common::joined();
    let (near, far) = pair.connect();
    let (other, _) = pair.connect();
    let source = pair.near.memory(&pattern(100_000, 1));
    let target = pair.far.memory(&[0; 100_000]);
    let there = RemoteMemory { stag: target.stag(), tagged_offset: target.base_to() };
    let all = [source.slice(0, 100_000).expect("inside")];
    pair.near.ctx.post_send(near, &SendWr::write(1, &all, there)).expect("posted");
    assert_eq!(pair.near.ctx.drain(far_off()).expect("begun"), DrainProgress { open: 2, aborted: 0 });
    let refused = pair.near.ctx.post_send(near, &SendWr::send_inline(2, b"late"));
    assert!(matches!(refused, Err(PostError::WrongState(QpState::Draining))), "{refused:?}");
    pair.until("the drain", |pair| {
        pair.far.ctx.drain(far_off()).expect("both sides end") == DrainProgress::default()
            && pair.near.ctx.drain(far_off()).expect("goes on") == DrainProgress::default()
    });
    pair.until("the event of the end", |pair| {
        pair.near.is_disconnected(near) && pair.near.is_disconnected(other) && pair.far.is_disconnected(far)
    });
    assert_eq!(common::contents(&target), pattern(100_000, 1));
    assert_eq!(pair.near.completions.iter().filter(|done| done.wr_id == 1).count(), 1);
}

/// A peer that does not answer cannot delay the application: its connection is reset after the
/// deadline.
#[test]
fn work_unfinished_at_the_drain_deadline_is_flushed() {
    let mut pair = common::joined();
    let (near, _) = pair.connect();
    let unused =
        pair.near.ctx.create_qp(pair.near.pd, &ironwarp::QpAttr::new(pair.near.cq)).expect("one more");
    assert_eq!(pair.near.ctx.drain(far_off()).expect("begun"), DrainProgress { open: 1, aborted: 0 });
    // The server is not polled, so the client's FIN is never answered.
    for _ in 0..10 {
        pair.near.turn();
    }
    assert_eq!(pair.near.ctx.drain(far_off()).expect("goes on"), DrainProgress { open: 1, aborted: 0 });
    assert_eq!(
        pair.near.ctx.drain(Instant::now()).expect("the deadline"),
        DrainProgress { open: 0, aborted: 1 }
    );
    assert!(matches!(pair.near.ctx.qp_state(near), Err(VerbsError::UnknownQueuePair)));
    assert_eq!(pair.near.ctx.qp_state(unused).expect("never connected, so left alone"), QpState::Idle);
    assert_eq!(pair.near.ctx.drain(Instant::now()).expect("over"), DrainProgress::default());
}

/// A dropped worker ends its connections.
#[test]
fn a_drain_without_workers_returns_at_once() {
    let mut pair = common::joined();
    pair.connect();
    let mut ctx = pair.near.ctx;
    drop(pair.near.worker);
    assert_eq!(ctx.drain(far_off()).expect("nothing to do"), DrainProgress::default());
}

/// Handles may be passed to other languages as numbers; other numbers name no object.
#[test]
fn handles_round_trip_as_numbers_and_invalid_numbers_are_refused() {
    let mut pair = common::joined();
    let srq = pair.near.ctx.create_srq(pair.near.pd, 8, 1).expect("a queue");
    let qp =
        pair.near.ctx.create_qp(pair.near.pd, &ironwarp::QpAttr::new(pair.near.cq)).expect("a queue pair");
    assert_eq!(QueuePair::from_bits(qp.to_bits()), qp);
    assert_eq!(CompletionQueue::from_bits(pair.near.cq.to_bits()), pair.near.cq);
    assert_eq!(SharedReceiveQueue::from_bits(srq.to_bits()), srq);
    assert_eq!(ProtectionDomain::from_bits(pair.near.pd.to_bits()), pair.near.pd);
    for bits in [0, u64::MAX, qp.to_bits() ^ 1 << 63, qp.to_bits() ^ 1 << 20] {
        assert!(pair.near.ctx.qp_state(QueuePair::from_bits(bits)).is_err());
        assert!(pair.near.ctx.query_cq(CompletionQueue::from_bits(bits)).is_err());
        assert!(pair.near.ctx.query_srq(SharedReceiveQueue::from_bits(bits)).is_err());
        assert!(pair.near.ctx.create_srq(ProtectionDomain::from_bits(bits), 8, 1).is_err());
    }
}

/// A connection request is answered by its numbers; other numbers fail, at once or with an event.
#[test]
fn a_connection_request_round_trips_as_numbers() {
    let mut pair = common::joined();
    let near =
        pair.near.ctx.create_qp(pair.near.pd, &ironwarp::QpAttr::new(pair.near.cq)).expect("a queue pair");
    pair.far.ctx.listen(pair.at).expect("asked");
    pair.far.turn();
    pair.near.ctx.connect(near, pair.at, b"").expect("asked");
    pair.until("a request", |pair| !pair.far.events.is_empty());
    let Event::ConnectRequest { request, .. } = pair.far.events.remove(0) else { panic!("another event") };
    let bits = request.to_bits();
    let wrong_core = ConnectionRequest::from_bits([bits[0], u64::MAX]);
    assert!(pair.far.ctx.reject(&wrong_core, b"").is_err());
    pair.far.ctx.reject(ConnectionRequest::from_bits([bits[0] ^ 1, bits[1]]), b"to nobody").expect("asked");
    pair.far.ctx.reject(ConnectionRequest::from_bits(bits), b"no").expect("asked");
    pair.until("the refusal", |pair| !pair.near.events.is_empty());
    assert!(
        matches!(&pair.near.events[0], Event::Rejected { private_data, .. } if &private_data[..] == b"no")
    );
}
