//! Shares of common resources: of a peer in shared receives (RFC 5042 s6.4.3.1) and in slots of
//! connections in set-up, of a context in the stack's objects (RFC 5042 s6.4.1).

use crate::common;

use common::Pair;
use common::peer::{OTHERS, Scene};
use ironwarp::{
    Access, CompletionStatus, Event, QpAttr, QueuePair, ReceiveShare, RecvWr, Region, SendWr,
    SharedReceiveQueue, VerbsError,
};

const OK: CompletionStatus = CompletionStatus::Success;

/// Two connections whose servers share eight receives, each with a share of `share`.
struct Shared {
    pair: Pair,
    near: [QueuePair; 2],
    far: [QueuePair; 2],
    srq: SharedReceiveQueue,
    inbox: Region,
}

fn shared(share: Option<ReceiveShare>) -> Shared {
    let mut pair = Pair::new();
    let inbox = pair.far.memory(&[0; 64]);
    let srq = pair.far.ctx.create_srq(pair.far.pd, 8, 1).unwrap();
    let near_attr = QpAttr::new(pair.near.cq);
    let far_attr = QpAttr { srq: Some(srq), srq_share: share, ..QpAttr::new(pair.far.cq) };
    let mut ends = Vec::new();
    for _ in 0..2 {
        pair.near.events.clear();
        pair.far.events.clear();
        ends.push(pair.connect_with(&near_attr, &far_attr));
    }
    let (near, far) = ([ends[0].0, ends[1].0], [ends[0].1, ends[1].1]);
    let mut shared = Shared { pair, near, far, srq, inbox };
    (0..8).for_each(|slot| shared.post(slot));
    shared
}

impl Shared {
    fn post(&mut self, slot: u64) {
        let room = [self.inbox.slice(slot as usize * 8, 8).unwrap()];
        self.pair.far.ctx.post_srq_recv(self.srq, &RecvWr::new(slot, &room)).unwrap();
    }

    /// Sends one message and processes everything that follows.
    fn send(&mut self, which: usize) {
        self.pair.near.ctx.post_send(self.near[which], &SendWr::send_inline(1, b"x")).unwrap();
        let before = self.pair.near.completions.len();
        self.pair.until("its completion", |pair| pair.near.completions.len() > before);
        (0..20).for_each(|_| self.pair.turn());
    }

    /// Returns the queue pairs that exceeded their share, in the order of the events.
    fn told(&self) -> Vec<QueuePair> {
        let over = |event: &Event| match event {
            Event::SrqShareExceeded { srq, qp } if *srq == self.srq => Some(*qp),
            _ => None,
        };
        self.pair.far.events.iter().filter_map(over).collect()
    }

    fn received(&self) -> usize {
        self.pair.far.completions.iter().filter(|one| one.status == OK).count()
    }
}

/// RFC 5042 s6.4.3.1 (RFC5040-8.1.2-09, RFC5041-8.3.2-07): a peer that consumes more shared
/// receives than its share before new ones are posted is detected. If the share is enforced, its
/// connection ends, and the other queue pairs keep theirs.
#[test]
fn only_the_peer_that_exceeds_its_receive_share_ends() {
    let mut shared = shared(Some(ReceiveShare { receives: 3, enforced: true }));
    (0..3).for_each(|_| shared.send(0));
    assert_eq!((shared.received(), shared.told()), (3, vec![]), "its share is its own");
    shared.send(0);
    let greedy = shared.far[0];
    shared.pair.until("the end", |pair| pair.far.is_disconnected(greedy));
    assert_eq!((shared.received(), shared.told()), (3, vec![greedy]));
    // RFC 5041 s7.2: this stream has no buffer.
    let no_buffer = |event: &Event| {
        matches!(event, Event::Terminated { qp, sent: true, terminate }
            if *qp == greedy && (terminate.layer, terminate.etype, terminate.code) == (1, 2, 2))
    };
    assert!(shared.pair.far.events.iter().any(no_buffer));
    assert_eq!(shared.pair.far.counter("verbs_srq_share_exceeded"), 1);
    (0..3).for_each(|_| shared.send(1));
    assert_eq!(shared.received(), 6, "the other has its three, of the five that were left");
}

