//! Immediate Data from verbs to frames and back, and its negotiation by the applications
//! (RFC 7306 s1.1, s6).

use super::common;

use common::{Pair, config, contents, pattern};
use ironwarp::{
    AcceptParams, CompletionFlags, CompletionOpcode, CompletionStatus, Config, ConnectParams, Event,
    Extensions, PostError, QpAttr, QueuePair, RecvWr, RemoteMemory, SendWr,
};

const OCTETS: [u8; 8] = *b"8 octets";

fn extended(address: &str) -> Config {
    let mut config = config(address);
    config.rdmap.extensions = Extensions::Rfc7306;
    config
}

fn pair() -> Pair {
    common::joined_with(extended)
}

fn receives(pair: &mut Pair, far: QueuePair, ids: core::ops::Range<u64>) {
    ids.for_each(|id| pair.far.ctx.post_recv(far, &RecvWr::new(id, &[])).unwrap());
}

/// RFC7306-6.1-01: the peer's application gets the octets with its receive, and the requested
/// event.
#[test]
fn eight_bytes_reach_the_peer_in_a_completion() {
    let mut pair = pair();
    let (near, far) = pair.connect();
    receives(&mut pair, far, 1..3);
    pair.near.ctx.post_send(near, &SendWr::immediate(5, &OCTETS)).unwrap();
    pair.near.ctx.post_send(near, &SendWr::immediate(6, &[7; 8]).solicited()).unwrap();
    pair.until("all completions", |pair| pair.near.completions.len() + pair.far.completions.len() == 4);
    let told: Vec<_> = pair.far.completions.iter().map(|one| (one.wr_id, one.immediate, one.flags)).collect();
    assert_eq!(told, [(1, OCTETS, CompletionFlags::empty()), (2, [7; 8], CompletionFlags::SOLICITED)]);
    assert!(pair.far.completions.iter().all(|one| one.opcode == CompletionOpcode::ReceiveImmediate));
    let sent: Vec<_> = pair.near.completions.iter().map(|one| (one.wr_id, one.opcode, one.status)).collect();
    let good = |id| (id, CompletionOpcode::Immediate, CompletionStatus::Success);
    assert_eq!(sent, [good(5), good(6)]);
}

/// RFC7306-7-01: when the octets arrive, the Write before them is placed. One completion at each
/// end.
#[test]
fn a_write_with_immediate_is_one_doorbell_and_one_completion() {
    let mut pair = pair();
    let (near, far) = pair.connect();
    receives(&mut pair, far, 1..2);
    let (source, target) = (pair.near.memory(&pattern(70_000, 3)), pair.far.memory(&[0; 70_000]));
    let there = RemoteMemory { stag: target.stag(), tagged_offset: target.base_to() };
    let gather = [source.slice(0, 70_000).unwrap()];
    pair.near.ctx.post_all(near, &SendWr::write_with_immediate(9, &gather, there, &OCTETS)).unwrap();
    pair.until("the immediate", |pair| !pair.far.completions.is_empty());
    assert_eq!(contents(&target), pattern(70_000, 3));
    assert_eq!((pair.far.completions[0].wr_id, pair.far.completions[0].immediate), (1, OCTETS));
    pair.until("the completion", |pair| !pair.near.completions.is_empty());
    let sent = pair.near.completions[0];
    assert_eq!((sent.wr_id, sent.opcode), (9, CompletionOpcode::Immediate));
    assert_eq!(pair.near.ctx.query_qp(near).unwrap().sends_outstanding, 0);
}

/// Two requests that belong together are posted together or not at all, also with one free slot.
#[test]
fn a_list_that_does_not_fit_is_refused_whole() {
    let mut pair = pair();
    let small = pair.near.ctx.create_cq(3).unwrap();
    let near_attr = QpAttr { send_depth: 4, send_cq: small, ..QpAttr::new(pair.near.cq) };
    let far_attr = QpAttr::new(pair.far.cq);
    let (near, far) = pair.connect_with(&near_attr, &far_attr);
    receives(&mut pair, far, 1..20);
    let one = SendWr::immediate(1, &OCTETS);
    assert!(matches!(pair.near.ctx.post_all(near, &[one; 5]), Err(PostError::QueueFull)));
    assert!(matches!(pair.near.ctx.post_all(near, &[one; 4]), Err(PostError::CqFull)));
    let long = SendWr::send_inline(2, &[0; 300]);
    assert!(matches!(pair.near.ctx.post_all(near, &[one, long]), Err(PostError::InlineTooLong { .. })));
    pair.near.ctx.post_all(near, &[one; 3]).unwrap();
    pair.until("all of them", |pair| pair.far.completions.len() == 3);
    assert!(matches!(pair.near.ctx.post_all(near, &[one]), Err(PostError::CqFull)));
    let mut reaped = [ironwarp::Completion::default(); 8];
    pair.until("the completions", |pair| pair.near.ctx.query_qp(near).unwrap().sends_outstanding == 0);
    assert_eq!(pair.near.ctx.poll_cq(small, &mut reaped).unwrap(), 3);
    pair.near.ctx.post_all(near, &[one.unsignaled(); 3]).unwrap();
    pair.until("three more", |pair| pair.far.completions.len() == 6);
    pair.until("their slots", |pair| pair.near.ctx.query_qp(near).unwrap().sends_outstanding == 0);
    // The slots of unsignaled requests are reused.
    pair.near.ctx.post_all(near, &[one; 3]).unwrap();
}

