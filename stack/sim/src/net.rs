//! Nodes, links, and the order of events.
//!
//! An event is an arrival, a wake-up of a node, or a change of a link. Events are processed one
//! after the other, by time and then in the order of insertion. A frame that arrives wakes the node
//! of the port. After each poll the frames that the node sent are put on their links. A node is
//! polled at most once in the duration of one loop iteration, so time always advances.

use std::collections::VecDeque;
use std::io;

use ironwarp_port::instrument::{Capture, CaptureInterface, Direction};
use ironwarp_port::memory::{self, FarEnd, MemoryConfig, MemoryControl, MemoryPort};
use ironwarp_port::{Burst, Frame};
use ironwarp_types::{Clock, Nanos, SeededEntropy};

use crate::{EventHeap, Link, LinkConfig, Node, TraceHash, VirtualClock};

/// A port of a [`SimNet`].
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct PortId(usize);

/// A node of a [`SimNet`].
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct NodeId(usize);

/// One direction between two ports of a [`SimNet`].
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct LinkId(usize);

/// Why a run ended early.
#[derive(Debug, thiserror::Error)]
pub enum SimError {
    /// A node found its invariants violated.
    #[error("node {node} at {at:?}: {what}")]
    Node {
        /// The node's number, in the order of insertion.
        node: usize,
        /// The time.
        at: Nanos,
        /// The violation.
        what: String,
    },
    /// A link's counts of frames do not match.
    #[error("link {link} at {at:?}: {what}")]
    Link {
        /// The link's number, in the order of insertion.
        link: usize,
        /// The time.
        at: Nanos,
        /// The error.
        what: String,
    },
    /// A frame checker found an invalid frame.
    #[error("port {port} at {at:?} sent what it must not: {what}")]
    Watch {
        /// The port's number, in the order of insertion.
        port: usize,
        /// The time.
        at: Nanos,
        /// The error.
        what: String,
    },
    /// The capture cannot be written.
    #[error("the capture cannot be written: {0}")]
    Capture(#[from] io::Error),
}

/// A network in virtual time.
pub struct SimNet<N> {
    clock: VirtualClock,
    dice: SeededEntropy,
    heap: EventHeap<Event>,
    nodes: Vec<NodeSlot<N>>,
    ports: Vec<PortSlot>,
    links: Vec<LinkSlot>,
    trace: TraceHash,
    loop_time: Nanos,
    /// Buffers of frames that have arrived, for reuse.
    spare: Vec<Vec<u8>>,
    watch: Option<Watch>,
}

/// Checks a frame that a port has sent, before the link gets it, and returns the error.
pub type Watch = Box<dyn FnMut(Nanos, PortId, &[u8]) -> Result<(), String>>;

/// Returns the time that a received frame takes beyond [`SimNet::set_frame_cost`].
pub type ArrivalCost = Box<dyn Fn(&[u8]) -> Nanos>;

impl<N: Node> SimNet<N> {
    /// Returns an empty network. All randomness follows from `seed`.
    pub fn new(seed: u64) -> Self {
        SimNet {
            clock: VirtualClock::new(),
            dice: SeededEntropy::new(seed),
            heap: EventHeap::new(),
            nodes: Vec::new(),
            ports: Vec::new(),
            links: Vec::new(),
            trace: TraceHash::new(),
            loop_time: LOOP_TIME,
            spare: Vec::new(),
            watch: None,
        }
    }

    /// Sets the duration of one iteration of a node's loop, at least a nanosecond.
    pub fn set_loop_time(&mut self, loop_time: Nanos) {
        self.loop_time = loop_time.max(Nanos(1));
    }

    /// Sets the additional time that a node takes for every frame that it receives or sends, by
    /// default zero.
    pub fn set_frame_cost(&mut self, id: NodeId, cost: Nanos) {
        self.nodes[id.0].frame_cost = cost;
    }

    /// Sets the additional time that a node takes for a frame that it receives, by the frame's
    /// bytes. The frames of a node with several queues must cost the same.
    pub fn set_arrival_cost(&mut self, id: NodeId, cost: ArrivalCost) {
        self.nodes[id.0].arrival_cost = Some(cost);
    }

