//! The requirements of RFC 5040 s8.1.1 and RFC 5042 s5, s6 on an RNIC, one test for each that two
//! nodes can show.
//!
//! Bounds, wrap, rights and the code of each refusal have tests of their own beside the table of
//! regions and the stream. These tests show what only a whole node can show.

use super::common;

use common::{Pair, contents, pattern};
use ironwarp::{
    Access, CompletionStatus, Event, PostError, QpAttr, QueuePair, RecvWr, Region, RemoteMemory, STag,
    SendWr, VerbsError,
};
use std::collections::HashSet;

const OK: CompletionStatus = CompletionStatus::Success;

fn at(region: &Region, offset: u64) -> RemoteMemory {
    RemoteMemory { stag: region.stag(), tagged_offset: region.base_to() + offset }
}

fn again(pair: &mut Pair) -> (QueuePair, QueuePair) {
    pair.near.events.clear();
    pair.far.events.clear();
    pair.near.completions.clear();
    pair.connect()
}

/// RFC 5040 s8.1.1 (1): a stream of one protection domain cannot use a tag of another, to write or
/// to read. RFC 5041 s8.3.1; RFC 5042 s6.1.1.
#[test]
fn a_stream_cannot_use_a_tag_of_another_protection_domain() {
    let mut pair = common::joined();
    let other = pair.far.ctx.alloc_pd();
    let foreign = pair.far.ctx.register(other, pattern(64, 1), Access::all()).unwrap();
    let sink = pair.near.memory(&[0; 64]);
    let into = [sink.slice(0, 64).unwrap()];
    for wr in [SendWr::write_inline(1, b"x", at(&foreign, 0)), SendWr::read(2, &into, at(&foreign, 0))] {
        let (near, _) = again(&mut pair);
        pair.near.ctx.post_send(near, &wr).unwrap();
        pair.until("the end", |pair| pair.near.is_disconnected(near));
    }
    assert_eq!((contents(&foreign), contents(&sink)), (pattern(64, 1), vec![0; 64]));
}

/// RFC 5040 s8.1.1 (3): byte granularity, on either side of a region that has neighbours in the
/// same allocation. RFC 5041 s8.3.1; RFC 5042 s6.2.1.
#[test]
fn no_byte_outside_a_region_is_accessed() {
    let mut pair = common::joined();
    let pool =
        pair.far.ctx.register(pair.far.pd, vec![7u8; 4096], Access::LOCAL_WRITE | Access::BIND).unwrap();
    let mut region = pair.far.ctx.create_fast_region(pair.far.pd).unwrap();
    for (offset, len) in [(-1i64, 1usize), (0, 513), (512, 1), (511, 2), (-8, 8)] {
        let (near, far) = again(&mut pair);
        let over = [pool.slice(1024, 512).unwrap()];
        let access = Access::LOCAL_WRITE | Access::REMOTE_WRITE;
        pair.far.ctx.post_send(far, &SendWr::fast_register(1, &mut region, &over, access)).unwrap();
        pair.until("the registration", |pair| pair.far.completions.len() == 1);
        pair.far.completions.clear();
        let bytes = vec![9u8; len];
        let tagged_offset = over[0].addr.wrapping_add_signed(offset);
        let remote = RemoteMemory { stag: region.stag(), tagged_offset };
        let source = pair.near.memory(&bytes);
        let gather = [source.slice(0, len as u32).unwrap()];
        pair.near.ctx.post_send(near, &SendWr::write(1, &gather, remote)).unwrap();
        pair.until("the end", |pair| pair.near.is_disconnected(near) && pair.far.is_disconnected(far));
        let _ = region.invalidate();
        pair.far.completions.clear();
    }
    assert_eq!(contents(&pool), vec![7; 4096]);
}

/// RFC 5040 s8.1.1 (6), RFC 5041 s8.3.1: after the token of a revocation is complete, the network
/// does not change the buffer, even while a long Write is under way. RFC 5042 s6.2.2.
#[test]
fn a_revoked_buffer_is_never_written() {
    let mut pair = common::joined();
    let (near, _) = pair.connect();
    const LONG: usize = 4 << 20;
    let (source, target) = (pair.near.memory(&vec![1; LONG]), pair.far.memory(&vec![0; LONG]));
    let all = [source.slice(0, LONG as u32).unwrap()];
    pair.near.ctx.post_send(near, &SendWr::write(1, &all, at(&target, 0))).unwrap();
    pair.until("a part of the Write", |_| target.load_u8_acquire(10_000).unwrap() == 1);
    let token = target.revoke();
    assert!(!token.poll(), "the core's iteration has not ended");
    pair.until("quiescence", |_| token.poll());
    let then = contents(&target);
    assert!(then.contains(&0), "the Write completed before the revocation");
    pair.until("the end", |pair| pair.near.is_disconnected(near));
    assert!(contents(&target) == then, "the buffer changed after its revocation");
}

