//! Runs one connection between two hosts over one cable to its end.
//!
//! A [`TwoHostRun`] describes the hosts, the cable and the two tasks; [`TwoHostRun::run`] executes it. The same
//! `TwoHostRun` gives the same [`Outcome`] to the last byte and nanosecond.

use ironwarp_port::memory::MemoryConfig;
use ironwarp_sim::{LinkConfig, LinkCounts, LinkId, Node, NodeId, SimError, SimNet};
use ironwarp_stats::Counter;
use ironwarp_tcp::{Congestion, TcpConfig};
use ironwarp_types::Nanos;

use super::ironwarp_node::{IronwarpNode, IronwarpSetup, RxFilter, link_address};
use super::progress::{Task, TaskProgress};
use super::shared_node::SharedNode;
use super::smoltcp_node::{SmoltcpCongestion, SmoltcpNode, SmoltcpSetup};

/// The stack of a host.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Stack {
    /// Our engine.
    Ironwarp(Congestion),
    /// smoltcp.
    Smoltcp(SmoltcpCongestion),
}

/// A run of one connection. The first of every pair belongs to the host that connects.
#[derive(Clone, Debug)]
pub struct TwoHostRun {
    /// The seed of all random generators.
    pub seed: u64,
    /// The stacks of the hosts.
    pub stacks: [Stack; 2],
    /// The cable: towards the second host, and back.
    pub links: [LinkConfig; 2],
    /// The MTU of the hosts, in bytes.
    pub mtus: [u16; 2],
    /// Bytes of each host's buffers and receive window.
    pub windows: [u32; 2],
    /// The tasks of the ends.
    pub tasks: [Task; 2],
    /// Settings of our engine; the run sets the congestion control and what depends on window and MTU.
    pub tcp: TcpConfig,
    /// Whether smoltcp delays acknowledgements, by its default of 10 ms.
    pub smoltcp_delays_acks: bool,
    /// Our engine checks its invariants every this many polls; 0 is never.
    pub check_every: u64,
    /// Changes of the cable: time, direction, new configuration.
    pub changes: Vec<(Nanos, usize, LinkConfig)>,
    /// Time limit of the run.
    pub until: Nanos,
}

impl TwoHostRun {
    /// A connection over one cable with the same configuration in both directions. The connecting host sends `bytes`.
    pub fn new(stacks: [Stack; 2], link: LinkConfig, bytes: u64) -> Self {
        let task = Task { sends: bytes, ..Task::default() };
        TwoHostRun {
            seed: 1,
            stacks,
            links: [link.clone(), link],
            mtus: [1_500; 2],
            windows: [1 << 20; 2],
            tasks: [task.clone(), task.mirrored()],
            tcp: TcpConfig::default(),
            smoltcp_delays_acks: false,
            check_every: 0,
            changes: Vec::new(),
            until: Nanos::from_secs(3_600),
        }
    }

    /// Runs until both ends are over or the time limit. Returns an error for a wrong byte or a violated invariant.
    pub fn run(&self) -> Result<Outcome, SimError> {
        self.run_with([None, None])
    }

    /// Runs with filters, by which hosts with our engine drop received frames.
    pub fn run_with(&self, filters: [Option<RxFilter>; 2]) -> Result<Outcome, SimError> {
        let mut net = SimNet::new(self.seed);
        let configs = [0, 1].map(|end| device(end as u8 + 1, self.mtus[end], self.windows[end]));
        let [(a, a_port), (b, b_port)] = [net.add_port(&configs[0]), net.add_port(&configs[1])];
        let links = net.connect(a, b, self.links[0].clone());
        net.link_mut(links[1]).config = self.links[1].clone();
        for (at, direction, config) in &self.changes {
            net.change_link_at(*at, links[*direction & 1], config.clone());
        }
        let [a_config, b_config] = configs;
        let hosts = [self.host(0, a_config, a_port), self.host(1, b_config, b_port)];
        for (host, filter) in hosts.iter().zip(filters) {
            host.set_filter(filter);
        }
        let nodes = [net.add_node(hosts[0].node(), &[a]), net.add_node(hosts[1].node(), &[b])];
        hosts[1].listen(&self.tasks[1]);
        hosts[0].connect(net.now(), &self.tasks[0]);
        let finished = net.run_until_done(self.until, |_| hosts.iter().all(Host::is_over))?;
        Ok(Outcome::new(&net, nodes, links, hosts, finished))
    }

