//! A node of the stack in virtual time over a port whose other end is the fuzzer.

use ironwarp::memory::{self, FarEnd, MemoryConfig, MemoryControl, MemoryPort};
use ironwarp::{
    Access, Completion, CompletionQueue, Config, Context, Event, Nanos, ProtectionDomain, QpAttr, QueuePair,
    RecvWr, Region, Stack, Worker,
};
use ironwarp_port::{Burst, Frame};
use ironwarp_sim::VirtualClock;
use ironwarp_types::Clock;

pub const PORT: u16 = 4791;

/// Bytes of the node's memory that peers may use in every way.
pub const MEMORY_BYTES: usize = 4096;

/// A check reads every table, which takes longer than most steps.
const CHECK_EVERY: u32 = 32;

const RECEIVE_BYTES: u32 = 64;
const SECRET: [u64; 2] = [1, 2];

/// Lets time pass.
pub fn advance(clock: &VirtualClock, nanos: u64) {
    clock.advance_to(clock.now() + Nanos(nanos));
}

/// A node that accepts every connection, with memory for its peers and receives posted.
pub struct Node {
    pub clock: VirtualClock,
    pub control: MemoryControl,
    pub far: Option<FarEnd>,
    pub worker: Worker,
    pub ctx: Context,
    pub pd: ProtectionDomain,
    pub cq: CompletionQueue,
    pub memory: Region,
    pub qps: Vec<QueuePair>,
    pub completions: Vec<Completion>,
    /// Connections that were established and not ended.
    pub established: Vec<QueuePair>,
    /// Frames that were injected and sent.
    pub frames: (usize, usize),
    runs: u32,
    _stack: Stack,
}

pub fn config(address: &str) -> Config {
    let mut config = Config::in_memory(address).expect("a valid configuration");
    config.net.dad_probes_ipv6 = 0;
    config.port.ring_size = Some(64);
    config.port.rx_frames = 128;
    config.port.tx_frames = 128;
    config.limits.queue_pairs = 8;
    config.limits.completion_queues = 4;
    config.limits.half_open = 4;
    config.limits.regions = 32;
    config.limits.contexts = 2;
    config.limits.shared_receive_queues = 2;
    config.limits.protection_errors = 0;
    config.tcp.time_wait = Nanos::from_secs(1);
    config
}

impl Node {
    /// A node whose peer is the fuzzer.
    pub fn new(change: impl FnOnce(&mut Config)) -> Self {
        let memory = MemoryConfig { rx_frames: 128, tx_frames: 128, ..MemoryConfig::default() };
        let (port, far) = memory::detached(&memory);
        let mut config = config("10.0.0.1/24");
        config.net.addresses = vec!["fd00::1/64".to_owned()];
        change(&mut config);
        let mut node = Node::over(config, port, VirtualClock::new());
        node.far = Some(far);
        node
    }

    pub fn over(config: Config, port: MemoryPort, clock: VirtualClock) -> Self {
        let control = port.control();
        let builder = Stack::builder(config);
        let (stack, worker) = builder.build_replayable(port, clock.clone(), SECRET).expect("a stack");
        let mut ctx = stack.context().expect("a context");
        let (pd, cq) = (ctx.alloc_pd(), ctx.create_cq(256).expect("room"));
        let memory = ctx.register(pd, vec![7; MEMORY_BYTES], Access::all()).expect("room");
        ctx.listen(([0, 0, 0, 0], PORT).into()).expect("room");
        ctx.listen(([0u16; 8], PORT).into()).expect("room");
        let mut node = Node {
            clock,
            control,
            far: None,
            worker,
            ctx,
            pd,
            cq,
            memory,
            qps: Vec::new(),
            completions: Vec::new(),
            established: Vec::new(),
            frames: (0, 0),
            runs: 0,
            _stack: stack,
        };
        node.run();
        node
    }

