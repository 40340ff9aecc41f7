//! Connections are taken out of their core loop and put back in the middle of traffic, at both
//! ends, with everything about them new: TCP's connection, its frames, the stream. The applications
//! and the peer notice nothing. In virtual time.

use core::sync::atomic::{AtomicU64, Ordering};
use std::sync::Arc;

use crate::common;

use common::{FAR, Node, Pair, config, contents, pattern};
use ironwarp::instrument::{FaultRates, Faults};
use ironwarp::memory::{MemoryConfig, MemoryPort, pair};
use ironwarp::{
    Access, AlignedBuf, AtomicOp, CompletionStatus, Config, Extensions, MacAddr, Nanos, QpAttr, QueuePair,
    RecvWr, Region, RemoteMemory, ResourceUsage, RestoreError, SaveError, SendWr, Stack,
};

/// Payload bytes of a Write, a Send and a Read.
const BYTES: usize = 100_000;

/// Two stacks whose clock advances by a microsecond with each reading.
fn joined_with(config: impl Fn(&str) -> Config) -> Pair {
    let far_port = MemoryConfig { mac: MacAddr([2, 0, 0, 0, 0, 2]), ..MemoryConfig::default() };
    let (near, far) = pair(&MemoryConfig::default(), &far_port);
    let time = Arc::new(AtomicU64::new(0));
    let clock = move || Nanos(time.fetch_add(1_000, Ordering::Relaxed));
    let node = |address: &str, port: MemoryPort| {
        let built = Stack::builder(config(address)).build_replayable(port, clock.clone(), [4, 2]);
        Node::of(built.expect("a stack"))
    };
    Pair { near: node("10.0.0.1/24", near), far: node("10.0.0.2/24", far), at: FAR.parse().unwrap() }
}

fn moving(crc: bool, markers: bool) -> Pair {
    joined_with(|address| {
        let mut config = config(address);
        (config.mpa.crc, config.mpa.markers) = (crc, markers);
        config.rdmap.extensions = Extensions::Rfc7306;
        config
    })
}

/// Takes the connection of a queue pair out and puts it back. Returns whether it moved: not while
/// it waits for another part of the stack.
fn moves(node: &mut Node, qp: QueuePair) -> bool {
    let saved = match node.worker.take_connection(qp) {
        Ok(saved) => saved,
        Err(SaveError::Busy(_)) => return false,
        Err(error) => panic!("{error}"),
    };
    assert_eq!(node.worker.take_connection(qp), Err(SaveError::NotEstablished));
    assert_eq!(node.worker.check(), Ok(()));
    assert_eq!(node.worker.restore_connection(qp, &saved), Ok(()));
    assert_eq!(node.worker.check(), Ok(()));
    true
}

/// One side's memory of a round.
struct Side {
    source: Region,
    target: Region,
    landing: Region,
    back: Region,
    /// A word that the peer adds to, and where the peer's values before that arrive.
    word: Region,
}

fn side(node: &Node, sent: &[u8]) -> Side {
    let page = AlignedBuf::pages(4096).unwrap();
    let word = node.ctx.register(node.pd, page, Access::LOCAL_WRITE | Access::REMOTE_ATOMIC).unwrap();
    let empty = || node.memory(&[0; BYTES]);
    Side { source: node.memory(sent), target: empty(), landing: empty(), back: empty(), word }
}

fn remote(region: &Region) -> RemoteMemory {
    RemoteMemory { stag: region.stag(), tagged_offset: region.base_to() }
}

fn post(node: &mut Node, qp: QueuePair, own: &Side, peer: &Side) {
    let all = |region: &Region| [region.slice(0, BYTES as u32).unwrap()];
    node.ctx.post_send(qp, &SendWr::write(1, &all(&own.source), remote(&peer.target))).unwrap();
    node.ctx.post_send(qp, &SendWr::send(2, &all(&own.source))).unwrap();
    node.ctx.post_send(qp, &SendWr::read(3, &all(&own.back), remote(&peer.source))).unwrap();
    let sink = [own.word.slice(8, 8).unwrap()];
    node.ctx.post_send(qp, &SendWr::atomic(4, &sink, remote(&peer.word), &AtomicOp::add(3))).unwrap();
    node.ctx.post_send(qp, &SendWr::write_inline(5, b"last", remote(&peer.target)).fenced()).unwrap();
}

