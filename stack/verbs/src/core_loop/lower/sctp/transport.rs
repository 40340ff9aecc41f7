//! Sessions of DDP over SCTP as the streams of a [`Transport`] (RFC 5043).
//!
//! ```text
//!   ConnId --> session --> stream number of an association --> SCTP packets
//! ```
//! All sessions that this side opens to one address share an association, as long as it has a free
//! stream. The first message of a side is session control, those after it are segments. Closing a
//! session sends its Terminate. Its opener shuts an association down after its last session.
//!
//! A segment that is next in its session is read in its frame. SCTP holds any other until the
//! session reads it in the order of its DDP-SSNs.

use core::net::{IpAddr, SocketAddr};

use ironwarp_iwarp::sctp::{ADAPTATION_INDICATION, Chunk, PPID_CONTROL, PPID_SEGMENT, Session};
use ironwarp_llp::{
    Abort, Arrival, ConnId, ConnectError, ConnectionInfo, Events, LentMessage, ListenError, ListenerId,
    PathErrorOutcome, PayloadReader, Progress, ResourceUsage, Timeouts, Transmitted, Transport, UnitSource,
};
use ironwarp_net::{FlowHasher, IcmpError, IcmpErrorKind, Net, Packet, Path, TransportProtocol};
use ironwarp_port::{Port, Wires};
use ironwarp_sctp::{Message, MessageHeader, PathState, Sctp, SctpConfig, State, UpperLayer};
use ironwarp_stats::CoreStats;
use ironwarp_types::{Flow, Nanos, Seq};

use super::table::{SessionState, Table};

/// The first and the number of local ports that are chosen for associations (RFC 6335 s6).
const EPHEMERAL_PORTS: (u16, u16) = (49_152, 16_384);

/// Chunks that are sent again at a time where no session does it.
const RESENT_MAX: usize = 64;

/// The sessions of one core.
pub struct SctpSessions<P: Port> {
    engine: Sctp<P>,
    table: Table,
    hasher: FlowHasher,
    share_associations: bool,
    next_port: u16,
}

impl<P: Port> SctpSessions<P> {
    /// Creates a transport. `limits` are the numbers of all sessions, and of those of an
    /// association that wait for a decision. An association that a peer opened ends after
    /// `idle_timeout` without a session. See [`Sctp::new`].
    pub fn new(
        limits: (u32, u32),
        idle_timeout: Nanos,
        config: SctpConfig,
        hasher: FlowHasher,
        secret: [u64; 2],
        stats: CoreStats,
    ) -> Self {
        let config = SctpConfig { adaptation_code_point: Some(ADAPTATION_INDICATION), ..config };
        SctpSessions {
            table: Table::new(limits, idle_timeout, &config, stats.clone()),
            share_associations: config.share_associations,
            engine: Sctp::new(config, hasher, secret, stats),
            hasher,
            next_port: 0,
        }
    }

    /// Opens an association from a free port of this core.
    fn open(
        &mut self,
        now: Nanos,
        ends: Flow,
        path: &Path,
        is_own: impl Fn(&Flow, u32) -> bool,
        wires: &mut Wires<P>,
    ) -> Result<(ConnId, Flow), ConnectError> {
        if ends.local.port() != 0 {
            if !is_own(&ends, self.hasher.hash(&ends)) {
                return Err(ConnectError::OtherCore);
            }
            return Ok((self.engine.connect(now, ends, path.clone(), wires)?, ends));
        }
        let (first, count) = EPHEMERAL_PORTS;
        for _ in 0..count {
            self.next_port = (self.next_port + 1) % count;
            let local = SocketAddr::new(ends.local.ip(), first + self.next_port);
            let flow = Flow { local, ..ends };
            if !is_own(&flow, self.hasher.hash(&flow)) {
                continue;
            }
            match self.engine.connect(now, flow, path.clone(), wires) {
                Err(ConnectError::InUse) => {}
                opened => return Ok((opened?, flow)),
            }
        }
        Err(ConnectError::NoPort)
    }

    /// What is left to do after the engine has reported to the table.
    #[inline(always)]
    fn settle(&mut self, now: Nanos, wires: &mut Wires<P>) {
        if self.table.has_work() {
            self.settle_all(now, wires);
        }
    }

