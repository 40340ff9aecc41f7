//! Where a handle stops being good: behind a disconnect, in another stack, beyond its own memory.

mod common;

use common::Pair;
use ironwarp::{CompletionStatus, QpState, RemoteMemory, SendWr, VerbsError};

/// RFC 5041 s6.2.1 (RFC5041-6.2.1-03): once the application has asked for the graceful end, further requests are refused,
/// though the core has not heard of it yet. What was posted before is carried out.
#[test]
fn nothing_is_posted_behind_a_disconnect() {
    let mut pair = Pair::new();
    let (near, far) = pair.connect();
    let target = pair.far.memory(&[0; 8]);
    let remote = RemoteMemory { stag: target.stag(), tagged_offset: target.base_to() };
    pair.near.ctx.post_send(near, &SendWr::write_inline(1, b"before", remote)).unwrap();
    pair.near.ctx.disconnect(near).unwrap();
    let behind = pair.near.ctx.post_send(near, &SendWr::write_inline(2, b"behind", remote));
    assert!(matches!(behind, Err(VerbsError::WrongState(QpState::Draining))), "{behind:?}");
    assert_eq!(pair.near.ctx.qp_state(near).unwrap(), QpState::Draining);
    assert_eq!(pair.near.ctx.query_qp(near).unwrap().state, QpState::Draining);
    pair.until("the end", |pair| pair.near.is_disconnected(near) && pair.far.is_disconnected(far));
    let done: Vec<_> = pair.near.completions.iter().map(|one| (one.wr_id, one.status)).collect();
    assert_eq!(done, [(1, CompletionStatus::Success)]);
    assert_eq!(common::contents(&target), b"before\0\0");
    // What is posted to a queue pair that has ended completes as flushed, as ever.
    pair.near.ctx.post_send(near, &SendWr::write_inline(3, b"after", remote)).unwrap();
    pair.until("the flush", |pair| pair.near.completions.len() == 2);
    assert_eq!(pair.near.completions[1].status, CompletionStatus::FlushedInError);
}

/// A connection that is still coming up is closed as well, and takes no more work until it is.
#[test]
fn nothing_is_posted_behind_a_disconnect_of_a_connection_that_comes_up() {
    let mut pair = Pair::new();
    let qp = pair.near.ctx.create_qp(pair.near.pd, &ironwarp::QpAttr::new(pair.near.cq)).unwrap();
    pair.near.ctx.connect(qp, pair.at, b"").unwrap();
    pair.near.ctx.post_send(qp, &SendWr::send_inline(1, b"held")).unwrap();
    pair.near.ctx.disconnect(qp).unwrap();
    let behind = pair.near.ctx.post_send(qp, &SendWr::send_inline(2, b"behind"));
    assert!(matches!(behind, Err(VerbsError::WrongState(QpState::Draining))), "{behind:?}");
    pair.until("the end", |pair| !pair.near.completions.is_empty());
    let done: Vec<_> = pair.near.completions.iter().map(|one| (one.wr_id, one.status)).collect();
    assert_eq!(done, [(1, CompletionStatus::FlushedInError)]);
}
