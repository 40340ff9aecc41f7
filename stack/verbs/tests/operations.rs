//! Sends, Writes and Reads between two nodes, from verbs to frames and back.

use super::common;

use common::{contents, pattern};
use ironwarp::{
    CompletionFlags, CompletionOpcode, CompletionStatus, Event, PostError, QpAttr, RecvWr, RemoteMemory,
    SendWr,
};

const SIZES: [usize; 9] = [0, 1, 3, 64, 1424, 1425, 5000, 65_537, 1 << 20];

fn remote(region: &ironwarp::Region, offset: u64) -> RemoteMemory {
    RemoteMemory { stag: region.stag(), tagged_offset: region.base_to() + offset }
}

/// RFC 5040 s5.1, RFC 5041 s5.3: a Send is placed in the oldest receive, whole, and completes at
/// both ends. RFC 5040 s5.3; RFC 5041 s4.1 and s5.4.
#[test]
fn a_send_of_any_size_lands_in_the_posted_receive() {
    let mut pair = common::joined();
    let (near, far) = pair.connect();
    for (turn, size) in SIZES.into_iter().enumerate() {
        let (source, sink) =
            (pair.near.memory(&pattern(size.max(1), 1)), pair.far.memory(&vec![0; size + 8]));
        let room = sink.slice(0, (size + 8) as u32).unwrap();
        pair.far.ctx.post_recv(far, &RecvWr::new(turn as u64, &[room])).unwrap();
        let gather = [source.slice(0, size as u32).unwrap()];
        pair.near.ctx.post_send(near, &SendWr::send(100 + turn as u64, &gather)).unwrap();
        pair.until("both completions", |pair| {
            pair.near.completions.len() == 1 && pair.far.completions.len() == 1
        });
        let (sent, received) = (pair.near.completions.remove(0), pair.far.completions.remove(0));
        assert_eq!((sent.wr_id, sent.status), (100 + turn as u64, CompletionStatus::Success));
        assert_eq!((received.wr_id, received.byte_len), (turn as u64, size as u32));
        assert_eq!(received.opcode, CompletionOpcode::Receive);
        assert_eq!(contents(&sink)[..size], pattern(size.max(1), 1)[..size], "{size} bytes");
        assert_eq!(contents(&sink)[size..], [0; 8], "nothing behind the message is touched");
    }
}

/// RFC 5040 s5.2: a Write is placed at its address, and the peer's application gets no event.
#[test]
fn a_write_of_any_size_is_placed_at_its_tagged_offset() {
    let mut pair = common::joined();
    let (near, _) = pair.connect();
    for size in SIZES {
        let (source, target) =
            (pair.near.memory(&pattern(size.max(1), 2)), pair.far.memory(&vec![0xee; size + 16]));
        let gather = [source.slice(0, size as u32).unwrap()];
        pair.near.ctx.post_send(near, &SendWr::write(5, &gather, remote(&target, 8))).unwrap();
        pair.until("the Write's completion", |pair| pair.near.completions.len() == 1);
        assert_eq!(pair.near.completions.remove(0).status, CompletionStatus::Success);
        let placed = contents(&target);
        assert_eq!(placed[8..8 + size], pattern(size.max(1), 2)[..size], "{size} bytes");
        assert!(placed[..8].iter().chain(&placed[8 + size..]).all(|byte| *byte == 0xee));
        assert!(pair.far.completions.is_empty());
    }
}

/// RFC 5040 s5.3: a Read places the peer's memory in the one sink element.
/// RFC 5040 s4.4 and s5.2.1.
#[test]
fn a_read_of_any_size_returns_the_peers_bytes() {
    let mut pair = common::joined();
    let (near, _) = pair.connect();
    for size in SIZES {
        let (source, sink) = (pair.far.memory(&pattern(size + 8, 3)), pair.near.memory(&vec![0; size + 8]));
        let into = [sink.slice(4, size as u32).unwrap()];
        pair.near.ctx.post_send(near, &SendWr::read(6, &into, remote(&source, 8))).unwrap();
        pair.until("the Read's completion", |pair| pair.near.completions.len() == 1);
        let completion = pair.near.completions.remove(0);
        assert_eq!(
            (completion.status, completion.opcode),
            (CompletionStatus::Success, CompletionOpcode::Read)
        );
        assert_eq!(contents(&sink)[4..4 + size], pattern(size + 8, 3)[8..], "{size} bytes");
    }
}

