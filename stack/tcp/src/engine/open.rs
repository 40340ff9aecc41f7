//! Opening connections, from this side and from the other.

use core::net::{IpAddr, SocketAddr};

use ironwarp_net::{Path, TcpSegment};
use ironwarp_port::{Port, Wire};
use ironwarp_stats::Counter;
use ironwarp_types::{Flow, Nanos};

use super::isn::EPHEMERAL_PORTS;
use super::{Tcp, cookies};
use crate::conn::{Conn, Opening};
use crate::header::{Flags, Segment, SynOptions};
use crate::ids::{ConnId, ConnectError, ListenError, ListenerId};
use crate::output::Io;

impl<P: Port> Tcp<P> {
    /// Listens on an address, or on all of a family when it is unspecified.
    pub fn listen(&mut self, local: SocketAddr) -> Result<ListenerId, ListenError> {
        self.listeners.insert(local)
    }

    /// Ends a listener. Connections that came from it go on.
    pub fn unlisten(&mut self, id: ListenerId) {
        self.listeners.remove(id);
    }

    /// A local port under which `remote` can be connected to from `local`, or `None` when all are taken.
    pub fn ephemeral_port(&mut self, local: IpAddr, remote: SocketAddr) -> Option<u16> {
        self.ephemeral_port_where(local, remote, |_, _| true)
    }

    /// The same among the ports for which `belongs_here` says yes, told the flow and its hash: where there are several
    /// cores, answers to an ephemeral port come to the core that chose it.
    pub fn ephemeral_port_where(
        &mut self,
        local: IpAddr,
        remote: SocketAddr,
        belongs_here: impl Fn(&Flow, u32) -> bool,
    ) -> Option<u16> {
        for _ in 0..EPHEMERAL_PORTS {
            let port = self.numbers.port(local, remote);
            let flow = Flow { local: SocketAddr::new(local, port), remote };
            let hash = self.hasher.hash(&flow);
            if belongs_here(&flow, hash) && self.find(hash, &flow).is_none() {
                return Some(port);
            }
        }
        None
    }

    /// RFC 9293 s3.10.1, active: sends a SYN. ESTABLISHED, REFUSED or TIMED_OUT follows.
    pub fn connect(
        &mut self,
        now: Nanos,
        flow: Flow,
        path: Path,
        wire: &mut Wire<P>,
    ) -> Result<ConnId, ConnectError> {
        if names_nobody(flow.local) || names_nobody(flow.remote) {
            return Err(ConnectError::Unusable);
        }
        let hash = self.hasher.hash(&flow);
        self.leave_time_wait(now, hash, &flow)?;
        let opening = self.opening(now, flow, hash, path).ok_or(ConnectError::Full)?;
        self.shared.stats.count(Counter::TcpActiveOpens);
        let conn = Conn::active(&self.shared.config, opening);
        self.begin(now, conn, wire).ok_or(ConnectError::Full)
    }

    /// Nothing is in the way of a flow: no connection, and no TIME-WAIT that must go on.
    fn leave_time_wait(&mut self, now: Nanos, hash: u32, flow: &Flow) -> Result<(), ConnectError> {
        let Some(found) = self.find(hash, flow) else { return Ok(()) };
        let base = self.shared.config.connections_max;
        let at = found.checked_sub(base).ok_or(ConnectError::InUse)?;
        if !self.time_wait.may_connect_anew(at, now) {
            return Err(ConnectError::InUse);
        }
        if self.free.is_empty() {
            return Err(ConnectError::Full);
        }
        self.beyond = self.time_wait.remove(at, &mut self.flows, base);
        Ok(())
    }

    /// RFC 9293 s3.10.7.2, third step: a SYN for a listener.
    pub(super) fn open_passively(
        &mut self,
        now: Nanos,
        listener: ListenerId,
        segment: &Segment,
        arrived: &TcpSegment<P::Frame>,
        path: Path,
        wire: &mut Wire<P>,
    ) {
        if self.is_half_open_full() {
            return self.answer_without_memory(now, listener, segment, arrived, path, wire);
        }
        let Some(opening) = self.opening(now, arrived.flow, arrived.hash, path) else {
            self.shared.stats.count(Counter::TcpDropNoSlot);
            return;
        };
        self.shared.stats.count(Counter::TcpPassiveOpens);
        let options = SynOptions::parse(segment.option_list(arrived));
        let conn = Conn::passive(&self.shared.config, opening, listener, segment, options);
        self.half_open += 1;
        self.begin(now, conn, wire);
    }

    /// Half-open connections have a limit, and never more places than are left for others.
    pub(super) fn is_half_open_full(&self) -> bool {
        self.half_open >= self.shared.config.half_open_max || self.half_open as usize > self.free.len()
    }