/// RFC 5040 s8.1.1 (8), RFC 5042 s6.1.1: tags are hard to predict, sparse over the whole range and
/// not reused soon.
#[test]
fn stags_are_sparse_unpredictable_and_reused_late() {
    let pair = common::joined();
    let mut tags: Vec<u32> = (0..256).map(|_| pair.far.memory(&[0; 8]).stag().0).collect();
    assert_eq!(tags.iter().collect::<HashSet<_>>().len(), 256, "a released tag was reused");
    let other = common::joined();
    assert_ne!(tags[0], other.far.memory(&[0; 8]).stag().0, "two stacks generated the same tag");
    let steps: HashSet<u32> = tags.windows(2).map(|two| two[1].wrapping_sub(two[0])).collect();
    assert!(steps.len() > 250, "the tags form an arithmetic progression");
    tags.sort_unstable();
    for quarter in 0..4u32 {
        let range = u32::MAX / 4;
        let inside = tags.iter().filter(|tag| (**tag / range).min(3) == quarter).count();
        assert!(inside > 16, "{inside} of 256 tags in quarter {quarter}");
    }
}

/// RFC 5042 s6.2: a peer that guesses a tag loses its connection, every time.
/// RFC 5041 s8.3.
#[test]
fn a_guessed_stag_ends_the_connection() {
    let mut pair = common::joined();
    let target = pair.far.memory(&[5; 64]);
    for guess in [0, 1, u32::MAX, target.stag().0 ^ 1, target.stag().0 ^ 0x8000_0000] {
        let (near, _) = again(&mut pair);
        let remote = RemoteMemory { stag: STag(guess), tagged_offset: target.base_to() };
        pair.near.ctx.post_send(near, &SendWr::write_inline(1, b"x", remote)).unwrap();
        pair.until("the end", |pair| pair.near.is_disconnected(near));
    }
    assert_eq!(contents(&target), [5; 64]);
}

/// RFC 5042 s6.1.1, s8.1.1: a host that guesses tags is refused for a while after some wrong ones.
/// Its connections that exist go on.
#[test]
fn a_host_that_guesses_stags_is_refused_for_a_while() {
    const GUESSES: u64 = 5;
    let mut pair = common::joined_with(|address| {
        let mut config = common::config(address);
        config.limits.protection_errors = GUESSES as u32;
        config
    });
    let target = pair.far.memory(&[5; 64]);
    let (good, _) = pair.connect();
    let refused = |pair: &Pair| pair.far.counter("verbs_protection_backoffs");
    for guess in 1..=GUESSES {
        let (near, _) = again(&mut pair);
        let remote = RemoteMemory { stag: STag(guess as u32), tagged_offset: target.base_to() };
        pair.near.ctx.post_send(near, &SendWr::write_inline(1, b"x", remote)).unwrap();
        pair.until("the end", |pair| pair.near.is_disconnected(near));
        assert_eq!(refused(&pair), 0);
    }
    let near = pair.near.ctx.create_qp(pair.near.pd, &QpAttr::new(pair.near.cq)).unwrap();
    pair.near.ctx.connect(near, pair.at, b"").unwrap();
    pair.until("the reset", |pair| {
        pair.near.events.iter().any(|event| matches!(event, Event::ConnectFailed { qp, .. } if *qp == near))
    });
    assert!(refused(&pair) > 0);
    pair.near.completions.clear();
    pair.near.ctx.post_send(good, &SendWr::write_inline(7, b"fine", at(&target, 0))).unwrap();
    pair.until("the Write", |pair| pair.near.completions.iter().any(|done| done.wr_id == 7));
    assert_eq!(&contents(&target)[..4], b"fine");
}

/// The rights REMOTE_READ and REMOTE_WRITE are separate: a peer cannot read memory that it may only
/// write, nor write memory that it may only read.
#[test]
fn read_and_write_rights_are_separate() {
    let mut pair = common::joined();
    let written =
        pair.far.ctx.register(pair.far.pd, pattern(64, 1), Access::LOCAL_WRITE | Access::REMOTE_WRITE);
    let read = pair.far.ctx.register(pair.far.pd, pattern(64, 2), Access::REMOTE_READ).unwrap();
    let written = written.unwrap();
    let sink = pair.near.memory(&[0; 64]);
    let into = [sink.slice(0, 64).unwrap()];
    for wr in [SendWr::read(1, &into, at(&written, 0)), SendWr::write_inline(2, b"x", at(&read, 0))] {
        let (near, _) = again(&mut pair);
        pair.near.ctx.post_send(near, &wr).unwrap();
        pair.until("the end", |pair| pair.near.is_disconnected(near));
    }
    assert_eq!((contents(&sink), contents(&read)), (vec![0; 64], pattern(64, 2)));
    let (near, _) = again(&mut pair);
    pair.near.ctx.post_send(near, &SendWr::write_inline(1, b"fine", at(&written, 0))).unwrap();
    pair.near.ctx.post_send(near, &SendWr::read(2, &into, at(&read, 0))).unwrap();
    pair.until("both", |pair| pair.near.completions.iter().filter(|one| one.status == OK).count() == 2);
}

