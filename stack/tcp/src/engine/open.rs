//! Active and passive opens.

use core::net::{IpAddr, SocketAddr};

use ironwarp_net::{Packet, Path};
use ironwarp_port::{Port, Wires};
use ironwarp_stats::Counter;
use ironwarp_types::{Flow, Nanos};

use super::cookies::Returned;
use super::isn::EPHEMERAL_PORTS;
use super::{Tcp, cookies};
use crate::conn::{Conn, NewConn};
use crate::header::{Flags, Segment, SynOptions};
use crate::output::TcpIo;
use crate::{ConnId, ConnectError, ListenerId};

impl<P: Port> Tcp<P> {
    /// Returns a local port for a connection from `local` to `remote`, or `None` when all are in
    /// use. A port in TIME-WAIT is in use until [`Tcp::connect`] may reuse it (RFC 6191 s2).
    pub fn ephemeral_port(&mut self, now: Nanos, local: IpAddr, remote: SocketAddr) -> Option<u16> {
        self.ephemeral_port_where(now, local, remote, |_, _| true)
    }

    /// As [`Tcp::ephemeral_port`], but only ports whose flow and hash `is_on_this_core` accepts.
    /// With several cores, the peer's segments then arrive on the core that chose the port.
    pub fn ephemeral_port_where(
        &mut self,
        now: Nanos,
        local: IpAddr,
        remote: SocketAddr,
        is_on_this_core: impl Fn(&Flow, u32) -> bool,
    ) -> Option<u16> {
        for _ in 0..EPHEMERAL_PORTS {
            let port = self.isn_generator.ephemeral_port(local, remote);
            let flow = Flow { local: SocketAddr::new(local, port), remote };
            let hash = self.hasher.hash(&flow);
            if is_on_this_core(&flow, hash) && self.is_free_for_connect(now, hash, &flow) {
                return Some(port);
            }
        }
        None
    }

    fn is_free_for_connect(&self, now: Nanos, hash: u32, flow: &Flow) -> bool {
        let base = self.shared.config.connections_max;
        match self.find(hash, flow) {
            None => true,
            Some(at) => at.checked_sub(base).is_some_and(|at| self.time_wait.may_reuse_for_connect(at, now)),
        }
    }

    /// RFC 9293 s3.10.1, active open: sends a SYN. ESTABLISHED, REFUSED or TIMED_OUT follows.
    pub fn connect(
        &mut self,
        now: Nanos,
        flow: Flow,
        path: Path,
        wires: &mut Wires<P>,
    ) -> Result<ConnId, ConnectError> {
        if is_invalid_endpoint(flow.local) || is_invalid_endpoint(flow.remote) {
            return Err(ConnectError::InvalidAddress);
        }
        let hash = self.hasher.hash(&flow);
        self.leave_time_wait(now, hash, &flow)?;
        let new_conn = self.reserve_slot(now, flow, hash, path).ok_or(ConnectError::Full)?;
        self.shared.stats.count(Counter::TcpActiveOpens);
        let conn = Conn::active(&self.shared.config, new_conn);
        self.start_handshake(now, conn, wires).ok_or(ConnectError::Full)
    }

    /// Fails if a connection or a TIME-WAIT that must continue occupies the flow. Ends a TIME-WAIT
    /// that may be reused.
    fn leave_time_wait(&mut self, now: Nanos, hash: u32, flow: &Flow) -> Result<(), ConnectError> {
        let Some(found) = self.find(hash, flow) else { return Ok(()) };
        let base = self.shared.config.connections_max;
        let at = found.checked_sub(base).ok_or(ConnectError::InUse)?;
        if !self.time_wait.may_reuse_for_connect(at, now) {
            return Err(ConnectError::InUse);
        }
        if self.free.is_empty() {
            return Err(ConnectError::Full);
        }
        self.reused_snd_nxt = self.time_wait.remove(at, &mut self.flows, base);
        Ok(())
    }

    /// RFC 9293 s3.10.7.2, third step: a SYN for a listener.
    pub(super) fn open_passively(
        &mut self,
        now: Nanos,
        listener: ListenerId,
        segment: &Segment,
        arrived: &Packet<P::Frame>,
        path: Path,
        wires: &mut Wires<P>,
    ) {
        if self.is_half_open_full() {
            return self.send_syn_cookie(now, listener, segment, arrived, path, wires);
        }
        let Some(new_conn) = self.reserve_slot(now, arrived.flow, arrived.hash, path) else {
            self.shared.stats.count(Counter::TcpDropConnectionTableFull);
            return;
        };
        self.shared.stats.count(Counter::TcpPassiveOpens);
        let options = SynOptions::parse(segment.option_list(arrived));
        let conn = Conn::passive(&self.shared.config, new_conn, listener, segment, options);
        self.half_open += 1;
        self.start_handshake(now, conn, wires);
    }

    /// Returns whether the limit of half-open connections or of slots is reached.
    pub(super) fn is_half_open_full(&self) -> bool {
        self.half_open >= self.shared.config.half_open_max || self.half_open as usize > self.free.len()
    }

