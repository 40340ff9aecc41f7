//! Completion queues that change their size, notification, queries, and lists of requests.

use super::common;

use common::{Pair, contents, pattern};
use ironwarp::{
    CompletionStatus, Context, PostError, QpAttr, QpState, RecvWr, RemoteMemory, SendWr, Sge, VerbsError,
};

const OK: CompletionStatus = CompletionStatus::Success;

fn remote(region: &ironwarp::Region) -> RemoteMemory {
    RemoteMemory { stag: region.stag(), tagged_offset: region.base_to() }
}

/// RDMAC verbs s5.3: a resize works with requests outstanding, loses nothing and keeps the order.
#[test]
fn a_resized_queue_keeps_its_completions() {
    let mut pair = common::joined();
    let small = pair.near.ctx.create_cq(4).unwrap();
    let attr = QpAttr { send_cq: small, ..QpAttr::new(pair.near.cq) };
    let far_attr = QpAttr::new(pair.far.cq);
    let (near, _) = pair.connect_with(&attr, &far_attr);
    let target = pair.far.memory(&[0; 64]);
    let write = |id| SendWr::write_inline(id, b"x", remote(&target));
    (0..4).for_each(|id| pair.near.ctx.post_send(near, &write(id)).unwrap());
    assert!(matches!(pair.near.ctx.post_send(near, &write(4)), Err(PostError::CqFull)));
    (0..50).for_each(|_| pair.turn());
    pair.near.ctx.resize_cq(small, 16).unwrap();
    assert!(
        matches!(pair.near.ctx.post_send(near, &write(4)), Err(PostError::CqFull)),
        "the core must process the resize"
    );
    assert!(matches!(pair.near.ctx.resize_cq(small, 32), Err(VerbsError::Busy)));
    pair.turn();
    (4..16).for_each(|id| pair.near.ctx.post_send(near, &write(id)).unwrap());
    assert!(matches!(pair.near.ctx.post_send(near, &write(16)), Err(PostError::CqFull)));
    (0..200).for_each(|_| pair.turn());
    let mut reaped = [ironwarp::Completion::default(); 32];
    let count = pair.near.ctx.poll_cq(small, &mut reaped).unwrap();
    let ids: Vec<u64> = reaped[..count].iter().map(|one| one.wr_id).collect();
    assert_eq!(ids, (0..16).collect::<Vec<_>>());
    assert!(reaped[..count].iter().all(|one| one.status == OK));
    assert_eq!(pair.near.counter("verbs_cq_overruns"), 0);
}

#[test]
fn a_queue_shrinks_to_its_reserved_slots_at_least() {
    let mut pair = common::joined();
    let (near, far) = pair.connect();
    let inbox = pair.far.memory(&[0; 64]);
    for id in 0..8 {
        pair.far.ctx.post_recv(far, &RecvWr::new(id, &[inbox.slice(0, 8).unwrap()])).unwrap();
    }
    let cq = pair.far.cq;
    let refused = pair.far.ctx.resize_cq(cq, 7);
    assert!(matches!(refused, Err(VerbsError::CqDepthTooSmall { reserved_cqes: 8, requested: 7 })));
    assert!(matches!(pair.far.ctx.resize_cq(cq, 0), Err(VerbsError::OutOfRange { .. })));
    pair.far.ctx.resize_cq(cq, 8).unwrap();
    let ninth = pair.far.ctx.post_recv(far, &RecvWr::new(8, &[inbox.slice(0, 8).unwrap()]));
    assert!(matches!(ninth, Err(PostError::CqFull)), "a smaller depth applies at once");
    (0..8).for_each(|id| pair.near.ctx.post_send(near, &SendWr::send_inline(id, b"x")).unwrap());
    pair.until("all of them", |pair| pair.far.completions.len() == 8);
    let ids: Vec<u64> = pair.far.completions.iter().map(|one| one.wr_id).collect();
    assert_eq!(ids, (0..8).collect::<Vec<_>>());
}

