//! The state of an association (RFC 9260 s4 and s14.2).

use arrayvec::ArrayVec;
use core::net::IpAddr;

use ironwarp_llp::{ConnId, ListenerId};
use ironwarp_net::{Packet, Path};
use ironwarp_port::{Frame, Port};
use ironwarp_stats::Counter;
use ironwarp_types::{Flow, Nanos, Seq};

use crate::SctpConfig;
use crate::engine::ROUTE_INTERVAL;
use crate::inbound::Inbound;
use crate::message::UpperLayer;
use crate::outbound::Outbound;
use crate::output::{Io, Replies, Route, write_unrecognized};
use crate::packet::{CauseCode, Chunk, ChunkType, Init, InitFixed, PacketView, Parameter, Tlvs};
use crate::paths::{PATHS_MAX, PathId, PathState, Paths};

/// The states of RFC 9260 s4.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum State {
    /// INIT is sent.
    CookieWait,
    /// COOKIE ECHO is sent.
    CookieEchoed,
    /// Set up.
    Established,
    /// The user has closed, and messages are not acknowledged.
    ShutdownPending,
    /// The peer has closed, and messages are not acknowledged.
    ShutdownReceived,
    /// SHUTDOWN is sent.
    ShutdownSent,
    /// SHUTDOWN ACK is sent.
    ShutdownAckSent,
    /// Ended, and not yet released.
    Closed,
}

impl State {
    /// Returns whether set-up is not complete.
    pub(crate) fn is_set_up(self) -> bool {
        matches!(self, State::CookieWait | State::CookieEchoed)
    }

    /// RFC 9260 s6: returns whether chunks may be sent again, and SACKs count.
    pub(crate) fn may_send_again(self) -> bool {
        matches!(self, State::Established | State::ShutdownPending | State::ShutdownReceived)
    }

    /// RFC 9260 s6: returns whether DATA counts.
    pub(crate) fn may_receive(self) -> bool {
        matches!(self, State::Established | State::ShutdownPending | State::ShutdownSent)
    }

    /// Returns whether a timer runs: T1-init, T1-cookie or T2-shutdown.
    pub(crate) fn has_timer(self) -> bool {
        self.is_set_up() || matches!(self, State::ShutdownSent | State::ShutdownAckSent)
    }
}

pub(crate) struct Association<F> {
    pub(crate) state: State,
    pub(crate) id: ConnId,
    pub(crate) flow: Flow,
    pub(crate) hash: u32,
    pub(crate) paths: Paths,
    /// The addresses of the peer: that of the set-up, and those that it has listed.
    pub(crate) remotes: ArrayVec<IpAddr, PATHS_MAX>,
    /// How long addresses without a route wait next.
    pub(crate) route_interval: Nanos,
    /// The path that DATA arrived on last.
    pub(crate) data_from: PathId,
    /// The listener of an association that the peer opened.
    pub(crate) listener: Option<ListenerId>,
    /// What our INIT or INIT ACK announced.
    pub(crate) local: InitFixed,
    /// What the peer's announced. All zero in COOKIE-WAIT.
    pub(crate) peer: InitFixed,
    /// The peer's adaptation layer indication.
    pub(crate) adaptation_code_point: Option<u32>,
    /// In COOKIE-ECHOED: the INIT ACK, whose cookie may have to be sent again.
    pub(crate) init_ack: Option<Packet<F>>,
    /// Retransmissions in this state.
    pub(crate) tries: u8,
    pub(crate) rto: Nanos,
    pub(crate) inbound: Inbound,
    pub(crate) outbound: Outbound,
    pub(crate) timers: Timers,
}

/// When the timers of an association expire, without those of its paths. [`Nanos::MAX`]: not.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Timers {
    /// T1-init, T1-cookie or T2-shutdown.
    pub(crate) state: Nanos,
    /// SACK.Delay.
    pub(crate) ack: Nanos,
    /// T5-shutdown-guard.
    pub(crate) guard: Nanos,
    /// The next request for the routes of addresses without one.
    pub(crate) routes: Nanos,
}

impl Timers {
    pub(crate) const STOPPED: Timers =
        Timers { state: Nanos::MAX, ack: Nanos::MAX, guard: Nanos::MAX, routes: Nanos::MAX };

