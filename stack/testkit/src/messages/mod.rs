//! A transport that is not TCP: messages in memory. It shows what the core loop asks of a
//! transport, and what not.
//!
//! - A unit is one message and arrives as one, so DDP needs no frames around its segments.
//! - All streams between two addresses share a connection. A stream opens, closes and aborts by
//!   itself, and messages of one stream do not wait for those of another.
//! - Packets arrive in an order that a seed determines. The messages of a stream are numbered and
//!   delivered by number.
//! - Either side may send as soon as a stream is established.
//!
//! It moves no frames: what the ports carry is address resolution. Timers deliver what has arrived,
//! so a core loop over this transport never sleeps. For tests: it allocates, and nothing bounds
//! what peers send.

mod network;
mod stream;

use std::collections::VecDeque;
use std::marker::PhantomData;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use ironwarp_llp::{
    Abort, Arrival, Blocked, ConnId, ConnectError, ConnectionInfo, Events, ListenError, ListenerId, NoBytes,
    PathErrorOutcome, PayloadReader, Progress, ResourceUsage, Timeouts, Transmitted, Transport, UnitSource,
};
use ironwarp_net::{IcmpError, Net, Path};
use ironwarp_port::{Port, Wires};
use ironwarp_types::{Flow, Nanos};

use network::{Kind, Network, Packet, hears, lock, network};
use stream::Stream;

/// The longest message: odd, so that a payload that crosses it is seldom aligned.
pub const MESSAGE_BYTES_MAX: usize = 1_001;

/// Packets that are handled at a time.
const PACKETS_MAX: usize = 32;

/// The first port of connections.
const FIRST_PORT: u16 = 50_000;

/// The transport of one core. See the module.
pub struct Messages<P> {
    network: Arc<Mutex<Network>>,
    slots: Vec<(u32, Option<Stream>)>,
    listeners: Vec<Option<SocketAddr>>,
    next_port: u16,
    _port: PhantomData<fn() -> P>,
}

impl<P> Messages<P> {
    /// Creates a transport for `slots` streams on the network of `secret`, whose first word is its
    /// seed.
    pub fn new(slots: u32, secret: [u64; 2]) -> Self {
        Messages {
            network: network(secret),
            slots: (0..slots).map(|_| (0, None)).collect(),
            listeners: Vec::new(),
            next_port: FIRST_PORT,
            _port: PhantomData,
        }
    }

    fn at(&self, id: ConnId) -> Option<&Stream> {
        self.slots.get(id.slot as usize).filter(|slot| slot.0 == id.generation)?.1.as_ref()
    }

    fn at_mut(&mut self, id: ConnId) -> Option<&mut Stream> {
        self.slots.get_mut(id.slot as usize).filter(|slot| slot.0 == id.generation)?.1.as_mut()
    }

    fn streams(&self) -> impl Iterator<Item = &Stream> {
        self.slots.iter().filter_map(|slot| slot.1.as_ref())
    }

    fn insert(&mut self, stream: Stream) -> Option<ConnId> {
        let at = self.slots.iter().position(|slot| slot.1.is_none())?;
        let slot = self.slots.get_mut(at)?;
        slot.1 = Some(stream);
        Some(ConnId { slot: at as u32, generation: slot.0 })
    }

    fn send(&self, flow: Flow, stream: u16, kind: Kind) {
        lock(&self.network).send(Packet { flow, stream, kind });
    }

    fn on_packet(&mut self, packet: Packet) {
        let flow = Flow { local: packet.flow.remote, remote: packet.flow.local };
        let number = packet.stream;
        let there = |slot: &&mut (u32, Option<Stream>)| {
            slot.1.as_ref().is_some_and(|stream| stream.flow == flow && stream.number == number)
        };
        if let Some(stream) = self.slots.iter_mut().find(there).and_then(|slot| slot.1.as_mut()) {
            if let Some(reply) = stream.on_packet(packet.kind) {
                self.send(flow, number, reply);
            }
        } else if matches!(packet.kind, Kind::Open) {
            let listener = self.listeners.iter().position(|at| at.is_some_and(|at| hears(at, flow.local)));
            let listener = listener.map(|slot| ListenerId { slot: slot as u32, generation: 0 });
            let opened = listener.and_then(|listener| {
                let mut stream = Stream::new(flow, number, Some(listener));
                stream.established = true;
                stream.events = Events::ESTABLISHED;
                self.insert(stream)
            });
            self.send(flow, number, if opened.is_some() { Kind::Opened } else { Kind::Refused });
        }
    }
}