/// Posts replace consumed receives, oldest first, and restore the share: a peer whose messages are
/// processed may continue for ever.
#[test]
fn every_posted_receive_credits_the_share() {
    let mut shared = shared(Some(ReceiveShare { receives: 2, enforced: true }));
    for slot in 0..50 {
        shared.send(0);
        shared.send(1);
        shared.post(slot % 8);
        shared.post(slot % 8);
    }
    assert_eq!((shared.received(), shared.told()), (100, vec![]));
}

/// Without enforcement the application gets an event each time the share is exceeded, and decides.
#[test]
fn exceeding_a_share_raises_an_event_and_does_not_end_the_queue_pair() {
    let mut shared = shared(Some(ReceiveShare { receives: 2, enforced: false }));
    (0..4).for_each(|_| shared.send(0));
    let greedy = shared.far[0];
    assert_eq!((shared.received(), shared.told()), (4, vec![greedy]), "told once, and served");
    (0..4).for_each(|slot| shared.post(slot));
    (0..2).for_each(|_| shared.send(0));
    assert_eq!(shared.told(), [greedy], "within its share again");
    shared.send(0);
    assert_eq!(shared.told(), [greedy, greedy], "and over it again");
}

/// Shares that are exceeded repeatedly cost the core nothing while the application reads no events.
/// It gets one for each queue pair later.
#[test]
fn unread_events_do_not_accumulate() {
    let mut shared = shared(Some(ReceiveShare { receives: 1, enforced: false }));
    shared.pair.far.events.clear();
    for _ in 0..1200 {
        let Shared { pair, near, .. } = &mut shared;
        for id in 0..2 {
            pair.near.ctx.post_send(near[0], &SendWr::send_inline(id, b"x")).unwrap();
        }
        let mut reaped = [ironwarp::Completion::default(); 8];
        let mut left = 2;
        while left > 0 {
            pair.near.turn();
            pair.far.worker.poll(4);
            left -= pair.far.ctx.poll_cq(pair.far.cq, &mut reaped).unwrap();
        }
        (0..2).for_each(|slot| shared.post(slot));
    }
    assert_eq!(shared.pair.far.counter("verbs_srq_share_exceeded"), 1200);
    assert_eq!(shared.pair.far.counter("verbs_notifications_delayed"), 1);
    (0..10).for_each(|_| shared.pair.turn());
    let told = shared.told();
    assert!((1..1200).contains(&told.len()), "{} events", told.len());
    assert!(told.iter().all(|qp| *qp == shared.far[0]));
}

/// A queue pair in the slot of one that has gone starts with nothing consumed.
#[test]
fn a_share_is_not_inherited() {
    let mut shared = shared(Some(ReceiveShare { receives: 2, enforced: true }));
    (0..2).for_each(|_| shared.send(0));
    let (near, far) = (shared.near[0], shared.far[0]);
    shared.pair.near.ctx.destroy_qp(near).unwrap();
    shared.pair.far.ctx.destroy_qp(far).unwrap();
    (0..50).for_each(|_| shared.pair.turn());
    shared.pair.near.events.clear();
    shared.pair.far.events.clear();
    let near_attr = QpAttr::new(shared.pair.near.cq);
    let far_attr = QpAttr {
        srq: Some(shared.srq),
        srq_share: Some(ReceiveShare { receives: 2, enforced: true }),
        ..QpAttr::new(shared.pair.far.cq)
    };
    (shared.near[0], shared.far[0]) = shared.pair.connect_with(&near_attr, &far_attr);
    (0..2).for_each(|_| shared.send(0));
    assert_eq!((shared.received(), shared.told()), (4, vec![]));
    // Posts that replace receives of the old queue pair are not counted for the new one.
    (0..2).for_each(|slot| shared.post(slot));
    shared.send(0);
    assert_eq!(shared.told(), [shared.far[0]]);
}

