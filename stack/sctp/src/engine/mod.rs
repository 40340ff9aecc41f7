//! The engine of one core: maps packets to associations, and handles packets without one.
//!
//! Associations lie in a slab. The flow table maps a packet's hash to a slot. A [`ConnId`] is a
//! slot and a generation. A call with the id of a released association does nothing.

mod addresses;
mod check;
mod no_association;
mod receive;
mod set_up;

use core::net::SocketAddr;

use ironwarp_llp::{
    ConnId, ConnectError, Events, ListenError, ListenerId, Listeners, ResourceUsage, Transmitted, UnitSource,
};
use ironwarp_net::{FlowHasher, FlowTable, Path, TransportProtocol};
use ironwarp_port::{Port, Wires};
use ironwarp_stats::{CoreStats, Counter};
use ironwarp_types::{Flow, Nanos, Seq};

pub use addresses::PathInfo;
pub(crate) use addresses::{Addresses, ROUTE_INTERVAL};

use crate::SctpConfig;
use crate::association::{Association, State, Timers};
use crate::message::{Message, MessageHeader, UpperLayer};
use crate::output::{Io, Shared};
use crate::packet::{CauseCode, InitFixed};

/// A slot of the slab.
struct Slot<F> {
    association: Option<Association<F>>,
    /// Counts the associations that have used the slot, to detect stale ids.
    generation: u32,
}

/// The upper limit of associations: slots must fit the values of the flow table.
const ASSOCIATIONS_MAX: u32 = 1 << 28;

/// SCTP for one core. See the crate documentation.
///
/// The core loop calls [`Sctp::on_packet`] for every packet, and [`Sctp::on_timers`] when
/// [`Sctp::next_deadline`] has passed. Events go to a sink of the caller.
pub struct Sctp<P: Port> {
    slots: Box<[Slot<P::Frame>]>,
    /// Free slots, used last in, first out.
    free: Vec<u32>,
    shared: Shared<P::Frame>,
    flows: FlowTable,
    hasher: FlowHasher,
    listeners: Listeners,
}

/// What both sides announced, for users and observers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct AssociationInfo {
    /// Both endpoints.
    pub flow: Flow,
    /// The state.
    pub state: State,
    /// The listener of an association that the peer opened.
    pub listener: Option<ListenerId>,
    /// Streams to send on: 0 up to this number less one. At most what the peer accepts.
    pub outbound_streams: u16,
    /// Streams that the peer sends on.
    pub inbound_streams: u16,
    /// The code point of the peer's adaptation layer indication.
    pub adaptation_code_point: Option<u32>,
    /// The congestion window.
    pub cwnd_bytes: u32,
    /// Chunks sent and neither acknowledged nor lost, in bytes.
    pub flight_bytes: u32,
    /// The retransmission timeout.
    pub rto: Nanos,
}

impl<P: Port> Sctp<P> {
    /// Creates an engine with room for everything that its configuration allows. Nothing is
    /// allocated afterwards.
    ///
    /// `hasher` is the one that `net` uses for [`Packet::hash`](ironwarp_net::Packet::hash).
    /// `secret` keys tags and state cookies; every process must choose a new one.
    pub fn new(mut config: SctpConfig, hasher: FlowHasher, secret: [u64; 2], stats: CoreStats) -> Self {
        config.associations_max = config.associations_max.clamp(1, ASSOCIATIONS_MAX);
        config.addresses.truncate(crate::ADDRESSES_MAX);
        let associations = config.associations_max;
        Sctp {
            slots: (0..associations).map(|_| Slot { association: None, generation: 0 }).collect(),
            free: (0..associations).rev().collect(),
            flows: FlowTable::new(associations as usize * config.flows_of_association()),
            hasher,
            listeners: Listeners::new(config.listeners_max),
            shared: Shared::new(config, secret, stats),
        }
    }

    /// Listens on an address, or on all addresses of a family when it is unspecified.
    pub fn listen(&mut self, local: SocketAddr) -> Result<ListenerId, ListenError> {
        self.listeners.insert(local)
    }