    /// RFC 4987 s3.6: the SYN-ACK bears a cookie, and nothing is kept.
    #[cold]
    fn answer_without_memory(
        &mut self,
        now: Nanos,
        listener: ListenerId,
        segment: &Segment,
        arrived: &TcpSegment<P::Frame>,
        path: Path,
        wire: &mut Wire<P>,
    ) {
        // Established connections have the first call on a device that is busy.
        wire.select(path.port());
        if !self.shared.config.syn_cookies || !wire.has_room() {
            self.shared.stats.count(Counter::TcpDropHalfOpenFull);
            return;
        }
        let flow = arrived.flow;
        let offer = SynOptions::parse(segment.option_list(arrived));
        let iss = self.cookies.bake(now, &self.numbers, &flow, segment, offer.mss);
        let opening = Opening {
            slot: 0,
            flow,
            hash: 0,
            path,
            iss,
            stamp_offset: self.numbers.stamp_offset(&flow),
            now,
        };
        let mut conn = Conn::passive(&self.shared.config, opening, listener, segment, offer);
        if !conn.opts.timestamps {
            conn.forget_offer();
        }
        let (mut control, options) = conn.syn(now);
        if let Some(stamps) = &mut control.timestamps {
            stamps.value = cookies::stamp_of_offer(stamps.value, &conn.agreed(offer), conn.opts.ecn);
        }
        self.shared.stats.count(Counter::TcpSynCookiesSent);
        let mut io = Io::over(&conn.path, now, wire, &mut self.shared);
        io.send_control(&conn.path, &flow, control, options.as_slice());
    }

    /// The ACK of a SYN-ACK that nobody remembers opens the connection, when it brings the cookie back. Answers its place,
    /// or that there was none: then the peer hears nothing, and its next segment may bring the cookie again.
    #[cold]
    pub(super) fn open_by_cookie(
        &mut self,
        now: Nanos,
        ack: &Segment,
        arrived: &TcpSegment<P::Frame>,
        path: &Path,
    ) -> Option<Option<u32>> {
        if !self.cookies.abroad(now) || !ack.has(Flags::ACK) || ack.has(Flags::SYN | Flags::RST) {
            return None;
        }
        let flow = arrived.flow;
        let listener = self.listeners.find(flow.local)?;
        let Some(options) = self.cookies.open(now, &self.numbers, &flow, ack) else {
            self.shared.stats.count(Counter::TcpSynCookiesInvalid);
            return None;
        };
        let Some(opening) = self.opening(now, flow, arrived.hash, path.clone()) else {
            self.shared.stats.count(Counter::TcpDropNoSlot);
            return Some(None);
        };
        self.shared.stats.count(Counter::TcpSynCookiesValid);
        self.shared.stats.count(Counter::TcpPassiveOpens);
        let opening = Opening { iss: ack.ack.minus(1), ..opening };
        let syn = Segment { seq: ack.seq.minus(1), flags: cookies::flags_of_syn(ack), ..ack.clone() };
        let mut conn = Conn::passive(&self.shared.config, opening, listener, &syn, options);
        conn.on_syn_ack_remembered();
        conn.cold.linked = true;
        self.half_open += 1;
        let at = conn.slot;
        self.slots.get_mut(at as usize)?.conn = Some(conn);
        Some(Some(at))
    }

    /// Reserves a place and a number for a new connection.
    fn opening(&mut self, now: Nanos, flow: Flow, hash: u32, path: Path) -> Option<Opening> {
        let beyond = self.beyond.take();
        let slot = *self.free.last()?;
        self.flows.insert(hash, slot).ok()?;
        self.free.pop();
        let (iss, stamp_offset) = (self.numbers.iss(now, &flow), self.numbers.stamp_offset(&flow));
        // RFC 9293 s3.6.1: out of TIME-WAIT only with a number beyond all that the old connection used. The clock of
        // our numbers is slower than fast connections are.
        let iss = beyond.filter(|&last| iss.leq(last)).map_or(iss, |last| last.plus(BEYOND));
        Some(Opening { slot, flow, hash, path, iss, stamp_offset, now })
    }

    fn begin(&mut self, now: Nanos, mut conn: Conn, wire: &mut Wire<P>) -> Option<ConnId> {
        conn.cold.linked = true;
        let at = conn.slot;
        let slot = self.slots.get_mut(at as usize)?;
        let conn = slot.conn.insert(conn);
        let mut io = Io::over(&conn.path, now, wire, &mut self.shared);
        conn.send_syn(&mut io);
        Some(ConnId { slot: at, generation: slot.generation })
    }
}

/// How far beyond the numbers of an old connection a new one begins, when our clock has not come so far: farther than a
/// window without scale reaches.
const BEYOND: u32 = 1 << 16;

/// RFC 9293 s3.9.1.1, MUST-46: an end that is not one station's. The broadcast address of a network is net's to know.
fn names_nobody(end: SocketAddr) -> bool {
    let broadcast = matches!(end.ip(), IpAddr::V4(v4) if v4.is_broadcast());
    end.port() == 0 || end.ip().is_unspecified() || end.ip().is_multicast() || broadcast
}