#[test]
fn a_share_of_zero_is_refused() {
    let mut pair = Pair::new();
    let srq = pair.far.ctx.create_srq(pair.far.pd, 8, 1).unwrap();
    let share = Some(ReceiveShare { receives: 0, enforced: false });
    let attr = QpAttr { srq: Some(srq), srq_share: share, ..QpAttr::new(pair.far.cq) };
    assert!(matches!(pair.far.ctx.create_qp(pair.far.pd, &attr), Err(VerbsError::OutOfRange { .. })));
}

const NODE: &str = "10.0.0.1:4791";
/// An MPA Request of revision 1 with CRC and without private data.
const REQUEST: [u8; 20] = *b"MPA ID Req Frame\x40\x01\x00\x00";

/// A node with four slots for connections in set-up and long timeouts.
fn listening() -> Scene {
    let mut scene = Scene::new(|config| {
        config.limits.half_open = 4;
        config.mpa.startup_timeout_ms = 60_000;
    });
    scene.node.ctx.listen(NODE.parse().unwrap()).unwrap();
    scene.turn();
    scene
}

/// `calls` connections from one host that sends nothing.
fn call(scene: &mut Scene, from: std::net::Ipv4Addr, calls: u32) {
    for call in 0..calls {
        let before = scene.peer.connections;
        scene.peer.connect_from(from, NODE);
        scene.until(&format!("connection {call} of {from}"), |scene| scene.peer.connections > before);
        scene.turns(10);
    }
}

fn asks(scene: &Scene) -> Vec<std::net::IpAddr> {
    let asked = |event: &Event| match event {
        Event::ConnectRequest { remote, .. } => Some(remote.ip()),
        _ => None,
    };
    scene.node.events.iter().filter_map(asked).collect()
}

/// RFC 5042 s6.4.1: slots for connections in set-up are few. A host that opens many and sends
/// nothing does not exclude another: its own oldest connection is dropped.
#[test]
fn a_silent_initiator_does_not_block_another() {
    let mut scene = listening();
    call(&mut scene, [10, 0, 0, 9].into(), 4);
    assert_eq!(scene.node.worker.resource_usage().incoming, 4);
    call(&mut scene, OTHERS[0], 1);
    scene.peer.say(&REQUEST);
    scene.until("the other's request", |scene| !asks(scene).is_empty());
    assert_eq!(asks(&scene), [OTHERS[0]]);
    assert_eq!(scene.node.worker.resource_usage().incoming, 4, "one place changed hands");
    assert_eq!(scene.node.counter("verbs_half_open_evicted"), 1);
}

/// The host with the most connections loses one, a silent one before one with a request, and never
/// to a host that would then have as many.
#[test]
fn the_host_with_the_most_half_open_connections_loses_one() {
    let mut scene = listening();
    call(&mut scene, OTHERS[0], 1);
    call(&mut scene, [10, 0, 0, 9].into(), 1);
    scene.peer.say(&REQUEST);
    scene.until("a request", |scene| asks(scene).len() == 1);
    call(&mut scene, [10, 0, 0, 9].into(), 2);
    // Slots: one of one host, three of another, of which the oldest has sent a request.
    call(&mut scene, OTHERS[1], 1);
    assert_eq!(scene.node.counter("verbs_half_open_evicted"), 1);
    assert!(scene.node.worker.check().is_ok());
    // One, two and one: a second slot for the third host would only reverse the roles.
    call(&mut scene, OTHERS[1], 1);
    let counters =
        ["verbs_half_open_evicted", "verbs_half_open_dropped"].map(|name| scene.node.counter(name));
    assert_eq!(counters, [1, 1]);
    let Some(Event::ConnectRequest { request, .. }) = scene.node.events.pop() else { panic!("no request") };
    let qp = scene.node.ctx.create_qp(scene.node.pd, &QpAttr::new(scene.node.cq)).unwrap();
    scene.node.ctx.accept(request, qp, b"").unwrap();
    scene.until("the one that asked", |scene| scene.node.is_established(qp));
}