/// RDMAC verbs s8.2.5: one event for one arming. Solicited completions are those of solicited
/// Sends, and failed ones.
#[test]
fn unsolicited_completions_do_not_wake_a_queue_armed_for_solicited_ones() {
    let mut pair = common::joined();
    let (near, far) = pair.connect();
    let inbox = pair.far.memory(&[0; 8]);
    for id in 0..4 {
        pair.far.ctx.post_recv(far, &RecvWr::new(id, &[inbox.slice(0, 8).unwrap()])).unwrap();
    }
    let fired = |ctx: &Context, cq| {
        let mut count = [0; 8];
        rustix::io::read(ctx.cq_fd(cq).unwrap(), &mut count).is_ok()
    };
    let cq = pair.far.cq;
    pair.far.ctx.arm_cq(cq, true).unwrap();
    pair.near.ctx.post_send(near, &SendWr::send_inline(1, b"plain")).unwrap();
    pair.until("the unsolicited completion", |pair| pair.far.completions.len() == 1);
    assert!(!fired(&pair.far.ctx, cq));
    pair.near.ctx.post_send(near, &SendWr::send_inline(2, b"ring").solicited()).unwrap();
    pair.until("the solicited completion", |pair| pair.far.completions.len() == 2);
    assert!(fired(&pair.far.ctx, cq));
    pair.near.ctx.post_send(near, &SendWr::send_inline(3, b"ring").solicited()).unwrap();
    pair.until("another", |pair| pair.far.completions.len() == 3);
    assert!(!fired(&pair.far.ctx, cq), "one event for one arming");
    pair.far.ctx.arm_cq(cq, true).unwrap();
    pair.near.ctx.destroy_qp(near).unwrap();
    pair.until("the end", |pair| pair.far.is_disconnected(far));
    assert!(fired(&pair.far.ctx, cq), "a failed completion counts as solicited");
}

/// Gather lists of 16 elements on both sides; empty elements are not checked.
#[test]
fn sixteen_elements_are_gathered_and_scattered_in_order() {
    let mut pair = common::joined();
    let (near, far) = pair.connect();
    let (source, sink) = (pair.near.memory(&pattern(4096, 3)), pair.far.memory(&[0; 4096]));
    // In reverse order at the source: 256 bytes each, one of them empty with a tag that does not
    // exist.
    let mut gather: Vec<Sge> = (0..16).rev().map(|i| source.slice(i * 256, 256).unwrap()).collect();
    gather[5] = Sge { len: 0, lkey: ironwarp::STag(0xbad), ..gather[5] };
    let scatter: Vec<Sge> = (0..16).map(|i| sink.slice(i * 256, 256).unwrap()).collect();
    pair.far.ctx.post_recv(far, &RecvWr::new(1, &scatter)).unwrap();
    pair.near.ctx.post_send(near, &SendWr::send(1, &gather)).unwrap();
    pair.until("the Send", |pair| pair.far.completions.len() == 1);
    assert_eq!(pair.far.completions[0].byte_len, 15 * 256);
    let bytes = pattern(4096, 3);
    let want: Vec<u8> =
        (0..16).rev().filter(|i| *i != 10).flat_map(|i| bytes[i * 256..][..256].to_vec()).collect();
    assert_eq!(contents(&sink)[..15 * 256], want);
    let too_many = vec![gather[0]; 17];
    let refused = pair.near.ctx.post_send(near, &SendWr::send(2, &too_many));
    assert!(matches!(refused, Err(PostError::TooManySges { requested: 17, allowed: 16 })));
}

/// RDMAC verbs s8.1: a list is posted in order; the first request that cannot be posted stops it,
/// and its index is returned.
#[test]
fn a_list_is_posted_up_to_the_first_error() {
    let mut pair = common::joined();
    let (near, _) = pair.connect();
    let target = pair.far.memory(&[0; 8]);
    let long = [0u8; 300];
    let chain = [
        SendWr::write_inline(1, b"a", remote(&target)),
        SendWr::write_inline(2, b"b", remote(&target)),
        SendWr::write_inline(3, &long, remote(&target)),
        SendWr::write_inline(4, b"d", remote(&target)),
    ];
    let outcome = pair.near.ctx.post_sends(near, &chain);
    assert!(matches!(outcome, Err((2, PostError::InlineTooLong { .. }))));
    pair.until("two of them", |pair| pair.near.completions.len() == 2);
    assert_eq!(contents(&target)[0], b'b');
}

