//! TCP as a [`Transport`] of the core loop: a connection has one stream.

use core::net::SocketAddr;

use ironwarp_llp::{
    Abort, Arrival, ConnectionInfo, ListenError, PathErrorOutcome, PayloadReader, Progress, ResourceUsage,
    RestoreError, SaveError, Transport, UnitSource,
};
use ironwarp_net::{IcmpError, IcmpErrorKind, Net, Packet, Path};
use ironwarp_port::{Port, Wires};
use ironwarp_types::{Flow, Nanos};

use super::{LentBytes, RxStream, Tcp};
use crate::conn::{Conn, KeepAliveTimer, State};
use crate::output::{AckQueue, TcpIo};
use crate::{ConnId, ConnectError, ListenerId, TcpEvents, TcpTimeouts, Transmitted};

impl<P: Port> Transport for Tcp<P> {
    type Wires = Wires<P>;
    type Frame = P::Frame;
    type Network = Net;
    type Packet = Packet<P::Frame>;
    type Path = Path;
    type PathError = IcmpError;
    type Lent<'a> = LentBytes<P::Frame>;
    type Rx<'a> = RxStream<'a, P>;
    type State = State;

    fn listen(&mut self, local: SocketAddr) -> Result<ListenerId, ListenError> {
        self.listeners.insert(local)
    }

    fn unlisten(&mut self, id: ListenerId) {
        self.listeners.remove(id);
    }

    fn connect(
        &mut self,
        now: Nanos,
        ends: Flow,
        path: Path,
        is_own: impl Fn(&Flow, u32) -> bool,
        wires: &mut Wires<P>,
    ) -> Result<ConnId, ConnectError> {
        let Flow { mut local, remote } = ends;
        if local.port() == 0 {
            let port = self.ephemeral_port_where(now, local.ip(), remote, is_own);
            local.set_port(port.ok_or(ConnectError::NoPort)?);
        } else if !is_own(&ends, self.hasher.hash(&ends)) {
            return Err(ConnectError::OtherCore);
        }
        self.connect(now, Flow { local, remote }, path, wires)
    }

    fn set_timeouts(&mut self, id: ConnId, timeouts: TcpTimeouts) {
        let slot = self.slots.get_mut(id.slot as usize).filter(|slot| slot.generation == id.generation);
        let Some(conn) = slot.and_then(|slot| slot.conn.as_mut()) else { return };
        conn.snd.user_timeout = timeouts.user_timeout;
        conn.cold.zero_window_timeout = timeouts.zero_window_timeout;
        conn.cold.keep_alive = KeepAliveTimer::new(timeouts.keep_alive);
        if conn.state.is_live() {
            self.shared.wheel.arm(id.slot, conn.deadline());
        }
    }

    /// The order is: retransmissions, units pulled from `source` while both windows take a whole
    /// one, a due FIN.
    #[inline(always)]
    fn transmit(
        &mut self,
        now: Nanos,
        id: ConnId,
        source: &mut impl UnitSource,
        wires: &mut Wires<P>,
        segments_max: usize,
    ) -> Transmitted {
        match self.conn_and_io(id, now, wires) {
            Some((conn, mut io)) => conn.transmit(&mut io, source, segments_max),
            None => Transmitted::default(),
        }
    }

    /// A connection ends at once before the peer has answered.
    fn close(&mut self, now: Nanos, id: ConnId, wires: &mut Wires<P>) -> TcpEvents {
        let Some((conn, mut io)) = self.conn_and_io(id, now, wires) else { return TcpEvents::empty() };
        let before = conn.state;
        conn.close(&mut io);
        let over = conn.state == State::Closed && before != State::Closed;
        self.on_state_change(id.slot, before, now);
        if over { TcpEvents::CLOSED } else { TcpEvents::empty() }
    }

    fn abort(&mut self, now: Nanos, id: ConnId, how: Abort, wires: &mut Wires<P>) {
        match how {
            Abort::Used => self.abort(now, id, wires),
            Abort::Unused => self.refuse(now, id, wires),
        }
        self.release(id);
    }