    /// Returns when the next one expires.
    fn next(&self) -> Nanos {
        self.state.min(self.ack).min(self.guard).min(self.routes)
    }
}

impl<F: Frame> Association<F> {
    /// Returns an association in COOKIE-WAIT. `insert` gives it its id.
    pub(crate) fn new(
        flow: Flow,
        hash: u32,
        path: Path,
        listener: Option<ListenerId>,
        local: InitFixed,
        config: &SctpConfig,
    ) -> Self {
        Association {
            inbound: Inbound::new(Seq(0), local.a_rwnd, 0),
            outbound: Outbound::new(local.initial_tsn, 0, config),
            state: State::CookieWait,
            id: ConnId { slot: 0, generation: 0 },
            flow,
            hash,
            paths: Paths::new(path, config),
            remotes: ArrayVec::from_iter([flow.remote.ip()]),
            route_interval: ROUTE_INTERVAL,
            data_from: 0,
            listener,
            local,
            peer: InitFixed::default(),
            adaptation_code_point: None,
            init_ack: None,
            tries: 0,
            rto: Nanos::ZERO,
            timers: Timers::STOPPED,
        }
    }

    /// RFC 9260 s8.5 and s8.5.1: returns whether a packet with this tag is of this association.
    /// With the T bit the tag is the one that we send.
    pub(crate) fn accepts_tag(&self, tag: u32, reflected: bool) -> bool {
        tag != 0 && tag == if reflected { self.peer.tag } else { self.local.tag }
    }

    /// Returns whether a flow is one of this association: between any of the addresses.
    pub(crate) fn has_flow(&self, flow: &Flow, own_addresses: &[IpAddr]) -> bool {
        let is_own = |addr: IpAddr| addr == self.flow.local.ip() || own_addresses.contains(&addr);
        self.flow.same_as(flow)
            || !own_addresses.is_empty()
                && self.flow.ports() == flow.ports()
                && self.remotes.contains(&flow.remote.ip())
                && is_own(flow.local.ip())
    }

    /// Returns whether the peer is known to have an address.
    pub(crate) fn is_confirmed(&self, remote: IpAddr) -> bool {
        let path = self.paths.find(remote).map(|id| self.paths.at(id));
        path.is_some_and(|path| path.state != PathState::Unconfirmed)
    }

    /// Returns whether there is an address of the peer without a route.
    pub(crate) fn has_unrouted(&self) -> bool {
        self.remotes.iter().any(|remote| self.paths.find(*remote).is_none())
    }

    /// Enters a state, sends its chunk, and starts its timer.
    pub(crate) fn enter<P: Port<Frame = F>>(&mut self, state: State, io: &mut Io<'_, P>) {
        // RFC 9260 s9.2: T2-shutdown follows the rules of s6.3.
        (self.state, self.tries, self.rto) = (state, 0, self.paths.current().rtt.rto());
        // RFC 9260 s8.3: from ESTABLISHED until SHUTDOWN or SHUTDOWN ACK.
        match state {
            State::Established => self.start_heartbeats(io),
            _ => self.paths.stop_heartbeats(),
        }
        if state == State::ShutdownSent {
            // RFC 9260 s9.2: five times RTO.Max.
            self.timers.guard = io.now + io.shared.config.rto_max.times(5);
        }
        self.send_of_state(io);
        self.start_state_timer(io);
    }

    /// The timer of the state expired: doubles the timeout and sends the chunk again
    /// (RFC 9260 s6.3.3, rule E2).
    pub(crate) fn send_again<P: Port<Frame = F>>(&mut self, io: &mut Io<'_, P>) {
        self.tries = self.tries.saturating_add(1);
        // RFC 9260 s6.4: over another path if there is one. These states have no HEARTBEATs.
        self.paths.on_error(self.paths.current_id(), io.now, &io.shared.config);
        self.paths.stop_heartbeats();
        self.rto = self.rto.times(2).min(io.shared.config.rto_max);
        self.send_of_state(io);
        self.start_state_timer(io);
    }

    fn start_state_timer<P: Port<Frame = F>>(&mut self, io: &mut Io<'_, P>) {
        self.timers.state = if self.state.has_timer() { io.now + self.rto } else { Nanos::MAX };
        self.arm(io);
    }

    /// Arms the wheel for the timer that expires next.
    pub(crate) fn arm<P: Port<Frame = F>>(&self, io: &mut Io<'_, P>) {
        io.shared.wheel.arm(self.id.slot, self.next_deadline());
    }

