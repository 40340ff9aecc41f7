//! Events and wake-ups of applications: links, doorbells, notification, queues that change size.

use super::common;

use common::{Node, Pair, config, contents, pattern};
use ironwarp::memory::{MemoryConfig, MemoryControl, pair};
use ironwarp::{
    Completion, CompletionQueue, CompletionStatus, Context, Event, MacAddr, PostError, QpAttr, QueuePair,
    RecvWr, Region, RemoteMemory, SendWr, VerbsError,
};

const OK: CompletionStatus = CompletionStatus::Success;

fn remote(region: &Region) -> RemoteMemory {
    RemoteMemory { stag: region.stag(), tagged_offset: region.base_to() }
}

/// Two nodes, and the client's link.
fn cabled() -> (Pair, MemoryControl) {
    let far_config = MemoryConfig { mac: MacAddr([2, 0, 0, 0, 0, 2]), ..MemoryConfig::default() };
    let (near, far) = pair(&MemoryConfig::default(), &far_config);
    let cable = near.control();
    let (near, far) = (Node::new(config("10.0.0.1/24"), near), Node::new(config("10.0.0.2/24"), far));
    (Pair { near, far, at: common::FAR.parse().unwrap() }, cable)
}

/// semantics "Completions and threads", device events: a link that goes down or up raises one event
/// in every context. A connection that TCP has not given up continues.
#[test]
fn link_down_and_up_raise_events() {
    let (mut pair, cable) = cabled();
    let (near, _) = pair.connect();
    let mut other = pair.near.stack.context().unwrap();
    let target = pair.far.memory(&[0; 8]);
    pair.near.events.clear();
    let told = |pair: &Pair| -> Vec<bool> {
        let link = |event: &Event| if let Event::Link { up, .. } = event { Some(*up) } else { None };
        pair.near.events.iter().filter_map(link).collect()
    };
    cable.set_link(false);
    pair.until("the loss", |pair| !told(pair).is_empty());
    pair.near.ctx.post_send(near, &SendWr::write_inline(1, b"waits", remote(&target))).unwrap();
    (0..100).for_each(|_| pair.turn());
    cable.set_link(true);
    pair.until("the return", |pair| told(pair).len() > 1);
    assert_eq!(told(&pair), [false, true]);
    pair.until("the Write", |pair| pair.near.completions.len() == 1);
    assert_eq!((pair.near.completions[0].status, &contents(&target)[..5]), (OK, &b"waits"[..]));
    let mut others = Vec::new();
    while let Some(Event::Link { up, .. }) = other.poll_event() {
        others.push(up);
    }
    assert_eq!(others, [false, true]);
    assert_eq!((pair.near.counter("verbs_link_changes"), pair.far.counter("verbs_link_changes")), (2, 0));
}

/// Some drivers take no frame while the link is down. A core drops such frames, since it does not
/// sleep while some wait.
#[test]
fn frames_that_a_device_without_a_link_refuses_are_dropped_and_counted() {
    let (mut pair, cable) = cabled();
    let (near, _) = pair.connect();
    let target = pair.far.memory(&[0; 8]);
    cable.limit_tx_burst(0);
    cable.set_link(false);
    pair.near.ctx.post_send(near, &SendWr::write_inline(1, b"waits", remote(&target))).unwrap();
    pair.until("the drop", |pair| pair.near.counter("port_tx_link_down") > 0);
    let waiting = |pair: &Pair| pair.near.worker.resource_usage().waiting_frames;
    pair.until("an empty burst", |pair| waiting(pair) == 0);
    cable.limit_tx_burst(u64::MAX);
    cable.set_link(true);
    pair.until("the Write", |pair| pair.near.completions.len() == 1);
    assert_eq!((pair.near.completions[0].status, &contents(&target)[..5]), (OK, &b"waits"[..]));
}

/// A list costs one doorbell, however long it is; requests that are posted and processed one by one
/// cost one each.
#[test]
fn a_list_rings_the_doorbell_once() {
    let mut pair = common::joined();
    // The server does not listen yet: sends are held, so doorbells are the only work.
    let qp = pair.near.ctx.create_qp(pair.near.pd, &QpAttr::new(pair.near.cq)).unwrap();
    pair.near.ctx.connect(qp, "10.0.0.77:1".parse().unwrap(), b"").unwrap();
    for _ in 0..20 {
        pair.near.worker.poll(4);
    }
    let work = |pair: &mut Pair| -> usize { (0..4).map(|_| pair.near.worker.poll(4).work).sum() };
    let chain: Vec<_> = (0..64).map(|id| SendWr::send_inline(id, b"held")).collect();
    pair.near.ctx.post_sends(qp, &chain).unwrap();
    assert_eq!(work(&mut pair), 1);
    for id in 0..5 {
        pair.near.ctx.post_send(qp, &SendWr::send_inline(id, b"held")).unwrap();
        assert_eq!(work(&mut pair), 1);
    }
    // Requests that the core has not processed share a doorbell too.
    (0..5).for_each(|id| pair.near.ctx.post_send(qp, &SendWr::send_inline(id, b"held")).unwrap());
    assert_eq!(work(&mut pair), 1);
}

