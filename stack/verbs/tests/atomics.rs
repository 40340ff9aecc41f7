//! Atomic operations from verbs to frames and back (RFC 7306 s5).

use super::common;

use common::{Node, Pair, config};
use ironwarp::{
    AcceptParams, Access, AlignedBuf, AtomicOp, CompletionOpcode, CompletionStatus, Config, Event,
    Extensions, PostError, QpAttr, QueuePair, Region, RemoteMemory, SendWr,
};

fn by(extensions: Extensions) -> impl Fn(&str) -> Config {
    move |address| {
        let mut config = config(address);
        config.rdmap.extensions = extensions;
        config
    }
}

fn pair() -> Pair {
    common::joined_with(by(Extensions::Rfc7306))
}

/// A zeroed page on which a peer may execute atomic operations.
fn page(node: &Node) -> Region {
    let rights = Access::LOCAL_WRITE | Access::REMOTE_READ | Access::REMOTE_ATOMIC;
    node.ctx.register(node.pd, AlignedBuf::pages(4096).unwrap(), rights).unwrap()
}

fn word(region: &Region, at: usize) -> u64 {
    let mut octets = [0; 8];
    region.read_at(at, &mut octets).unwrap();
    u64::from_ne_bytes(octets)
}

fn there(region: &Region, offset: u64) -> RemoteMemory {
    RemoteMemory { stag: region.stag(), tagged_offset: region.base_to() + offset }
}

fn post(node: &mut Node, qp: QueuePair, id: u64, sink: &Region, at: RemoteMemory, operation: &AtomicOp) {
    let sink = [sink.slice(id as usize * 8, 8).unwrap()];
    node.ctx.post_send(qp, &SendWr::atomic(id, &sink, at, operation)).unwrap();
}

/// RFC7306-5-03, RFC7306-5.1.2-02 and RFC7306-5.2.2-07: the new value of the word, and the returned
/// original value, for each operation.
#[test]
fn atomics_change_remote_words_and_return_the_original_values() {
    let mut pair = pair();
    let (near, _) = pair.connect();
    let (target, before) = (page(&pair.far), page(&pair.near));
    let halves = AtomicOp::FetchAdd { add: 0x0000_0001_ffff_ffff, mask: 1 << 31 };
    post(&mut pair.near, near, 0, &before, there(&target, 64), &AtomicOp::add(5));
    post(&mut pair.near, near, 1, &before, there(&target, 64), &AtomicOp::compare_and_swap(5, 1));
    post(&mut pair.near, near, 2, &before, there(&target, 64), &halves);
    post(&mut pair.near, near, 3, &before, there(&target, 64), &AtomicOp::compare_and_swap(5, 1));
    pair.until("the completions", |pair| pair.near.completions.len() == 4);
    let told: Vec<_> = pair.near.completions.iter().map(|one| (one.wr_id, one.opcode, one.status)).collect();
    let (add, swap, good) =
        (CompletionOpcode::FetchAdd, CompletionOpcode::CmpSwap, CompletionStatus::Success);
    assert_eq!(told, [(0, add, good), (1, swap, good), (2, add, good), (3, swap, good)]);
    let last = 0x0000_0001_0000_0000;
    assert_eq!([0, 8, 16, 24].map(|at| word(&before, at)), [0, 5, 1, last]);
    assert_eq!((word(&target, 64), word(&target, 0), word(&target, 72)), (last, 0, 0));
}

/// The extensions of RFC 7306 are on unless the configuration says otherwise, and the rights of a
/// region decide.
#[test]
fn the_default_configuration_executes_atomics_where_a_region_allows_them() {
    let defaults = |address: &str| Config::in_memory(address).expect("a valid configuration");
    let mut pair = common::joined_with(defaults);
    let (near, _) = pair.connect();
    let (target, before) = (page(&pair.far), page(&pair.near));
    let rights = Access::LOCAL_WRITE | Access::REMOTE_READ | Access::REMOTE_WRITE;
    let no_atomics = pair.far.ctx.register(pair.far.pd, AlignedBuf::pages(4096).unwrap(), rights).unwrap();
    post(&mut pair.near, near, 0, &before, there(&target, 0), &AtomicOp::add(5));
    pair.until("the first completion", |pair| pair.near.completions.len() == 1);
    post(&mut pair.near, near, 1, &before, there(&no_atomics, 0), &AtomicOp::add(5));
    pair.until("the other completion", |pair| pair.near.completions.len() == 2);
    let (good, refused) = (CompletionStatus::Success, CompletionStatus::FlushedInError);
    let told: Vec<_> = pair.near.completions.iter().map(|one| one.status).collect();
    assert_eq!((told, word(&target, 0), word(&no_atomics, 0)), (vec![good, refused], 5, 0));
}

