//! Two stacks of several cores; one thread polls them alternately, in virtual time.

use std::net::SocketAddr;

use ironwarp::memory::{FarEnd, MemoryConfig, QueueRule, detached_queues, pair_of_queues};
use ironwarp::{
    Access, Completion, CompletionQueue, CompletionStatus, Config, Context, Event, MacAddr, Nanos,
    ProtectionDomain, QpAttr, QueuePair, RecvWr, Region, RemoteMemory, SendWr, SharedReceiveQueue, Stack,
    Worker,
};
use ironwarp_port::{Burst, Frame};
use ironwarp_sim::VirtualClock;
use ironwarp_types::Clock;

/// The virtual time of one turn of all loops.
const TURN: Nanos = Nanos::from_micros(10);

/// Turns after which an expected event counts as missing.
const TURNS_MAX: usize = 20_000;

pub const PORT: u16 = 4791;

/// One stack of several cores with everything that a test needs of it.
pub struct Node {
    pub stack: Stack,
    pub workers: Vec<Worker>,
    pub ctx: Context,
    pub pd: ProtectionDomain,
    pub cq: CompletionQueue,
    /// The shared receive queue of the accepting queue pairs, if they use one.
    pub srq: Option<SharedReceiveQueue>,
    /// Queue pairs that accepted, in the order of the requests.
    pub accepted: Vec<QueuePair>,
    pub events: Vec<Event>,
    pub completions: Vec<Completion>,
}

/// How the two nodes are connected.
enum Cable {
    /// Queue to queue.
    Direct,
    /// The bench carries each frame itself.
    Hands { near: FarEnd, far: FarEnd },
}

pub struct Bench {
    pub near: Node,
    pub far: Node,
    pub clock: VirtualClock,
    cable: Cable,
    /// Whether frames cross.
    pub plugged: bool,
    /// Frames that the near node sent since this list was last cleared.
    pub sent: Vec<Vec<u8>>,
}

/// How to make a bench.
pub struct Plan {
    pub cores: u16,
    /// The queue that both devices use for received frames. `None` joins the queues one to one.
    pub rule: Option<QueueRule>,
    pub tune: fn(&mut Config),
}

impl Plan {
    /// A plan with `cores` cores at both nodes, and devices that put everything into one queue.
    pub fn one_queue(cores: u16, queue: u16) -> Self {
        Plan { cores, rule: Some(QueueRule::All(queue)), tune: |_| () }
    }

    pub fn bench(self) -> Bench {
        let clock = VirtualClock::new();
        let device = |number| MemoryConfig {
            mac: MacAddr([2, 0, 0, 0, 0, number]),
            queue_rule: self.rule.unwrap_or_default(),
            ..MemoryConfig::default()
        };
        let (cores, near, far) = (self.cores.into(), device(1), device(2));
        let (near, far, cable) = match self.rule {
            None => {
                let (near, far) = pair_of_queues((&near, cores), (&far, cores));
                (near, far, Cable::Direct)
            }
            Some(_) => {
                let ((near, near_end), (far, far_end)) =
                    (detached_queues(&near, cores), detached_queues(&far, cores));
                (near, far, Cable::Hands { near: near_end, far: far_end })
            }
        };
        let node = |number: u8, ports| {
            let mut config = Config::in_memory(&format!("10.0.0.{number}/24")).expect("a configuration");
            config.core.count = self.cores;
            config.tcp.rto_min = Nanos::from_micros(500);
            config.tcp.time_wait = Nanos::from_millis(20);
            (self.tune)(&mut config);
            let builder = Stack::builder(config);
            let built = builder.build_replayable_cores(ports, clock.clone(), [u64::from(number), 7]);
            Node::new(built.expect("a stack"))
        };
        let (near, far) = (node(1, near), node(2, far));
        let mut bench = Bench { near, far, clock: clock.clone(), cable, plugged: true, sent: Vec::new() };
        bench.far.ctx.listen(far_addr()).expect("room");
        (0..4).for_each(|_| bench.turn());
        bench
    }
}

pub fn far_addr() -> SocketAddr {
    ([10, 0, 0, 2], PORT).into()
}

impl Bench {
    /// Polls every worker once, then carries frames.
    pub fn turn(&mut self) {
        self.advance(TURN);
        self.near.poll();
        self.far.poll();
        self.carry();
    }

