//! INIT, INIT ACK and COOKIE ECHO, for new associations and for those that exist.
//!
//! An INIT is answered and forgotten; the cookie in the INIT ACK holds the state. Source: RFC 9260
//! s3.3.2, s3.3.3, s5.1 and s5.2.
//!
//! An INIT cannot add an address to an association (s5.2.2).

use core::net::IpAddr;

use ironwarp_llp::Events;
use ironwarp_net::{Packet, Path};
use ironwarp_port::{Port, Wires};
use ironwarp_stats::Counter;
use ironwarp_types::{Flow, Nanos};

use super::{Addresses, Sctp};
use crate::association::{Association, State, cookie_of};
use crate::config::A_RWND_BYTES_MIN;
use crate::cookie::Cookie;
use crate::message::UpperLayer;
use crate::output::{Io, Replies, Route, write_unrecognized};
use crate::packet::{
    CauseCode, Chunk, ChunkType, Init, InitFixed, PacketView, Parameter, ParameterType, RawChunk,
};

impl<P: Port> Sctp<P> {
    /// RFC 9260 s5.1 B, s5.2.1 and s5.2.2: answers an INIT. No state changes.
    pub(super) fn on_init(
        &mut self,
        now: Nanos,
        chunk: RawChunk<'_>,
        arrived: &Packet<P::Frame>,
        path: impl FnOnce() -> Path,
        wires: &mut Wires<P>,
    ) {
        let flow = &arrived.flow;
        // RFC 9260 s3.3.2: tag 0 is silently discarded.
        let Some(Chunk::Init(init @ Init { fixed: InitFixed { tag: 1.., .. }, .. })) = chunk.parse() else {
            return self.shared.count(Counter::SctpDropBadChunk);
        };
        let path = path();
        let route = Route::new(&path, flow.ports(), init.fixed.tag);
        if let Some(cause) = refusal(&init) {
            self.shared.count(Counter::SctpDropBadChunk);
            return self.refuse(now, route, cause, wires);
        }
        let addresses = self.addresses_of(flow.remote.ip(), &init);
        let found = self.owner_of(flow, &addresses);
        let known = found.and_then(|slot| self.in_slot(slot));
        let state = known.map(|known| known.state);
        let added = known.map(|known| added(known, &addresses)).unwrap_or_default();
        if !added.is_empty() {
            self.shared.count(Counter::SctpDropBadChunk);
            let mut io = Io { now, wires, shared: &mut self.shared };
            if io.may_reply() {
                io.send_new_addresses(route, &added);
            }
            return;
        }
        if found.is_none() && self.listener_of(flow.local).is_none() {
            self.shared.count(Counter::SctpDropNoAssociation);
            return self.refuse(now, route, None, wires);
        }
        // RFC 9260 s9.2: the SHUTDOWN COMPLETE was lost.
        if state == Some(State::ShutdownAckSent) {
            let known = found.and_then(|slot| self.association_and_io(slot, now, wires));
            return known.into_iter().for_each(|(known, mut io)| known.send_of_state(&mut io));
        }
        // RFC 9260 s5.2.1: in set-up only the address that our user has named is answered. Anybody
        // may list it.
        let set_up = known.filter(|known| known.state.is_set_up());
        let (flow, path) = match set_up.map(|known| (known.flow, known.paths.current().route.clone())) {
            Some((named, _)) if !named.same_as(flow) && !self.shared.may_reply(now) => return,
            Some(answered) => answered,
            None => (*flow, path.clone()),
        };
        let (local, tie) = self.init_ack_of(found);
        let mut io = Io { now, wires, shared: &mut self.shared };
        // RFC 9260 s3.3.3: no more streams than the peer accepts.
        let outbound_streams = local.outbound_streams.min(init.fixed.inbound_streams);
        let cookie = Cookie {
            expires_at: now + io.shared.config.cookie_life,
            tie,
            local: InitFixed { outbound_streams, ..local },
            peer: init.fixed,
            adaptation_code_point: adaptation_code_point(&init),
            others: addresses.into_iter().filter(|addr| *addr != flow.remote.ip()).collect(),
        };
        let octets = cookie.encode(&io.shared.secrets, &flow);
        let route = Route::new(&path, flow.ports(), init.fixed.tag);
        io.send_init(route, ChunkType::INIT_ACK, &cookie.local, |chunk| {
            chunk.tlv(ParameterType::STATE_COOKIE.0, |value| value.put(&octets));
            write_unrecognized(chunk, ParameterType::UNRECOGNIZED_PARAMETER.0, init.parameters);
        });
    }

