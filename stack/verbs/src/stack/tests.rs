//! What a second core of the same stack, in the middle of its work, makes others wait for: nodes
//! whose memory has two cores, one of which the test plays.

use std::net::SocketAddr;

use ironwarp_mem::{Access, AccessScope, CoreMem, MemLimits};
use ironwarp_port::memory::{MemoryConfig, pair};
use ironwarp_types::{CoreId, MacAddr};

use super::*;
use crate::{
    Completion, CompletionQueue, CompletionStatus, Event, FastRegion, QpAttr, QueuePair, RecvWr, Region,
    SendWr,
};

const FAR: &str = "10.0.0.2:4791";

struct Node {
    worker: Worker,
    ctx: Context,
    pd: ProtectionDomain,
    cq: CompletionQueue,
    /// The core that the test plays.
    busy: CoreMem,
    events: Vec<Event>,
    completions: Vec<Completion>,
}

impl Node {
    fn new(address: &str, port: MemoryPort) -> Node {
        let mut config = Config::in_memory(address).unwrap();
        config.mpa.terminate_timeout_ms = 60_000;
        let limits = MemLimits { regions_max: config.limits.regions, cores_max: 2 };
        let frame = StackParts::with_memory(config, MemTable::new(limits).unwrap()).unwrap();
        let busy = frame.shared.mem.core(CoreId(1)).unwrap();
        let (stack, workers) =
            frame.finish(vec![vec![port]], MemoryClock::Real(StackClock::new()), |_| None).unwrap();
        let worker = into_single(workers).unwrap();
        let mut ctx = stack.context().unwrap();
        let (pd, cq) = (ctx.alloc_pd(), ctx.create_cq(64).unwrap());
        Node { worker, ctx, pd, cq, busy, events: Vec::new(), completions: Vec::new() }
    }

    fn turn(&mut self) {
        self.worker.poll(4);
        while let Some(event) = self.ctx.poll_event() {
            self.events.push(event);
        }
        let mut reaped = [Completion::default(); 32];
        let count = self.ctx.poll_cq(self.cq, &mut reaped).unwrap();
        self.completions.extend_from_slice(&reaped[..count]);
    }

    fn qp(&mut self) -> QueuePair {
        let attr = QpAttr::new(self.cq);
        self.ctx.create_qp(self.pd, &attr).unwrap()
    }

    fn received(&self) -> Vec<(u64, CompletionStatus)> {
        self.completions.iter().map(|one| (one.wr_id, one.status)).collect()
    }

    fn is_over(&self) -> bool {
        self.events.iter().any(|event| matches!(event, Event::Disconnected { .. }))
    }
}

/// Two nodes that are connected. Three receives wait at the far one, and its other core is using a
/// region that the near one may invalidate.
struct Scene {
    near: Node,
    far: Node,
    qps: [QueuePair; 2],
    used: FastRegion,
    inbox: Region,
    pool: Region,
}

impl Scene {
    fn new() -> Scene {
        let config = MemoryConfig::default();
        let (a, b) = pair(&config, &MemoryConfig { mac: MacAddr([2, 0, 0, 0, 0, 2]), ..config.clone() });
        let (mut near, mut far) = (Node::new("10.0.0.1/24", a), Node::new("10.0.0.2/24", b));
        let at: SocketAddr = FAR.parse().unwrap();
        let qps = [near.qp(), far.qp()];
        far.ctx.listen(at).unwrap();
        far.turn();
        near.ctx.connect(qps[0], at, b"").unwrap();
        let inbox = far.ctx.register(far.pd, vec![0; 64], Access::LOCAL_WRITE).unwrap();
        for id in 1..=3 {
            far.ctx.post_recv(qps[1], &RecvWr::new(id, &[inbox.slice(0, 64).unwrap()])).unwrap();
        }
        let pool = far.ctx.register(far.pd, vec![0; 64], Access::LOCAL_WRITE | Access::BIND).unwrap();
        let used = far.ctx.create_fast_region(far.pd).unwrap();
        let mut scene = Scene { near, far, qps, used, inbox, pool };
        scene.until("the request", |scene| !scene.far.events.is_empty());
        let Event::ConnectRequest { request, .. } = scene.far.events.remove(0) else { panic!("no request") };
        scene.far.ctx.accept(request, qps[1], b"").unwrap();
        let up = |node: &Node| node.events.iter().any(|event| matches!(event, Event::Established { .. }));
        scene.until("both up", |scene| up(&scene.near) && up(&scene.far));
        scene.register();
        scene
    }

