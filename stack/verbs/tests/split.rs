//! Queues that are split from their context: who may post and poll, and what their ends do when
//! objects go.

use super::common;

use std::os::fd::AsFd;

use common::{Pair, contents};
use ironwarp::{
    Completion, CompletionQueue, CompletionStatus, CqPoller, Event, PostError, QpAttr, QpState, QueuePair,
    RecvPoster, RecvWr, RemoteMemory, SendPoster, SendWr, VerbsError,
};

const OK: CompletionStatus = CompletionStatus::Success;
const FLUSHED: CompletionStatus = CompletionStatus::FlushedInError;

/// A connection whose near end is split. Its completion queue has 16 entries.
struct Split {
    pair: Pair,
    near: QueuePair,
    far: QueuePair,
    cq: CompletionQueue,
    send: SendPoster,
    recv: RecvPoster,
    poller: CqPoller,
}

fn split() -> Split {
    let mut pair = common::joined();
    let cq = pair.near.ctx.create_cq(16).unwrap();
    let (near_attr, far_attr) = (QpAttr::new(cq), QpAttr::new(pair.far.cq));
    let (near, far) = pair.connect_with(&near_attr, &far_attr);
    let (send, recv) = pair.near.ctx.split_qp(near).unwrap();
    let poller = pair.near.ctx.split_cq(cq).unwrap();
    Split { pair, near, far, cq, send, recv, poller }
}

/// Polls until the poller has reaped `count` completions.
#[track_caller]
fn reap(pair: &mut Pair, poller: &mut CqPoller, count: usize) -> Vec<Completion> {
    let mut reaped = Vec::new();
    pair.until("completions", |_| {
        let mut some = [Completion::default(); 4];
        let more = poller.poll(&mut some).unwrap();
        reaped.extend_from_slice(&some[..more]);
        reaped.len() >= count
    });
    reaped
}

fn outcomes(completions: &[Completion]) -> Vec<(u64, CompletionStatus)> {
    completions.iter().map(|one| (one.wr_id, one.status)).collect()
}

fn remote(region: &ironwarp::Region) -> RemoteMemory {
    RemoteMemory { stag: region.stag(), tagged_offset: region.base_to() }
}

#[test]
fn split_ends_carry_messages_both_ways_in_order() {
    let Split { mut pair, far, mut send, mut recv, mut poller, .. } = split();
    let (inbox, near_inbox) = (pair.far.memory(&[0; 8]), pair.near.memory(&[0; 8]));
    pair.far.ctx.post_recv(far, &RecvWr::new(9, &[inbox.slice(0, 8).unwrap()])).unwrap();
    recv.post_recv(&RecvWr::new(7, &[near_inbox.slice(0, 8).unwrap()])).unwrap();
    let target = pair.far.memory(&[0; 8]);
    send.post_send(&SendWr::write_inline(1, b"one", remote(&target))).unwrap();
    send.post_sends(&[SendWr::write_inline(2, b"two", remote(&target)), SendWr::send_inline(3, b"three")])
        .unwrap();
    send.post_all(&[SendWr::write_inline(4, b"four", remote(&target)); 2]).unwrap();
    let sent = reap(&mut pair, &mut poller, 5);
    assert_eq!(outcomes(&sent), [1, 2, 3, 4, 4].map(|id| (id, OK)));
    pair.until("the message", |pair| pair.far.completions.len() == 1);
    assert_eq!((&contents(&inbox)[..5], &contents(&target)[..4]), (&b"three"[..], &b"four"[..]));
    pair.far.ctx.post_send(far, &SendWr::send_inline(5, b"back")).unwrap();
    assert_eq!(outcomes(&reap(&mut pair, &mut poller, 1)), [(7, OK)]);
    assert_eq!(&contents(&near_inbox)[..4], b"back");
}