    /// RFC 9260 s5.2.1 and s5.2.2: returns what an INIT ACK announces, and the tie-tags of its
    /// cookie, which are those of an association that exists.
    fn init_ack_of(&mut self, found: Option<u32>) -> (InitFixed, u64) {
        let known = found.and_then(|slot| self.in_slot(slot));
        match known.map(|known| (known.state, known.local, known.peer)) {
            None => (self.draw_init(), 0),
            Some((State::CookieWait, local, _)) => (local, 0),
            Some((state, local, peer)) => {
                let tie = self.shared.secrets.tie(local.tag, peer.tag);
                (if state == State::CookieEchoed { local } else { self.draw_init() }, tie)
            }
        }
    }

    /// Answers an INIT with an ABORT. RFC 9260 s8.4, rule 3: the tag is that of the INIT, without
    /// the T bit.
    fn refuse(&mut self, now: Nanos, route: Route<'_>, cause: Option<CauseCode>, wires: &mut Wires<P>) {
        let mut io = Io { now, wires, shared: &mut self.shared };
        if io.may_reply() {
            io.send_abort(route, false, cause);
        }
    }

    /// RFC 9260 s5.1 C: returns the cookie of an INIT ACK. It keeps the packet, which holds the
    /// cookie.
    pub(super) fn on_init_ack(
        &mut self,
        now: Nanos,
        slot: u32,
        arrived: Packet<P::Frame>,
        wires: &mut Wires<P>,
        user: &mut impl UpperLayer,
    ) {
        let Ok(view) = PacketView::parse(arrived.l4()) else { return };
        let mut chunks = view.chunks();
        let Some(Chunk::InitAck(init)) = chunks.next().and_then(RawChunk::parse) else {
            return self.shared.count(Counter::SctpDropBadChunk);
        };
        let addresses = self.addresses_of(arrived.flow.remote.ip(), &init);
        let Some((association, mut io)) = self.association_and_io(slot, now, wires) else { return };
        if !association.accepts_tag(view.tag, false) {
            return io.shared.count(Counter::SctpDropTag);
        }
        // RFC 9260 s5.2.3; s5.1: an INIT ACK is never bundled.
        if association.state != State::CookieWait || !chunks.rest().is_empty() {
            return io.shared.count(Counter::SctpDropUnexpectedChunk);
        }
        let route = Route { tag: init.fixed.tag, ..association.route() };
        // RFC 9260 s3.3.3: a small window changes no state.
        if init.fixed.a_rwnd < A_RWND_BYTES_MIN && init.fixed.tag != 0 {
            io.shared.count(Counter::SctpDropBadChunk);
            return io.send_abort(route, false, Some(CauseCode::INVALID_MANDATORY_PARAMETER));
        }
        let refusal = refusal(&init).or_else(|| match cookie_of(arrived.l4()) {
            None => Some(Some(CauseCode::MISSING_MANDATORY_PARAMETER)),
            Some((cookie, _)) => {
                (cookie.len() > cookie_bytes_max(&route)).then_some(Some(CauseCode::OUT_OF_RESOURCE))
            }
        });
        match refusal {
            // RFC 9260 s3.3.3: no tag to send to, so ours is reflected.
            _ if init.fixed.tag == 0 => io.send_abort(Route { tag: view.tag, ..route }, true, None),
            Some(cause) => io.send_abort(route, false, cause),
            None => {
                let rtt = association.time_in_state(io.now);
                association.set_peer(init.fixed, &io.shared.config);
                association.sample_set_up(rtt, &io.shared.config);
                association.adaptation_code_point = adaptation_code_point(&init);
                association.init_ack = Some(arrived);
                association.enter(State::CookieEchoed, &mut io);
                return self.set_addresses(slot, addresses);
            }
        }
        self.shared.count(Counter::SctpDropBadChunk);
        self.end(slot, Events::REFUSED, user);
    }