    /// Adds a port. The port itself is for the node that will own it.
    pub fn add_port(&mut self, config: &MemoryConfig) -> (PortId, MemoryPort) {
        let (port, far) = memory::detached(config);
        (self.keep_port(config, vec![port.control()], far), port)
    }

    /// Adds a port with several queues, at least one, each with its own rings and pools. Arriving
    /// frames are distributed by `config.queue_rule`; sent frames leave queue by queue.
    pub fn add_port_of_queues(&mut self, config: &MemoryConfig, queues: usize) -> (PortId, Vec<MemoryPort>) {
        let (ports, far) = memory::detached_queues(config, queues);
        let controls = ports.iter().map(MemoryPort::control).collect();
        (self.keep_port(config, controls, far), ports)
    }

    fn keep_port(&mut self, config: &MemoryConfig, controls: Vec<MemoryControl>, far: FarEnd) -> PortId {
        let ring_frames = config.rx_ring_frames;
        let frame_bytes = config.rx_frame_bytes.max(usize::from(config.mtu_bytes) + LINK_HEADER_BYTES);
        let slot = PortSlot {
            far,
            controls,
            ring_frames,
            frame_bytes,
            owner: None,
            link: None,
            tap: None,
            refused: 0,
        };
        self.ports.push(slot);
        PortId(self.ports.len() - 1)
    }

    /// Adds a node that owns these ports. Its first poll is when the run continues.
    pub fn add_node(&mut self, node: N, ports: &[PortId]) -> NodeId {
        let id = NodeId(self.nodes.len());
        for port in ports {
            self.ports[port.0].owner = Some(id);
        }
        let ports = ports.to_vec();
        let (wakes_at, busy_until, frame_cost) = (None, Nanos::ZERO, Nanos::ZERO);
        let (arrival_cost, costs) = (None, VecDeque::new());
        self.nodes.push(NodeSlot { node, ports, wakes_at, busy_until, frame_cost, arrival_cost, costs });
        self.wake(id);
        id
    }

    /// Connects two ports: the first link leads from `a` to `b`, the second back.
    pub fn connect(&mut self, a: PortId, b: PortId, config: LinkConfig) -> [LinkId; 2] {
        [(a, b), (b, a)].map(|(from, to)| {
            let link = Link::new(config.clone(), self.dice.split());
            self.links.push(LinkSlot { link, to });
            let id = LinkId(self.links.len() - 1);
            self.ports[from.0].link = Some(id);
            id
        })
    }

    /// Writes every later frame to `capture`, one interface for each existing port. Fails if the
    /// capture cannot be written.
    pub fn capture(&mut self, capture: &Capture) -> io::Result<()> {
        for (number, port) in self.ports.iter_mut().enumerate() {
            port.tap = Some(capture.interface(&format!("port{number}"))?);
        }
        Ok(())
    }

    /// Calls `watch` for every later frame that any port sends. Its error ends the run.
    pub fn watch(&mut self, watch: Watch) {
        self.watch = Some(watch);
    }

    /// Returns the time.
    pub fn now(&self) -> Nanos {
        self.clock.now()
    }

    /// Returns the clock, for nodes that read one.
    pub fn clock(&self) -> VirtualClock {
        self.clock.clone()
    }

    /// Returns a node.
    pub fn node(&self, id: NodeId) -> &N {
        &self.nodes[id.0].node
    }

    /// Returns a node, to give it work; [`SimNet::wake`] polls it.
    pub fn node_mut(&mut self, id: NodeId) -> &mut N {
        &mut self.nodes[id.0].node
    }

    /// Returns a link and its counts.
    pub fn link(&self, id: LinkId) -> &Link {
        &self.links[id.0].link
    }

    /// Returns a link, to change its configuration.
    pub fn link_mut(&mut self, id: LinkId) -> &mut Link {
        &mut self.links[id.0].link
    }

    /// Changes a link at a time.
    pub fn change_link_at(&mut self, at: Nanos, id: LinkId, config: LinkConfig) {
        let at = at.max(self.now());
        self.heap.push(at, Event::Change { link: id, config });
    }

    /// Polls a node at its next possible time.
    pub fn wake(&mut self, id: NodeId) {
        self.wake_at(id, self.now());
    }

    /// Returns the number of frames that arrived at a port and found no room in its ring or pool.
    pub fn refused_frames(&self, id: PortId) -> u64 {
        self.ports[id.0].refused
    }