/// semantics "Completion": completions arrive in post order, a Write after an earlier Read.
#[test]
fn completions_come_in_the_order_of_posting() {
    let mut pair = common::joined();
    let (near, far) = pair.connect();
    let (memory, target) = (pair.near.memory(&[1; 9000]), pair.far.memory(&[2; 9000]));
    for receive in 0..8 {
        let landing = [target.slice(0, 64).unwrap()];
        pair.far.ctx.post_recv(far, &RecvWr::new(receive, &landing)).unwrap();
    }
    for round in 0..8u64 {
        let (all, some) = ([memory.slice(0, 9000).unwrap()], [memory.slice(0, 64).unwrap()]);
        pair.near.ctx.post_send(near, &SendWr::read(round * 3, &all, remote(&target, 0))).unwrap();
        pair.near.ctx.post_send(near, &SendWr::write(round * 3 + 1, &all, remote(&target, 0))).unwrap();
        pair.near.ctx.post_send(near, &SendWr::send(round * 3 + 2, &some)).unwrap();
    }
    pair.until("24 completions", |pair| pair.near.completions.len() == 24);
    let ids: Vec<u64> = pair.near.completions.iter().map(|completion| completion.wr_id).collect();
    assert_eq!(ids, (0..24).collect::<Vec<_>>());
    let received: Vec<u64> = pair.far.completions.iter().map(|completion| completion.wr_id).collect();
    assert_eq!(received, (0..8).collect::<Vec<_>>());
}

#[test]
fn gather_and_scatter_lists_of_sixteen_elements_join_in_order() {
    let mut pair = common::joined();
    let (near, far) = pair.connect();
    let (source, sink) = (pair.near.memory(&pattern(3200, 4)), pair.far.memory(&[0; 3200]));
    // Every second block of 100 bytes of the source, scattered into pieces of 100 bytes from the
    // end.
    let gather: Vec<_> = (0..16).map(|i| source.slice(i * 200, 100).unwrap()).collect();
    let scatter: Vec<_> = (0..16).map(|i| sink.slice(1500 - i * 100, 100).unwrap()).collect();
    pair.far.ctx.post_recv(far, &RecvWr::new(1, &scatter)).unwrap();
    pair.near.ctx.post_send(near, &SendWr::send(1, &gather)).unwrap();
    pair.until("the receive", |pair| pair.far.completions.len() == 1);
    let (from, to) = (pattern(3200, 4), contents(&sink));
    for i in 0..16 {
        assert_eq!(to[1500 - i * 100..][..100], from[i * 200..][..100], "element {i}");
    }
}

#[test]
fn inline_bytes_are_free_as_soon_as_the_post_returns() {
    let mut pair = common::joined();
    let (near, far) = pair.connect();
    let sink = pair.far.memory(&[0; 256]);
    let mut bytes = pattern(256, 5);
    pair.far.ctx.post_recv(far, &RecvWr::new(1, &[sink.slice(0, 256).unwrap()])).unwrap();
    pair.near.ctx.post_send(near, &SendWr::send_inline(1, &bytes)).unwrap();
    bytes.fill(0);
    pair.until("the receive", |pair| pair.far.completions.len() == 1);
    assert_eq!(contents(&sink), pattern(256, 5));
    let too_long = pair.near.ctx.post_send(near, &SendWr::send_inline(2, &[0; 257]));
    assert!(matches!(too_long, Err(PostError::InlineTooLong { requested: 257, allowed: 256 })));
}

#[test]
fn an_unsignaled_send_completes_without_cqe_and_frees_its_slot() {
    let mut pair = common::joined();
    let small = pair.near.ctx.create_cq(4).unwrap();
    let attr = QpAttr { send_cq: small, ..QpAttr::new(pair.near.cq) };
    let (far_attr, target) = (QpAttr::new(pair.far.cq), pair.far.memory(&[0; 64]));
    let (near, _) = pair.connect_with(&attr, &far_attr);
    for round in 0..64u8 {
        let bytes = [round; 8];
        let write = SendWr::write_inline(9, &bytes, remote(&target, 0)).unsignaled();
        pair.until("a place in the queue", |pair| match pair.near.ctx.post_send(near, &write) {
            Ok(()) => true,
            Err(PostError::CqFull) => false,
            Err(error) => panic!("{error}"),
        });
    }
    pair.until("the last Write", |_| target.load_u8_acquire(7).unwrap() == 63);
    let mut none = [ironwarp::Completion::default(); 4];
    assert_eq!(pair.near.ctx.poll_cq(small, &mut none).unwrap(), 0);
}