    pub fn create_qp(&mut self) -> Option<QueuePair> {
        let attr = QpAttr { recv_depth: 16, send_depth: 16, ..QpAttr::new(self.cq) };
        let qp = self.ctx.create_qp(self.pd, &attr).ok()?;
        for number in 0..8u32 {
            let sink = [self.memory.slice((number * RECEIVE_BYTES) as usize, RECEIVE_BYTES).expect("inside")];
            let _ = self.ctx.post_recv(qp, &RecvWr::new(number.into(), &sink));
        }
        self.qps.push(qp);
        Some(qp)
    }

    /// Polls until nothing is left to do at this time, and checks the state now and then.
    pub fn run(&mut self) {
        for _ in 0..64 {
            let work = self.worker.poll(4).work;
            if self.take_events() + self.take_completions() + work == 0 {
                break;
            }
        }
        self.runs += 1;
        if self.runs.is_multiple_of(CHECK_EVERY) {
            self.check();
        }
    }

    fn check(&mut self) {
        if let Err(fault) = self.worker.check() {
            panic!("the state of the core is wrong: {fault}");
        }
    }

    fn take_completions(&mut self) -> usize {
        let mut some = [Completion::default(); 32];
        let count = self.ctx.poll_cq(self.cq, &mut some).unwrap_or(0);
        self.completions.extend(&some[..count]);
        count
    }

    fn take_events(&mut self) -> usize {
        let mut count = 0;
        while let Some(event) = self.ctx.poll_event() {
            count += 1;
            match event {
                Event::ConnectRequest { request, .. } => {
                    let qp = self.create_qp();
                    if qp.is_none_or(|qp| self.ctx.accept(&request, qp, b"hello").is_err()) {
                        let _ = self.ctx.reject(&request, b"no");
                    }
                }
                Event::Established { qp, .. } => self.established.push(qp),
                Event::Disconnected { qp, .. }
                | Event::ConnectFailed { qp, .. }
                | Event::Rejected { qp, .. } => {
                    self.established.retain(|open| *open != qp);
                    self.qps.retain(|open| *open != qp);
                    let _ = self.ctx.destroy_qp(qp);
                }
                _ => {}
            }
        }
        count
    }

    /// Lets time pass and does what is due.
    pub fn advance(&mut self, nanos: u64) {
        advance(&self.clock, nanos);
        self.run();
    }

    pub fn inject(&mut self, frame: &[u8]) {
        if let Some(far) = &mut self.far {
            self.frames.0 += usize::from(far.inject(frame));
        }
        self.run();
    }

    /// Returns the frames that the node sent.
    pub fn collect(&mut self) -> Vec<Vec<u8>> {
        let mut all = Vec::new();
        let Some(far) = &mut self.far else { return all };
        loop {
            let mut burst = Burst::new();
            far.collect(&mut burst);
            if burst.is_empty() {
                break;
            }
            all.extend(burst.drain(..).map(|frame| frame.bytes().to_vec()));
        }
        self.frames.1 += all.len();
        all
    }

    /// Ends: the application closes everything, the peer is silent. Nothing may be left behind.
    pub fn finish(mut self) {
        self.control.allow_allocations(u64::MAX);
        self.control.set_link(true);
        for qp in std::mem::take(&mut self.qps) {
            let _ = self.ctx.abort(qp);
            let _ = self.ctx.destroy_qp(qp);
        }
        let _ = self.ctx.unlisten(([0, 0, 0, 0], PORT).into());
        let _ = self.ctx.unlisten(([0u16; 8], PORT).into());
        for step in 0..60u64 {
            self.advance(10_000_000 << (step / 4).min(15));
            self.collect();
        }
        self.check();
        let usage = self.worker.resource_usage();
        let held = (
            usage.connections,
            usage.flows,
            usage.rx_frames,
            usage.tx_units,
            usage.incoming,
            usage.queue_pairs,
        );
        assert_eq!(held, (0, 0, 0, 0, 0, 0), "left behind: {usage:?}");
    }
}
