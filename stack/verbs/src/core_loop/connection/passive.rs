//! Incoming connections until a queue pair takes them over: listening, the MPA request, accept and reject.
//!
//! ```text
//! TCP up --> AwaitingRequest --whole request--> Asked (the context decides) --accept--> a queue pair's
//!                                            `--reject--> SendingReject --reply out, FIN--> gone
//! ```
//! Their number is bounded, and so is the time that each may take, so that half-open start-ups cannot exhaust us
//! (RFC 5042 s6.4.1). When all places are taken, the host that has the most gives one up to a host that has fewer.

use core::net::{IpAddr, SocketAddr};

use super::half_open_by_host::HalfOpenByHost;
use super::setup::Setup;
use super::*;
use crate::core_loop::cores::InterCoreMessage;
use crate::core_loop::qp::Phase;
use ironwarp_iwarp::mpa::startup::{
    Decision, FrameBytes, Negotiated, Responder, ResponderParams, StartupFault, StartupFrameSource,
    responder::Progress,
};
use ironwarp_tcp::{ByteStream, ListenerId, UnitSource};

use crate::channel::Notification;
use crate::context::{CmParams, MpaParams};
use crate::event::{ConnectFailure, ConnectionRequest, Event, MpaRequestInfo, PrivateData};

/// Where an incoming connection is.
#[expect(clippy::large_enum_variant, reason = "a box would be allocated on the core")]
enum PassiveState {
    /// Its request is awaited.
    AwaitingRequest(Responder),
    /// The context was asked and has not answered.
    AwaitingDecision(Decision),
    /// The refusal is on its way.
    SendingReject(StartupFrameSource),
    /// Our FIN is on its way.
    Closing,
}

/// An incoming connection that has no queue pair.
pub(in crate::core_loop) struct Passive {
    pub(in crate::core_loop) conn: ConnId,
    pub(in crate::core_loop) tx_queued: bool,
    state: PassiveState,
    host: IpAddr,
    context: u16,
    generation: u32,
}

impl UnitSource for Passive {
    fn fill(&mut self, room: &mut [u8]) -> usize {
        match &mut self.state {
            PassiveState::SendingReject(frame) => frame.fill(room),
            PassiveState::AwaitingRequest(_) | PassiveState::AwaitingDecision(_) | PassiveState::Closing => 0,
        }
    }
}

/// A listening address and the context that asked for it.
struct Listener {
    id: ListenerId,
    local: SocketAddr,
    context: u16,
}

/// Incoming connections, by place, and who listens.
pub(in crate::core_loop) struct PassiveTable {
    slots: Box<[Option<Passive>]>,
    free: Vec<u32>,
    half_open_by_host: HalfOpenByHost,
    /// Counts up at every arrival: tells an answer to an earlier occupant of a place from one to this one.
    generation: u32,
    listeners: Vec<Listener>,
}

impl PassiveTable {
    pub(in crate::core_loop) fn new(capacity: u32, listeners: u32) -> Self {
        PassiveTable {
            slots: (0..capacity).map(|_| None).collect(),
            free: (0..capacity).rev().collect(),
            half_open_by_host: HalfOpenByHost::new(capacity),
            generation: 0,
            listeners: Vec::with_capacity(listeners as usize),
        }
    }

    pub(in crate::core_loop) fn at(&mut self, slot: u32) -> Option<&mut Passive> {
        self.slots.get_mut(slot as usize)?.as_mut()
    }

    pub(in crate::core_loop) fn capacity(&self) -> u32 {
        self.slots.len() as u32
    }