#[test]
fn the_context_may_not_use_a_split_queue_until_its_end_is_dropped() {
    let Split { mut pair, near, cq, send, recv, poller, .. } = split();
    let ctx = &mut pair.near.ctx;
    let wr = SendWr::send_inline(1, b"");
    assert_eq!(ctx.post_send(near, &wr), Err(PostError::Split));
    assert_eq!(ctx.post_sends(near, &[wr]), Err((0, PostError::Split)));
    assert_eq!(ctx.post_all(near, &[wr]), Err(PostError::Split));
    assert_eq!(ctx.post_recv(near, &RecvWr::new(1, &[])), Err(PostError::Split));
    assert_eq!(ctx.post_recvs(near, &[RecvWr::new(1, &[])]), Err((0, PostError::Split)));
    assert!(matches!(ctx.poll_cq(cq, &mut []), Err(VerbsError::Split)));
    assert!(matches!(ctx.resize_cq(cq, 64), Err(VerbsError::Split)));
    assert!(matches!(ctx.split_cq(cq), Err(VerbsError::Split)));
    assert!(matches!(ctx.split_qp(near), Err(VerbsError::Split)));
    drop(send);
    assert_eq!(ctx.post_recv(near, &RecvWr::new(1, &[])), Err(PostError::Split), "the other end lives");
    assert!(matches!(ctx.split_qp(near), Err(VerbsError::Split)));
    assert_eq!(ctx.post_send(near, &wr), Ok(()));
    drop((recv, poller));
    assert_eq!(ctx.post_recv(near, &RecvWr::new(1, &[])), Ok(()));
    assert!(matches!(ctx.poll_cq(cq, &mut []), Ok(0)));
    ctx.resize_cq(cq, 64).unwrap();
    assert!(matches!(ctx.split_cq(cq), Err(VerbsError::Busy)), "a resize is under way");
    pair.turn();
    let ends = (pair.near.ctx.split_qp(near).unwrap(), pair.near.ctx.split_cq(cq).unwrap());
    assert_eq!(pair.near.ctx.query_cq(cq).unwrap().depth, 64);
    drop(ends);
}

#[test]
fn a_queue_pair_may_be_split_before_it_connects() {
    let mut pair = common::joined();
    let (near_pd, cq) = (pair.near.pd, pair.near.cq);
    let near = pair.near.ctx.create_qp(near_pd, &QpAttr::new(cq)).unwrap();
    let (mut send, mut recv) = pair.near.ctx.split_qp(near).unwrap();
    let wr = SendWr::send_inline(1, b"early");
    assert_eq!(
        (send.post_send(&wr), send.state()),
        (Err(PostError::WrongState(QpState::Idle)), QpState::Idle)
    );
    let inbox = pair.near.memory(&[0; 8]);
    recv.post_recv(&RecvWr::new(2, &[inbox.slice(0, 8).unwrap()])).unwrap();
    let far = pair.far.ctx.create_qp(pair.far.pd, &QpAttr::new(pair.far.cq)).unwrap();
    pair.far.ctx.post_recv(far, &RecvWr::new(3, &[])).unwrap();
    pair.far.ctx.listen(pair.at).unwrap();
    pair.far.turn();
    pair.near.ctx.connect(near, pair.at, b"").unwrap();
    assert_eq!(send.post_send(&SendWr::send_inline(4, b"")), Ok(()), "sends are held until it is connected");
    pair.until("a request", |pair| !pair.far.events.is_empty());
    let Some(Event::ConnectRequest { request, .. }) = pair.far.events.pop() else { panic!("another event") };
    pair.far.ctx.accept(request, far, b"").unwrap();
    pair.until("the held message", |pair| pair.far.completions.len() == 1);
    pair.far.ctx.post_send(far, &SendWr::send_inline(5, b"reply")).unwrap();
    pair.until("the reply", |pair| pair.near.completions.len() == 2);
    assert_eq!(outcomes(&pair.near.completions), [(4, OK), (2, OK)]);
    assert_eq!((send.state(), recv.state()), (QpState::Established, QpState::Established));
}