    /// Removes a listener. Its associations continue, and cookies for it open none.
    pub fn unlisten(&mut self, id: ListenerId) {
        self.listeners.remove(id);
    }

    /// RFC 9260 s5.1 A: sends an INIT. ESTABLISHED, REFUSED or TIMED_OUT follows.
    pub fn connect(
        &mut self,
        now: Nanos,
        flow: Flow,
        path: Path,
        wires: &mut Wires<P>,
    ) -> Result<ConnId, ConnectError> {
        let is_invalid =
            |end: SocketAddr| end.port() == 0 || end.ip().is_unspecified() || end.ip().is_multicast();
        if is_invalid(flow.local) || is_invalid(flow.remote) {
            return Err(ConnectError::InvalidAddress);
        }
        let hash = self.hasher.hash(&flow);
        if self.find_confirmed(hash, &flow).is_some() {
            return Err(ConnectError::InUse);
        }
        let local = self.draw_init();
        let path = encapsulated(path, self.shared.config.udp_encapsulation_port);
        let association = Association::new(flow, hash, path, None, local, &self.shared.config);
        let slot = self.insert(association).ok_or(ConnectError::Full)?;
        self.set_addresses(slot, Addresses::from_iter([flow.remote.ip()]));
        self.shared.count(Counter::SctpActiveOpens);
        if let Some((association, mut io)) = self.association_and_io(slot, now, wires) {
            association.enter(State::CookieWait, &mut io);
        }
        self.id_of(slot).ok_or(ConnectError::Full)
    }

    /// RFC 9260 s9.2: ends an association in order. Returns CLOSED if it ends at once, as in
    /// set-up; otherwise CLOSED, RESET or TIMED_OUT follows.
    pub fn close(&mut self, now: Nanos, id: ConnId, wires: &mut Wires<P>) -> Events {
        let state = self.association(id).map(|association| association.state);
        match state {
            Some(State::Established) => {
                if let Some((association, mut io)) = self.association_and_io(id.slot, now, wires) {
                    match association.outbound.is_all_acked() {
                        true => association.enter(State::ShutdownSent, &mut io),
                        // RFC 9260 s9.2: the peer acknowledges all messages first.
                        false => association.state = State::ShutdownPending,
                    }
                }
                Events::empty()
            }
            Some(State::CookieWait | State::CookieEchoed) => {
                self.send_abort(now, id.slot, wires);
                self.unlink(id.slot);
                Events::CLOSED
            }
            _ => Events::empty(),
        }
    }

    /// RFC 9260 s9.1: ends an association at once, tells the peer, and releases it. No event
    /// follows.
    pub fn abort(&mut self, now: Nanos, id: ConnId, wires: &mut Wires<P>) {
        if self.association(id).is_some_and(|association| association.state != State::Closed) {
            self.send_abort(now, id.slot, wires);
        }
        self.release(id);
    }

    /// Sends an ABORT on request of the user, if the peer's tag is known.
    fn send_abort(&mut self, now: Nanos, slot: u32, wires: &mut Wires<P>) {
        let Some((association, mut io)) = self.association_and_io(slot, now, wires) else { return };
        if association.state != State::CookieWait {
            io.send_abort(association.route(), false, Some(CauseCode::USER_INITIATED_ABORT));
        }
    }

    /// Releases an association. Its id is stale then. One that has not ended is removed silently:
    /// the peer's next packet is answered with an ABORT.
    pub fn release(&mut self, id: ConnId) {
        if self.association(id).is_none() {
            return;
        }
        self.unlink(id.slot);
        if let Some(slot) = self.slots.get_mut(id.slot as usize) {
            if let Some(mut association) = slot.association.take() {
                association.inbound.clear(&mut self.shared.held);
            }
            slot.generation = slot.generation.wrapping_add(1);
            self.free.push(id.slot);
        }
    }