    pub fn advance(&mut self, span: Nanos) {
        self.clock.advance_to(self.clock.now() + span);
    }

    /// Carries frames between the nodes.
    pub fn carry(&mut self) {
        let Cable::Hands { near, far } = &mut self.cable else { return };
        for (from, to, is_near) in [(0, 1, true), (1, 0, false)] {
            let ends = [&mut *near, &mut *far];
            loop {
                let mut burst = Burst::new();
                ends[from].collect(&mut burst);
                if burst.is_empty() {
                    break;
                }
                for frame in &burst {
                    if is_near {
                        self.sent.push(frame.bytes().to_vec());
                    }
                    // A frame that finds the ring full is lost, as on a wire.
                    let _ = self.plugged && ends[to].inject(frame.bytes());
                }
            }
        }
    }

    /// Lets the near node receive a frame that no node sent.
    pub fn inject_near(&mut self, frame: &[u8]) {
        let Cable::Hands { near, .. } = &mut self.cable else {
            panic!("the bench does not carry the frames")
        };
        assert!(near.inject(frame));
    }

    /// Takes turns until `done`; panics if that takes too long.
    #[track_caller]
    pub fn until(&mut self, what: &str, mut done: impl FnMut(&mut Bench) -> bool) {
        for _ in 0..TURNS_MAX {
            if done(self) {
                return;
            }
            self.turn();
        }
        let [near, far] = [&self.near, &self.far].map(Node::counted);
        panic!("timed out waiting for: {what}\nnear {near:?}\nfar {far:?}");
    }

    /// Connects a queue pair of the near node for each element, on the core that the element names.
    #[track_caller]
    pub fn connect(&mut self, cores: impl IntoIterator<Item = Option<u16>>) -> Vec<QueuePair> {
        let before = self.far.accepted.len();
        let qps: Vec<_> = cores.into_iter().map(|core| self.near.dial(core, far_addr())).collect();
        self.until("connections", |bench| {
            let far = bench.far.accepted.get(before..).unwrap_or_default();
            qps.iter().all(|qp| bench.near.is_up(*qp))
                && far.len() == qps.len()
                && far.iter().all(|qp| bench.far.is_up(*qp))
        });
        qps
    }

    /// Writes `bytes` on each queue pair, reads them back, and sends a word. All of it must arrive
    /// unchanged.
    #[track_caller]
    pub fn exchange(&mut self, qps: &[QueuePair], bytes: usize) {
        let inbox = self.far.memory(&[0; 8]);
        for qp in self.far.accepted.clone() {
            let room = [inbox.slice(0, 8).expect("inside")];
            self.far.ctx.post_recv(qp, &RecvWr::new(99, &room)).expect("room");
        }
        let moved: Vec<_> = qps
            .iter()
            .enumerate()
            .map(|(seed, qp)| {
                let what = pattern(bytes, seed as u8);
                let (source, sink) = (self.near.memory(&what), self.near.memory(&vec![0; bytes]));
                let target = self.far.memory(&vec![0; bytes]);
                let remote = RemoteMemory { stag: target.stag(), tagged_offset: target.base_to() };
                let all = |region: &Region| [region.slice(0, bytes as u32).expect("inside")];
                let ctx = &mut self.near.ctx;
                ctx.post_send(*qp, &SendWr::write(1, &all(&source), remote)).expect("room");
                ctx.post_send(*qp, &SendWr::read(2, &all(&sink), remote)).expect("room");
                ctx.post_send(*qp, &SendWr::send_inline(3, b"done")).expect("room");
                (what, source, sink, target)
            })
            .collect();
        let (sent, received) = (self.near.completions.len(), self.far.completions.len());
        self.until("the exchange", |bench| {
            bench.near.completions.len() >= sent + 3 * qps.len()
                && bench.far.completions.len() >= received + qps.len()
        });
        for one in self.near.completions.drain(..).chain(self.far.completions.drain(..)) {
            assert_eq!(one.status, CompletionStatus::Success);
        }
        for (what, _source, sink, target) in moved {
            assert!(contents(&sink) == what && contents(&target) == what);
        }
    }
}