/// RFC 5040 s5.3: the solicited-event flag is in the peer's completion.
#[test]
fn a_solicited_send_is_flagged_at_the_peer() {
    let mut pair = common::joined();
    let (near, far) = pair.connect();
    let sink = pair.far.memory(&[0; 8]);
    for receive in 0..2 {
        pair.far.ctx.post_recv(far, &RecvWr::new(receive, &[sink.slice(0, 8).unwrap()])).unwrap();
    }
    pair.near.ctx.post_send(near, &SendWr::send_inline(1, b"plain")).unwrap();
    pair.near.ctx.post_send(near, &SendWr::send_inline(2, b"urgent").solicited()).unwrap();
    pair.until("both receives", |pair| pair.far.completions.len() == 2);
    let solicited: Vec<bool> =
        pair.far.completions.iter().map(|one| one.flags.contains(CompletionFlags::SOLICITED)).collect();
    assert_eq!(solicited, [false, true]);
}

#[test]
fn a_full_send_queue_is_an_error_at_post_and_loses_nothing() {
    let mut pair = common::joined();
    let attr = QpAttr { send_depth: 4, ..QpAttr::new(pair.near.cq) };
    let far_attr = QpAttr::new(pair.far.cq);
    let (near, _) = pair.connect_with(&attr, &far_attr);
    let target = pair.far.memory(&[0; 64]);
    for i in 0..4 {
        pair.near.ctx.post_send(near, &SendWr::write_inline(i, b"x", remote(&target, i))).unwrap();
    }
    let fifth = pair.near.ctx.post_send(near, &SendWr::write_inline(4, b"x", remote(&target, 4)));
    assert!(matches!(fifth, Err(PostError::QueueFull)));
    pair.until("four completions", |pair| pair.near.completions.len() == 4);
    pair.near.ctx.post_send(near, &SendWr::write_inline(5, b"x", remote(&target, 5))).unwrap();
    pair.until("the fifth", |pair| pair.near.completions.len() == 5);
    assert_eq!(contents(&target)[..6], *b"xxxx\0x");
}

/// semantics "Fence": the hold-off delays the initiator's first FPDU and nothing else.
#[test]
fn the_hold_off_delays_the_initiators_first_fpdu() {
    const HOLD_OFF_US: u64 = 30_000;
    let held = |address: &str| {
        let mut config = common::config(address);
        config.mpa.first_fpdu_holdoff_us = HOLD_OFF_US;
        config
    };
    let mut pair = common::joined_with(held);
    let before = pair.near.worker.now();
    let sink = pair.far.memory(&[0; 8]);
    let (near_attr, far_attr) = (QpAttr::new(pair.near.cq), QpAttr::new(pair.far.cq));
    let near = pair.near.ctx.create_qp(pair.near.pd, &near_attr).unwrap();
    let far = pair.far.ctx.create_qp(pair.far.pd, &far_attr).unwrap();
    for receive in 0..2 {
        pair.far.ctx.post_recv(far, &RecvWr::new(receive, &[sink.slice(0, 8).unwrap()])).unwrap();
    }
    pair.far.ctx.listen(common::FAR.parse().unwrap()).unwrap();
    pair.far.turn();
    pair.near.ctx.connect(near, common::FAR.parse().unwrap(), b"").unwrap();
    // Posted before the connection is established: held with everything else.
    pair.near.ctx.post_send(near, &SendWr::send_inline(1, b"first")).unwrap();
    pair.until("the request", |pair| !pair.far.events.is_empty());
    if let Event::ConnectRequest { request, .. } = pair.far.events.remove(0) {
        pair.far.ctx.accept(request, far, b"").unwrap();
    }
    pair.until("the first Send", |pair| !pair.far.completions.is_empty());
    // The clock advances between the two readings, so the measured delay can only be longer than
    // the real one.
    assert!((pair.near.worker.now() - before).0 >= HOLD_OFF_US * 1_000);
    // After that the hold-off delays nothing.
    pair.near.ctx.post_send(near, &SendWr::send_inline(2, b"second")).unwrap();
    pair.until("the second Send", |pair| pair.far.completions.len() == 2);
}
