//! Shared receive queues: which message consumes which receive, limit events, missing receives and
//! missing completion slots.

use super::common;

use common::{Pair, contents};
use ironwarp::{
    CompletionQueue, CompletionStatus, Event, PostError, QpAttr, QpState, QueuePair, RecvWr, Region,
    RemoteMemory, SendWr, SharedReceiveQueue, VerbsError,
};

const OK: CompletionStatus = CompletionStatus::Success;

/// Two connections whose far queue pairs share one receive queue, with `slots` receives of 8 bytes
/// in one region.
struct Shared {
    pair: Pair,
    near: [QueuePair; 2],
    far: [QueuePair; 2],
    srq: SharedReceiveQueue,
    cq: CompletionQueue,
    inbox: Region,
}

fn shared(slots: u64, cq_depth: u32) -> Shared {
    let mut pair = common::joined();
    let inbox = pair.far.memory(&[0; 1024]);
    let srq = pair.far.ctx.create_srq(pair.far.pd, 64, 4).unwrap();
    let cq = pair.far.ctx.create_cq(cq_depth).unwrap();
    for slot in 0..slots {
        post(&mut pair, srq, &inbox, slot);
    }
    let (mut near, mut far) = (Vec::new(), Vec::new());
    for _ in 0..2 {
        pair.near.events.clear();
        pair.far.events.clear();
        let near_attr = QpAttr::new(pair.near.cq);
        let far_attr = QpAttr { recv_cq: cq, srq: Some(srq), ..QpAttr::new(pair.far.cq) };
        let (one, other) = pair.connect_with(&near_attr, &far_attr);
        near.push(one);
        far.push(other);
    }
    Shared { pair, near: [near[0], near[1]], far: [far[0], far[1]], srq, cq, inbox }
}

fn post(pair: &mut Pair, srq: SharedReceiveQueue, inbox: &Region, slot: u64) {
    let room = [inbox.slice(slot as usize * 8, 8).unwrap()];
    pair.far.ctx.post_srq_recv(srq, &RecvWr::new(slot, &room)).unwrap();
}

impl Shared {
    fn send(&mut self, which: usize, bytes: &[u8]) {
        self.pair.near.ctx.post_send(self.near[which], &SendWr::send_inline(1, bytes)).unwrap();
    }

    fn reap(&mut self, most: usize) -> Vec<ironwarp::Completion> {
        let mut reaped = vec![ironwarp::Completion::default(); most];
        let count = self.pair.far.ctx.poll_cq(self.cq, &mut reaped).unwrap();
        reaped.truncate(count);
        reaped
    }

    #[track_caller]
    fn received(&mut self, count: usize) -> Vec<ironwarp::Completion> {
        let mut all = Vec::new();
        for _ in 0..100_000 {
            all.extend(self.reap(count - all.len()));
            if all.len() == count {
                return all;
            }
            self.pair.turn();
        }
        panic!("{} of {count} receives", all.len());
    }
}

#[test]
fn messages_of_two_connections_consume_the_oldest_shared_receives() {
    let mut shared = shared(8, 64);
    for (turn, which) in [0, 1, 1, 0].into_iter().enumerate() {
        shared.send(which, &[turn as u8 + 1; 4]);
        let got = shared.received(1)[0];
        assert_eq!((got.wr_id, got.qp, got.byte_len), (turn as u64, shared.far[which].num(), 4));
        assert_eq!(contents(&shared.inbox)[turn * 8..][..4], [turn as u8 + 1; 4]);
    }
}

/// RFC 5040 s5.3: an empty Send consumes a receive, also a shared one.
#[test]
fn an_empty_send_consumes_a_shared_receive() {
    let mut shared = shared(1, 64);
    shared.send(0, b"");
    assert_eq!(shared.received(1)[0].byte_len, 0);
    shared.send(0, b"none left");
    shared.pair.until("the end", |pair| !pair.near.events.is_empty() && pair.far.is_disconnected_any());
}

#[test]
fn a_post_always_refills_the_queue() {
    let mut shared = shared(2, 64);
    for round in 0..300u64 {
        shared.send((round % 2) as usize, &round.to_be_bytes());
        let got = shared.received(1)[0];
        let (srq, slot) = (shared.srq, got.wr_id);
        post(&mut shared.pair, srq, &shared.inbox, slot);
    }
    assert_eq!(shared.pair.far.counter("verbs_cq_overruns"), 0);
}