    fn host(&self, end: usize, device: MemoryConfig, port: ironwarp_port::memory::MemoryPort) -> Host {
        let (host, window, mtu) = (end as u8 + 1, self.windows[end], self.mtus[end]);
        match self.stacks[end] {
            Stack::Ironwarp(congestion) => {
                let tcp = TcpConfig { congestion, ..tcp_config(&self.tcp, mtu, window) };
                let (seed, check_every, connections) = (self.seed, self.check_every, 2);
                Host::Ironwarp(SharedNode::new(IronwarpNode::new(
                    IronwarpSetup { host, device, tcp, seed, check_every, connections },
                    port,
                )))
            }
            Stack::Smoltcp(congestion) => {
                let (buffer_bytes, delays_acks) = (window as usize, self.smoltcp_delays_acks);
                let setup =
                    SmoltcpSetup { host, device, buffer_bytes, congestion, delays_acks, seed: self.seed };
                Host::Smoltcp(SharedNode::new(SmoltcpNode::new(&setup, port, self.tasks[end].clone())))
            }
        }
    }
}

/// A host of a run.
#[derive(Clone)]
pub enum Host {
    /// One with our engine.
    Ironwarp(SharedNode<IronwarpNode>),
    /// One with smoltcp.
    Smoltcp(SharedNode<SmoltcpNode>),
}

impl Host {
    /// The node, which a network polls.
    pub fn node(&self) -> Box<dyn Node> {
        match self {
            Host::Ironwarp(node) => Box::new(node.clone()),
            Host::Smoltcp(node) => Box::new(node.clone()),
        }
    }

    /// The progress of its task, finished or not.
    pub fn task_progress(&self) -> TaskProgress {
        match self {
            Host::Ironwarp(node) => {
                let node = node.borrow();
                let finished = node.finished.last().map(|finished| finished.task_progress.clone());
                let going_on = || node.connections().next().map(|(_, task_progress)| task_progress.clone());
                finished.or_else(going_on).unwrap_or_else(|| TaskProgress::new(Task::default()))
            }
            Host::Smoltcp(node) => node.borrow().task_progress.clone(),
        }
    }

    /// Returns whether its connection has ended.
    pub fn is_over(&self) -> bool {
        match self {
            Host::Ironwarp(node) => !node.borrow().finished.is_empty(),
            Host::Smoltcp(node) => node.borrow().is_over(),
        }
    }

    /// Returns whether the peer reset its connection.
    pub fn was_reset(&self) -> bool {
        match self {
            Host::Ironwarp(node) => node.borrow().ends.reset > 0,
            Host::Smoltcp(node) => node.borrow().was_reset,
        }
    }

    /// Reads a counter of our engine; 0 for smoltcp, which has none.
    pub fn read(&self, counter: Counter) -> u64 {
        match self {
            Host::Ironwarp(node) => node.borrow().read(counter),
            Host::Smoltcp(_) => 0,
        }
    }

    /// Number of buffers of both pools in use.
    pub fn frames_in_use(&self) -> usize {
        let free = match self {
            Host::Ironwarp(node) => node.borrow().control().free_frames(),
            Host::Smoltcp(node) => node.borrow().control().free_frames(),
        };
        let made = match self {
            Host::Ironwarp(node) => node.borrow().frames_made(),
            Host::Smoltcp(node) => node.borrow().frames_made(),
        };
        made - free.rx - free.tx
    }

    fn set_filter(&self, filter: Option<RxFilter>) {
        if let Host::Ironwarp(node) = self {
            node.borrow_mut().rx_filter = filter;
        }
    }