/// RFC 5042 s6.4.1 (RFC5040-8.1.2-07, RFC5041-8.3.2-06): a context gets its share of each kind of
/// object and no more, even if others are free. Destroyed objects do not count. RFC 5040 s8.1.2;
/// RFC 5041 s8.3.2; RFC 5042 s2.1.
#[test]
fn one_context_takes_no_more_than_its_share() {
    let mut pair = Pair::over(&ironwarp::memory::MemoryConfig::default(), |address| {
        let mut config = common::config(address);
        let limits = &mut config.limits;
        (limits.queue_pairs, limits.completion_queues) = (4, 6);
        (limits.shared_receive_queues, limits.regions) = (4, 8);
        limits.context_quota_percent = 50;
        config
    });
    let mut other = pair.near.stack.context().unwrap();
    let (pd, cq, at) = (pair.near.stack.alloc_pd(), pair.near.cq, pair.at);
    let greedy = &mut pair.near.ctx;
    assert_eq!(greedy.limits().context_quota_percent, 50);
    let refused = |error, what| matches!(error, Some(VerbsError::LimitReached(name)) if name == what);

    let cqs: Vec<_> = (0..2).map(|_| greedy.create_cq(4).unwrap()).collect();
    assert!(refused(greedy.create_cq(4).err(), "completion queues for this context"), "three with its first");
    let srqs: Vec<_> = (0..2).map(|_| greedy.create_srq(pd, 4, 1).unwrap()).collect();
    assert!(refused(greedy.create_srq(pd, 4, 1).err(), "shared receive queues for this context"));
    let regions: Vec<_> =
        (0..3).map(|_| greedy.register(pd, vec![0u8; 8], Access::empty()).unwrap()).collect();
    let window = greedy.create_window(pd).unwrap();
    assert!(matches!(greedy.register(pd, vec![0u8; 8], Access::empty()), Err(VerbsError::Register(_))));
    assert!(matches!(greedy.create_fast_region(pd), Err(VerbsError::Register(_))));
    for _ in 0..2 {
        let qp = greedy.create_qp(pd, &QpAttr::new(cq)).unwrap();
        greedy.connect(qp, at, b"").unwrap();
    }
    let third = greedy.create_qp(pd, &QpAttr::new(cq)).unwrap();
    assert!(refused(greedy.connect(third, at, b"").err(), "queue pairs for this context"));

    let others: Vec<_> = (0..3).map(|_| other.create_cq(4).unwrap()).collect();
    let _shared: Vec<_> = (0..2).map(|_| other.create_srq(pd, 4, 1).unwrap()).collect();
    let _kept: Vec<_> = (0..4).map(|_| other.register(pd, vec![0u8; 8], Access::empty()).unwrap()).collect();
    for _ in 0..2 {
        let qp = other.create_qp(pd, &QpAttr::new(others[0])).unwrap();
        other.connect(qp, at, b"").unwrap();
    }

    pair.near.ctx.destroy_cq(cqs[0]).unwrap();
    pair.near.ctx.destroy_srq(srqs[0]).unwrap();
    drop((regions, window));
    (0..20).for_each(|_| pair.turn());
    pair.near.ctx.create_cq(4).unwrap();
    pair.near.ctx.create_srq(pd, 4, 1).unwrap();
    let _again: Vec<_> =
        (0..4).map(|_| pair.near.ctx.register(pd, vec![0u8; 8], Access::empty()).unwrap()).collect();
}