/// A completion queue that is as deep as the queues that use it is enough, also with unsignaled
/// requests: the entries that they reserved are free when they are done, and a message finds one.
#[test]
fn unsignaled_requests_leave_entries_for_shared_receives() {
    const DEPTH: u32 = 4;
    let mut pair = common::joined();
    let (inbox, target) = (pair.far.memory(&[0; 1024]), pair.near.memory(&[0; 64]));
    let srq = pair.far.ctx.create_srq(pair.far.pd, DEPTH, 1).unwrap();
    let cq = pair.far.ctx.create_cq(2 * DEPTH).unwrap();
    post(&mut pair, srq, &inbox, 0);
    let far_attr = QpAttr { send_cq: cq, recv_cq: cq, srq: Some(srq), send_depth: DEPTH, ..QpAttr::new(cq) };
    let (near, far) = pair.connect_with(&QpAttr::new(pair.near.cq), &far_attr);
    let place = RemoteMemory { stag: target.stag(), tagged_offset: target.base_to() };
    for round in 0..100u32 {
        let bytes = round.to_be_bytes();
        let write = SendWr::write_inline(1, &bytes, place).unsignaled();
        pair.far.ctx.post_send(far, &write).unwrap();
        pair.until("the Write", |_| contents(&target)[..4] == bytes);
        pair.near.ctx.post_send(near, &SendWr::send_inline(2, b"message")).unwrap();
        let mut reaped = [ironwarp::Completion::default(); 2];
        pair.until("the message", |pair| pair.far.ctx.poll_cq(cq, &mut reaped).unwrap() == 1);
        assert_eq!((reaped[0].status, reaped[0].byte_len), (OK, 7), "round {round}");
        post(&mut pair, srq, &inbox, 0);
    }
}

/// SRQ_LIMIT: raised once for each arming, when fewer receives than the limit remain.
#[test]
fn the_srq_limit_event_is_raised_once_for_each_arming() {
    let mut shared = shared(4, 64);
    let lows = |shared: &Shared| {
        let is_low = |event: &&Event| matches!(event, Event::SrqLimitReached { srq } if *srq == shared.srq);
        shared.pair.far.events.iter().filter(is_low).count()
    };
    shared.pair.far.ctx.arm_srq(shared.srq, 3).unwrap();
    shared.pair.turn();
    assert_eq!(lows(&shared), 0);
    shared.send(0, b"3 left");
    shared.received(1);
    assert_eq!(lows(&shared), 0);
    shared.pair.far.ctx.arm_events();
    shared.send(1, b"2 left");
    shared.received(1);
    shared.pair.turn();
    assert_eq!(lows(&shared), 1);
    assert_eq!(rustix::io::read(shared.pair.far.ctx.event_fd(), &mut [0; 8]), Ok(8), "a wake-up");
    shared.send(0, b"1 left");
    shared.received(1);
    shared.pair.turn();
    assert_eq!(lows(&shared), 1, "one event for each arming");
    shared.pair.far.ctx.arm_srq(shared.srq, 3).unwrap();
    shared.pair.turn();
    assert_eq!(lows(&shared), 2, "an arming below the limit raises the event");
}

/// SRQ_LIMIT: an arming replaces the one before, whose event is not reported any more, wherever it
/// is on its way. The event of the new arming is not lost with it.
#[test]
fn an_arming_replaces_the_event_of_the_one_before() {
    // With the event in the ring to the context, and with the event still at the core.
    for is_sent in [true, false] {
        let mut shared = shared(4, 64);
        let lows = |shared: &Shared| {
            let is_low =
                |event: &&Event| matches!(event, Event::SrqLimitReached { srq } if *srq == shared.srq);
            shared.pair.far.events.iter().filter(is_low).count()
        };
        shared.pair.far.ctx.arm_srq(shared.srq, 3).unwrap();
        shared.pair.turn();
        shared.send(0, b"3 left");
        shared.send(1, b"2 left");
        if is_sent {
            // The context reads no event meanwhile.
            let mut received = 0;
            while received < 2 {
                shared.pair.near.turn();
                shared.pair.far.worker.poll(4);
                received += shared.reap(2).len();
            }
        }
        shared.pair.far.ctx.arm_srq(shared.srq, 2).unwrap();
        if !is_sent {
            shared.received(2);
        }
        shared.pair.turn();
        assert_eq!(lows(&shared), 0, "2 left is not below 2");
        shared.send(0, b"1 left");
        shared.received(1);
        shared.pair.turn();
        assert_eq!(lows(&shared), 1);
        shared.pair.far.ctx.arm_srq(shared.srq, 4).unwrap();
        shared.pair.far.ctx.arm_srq(shared.srq, 0).unwrap();
        shared.pair.turn();
        assert_eq!(lows(&shared), 1, "cancelled");
    }
}