    /// Incoming connections that there are.
    pub(in crate::core_loop) fn count(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    /// Listening addresses that there are.
    pub(in crate::core_loop) fn listeners(&self) -> usize {
        self.listeners.len()
    }

    fn insert(&mut self, conn: ConnId, host: IpAddr, context: u16, responder: Responder) -> Option<u32> {
        let slot = self.free.pop()?;
        self.half_open_by_host.add(host);
        self.generation = self.generation.wrapping_add(1);
        let passive = Passive {
            conn,
            tx_queued: false,
            state: PassiveState::AwaitingRequest(responder),
            host,
            context,
            generation: self.generation,
        };
        *self.slots.get_mut(slot as usize)? = Some(passive);
        Some(slot)
    }

    fn remove(&mut self, slot: u32) -> Option<Passive> {
        let passive = self.slots.get_mut(slot as usize)?.take()?;
        self.free.push(slot);
        self.half_open_by_host.remove(passive.host);
        Some(passive)
    }

    /// Who gives a place up to `host` when all are taken: of the host that has the most, and at least two more, the
    /// connection that has said nothing for longest, or the oldest where all have.
    #[cold]
    fn eviction_candidate(&self, host: IpAddr) -> Option<u32> {
        let largest = self.half_open_by_host.max_count();
        if largest < self.half_open_by_host.count(host) + 2 {
            return None;
        }
        let of_largest = |(slot, entry): (usize, &Option<Passive>)| {
            let passive =
                entry.as_ref().filter(|passive| self.half_open_by_host.count(passive.host) == largest)?;
            let silent = matches!(passive.state, PassiveState::AwaitingRequest(_));
            Some(((silent, self.generation.wrapping_sub(passive.generation)), slot as u32))
        };
        self.slots.iter().enumerate().filter_map(of_largest).max().map(|(_, slot)| slot)
    }

    /// How to answer a request that still waits for its answer.
    fn pending_decision(&mut self, (slot, generation): (u32, u32)) -> Option<Decision> {
        let passive = self.at(slot).filter(|passive| passive.generation == generation)?;
        if let PassiveState::AwaitingDecision(decision) = &passive.state { Some(*decision) } else { None }
    }
}

impl<P: Port, C: Clock> CoreLoop<P, C> {
    /// A context takes connections for an address.
    pub(in crate::core_loop) fn listen(&mut self, context: u16, local: SocketAddr) {
        match self.tcp.listen(local) {
            Ok(id) => {
                self.passives.listeners.push(Listener { id, local, context });
                self.broadcast(InterCoreMessage::Listen { context, local });
            }
            Err(_) => self.send_event(context, Event::ListenFailed { local }),
        }
    }

    pub(in crate::core_loop) fn unlisten(&mut self, context: u16, local: SocketAddr) {
        self.remove_listener(context, local);
        self.broadcast(InterCoreMessage::Unlisten { context, local });
    }

    /// The core that leads listens for an address, and so does this one: what is taken there is taken here.
    pub(in crate::core_loop) fn add_listener(&mut self, context: u16, local: SocketAddr) {
        let listener = self.tcp.listen(local);
        debug_assert!(listener.is_ok(), "all cores have the same listeners");
        if let Ok(id) = listener {
            self.passives.listeners.push(Listener { id, local, context });
        }
    }

    pub(in crate::core_loop) fn remove_listener(&mut self, context: u16, local: SocketAddr) {
        self.remove_listeners(|listener| listener.context == context && listener.local == local);
    }

    pub(in crate::core_loop) fn close_listeners(&mut self, context: u16) {
        self.remove_listeners(|listener| listener.context == context);
    }

    fn remove_listeners(&mut self, which: impl Fn(&Listener) -> bool) {
        for listener in self.passives.listeners.extract_if(.., |listener| which(listener)) {
            self.tcp.unlisten(listener.id);
        }
    }

    /// A peer's TCP connection is up.
    #[cold]
    #[inline(never)]
    pub(in crate::core_loop) fn on_incoming_connection(
        &mut self,
        now: Nanos,
        conn: ConnId,
        events: TcpEvents,
    ) {
        let listener = self.tcp.listener(conn);
        let context =
            self.passives.listeners.iter().find(|one| Some(one.id) == listener).map(|one| one.context);
        let responder = Responder::new(self.mpa.crc, self.mpa.markers);
        let slot = context.and_then(|context| self.insert_passive(now, conn, context, responder));
        let Some(slot) = slot else {
            self.stats.count(Counter::VerbsHalfOpenDropped);
            self.tcp.abort(now, conn, &mut self.wire);
            return self.tcp.release(conn);
        };
        self.set_owner(conn, ConnOwner::Passive(slot));
        self.arm_passive(slot, now + self.mpa.startup_timeout());
        self.on_passive_events(now, slot, conn, events);
    }

    /// A place for a new connection, of which somebody may have to be displaced.
    fn insert_passive(
        &mut self,
        now: Nanos,
        conn: ConnId,
        context: u16,
        responder: Responder,
    ) -> Option<u32> {
        let host = self.tcp.flow(conn)?.remote.ip();
        if self.passives.free.is_empty() {
            let slot = self.passives.eviction_candidate(host)?;
            self.stats.count(Counter::VerbsHalfOpenEvicted);
            self.abort_passive(now, slot);
        }
        self.passives.insert(conn, host, context, responder)
    }

