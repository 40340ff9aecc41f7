//! Runs one connection between two hosts over one cable to its end.
//!
//! A [`TwoHostRun`] describes the hosts, the cable and the two tasks; [`TwoHostRun::run`] executes
//! it. The same `TwoHostRun` gives the same [`Outcome`] to the last byte and nanosecond.

use ironwarp_port::memory::{MemoryConfig, MemoryPort};
use ironwarp_sim::{LinkConfig, SimError, SimNet};
use ironwarp_tcp::{Congestion, TcpConfig};
use ironwarp_types::Nanos;

use super::ironwarp_node::{IronwarpNode, IronwarpSetup, RxFilter, link_address};
use super::progress::{Task, TaskProgress};
use super::shared_node::SharedNode;

/// A run of one connection. The first of every pair belongs to the host that connects.
#[derive(Clone, Debug)]
pub struct TwoHostRun {
    pub seed: u64,
    pub congestion: [Congestion; 2],
    /// The cable: towards the second host, and back.
    pub links: [LinkConfig; 2],
    pub mtus: [u16; 2],
    /// Bytes of each host's buffers and receive window.
    pub windows: [u32; 2],
    pub tasks: [Task; 2],
    /// Settings of both engines; the run sets the congestion control and what depends on window and
    /// MTU.
    pub tcp: TcpConfig,
    /// The engines check their invariants every this many polls; 0 is never.
    pub check_every: u64,
    /// Changes of the cable: time, direction, new configuration.
    pub changes: Vec<(Nanos, usize, LinkConfig)>,
    /// Time limit of the run.
    pub until: Nanos,
}

impl TwoHostRun {
    /// A connection over one cable with the same configuration in both directions. The connecting
    /// host sends `bytes`.
    pub fn new(congestion: [Congestion; 2], link: LinkConfig, bytes: u64) -> Self {
        let task = Task { sends: bytes, ..Task::default() };
        TwoHostRun {
            seed: 1,
            congestion,
            links: [link.clone(), link],
            mtus: [1_500; 2],
            windows: [1 << 20; 2],
            tasks: [task.clone(), task.mirrored()],
            tcp: TcpConfig::default(),
            check_every: 0,
            changes: Vec::new(),
            until: Nanos::from_secs(3_600),
        }
    }

    /// Runs until both ends are over or the time limit. Returns an error for a wrong byte or a
    /// violated invariant.
    pub fn run(&self) -> Result<Outcome, SimError> {
        self.run_with([None, None])
    }

    /// Runs with filters, by which hosts drop received frames.
    pub fn run_with(&self, filters: [Option<RxFilter>; 2]) -> Result<Outcome, SimError> {
        let mut net = SimNet::new(self.seed);
        let configs = [0, 1].map(|end| device(end as u8 + 1, self.mtus[end], self.windows[end]));
        let [(a, a_port), (b, b_port)] = [net.add_port(&configs[0]), net.add_port(&configs[1])];
        let links = net.connect(a, b, self.links[0].clone());
        net.link_mut(links[1]).config = self.links[1].clone();
        for (at, direction, config) in &self.changes {
            net.change_link_at(*at, links[*direction & 1], config.clone());
        }
        let ([a_config, b_config], [a_filter, b_filter]) = (configs, filters);
        let hosts = [self.host(0, a_config, a_port, a_filter), self.host(1, b_config, b_port, b_filter)];
        for (host, port) in hosts.iter().zip([a, b]) {
            net.add_node(host.clone(), &[port]);
        }
        let finished =
            net.run_until_done(self.until, |_| hosts.iter().all(|host| host.borrow().is_over()))?;
        Ok(Outcome { finished, task_progress: hosts.each_ref().map(|host| host.borrow().progress()), hosts })
    }

    /// The host at an end. The first one connects, the other one listens.
    fn host(
        &self,
        end: usize,
        device: MemoryConfig,
        port: MemoryPort,
        filter: Option<RxFilter>,
    ) -> SharedNode<IronwarpNode> {
        let (host, window, mtu, seed) = (end as u8 + 1, self.windows[end], self.mtus[end], self.seed);
        let task = self.tasks[end].clone();
        let tcp = TcpConfig { congestion: self.congestion[end], ..tcp_config(&self.tcp, mtu, window) };
        let (check_every, connections) = (self.check_every, 2);
        let mut node =
            IronwarpNode::new(IronwarpSetup { host, device, tcp, seed, check_every, connections }, port);
        node.rx_filter = filter;
        let is_open = match end {
            0 => node.connect(Nanos::ZERO, Some(FROM_PORT), (2, PORT), task).is_ok(),
            _ => node.listen(PORT, task).is_ok(),
        };
        // A fresh engine has room for a listener and for a connection.
        debug_assert!(is_open, "a fresh host connects or listens");
        SharedNode::new(node)
    }
}

impl IronwarpNode {
    /// The progress of the task of its only connection, finished or not.
    pub fn progress(&self) -> TaskProgress {
        let going_on = || self.connections().next().map(|(_, task_progress)| task_progress);
        self.finished.last().or_else(going_on).cloned().unwrap_or_default()
    }

    pub fn is_over(&self) -> bool {
        !self.finished.is_empty()
    }
}

/// The result of a run.
pub struct Outcome {
    /// Whether both ends were over before the time limit.
    pub finished: bool,
    pub task_progress: [TaskProgress; 2],
    /// The hosts after the run.
    pub hosts: [SharedNode<IronwarpNode>; 2],
}

impl Outcome {
    /// Goodput of the connecting host's bytes, in bits per second.
    pub fn goodput_bits_per_s(&self) -> u64 {
        self.task_progress[1].goodput_bits_per_s(&self.task_progress[0])
    }
}

/// The port configuration for one connection with windows of `window_bytes`.
fn device(host: u8, mtu_bytes: u16, window_bytes: u32) -> MemoryConfig {
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
fn tcp_config(base: &TcpConfig, mtu_bytes: u16, window_bytes: u32) -> TcpConfig {
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
