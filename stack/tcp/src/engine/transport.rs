//! TCP as a [`Transport`] of the core loop: a connection has one stream.

use ironwarp_llp::{
    Abort, Arrival, ConnectionInfo, ListenError, PathErrorOutcome, PayloadReader, Progress, ResourceUsage,
    RestoreError, SaveError, Transport, UnitSource,
};
use ironwarp_net::{IcmpError, IcmpErrorKind, Net, Packet, Path};
use ironwarp_port::{Port, Wires};
use ironwarp_types::{Flow, Nanos};

use super::{LentBytes, RxStream, Tcp};
use crate::conn::State;
use crate::{ConnId, ConnectError, ListenerId, TcpEvents, TcpTimeouts, Transmitted};

impl<P: Port> Transport for Tcp<P> {
    type Wires = Wires<P>;
    type Frame = P::Frame;
    type Network = Net;
    type Packet = Packet<P::Frame>;
    type Path = Path;
    type PathError = IcmpError;
    type Lent = LentBytes<P::Frame>;
    type Rx<'a> = RxStream<'a, P>;
    type State = State;

    fn listen(&mut self, local: core::net::SocketAddr) -> Result<ListenerId, ListenError> {
        self.listen(local)
    }

    fn unlisten(&mut self, listener: ListenerId) {
        self.unlisten(listener);
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
        self.set_timeouts(id, timeouts);
    }

    #[inline(always)]
    fn transmit(
        &mut self,
        now: Nanos,
        id: ConnId,
        source: &mut impl UnitSource,
        wires: &mut Wires<P>,
        segments_max: usize,
    ) -> Transmitted {
        self.transmit(now, id, source, wires, segments_max)
    }

    fn close(&mut self, now: Nanos, id: ConnId, wires: &mut Wires<P>) -> TcpEvents {
        self.close(now, id, wires)
    }

    fn abort(&mut self, now: Nanos, id: ConnId, how: Abort, wires: &mut Wires<P>) {
        match how {
            Abort::Used => self.abort(now, id, wires),
            Abort::Unused => self.refuse(now, id, wires),
        }
        self.release(id);
    }

    fn release(&mut self, id: ConnId) {
        self.release(id);
    }

    fn flow(&self, id: ConnId) -> Option<Flow> {
        self.flow(id)
    }

    fn listener(&self, id: ConnId) -> Option<ListenerId> {
        self.listener(id)
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

    #[inline(always)]
    fn on_timers(&mut self, now: Nanos, wires: &mut Wires<P>, events: &mut impl FnMut(ConnId, TcpEvents)) {
        self.on_timers(now, wires, events);
    }

    #[inline(always)]
    fn next_deadline(&self) -> Option<Nanos> {
        self.next_deadline()
    }

    #[inline(always)]
    fn flush_acks(&mut self, now: Nanos, wires: &mut Wires<P>) {
        self.flush_acks(now, wires);
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
    fn connection_info(&self, slot: u32) -> Option<ConnectionInfo<State>> {
        let conn = self.slots.get(slot as usize)?.conn.as_ref()?;
        Some(conn.info(self.id_of(slot)?))
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
        self.has_pending_acks()
    }

    /// Frames of the terminate reserve are missing because the pool was empty.
    #[inline(always)]
    fn has_retries(&self) -> bool {
        self.shared.needs_terminate_reserve()
    }

    #[inline(always)]
    fn connections(&self) -> u32 {
        self.connections()
    }

    #[inline(always)]
    fn prefetch_flow(&self, hash: u32) {
        self.flows.prefetch(hash);
    }

    #[inline(always)]
    fn prefetch_by_hash(&self, hash: u32) -> Option<u32> {
        let at = self.flows.lookup(hash, |_| true)?;
        ironwarp_arch::prefetch_read_all(self.slots.get(at as usize)?);
        Some(at)
    }

    #[inline(always)]
    fn prefetch(&self, id: ConnId) {
        if let Some(slot) = self.slots.get(id.slot as usize) {
            ironwarp_arch::prefetch_read_all(slot);
            self.shared.wheel.prefetch(id.slot);
        }
    }
}