    /// Returns the number of frames in transit.
    pub fn frames_in_flight(&self) -> usize {
        self.heap.iter().filter(|event| matches!(event, Event::Arrive { .. })).count()
    }

    /// Returns the hash of all events.
    pub fn trace_hash(&self) -> u64 {
        self.trace.value()
    }

    /// Processes all events up to `until`, which is the time afterwards.
    pub fn run_until(&mut self, until: Nanos) -> Result<(), SimError> {
        while self.step(until)? {}
        self.clock.advance_to(until);
        Ok(())
    }

    /// Processes events until `done` or the time is `until`. Returns whether it was done.
    pub fn run_until_done(
        &mut self,
        until: Nanos,
        mut done: impl FnMut(&Self) -> bool,
    ) -> Result<bool, SimError> {
        while !done(self) {
            if !self.step(until)? {
                self.clock.advance_to(until);
                return Ok(done(self));
            }
        }
        Ok(true)
    }

    /// Processes the next event, if it is not later than `until`. Returns whether there was one.
    pub fn step(&mut self, until: Nanos) -> Result<bool, SimError> {
        if self.heap.next_at().is_none_or(|at| at > until) {
            return Ok(false);
        }
        let Some((at, event)) = self.heap.pop() else { return Ok(false) };
        self.clock.advance_to(at);
        match event {
            Event::Arrive { to, frame } => self.arrive(at, to, frame)?,
            Event::Wake { node } => self.poll_if_due(at, node)?,
            Event::Change { link, config } => self.links[link.0].link.config = config,
        }
        Ok(true)
    }

    fn arrive(&mut self, at: Nanos, to: PortId, frame: Vec<u8>) -> Result<(), SimError> {
        self.trace.add(TRACE_ARRIVED, at, to.0, &frame);
        let port = &mut self.ports[to.0];
        if let Some(tap) = &port.tap {
            tap.record(at, Direction::Inbound, &frame)?;
        }
        let owner = port.owner;
        if !port.far.inject(&frame) {
            port.refused += 1;
            self.trace.add(TRACE_REFUSED, at, to.0, &[]);
        } else if let Some(owner) = owner {
            let slot = &mut self.nodes[owner.0];
            slot.costs.extend(slot.arrival_cost.as_ref().map(|cost| cost(&frame)));
        }
        self.spare.push(frame);
        if let Some(owner) = owner {
            self.wake_at(owner, at);
        }
        Ok(())
    }

    fn poll_if_due(&mut self, at: Nanos, id: NodeId) -> Result<(), SimError> {
        let slot = &mut self.nodes[id.0];
        // A wake-up that an earlier one replaced.
        if slot.wakes_at != Some(at) {
            return Ok(());
        }
        slot.wakes_at = None;
        let waiting = self.waiting_frames(id);
        let slot = &mut self.nodes[id.0];
        let next = slot.node.poll(at);
        slot.node.check().map_err(|what| SimError::Node { node: id.0, at, what })?;
        let received = waiting.saturating_sub(self.waiting_frames(id));
        let (sent, is_stuck) = self.collect_all(at, id)?;
        let slot = &mut self.nodes[id.0];
        let arrived = slot.costs.drain(..received.min(slot.costs.len()));
        let extra = arrived.fold(Nanos::ZERO, |sum, cost| sum + cost);
        slot.busy_until = at + self.loop_time + slot.frame_cost.times((received + sent) as u64) + extra;
        if let Some(next) = next {
            self.wake_at(id, next);
        }
        // The ring was full, so the port may hold more frames, which leave at the next poll.
        if is_stuck {
            self.wake_at(id, at);
        }
        Ok(())
    }

    /// Returns the number of frames in the receive rings of a node.
    fn waiting_frames(&self, id: NodeId) -> usize {
        let ports = self.nodes[id.0].ports.iter();
        let queues = ports.flat_map(|port| &self.ports[port.0].controls);
        queues.map(MemoryControl::rx_waiting_frames).sum()
    }

    /// Puts the frames that a node has sent on its links. Returns their number, and whether one of
    /// its rings was full.
    fn collect_all(&mut self, at: Nanos, id: NodeId) -> Result<(usize, bool), SimError> {
        let (mut all, mut is_stuck) = (0, false);
        for place in 0..self.nodes[id.0].ports.len() {
            let port = self.nodes[id.0].ports[place];
            let frames = self.collect(at, port)?;
            all += frames;
            is_stuck |= frames >= self.ports[port.0].ring_frames;
        }
        Ok((all, is_stuck))
    }