#[test]
fn queries_see_what_split_ends_post() {
    let Split { mut pair, near, cq, mut send, mut recv, .. } = split();
    send.post_send(&SendWr::send_inline(1, b"")).unwrap();
    recv.post_recvs(&[RecvWr::new(2, &[]); 3]).unwrap();
    let info = pair.near.ctx.query_qp(near).unwrap();
    assert_eq!((info.sends_outstanding, info.receives_outstanding), (1, 3));
    assert_eq!((info.send_depth, info.recv_depth), (128, 128));
    assert_eq!(pair.near.ctx.query_cq(cq).unwrap().reserved_cqes, 4);
}

#[test]
fn requests_that_are_posted_after_the_end_are_flushed() {
    let Split { mut pair, near, mut send, mut recv, mut poller, .. } = split();
    recv.post_recv(&RecvWr::new(1, &[])).unwrap();
    pair.near.ctx.abort(near).unwrap();
    pair.until("the end", |pair| pair.near.is_disconnected(near));
    send.post_send(&SendWr::send_inline(2, b"").unsignaled()).unwrap();
    recv.post_recvs(&[RecvWr::new(3, &[]), RecvWr::new(4, &[])]).unwrap();
    let mut flushed = outcomes(&reap(&mut pair, &mut poller, 4));
    flushed.sort_by_key(|(id, _)| *id);
    assert_eq!(flushed, [1, 2, 3, 4].map(|id| (id, FLUSHED)));
}

/// RFC 5041 s6.2.1: nothing more may be posted after a disconnect.
#[test]
fn sends_are_refused_after_the_context_disconnects() {
    let Split { mut pair, near, mut send, .. } = split();
    pair.near.ctx.disconnect(near).unwrap();
    let wr = SendWr::send_inline(1, b"");
    assert_eq!(send.post_send(&wr), Err(PostError::WrongState(QpState::Draining)));
    assert_eq!(send.post_all(&[wr]), Err(PostError::WrongState(QpState::Draining)));
    pair.until("the end", |pair| pair.near.is_disconnected(near));
    assert_eq!((send.state(), send.post_send(&wr)), (QpState::Error, Ok(())));
}

#[test]
fn errors_of_requests_are_those_of_the_context() {
    let Split { pair: _pair, mut send, mut recv, .. } = split();
    let long = [0; 300];
    let too_long = PostError::InlineTooLong { requested: 300, allowed: 256 };
    let wrs = [SendWr::send_inline(1, b""), SendWr::send_inline(2, &long)];
    assert_eq!(send.post_all(&wrs), Err(too_long));
    assert_eq!(send.post_sends(&wrs), Err((1, too_long)));
    // One of the sixteen entries is reserved for the request before the long one.
    (0..15).for_each(|id| recv.post_recv(&RecvWr::new(id, &[])).unwrap());
    assert_eq!(recv.post_recvs(&[RecvWr::new(16, &[]); 2]), Err((0, PostError::CqFull)));
    assert_eq!(send.post_send(&wrs[0]), Err(PostError::CqFull));
}