    /// Returns when the next timer expires.
    pub(crate) fn next_deadline(&self) -> Nanos {
        self.timers.next().min(self.paths.next_deadline())
    }

    /// RFC 9260 s9.2: a packet of the peer arrived while it may have DATA to send: T2-shutdown
    /// starts again. Its DATA is answered with SHUTDOWN at once.
    pub(crate) fn on_packet_in_shutdown_sent<P: Port<Frame = F>>(
        &mut self,
        io: &mut Io<'_, P>,
        has_data: bool,
    ) {
        (self.tries, self.rto) = (0, self.paths.current().rtt.rto());
        if has_data {
            self.send_of_state(io);
        }
        self.start_state_timer(io);
    }

    /// Returns the number of streams that the peer may send on.
    pub(crate) fn inbound_streams(&self) -> u16 {
        self.peer.outbound_streams.min(self.local.inbound_streams)
    }

    /// RFC 9260 s5.2.4, action B: returns whether a cookie may bring another tag of the peer.
    pub(crate) fn may_change_tag(&self) -> bool {
        let has_data = self.inbound.has_received(self.peer.initial_tsn)
            || self.outbound.has_sent(self.local.initial_tsn);
        self.state.is_set_up() || self.state == State::Established && !has_data
    }

    /// Takes what the peer's INIT or INIT ACK announces.
    pub(crate) fn set_peer(&mut self, peer: InitFixed, config: &SctpConfig) {
        self.peer = peer;
        self.inbound = Inbound::new(peer.initial_tsn, self.local.a_rwnd, config.held_messages_reserve);
        self.outbound = Outbound::new(self.local.initial_tsn, peer.a_rwnd, config);
        self.paths.reset(config);
    }

    /// Takes the round trip of the set-up: the first loss need not wait for RTO.Initial. One in
    /// which something was sent again takes longer than that, and is none (RFC 9260 s6.3.1, C5).
    pub(crate) fn sample_set_up(&mut self, rtt: Nanos, config: &SctpConfig) {
        if (Nanos(1)..config.rto_initial).contains(&rtt) {
            self.paths.current_mut().rtt.sample(rtt, config.rto_min);
        }
    }

    /// Returns the time since the chunk of this state was sent for the first time, if it was sent
    /// once.
    pub(crate) fn time_in_state(&self, now: Nanos) -> Nanos {
        let left = self.timers.state.since(now);
        if self.tries == 0 { Nanos(self.rto.0.saturating_sub(left.0)) } else { Nanos::MAX }
    }

