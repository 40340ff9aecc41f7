//! Two stacks joined by memory; one thread polls them alternately.
#![allow(dead_code, unused_imports, reason = "each test uses its part")]

pub mod messages;
pub mod peer;
pub mod tap;
pub mod tshark;

use std::net::SocketAddr;

use ironwarp::config::TransportKind;
use ironwarp::memory::{MemoryConfig, pair};
use ironwarp::{
    Access, Completion, CompletionQueue, Config, ConnectParams, Context, Event, ListenParams, Nanos,
    ProtectionDomain, QpAttr, QueuePair, Region, Stack, Worker,
};

/// Turns after which an expected event counts as missing.
pub const TURNS_MAX: usize = 200_000;

/// One stack with everything that a test needs of it.
pub struct Node {
    pub stack: Stack,
    pub worker: Worker,
    pub ctx: Context,
    pub pd: ProtectionDomain,
    pub cq: CompletionQueue,
    pub events: Vec<Event>,
    pub completions: Vec<Completion>,
}

/// The near and the far node.
pub struct Pair {
    pub near: Node,
    pub far: Node,
    /// The address on which the far node listens.
    pub at: SocketAddr,
}

pub const FAR: &str = "10.0.0.2:4791";

/// A configuration for tests: short timeouts, so that tests of timeouts are short.
pub fn config(address: &str) -> Config {
    let mut config = Config::in_memory(address).expect("a valid configuration");
    config.tcp.rto_min = Nanos::from_micros(500);
    config.tcp.user_timeout = Nanos::from_millis(500);
    config.mpa.startup_timeout_ms = 300;
    config.mpa.terminate_timeout_ms = 100;
    // Tables of bad requests expect that the operations of RFC 7306 are unknown.
    config.rdmap.extensions = ironwarp::Extensions::Off;
    // Tables of bad requests come from one host.
    config.limits.protection_errors = 0;
    config
}

/// A responder waits for the initiator's first message (RFC 5044 s7.1.2), and its application gets
/// an event of it.
pub const FIRST_MESSAGE_IS_AWAITED: bool = true;

/// Two stacks over TCP.
pub fn joined() -> Pair {
    Pair::new()
}

/// Two stacks over TCP with other configurations.
pub fn joined_with(config: impl Fn(&str) -> Config) -> Pair {
    Pair::over(&MemoryConfig::default(), config)
}

impl Pair {
    pub fn new() -> Self {
        Self::over(&MemoryConfig::default(), config)
    }

    pub fn over(port: &MemoryConfig, config: impl Fn(&str) -> Config) -> Self {
        let far_port = MemoryConfig { mac: ironwarp::MacAddr([2, 0, 0, 0, 0, 2]), ..port.clone() };
        let (near, far) = pair(port, &far_port);
        let at = FAR.parse().expect("an address");
        Pair { near: Node::new(config("10.0.0.1/24"), near), far: Node::new(config("10.0.0.2/24"), far), at }
    }

    /// Joins two stacks of which `build` makes the near one.
    pub fn of(build: impl FnOnce(Config, ironwarp::memory::MemoryPort) -> (Stack, Worker)) -> Self {
        let far_port = MemoryConfig { mac: ironwarp::MacAddr([2, 0, 0, 0, 0, 2]), ..MemoryConfig::default() };
        let (near, far) = pair(&MemoryConfig::default(), &far_port);
        let near = Node::of(build(config("10.0.0.1/24"), near));
        Pair { near, far: Node::new(config("10.0.0.2/24"), far), at: FAR.parse().expect("an address") }
    }

    /// Polls both nodes once and collects their events and completions.
    pub fn turn(&mut self) {
        self.near.turn();
        self.far.turn();
    }

    /// Polls until `done`; panics if that takes too long.
    #[track_caller]
    pub fn until(&mut self, what: &str, mut done: impl FnMut(&mut Pair) -> bool) {
        let limit = std::time::Instant::now() + std::time::Duration::from_secs(20);
        let mut turns = 0;
        while !done(self) {
            self.turn();
            turns += 1;
            assert!(turns < TURNS_MAX || std::time::Instant::now() < limit, "timed out waiting for: {what}");
        }
    }