/// Receives of a list are used in order; the ones before the first error are posted, and their
/// number is returned.
#[test]
fn a_list_of_receives_is_posted_up_to_the_first_error() {
    let mut pair = common::joined();
    let far_attr = QpAttr { recv_depth: 4, ..QpAttr::new(pair.far.cq) };
    let (near, far) = pair.connect_with(&QpAttr::new(pair.near.cq), &far_attr);
    let inbox = pair.far.memory(&[0; 64]);
    let piece = |at: usize| [inbox.slice(8 * at, 8).unwrap()];
    let (pieces, many) = ([piece(0), piece(1), piece(2), piece(3), piece(4)], [piece(0)[0]; 17]);
    let receives: Vec<_> = pieces.iter().zip(10..).map(|(sink, id)| RecvWr::new(id, sink)).collect();
    let bad = [receives[0], receives[1], RecvWr::new(99, &many), receives[2]];

    assert!(matches!(pair.far.ctx.post_recvs(far, &bad), Err((2, PostError::TooManySges { .. }))));
    assert!(matches!(pair.far.ctx.post_recvs(far, &receives[2..]), Err((2, PostError::QueueFull))));
    assert!(matches!(pair.far.ctx.post_recvs(far, &[]), Ok(())));
    for text in [b"one", b"two", b"six", b"ten"] {
        pair.near.ctx.post_send(near, &SendWr::send_inline(1, text)).unwrap();
    }
    pair.until("all messages", |pair| pair.far.completions.len() == 4);
    let ids: Vec<u64> = pair.far.completions.iter().map(|one| one.wr_id).collect();
    assert_eq!(ids, [10, 11, 12, 13]);
    assert_eq!(&contents(&inbox)[16..19], b"six");
    let unknown = pair.near.ctx.post_recvs(far, &receives[..1]);
    assert!(matches!(unknown, Err((0, PostError::UnknownQueuePair))), "{unknown:?}");
}

/// A list of receives that is posted after the end is flushed like a single one.
#[test]
fn a_list_of_receives_posted_after_the_end_is_flushed() {
    let mut pair = common::joined();
    let (near, far) = pair.connect();
    let inbox = pair.far.memory(&[0; 64]);
    pair.near.ctx.disconnect(near).unwrap();
    pair.until("the end", |pair| pair.far.is_disconnected(far));
    let sink = [inbox.slice(0, 8).unwrap()];
    pair.far.ctx.post_recvs(far, &[1, 2, 3].map(|id| RecvWr::new(id, &sink))).unwrap();
    pair.until("the flush", |pair| pair.far.completions.len() == 3);
    assert!(pair.far.completions.iter().all(|one| one.status == CompletionStatus::FlushedInError));
}

/// RDMAC verbs s9.2: the requested and the actual attributes, and the state of the queue pair.
#[test]
fn query_qp_returns_its_attributes() {
    let mut pair = common::joined();
    let attr = QpAttr { send_depth: 5, recv_depth: 3, max_sge: 2, ord: 7, ..QpAttr::new(pair.near.cq) };
    let far_attr = QpAttr::new(pair.far.cq);
    let (near, _) = pair.connect_with(&attr, &far_attr);
    let inbox = pair.near.memory(&[0; 8]);
    pair.near.ctx.post_recv(near, &RecvWr::new(1, &[inbox.slice(0, 8).unwrap()])).unwrap();
    let info = pair.near.ctx.query_qp(near).unwrap();
    assert_eq!((info.state, info.pd, info.send_cq), (QpState::Established, pair.near.pd, pair.near.cq));
    assert_eq!((info.send_depth, info.recv_depth), (8, 4), "rounded up");
    assert_eq!((info.sends_outstanding, info.receives_outstanding), (0, 1));
    assert_eq!((info.max_sge, info.inline_bytes, info.ird, info.ord), (2, 256, 16, 7));
    pair.near.ctx.disconnect(near).unwrap();
    pair.until("the end", |pair| pair.near.is_disconnected(near));
    assert_eq!(pair.near.ctx.query_qp(near).unwrap().state, QpState::Error);
}