    #[cold]
    #[inline(never)]
    pub(in crate::core_loop) fn on_passive_events(
        &mut self,
        now: Nanos,
        slot: u32,
        conn: ConnId,
        events: TcpEvents,
    ) {
        if events.contains(TcpEvents::READABLE) {
            self.on_request_bytes(now, slot, conn);
        }
        if events.intersects(TcpEvents::WRITABLE | TcpEvents::RETRANSMIT) {
            self.enqueue_tx(TxSource::Passive(slot));
        }
        if events.intersects(TcpEvents::ENDED) {
            self.release_passive(slot, conn);
        } else if events.contains(TcpEvents::PEER_CLOSED) {
            self.on_passive_peer_closed(now, slot);
        }
    }

    fn on_request_bytes(&mut self, now: Nanos, slot: u32, conn: ConnId) {
        let Some(passive) = self.passives.at(slot) else { return };
        let responder = match &passive.state {
            PassiveState::AwaitingRequest(responder) => responder,
            PassiveState::AwaitingDecision(_) => {
                return self.on_bad_request(now, slot, StartupFault::TrailingBytes);
            }
            // Nothing behind a refusal is wanted.
            PassiveState::SendingReject(_) | PassiveState::Closing => {
                return self.tcp.rx(conn).consume(usize::MAX);
            }
        };
        match responder.on_bytes(&mut self.tcp.rx(conn)) {
            Progress::NeedMore => {}
            Progress::Request { private_data, decision } if self.may_report_request(slot, &private_data) => {
                self.report_connect_request(slot, decision, private_data);
            }
            Progress::Request { .. } => {
                self.stats.count(Counter::VerbsHalfOpenDropped);
                self.abort_passive(now, slot);
            }
            Progress::Fault(fault) => self.on_bad_request(now, slot, fault),
        }
    }

    /// RFC 5044 s8, code 4: a start-up fault closes without a Terminate. Octets behind the request are one, whether they
    /// come with it or later: nothing may come before our answer.
    #[cold]
    fn on_bad_request(&mut self, now: Nanos, slot: u32, fault: StartupFault) {
        self.stats.count(fault.counter());
        self.abort_passive(now, slot);
    }

    /// Whether a context can be asked: it keeps up with what it was told, and the peer says no more than is accepted. A
    /// peer that asks and leaves, again and again, must not fill our memory with questions.
    fn may_report_request(&mut self, slot: u32, private_data: &PrivateData) -> bool {
        let limit = usize::from(self.shared.config.limits.private_data_bytes);
        let context = self.passives.at(slot).map(|passive| usize::from(passive.context));
        let link = context.and_then(|context| self.contexts.get(context)).and_then(Option::as_ref);
        private_data.len() <= limit && link.is_some_and(|link| !link.has_delayed())
    }

    fn report_connect_request(&mut self, slot: u32, decision: Decision, private_data: PrivateData) {
        let Some(passive) = self.passives.at(slot) else { return };
        let Some(flow) = self.tcp.flow(passive.conn) else { return };
        passive.state = PassiveState::AwaitingDecision(decision);
        let enhanced = decision.peer_enhanced();
        let mpa_request = MpaRequestInfo {
            revision: decision.revision(),
            peer_reads: enhanced.map(|enhanced| enhanced.reads),
            peer_to_peer: enhanced.is_some_and(|enhanced| enhanced.peer_to_peer),
        };
        let (core, generation, enhanced) = (self.core, passive.generation, enhanced.is_some());
        let request = ConnectionRequest { core, slot, generation, enhanced };
        let (context, local, remote) = (passive.context, flow.local, flow.remote);
        self.send_event(context, Event::ConnectRequest { request, local, remote, private_data, mpa_request });
    }

    /// The context binds a request to a queue pair.
    pub(in crate::core_loop) fn accept(
        &mut self,
        now: Nanos,
        request: (u32, u32),
        slot: u32,
        cm_params: Box<CmParams>,
    ) {
        let reply = self.accept_reply(request, slot, &cm_params);
        let Some(qp) = self.qps.at(slot) else { return };
        let context = qp.context;
        self.send_notification(context, Notification::CmParamsReturned(cm_params));
        let passive = reply.and_then(|reply| Some((reply, self.remove_passive(request.0)?)));
        let Some(((frame, agreed), passive)) = passive else {
            // The peer has gone, or start-up took too long.
            return self.fail_connect(now, slot, ConnectFailure::Closed);
        };
        self.attach_conn(slot, passive.conn);
        if let Some(qp) = self.qps.at(slot) {
            qp.enter(Phase::Setup(Setup::Replying { frame, agreed }));
        }
        self.arm_qp(slot, now + self.mpa.startup_timeout());
        self.enqueue_tx(TxSource::Qp(slot));
    }