    /// Connects a pair of queue pairs.
    #[track_caller]
    pub fn connect(&mut self) -> (QueuePair, QueuePair) {
        let (near_attr, far_attr) = (QpAttr::new(self.near.cq), QpAttr::new(self.far.cq));
        self.connect_with(&near_attr, &far_attr)
    }

    #[track_caller]
    pub fn connect_with(&mut self, near_attr: &QpAttr, far_attr: &QpAttr) -> (QueuePair, QueuePair) {
        self.connect_over(None, near_attr, far_attr)
    }

    /// Connects a pair of queue pairs over a transport of the stacks, or over their default.
    #[track_caller]
    pub fn connect_over(
        &mut self,
        transport: Option<TransportKind>,
        near_attr: &QpAttr,
        far_attr: &QpAttr,
    ) -> (QueuePair, QueuePair) {
        let near = self.near.ctx.create_qp(self.near.pd, near_attr).expect("a queue pair");
        let far = self.far.ctx.create_qp(self.far.pd, far_attr).expect("a queue pair");
        let _ = self.far.ctx.listen_with(self.at, &ListenParams { transport });
        // Listening begins when the core processes the call.
        self.far.turn();
        let params = ConnectParams { transport, private_data: b"from near", ..ConnectParams::default() };
        self.near.ctx.connect_with(near, self.at, &params).expect("connect");
        self.until("connection request", |pair| {
            pair.far.events.iter().any(|event| matches!(event, Event::ConnectRequest { .. }))
        });
        let index = self.far.events.iter().position(|event| matches!(event, Event::ConnectRequest { .. }));
        if let Event::ConnectRequest { request, private_data, .. } =
            self.far.events.remove(index.expect("a request"))
        {
            assert_eq!(&private_data[..], b"from near");
            self.far.ctx.accept(request, far, b"from far").expect("accept");
        }
        self.until("both sides established", |pair| {
            pair.near.is_established(near) && pair.far.is_established(far)
        });
        (near, far)
    }
}

impl Node {
    pub fn new(config: Config, port: ironwarp::memory::MemoryPort) -> Self {
        Node::of(Stack::builder(config).memory_port(port).build_one().expect("a stack"))
    }

    pub fn of((stack, worker): (Stack, Worker)) -> Self {
        let mut ctx = stack.context().expect("a context");
        let (pd, cq) = (ctx.alloc_pd(), ctx.create_cq(1024).expect("a completion queue"));
        Node { stack, worker, ctx, pd, cq, events: Vec::new(), completions: Vec::new() }
    }

    /// Drops the context and creates another one, with a domain and a completion queue.
    pub fn restart(&mut self) {
        self.ctx = self.stack.context().expect("a context");
        (self.pd, self.cq) = (self.ctx.alloc_pd(), self.ctx.create_cq(16).expect("a completion queue"));
    }

    pub fn turn(&mut self) {
        self.worker.poll(4);
        while let Some(event) = self.ctx.poll_event() {
            self.events.push(event);
        }
        let mut reaped = [Completion::default(); 32];
        let count = self.ctx.poll_cq(self.cq, &mut reaped).expect("the queue exists");
        self.completions.extend_from_slice(&reaped[..count]);
    }

    pub fn is_established(&self, qp: QueuePair) -> bool {
        self.events.iter().any(|event| matches!(event, Event::Established { qp: one, .. } if *one == qp))
    }

    pub fn is_disconnected(&self, qp: QueuePair) -> bool {
        self.events.iter().any(|event| matches!(event, Event::Disconnected { qp: one, .. } if *one == qp))
    }

    pub fn is_disconnected_any(&self) -> bool {
        self.events.iter().any(|event| matches!(event, Event::Disconnected { .. }))
    }

    /// Registers memory filled with `bytes`, with every right.
    pub fn memory(&self, bytes: &[u8]) -> Region {
        let all = Access::LOCAL_WRITE | Access::REMOTE_READ | Access::REMOTE_WRITE;
        self.ctx.register(self.pd, bytes.to_vec(), all).expect("a region")
    }

    pub fn counter(&self, name: &str) -> u64 {
        let counters = self.stack.counters();
        counters.iter().find(|(one, _)| *one == name).unwrap_or_else(|| panic!("no counter {name}")).1
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