/// A shared receive serves as well as one of the queue pair's own.
#[test]
fn immediates_take_receives_of_a_shared_queue() {
    let mut pair = pair();
    let srq = pair.far.ctx.create_srq(pair.far.pd, 8, 1).unwrap();
    let near_attr = QpAttr::new(pair.near.cq);
    let far_attr = QpAttr { srq: Some(srq), ..QpAttr::new(pair.far.cq) };
    let (near, _) = pair.connect_with(&near_attr, &far_attr);
    (1..3).for_each(|id| pair.far.ctx.post_srq_recv(srq, &RecvWr::new(id, &[])).unwrap());
    pair.near.ctx.post_send(near, &SendWr::immediate(1, &OCTETS)).unwrap();
    pair.near.ctx.post_send(near, &SendWr::immediate(2, &[3; 8])).unwrap();
    pair.until("both", |pair| pair.far.completions.len() == 2);
    let told: Vec<_> = pair.far.completions.iter().map(|one| (one.wr_id, one.immediate)).collect();
    assert_eq!(told, [(1, OCTETS), (2, [3; 8])]);
}

/// Connects with the extensions of each side.
fn connect_by(pair: &mut Pair, near: Option<Extensions>, far: Option<Extensions>) -> (QueuePair, QueuePair) {
    let (near_attr, far_attr) = (QpAttr::new(pair.near.cq), QpAttr::new(pair.far.cq));
    let one = pair.near.ctx.create_qp(pair.near.pd, &near_attr).unwrap();
    let other = pair.far.ctx.create_qp(pair.far.pd, &far_attr).unwrap();
    let _ = pair.far.ctx.listen(pair.at);
    pair.far.turn();
    let params = ConnectParams { extensions: near, ..ConnectParams::default() };
    pair.near.ctx.connect_with(one, pair.at, &params).unwrap();
    let is_request = |event: &Event| matches!(event, Event::ConnectRequest { .. });
    pair.until("the request", |pair| pair.far.events.iter().any(is_request));
    let at = pair.far.events.iter().position(is_request).unwrap();
    let Event::ConnectRequest { request, .. } = pair.far.events.remove(at) else { unreachable!() };
    let params = AcceptParams { extensions: far, ..AcceptParams::default() };
    pair.far.ctx.accept_with(request, other, &params).unwrap();
    pair.until("both ends", |pair| pair.near.is_established(one) && pair.far.is_established(other));
    (one, other)
}

/// RFC7306-1.1-05: each side enables it for each connection. A side without it refuses its own
/// application at once, and the peer's message ends the connection as an unknown one.
#[test]
fn extensions_are_negotiated_per_connection() {
    let mut pair = common::joined();
    let (near, far) = connect_by(&mut pair, None, Some(Extensions::Rfc7306));
    let refused = pair.near.ctx.post_send(near, &SendWr::immediate(1, &OCTETS));
    assert!(matches!(refused, Err(PostError::NoSuchOperation)));
    receives(&mut pair, far, 1..2);
    pair.near.ctx.post_send(near, &SendWr::send_inline(2, b"")).unwrap();
    pair.until("a plain Send", |pair| pair.far.completions.len() == 1);

    let (near, far) = connect_by(&mut pair, Some(Extensions::Draft03), Some(Extensions::Rfc7306));
    receives(&mut pair, far, 3..4);
    pair.near.ctx.post_send(near, &SendWr::immediate(4, &OCTETS)).unwrap();
    pair.until("an immediate", |pair| pair.far.completions.len() == 2);
    assert_eq!(pair.far.completions[1].immediate, OCTETS);

    let (near, far) = connect_by(&mut pair, Some(Extensions::Rfc7306), None);
    let inbox = pair.far.memory(&[0; 64]);
    pair.far.ctx.post_recv(far, &RecvWr::new(5, &[inbox.slice(0, 64).unwrap()])).unwrap();
    pair.near.ctx.post_send(near, &SendWr::immediate(6, &OCTETS)).unwrap();
    pair.until("the end", |pair| pair.near.is_disconnected(near) && pair.far.is_disconnected(far));
    let told = |event: &Event| {
        matches!(event, Event::Terminated { sent: false, terminate, .. }
        if (terminate.layer, terminate.etype, terminate.code) == (0, 2, 6))
    };
    assert!(pair.near.events.iter().any(told));
}