    #[cold]
    #[inline(never)]
    fn settle_all(&mut self, now: Nanos, wires: &mut Wires<P>) {
        while let Some(id) = self.table.pop_established() {
            let info = self.engine.association_info(id);
            let fits = info.is_some_and(|info| {
                info.adaptation_code_point == Some(ADAPTATION_INDICATION)
                    && info.outbound_streams == info.inbound_streams
            });
            match info.filter(|_| fits) {
                Some(info) => self.table.begin(id, &info),
                // RFC 5043 s11.1.
                None => {
                    self.engine.abort(now, id, wires);
                    self.table.refuse(id);
                }
            }
        }
        self.table.watch_idle(now);
        while let Some((id, stream)) = self.table.pop_discarded() {
            self.engine.discard(id, stream);
        }
        while let Some(id) = self.table.pop_resending() {
            let header = MessageHeader::default();
            self.engine.transmit(now, id, header, &mut (), wires, RESENT_MAX);
        }
        while let Some((id, stream)) = self.table.pop_terminating() {
            self.send_terminate(now, id, stream, wires);
        }
        while let Some(id) = self.table.pop_unused() {
            match self.engine.association_info(id) {
                Some(info) if info.state == State::Closed => self.engine.release(id),
                // In set-up it ends at once.
                Some(_) if self.engine.close(now, id, wires).contains(Events::CLOSED) => {
                    self.engine.release(id);
                }
                _ => {}
            }
        }
    }

    /// Sends the Terminate of a session, now or after the acknowledgement that it waits for.
    fn send_terminate(&mut self, now: Nanos, id: ConnId, stream: u16, wires: &mut Wires<P>) {
        let all_acked = self.engine.is_all_acked(id, stream);
        let Some((session, sent_units)) = self.table.ending(id, stream) else { return };
        let mut source = TerminateSource { session, ssn: sent_units, all_acked, sent: false };
        let header = MessageHeader { stream, ppid: PPID_CONTROL, is_unordered: true };
        self.engine.transmit(now, id, header, &mut source, wires, RESENT_MAX);
        let (sent, waits) = (source.sent, source.session.may_terminate());
        if sent {
            self.table.on_terminated(id, stream);
        } else if waits {
            self.table.terminate_later(id, stream);
        }
    }

    /// Sends the first message of a side, which is session control.
    fn send_control(
        &mut self,
        now: Nanos,
        id: ConnId,
        source: &mut impl UnitSource,
        wires: &mut Wires<P>,
        packets_max: usize,
    ) -> Transmitted {
        let Some(SessionState { association, stream, .. }) = self.table.at(id).copied() else {
            return Transmitted::default();
        };
        let header = MessageHeader { stream, ppid: PPID_CONTROL, is_unordered: true };
        let all_acked = self.engine.is_all_acked(association, stream);
        let Some(session) = self.table.session(association, stream) else { return Transmitted::default() };
        let mut first = FirstMessage { source, session, all_acked, bytes: 0 };
        let sent = self.engine.transmit(now, association, header, &mut first, wires, packets_max);
        let bytes = first.bytes;
        self.table.on_sent(association, stream, (u16::from(bytes > 0), bytes));
        sent
    }
}

/// The first message of a side.
struct FirstMessage<'a, S> {
    source: &'a mut S,
    session: &'a mut Session<Seq>,
    all_acked: bool,
    bytes: usize,
}

impl<S: UnitSource> UnitSource for FirstMessage<'_, S> {
    fn is_empty(&mut self) -> bool {
        self.bytes > 0 || self.source.is_empty()
    }

    fn fill(&mut self, room: &mut [u8]) -> usize {
        if self.bytes > 0 {
            return 0;
        }
        if !self.session.may_begin(self.all_acked) {
            return 0;
        }
        let bytes = self.source.fill(room);
        let control = room.get(..bytes).and_then(|octets| Chunk::decode(PPID_CONTROL, octets).ok());
        let Some((_, Chunk::Control(control))) = control else { return 0 };
        if self.session.send(control.function, self.all_acked).is_err() {
            return 0;
        }
        self.bytes = bytes;
        bytes
    }
}

/// Segments, which are counted.
struct Segments<'a, S> {
    source: &'a mut S,
    count: u16,
    bytes: usize,
}