impl Node {
    pub fn new((stack, workers): (Stack, Vec<Worker>)) -> Self {
        let mut ctx = stack.context().expect("a context");
        let (pd, cq) = (ctx.alloc_pd(), ctx.create_cq(8192).expect("a completion queue"));
        let (accepted, events, completions) = (Vec::new(), Vec::new(), Vec::new());
        Node { stack, workers, ctx, pd, cq, srq: None, accepted, events, completions }
    }

    /// Polls every core once, then collects the application's events.
    pub fn poll(&mut self) {
        for core in 0..self.workers.len() {
            self.poll_core(core);
        }
        self.listen_to_events();
    }

    pub fn poll_core(&mut self, core: usize) {
        self.workers[core].poll(4);
        self.workers[core].check().unwrap_or_else(|fault| panic!("core {core}: {fault}"));
    }

    /// Accepts every request, keeps every other event and every completion.
    pub fn listen_to_events(&mut self) {
        while let Some(event) = self.ctx.poll_event() {
            match event {
                Event::ConnectRequest { request, .. } => {
                    let srq = self.srq;
                    let attr = QpAttr { send_depth: 64, recv_depth: 64, srq, ..QpAttr::new(self.cq) };
                    let qp = self.ctx.create_qp(self.pd, &attr).expect("a queue pair");
                    self.ctx.accept(request, qp, b"").expect("room");
                    self.accepted.push(qp);
                }
                other => self.events.push(other),
            }
        }
        let mut reaped = [Completion::default(); 64];
        loop {
            let count = self.ctx.poll_cq(self.cq, &mut reaped).expect("the queue exists");
            self.completions.extend_from_slice(&reaped[..count]);
            if count < reaped.len() {
                return;
            }
        }
    }

    /// Begins to connect a new queue pair.
    pub fn dial(&mut self, core: Option<u16>, to: SocketAddr) -> QueuePair {
        let attr = QpAttr { core, send_depth: 64, recv_depth: 64, ..QpAttr::new(self.cq) };
        let qp = self.ctx.create_qp(self.pd, &attr).expect("a queue pair");
        self.ctx.connect(qp, to, b"").expect("room");
        qp
    }

    pub fn is_up(&self, qp: QueuePair) -> bool {
        self.events.iter().any(|event| matches!(event, Event::Established { qp: one, .. } if *one == qp))
    }

    pub fn is_down(&self, qp: QueuePair) -> bool {
        self.events.iter().any(|event| matches!(event, Event::Disconnected { qp: one, .. } if *one == qp))
    }

    /// Registers memory filled with `bytes`, with every right.
    pub fn memory(&self, bytes: &[u8]) -> Region {
        let all = Access::LOCAL_WRITE | Access::REMOTE_READ | Access::REMOTE_WRITE;
        self.ctx.register(self.pd, bytes.to_vec(), all).expect("a region")
    }

    /// Queue pairs on each core.
    pub fn spread(&self) -> Vec<usize> {
        self.workers.iter().map(|worker| worker.resource_usage().queue_pairs).collect()
    }

    /// The sum of a counter over all cores.
    pub fn counter(&self, name: &str) -> u64 {
        (0..self.workers.len()).map(|core| self.core_counter(core, name)).sum()
    }

    pub fn core_counter(&self, core: usize, name: &str) -> u64 {
        let counters = self.stack.core_counters(core as u16);
        counters.iter().find(|(one, _)| *one == name).unwrap_or_else(|| panic!("no counter {name}")).1
    }

    /// The counters of each core that are not zero.
    pub fn counted(&self) -> Vec<Vec<(&'static str, u64)>> {
        let cores = 0..self.workers.len() as u16;
        cores
            .map(|core| self.stack.core_counters(core).into_iter().filter(|(_, n)| *n > 0).collect())
            .collect()
    }
}

/// Returns the contents of a region.
pub fn contents(region: &Region) -> Vec<u8> {
    let mut bytes = vec![0; region.len()];
    region.read_at(0, &mut bytes).expect("inside");
    bytes
}

/// Bytes that differ by offset.
pub fn pattern(len: usize, seed: u8) -> Vec<u8> {
    (0..len).map(|i| (i as u8).wrapping_mul(31).wrapping_add((i >> 8) as u8).wrapping_add(seed)).collect()
}