/// Checks that everything of the peer has arrived at `own`, once.
fn check(node: &mut Node, own: &Side, sent_by_peer: &[u8]) {
    let mut done: Vec<_> = node.completions.drain(..).map(|done| (done.wr_id, done.status)).collect();
    done.sort_unstable_by_key(|(wr_id, _)| *wr_id);
    let expected = [1, 2, 3, 4, 5, 100].map(|wr_id| (wr_id, CompletionStatus::Success));
    assert_eq!(done, expected);
    let written = [b"last", &sent_by_peer[4..]].concat();
    assert!(contents(&own.target) == written, "the Write");
    assert!(contents(&own.landing) == sent_by_peer, "the Send");
    assert!(contents(&own.back) == sent_by_peer, "the Read");
    assert_eq!(contents(&own.word)[..16], [3, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
}

/// Runs rounds of every operation in both directions, while both ends move. Returns how often.
fn rounds(
    pair: &mut Pair,
    (near, far): (QueuePair, QueuePair),
    post_receive: impl Fn(&mut Pair, &Region),
) -> u32 {
    let (mut turns, mut moved) = (0u32, 0);
    for round in 0..4u8 {
        let (from_near, from_far) = (pattern(BYTES, round), pattern(BYTES, round + 100));
        let (at_near, at_far) = (side(&pair.near, &from_near), side(&pair.far, &from_far));
        let landing = [at_near.landing.slice(0, BYTES as u32).unwrap()];
        pair.near.ctx.post_recv(near, &RecvWr::new(100, &landing)).unwrap();
        post_receive(pair, &at_far.landing);
        post(&mut pair.near, near, &at_near, &at_far);
        post(&mut pair.far, far, &at_far, &at_near);
        pair.until("the round", |pair| {
            turns += 1;
            moved += u32::from(moves(&mut pair.near, near));
            if turns % 2 == 0 {
                moved += u32::from(moves(&mut pair.far, far));
            }
            pair.near.completions.len() == 6 && pair.far.completions.len() == 6
        });
        check(&mut pair.near, &at_near, &from_far);
        check(&mut pair.far, &at_far, &from_near);
    }
    for node in [&pair.near, &pair.far] {
        assert_eq!((node.counter("tcp_tx_resets"), node.counter("iwarp_streams_failed")), (0, 0));
    }
    pair.near.ctx.disconnect(near).unwrap();
    pair.until("the end", |pair| pair.near.is_disconnected(near) && pair.far.is_disconnected(far));
    moved
}

/// With and without CRCs and markers, over a wire that loses, repeats and reorders frames: every
/// byte arrives, every completion comes once.
#[test]
fn both_ends_move_in_the_middle_of_all_operations() {
    let rates =
        FaultRates { drop_ppm: 20_000, duplicate_ppm: 20_000, reorder_ppm: 50_000, ..FaultRates::default() };
    for (seed, (crc, markers, rates)) in (1..).zip([
        (true, false, FaultRates::default()),
        (false, false, rates),
        (true, true, rates),
        (false, true, FaultRates::default()),
        (true, false, rates),
    ]) {
        let mut pair = moving(crc, markers);
        let (near, far) = pair.connect();
        pair.near.worker.port_control().set_faults(Faults { seed, rx: rates, tx: rates });
        pair.far.worker.port_control().set_faults(Faults { seed: seed + 100, rx: rates, tx: rates });
        let moved = rounds(&mut pair, (near, far), |pair, landing| {
            let landing = [landing.slice(0, BYTES as u32).unwrap()];
            pair.far.ctx.post_recv(far, &RecvWr::new(100, &landing)).unwrap();
        });
        assert!(moved > 20, "{moved} moves");
    }
}

/// The receive of a message that has begun to arrive belongs to the core by then.
#[test]
fn receives_of_a_shared_receive_queue_move() {
    let mut pair = moving(true, false);
    let srq = pair.far.ctx.create_srq(pair.far.pd, 64, 4).unwrap();
    let far_attr = QpAttr { srq: Some(srq), ..QpAttr::new(pair.far.cq) };
    let near_attr = QpAttr::new(pair.near.cq);
    let ends = pair.connect_with(&near_attr, &far_attr);
    let moved = rounds(&mut pair, ends, |pair, landing| {
        let landing = [landing.slice(0, BYTES as u32).unwrap()];
        pair.far.ctx.post_srq_recv(srq, &RecvWr::new(100, &landing)).unwrap();
    });
    assert!(moved > 20, "{moved} moves");
}

/// Bytes that are not what was saved leave the queue pair without a connection, and everything else
/// as it was.
#[test]
fn damaged_bytes_are_refused_and_hold_nothing() {
    let mut pair = moving(true, false);
    let (near, _) = pair.connect();
    let before = pair.near.worker.resource_usage();
    let saved = pair.near.worker.take_connection(near).unwrap();
    let without = pair.near.worker.resource_usage();
    assert_eq!((without.connections, without.queue_pairs), (0, 1));
    for len in 0..saved.len() {
        assert_eq!(pair.near.worker.restore_connection(near, &saved[..len]), Err(RestoreError::Malformed));
    }
    let mut refused = 0;
    for at in 0..saved.len() {
        for value in [0, 1, 0x7f, 0x80, 0xff] {
            let mut bytes = saved.clone();
            bytes[at] = value;
            match pair.near.worker.restore_connection(near, &bytes) {
                Ok(()) => drop(pair.near.worker.take_connection(near).unwrap()),
                Err(_) => refused += 1,
            }
            assert_eq!(pair.near.worker.check(), Ok(()));
            assert_eq!(pair.near.worker.resource_usage(), without);
        }
    }
    assert!(refused > saved.len(), "{refused} of {} refused", saved.len() * 5);
    assert_eq!(pair.near.worker.restore_connection(near, &saved), Ok(()));
    assert_eq!(pair.near.worker.resource_usage(), ResourceUsage { ready_senders: 1, ..before });
}

/// Another lower layer need not be able to.
#[test]
fn a_queue_pair_without_a_connection_has_nothing_to_save() {
    let mut pair = moving(true, false);
    let idle = pair.near.ctx.create_qp(pair.near.pd, &QpAttr::new(pair.near.cq)).unwrap();
    pair.turn();
    assert_eq!(pair.near.worker.take_connection(idle), Err(SaveError::NotEstablished));
    let (near, far) = pair.connect();
    pair.near.ctx.disconnect(near).unwrap();
    pair.until("the end", |pair| pair.near.is_disconnected(near) && pair.far.is_disconnected(far));
    assert_eq!(pair.near.worker.take_connection(near), Err(SaveError::NotEstablished));
}