    /// Returns what both sides announced, while the id is valid.
    pub fn association_info(&self, id: ConnId) -> Option<AssociationInfo> {
        let association = self.association(id)?;
        let path = association.paths.current();
        Some(AssociationInfo {
            flow: association.flow,
            state: association.state,
            listener: association.listener,
            outbound_streams: association.outbound_streams(),
            inbound_streams: association.inbound_streams(),
            adaptation_code_point: association.adaptation_code_point,
            cwnd_bytes: path.congestion.cwnd(),
            flight_bytes: path.flight_bytes,
            rto: path.rtt.rto(),
        })
    }

    /// Sends up to `packets_max` packets: chunks that were lost, and messages pulled from `source`,
    /// all with this header, while the windows take a whole packet. A message that was pulled is
    /// retained until the peer acknowledges it.
    pub fn transmit(
        &mut self,
        now: Nanos,
        id: ConnId,
        header: MessageHeader,
        source: &mut impl UnitSource,
        wires: &mut Wires<P>,
        packets_max: usize,
    ) -> Transmitted {
        let Some(association) = association_of(&mut self.slots, id) else { return Transmitted::default() };
        let mut io = Io { now, wires, shared: &mut self.shared };
        association.transmit(&mut io, header, source, packets_max)
    }

    /// Returns whether the peer has acknowledged all messages of a stream. DDP uses its number
    /// again only then (RFC 5043 s7.4).
    pub fn is_all_acked(&self, id: ConnId, stream: u16) -> bool {
        self.association(id).is_none() || self.shared.streams.is_all_acked(id.slot, stream)
    }

    /// Returns whether [`Sctp::transmit`] has chunks to send again, even with an empty source.
    pub fn wants_transmit(&self, id: ConnId) -> bool {
        self.association(id).is_some_and(|association| association.outbound.has_lost())
    }

