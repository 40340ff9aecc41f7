//! A node of our network and TCP layers, driven as in the core loop, with a task for each
//! connection.
//!
//! One poll is one iteration: receive, timers, connect, read, transmit, acknowledgements. Takes
//! frames from its port and the time. The progress of a connection that ends moves to the list of
//! finished ones. [`Node::check`] returns the engine's invariant violations and the tasks' wrong
//! bytes.

mod setup;

use std::collections::VecDeque;
use std::net::{Ipv4Addr, SocketAddr};

use ironwarp_net::{Net, NetConfig, Received};
use ironwarp_port::memory::{MemoryControl, MemoryFrame, MemoryPort};
use ironwarp_port::{Burst, Frame, Wire, Wires};
use ironwarp_sim::Node;
use ironwarp_stats::{CoreStats, Counter};
use ironwarp_tcp::{
    Blocked, ByteStream, ConnId, ConnectError, ListenError, State, Tcp, TcpEvents, Transport,
};
use ironwarp_types::{Flow, Nanos};

pub use setup::{Connector, EndCounts, IronwarpSetup, address, link_address};

use super::progress::{Task, TaskProgress};

struct Session {
    id: ConnId,
    task_progress: TaskProgress,
    /// Whether it is in the list of sessions that want to send.
    queued: bool,
    /// Whether [`IronwarpNode`]'s connector opened it.
    by_connector: bool,
}

/// Inspects a received frame and returns whether to drop it.
pub type RxFilter = Box<dyn FnMut(Nanos, &[u8]) -> bool>;

/// A host with our engine.
pub struct IronwarpNode {
    host: u8,
    net: Net,
    /// The engine; tests may inspect it.
    pub tcp: Tcp<MemoryPort>,
    wires: Wires<MemoryPort>,
    control: MemoryControl,
    stats: CoreStats,
    received: Burst<MemoryFrame>,
    fired: Vec<(ConnId, TcpEvents)>,
    sessions: Vec<Option<Session>>,
    open: usize,
    ready: VecDeque<u32>,
    task_by_port: Vec<(u16, Task)>,
    /// Opens connections, if set.
    pub connector: Option<Connector>,
    /// Drops the received frames that it selects.
    pub rx_filter: Option<RxFilter>,
    pub ends: EndCounts,
    /// The progress of the connections that have ended.
    pub finished: Vec<TaskProgress>,
    /// Whether to keep the progress of finished connections.
    pub keeps_finished: bool,
    check_every: u64,
    polls: u64,
}

impl IronwarpNode {
    /// A host on `port`, which `setup.device` describes.
    pub fn new(setup: IronwarpSetup, port: MemoryPort) -> Self {
        let IronwarpSetup { host, device, tcp, seed, check_every, connections } = setup;
        let stats = CoreStats::detached();
        let addr = Ipv4Addr::new(10, 0, 0, host);
        let secret = [seed, u64::from(host)];
        let config = NetConfig::new(link_address(host), addr, 24, device.mtu_bytes, secret);
        let control = port.control();
        let wire = Wire::new(port);
        let net = Net::new(config, wire.caps(), stats.clone());
        let session_slots = tcp.connections_max as usize;
        IronwarpNode {
            host,
            tcp: Tcp::new(tcp, net.hasher(), secret, stats.clone()),
            net,
            wires: Wires::single(wire),
            control,
            stats,
            received: Burst::new(),
            fired: Vec::with_capacity(session_slots),
            sessions: (0..session_slots).map(|_| None).collect(),
            open: 0,
            ready: VecDeque::with_capacity(session_slots),
            task_by_port: Vec::new(),
            connector: None,
            rx_filter: None,
            ends: EndCounts::default(),
            finished: Vec::with_capacity(connections),
            keeps_finished: true,
            check_every,
            polls: 0,
        }
    }

    /// Listens; every connection to this port gets `task`.
    pub fn listen(&mut self, port: u16, task: Task) -> Result<(), ListenError> {
        self.tcp.listen(address(self.host, port))?;
        self.task_by_port.push((port, task));
        Ok(())
    }

    /// Connects from the given port or, where none is given, an ephemeral one.
    pub fn connect(
        &mut self,
        now: Nanos,
        from: Option<u16>,
        to: (u8, u16),
        task: Task,
    ) -> Result<ConnId, ConnectError> {
        let (ours, remote) = (address(self.host, 0), address(to.0, to.1));
        let port =
            from.or_else(|| self.tcp.ephemeral_port(now, ours.ip(), remote)).ok_or(ConnectError::InUse)?;
        let flow = Flow { local: SocketAddr::new(ours.ip(), port), remote };
        let path = self.net.path_to(&flow, link_address(to.0));
        let id = self.tcp.connect(now, flow, path, &mut self.wires)?;
        self.add_session(id, task);
        Ok(id)
    }