    /// The Reply Frame that accepts a request with the queue pair at `slot`.
    fn accept_reply(
        &mut self,
        request: (u32, u32),
        slot: u32,
        cm_params: &CmParams,
    ) -> Option<(StartupFrameSource, Negotiated)> {
        let MpaParams { reads, rtr, .. } = cm_params.mpa_params;
        let reads = reads.unwrap_or(self.qps.at(slot)?.reads);
        let answer = ResponderParams { reads, rtr: rtr.unwrap_or(self.mpa.rtr()) };
        let (frame, agreed) =
            self.passives.pending_decision(request)?.accept(answer, &cm_params.private_data).ok()?;
        Some((StartupFrameSource::new(frame), agreed))
    }

    /// The context refuses a request.
    pub(in crate::core_loop) fn reject(
        &mut self,
        now: Nanos,
        context: u16,
        request: (u32, u32),
        cm_params: Box<CmParams>,
    ) {
        let wanted = cm_params.mpa_params.reads.unwrap_or_default();
        let reply = self.passives.pending_decision(request);
        let reply = reply.and_then(|decision| decision.reject(wanted, &cm_params.private_data).ok());
        if let Some(reply) = reply {
            self.send_reject(now, request.0, reply);
        }
        self.send_notification(context, Notification::CmParamsReturned(cm_params));
    }

    fn send_reject(&mut self, now: Nanos, slot: u32, reply: FrameBytes) {
        if let Some(passive) = self.passives.at(slot) {
            passive.state = PassiveState::SendingReject(StartupFrameSource::new(reply));
        }
        self.arm_passive(slot, now + self.mpa.terminate_timeout());
        self.enqueue_tx(TxSource::Passive(slot));
    }

    /// After a turn at sending: a refusal that TCP has pulled whole is followed by FIN.
    pub(in crate::core_loop) fn close_after_reject(&mut self, now: Nanos, slot: u32) {
        let Some(passive) = self.passives.at(slot) else { return };
        let conn = passive.conn;
        if matches!(&passive.state, PassiveState::SendingReject(frame) if frame.is_done()) {
            // The place and its timer stay until the connection is over, so that those who close are bounded too.
            passive.state = PassiveState::Closing;
            let events = self.tcp.close(now, conn, &mut self.wire);
            if events.intersects(TcpEvents::ENDED) {
                self.release_passive(slot, conn);
            }
        }
    }

    /// The peer's FIN: an answer to ours, or the end of its asking.
    fn on_passive_peer_closed(&mut self, now: Nanos, slot: u32) {
        let Some(passive) = self.passives.at(slot) else { return };
        if matches!(passive.state, PassiveState::AwaitingRequest(_) | PassiveState::AwaitingDecision(_)) {
            self.abort_passive(now, slot);
        }
    }

    /// Start-up took too long.
    pub(in crate::core_loop) fn on_passive_timer(&mut self, now: Nanos, slot: u32) {
        let Some(passive) = self.passives.at(slot) else { return };
        if matches!(passive.state, PassiveState::AwaitingRequest(_) | PassiveState::AwaitingDecision(_)) {
            self.stats.count(Counter::VerbsStartupTimeouts);
        }
        self.abort_passive(now, slot);
    }

    fn abort_passive(&mut self, now: Nanos, slot: u32) {
        if let Some(passive) = self.remove_passive(slot) {
            self.set_owner(passive.conn, ConnOwner::Unowned);
            self.tcp.abort(now, passive.conn, &mut self.wire);
            self.tcp.release(passive.conn);
        }
    }

    /// Drops the incoming connections that wait for a context that is gone.
    #[cold]
    pub(in crate::core_loop) fn abort_passives_of(&mut self, now: Nanos, context: u16) {
        for slot in 0..self.passives.slots.len() as u32 {
            if self.passives.at(slot).is_some_and(|passive| passive.context == context) {
                self.abort_passive(now, slot);
            }
        }
    }

    fn release_passive(&mut self, slot: u32, conn: ConnId) {
        self.remove_passive(slot);
        self.set_owner(conn, ConnOwner::Unowned);
        self.tcp.release(conn);
    }

    /// Frees a place and its timer.
    fn remove_passive(&mut self, slot: u32) -> Option<Passive> {
        self.arm_passive(slot, Nanos::MAX);
        let passive = self.passives.remove(slot)?;
        if passive.tx_queued {
            self.tx_ready.retain(|source| *source != TxSource::Passive(slot));
        }
        Some(passive)
    }
}