#[test]
fn query_returns_every_limit() {
    let pair = common::joined();
    let limits = pair.near.ctx.limits();
    assert_eq!((limits.max_sge, limits.max_read_sge, limits.inline_bytes), (16, 1, 256));
    assert_eq!((limits.queue_pairs, limits.completion_queues, limits.regions), (1024, 1024, 4096));
    assert_eq!((limits.read_depth, limits.shared_receive_queues, limits.cores), (128, 64, 1));
    assert!(limits.atomics);
    assert_eq!((limits.contexts, limits.context_quota_percent), (16, 100));
    assert_eq!((limits.half_open, limits.listeners), (256, 64));
    assert_eq!((limits.wq_depth, limits.srq_depth), (65_536, 65_536));
    assert_eq!((limits.cq_depth, limits.message_bytes), (1 << 20, 1 << 31));
    let said = [limits.private_data_bytes, limits.private_data_bytes_enhanced];
    assert_eq!((said, limits.private_data_bytes_accepted), ([255, 251], 512));
}

/// Every limit is enforced: the largest value is accepted, and one more is refused with the limit's
/// name.
#[test]
fn the_reported_object_limits_are_exact() {
    let mut pair = common::joined();
    let (pd, cq) = (pair.near.pd, pair.near.cq);
    let limits = pair.near.ctx.limits();
    let ctx = &mut pair.near.ctx;
    let refused = |error| matches!(error, Some(VerbsError::OutOfRange { .. }));
    let small = QpAttr { send_depth: 1, recv_depth: 1, ..QpAttr::new(cq) };
    for (fits, more) in [
        (
            QpAttr { send_depth: limits.wq_depth, ..small.clone() },
            QpAttr { send_depth: limits.wq_depth + 1, ..small.clone() },
        ),
        (
            QpAttr { max_sge: limits.max_sge, ..small.clone() },
            QpAttr { max_sge: limits.max_sge + 1, ..small.clone() },
        ),
        (
            QpAttr { inline_bytes: limits.inline_bytes, ..small.clone() },
            QpAttr { inline_bytes: limits.inline_bytes + 1, ..small.clone() },
        ),
        (
            QpAttr { ird: limits.read_depth, ..small.clone() },
            QpAttr { ird: limits.read_depth + 1, ..small.clone() },
        ),
        (
            QpAttr { ord: limits.read_depth, ..small.clone() },
            QpAttr { ord: limits.read_depth + 1, ..small.clone() },
        ),
    ] {
        let made = ctx.create_qp(pd, &fits).unwrap();
        ctx.destroy_qp(made).unwrap();
        assert!(refused(ctx.create_qp(pd, &more).err()), "{more:?}");
    }
    assert!(refused(ctx.create_cq(limits.cq_depth + 1).err()));
    assert!(refused(ctx.create_srq(pd, limits.srq_depth + 1, 1).err()));
    let qp = ctx.create_qp(pd, &QpAttr::new(cq)).unwrap();
    let too_much = vec![0; limits.private_data_bytes_enhanced + 1];
    let refused = ctx.connect(qp, common::FAR.parse().unwrap(), &too_much);
    assert!(matches!(refused, Err(VerbsError::PrivateDataTooLong(252))));
}