    pub fn read(&self, counter: Counter) -> u64 {
        self.stats.read(counter)
    }

    /// The port's controls, pools and counts.
    pub fn control(&self) -> &MemoryControl {
        &self.control
    }

    /// Number of connections that have not ended.
    pub fn open(&self) -> usize {
        self.open
    }

    /// The connections that have not ended.
    pub fn connections(&self) -> impl Iterator<Item = (ConnId, &TaskProgress)> {
        self.sessions.iter().flatten().map(|session| (session.id, &session.task_progress))
    }

    fn add_session(&mut self, id: ConnId, task: Task) {
        let Some(session_slot) = self.sessions.get_mut(id.index()) else { return };
        *session_slot =
            Some(Session { id, task_progress: TaskProgress::new(task), queued: false, by_connector: false });
        self.open += 1;
    }

    fn receive(&mut self, now: Nanos) {
        for _ in 0..BURSTS {
            self.wires.first_mut().rx_burst(&mut self.received);
            if self.received.is_empty() {
                return;
            }
            let mut burst = core::mem::take(&mut self.received);
            burst.drain(..).for_each(|frame| self.on_frame(now, frame));
            self.received = burst;
        }
    }

    fn on_frame(&mut self, now: Nanos, frame: MemoryFrame) {
        if self.rx_filter.as_mut().is_some_and(|is_lost| is_lost(now, frame.bytes())) {
            return;
        }
        let Some(Received::Packet(segment)) = self.net.on_frame(now, frame, self.wires.first_mut()) else {
            return;
        };
        let (net, flow, mac) = (&self.net, segment.flow, segment.remote_mac);
        let path = || net.path_to(&flow, mac);
        if let Some((id, events)) = self.tcp.on_segment(now, segment, path, &mut self.wires) {
            self.on_events(now, id, events);
        }
    }

    fn timers(&mut self, now: Nanos) {
        self.net.on_timers(now, self.wires.first_mut());
        let fired = &mut self.fired;
        self.tcp.on_timers(now, &mut self.wires, &mut |id, events| fired.push((id, events)));
        while let Some((id, events)) = self.fired.pop() {
            self.on_events(now, id, events);
        }
    }

    fn on_events(&mut self, now: Nanos, id: ConnId, events: TcpEvents) {
        if self.session(id).is_none() && events.contains(TcpEvents::ESTABLISHED) {
            // A connection was accepted: it gets the task of its port.
            let port = self.tcp.flow(id).map(|flow| flow.local.port());
            let task = self.task_by_port.iter().find(|(of, _)| Some(*of) == port);
            let task = task.map(|(_, task)| task.clone());
            self.add_session(id, task.unwrap_or_default());
        }
        let Some(session) = self.slot(id.index()) else {
            // It never was established, or has no task left.
            if events.intersects(TcpEvents::ENDED) {
                self.tcp.release(id);
            }
            return;
        };
        session.task_progress.set_now(now);
        if events.contains(TcpEvents::READABLE) {
            self.read_from(id);
        }
        if events.contains(TcpEvents::PEER_CLOSED)
            && let Some(session) = self.session(id)
        {
            session.task_progress.has_peer_closed = true;
        }
        if events.intersects(TcpEvents::ENDED) {
            self.finish(id, events);
        } else {
            self.make_ready(id.index() as u32);
        }
    }

    fn slot(&mut self, index: usize) -> Option<&mut Session> {
        self.sessions.get_mut(index)?.as_mut()
    }

    fn session(&mut self, id: ConnId) -> Option<&mut Session> {
        self.slot(id.index()).filter(|session| session.id == id)
    }

    /// Reads all that has arrived.
    fn read_from(&mut self, id: ConnId) {
        let Some(session) = self.sessions.get_mut(id.index()).and_then(Option::as_mut) else { return };
        let mut stream = self.tcp.rx(id);
        if stream.available() == 0 {
            return;
        }
        while stream.available() > 0 {
            let front = stream.front();
            let len = front.len();
            session.task_progress.take(front);
            stream.consume(len);
        }
        session.task_progress.record_arrivals();
    }

    fn make_ready(&mut self, session_slot: u32) {
        let Some(session) = self.slot(session_slot as usize) else { return };
        if !core::mem::replace(&mut session.queued, true) {
            self.ready.push_back(session_slot);
        }
    }