/// Returns the value of the descriptor since the last read.
fn wakes(ctx: &Context, cq: CompletionQueue) -> u64 {
    let mut count = [0; 8];
    rustix::io::read(ctx.cq_fd(cq).unwrap(), &mut count).map_or(0, |_| u64::from_ne_bytes(count))
}

fn reap(ctx: &mut Context, cq: CompletionQueue) -> Vec<u64> {
    let mut reaped = [Completion::default(); 64];
    let count = ctx.poll_cq(cq, &mut reaped).unwrap();
    assert!(reaped[..count].iter().all(|one| one.status == OK));
    reaped[..count].iter().map(|one| one.wr_id).collect()
}

/// A pair whose client does not reap its send completions during the test.
fn apart(depth: u32) -> (Pair, QueuePair, CompletionQueue, Region) {
    let mut pair = common::joined();
    let cq = pair.near.ctx.create_cq(depth).unwrap();
    let near_attr = QpAttr { send_cq: cq, ..QpAttr::new(pair.near.cq) };
    let far_attr = QpAttr::new(pair.far.cq);
    let (near, _) = pair.connect_with(&near_attr, &far_attr);
    let target = pair.far.memory(&[0; 64]);
    (pair, near, cq, target)
}

fn writes(pair: &mut Pair, near: QueuePair, target: &Region, ids: std::ops::Range<u64>) {
    let wrs: Vec<_> = ids.map(|id| SendWr::write_inline(id, b"x", remote(target))).collect();
    pair.near.ctx.post_sends(near, &wrs).unwrap();
    (0..200).for_each(|_| pair.turn());
}

/// semantics "Completions and threads": the descriptor is written once for an arming, however many
/// completions arrive.
#[test]
fn many_completions_wake_once() {
    let (mut pair, near, cq, target) = apart(64);
    pair.near.ctx.arm_cq(cq, false).unwrap();
    writes(&mut pair, near, &target, 0..16);
    assert_eq!(wakes(&pair.near.ctx, cq), 1, "one wake for sixteen completions");
    writes(&mut pair, near, &target, 16..32);
    assert_eq!(wakes(&pair.near.ctx, cq), 0, "not armed again");
    assert_eq!(reap(&mut pair.near.ctx, cq), (0..32).collect::<Vec<_>>());
}

/// RDMAC verbs s8.2.5: completions before arming raise no event, so the application polls once more
/// before it sleeps.
#[test]
fn arming_requires_another_poll() {
    let (mut pair, near, cq, target) = apart(64);
    assert!(reap(&mut pair.near.ctx, cq).is_empty());
    // It arrives between the poll and the arming.
    writes(&mut pair, near, &target, 0..1);
    pair.near.ctx.arm_cq(cq, false).unwrap();
    (0..50).for_each(|_| pair.turn());
    assert_eq!(wakes(&pair.near.ctx, cq), 0);
    assert_eq!(reap(&mut pair.near.ctx, cq), [0], "the second poll finds it");
    // The arming is still valid.
    writes(&mut pair, near, &target, 1..2);
    assert_eq!((wakes(&pair.near.ctx, cq), reap(&mut pair.near.ctx, cq)), (1, vec![1]));
}

/// RDMAC verbs s5.3: an arming survives a change of size.
#[test]
fn a_queue_that_grows_while_it_is_armed_still_wakes() {
    let (mut pair, near, cq, target) = apart(4);
    pair.near.ctx.arm_cq(cq, false).unwrap();
    pair.near.ctx.resize_cq(cq, 32).unwrap();
    pair.turn();
    writes(&mut pair, near, &target, 0..20);
    assert_eq!(wakes(&pair.near.ctx, cq), 1);
    assert_eq!(reap(&mut pair.near.ctx, cq), (0..20).collect::<Vec<_>>());
}

/// Entries that are not reaped count against a smaller size, move with the queue and keep their
/// order.
#[test]
fn a_queue_shrinks_to_its_unpolled_completions_at_least() {
    let (mut pair, near, cq, target) = apart(64);
    writes(&mut pair, near, &target, 0..10);
    let refused = pair.near.ctx.resize_cq(cq, 9);
    assert!(matches!(refused, Err(VerbsError::CqDepthTooSmall { reserved_cqes: 10, requested: 9 })));
    pair.near.ctx.resize_cq(cq, 12).unwrap();
    writes(&mut pair, near, &target, 10..12);
    let full = pair.near.ctx.post_send(near, &SendWr::write_inline(12, b"x", remote(&target)));
    assert!(matches!(full, Err(PostError::CqFull)));
    assert_eq!(reap(&mut pair.near.ctx, cq), (0..12).collect::<Vec<_>>());
    writes(&mut pair, near, &target, 12..24);
    assert_eq!(reap(&mut pair.near.ctx, cq), (12..24).collect::<Vec<_>>());
    assert_eq!(pair.near.counter("verbs_cq_overruns"), 0);
}