/// The messages of a stream that can be read.
pub struct Readable<'a>(Option<&'a mut VecDeque<Vec<u8>>>);

impl Readable<'_> {
    /// Returns the next message.
    pub fn front(&self) -> Option<&[u8]> {
        Some(self.0.as_ref()?.front()?)
    }

    /// Removes the next message.
    pub fn pop(&mut self) {
        self.0.as_mut().and_then(|messages| messages.pop_front());
    }
}

impl<P: Port> Transport for Messages<P> {
    type Wires = Wires<P>;
    type Frame = P::Frame;
    type Network = Net;
    type Packet = ironwarp_net::Packet<P::Frame>;
    type Path = Path;
    type PathError = IcmpError;
    type Lent<'a> = NoBytes;
    type Rx<'a> = Readable<'a>;
    type State = ();

    fn listen(&mut self, local: SocketAddr) -> Result<ListenerId, ListenError> {
        if self.listeners.contains(&Some(local)) {
            return Err(ListenError::InUse);
        }
        self.listeners.push(Some(local));
        lock(&self.network).listeners.push(local);
        Ok(ListenerId { slot: self.listeners.len() as u32 - 1, generation: 0 })
    }

    fn unlisten(&mut self, listener: ListenerId) {
        let local = self.listeners.get_mut(listener.slot as usize).and_then(Option::take);
        lock(&self.network).listeners.retain(|at| Some(*at) != local);
    }

    /// The next stream of the connection between two addresses, which the first one opens.
    fn connect(
        &mut self,
        _: Nanos,
        Flow { mut local, remote }: Flow,
        _: Path,
        _: impl Fn(&Flow, u32) -> bool,
        _: &mut Wires<P>,
    ) -> Result<ConnId, ConnectError> {
        let is_same = |stream: &&Stream| {
            let flow = stream.flow;
            stream.listener.is_none()
                && flow.remote == remote
                && flow.local.ip() == local.ip()
                && (local.port() == 0 || flow.local.port() == local.port())
        };
        let last = self.streams().filter(is_same).max_by_key(|stream| stream.number);
        let (port, number) = match last {
            Some(stream) => (stream.flow.local.port(), stream.number + 1),
            None if local.port() != 0 => (local.port(), 0),
            None => {
                self.next_port += 1;
                (self.next_port, 0)
            }
        };
        local.set_port(port);
        let flow = Flow { local, remote };
        let mut stream = Stream::new(flow, number, None);
        let is_heard = lock(&self.network).has_listener(remote);
        if !is_heard {
            stream.end(Events::REFUSED);
        }
        let id = self.insert(stream).ok_or(ConnectError::Full)?;
        if is_heard {
            self.send(flow, number, Kind::Open);
        }
        Ok(id)
    }

    /// A window is never closed by the peer, and nothing is probed.
    fn set_timeouts(&mut self, id: ConnId, timeouts: Timeouts) {
        if let Some(stream) = self.at_mut(id) {
            stream.user_timeout = timeouts.user_timeout;
        }
    }

    fn transmit(
        &mut self,
        _: Nanos,
        id: ConnId,
        source: &mut impl UnitSource,
        _: &mut Wires<P>,
        packets_max: usize,
    ) -> Transmitted {
        let network = self.network.clone();
        let mut sent = Transmitted::default();
        let Some(stream) = self.at_mut(id) else { return sent };
        while sent.units < packets_max {
            if !stream.may_send() {
                sent.blocked = if stream.is_window_full() { Blocked::Window } else { Blocked::None };
                break;
            }
            let mut room = [0; MESSAGE_BYTES_MAX];
            let bytes = source.fill(&mut room);
            if bytes == 0 {
                sent.blocked = Blocked::Source;
                break;
            }
            let kind = stream.send(room[..bytes].to_vec());
            lock(&network).send(Packet { flow: stream.flow, stream: stream.number, kind });
            sent.units += 1;
            sent.bytes += bytes;
        }
        sent
    }

    fn close(&mut self, _: Nanos, id: ConnId, _: &mut Wires<P>) -> Events {
        let Some(stream) = self.at_mut(id) else { return Events::empty() };
        let kind = stream.close();
        let ended = core::mem::take(&mut stream.events) & Events::CLOSED;
        let (flow, number) = (stream.flow, stream.number);
        if let Some(kind) = kind {
            self.send(flow, number, kind);
        }
        ended
    }