/// RFC7306-5.3-01: connections in both directions with many requests at once on few words. No
/// addition is lost, and each returns another sum.
#[test]
fn additions_of_several_connections_are_all_counted() {
    const EACH: u64 = 200;
    let mut pair = pair();
    let qps: Vec<_> = (0..4)
        .map(|_| {
            pair.near.events.clear();
            pair.far.events.clear();
            pair.connect().0
        })
        .collect();
    let (target, before) = (page(&pair.far), page(&pair.near));
    let mut seen = Vec::new();
    for round in 0..EACH / 8 {
        for (at, qp) in qps.iter().enumerate() {
            for slot in 0..8 {
                let id = at as u64 * 8 + slot;
                post(&mut pair.near, *qp, id, &before, there(&target, slot % 2 * 8), &AtomicOp::add(1));
            }
        }
        pair.until("a round", |pair| pair.near.completions.len() == 32);
        pair.near.completions.clear();
        seen.extend((0..32).map(|id| (id % 2, word(&before, id * 8))));
        assert_eq!(word(&target, 0), (round + 1) * 16);
    }
    seen.sort_unstable();
    let want: Vec<_> = (0..2).flat_map(|word| (0..EACH / 8 * 16).map(move |sum| (word, sum))).collect();
    assert_eq!(seen, want);
}

/// RFC7306-5.4-02: a region's and a window's name of one word name one word.
#[test]
fn atomics_through_a_region_and_a_window_see_one_word() {
    let mut pair = pair();
    let (near, far) = pair.connect();
    let rights = Access::LOCAL_WRITE | Access::REMOTE_ATOMIC | Access::BIND;
    let target = pair.far.ctx.register(pair.far.pd, AlignedBuf::pages(4096).unwrap(), rights).unwrap();
    let before = page(&pair.near);
    let mut window = pair.far.ctx.create_window(pair.far.pd).unwrap();
    let piece = [target.slice(64, 64).unwrap()];
    pair.far.ctx.post_send(far, &SendWr::bind(1, &mut window, &piece, Access::REMOTE_ATOMIC)).unwrap();
    pair.until("the binding", |pair| !pair.far.completions.is_empty());
    let by_window = RemoteMemory { stag: window.stag(), tagged_offset: piece[0].addr };
    post(&mut pair.near, near, 0, &before, there(&target, 64), &AtomicOp::add(1));
    post(&mut pair.near, near, 1, &before, by_window, &AtomicOp::add(1));
    pair.until("both", |pair| pair.near.completions.len() == 2);
    assert_eq!((word(&before, 0), word(&before, 8), word(&target, 64)), (0, 1, 2));
}

/// An invalid atomic request is refused when it is posted.
#[test]
fn a_request_that_cannot_be_is_refused_when_it_is_posted() {
    let mut pair = pair();
    let (near, _) = pair.connect();
    let (before, target) = (page(&pair.near), page(&pair.far));
    for bytes in [0, 7, 9] {
        let sink = [before.slice(0, bytes).unwrap()];
        let add = AtomicOp::add(1);
        let refused = pair.near.ctx.post_send(near, &SendWr::atomic(1, &sink, there(&target, 0), &add));
        assert!(matches!(refused, Err(PostError::AtomicSinkLength)));
    }
    let sink = [before.slice(0, 8).unwrap()];
    let swap = AtomicOp::Swap { swap: 1 };
    let refused = pair.near.ctx.post_send(near, &SendWr::atomic(1, &sink, there(&target, 0), &swap));
    assert!(matches!(refused, Err(PostError::NoSuchOperation)));

    let mut plain = common::joined();
    let (near, _) = plain.connect();
    let sink = page(&plain.near);
    let refused = plain.near.ctx.post_send(
        near,
        &SendWr::atomic(1, &[sink.slice(0, 8).unwrap()], there(&sink, 0), &AtomicOp::add(1)),
    );
    assert!(matches!(refused, Err(PostError::NoSuchOperation)));
}

/// The drafts' Swap, with the responses on the queue of each draft.
#[test]
fn swap_works_between_two_ends_in_the_draft_profile() {
    for extensions in [Extensions::Draft03, Extensions::Draft01] {
        let mut pair = common::joined_with(by(extensions));
        let (near, _) = pair.connect();
        let (target, before) = (page(&pair.far), page(&pair.near));
        for id in 0..3 {
            post(&mut pair.near, near, id, &before, there(&target, 0), &AtomicOp::Swap { swap: id + 10 });
        }
        pair.until("the completions", |pair| pair.near.completions.len() == 3);
        assert_eq!([0, 8, 16].map(|at| word(&before, at)), [0, 10, 11]);
        assert_eq!(word(&target, 0), 12);
    }
}