/// A queue of sends, receives and shared receives changes its size in both directions: cores and
/// posts reserve entries from one account.
#[test]
fn a_queue_of_sends_and_shared_receives_changes_its_size() {
    let mut pair = common::joined();
    let (cq, pd) = (pair.far.ctx.create_cq(8).unwrap(), pair.far.pd);
    let srq = pair.far.ctx.create_srq(pd, 32, 1).unwrap();
    let inbox = pair.far.memory(&[0; 8]);
    for id in 100..132 {
        pair.far.ctx.post_srq_recv(srq, &RecvWr::new(id, &[inbox.slice(0, 8).unwrap()])).unwrap();
    }
    let far_attr = QpAttr { srq: Some(srq), ..QpAttr::new(cq) };
    let near_attr = QpAttr::new(pair.near.cq);
    let (near, far) = pair.connect_with(&near_attr, &far_attr);
    let target = pair.near.memory(&[0; 64]);
    let mut expected = 100;
    for (round, depth) in [16, 7, 32, 6].into_iter().enumerate() {
        // Three of each wait in the queue during the change.
        for id in 0..3 {
            pair.near.ctx.post_send(near, &SendWr::send_inline(9, b"x")).unwrap();
            let write = SendWr::write_inline(id, b"y", remote(&target));
            pair.far.ctx.post_send(far, &write).unwrap();
        }
        (0..200).for_each(|_| pair.turn());
        assert_eq!(pair.far.ctx.query_cq(cq).unwrap().reserved_cqes, 6);
        assert!(matches!(
            pair.far.ctx.resize_cq(cq, 5),
            Err(VerbsError::CqDepthTooSmall { reserved_cqes: 6, requested: 5 })
        ));
        pair.far.ctx.resize_cq(cq, depth).unwrap();
        (0..50).for_each(|_| pair.turn());
        let mut ids = reap(&mut pair.far.ctx, cq);
        assert_eq!(pair.far.ctx.query_cq(cq).unwrap().depth, depth, "round {round}");
        let received: Vec<u64> = ids.extract_if(.., |id| *id >= 100).collect();
        assert_eq!((ids, received), (vec![0, 1, 2], (expected..expected + 3).collect()), "round {round}");
        expected += 3;
    }
    assert_eq!(pair.far.counter("verbs_cq_overruns"), 0);
    assert_eq!(pair.far.counter("verbs_cq_full_disconnects"), 0);
}

/// One queue for a connection's sends and its own receives: they share its entries, and each keeps
/// its order.
#[test]
fn sends_and_receives_of_one_connection_share_a_queue() {
    let mut pair = common::joined();
    let (near, far) = pair.connect();
    let (inbox, bytes) = (pair.far.memory(&[0; 64]), pattern(8, 1));
    let target = pair.near.memory(&[0; 64]);
    for id in 0..8 {
        pair.far.ctx.post_recv(far, &RecvWr::new(100 + id, &[inbox.slice(0, 8).unwrap()])).unwrap();
    }
    for id in 0..8 {
        pair.far.ctx.post_send(far, &SendWr::write_inline(id, b"y", remote(&target))).unwrap();
        pair.near.ctx.post_send(near, &SendWr::send_inline(id, &bytes)).unwrap();
    }
    pair.until("all sixteen", |pair| pair.far.completions.len() == 16);
    let mut ids: Vec<u64> = pair.far.completions.iter().map(|one| one.wr_id).collect();
    let received: Vec<u64> = ids.extract_if(.., |id| *id >= 100).collect();
    assert_eq!((ids, received), ((0..8).collect(), (100..108).collect::<Vec<_>>()));
}

/// Returns the value of the events' descriptor since the last read.
fn event_wakes(ctx: &Context) -> u64 {
    let mut count = [0; 8];
    rustix::io::read(ctx.event_fd(), &mut count).map_or(0, |_| u64::from_ne_bytes(count))
}

/// Sets the link and waits until the core has reported it.
fn set_link(pair: &mut Pair, cable: &MemoryControl, up: bool) {
    let links =
        |pair: &Pair| pair.near.events.iter().filter(|event| matches!(event, Event::Link { .. })).count();
    let before = links(pair);
    cable.set_link(up);
    pair.until("the event of the link", |pair| links(pair) > before);
}

/// The descriptor of events is written once for an arming, and not without an event.
#[test]
fn an_event_wakes_the_context_that_waits() {
    let (mut pair, cable) = cabled();
    let mut other = pair.near.stack.context().unwrap();
    // The link is up at first.
    pair.turn();
    set_link(&mut pair, &cable, false);
    assert_eq!(event_wakes(&other), 0, "not armed");
    assert!(matches!(other.poll_event(), Some(Event::Link { up: false, .. })));
    other.arm_events();
    assert!(other.poll_event().is_none());
    (0..100).for_each(|_| pair.turn());
    assert_eq!(event_wakes(&other), 0, "no event");
    [true, false, true].into_iter().for_each(|up| set_link(&mut pair, &cable, up));
    assert_eq!(event_wakes(&other), 1, "one wake-up for three events");
    other.arm_events();
    let left = std::iter::from_fn(|| other.poll_event()).count();
    assert_eq!((left, event_wakes(&other)), (3, 0), "earlier events are polled");
}