/// RFC 5042 s6.4.3 and RFC 5040 s8.1.1 (10, 11): limits apply to each process and each connection,
/// and the error names the limit. RFC 5040 s8.1.2; RFC 5041 s8.3 and s8.3.2; RFC 5042 s2.1, s6.4
/// and s6.4.3.2.
#[test]
fn every_limit_is_a_named_error_and_leaves_others_unaffected() {
    let mut pair = common::joined_with(|address| {
        let mut config = common::config(address);
        let limits = &mut config.limits;
        (limits.regions, limits.completion_queues, limits.shared_receive_queues) = (8, 3, 2);
        (limits.contexts, limits.read_depth) = (2, 16);
        config
    });
    let (near, _) = pair.connect();
    let (ctx, pd, cq) = (&mut pair.near.ctx, pair.near.pd, pair.near.cq);
    let regions: Vec<_> = (0..8).map(|_| ctx.register(pd, vec![0u8; 8], Access::empty()).unwrap()).collect();
    let one_more = ctx.register(pd, vec![0u8; 8], Access::empty());
    assert!(matches!(one_more, Err(VerbsError::Register(_))));
    let _queues: Vec<_> = (0..2).map(|_| ctx.create_cq(4).unwrap()).collect();
    assert!(matches!(ctx.create_cq(4), Err(VerbsError::LimitReached(_))));
    let _shared: Vec<_> = (0..2).map(|_| ctx.create_srq(pd, 4, 1).unwrap()).collect();
    assert!(matches!(ctx.create_srq(pd, 4, 1), Err(VerbsError::LimitReached(_))));
    let greedy = QpAttr { ird: 17, ..QpAttr::new(cq) };
    assert!(matches!(ctx.create_qp(pd, &greedy), Err(VerbsError::OutOfRange { .. })));
    let _second = pair.near.stack.context().unwrap();
    assert!(matches!(pair.near.stack.context(), Err(VerbsError::LimitReached(_))));
    drop(regions);
    let target = pair.far.memory(&[0; 8]);
    pair.near.ctx.post_send(near, &SendWr::write_inline(1, b"x", at(&target, 0))).unwrap();
    pair.until("the connection's next Write", |pair| pair.near.completions.len() == 1);
}

/// RFC 5040 s8.1.2: responder queue entries belong to one connection. A connection with all entries
/// taken by long Reads, and with more Reads waiting, takes no entry from another connection.
/// RFC 5042 s6.4.4 and s7.2.
#[test]
fn reads_of_one_connection_do_not_use_the_ird_of_another() {
    let mut pair = common::joined();
    let greedy_attr = QpAttr { ird: 2, ..QpAttr::new(pair.far.cq) };
    let modest_attr = QpAttr { ird: 1, ..QpAttr::new(pair.far.cq) };
    let near_attr = QpAttr::new(pair.near.cq);
    let (greedy, _) = pair.connect_with(&near_attr, &greedy_attr);
    pair.near.events.clear();
    pair.far.events.clear();
    let (modest, _) = pair.connect_with(&near_attr, &modest_attr);
    const LONG: usize = 4 << 20;
    let (source, sink) = (pair.far.memory(&pattern(LONG, 1)), pair.near.memory(&vec![0; LONG]));
    let short = pair.near.memory(&[0; 64]);
    for id in 0..3 {
        let all = [sink.slice(0, LONG as u32).unwrap()];
        pair.near.ctx.post_send(greedy, &SendWr::read(id, &all, at(&source, 0))).unwrap();
    }
    pair.until("two Read Requests", |pair| pair.far.counter("iwarp_rx_read_requests") == 2);
    let into = [short.slice(0, 64).unwrap()];
    pair.near.ctx.post_send(modest, &SendWr::read(9, &into, at(&source, 0))).unwrap();
    pair.until("the other connection's Read", |pair| !pair.near.completions.is_empty());
    let first = pair.near.completions[0];
    assert_eq!((first.qp, first.wr_id, first.status), (modest.num(), 9, OK));
    assert_eq!(contents(&short), pattern(64, 1));
    assert_eq!(pair.far.counter("iwarp_rx_read_requests"), 3, "the third long Read still waits");
    pair.until("the long Reads", |pair| pair.near.completions.len() == 4);
    assert!(pair.near.completions.iter().all(|done| done.status == OK));
}