    /// A connection that has not ended is removed silently; the peer's next segment is answered
    /// with a reset.
    fn release(&mut self, id: ConnId) {
        let Some(conn) = self.conn(id) else { return };
        if conn.state == State::SynReceived && conn.cold.listener.is_some() {
            self.half_open = self.half_open.saturating_sub(1);
        }
        self.unlink(id.slot);
        self.free_slot(id.slot);
    }

    fn flow(&self, id: ConnId) -> Option<Flow> {
        self.conn(id).map(Conn::flow)
    }

    fn listener(&self, id: ConnId) -> Option<ListenerId> {
        self.conn(id).and_then(|conn| conn.cold.listener)
    }

    #[inline(always)]
    fn progress(&self, id: ConnId) -> Progress {
        Progress {
            acked_bytes: self.acked_bytes(id),
            all_acked: self.all_acked(id),
            wants_transmit: self.wants_transmit(id),
        }
    }

    #[inline(always)]
    fn rx(&mut self, id: ConnId) -> RxStream<'_, P> {
        self.rx(id)
    }

    fn discard(&mut self, id: ConnId) {
        ironwarp_llp::ByteStream::consume(&mut self.rx(id), usize::MAX);
    }

    #[inline(always)]
    fn on_packet<R>(
        &mut self,
        now: Nanos,
        packet: Packet<P::Frame>,
        network: &Net,
        wires: &mut Wires<P>,
        reader: impl PayloadReader<LentBytes<P::Frame>, R>,
    ) -> Option<Arrival<R>> {
        let (flow, mac) = (packet.flow, packet.remote_mac);
        self.on_segment_lending(now, packet, || network.path_to(&flow, mac), wires, reader)
    }

    fn on_path_error(&mut self, now: Nanos, error: &IcmpError, wires: &mut Wires<P>) -> PathErrorOutcome {
        let events = self.on_icmp_error(now, error, wires);
        let slot = self.find(error.hash, &error.flow).and_then(|at| self.slots.get(at as usize));
        let mtu_accepted = match error.kind {
            IcmpErrorKind::TooBig { mtu_bytes } => {
                slot.and_then(|slot| slot.conn.as_ref()).is_some_and(|conn| conn.mtu_bytes() <= mtu_bytes)
            }
            IcmpErrorKind::Hard | IcmpErrorKind::Soft => false,
        };
        PathErrorOutcome { events, mtu_accepted }
    }

    #[inline]
    fn on_timers(&mut self, now: Nanos, wires: &mut Wires<P>, events: &mut impl FnMut(ConnId, TcpEvents)) {
        TcpIo { now, wire: wires.first_mut(), shared: &mut self.shared }.ensure_terminate_reserve();
        while let Some(at) = self.shared.wheel.pop_expired(now) {
            if let Some(slot) =
                self.shared.wheel.next_in_slot().and_then(|next| self.slots.get(next as usize))
            {
                slot.prefetch();
            }
            self.on_timer(now, at, wires, events);
        }
        self.relieve_shortages(now, wires, events);
        let base = self.shared.config.connections_max;
        self.time_wait.expire(now, &mut self.flows, base);
    }

    /// May be early, since timers are re-armed lazily. Pending ACKs are not included: they leave
    /// with the next [`Transport::flush_acks`], see [`Transport::has_pending_acks`].
    #[inline(always)]
    fn next_deadline(&self) -> Option<Nanos> {
        let timers = self.shared.wheel.next_deadline().unwrap_or(Nanos::MAX);
        let next = timers.min(self.time_wait.next_deadline().unwrap_or(Nanos::MAX));
        (next != Nanos::MAX).then_some(next)
    }

    /// Sends the ACKs that have been pending for a whole iteration without payload to carry them,
    /// and those that must not wait.
    #[inline]
    fn flush_acks(&mut self, now: Nanos, wires: &mut Wires<P>) {
        if self.shared.acks.is_empty() {
            return;
        }
        AckQueue::flush(
            self,
            |tcp| &mut tcp.shared.acks,
            |tcp, slot, round| {
                let conn = tcp.slots.get_mut(slot as usize).and_then(|slot| slot.conn.as_mut());
                conn.is_some_and(|conn| {
                    if conn.may_wait_for_reply(round) {
                        return conn.ack.pending;
                    }
                    let mut io = TcpIo::for_path(&conn.path, now, wires, &mut tcp.shared);
                    conn.send_due_acks(&mut io, round)
                })
            },
        );
    }

    fn update_paths(
        &mut self,
        from: u32,
        slots_max: u32,
        mut update: impl FnMut(&mut Path, u16),
    ) -> Option<u32> {
        let end = from.saturating_add(slots_max);
        let slots = self.slots.get_mut(from as usize..).unwrap_or_default();
        for conn in slots.iter_mut().take(slots_max as usize).filter_map(|slot| slot.conn.as_mut()) {
            let mtu_bytes = conn.mtu_bytes();
            update(&mut conn.path, mtu_bytes);
        }
        ((end as usize) < self.slots.len()).then_some(end)
    }

    fn slots(&self) -> u32 {
        self.slots.len() as u32
    }

    /// Touches some cache lines of the connection.
    fn connection_info(&self, slot: u32) -> Option<(State, ConnectionInfo)> {
        let conn = self.slots.get(slot as usize)?.conn.as_ref()?;
        Some((conn.state, conn.info(self.id_of(slot)?)))
    }

    /// Walks the tables of frames and units.
    fn resource_usage(&self) -> ResourceUsage {
        ResourceUsage {
            connections: self.slots.len() - self.free.len(),
            time_wait: self.time_wait.len() as usize,
            half_open: self.half_open as usize,
            flows: self.flows.len(),
            rx_frames: self.shared.rx.in_use(),
            tx_units: self.shared.tx.in_use(),
        }
    }

    fn check(&self) -> Result<(), String> {
        self.check()
    }

    #[inline(always)]
    fn on_frame<R>(
        &mut self,
        now: Nanos,
        network: &Net,
        frame: P::Frame,
        wires: &mut Wires<P>,
        reader: impl PayloadReader<LentBytes<P::Frame>, R>,
    ) -> Result<Arrival<R>, P::Frame> {
        self.on_fast_frame(now, network, frame, wires, reader)
    }

    fn save(&self, now: Nanos, id: ConnId) -> Result<Vec<u8>, SaveError> {
        self.save(now, id)
    }

    fn restore(
        &mut self,
        now: Nanos,
        saved: &[u8],
        path: impl FnOnce(&Flow, u32) -> Option<Path>,
        wires: &mut Wires<P>,
    ) -> Result<ConnId, RestoreError> {
        self.restore(now, saved, path, wires)
    }

    fn report_out_of_order(&mut self, id: ConnId) {
        self.report_out_of_order(id);
    }

    #[inline(always)]
    fn has_pending_acks(&self) -> bool {
        !self.shared.acks.is_empty()
    }

    /// Frames of the terminate reserve are missing because the pool was empty.
    #[inline(always)]
    fn has_retries(&self) -> bool {
        self.shared.needs_terminate_reserve()
    }

    /// Those in TIME-WAIT do not count.
    #[inline]
    fn connections(&self) -> u32 {
        // A slot is in the free list once.
        self.slots.len().wrapping_sub(self.free.len()) as u32
    }

    #[inline(always)]
    fn prefetch_flow(&self, hash: u32) {
        self.flows.prefetch(hash);
    }

    #[inline(always)]
    fn prefetch_by_hash(&self, hash: u32) -> Option<u32> {
        let at = self.flows.lookup(hash, |_| true)?;
        self.slots.get(at as usize)?.prefetch();
        Some(at)
    }

    #[inline(always)]
    fn prefetch(&self, id: ConnId) {
        if let Some(slot) = self.slots.get(id.slot as usize) {
            slot.prefetch();
            self.shared.wheel.prefetch(id.slot);
        }
    }
}