    fn transmit(&mut self, now: Nanos) {
        for _ in 0..self.ready.len() {
            if !self.wires.any_has_room() {
                return;
            }
            let Some(session_slot) = self.ready.pop_front() else { return };
            self.serve(now, session_slot);
        }
    }

    fn serve(&mut self, now: Nanos, session_slot: u32) {
        let session = self.sessions.get_mut(session_slot as usize).and_then(Option::as_mut);
        let Some(session) = session else { return };
        session.queued = false;
        session.task_progress.set_now(now);
        let id = session.id;
        let sent = self.tcp.transmit(now, id, &mut session.task_progress, &mut self.wires, TURN_UNITS);
        if matches!(sent.blocked, Blocked::Pool | Blocked::Wire) || sent.units == TURN_UNITS {
            self.make_ready(session_slot);
        }
        self.end_if_due(now, id);
    }

    fn end_if_due(&mut self, now: Nanos, id: ConnId) {
        let open = matches!(self.tcp.state(id), State::Established | State::CloseWait);
        let Some(session) = self.session(id).filter(|_| open) else { return };
        if session.task_progress.wants_close() {
            session.task_progress.closed = true;
            let events = self.tcp.close(now, id, &mut self.wires);
            // A FIN without room now is sent in a later round.
            if self.tcp.wants_transmit(id) {
                self.make_ready(id.index() as u32);
            }
            if events.intersects(TcpEvents::ENDED) {
                self.finish(id, events);
            }
        }
    }

    fn finish(&mut self, id: ConnId, events: TcpEvents) {
        self.read_from(id);
        self.tcp.release(id);
        let Some(session) = self.sessions.get_mut(id.index()).and_then(Option::take) else { return };
        self.open -= 1;
        let ends = &mut self.ends;
        ends.closed += u64::from(events.contains(TcpEvents::CLOSED));
        ends.reset += u64::from(events.contains(TcpEvents::RESET));
        ends.timed_out += u64::from(events.contains(TcpEvents::TIMED_OUT));
        ends.refused += u64::from(events.contains(TcpEvents::REFUSED));
        if session.by_connector
            && let Some(connector) = &mut self.connector
        {
            connector.at_once += 1;
        }
        if self.keeps_finished {
            self.finished.push(session.task_progress);
        }
    }

    fn open_connections(&mut self, now: Nanos) {
        while let Some(connector) = &mut self.connector
            && connector.opened < connector.total
            && connector.at_once > 0
            && connector.next_at <= now
        {
            let (to, task, every) =
                ((connector.host, connector.port), connector.task.clone(), connector.every);
            let opened = self.connect(now, None, to, task);
            let Some(connector) = &mut self.connector else { return };
            match opened {
                Ok(id) => {
                    connector.opened += 1;
                    connector.at_once -= 1;
                    connector.next_at = now + every;
                    if let Some(session) = self.session(id) {
                        session.by_connector = true;
                    }
                }
                Err(_) => {
                    connector.next_at = now + RETRY;
                }
            }
        }
    }

    fn next_deadline(&self, now: Nanos) -> Option<Nanos> {
        let busy = self.tcp.has_pending_acks() || !self.ready.is_empty() || self.wires.waiting_frames() > 0;
        if busy || self.control.rx_waiting_frames() > 0 {
            return Some(now);
        }
        let dials = self
            .connector
            .iter()
            .filter(|connector| connector.opened < connector.total && connector.at_once > 0);
        let dials = dials.map(|connector| connector.next_at);
        dials.chain(self.tcp.next_deadline()).chain(self.net.next_deadline()).min()
    }
}

impl Node for IronwarpNode {
    fn poll(&mut self, now: Nanos) -> Option<Nanos> {
        self.polls += 1;
        self.receive(now);
        self.timers(now);
        self.open_connections(now);
        self.transmit(now);
        self.tcp.flush_acks(now, &mut self.wires);
        self.wires.flush();
        self.next_deadline(now)
    }

    fn check(&self) -> Result<(), String> {
        let due = self.polls.checked_rem(self.check_every) == Some(0);
        if due {
            self.tcp.check()?;
            self.connections().try_for_each(|(_, task_progress)| task_progress.check())?;
        }
        match self.finished.last() {
            Some(last) => last.check(),
            None => Ok(()),
        }
    }
}

/// Bursts received in one iteration.
const BURSTS: usize = 4;

/// Units that one connection may pull per round, as in the core loop.
const TURN_UNITS: usize = 16;

/// Delay before the next attempt when no port or no entry is free.
const RETRY: Nanos = Nanos::from_micros(10);