/// RFC 5041 s7.2: "no buffer" is 1/2/2, as for a queue pair with its own receives. The other
/// connection continues. RFC 5041 s7.1.
#[test]
fn a_message_without_a_shared_receive_ends_only_its_connection() {
    let mut shared = shared(1, 64);
    shared.send(0, b"last one");
    shared.received(1);
    shared.send(0, b"none");
    let far = shared.far[0];
    shared.pair.until("the end", |pair| pair.far.is_disconnected(far));
    let sent = |event: &Event| {
        matches!(event, Event::Terminated { qp, sent: true, terminate }
            if *qp == far && (terminate.layer, terminate.etype, terminate.code) == (1, 2, 2))
    };
    assert!(shared.pair.far.events.iter().any(sent));
    let srq = shared.srq;
    post(&mut shared.pair, srq, &shared.inbox, 5);
    shared.send(1, b"fine");
    assert_eq!(shared.received(1)[0].wr_id, 5);
}

/// semantics "Completions and threads": an arrival that finds no completion slot raises CQ_ERR.
/// That queue pair ends; others are unaffected, and nothing is overwritten or lost
/// (RFC 5040 s8.1.1, 10).
#[test]
fn a_message_without_a_completion_slot_ends_only_its_queue_pair() {
    let mut shared = shared(8, 2);
    shared.send(0, b"one");
    shared.send(0, b"two");
    for _ in 0..50 {
        shared.pair.turn();
    }
    shared.send(0, b"three");
    let (far, cq) = (shared.far[0], shared.cq);
    shared.pair.until("the end", |pair| pair.far.is_disconnected(far));
    let told = |event: &Event| matches!(event, Event::CompletionQueueError { cq: one, qp } if *one == cq && *qp == far);
    assert!(shared.pair.far.events.iter().any(told));
    let local = |event: &Event| {
        matches!(event, Event::Terminated { qp, sent: true, terminate }
            if *qp == far && (terminate.layer, terminate.etype, terminate.code) == (0, 2, 7))
    };
    assert!(shared.pair.far.events.iter().any(local));
    let got: Vec<_> = shared.received(2).iter().map(|one| (one.wr_id, one.status)).collect();
    assert_eq!(got, [(0, OK), (1, OK)], "the two with a completion slot are delivered");
    shared.send(1, b"other");
    assert_eq!(shared.received(1)[0].wr_id, 2, "the receive that was refused is still posted");
    assert_eq!(shared.pair.far.counter("verbs_cq_overruns"), 0);
    assert_eq!(shared.pair.far.counter("verbs_cq_full_disconnects"), 1);
}

/// Cores and posts reserve the entries of a completion queue from one account.
#[test]
fn sends_and_shared_receives_share_the_places_of_one_queue() {
    let mut pair = common::joined();
    let inbox = pair.far.memory(&[0; 1024]);
    let srq = pair.far.ctx.create_srq(pair.far.pd, 16, 1).unwrap();
    let cq = pair.far.ctx.create_cq(4).unwrap();
    (0..4).for_each(|slot| post(&mut pair, srq, &inbox, slot));
    let far_attr = QpAttr { srq: Some(srq), ..QpAttr::new(cq) };
    let near_attr = QpAttr::new(pair.near.cq);
    let (near, far) = pair.connect_with(&near_attr, &far_attr);
    (0..3).for_each(|_| pair.near.ctx.post_send(near, &SendWr::send_inline(1, b"x")).unwrap());
    pair.until("three receives", |pair| pair.far.counter("iwarp_rx_sends") == 3);
    let target = pair.near.memory(&[0; 8]);
    let remote = ironwarp::RemoteMemory { stag: target.stag(), tagged_offset: target.base_to() };
    pair.far.ctx.post_send(far, &SendWr::write_inline(1, b"y", remote)).unwrap();
    let full = pair.far.ctx.post_send(far, &SendWr::write_inline(2, b"y", remote));
    assert!(matches!(full, Err(PostError::CqFull)));
    let mut reaped = [ironwarp::Completion::default(); 8];
    assert_eq!(pair.far.ctx.poll_cq(cq, &mut reaped).unwrap(), 3);
    pair.far.ctx.post_send(far, &SendWr::write_inline(2, b"y", remote)).unwrap();
}