/// The queue pair's slot and its completion queue are in use until both ends are dropped.
#[test]
fn a_destroyed_queue_pair_keeps_its_place_until_its_ends_are_dropped() {
    let Split { mut pair, near, cq, mut send, mut recv, mut poller, .. } = split();
    recv.post_recv(&RecvWr::new(1, &[])).unwrap();
    send.post_send(&SendWr::send_inline(2, b"").unsignaled()).unwrap();
    pair.near.ctx.destroy_qp(near).unwrap();
    assert!(matches!(pair.near.ctx.destroy_qp(near), Err(VerbsError::UnknownQueuePair)));
    assert!(matches!(pair.near.ctx.query_qp(near), Err(VerbsError::UnknownQueuePair)));
    assert_eq!(send.post_send(&SendWr::send_inline(3, b"")), Err(PostError::UnknownQueuePair));
    assert_eq!(recv.post_recv(&RecvWr::new(3, &[])), Err(PostError::UnknownQueuePair));
    pair.near.events.clear();
    let mut flushed = outcomes(&reap(&mut pair, &mut poller, 2));
    flushed.sort_by_key(|(id, _)| *id);
    assert_eq!(flushed, [(1, FLUSHED), (2, FLUSHED)]);
    drop(send);
    (0..20).for_each(|_| pair.turn());
    assert!(matches!(pair.near.ctx.destroy_cq(cq), Err(VerbsError::CompletionQueueInUse)));
    assert_eq!(pair.near.worker.resource_usage().queue_pairs, 1);
    drop(recv);
    pair.until("the place to be free", |pair| pair.near.worker.resource_usage().queue_pairs == 0);
    pair.turn();
    assert!(pair.near.events.is_empty(), "no event of a destroyed queue pair: {:?}", pair.near.events);
    pair.near.ctx.destroy_cq(cq).unwrap();
    pair.until("the queue's end", |_| poller.poll(&mut [Completion::default()]).is_err());
}

#[test]
fn a_queue_pair_that_is_destroyed_while_it_connects_flushes_what_is_posted() {
    let mut pair = common::joined();
    let cq = pair.near.ctx.create_cq(4).unwrap();
    let near = pair.near.ctx.create_qp(pair.near.pd, &QpAttr::new(cq)).unwrap();
    let (mut send, mut recv) = pair.near.ctx.split_qp(near).unwrap();
    let mut poller = pair.near.ctx.split_cq(cq).unwrap();
    pair.near.ctx.connect(near, "10.0.0.77:1".parse().unwrap(), b"").unwrap();
    pair.turn();
    send.post_send(&SendWr::send_inline(1, b"held")).unwrap();
    recv.post_recv(&RecvWr::new(2, &[])).unwrap();
    pair.near.ctx.destroy_qp(near).unwrap();
    let mut flushed = outcomes(&reap(&mut pair, &mut poller, 2));
    flushed.sort_by_key(|(id, _)| *id);
    assert_eq!(flushed, [(1, FLUSHED), (2, FLUSHED)]);
    drop((send, recv));
    pair.until("the place to be free", |pair| pair.near.worker.resource_usage().queue_pairs == 0);
    assert!(pair.near.events.is_empty(), "no event of a destroyed queue pair: {:?}", pair.near.events);
}

#[test]
fn a_queue_pair_that_never_connected_ends_when_its_ends_are_dropped() {
    let mut pair = common::joined();
    let cq = pair.near.ctx.create_cq(4).unwrap();
    let near = pair.near.ctx.create_qp(pair.near.pd, &QpAttr::new(cq)).unwrap();
    let (send, mut recv) = pair.near.ctx.split_qp(near).unwrap();
    recv.post_recv(&RecvWr::new(1, &[])).unwrap();
    pair.near.ctx.destroy_qp(near).unwrap();
    assert_eq!(recv.post_recv(&RecvWr::new(2, &[])), Err(PostError::UnknownQueuePair));
    pair.turn();
    assert!(matches!(pair.near.ctx.destroy_cq(cq), Err(VerbsError::CompletionQueueInUse)));
    drop((recv, send));
    pair.turn();
    let info = pair.near.ctx.query_cq(cq).unwrap();
    assert_eq!((info.users, info.reserved_cqes), (0, 0));
}

#[test]
fn completions_of_a_destroyed_queue_are_reaped_before_the_error() {
    let Split { mut pair, near, far, cq, mut send, recv, mut poller } = split();
    pair.far.ctx.post_recv(far, &RecvWr::new(9, &[])).unwrap();
    send.post_send(&SendWr::send_inline(1, b"")).unwrap();
    pair.until("the message", |pair| pair.far.completions.len() == 1);
    (0..50).for_each(|_| pair.turn());
    drop((send, recv));
    pair.near.ctx.destroy_qp(near).unwrap();
    pair.until("the place to be free", |pair| pair.near.worker.resource_usage().queue_pairs == 0);
    pair.turn();
    pair.near.ctx.destroy_cq(cq).unwrap();
    (0..20).for_each(|_| pair.turn());
    let mut into = [Completion::default(); 4];
    assert!(matches!(poller.poll(&mut into), Ok(1)));
    assert_eq!((into[0].wr_id, into[0].status), (1, OK));
    assert!(matches!(poller.poll(&mut into), Err(VerbsError::UnknownCompletionQueue)));
}