    /// RFC 9260 s5.1.5 and s5.2.4: opens the association of a cookie, or brings one that exists in
    /// line with it. Returns the association that the rest of the packet belongs to, and what the
    /// peer is to get.
    #[allow(clippy::too_many_arguments, reason = "the packet, its way back and the sink of events")]
    pub(super) fn on_cookie_echo(
        &mut self,
        now: Nanos,
        (chunk, tag): (RawChunk<'_>, u32),
        arrived: &Packet<P::Frame>,
        path: impl FnOnce() -> Path,
        wires: &mut Wires<P>,
        user: &mut impl UpperLayer,
    ) -> Option<(u32, Replies<'static>)> {
        let flow = &arrived.flow;
        let cookie = Cookie::decode(&self.shared.secrets, flow, chunk.value);
        let Some(cookie) = cookie.filter(|cookie| cookie.local.tag == tag) else {
            self.shared.count(Counter::SctpDropBadCookie);
            return None;
        };
        let found = self.owner_of(flow, &cookie.addresses(flow));
        let known = found.and_then(|slot| self.in_slot(slot));
        let (local, peer) = (known.map(|known| known.local.tag), known.map(|known| known.peer.tag));
        let (is_local, is_peer) = (local == Some(cookie.local.tag), peer == Some(cookie.peer.tag));
        let is_restart =
            known.is_some_and(|known| cookie.tie == self.shared.secrets.tie(known.local.tag, known.peer.tag));
        let state = known.map(|known| known.state);
        // The tags stay once a TSN of the peer has arrived.
        let may_change_tag = known.is_some_and(Association::may_change_tag);
        let replies = Replies { cookie_ack: true, ..Replies::default() };
        if now > cookie.expires_at && !(is_local && is_peer) {
            self.send_stale_cookie(now, &cookie, flow, &path(), wires);
            return None;
        }
        // RFC 9260 s5.2.4, table 12.
        match (found, is_local, is_peer) {
            (None, ..) => Some((self.accept(now, &cookie, arrived, path(), wires, user)?, replies)),
            // (D): the COOKIE ACK was lost, or both sides began at once.
            (Some(slot), true, true) => {
                if state == Some(State::CookieEchoed) {
                    self.establish(now, slot, wires, user);
                }
                Some((slot, replies))
            }
            // (B): both sides began at once, and the peer has another tag by now.
            (Some(slot), true, false) if may_change_tag => {
                let (known, mut io) = self.association_and_io(slot, now, wires)?;
                known.set_peer(cookie.peer, &io.shared.config);
                known.adaptation_code_point = cookie.adaptation_code_point;
                if state == Some(State::Established) {
                    known.start_heartbeats(&mut io);
                }
                self.set_addresses(slot, cookie.addresses(flow));
                match state {
                    Some(State::Established) => self.ask_for_routes(now, slot),
                    _ => self.establish(now, slot, wires, user),
                }
                Some((slot, replies))
            }
            // (A) while we wait for SHUTDOWN COMPLETE.
            (Some(slot), false, false) if is_restart && state == Some(State::ShutdownAckSent) => {
                let error = Some((CauseCode::COOKIE_RECEIVED_WHILE_SHUTTING_DOWN, &[][..]));
                Some((slot, Replies { shutdown_ack: true, error, ..Replies::default() }))
            }
            // (A): the peer has restarted. Its new association is another one for our user.
            (Some(slot), false, false) if is_restart => {
                self.shared.count(Counter::SctpRestarts);
                self.end(slot, Events::RESET, user);
                Some((self.accept(now, &cookie, arrived, path(), wires, user)?, replies))
            }
            // (C), and what the table does not show.
            _ => {
                self.shared.count(Counter::SctpDropBadCookie);
                None
            }
        }
    }

    /// Opens the association of a cookie. Without a listener or a free slot the peer gets an ABORT.
    fn accept(
        &mut self,
        now: Nanos,
        cookie: &Cookie,
        arrived: &Packet<P::Frame>,
        path: Path,
        wires: &mut Wires<P>,
        user: &mut impl UpperLayer,
    ) -> Option<u32> {
        let listener = self.listener_of(arrived.flow.local);
        let mut association = Association::new(
            arrived.flow,
            arrived.hash,
            path.clone(),
            listener,
            cookie.local,
            &self.shared.config,
        );
        association.set_peer(cookie.peer, &self.shared.config);
        let sent_at = Nanos(cookie.expires_at.0.saturating_sub(self.shared.config.cookie_life.0));
        association.sample_set_up(now.since(sent_at), &self.shared.config);
        association.adaptation_code_point = cookie.adaptation_code_point;
        let slot = if listener.is_some() { self.insert(association) } else { None };
        let Some(slot) = slot else {
            self.shared.count(Counter::SctpDropNoRoom);
            let route = Route::new(&path, arrived.flow.ports(), cookie.peer.tag);
            self.refuse(now, route, Some(CauseCode::OUT_OF_RESOURCE), wires);
            return None;
        };
        self.shared.count(Counter::SctpPassiveOpens);
        self.set_addresses(slot, cookie.addresses(&arrived.flow));
        self.establish(now, slot, wires, user);
        Some(slot)
    }

    /// RFC 9260 s5.1.5, step 4. How stale a cookie is depends on settings only, and is not told.
    fn send_stale_cookie(
        &mut self,
        now: Nanos,
        cookie: &Cookie,
        flow: &Flow,
        path: &Path,
        wires: &mut Wires<P>,
    ) {
        self.shared.count(Counter::SctpDropStaleCookie);
        let mut io = Io { now, wires, shared: &mut self.shared };
        if io.may_reply() {
            let error = Some((CauseCode::STALE_COOKIE, &[0; 4][..]));
            let route = Route::new(path, flow.ports(), cookie.peer.tag);
            Replies { error, ..Replies::default() }.send(&mut io, route);
        }
    }

    /// Set-up is complete.
    pub(super) fn establish(
        &mut self,
        now: Nanos,
        slot: u32,
        wires: &mut Wires<P>,
        user: &mut impl UpperLayer,
    ) {
        let Some((association, mut io)) = self.association_and_io(slot, now, wires) else { return };
        association.init_ack = None;
        association.enter(State::Established, &mut io);
        io.shared.count(Counter::SctpEstablished);
        self.ask_for_routes(now, slot);
        self.report(slot, Events::ESTABLISHED, user);
    }
}

/// Returns the addresses of an INIT that an association does not have. In COOKIE-WAIT it has not
/// learned those of its peer.
fn added<F>(known: &Association<F>, addresses: &Addresses) -> Addresses {
    let is_new = |addr: &&IpAddr| known.state != State::CookieWait && !known.remotes.contains(addr);
    addresses.iter().filter(is_new).copied().collect()
}

/// Returns the cause, if any, to refuse an INIT or INIT ACK with; `None` to accept it.
fn refusal(init: &Init<'_>) -> Option<Option<CauseCode>> {
    let InitFixed { a_rwnd, outbound_streams, inbound_streams, .. } = init.fixed;
    if a_rwnd < A_RWND_BYTES_MIN || outbound_streams == 0 || inbound_streams == 0 {
        return Some(Some(CauseCode::INVALID_MANDATORY_PARAMETER));
    }
    if !init.parameters.is_whole() {
        return Some(Some(CauseCode::PROTOCOL_VIOLATION));
    }
    init.parameters.recognized().find_map(|parameter| match parameter {
        None => Some(Some(CauseCode::PROTOCOL_VIOLATION)),
        // RFC 9260 s5.1.2 B.
        Some(Parameter::HostNameAddress) => Some(None),
        _ => None,
    })
}

fn adaptation_code_point(init: &Init<'_>) -> Option<u32> {
    init.parameters.recognized().find_map(|parameter| match parameter {
        Some(Parameter::AdaptationLayerIndication(code_point)) => Some(code_point),
        _ => None,
    })
}

/// Returns the longest cookie that a COOKIE ECHO can return on a path, in bytes.
fn cookie_bytes_max(route: &Route<'_>) -> usize {
    let packet_bytes = usize::from(route.mtu_bytes).saturating_sub(route.path.overhead_bytes());
    packet_bytes.saturating_sub(crate::packet::COMMON_HEADER_BYTES + 4 + 3)
}