    /// Returns the first message of a stream that may be read. Messages stay readable after the end
    /// of their association until it is released.
    pub fn message(&self, id: ConnId, stream: u16) -> Option<Message<'_>> {
        let Shared { held, streams, .. } = &self.shared;
        let (_, found) = self.association(id)?.readable(held, streams, Some(stream))?;
        Some(held.message(found))
    }

    /// Returns a stream with a message that may be read.
    pub fn readable_stream(&self, id: ConnId) -> Option<u16> {
        let (_, found) = self.association(id)?.readable(&self.shared.held, &self.shared.streams, None)?;
        Some(found.header.stream)
    }

    /// Removes the message that [`Sctp::message`] returns, and releases its frame with the last of
    /// its packet.
    pub fn consume(&mut self, id: ConnId, stream: u16) {
        let Some(association) = association_of(&mut self.slots, id) else { return };
        let Shared { held, streams, acks, config, .. } = &mut self.shared;
        let Some((prev, found)) = association.readable(held, streams, Some(stream)) else { return };
        if !found.header.is_unordered {
            streams.advance_ssn(id.slot, stream);
        }
        if association.consume(held, prev, config.a_rwnd_bytes) {
            association.schedule_ack(acks);
        }
    }

    /// Returns a message that was offered and not taken, by its TSN.
    pub fn held_message(&self, id: ConnId, tsn: Seq) -> Option<Message<'_>> {
        let association = self.association(id)?;
        let (_, found) = self.shared.held.find(&association.inbound.held, |held| held.tsn == tsn)?;
        Some(self.shared.held.message(found))
    }

    /// Removes that message, and releases its frame with the last of its packet.
    pub fn consume_held(&mut self, id: ConnId, tsn: Seq) {
        let Some(association) = association_of(&mut self.slots, id) else { return };
        let Shared { held, acks, config, .. } = &mut self.shared;
        let Some((prev, _)) = held.find(&association.inbound.held, |held| held.tsn == tsn) else { return };
        if association.consume(held, prev, config.a_rwnd_bytes) {
            association.schedule_ack(acks);
        }
    }

    /// Removes the messages of a stream that were offered and not taken.
    pub fn discard(&mut self, id: ConnId, stream: u16) {
        while let Some(tsn) = self.message(id, stream).map(|message| message.tsn) {
            self.consume_held(id, tsn);
        }
    }

    /// Calls `update` with the path of each association in up to `slots_max` slots from `from` on.
    /// Returns the slot to continue at, or `None` at the end.
    pub fn update_paths(
        &mut self,
        from: u32,
        slots_max: u32,
        mut update: impl FnMut(&mut Path, u16),
    ) -> Option<u32> {
        let end = from.saturating_add(slots_max);
        let part = self.slots.get_mut(from as usize..(end as usize).min(self.slots.len()))?;
        for association in part.iter_mut().filter_map(|slot| slot.association.as_mut()) {
            if let Some(spare) = &mut association.paths.spare {
                let mtu_bytes = spare.mtu_bytes();
                update(spare, mtu_bytes);
            }
            for path in association.paths.iter_mut() {
                let mtu_bytes = path.reported_mtu_bytes();
                update(&mut path.route, mtu_bytes);
            }
        }
        ((end as usize) < self.slots.len()).then_some(end)
    }

    /// Sends the SACKs that are due. Called once an iteration.
    pub fn flush_acks(&mut self, now: Nanos, wires: &mut Wires<P>) {
        while let Some(slot) = self.shared.acks.pop() {
            if let Some((association, mut io)) = self.association_and_io(slot, now, wires) {
                association.send_due_ack(&mut io);
            }
        }
        self.shared.acks.begin_round();
    }

    /// Returns whether a SACK waits for [`Sctp::flush_acks`].
    pub fn has_pending_acks(&self) -> bool {
        !self.shared.acks.is_empty()
    }

    /// Runs the expired timers.
    pub fn on_timers(&mut self, now: Nanos, wires: &mut Wires<P>, user: &mut impl UpperLayer) {
        while let Some(slot) = self.shared.wheel.pop_expired(now) {
            self.on_timer(now, slot, wires, user);
        }
    }

    fn on_timer(&mut self, now: Nanos, slot: u32, wires: &mut Wires<P>, user: &mut impl UpperLayer) {
        let Some((association, mut io)) = self.association_and_io(slot, now, wires) else { return };
        if association.timers.guard <= now {
            io.send_abort(association.route(), false, None);
            return self.time_out(slot, user);
        }
        if association.timers.state <= now {
            // RFC 9260 s4 (notes 2 and 3) and s9.2: sends again, or gives up after the last one.
            let config = &io.shared.config;
            let tries_max =
                if association.state.is_set_up() { config.init_retries } else { config.association_retries };
            if association.tries >= tries_max {
                return self.time_out(slot, user);
            }
            io.shared.count(Counter::SctpTxRetransmits);
            association.send_again(&mut io);
        }
        if association.on_rtx_timeouts(&mut io, user) || association.on_heartbeat_timers(&mut io, user) {
            return self.time_out(slot, user);
        }
        association.on_mtu_timers(&mut io);
        if association.timers.ack <= now {
            association.timers.ack = Nanos::MAX;
            association.schedule_ack(&mut io.shared.acks);
            association.send_due_ack(&mut io);
        }
        association.arm(&mut io);
        if association.timers.routes <= now {
            self.ask_for_routes(now, slot);
        }
    }

    /// The peer is silent, or never ends.
    fn time_out(&mut self, slot: u32, user: &mut impl UpperLayer) {
        self.shared.count(Counter::SctpTimeoutAborts);
        self.end(slot, Events::TIMED_OUT, user);
    }

    /// Returns when to call [`Sctp::on_timers`] next. May be early.
    pub fn next_deadline(&self) -> Option<Nanos> {
        self.shared.wheel.next_deadline()
    }

    /// Counts the resources held now.
    pub fn resource_usage(&self) -> ResourceUsage {
        let associations = self.slots.iter().filter_map(|slot| slot.association.as_ref());
        ResourceUsage {
            connections: associations.clone().count(),
            flows: self.flows.len(),
            rx_frames: self.shared.held.frames()
                + associations.filter(|association| association.init_ack.is_some()).count(),
            tx_units: self.shared.retained.in_use(),
            ..ResourceUsage::default()
        }
    }

    /// Returns what an INIT of ours announces: the settings, and a new tag and TSN.
    fn draw_init(&mut self) -> InitFixed {
        let (tag, initial_tsn) = self.shared.secrets.draw();
        let SctpConfig { a_rwnd_bytes: a_rwnd, outbound_streams, inbound_streams, .. } = self.shared.config;
        InitFixed { tag, a_rwnd, outbound_streams, inbound_streams, initial_tsn }
    }

    fn association(&self, id: ConnId) -> Option<&Association<P::Frame>> {
        let slot = self.slots.get(id.slot as usize)?;
        if slot.generation == id.generation { slot.association.as_ref() } else { None }
    }

    /// Returns an association and its I/O context.
    fn association_and_io<'a>(
        &'a mut self,
        slot: u32,
        now: Nanos,
        wires: &'a mut Wires<P>,
    ) -> Option<(&'a mut Association<P::Frame>, Io<'a, P>)> {
        let association = self.slots.get_mut(slot as usize)?.association.as_mut()?;
        Some((association, Io { now, wires, shared: &mut self.shared }))
    }

    fn id_of(&self, slot: u32) -> Option<ConnId> {
        let generation = self.slots.get(slot as usize)?.generation;
        Some(ConnId { slot, generation })
    }

    /// Returns an association with a flow of which `is_wanted` holds.
    fn find(
        &self,
        hash: u32,
        flow: &Flow,
        is_wanted: impl Fn(&Association<P::Frame>) -> bool,
    ) -> Option<u32> {
        let own = &self.shared.config.addresses;
        self.flows.lookup(hash, |at| {
            let association = self.in_slot(at);
            association.is_some_and(|association| association.has_flow(flow, own) && is_wanted(association))
        })
    }

    fn in_slot(&self, slot: u32) -> Option<&Association<P::Frame>> {
        self.slots.get(slot as usize)?.association.as_ref()
    }

    fn in_slot_mut(&mut self, slot: u32) -> Option<&mut Association<P::Frame>> {
        self.slots.get_mut(slot as usize)?.association.as_mut()
    }

    /// Puts an association into a free slot and the flow table. Returns the slot.
    fn insert(&mut self, association: Association<P::Frame>) -> Option<u32> {
        let at = *self.free.last()?;
        self.flows.insert(association.hash, at).ok()?;
        self.free.pop();
        let slot = self.slots.get_mut(at as usize)?;
        let id = ConnId { slot: at, generation: slot.generation };
        slot.association = Some(Association { id, ..association });
        self.shared.streams.reset(at);
        Some(at)
    }

    /// Returns whether an association exists and has not ended.
    fn is_live(&self, slot: u32) -> bool {
        self.in_slot(slot).is_some_and(|association| association.state != State::Closed)
    }

    fn report(&self, slot: u32, event: Events, user: &mut impl UpperLayer) {
        if let Some(id) = self.id_of(slot) {
            user.event(id, event);
        }
    }

    /// Ends an association, and reports it. Its slot stays until it is released.
    fn end(&mut self, slot: u32, event: Events, user: &mut impl UpperLayer) {
        self.unlink(slot);
        self.report(slot, event, user);
    }

    /// Removes an association from the flow table, and frees what it holds.
    fn unlink(&mut self, slot: u32) {
        self.remove_flows(slot);
        let entry = self.slots.get_mut(slot as usize);
        let Some(association) = entry.and_then(|entry| entry.association.as_mut()) else { return };
        if association.state != State::Closed {
            association.state = State::Closed;
            association.init_ack = None;
            association.outbound.clear(&mut self.shared.retained);
            association.timers = Timers::STOPPED;
            association.paths.stop();
            self.flows.remove(association.hash, slot);
            self.shared.wheel.disarm(slot);
        }
    }
}

/// Returns an association while the id is valid.
fn association_of<F>(slots: &mut [Slot<F>], id: ConnId) -> Option<&mut Association<F>> {
    let slot = slots.get_mut(id.slot as usize).filter(|slot| slot.generation == id.generation)?;
    slot.association.as_mut()
}

/// Returns a path of SCTP, whose packets are encapsulated in UDP to this port of the peer. 0: they
/// are not.
fn encapsulated(mut path: Path, udp_port: u16) -> Path {
    path.set_transport(TransportProtocol::SCTP, udp_port);
    path
}