#[test]
fn ends_outlive_their_context() {
    let Split { pair, mut send, mut recv, mut poller, .. } = split();
    let Pair { near, mut far, .. } = pair;
    let common::Node { mut worker, mut ctx, pd, stack, .. } = near;
    let mut srq = {
        let queue = ctx.create_srq(pd, 4, 1).unwrap();
        ctx.split_srq(queue).unwrap()
    };
    recv.post_recv(&RecvWr::new(1, &[])).unwrap();
    drop(ctx);
    assert_eq!(send.post_send(&SendWr::send_inline(2, b"")), Err(PostError::UnknownQueuePair));
    assert_eq!(recv.post_recv(&RecvWr::new(2, &[])), Err(PostError::UnknownQueuePair));
    assert_eq!(srq.post_recv(&RecvWr::new(2, &[])), Err(PostError::UnknownSharedReceiveQueue));
    let (mut reaped, mut last) = (Vec::new(), None);
    for _ in 0..common::TURNS_MAX {
        worker.poll(4);
        far.turn();
        let mut some = [Completion::default(); 4];
        match poller.poll(&mut some) {
            Ok(count) => reaped.extend_from_slice(&some[..count]),
            Err(error) => last = Some(error),
        }
        if last.is_some() {
            break;
        }
    }
    assert!(matches!(last, Some(VerbsError::UnknownCompletionQueue)));
    assert_eq!(outcomes(&reaped), [(1, FLUSHED)]);
    drop((send, recv, srq, poller, worker, stack));
}

#[test]
fn posts_after_the_worker_is_dropped_fail() {
    let Split { pair, mut send, mut recv, mut poller, .. } = split();
    recv.post_recv(&RecvWr::new(1, &[])).unwrap();
    let common::Node { worker, ctx, .. } = pair.near;
    drop(worker);
    assert_eq!(send.post_send(&SendWr::send_inline(2, b"")), Err(PostError::WorkerDropped));
    assert_eq!(recv.post_recv(&RecvWr::new(2, &[])), Err(PostError::WorkerDropped));
    let mut into = [Completion::default(); 4];
    assert!(matches!(poller.poll(&mut into), Ok(1)));
    assert_eq!((into[0].wr_id, into[0].status), (1, FLUSHED));
    drop(ctx);
    assert!(matches!(poller.poll(&mut into), Err(VerbsError::UnknownCompletionQueue)));
}

/// An unsignaled request keeps its entry after it is done, until somebody needs the entry: also
/// another thread.
#[test]
fn entries_of_other_queue_pairs_unsignaled_requests_are_reclaimed() {
    let mut pair = common::joined();
    let cq = pair.near.ctx.create_cq(4).unwrap();
    let (near_attr, far_attr) =
        (QpAttr { send_cq: cq, ..QpAttr::new(pair.near.cq) }, QpAttr::new(pair.far.cq));
    let near = [(); 3].map(|()| {
        pair.near.events.clear();
        pair.far.events.clear();
        pair.connect_with(&near_attr, &far_attr).0
    });
    let mut split = [near[0], near[1]].map(|qp| pair.near.ctx.split_qp(qp).unwrap().0);
    let target = pair.far.memory(&[0; 8]);
    let write = SendWr::write_inline(1, b"x", remote(&target));
    let full = |pair: &mut Pair| pair.near.ctx.query_cq(cq).unwrap().reserved_cqes == 4;
    split[0].post_sends(&[write.unsignaled(); 4]).unwrap();
    (0..100).for_each(|_| pair.turn());
    assert!(full(&mut pair), "nobody needs them yet");
    split[1].post_sends(&[write.unsignaled(); 4]).unwrap();
    (0..100).for_each(|_| pair.turn());
    assert!(full(&mut pair));
    pair.near.ctx.post_sends(near[2], &[write.unsignaled(); 4]).unwrap();
    (0..100).for_each(|_| pair.turn());
    assert!(full(&mut pair));
    split[0].post_all(&[write; 4]).unwrap();
    assert_eq!(split[1].post_send(&write), Err(PostError::CqFull), "these have completions");
    pair.until("the last ones", |pair| {
        pair.near.ctx.query_qp(near[0]).is_ok_and(|info| info.sends_outstanding == 0)
    });
    let mut into = [Completion::default(); 8];
    assert!(matches!(pair.near.ctx.poll_cq(cq, &mut into), Ok(4)));
    assert_eq!(pair.near.ctx.query_cq(cq).unwrap().reserved_cqes, 0);
}