    fn listen(&self, task: &Task) {
        match self {
            // A fresh engine has room for a listener, and an unused socket can listen.
            Host::Ironwarp(node) => node.borrow_mut().listen(PORT, task.clone()).unwrap_or_default(),
            Host::Smoltcp(node) => node.borrow_mut().listen(PORT).unwrap_or_default(),
        }
    }

    fn connect(&self, now: Nanos, task: &Task) {
        match self {
            Host::Ironwarp(node) => {
                let opened = node.borrow_mut().connect(now, Some(FROM_PORT), (2, PORT), task.clone());
                debug_assert!(opened.is_ok(), "a fresh engine connects");
            }
            // An unused socket can connect.
            Host::Smoltcp(node) => node.borrow_mut().connect(FROM_PORT, (2, PORT)).unwrap_or_default(),
        }
    }
}

/// The result of a run.
pub struct Outcome {
    /// Whether both ends were over before the time limit.
    pub finished: bool,
    /// When it ended.
    pub ended_at: Nanos,
    /// The hash of all events.
    pub trace_hash: u64,
    /// The progress of both ends.
    pub task_progress: [TaskProgress; 2],
    /// The cable's counts.
    pub counts: [LinkCounts; 2],
    /// The hosts after the run.
    pub hosts: [Host; 2],
}

impl Outcome {
    fn new<N: Node>(
        net: &SimNet<N>,
        _nodes: [NodeId; 2],
        links: [LinkId; 2],
        hosts: [Host; 2],
        finished: bool,
    ) -> Self {
        Outcome {
            finished,
            ended_at: net.now(),
            trace_hash: net.trace_hash(),
            task_progress: [hosts[0].task_progress(), hosts[1].task_progress()],
            counts: links.map(|link| net.link(link).counts()),
            hosts,
        }
    }

    /// Goodput of the connecting host's bytes, in bits per second.
    pub fn goodput_bits_per_s(&self) -> u64 {
        self.task_progress[1].goodput_bits_per_s(&self.task_progress[0])
    }
}

/// The port configuration for one connection with windows of `window_bytes`.
pub fn device(host: u8, mtu_bytes: u16, window_bytes: u32) -> MemoryConfig {
    let frames = frames_of(mtu_bytes, window_bytes) as usize + 2 * RING_FRAMES;
    MemoryConfig {
        mac: link_address(host),
        mtu_bytes,
        rx_frames: frames,
        tx_frames: frames,
        rx_ring_frames: RING_FRAMES,
        tx_ring_frames: RING_FRAMES,
        ..MemoryConfig::default()
    }
}

/// `base`, with memory for one connection with windows of `window_bytes`.
pub fn tcp_config(base: &TcpConfig, mtu_bytes: u16, window_bytes: u32) -> TcpConfig {
    let frames = frames_of(mtu_bytes, window_bytes);
    let connections_max = base.connections_max.min(4);
    TcpConfig {
        connections_max,
        half_open_max: base.half_open_max.min(connections_max),
        time_wait_max: base.time_wait_max.min(64),
        rcv_window_bytes: window_bytes,
        ooo_frames_max: frames.min(u32::from(u16::MAX)) as u16,
        rx_frames_shared: frames,
        retransmit_queue_bytes_max: window_bytes,
        retained_units_max: frames.min(u32::from(u16::MAX)) as u16,
        retained_units_shared: frames,
        ..base.clone()
    }
}

/// Segments that fill a window, and some that are not full.
fn frames_of(mtu_bytes: u16, window_bytes: u32) -> u32 {
    window_bytes / u32::from(mtu_bytes).saturating_sub(HEADERS_BYTES).max(1) + SPARE_FRAMES
}

const RING_FRAMES: usize = 512;
const SPARE_FRAMES: u32 = 64;

/// Headers of IP and TCP with timestamps.
const HEADERS_BYTES: u32 = 52;

const PORT: u16 = 4_420;
const FROM_PORT: u16 = 50_000;