    /// The far side makes memory that its stream may reach, and its other core begins to use it.
    fn register(&mut self) {
        let (far, over) = (&mut self.far, [self.pool.slice(0, 64).unwrap()]);
        let request = SendWr::fast_register(9, &mut self.used, &over, Access::REMOTE_READ).stream_scoped();
        far.ctx.post_send(self.qps[1], &request).unwrap();
        self.until("the registration", |scene| !scene.far.completions.is_empty());
        self.far.completions.clear();
        let scope = AccessScope::new(self.far.pd.id, self.qps[1].num());
        let (stag, to) = (self.used.stag(), self.pool.base_to());
        assert!(self.far.busy.resolve(stag, scope, to, 1, Access::REMOTE_READ).is_ok());
    }

    fn turns(&mut self, turns: usize) {
        for _ in 0..turns {
            self.near.turn();
            self.far.turn();
        }
    }

    #[track_caller]
    fn until(&mut self, what: &str, mut done: impl FnMut(&Scene) -> bool) {
        for _ in 0..200_000 {
            if done(self) {
                return;
            }
            self.turns(1);
        }
        panic!("never happened: {what}");
    }

    /// The near side sends one message that invalidates and `behind` others, and closes.
    fn says_and_closes(&mut self, behind: &[&[u8]]) {
        let qp = self.qps[0];
        self.near
            .ctx
            .post_send(qp, &SendWr::send_inline(10, b"last use").with_invalidate(self.used.stag()))
            .unwrap();
        for (id, octets) in (11..).zip(behind) {
            self.near.ctx.post_send(qp, &SendWr::send_inline(id, octets)).unwrap();
        }
        self.near.ctx.disconnect(qp).unwrap();
        let sent = 1 + behind.len();
        self.until("everything acknowledged", |scene| scene.near.completions.len() == sent);
        assert!(self.near.completions.iter().all(|one| one.status == CompletionStatus::Success));
        self.turns(200);
    }
}

const OK: CompletionStatus = CompletionStatus::Success;
const FLUSHED: CompletionStatus = CompletionStatus::FlushedInError;

/// RFC 5040 s5.5, RFC 5041 s6.2.1: the peer's TCP has the acknowledgement of the message, so the
/// end that comes behind it in order does not undo it, though its delivery waits for another core.
#[test]
fn a_held_delivery_survives_the_peers_fin() {
    let mut scene = Scene::new();
    scene.says_and_closes(&[]);
    assert_eq!((scene.far.received(), scene.far.is_over()), (vec![], false), "held");
    scene.far.busy.quiesce();
    scene.until("the end", |scene| scene.far.is_over() && scene.near.is_over());
    assert_eq!(scene.far.received(), [(1, OK), (2, FLUSHED), (3, FLUSHED)]);
}

/// RFC 5040 s5.5: and so is what lies unread behind the one that is held.
#[test]
fn what_lies_behind_a_held_delivery_survives_the_peers_fin() {
    let mut scene = Scene::new();
    scene.says_and_closes(&[b"second", b"third"]);
    assert_eq!((scene.far.received(), scene.far.is_over()), (vec![], false), "held");
    scene.far.busy.quiesce();
    scene.until("the end", |scene| scene.far.is_over() && scene.near.is_over());
    assert_eq!(scene.far.received(), [(1, OK), (2, OK), (3, OK)]);
    let mut inbox = [0; 5];
    scene.inbox.read_at(0, &mut inbox).unwrap();
    assert_eq!(inbox, *b"third");
}

/// A reset promises nothing: what is held is flushed, at once.
#[test]
fn a_held_delivery_is_flushed_by_a_reset() {
    let mut scene = Scene::new();
    let qp = scene.qps[0];
    let last = SendWr::send_inline(10, b"last use").with_invalidate(scene.used.stag());
    scene.near.ctx.post_send(qp, &last).unwrap();
    scene.until("the acknowledgement", |scene| scene.near.completions.len() == 1);
    scene.near.ctx.destroy_qp(qp).unwrap();
    scene.until("the end", |scene| scene.far.is_over());
    assert_eq!(scene.far.received(), [(1, FLUSHED), (2, FLUSHED), (3, FLUSHED)]);
}

/// RFC 5041 s6.2.1: it survives our own FIN as well.
#[test]
fn a_held_delivery_survives_our_own_fin() {
    let mut scene = Scene::new();
    let last = SendWr::send_inline(10, b"last use").with_invalidate(scene.used.stag());
    scene.near.ctx.post_send(scene.qps[0], &last).unwrap();
    scene.until("the acknowledgement", |scene| scene.near.completions.len() == 1);
    scene.far.ctx.disconnect(scene.qps[1]).unwrap();
    scene.turns(200);
    assert_eq!((scene.far.received(), scene.far.is_over()), (vec![], false), "held");
    scene.far.busy.quiesce();
    scene.until("the end", |scene| scene.far.is_over() && scene.near.is_over());
    assert_eq!(scene.far.received(), [(1, OK), (2, FLUSHED), (3, FLUSHED)]);
}