    /// Puts the frames that a port has sent on its link.
    fn collect(&mut self, at: Nanos, id: PortId) -> Result<usize, SimError> {
        let (mut burst, mut collected) = (Burst::new(), 0);
        loop {
            self.ports[id.0].far.collect(&mut burst);
            if burst.is_empty() {
                break;
            }
            collected += burst.len();
            let mut frames = Vec::with_capacity(burst.len());
            for sent in burst.drain(..) {
                self.record(at, id, sent.bytes())?;
                let mut frame = self.spare.pop().unwrap_or_default();
                frame.clear();
                frame.extend_from_slice(sent.bytes());
                frames.push(frame);
            }
            // Frames of a port without a link are lost.
            let Some(link) = self.ports[id.0].link else { continue };
            let LinkSlot { link: on_link, to } = &mut self.links[link.0];
            on_link.regroup(&mut frames, self.ports[to.0].frame_bytes);
            frames.into_iter().try_for_each(|frame| self.send(at, id, link, frame))?;
        }
        Ok(collected)
    }

    fn record(&mut self, at: Nanos, from: PortId, bytes: &[u8]) -> Result<(), SimError> {
        self.trace.add(TRACE_SENT, at, from.0, bytes);
        if let Some(watch) = &mut self.watch {
            watch(at, from, bytes).map_err(|what| SimError::Watch { port: from.0, at, what })?;
        }
        let port = &self.ports[from.0];
        if let Some(tap) = &port.tap {
            tap.record(at, Direction::Outbound, bytes)?;
        }
        Ok(())
    }

    fn send(&mut self, at: Nanos, from: PortId, id: LinkId, mut frame: Vec<u8>) -> Result<(), SimError> {
        let link = &mut self.links[id.0].link;
        let arrivals = link.offer(at, &mut frame);
        link.check().map_err(|what| SimError::Link { link: id.0, at, what })?;
        if let Some((at, answer)) = link.take_answer(at) {
            self.heap.push(at, Event::Arrive { to: from, frame: answer });
        }
        let to = self.links[id.0].to;
        if let [_, second] = arrivals[..] {
            self.heap.push(second, Event::Arrive { to, frame: frame.clone() });
        }
        match arrivals.first() {
            Some(first) => self.heap.push(*first, Event::Arrive { to, frame }),
            None => self.spare.push(frame),
        }
        Ok(())
    }

    fn wake_at(&mut self, id: NodeId, at: Nanos) {
        let slot = &mut self.nodes[id.0];
        let at = at.max(slot.busy_until).max(self.clock.now());
        if slot.wakes_at.is_none_or(|planned| at < planned) && at < Nanos::MAX {
            slot.wakes_at = Some(at);
            self.heap.push(at, Event::Wake { node: id });
        }
    }
}

enum Event {
    Arrive { to: PortId, frame: Vec<u8> },
    Wake { node: NodeId },
    Change { link: LinkId, config: LinkConfig },
}

struct NodeSlot<N> {
    node: N,
    ports: Vec<PortId>,
    wakes_at: Option<Nanos>,
    busy_until: Nanos,
    frame_cost: Nanos,
    arrival_cost: Option<ArrivalCost>,
    /// The costs of the frames in its receive rings, oldest first.
    costs: VecDeque<Nanos>,
}

struct PortSlot {
    far: FarEnd,
    /// One for each queue.
    controls: Vec<MemoryControl>,
    ring_frames: usize,
    /// The longest frame that it receives.
    frame_bytes: usize,
    owner: Option<NodeId>,
    link: Option<LinkId>,
    tap: Option<CaptureInterface>,
    refused: u64,
}

struct LinkSlot {
    link: Link,
    to: PortId,
}

const LINK_HEADER_BYTES: usize = 14;

/// The duration of one iteration of a busy core's loop.
const LOOP_TIME: Nanos = Nanos(200);

const TRACE_SENT: u8 = 1;
const TRACE_ARRIVED: u8 = 2;
const TRACE_REFUSED: u8 = 3;