    fn abort(&mut self, _: Nanos, id: ConnId, _: Abort, _: &mut Wires<P>) {
        if let Some(stream) = self.at(id).filter(|stream| !stream.ended) {
            self.send(stream.flow, stream.number, Kind::Abort);
        }
        self.release(id);
    }

    fn release(&mut self, id: ConnId) {
        if let Some(slot) = self.slots.get_mut(id.slot as usize).filter(|slot| slot.0 == id.generation) {
            *slot = (slot.0.wrapping_add(1), None);
        }
    }

    fn flow(&self, id: ConnId) -> Option<Flow> {
        self.at(id).map(|stream| stream.flow)
    }

    fn listener(&self, id: ConnId) -> Option<ListenerId> {
        self.at(id)?.listener
    }

    fn progress(&self, id: ConnId) -> Progress {
        let Some(stream) = self.at(id) else { return Progress { all_acked: true, ..Progress::default() } };
        Progress { acked_bytes: stream.acked_bytes, all_acked: stream.all_acked(), wants_transmit: false }
    }

    fn rx(&mut self, id: ConnId) -> Readable<'_> {
        Readable(self.at_mut(id).map(|stream| &mut stream.readable))
    }

    fn discard(&mut self, id: ConnId) {
        if let Some(stream) = self.at_mut(id) {
            stream.readable.clear();
        }
    }

    fn on_packet<R>(
        &mut self,
        _: Nanos,
        _: ironwarp_net::Packet<P::Frame>,
        _: &Net,
        _: &mut Wires<P>,
        _: impl PayloadReader<NoBytes, R>,
    ) -> Option<Arrival<R>> {
        None
    }

    fn on_path_error(&mut self, _: Nanos, _: &IcmpError, _: &mut Wires<P>) -> PathErrorOutcome {
        PathErrorOutcome::default()
    }

    /// Handles the packets that have arrived.
    fn on_timers(&mut self, now: Nanos, _: &mut Wires<P>, events: &mut impl FnMut(ConnId, Events)) {
        for _ in 0..PACKETS_MAX {
            let is_local = |to: SocketAddr| {
                self.listeners.iter().flatten().any(|at| hears(*at, to))
                    || self.streams().any(|stream| stream.flow.local == to)
            };
            let packet = lock(&self.network).receive(is_local);
            let Some(packet) = packet else { break };
            self.on_packet(packet);
        }
        for (at, (generation, stream)) in self.slots.iter_mut().enumerate() {
            let Some(stream) = stream else { continue };
            stream.on_time(now);
            let happened = core::mem::take(&mut stream.events);
            if !happened.is_empty() {
                events(ConnId { slot: at as u32, generation: *generation }, happened);
            }
        }
    }

    /// Always due, since packets arrive unannounced.
    fn next_deadline(&self) -> Option<Nanos> {
        Some(Nanos::ZERO)
    }

    fn flush_acks(&mut self, _: Nanos, _: &mut Wires<P>) {}

    fn update_paths(&mut self, _: u32, _: u32, _: impl FnMut(&mut Path, u16)) -> Option<u32> {
        None
    }

    fn slots(&self) -> u32 {
        self.slots.len() as u32
    }

    fn connection_info(&self, slot: u32) -> Option<((), ConnectionInfo)> {
        let (generation, stream) = self.slots.get(slot as usize)?;
        let stream = stream.as_ref()?;
        let info = ConnectionInfo {
            id: ConnId { slot, generation: *generation },
            protocol: 253,
            flow: stream.flow,
            acked_bytes: stream.acked_bytes,
            received_bytes: stream.received_bytes as u32,
            retransmits: 0,
            last_rx_at: Nanos::ZERO,
            srtt: Nanos::ZERO,
            rto: Nanos::ZERO,
            cwnd_bytes: 0,
            flight_bytes: 0,
            paths: 1,
            paths_up: 1,
        };
        Some(((), info))
    }

    fn resource_usage(&self) -> ResourceUsage {
        ResourceUsage {
            connections: self.streams().count(),
            rx_frames: self.streams().map(Stream::held_messages).sum(),
            tx_units: self.streams().map(Stream::unacked_messages).sum(),
            ..ResourceUsage::default()
        }
    }

    fn check(&self) -> Result<(), String> {
        Ok(())
    }
}