impl<S: UnitSource> UnitSource for Segments<'_, S> {
    fn is_empty(&mut self) -> bool {
        self.source.is_empty()
    }

    fn is_last(&self) -> bool {
        self.source.is_last()
    }

    fn fill(&mut self, room: &mut [u8]) -> usize {
        let bytes = self.source.fill(room);
        self.count = self.count.wrapping_add(u16::from(bytes > 0));
        self.bytes += bytes;
        bytes
    }
}

struct TerminateSource<'a> {
    session: &'a mut Session<Seq>,
    ssn: u16,
    all_acked: bool,
    sent: bool,
}

impl UnitSource for TerminateSource<'_> {
    fn is_empty(&mut self) -> bool {
        self.sent
    }

    fn fill(&mut self, room: &mut [u8]) -> usize {
        let Ok(message) = self.session.terminate(self.ssn, self.all_acked) else { return 0 };
        let Some(place) = room.get_mut(..message.len()) else { return 0 };
        place.copy_from_slice(&message);
        self.sent = true;
        message.len()
    }
}

/// The table, while a packet arrives. Its segments that are next in order go to the reader: those
/// of one session, since there is one outcome.
struct Lending<'a, T, R> {
    table: &'a mut Table,
    reader: T,
    /// The outcome, and the association and the stream of the session.
    outcome: Option<(R, ConnId, u16)>,
}

impl<R, T: for<'a> PayloadReader<LentMessage<'a>, R>> UpperLayer for Lending<'_, T, R> {
    fn event(&mut self, id: ConnId, events: Events) {
        self.table.event(id, events);
    }

    fn message(&mut self, id: ConnId, message: Message<'_>) -> bool {
        let stream = message.header.stream;
        let is_other = self.outcome.as_ref().is_some_and(|&(_, of, at)| of != id || at != stream);
        if !is_other && let Some((outcome, is_taken)) = self.table.lend(id, &message, &mut self.reader) {
            let outcome = match self.outcome.take() {
                Some((first, ..)) => self.reader.join(first, outcome),
                None => outcome,
            };
            self.outcome = Some((outcome, id, stream));
            if is_taken {
                return true;
            }
        }
        self.table.message(id, message)
    }

    fn dropped(&mut self, id: ConnId, stream: u16, tsn: Seq) {
        self.table.dropped(id, stream, tsn);
    }

    fn path(&mut self, id: ConnId, remote: IpAddr, state: PathState) {
        self.table.path(id, remote, state);
    }

    fn acked(&mut self, id: ConnId, stream: u16, bytes: u32) {
        self.table.acked(id, stream, bytes);
    }
}

/// The chunks of a session that can be read.
pub struct SessionRx<'a, P: Port> {
    engine: &'a mut Sctp<P>,
    table: &'a mut Table,
    id: ConnId,
}

impl<P: Port> SessionRx<'_, P> {
    /// Returns the next chunk in order.
    pub fn front(&mut self) -> Option<Chunk<'_>> {
        let state = *self.table.at(self.id)?;
        let (function, tsn) = self.table.front(self.id)?;
        let ppid = if function.is_some() { PPID_CONTROL } else { PPID_SEGMENT };
        let message = self.engine.held_message(state.association, tsn)?;
        // It was decoded when it arrived.
        Some(Chunk::decode(ppid, message.payload).ok()?.1)
    }

    /// Removes the next chunk.
    pub fn pop(&mut self) {
        let Some(&SessionState { association, .. }) = self.table.at(self.id) else { return };
        let Some((_, tsn)) = self.table.front(self.id) else { return };
        let bytes = self.engine.held_message(association, tsn).map_or(0, |message| message.payload.len());
        self.engine.consume_held(association, tsn);
        self.table.pop(self.id, bytes);
        if let Some(tsn) = self.table.take_terminate(self.id) {
            self.engine.consume_held(association, tsn);
        }
    }

    /// Returns the segment that arrived last beyond a gap, and its distance from the next one.
    pub fn early(&mut self) -> Option<(u16, &[u8])> {
        let (distance, tsn) = self.table.take_early(self.id)?;
        let association = self.table.at(self.id)?.association;
        let message = self.engine.held_message(association, tsn)?;
        match Chunk::decode(PPID_SEGMENT, message.payload).ok()?.1 {
            Chunk::Segment(segment) => Some((distance, segment)),
            Chunk::Control(_) => None,
        }
    }

    /// Removes all that can be read.
    pub fn clear(&mut self) {
        while self.table.front(self.id).is_some() {
            self.pop();
        }
    }
}