#[test]
fn a_poller_is_woken_as_its_context_would_be() {
    let Split { mut pair, far, mut send, mut poller, .. } = split();
    pair.far.ctx.post_recv(far, &RecvWr::new(9, &[])).unwrap();
    let fired = |poller: &CqPoller| rustix::io::read(poller.as_fd(), &mut [0; 8]).is_ok();
    poller.arm(false);
    assert!(!fired(&poller));
    send.post_send(&SendWr::send_inline(1, b"")).unwrap();
    reap(&mut pair, &mut poller, 1);
    assert!(fired(&poller) && !fired(&poller));
}

#[test]
fn a_shared_receive_queue_is_filled_by_its_own_end() {
    let mut pair = common::joined();
    let srq = pair.far.ctx.create_srq(pair.far.pd, 4, 1).unwrap();
    let mut poster = pair.far.ctx.split_srq(srq).unwrap();
    let ctx = &mut pair.far.ctx;
    assert_eq!((poster.srq(), ctx.post_srq_recv(srq, &RecvWr::new(1, &[]))), (srq, Err(PostError::Split)));
    assert!(matches!(ctx.split_srq(srq), Err(VerbsError::Split)));
    let inbox = pair.far.memory(&[0; 8]);
    let room = [inbox.slice(0, 8).unwrap()];
    assert!(matches!(poster.post_recv(&RecvWr::new(1, &[room[0]; 2])), Err(PostError::TooManySges { .. })));
    (0..4).for_each(|id| poster.post_recv(&RecvWr::new(id, &room)).unwrap());
    assert_eq!(poster.post_recv(&RecvWr::new(4, &room)), Err(PostError::QueueFull));
    let info = pair.far.ctx.query_srq(srq).unwrap();
    assert_eq!((info.depth, info.posted), (4, 4));
    let (near_attr, far_attr) =
        (QpAttr::new(pair.near.cq), QpAttr { srq: Some(srq), ..QpAttr::new(pair.far.cq) });
    let (near, far) = pair.connect_with(&near_attr, &far_attr);
    pair.near.ctx.post_send(near, &SendWr::send_inline(1, b"shared")).unwrap();
    pair.until("the message", |pair| pair.far.completions.len() == 1);
    assert_eq!((outcomes(&pair.far.completions), &contents(&inbox)[..6]), (vec![(0, OK)], &b"shared"[..]));
    drop(poster);
    pair.far.ctx.post_srq_recv(srq, &RecvWr::new(5, &room)).unwrap();
    let mut poster = pair.far.ctx.split_srq(srq).unwrap();
    pair.far.ctx.destroy_qp(far).unwrap();
    pair.until("the place to be free", |pair| pair.far.worker.resource_usage().queue_pairs == 0);
    pair.turn();
    pair.far.ctx.destroy_srq(srq).unwrap();
    assert_eq!(poster.post_recv(&RecvWr::new(6, &room)), Err(PostError::UnknownSharedReceiveQueue));
}