/// LAST_WQE_REACHED: shared receives that no message consumed stay in the queue (RDMAC verbs s6.3).
#[test]
fn an_ended_queue_pair_raises_last_wqe_reached() {
    let mut shared = shared(4, 64);
    let (near, far) = (shared.near[0], shared.far[0]);
    shared.pair.near.ctx.disconnect(near).unwrap();
    shared.pair.until("the end", |pair| pair.far.is_disconnected(far));
    let last = |event: &Event| matches!(event, Event::LastWqeReached { qp } if *qp == far);
    assert_eq!(shared.pair.far.events.iter().filter(|event| last(event)).count(), 1);
    assert!(shared.reap(8).is_empty(), "no shared receive is flushed");
    shared.send(1, b"goes on");
    assert_eq!(shared.received(1)[0].wr_id, 0);
}

/// A shared receive that a message has partly filled is flushed with its queue pair. No other
/// receive is flushed.
#[test]
fn a_consumed_shared_receive_is_flushed() {
    let mut shared = shared(4, 64);
    shared.send(0, &[1; 9]);
    let far = shared.far[0];
    shared.pair.until("the end", |pair| pair.far.is_disconnected(far));
    let got = shared.received(1)[0];
    assert_eq!((got.wr_id, got.status, got.qp), (0, CompletionStatus::LocalLength, far.num()));
    assert!(shared.reap(8).is_empty());
}

/// RDMAC verbs s6.3: receives are checked against the protection domain of the shared queue,
/// everything else against that of the queue pair.
#[test]
fn shared_receives_belong_to_the_domain_of_their_queue() {
    let mut pair = common::joined();
    let domain = pair.far.ctx.alloc_pd();
    let own = pair.far.ctx.register(domain, vec![0u8; 64], ironwarp::Access::LOCAL_WRITE).unwrap();
    let srq = pair.far.ctx.create_srq(domain, 4, 1).unwrap();
    post(&mut pair, srq, &own, 0);
    let (near_attr, far_attr) =
        (QpAttr::new(pair.near.cq), QpAttr { srq: Some(srq), ..QpAttr::new(pair.far.cq) });
    let (near, _) = pair.connect_with(&near_attr, &far_attr);
    pair.near.ctx.post_send(near, &SendWr::send_inline(1, b"there")).unwrap();
    pair.until("the receive", |pair| pair.far.completions.len() == 1);
    assert_eq!((pair.far.completions[0].status, &contents(&own)[..5]), (OK, &b"there"[..]));
}

#[test]
fn unsupported_calls_on_a_shared_queue_are_named_errors() {
    let mut pair = common::joined();
    let (pd, cq) = (pair.far.pd, pair.far.cq);
    let inbox = pair.far.memory(&[0; 64]);
    let ctx = &mut pair.far.ctx;
    assert!(matches!(ctx.create_srq(pd, 0, 1), Err(VerbsError::OutOfRange { .. })));
    assert!(matches!(ctx.create_srq(pd, 4, 17), Err(VerbsError::OutOfRange { .. })));
    let srq = ctx.create_srq(pd, 2, 1).unwrap();
    let room = [inbox.slice(0, 8).unwrap(); 2];
    let too_many = ctx.post_srq_recv(srq, &RecvWr::new(1, &room));
    assert!(matches!(too_many, Err(PostError::TooManySges { requested: 2, allowed: 1 })));
    (0..2).for_each(|id| ctx.post_srq_recv(srq, &RecvWr::new(id, &room[..1])).unwrap());
    assert!(matches!(ctx.post_srq_recv(srq, &RecvWr::new(3, &room[..1])), Err(PostError::QueueFull)));
    let qp = ctx.create_qp(pd, &QpAttr { srq: Some(srq), ..QpAttr::new(cq) }).unwrap();
    assert!(matches!(ctx.post_recv(qp, &RecvWr::new(1, &room[..1])), Err(PostError::UsesSharedReceiveQueue)));
    assert!(matches!(ctx.destroy_srq(srq), Err(VerbsError::SharedReceiveQueueInUse)));
    let info = ctx.query_qp(qp).unwrap();
    assert_eq!((info.srq, info.recv_depth, info.state), (Some(srq), 0, QpState::Idle));
    ctx.destroy_qp(qp).unwrap();
    ctx.destroy_srq(srq).unwrap();
    assert!(matches!(ctx.arm_srq(srq, 1), Err(VerbsError::UnknownSharedReceiveQueue)));
}