impl<P: Port> Transport for SctpSessions<P> {
    type Wires = Wires<P>;
    type Frame = P::Frame;
    type Network = Net;
    type Packet = Packet<P::Frame>;
    type Path = Path;
    type PathError = IcmpError;
    type Lent<'a> = LentMessage<'a>;
    type Rx<'a> = SessionRx<'a, P>;
    type State = State;

    fn listen(&mut self, local: SocketAddr) -> Result<ListenerId, ListenError> {
        self.engine.listen(local)
    }

    fn unlisten(&mut self, listener: ListenerId) {
        self.engine.unlisten(listener);
    }

    fn connect(
        &mut self,
        now: Nanos,
        ends: Flow,
        path: Path,
        is_own: impl Fn(&Flow, u32) -> bool,
        wires: &mut Wires<P>,
    ) -> Result<ConnId, ConnectError> {
        if self.table.is_full() {
            return Err(ConnectError::Full);
        }
        let engine = &self.engine;
        let is_free = |id, stream| engine.is_all_acked(id, stream);
        let shared = self.share_associations.then(|| self.table.free_stream(&ends, is_free));
        let (association, stream) = match shared.flatten() {
            Some(shared) => shared,
            None => {
                let (id, flow) = self.open(now, ends, &path, is_own, wires)?;
                (id, self.table.open(id, flow).ok_or(ConnectError::Full)?)
            }
        };
        self.table.insert(association, stream).ok_or(ConnectError::Full)
    }

    /// SCTP counts its retransmissions.
    fn set_timeouts(&mut self, _: ConnId, _: Timeouts) {}

    fn transmit(
        &mut self,
        now: Nanos,
        id: ConnId,
        source: &mut impl UnitSource,
        wires: &mut Wires<P>,
        packets_max: usize,
    ) -> Transmitted {
        let Some(&SessionState { association, stream, .. }) = self.table.at(id) else {
            return Transmitted::default();
        };
        let session = self.table.session(association, stream).filter(|session| session.has_begun());
        let Some(session) = session else {
            return self.send_control(now, id, source, wires, packets_max);
        };
        let header = MessageHeader { stream, ppid: PPID_SEGMENT, is_unordered: true };
        if !session.may_send_segments() {
            return self.engine.transmit(now, association, header, &mut (), wires, packets_max);
        }
        let mut segments = Segments { source, count: 0, bytes: 0 };
        let sent = self.engine.transmit(now, association, header, &mut segments, wires, packets_max);
        let count = (segments.count, segments.bytes);
        self.table.on_sent(association, stream, count);
        sent
    }

    fn close(&mut self, now: Nanos, id: ConnId, wires: &mut Wires<P>) -> Events {
        self.table.close(id);
        self.settle(now, wires);
        self.table.take_closed(id)
    }

    fn abort(&mut self, now: Nanos, id: ConnId, _: Abort, wires: &mut Wires<P>) {
        self.table.abandon(id);
        self.release(id);
        self.settle(now, wires);
    }

    fn release(&mut self, id: ConnId) {
        self.table.release(id);
    }

    fn flow(&self, id: ConnId) -> Option<Flow> {
        self.table.flow(id)
    }

    fn listener(&self, id: ConnId) -> Option<ListenerId> {
        self.table.listener(id)
    }

    fn progress(&self, id: ConnId) -> Progress {
        let Some(state) = self.table.at(id) else {
            return Progress { all_acked: true, ..Progress::default() };
        };
        Progress {
            acked_bytes: state.acked_bytes,
            all_acked: self.engine.is_all_acked(state.association, state.stream),
            wants_transmit: self.engine.wants_transmit(state.association),
        }
    }