/// RFC 7306 s1.1, RFC7306-1.1-04: a probe changes nothing at a peer that supports atomic
/// operations. One without support ends the connection; the application gets an event, and the
/// stack records the address.
#[test]
fn a_probe_reports_whether_the_peer_supports_atomics() {
    let mut pair = pair();
    let (near, _) = pair.connect();
    let (target, before) = (page(&pair.far), page(&pair.near));
    let sink = [before.slice(0, 8).unwrap()];
    pair.near.ctx.post_send(near, &SendWr::probe_atomics(1, &sink, there(&target, 0))).unwrap();
    pair.until("the answer", |pair| !pair.near.completions.is_empty());
    assert_eq!((pair.near.completions[0].status, word(&target, 0)), (CompletionStatus::Success, 0));
    let peer = pair.at.ip();
    assert!(!pair.near.ctx.lacks_atomics(peer));

    let lacking = |address: &str| {
        if address.starts_with("10.0.0.1") { by(Extensions::Rfc7306)(address) } else { config(address) }
    };
    let mut pair = common::joined_with(lacking);
    let (near, _) = pair.connect();
    let (target, before) = (page(&pair.far), page(&pair.near));
    let sink = [before.slice(0, 8).unwrap()];
    pair.near.ctx.post_send(near, &SendWr::probe_atomics(1, &sink, there(&target, 0))).unwrap();
    pair.until("the end", |pair| pair.near.is_disconnected(near));
    let at = |is: fn(&Event) -> bool| pair.near.events.iter().position(is);
    let told = at(|event| matches!(event, Event::PeerLacksAtomics { .. })).expect("the peer lacks them");
    assert!(
        matches!(pair.near.events[told], Event::PeerLacksAtomics { qp, peer: one } if qp == near && one == peer)
    );
    assert!(
        at(|event| matches!(event, Event::Terminated { sent: false, .. })).is_some_and(|then| told < then)
    );
    assert!(pair.near.ctx.lacks_atomics(peer));
    assert!(!pair.near.ctx.lacks_atomics("10.0.0.3".parse().unwrap()));
    assert!(!pair.far.ctx.lacks_atomics("10.0.0.1".parse().unwrap()));
}

/// A word without the right gives no information about the peer's support.
#[test]
fn a_refused_word_does_not_mean_that_the_peer_lacks_atomics() {
    let mut pair = pair();
    let (near, _) = pair.connect();
    let (target, before) = (pair.far.memory(&[0; 64]), page(&pair.near));
    let sink = [before.slice(0, 8).unwrap()];
    pair.near.ctx.post_send(near, &SendWr::probe_atomics(1, &sink, there(&target, 0))).unwrap();
    pair.until("the end", |pair| pair.near.is_disconnected(near));
    assert!(!pair.near.events.iter().any(|event| matches!(event, Event::PeerLacksAtomics { .. })));
    assert!(!pair.near.ctx.lacks_atomics(pair.at.ip()));
}

/// A connection whose server has the operations of RFC 7306 although its stack does not.
fn connect_with_extensions_there(pair: &mut Pair) -> QueuePair {
    let near = pair.near.ctx.create_qp(pair.near.pd, &QpAttr::new(pair.near.cq)).unwrap();
    let far = pair.far.ctx.create_qp(pair.far.pd, &QpAttr::new(pair.far.cq)).unwrap();
    pair.near.ctx.connect(near, pair.at, b"").unwrap();
    pair.until("the request", |pair| {
        let mut requests = pair.far.events.drain(..).filter_map(|event| match event {
            Event::ConnectRequest { request, .. } => Some(request),
            _ => None,
        });
        let params = AcceptParams { extensions: Some(Extensions::Rfc7306), ..AcceptParams::default() };
        requests.next_back().is_some_and(|request| pair.far.ctx.accept_with(request, far, &params).is_ok())
    });
    pair.until("the connection", |pair| pair.near.is_established(near));
    near
}

/// docs/semantics.md, "Atomics": the record of a peer is deleted when it answers an atomic
/// operation.
#[test]
fn a_peer_that_responds_is_removed_from_the_lacking_list() {
    let lacking = |address: &str| {
        if address.starts_with("10.0.0.1") { by(Extensions::Rfc7306)(address) } else { config(address) }
    };
    let mut pair = common::joined_with(lacking);
    let (near, _) = pair.connect();
    let (target, before) = (page(&pair.far), page(&pair.near));
    post(&mut pair.near, near, 0, &before, there(&target, 0), &AtomicOp::add(0));
    pair.until("the end", |pair| pair.near.is_disconnected(near));
    assert!(pair.near.ctx.lacks_atomics(pair.at.ip()));
    // The server of the next connection has them.
    pair.near.completions.clear();
    pair.near.events.clear();
    pair.far.events.clear();
    let near = connect_with_extensions_there(&mut pair);
    post(&mut pair.near, near, 1, &before, there(&target, 0), &AtomicOp::add(1));
    pair.until("the answer", |pair| !pair.near.completions.is_empty());
    assert_eq!((pair.near.completions[0].status, word(&target, 0)), (CompletionStatus::Success, 1));
    pair.until("it is forgotten", |pair| !pair.near.ctx.lacks_atomics(pair.at.ip()));
}
