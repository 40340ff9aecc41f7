//! Errors end one connection, with the Terminate of the RFC, and affect nothing else.

use super::common;

use common::{Pair, contents};
use ironwarp::{Access, CompletionStatus, Event, QueuePair, RemoteMemory, STag, SendWr, Terminate};

/// Returns the Terminate that `qp` sent or received.
fn terminate(events: &[Event], qp: QueuePair, was_sent: bool) -> Option<(u8, u8, u8)> {
    events.iter().find_map(|event| match event {
        Event::Terminated { qp: one, sent, terminate: Terminate { layer, etype, code } }
            if *one == qp && *sent == was_sent =>
        {
            Some((*layer, *etype, *code))
        }
        _ => None,
    })
}

/// Posts an operation that the server must refuse. Checks that both ends report the same error,
/// that the request is flushed, and that another connection of the same nodes continues.
#[track_caller]
fn refused(post: impl Fn(&mut Pair, QueuePair), want: (u8, u8, u8)) {
    let mut pair = common::joined();
    let (bystander, _) = pair.connect();
    pair.near.events.clear();
    pair.far.events.clear();
    let (near, far) = pair.connect();
    post(&mut pair, near);
    pair.until("both disconnected", |pair| pair.near.is_disconnected(near) && pair.far.is_disconnected(far));
    assert_eq!(terminate(&pair.far.events, far, true), Some(want), "what the far end sent");
    assert_eq!(terminate(&pair.near.events, near, false), Some(want), "what the near end heard");
    assert!(pair.near.completions.len() == 1 && pair.near.completions[0].qp == near.num());

    pair.near.completions.clear();
    let target = pair.far.memory(&[0; 4]);
    let remote = RemoteMemory { stag: target.stag(), tagged_offset: target.base_to() };
    pair.near.ctx.post_send(bystander, &SendWr::write_inline(9, b"fine", remote)).unwrap();
    pair.until("the bystander's Write", |pair| {
        pair.near
            .completions
            .iter()
            .any(|one| one.qp == bystander.num() && one.status == CompletionStatus::Success)
    });
    assert_eq!(contents(&target), b"fine");
}

/// RFC 5041 s7.2 and s8.2: a Send without a posted receive is DDP untagged "no buffer".
/// RFC 5040 s3.2 and s7; RFC 5041 s3 and s6.2.
#[test]
fn a_send_without_a_receive_is_terminated() {
    refused(|pair, near| pair.near.ctx.post_send(near, &SendWr::send_inline(1, b"x")).unwrap(), (1, 2, 2));
}

/// RFC 5041 s7.1: an STag that does not exist is DDP tagged "invalid STag".
/// RFC 5040 s3.2; RFC 5041 s8.3.
#[test]
fn a_write_to_an_unknown_stag_is_terminated() {
    let nowhere = RemoteMemory { stag: STag(0x1234_5678), tagged_offset: 0 };
    refused(
        move |pair, near| pair.near.ctx.post_send(near, &SendWr::write_inline(1, b"x", nowhere)).unwrap(),
        (1, 1, 0),
    );
}

/// RFC 5041 s7.1: beyond the region is DDP tagged "base or bounds".
#[test]
fn a_write_beyond_its_region_is_terminated_and_places_nothing() {
    refused(
        |pair, near| {
            let target = Box::leak(Box::new(pair.far.memory(&[5; 16])));
            let remote = RemoteMemory { stag: target.stag(), tagged_offset: target.base_to() + 9 };
            pair.near.ctx.post_send(near, &SendWr::write_inline(1, &[1; 8], remote)).unwrap();
        },
        (1, 1, 1),
    );
}

/// RFC 5040 s7.2: a Read of an unknown STag is an RDMAP remote protection error, "invalid STag".
#[test]
fn a_read_of_an_unknown_stag_is_terminated() {
    let nowhere = RemoteMemory { stag: STag(0x1234_5678), tagged_offset: 0 };
    refused(
        move |pair, near| {
            let sink = Box::leak(Box::new(pair.near.memory(&[0; 8])));
            pair.near.ctx.post_send(near, &SendWr::read(1, &[sink.slice(0, 8).unwrap()], nowhere)).unwrap();
        },
        (0, 1, 0),
    );
}

/// RFC 5040 s7.2: a Read of memory without the right is "access violation".
#[test]
fn a_read_of_memory_that_may_not_be_read_is_terminated() {
    refused(
        |pair, near| {
            let sink = Box::leak(Box::new(pair.near.memory(&[0; 8])));
            let secret = pair.far.ctx.register(pair.far.pd, vec![1u8; 8], Access::LOCAL_WRITE).unwrap();
            let secret = Box::leak(Box::new(secret));
            let remote = RemoteMemory { stag: secret.stag(), tagged_offset: secret.base_to() };
            pair.near.ctx.post_send(near, &SendWr::read(1, &[sink.slice(0, 8).unwrap()], remote)).unwrap();
        },
        (0, 1, 2),
    );
}

/// semantics "Memory": a dropped region is unknown from that moment.
#[test]
fn a_write_to_a_revoked_region_is_terminated() {
    refused(
        |pair, near| {
            let target = pair.far.memory(&[0; 8]);
            let remote = RemoteMemory { stag: target.stag(), tagged_offset: target.base_to() };
            drop(target);
            pair.near.ctx.post_send(near, &SendWr::write_inline(1, b"x", remote)).unwrap();
        },
        (1, 1, 0),
    );
}

/// A gather element of revoked memory fails its request locally. The stream ends, since the
/// announced data cannot be sent. RFC 5040 s7.1.
#[test]
fn a_send_from_revoked_memory_fails_with_a_local_protection_error() {
    let mut pair = common::joined();
    let (near, far) = pair.connect();
    let source = pair.near.memory(&[1; 64]);
    let gather = [source.slice(0, 64).unwrap()];
    drop(source);
    pair.near.ctx.post_send(near, &SendWr::send(3, &gather)).unwrap();
    pair.until("the ends", |pair| pair.near.is_disconnected(near) && pair.far.is_disconnected(far));
    assert_eq!(pair.near.completions[0].wr_id, 3);
    assert_eq!(pair.near.completions[0].status, CompletionStatus::LocalProtection);
}