    fn rx(&mut self, id: ConnId) -> SessionRx<'_, P> {
        SessionRx { engine: &mut self.engine, table: &mut self.table, id }
    }

    fn discard(&mut self, id: ConnId) {
        self.rx(id).clear();
    }

    fn on_packet<R>(
        &mut self,
        now: Nanos,
        packet: Packet<P::Frame>,
        network: &Net,
        wires: &mut Wires<P>,
        reader: impl for<'a> PayloadReader<LentMessage<'a>, R>,
    ) -> Option<Arrival<R>> {
        let (flow, mac) = (packet.flow, packet.remote_mac);
        let mut lending = Lending { table: &mut self.table, reader, outcome: None };
        self.engine.on_packet(now, packet, || network.path_to(&flow, mac), wires, &mut lending);
        let outcome = lending.outcome;
        self.settle(now, wires);
        match outcome {
            Some((outcome, ..)) => Some(Arrival::Delivered(outcome)),
            None => self.table.pop_events().map(|(id, events)| Arrival::Events(id, events)),
        }
    }

    fn next_events(&mut self) -> Option<(ConnId, Events)> {
        self.table.pop_events()
    }

    /// Of unreachable hosts, retransmissions find out.
    fn on_path_error(&mut self, now: Nanos, error: &IcmpError, wires: &mut Wires<P>) -> PathErrorOutcome {
        let mtu_accepted = match error.kind {
            IcmpErrorKind::TooBig { mtu_bytes } => {
                self.engine.on_too_big(now, &error.flow, error.quoted, mtu_bytes, wires)
            }
            IcmpErrorKind::Hard | IcmpErrorKind::Soft => false,
        };
        PathErrorOutcome { events: None, mtu_accepted }
    }

    fn on_timers(&mut self, now: Nanos, wires: &mut Wires<P>, events: &mut impl FnMut(ConnId, Events)) {
        self.engine.on_timers(now, wires, &mut self.table);
        while let Some(id) = self.table.pop_idle(now) {
            self.engine.abort(now, id, wires);
        }
        self.settle(now, wires);
        while let Some((id, happened)) = self.table.pop_events() {
            events(id, happened);
        }
    }

    fn next_deadline(&self) -> Option<Nanos> {
        if self.table.has_events() || self.table.has_path_changes() || self.engine.has_unrouted() {
            return Some(Nanos::ZERO);
        }
        self.engine.next_deadline().into_iter().chain(self.table.idle_deadline()).min()
    }

    /// What is acknowledged is placed: not before all sessions have read what has arrived.
    fn flush_acks(&mut self, now: Nanos, wires: &mut Wires<P>) {
        self.settle(now, wires);
        if !self.table.has_events() {
            self.engine.flush_acks(now, wires);
        }
    }

    fn has_pending_acks(&self) -> bool {
        self.engine.has_pending_acks() || self.table.has_work()
    }

    fn update_paths(&mut self, from: u32, slots_max: u32, update: impl FnMut(&mut Path, u16)) -> Option<u32> {
        self.engine.update_paths(from, slots_max, update)
    }

    fn add_paths(&mut self, now: Nanos, mut route: impl FnMut(IpAddr) -> Option<Path>) {
        while let Some((id, remotes)) = self.engine.pop_unrouted() {
            remotes.into_iter().filter_map(&mut route).for_each(|path| self.engine.add_route(now, id, path));
        }
    }

    fn pop_path_change(&mut self) -> Option<(ConnId, IpAddr, bool)> {
        self.table.pop_path_change()
    }

    fn slots(&self) -> u32 {
        self.table.slots()
    }

    fn connection_info(&self, slot: u32) -> Option<(State, ConnectionInfo)> {
        let id = self.table.id_of(slot)?;
        let session = self.table.at(id)?;
        let association = self.engine.association_info(session.association)?;
        let paths = || self.engine.paths(session.association);
        let current = paths().find(|path| path.is_current)?;
        let at = |ip, end: SocketAddr| SocketAddr::new(ip, end.port());
        let Flow { local, remote } = association.flow;
        let info = ConnectionInfo {
            id,
            protocol: TransportProtocol::SCTP.number,
            flow: Flow { local: at(current.local, local), remote: at(current.remote, remote) },
            acked_bytes: session.acked_bytes,
            received_bytes: session.received_bytes as u32,
            retransmits: 0,
            last_rx_at: Nanos::ZERO,
            srtt: current.srtt,
            rto: association.rto,
            cwnd_bytes: association.cwnd_bytes,
            flight_bytes: association.flight_bytes,
            paths: paths().count() as u8,
            paths_up: paths().filter(|path| path.state == PathState::Active).count() as u8,
        };
        Some((association.state, info))
    }

    fn resource_usage(&self) -> ResourceUsage {
        self.engine.resource_usage()
    }

    fn check(&self) -> Result<(), String> {
        self.engine.check()
    }
}