/// RFC 5040 s8.1.1 (10): a completion queue reserves no more entries than it has, so it never
/// overflows. RFC 5042 s6.4.3.2 and s6.4.6.
#[test]
fn a_completion_queue_never_overflows() {
    let mut pair = common::joined();
    let (near, _) = pair.connect();
    let small = pair.near.ctx.create_cq(2).unwrap();
    let attr = QpAttr { send_cq: small, ..QpAttr::new(pair.near.cq) };
    let far_attr = QpAttr::new(pair.far.cq);
    pair.near.events.clear();
    pair.far.events.clear();
    let (connected, _) = pair.connect_with(&attr, &far_attr);
    let target = pair.far.memory(&[0; 8]);
    (0..2).for_each(|id| {
        pair.near.ctx.post_send(connected, &SendWr::write_inline(id, b"x", at(&target, 0))).unwrap();
    });
    let third = pair.near.ctx.post_send(connected, &SendWr::write_inline(3, b"x", at(&target, 0)));
    assert!(matches!(third, Err(PostError::CqFull)));
    pair.near.ctx.post_send(near, &SendWr::write_inline(4, b"x", at(&target, 0))).unwrap();
    pair.until("the other connection's Write", |pair| pair.near.completions.len() == 1);
    assert_eq!(pair.near.counter("verbs_cq_overruns"), 0);
}

/// A storm: an error ends every queue pair, many times over. Other connections are unaffected, and
/// nothing leaks.
#[test]
fn a_terminate_storm_leaves_others_unaffected_and_leaks_nothing() {
    let mut pair = common::joined();
    let (bystander, _) = pair.connect();
    let target = pair.far.memory(&[0; 64]);
    let (own, inbox) = (pair.far.memory(&[0; 64]), pair.far.memory(&[0; 64]));
    let sink = pair.near.memory(&[0; 64]);
    for round in 0..6u64 {
        let mut lines = Vec::new();
        for _ in 0..6 {
            lines.push(again(&mut pair));
        }
        pair.near.events.clear();
        pair.far.events.clear();
        let into = [sink.slice(0, 64).unwrap()];
        let unknown = RemoteMemory { stag: STag(0x0101_0101), tagged_offset: 0 };
        let long = [1u8; 65];
        for (index, (near, far)) in lines.iter().enumerate() {
            let room = [inbox.slice(0, 64).unwrap()];
            if index % 6 != 0 {
                pair.far.ctx.post_recv(*far, &RecvWr::new(1, &room)).unwrap();
            }
            let wr = match (index as u64 + round) % 6 {
                0 => SendWr::send_inline(1, &long),
                1 => SendWr::write_inline(1, b"x", unknown),
                2 => SendWr::read(1, &into, unknown),
                3 => SendWr::send_inline(1, b"x").with_invalidate(own.stag()),
                4 => SendWr::write_inline(1, b"x", at(&own, 64)),
                _ => SendWr::invalidate(1, STag(0x0202_0202)),
            };
            pair.near.ctx.post_send(*near, &wr).unwrap();
        }
        pair.near.completions.clear();
        pair.near
            .ctx
            .post_send(bystander, &SendWr::write_inline(round, b"calm", at(&target, round * 4)))
            .unwrap();
        pair.until("the bystander's Write", |pair| {
            pair.near.completions.iter().any(|one| one.qp == bystander.num() && one.status == OK)
        });
        pair.until("every end", |pair| {
            lines.iter().all(|(near, far)| pair.near.is_disconnected(*near) && pair.far.is_disconnected(*far))
        });
        for (near, far) in lines {
            let sent = |event: &Event| matches!(event, Event::Terminated { qp, .. } if *qp == far);
            assert_eq!(pair.far.events.iter().filter(|event| sent(event)).count(), 1, "one Terminate each");
            pair.near.ctx.destroy_qp(near).unwrap();
            pair.far.ctx.destroy_qp(far).unwrap();
        }
        (0..20).for_each(|_| pair.turn());
    }
    assert_eq!(contents(&target)[..24], b"calm".repeat(6));
    assert_eq!(contents(&own), [0; 64]);
    assert_eq!(pair.near.counter("verbs_cq_overruns"), 0);
    // All reserved entries are released: the queues accept their full depth again.
    let (near, _) = again(&mut pair);
    for id in 0..128 {
        pair.near.ctx.post_send(near, &SendWr::write_inline(id, b"x", at(&target, 0))).unwrap();
    }
    pair.until("all of them", |pair| {
        pair.near.completions.iter().filter(|one| one.qp == near.num()).count() == 128
    });
}