    /// RFC 4987 s3.6: the SYN-ACK carries a cookie, and no state is kept.
    #[cold]
    fn send_syn_cookie(
        &mut self,
        now: Nanos,
        listener: ListenerId,
        segment: &Segment,
        arrived: &Packet<P::Frame>,
        path: Path,
        wires: &mut Wires<P>,
    ) {
        // Established connections have priority on a busy device.
        if !self.shared.config.syn_cookies || !wires.at_mut(path.port()).has_room() {
            self.shared.stats.count(Counter::TcpDropHalfOpenFull);
            return;
        }
        let flow = arrived.flow;
        let offer = SynOptions::parse(segment.option_list(arrived));
        let iss = self.cookies.encode_cookie(now, &self.isn_generator, &flow, segment, offer.mss);
        let new_conn = NewConn {
            slot: 0,
            flow,
            hash: 0,
            path,
            iss,
            ts_offset: self.isn_generator.ts_offset(&flow),
            now,
        };
        let mut conn = Conn::passive(&self.shared.config, new_conn, listener, segment, offer);
        if !conn.opts.timestamps {
            conn.clear_offer();
        }
        let (mut header, options) = conn.syn(now);
        if let Some(stamps) = &mut header.timestamps {
            stamps.tsval =
                cookies::cookie_timestamp(stamps.tsval, &conn.negotiated_options(offer), conn.opts.ecn);
        }
        self.shared.stats.count(Counter::TcpSynCookiesSent);
        let mut io = TcpIo::for_path(&conn.path, now, wires, &mut self.shared);
        io.send_control(&conn.path, conn.ports, header, options.as_slice());
    }

    /// The ACK of a stateless SYN-ACK opens the connection if it returns a valid cookie. Returns
    /// `Some` with the slot, `Some(None)` if no slot is free or an earlier segment of the peer is
    /// missing, and `None` if there is no valid cookie. With `Some(None)` no reply is sent, and the
    /// peer's next segment may return the cookie again.
    #[cold]
    pub(super) fn accept_syn_cookie(
        &mut self,
        now: Nanos,
        ack: &Segment,
        arrived: &Packet<P::Frame>,
        path: &Path,
    ) -> Option<Option<u32>> {
        if !self.cookies.any_valid(now) || !ack.has(Flags::ACK) || ack.has(Flags::SYN | Flags::RST) {
            return None;
        }
        let flow = arrived.flow;
        let listener = self.listeners.find(flow.local)?;
        let options = match self.cookies.decode_cookie(now, &self.isn_generator, &flow, ack) {
            Returned::Valid(options) => options,
            Returned::Early => {
                self.shared.stats.count(Counter::TcpSynCookiesEarly);
                return Some(None);
            }
            Returned::Invalid => {
                self.shared.stats.count(Counter::TcpSynCookiesInvalid);
                return None;
            }
        };
        let Some(new_conn) = self.reserve_slot(now, flow, arrived.hash, path.clone()) else {
            self.shared.stats.count(Counter::TcpDropConnectionTableFull);
            return Some(None);
        };
        self.shared.stats.count(Counter::TcpSynCookiesValid);
        self.shared.stats.count(Counter::TcpPassiveOpens);
        let new_conn = NewConn { iss: ack.ack.minus(1), ..new_conn };
        let syn = Segment { seq: ack.seq.minus(1), flags: cookies::syn_flags(ack), ..*ack };
        let mut conn = Conn::passive(&self.shared.config, new_conn, listener, &syn, options);
        conn.on_cookie_syn_ack_sent();
        conn.cold.in_flow_table = true;
        self.half_open += 1;
        let at = conn.slot;
        self.slots.get_mut(at as usize)?.conn = Some(conn);
        Some(Some(at))
    }

    /// Reserves a slot and an initial sequence number for a new connection.
    pub(super) fn reserve_slot(&mut self, now: Nanos, flow: Flow, hash: u32, path: Path) -> Option<NewConn> {
        let reused_snd_nxt = self.reused_snd_nxt.take();
        let slot = *self.free.last()?;
        self.flows.insert(hash, slot).ok()?;
        self.free.pop();
        let (iss, ts_offset) = (self.isn_generator.iss(now, &flow), self.isn_generator.ts_offset(&flow));
        // RFC 9293 s3.6.1: a connection leaves TIME-WAIT only with a number beyond all numbers of
        // the old connection. The ISN clock is slower than fast connections.
        let iss = reused_snd_nxt.filter(|&last| iss.leq(last)).map_or(iss, |last| last.plus(REUSED_ISS_GAP));
        Some(NewConn { slot, flow, hash, path, iss, ts_offset, now })
    }

    fn start_handshake(&mut self, now: Nanos, mut conn: Conn, wires: &mut Wires<P>) -> Option<ConnId> {
        conn.cold.in_flow_table = true;
        let at = conn.slot;
        let slot = self.slots.get_mut(at as usize)?;
        let conn = slot.conn.insert(conn);
        let mut io = TcpIo::for_path(&conn.path, now, wires, &mut self.shared);
        conn.send_syn(&mut io);
        Some(ConnId { slot: at, generation: slot.generation })
    }
}

/// The distance from the last number of an old connection to the ISN of a new one, when the ISN
/// clock is behind: more than an unscaled window.
const REUSED_ISS_GAP: u32 = 1 << 16;

/// RFC 9293 s3.9.1.1, MUST-46: returns whether an endpoint is not a single host's. `net` checks
/// subnet broadcast addresses.
pub(super) fn is_invalid_endpoint(end: SocketAddr) -> bool {
    let broadcast = matches!(end.ip(), IpAddr::V4(v4) if v4.is_broadcast());
    end.port() == 0 || end.ip().is_unspecified() || end.ip().is_multicast() || broadcast
}