    /// Returns where packets to the peer go.
    pub(crate) fn route(&self) -> Route<'_> {
        self.route_of(self.paths.current_id())
    }

    /// Returns where packets over a path go.
    pub(crate) fn route_of(&self, id: PathId) -> Route<'_> {
        let path = self.paths.at(id);
        let route = Route::new(&path.route, self.flow.ports(), self.peer.tag);
        Route { mtu_bytes: path.mtu_bytes(), ..route }
    }

    /// RFC 9260 s6.4: returns where a SACK goes: where the DATA came from, if that path works.
    pub(crate) fn route_of_sack(&self) -> Route<'_> {
        match self.paths.at(self.data_from).state {
            PathState::Active => self.route_of(self.data_from),
            _ => self.route(),
        }
    }

    /// Returns the path that a packet from an address arrived on: the current one while the address
    /// has no route.
    pub(crate) fn path_from(&self, remote: IpAddr) -> PathId {
        let found = if self.paths.are_several() { self.paths.find(remote) } else { None };
        found.unwrap_or(self.paths.current_id())
    }

    /// RFC 9260 s6.4: answers a packet on the path that it arrived on, and s5.4: on one that is not
    /// confirmed only a HEARTBEAT.
    pub(crate) fn reply<P: Port<Frame = F>>(
        &mut self,
        io: &mut Io<'_, P>,
        mut replies: Replies<'_>,
        from: PathId,
    ) {
        if self.paths.at(from).state != PathState::Unconfirmed {
            return replies.send(io, self.route_of(from));
        }
        let heartbeat = replies.heartbeat.take();
        Replies { heartbeat, ..Replies::default() }.send(io, self.route_of(from));
        replies.send(io, self.route());
    }

    /// A path did not answer.
    pub(crate) fn on_path_error<P: Port<Frame = F>>(
        &mut self,
        io: &mut Io<'_, P>,
        id: PathId,
        user: &mut impl UpperLayer,
    ) {
        let changed = self.paths.on_error(id, io.now, &io.shared.config);
        self.report_path(io, id, changed, user);
    }

    /// A path answers.
    pub(crate) fn on_path_answer<P: Port<Frame = F>>(
        &mut self,
        io: &mut Io<'_, P>,
        id: PathId,
        user: &mut impl UpperLayer,
    ) {
        let changed = self.paths.on_answer(id);
        self.report_path(io, id, changed, user);
    }

    /// RFC 9260 s8.2: the user learns of a path that fails or returns.
    fn report_path<P: Port<Frame = F>>(
        &mut self,
        io: &mut Io<'_, P>,
        id: PathId,
        changed: Option<PathState>,
        user: &mut impl UpperLayer,
    ) {
        let Some(state) = changed else { return };
        io.shared.count(match state {
            PathState::Active => Counter::SctpPathsUp,
            _ => Counter::SctpPathsDown,
        });
        user.path(self.id, self.paths.at(id).route.remote_addr(), state);
    }

    /// Sends what the peer must answer for the state to end. Without a buffer the timer sends it.
    pub(crate) fn send_of_state<P: Port<Frame = F>>(&mut self, io: &mut Io<'_, P>) {
        match self.state {
            State::CookieWait => {
                // RFC 9260 s8.5.1: an INIT has tag 0, which is the peer's until INIT ACK.
                io.send_init(self.route(), ChunkType::INIT, &self.local, |_| {});
            }
            State::CookieEchoed => self.send_cookie(io),
            State::ShutdownSent => self.send_shutdown(io),
            State::ShutdownAckSent => {
                io.send(self.route(), |packet| {
                    packet.chunk(ChunkType::SHUTDOWN_ACK, 0, |_| {});
                });
            }
            _ => {}
        }
    }

    /// RFC 9260 s9.2: SHUTDOWN has the cumulative TSN. A SACK before it has what else arrived.
    fn send_shutdown<P: Port<Frame = F>>(&mut self, io: &mut Io<'_, P>) {
        let a_rwnd = self.a_rwnd(io.shared.config.a_rwnd_bytes);
        let inbound = &self.inbound;
        let cum_tsn_ack = inbound.cum_tsn().0.to_be_bytes();
        io.send(self.route(), |packet| {
            if inbound.needs_sack() {
                inbound.write_sack(packet, a_rwnd);
            }
            packet.chunk(ChunkType::SHUTDOWN, 0, |chunk| chunk.put(&cum_tsn_ack));
        });
        self.on_ack_sent(io, a_rwnd);
    }

    /// RFC 9260 s5.1 and s3.2.2: COOKIE ECHO comes first, and then what is to be reported of the
    /// INIT ACK.
    fn send_cookie<P: Port>(&self, io: &mut Io<'_, P>) {
        let Some((cookie, init)) = self.init_ack.as_ref().and_then(|packet| cookie_of(packet.l4())) else {
            return;
        };
        io.send(self.route(), |packet| {
            packet.chunk(ChunkType::COOKIE_ECHO, 0, |chunk| chunk.put(cookie));
            if has_reports(init.parameters) {
                packet.chunk(ChunkType::ERROR, 0, |chunk| {
                    write_unrecognized(chunk, CauseCode::UNRECOGNIZED_PARAMETERS.0, init.parameters);
                });
            }
        });
    }
}

/// Returns the cookie of a packet with an INIT ACK.
pub(crate) fn cookie_of(packet: &[u8]) -> Option<(&[u8], Init<'_>)> {
    let Some(Chunk::InitAck(init)) = PacketView::parse(packet).ok()?.chunks().next()?.parse() else {
        return None;
    };
    let cookie = init.parameters.recognized().find_map(|parameter| match parameter {
        Some(Parameter::StateCookie(cookie)) => Some(cookie),
        _ => None,
    });
    Some((cookie?, init))
}

fn has_reports(parameters: Tlvs<'_>) -> bool {
    let mut list = parameters.recognized().flatten();
    list.any(|parameter| matches!(parameter, Parameter::Unrecognized(_, action) if action.reports))
}