/// RDMAC verbs s6.2, s6.3: completion queues and shared receive queues report their attributes and
/// state.
#[test]
fn query_cq_and_srq_return_their_attributes() {
    let mut pair = common::joined();
    let srq = pair.far.ctx.create_srq(pair.far.pd, 5, 3).unwrap();
    let cq = pair.far.ctx.create_cq(9).unwrap();
    let inbox = pair.far.memory(&[0; 64]);
    for id in 0..3 {
        pair.far.ctx.post_srq_recv(srq, &RecvWr::new(id, &[inbox.slice(0, 8).unwrap()])).unwrap();
    }
    let asked = |pair: &mut Pair| {
        let info = pair.far.ctx.query_srq(srq).unwrap();
        (info.depth, info.posted, info.max_sge, info.users)
    };
    assert_eq!(asked(&mut pair), (8, 3, 3, 0), "five, in a ring of eight");
    let far_attr = QpAttr { recv_cq: cq, srq: Some(srq), ..QpAttr::new(pair.far.cq) };
    let near_attr = QpAttr::new(pair.near.cq);
    let (near, far) = pair.connect_with(&near_attr, &far_attr);
    pair.near.ctx.post_send(near, &SendWr::send_inline(1, b"x")).unwrap();
    pair.until("the Send", |pair| pair.near.completions.len() == 1);
    assert_eq!(asked(&mut pair), (8, 2, 3, 1));
    let info = pair.far.ctx.query_cq(cq).unwrap();
    assert_eq!((info.depth, info.reserved_cqes, info.users), (9, 1, 1));
    pair.far.ctx.poll_cq(cq, &mut [ironwarp::Completion::default(); 4]).unwrap();
    assert_eq!(pair.far.ctx.query_cq(cq).unwrap().reserved_cqes, 0);
    assert_eq!(pair.near.ctx.query_qp(near).unwrap().sends_outstanding, 0, "the current value");
    pair.far.ctx.destroy_qp(far).unwrap();
    pair.until("the queue pair's destruction", |pair| pair.far.ctx.query_cq(cq).unwrap().users == 0);
    pair.far.ctx.destroy_cq(cq).unwrap();
    pair.far.ctx.destroy_srq(srq).unwrap();
    assert!(matches!(pair.far.ctx.query_cq(cq), Err(VerbsError::UnknownCompletionQueue)));
    assert!(matches!(pair.far.ctx.query_srq(srq), Err(VerbsError::UnknownSharedReceiveQueue)));
}

/// SQ drain: requests posted before a disconnect are executed, later ones are refused
/// (RFC 5040 s6.2).
#[test]
fn a_draining_queue_pair_completes_posted_work_and_refuses_new_posts() {
    let mut pair = common::joined();
    let (near, _) = pair.connect();
    let (source, target) = (pair.near.memory(&pattern(100_000, 4)), pair.far.memory(&[0; 100_000]));
    let all = [source.slice(0, 100_000).unwrap()];
    for id in 0..4 {
        pair.near.ctx.post_send(near, &SendWr::write(id, &all, remote(&target))).unwrap();
    }
    let own = SendWr::invalidate(4, source.stag()).locally_fenced();
    pair.near.ctx.post_send(near, &own).unwrap();
    pair.near.ctx.disconnect(near).unwrap();
    pair.near.worker.poll(1);
    let late = pair.near.ctx.post_send(near, &SendWr::write(9, &all, remote(&target)));
    assert!(matches!(late, Err(PostError::WrongState(QpState::Draining))));
    pair.until("the end", |pair| pair.near.is_disconnected(near));
    let done: Vec<_> = pair.near.completions.iter().map(|one| (one.wr_id, one.status)).collect();
    assert_eq!(done, (0..5).map(|id| (id, OK)).collect::<Vec<_>>());
    assert_eq!(contents(&target), pattern(100_000, 4));
}

/// Free slots are counted lazily: a list that needs more than the known free slots finds slots that
/// became free.
#[test]
fn a_list_uses_the_slots_that_completed_requests_freed() {
    let mut pair = common::joined();
    let attr = QpAttr { send_depth: 2, ..QpAttr::new(pair.near.cq) };
    let far_attr = QpAttr::new(pair.far.cq);
    let (near, _) = pair.connect_with(&attr, &far_attr);
    let target = pair.far.memory(&[0; 64]);
    let write = |id| SendWr::write_inline(id, b"x", remote(&target));
    for round in 0..4 {
        pair.near.ctx.post_send(near, &write(10 * round)).unwrap();
        let refused = pair.near.ctx.post_all(near, &[write(1), write(2)]);
        assert!(matches!(refused, Err(PostError::QueueFull)), "{refused:?}");
        pair.until("its end", |pair| pair.near.completions.len() as u64 == 3 * round + 1);
        pair.near.ctx.post_all(near, &[write(10 * round + 1), write(10 * round + 2)]).unwrap();
        pair.until("their end", |pair| pair.near.completions.len() as u64 == 3 * round + 3);
    }
}
