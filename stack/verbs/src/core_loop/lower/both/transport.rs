//! Both transports of a core as one.
//!
//! ```text
//!   ConnId, slot:      0 .. TCP's slots | SCTP's slots
//!   ListenerId, slot:  0 .. listeners   | listeners
//! ```
//! Packets are told apart by the number of their protocol. Fast frames, saved connections and
//! prefetching are TCP's.

use core::marker::PhantomData;
use core::net::{IpAddr, SocketAddr};

use ironwarp_llp::{
    Abort, Arrival, ConnId, ConnectError, ConnectionInfo, Events, Lent, LentMessage, ListenError, ListenerId,
    PathErrorOutcome, PayloadReader, Progress, ResourceUsage, RestoreError, SaveError, Timeouts, Transmitted,
    Transport, UnitSource,
};
use ironwarp_net::{IcmpError, Net, Packet, Path, TransportProtocol};
use ironwarp_port::{Frame, Port, Wires};
use ironwarp_tcp::{LentBytes, RxStream, Tcp};
use ironwarp_types::{Flow, Nanos};

use super::Either;
use crate::core_loop::lower::sctp::{SctpSessions, SessionRx};

const SCTP: u8 = TransportProtocol::SCTP.number;

/// What a packet lends.
pub type EitherLent<'a, F> = Either<&'a mut LentBytes<F>, LentMessage<'a>>;

/// What a stream has received.
pub type EitherRx<'a, P> = Either<RxStream<'a, P>, SessionRx<'a, P>>;

/// See the module.
pub struct TcpAndSctp<P: Port> {
    tcp: Tcp<P>,
    sctp: SctpSessions<P>,
    /// The first slot of SCTP's streams, and that of its listeners.
    sctp_streams_at: u32,
    sctp_listeners_at: u32,
}

impl<P: Port> TcpAndSctp<P> {
    /// Joins two transports, of which TCP has so many listeners.
    pub fn new(tcp: Tcp<P>, sctp: SctpSessions<P>, tcp_listeners: u32) -> Self {
        TcpAndSctp { sctp_streams_at: tcp.slots(), sctp_listeners_at: tcp_listeners, tcp, sctp }
    }

    /// Returns the id that the transport of a stream has for it.
    #[inline(always)]
    fn of(&self, id: ConnId) -> Either<ConnId, ConnId> {
        match id.slot.checked_sub(self.sctp_streams_at) {
            None => Either::Tcp(id),
            Some(slot) => Either::Sctp(ConnId { slot, ..id }),
        }
    }
}

/// Returns the id of a stream of SCTP.
#[inline(always)]
fn sctp_id(sctp_streams_at: u32, id: ConnId) -> ConnId {
    ConnId { slot: sctp_streams_at + id.slot, ..id }
}

/// Lends what TCP lends.
struct TcpReader<R>(R);

impl<F: Frame, O, R> PayloadReader<LentBytes<F>, O> for TcpReader<R>
where
    R: for<'a> PayloadReader<EitherLent<'a, F>, O>,
{
    #[inline(always)]
    fn sum(&mut self, conn: ConnId, segment: &[u8], header_bytes: usize) -> Option<u32> {
        self.0.sum(conn, segment, header_bytes)
    }

    #[inline(always)]
    fn read(&mut self, lent: Lent<'_, LentBytes<F>>) -> Option<O> {
        let Lent { conn, events, acked_bytes, wants_transmit, bytes } = lent;
        self.0.read(Lent { conn, events, acked_bytes, wants_transmit, bytes: &mut Either::Tcp(bytes) })
    }

    fn join(&self, first: O, second: O) -> O {
        self.0.join(first, second)
    }
}

/// Lends what SCTP lends, with the ids of all streams.
struct SctpReader<R, F> {
    reader: R,
    streams_at: u32,
    frame: PhantomData<F>,
}

impl<'m, F: Frame, O, R> PayloadReader<LentMessage<'m>, O> for SctpReader<R, F>
where
    R: for<'a> PayloadReader<EitherLent<'a, F>, O>,
{
    #[inline(always)]
    fn read(&mut self, lent: Lent<'_, LentMessage<'m>>) -> Option<O> {
        let Lent { conn, events, acked_bytes, wants_transmit, bytes } = lent;
        let conn = sctp_id(self.streams_at, conn);
        let LentMessage { octets, is_taken } = *bytes;
        let mut message = Either::Sctp(LentMessage { octets, is_taken });
        let outcome =
            self.reader.read(Lent { conn, events, acked_bytes, wants_transmit, bytes: &mut message });
        if let Either::Sctp(message) = message {
            bytes.is_taken = message.is_taken;
        }
        outcome
    }

    #[inline(always)]
    fn join(&self, first: O, second: O) -> O {
        self.reader.join(first, second)
    }
}

impl<P: Port> Transport for TcpAndSctp<P> {
    type Wires = Wires<P>;
    type Frame = P::Frame;
    type Network = Net;
    type Packet = Packet<P::Frame>;
    type Path = Path;
    type PathError = IcmpError;
    type Lent<'a> = EitherLent<'a, P::Frame>;
    type Rx<'a> = EitherRx<'a, P>;
    type State = Either<ironwarp_tcp::State, ironwarp_sctp::State>;

    fn listen(&mut self, local: SocketAddr) -> Result<ListenerId, ListenError> {
        self.tcp.listen(local)
    }

    fn listen_over(&mut self, protocol: u8, local: SocketAddr) -> Result<ListenerId, ListenError> {
        if protocol != SCTP {
            return self.listen(local);
        }
        let ListenerId { slot, generation } = self.sctp.listen(local)?;
        Ok(ListenerId { slot: self.sctp_listeners_at + slot, generation })
    }

    fn unlisten(&mut self, listener: ListenerId) {
        match listener.slot.checked_sub(self.sctp_listeners_at) {
            None => self.tcp.unlisten(listener),
            Some(slot) => self.sctp.unlisten(ListenerId { slot, ..listener }),
        }
    }

    fn connect(
        &mut self,
        now: Nanos,
        ends: Flow,
        path: Path,
        is_own: impl Fn(&Flow, u32) -> bool,
        wires: &mut Wires<P>,
    ) -> Result<ConnId, ConnectError> {
        Transport::connect(&mut self.tcp, now, ends, path, is_own, wires)
    }

    fn connect_over(
        &mut self,
        protocol: u8,
        now: Nanos,
        ends: Flow,
        path: Path,
        is_own: impl Fn(&Flow, u32) -> bool,
        wires: &mut Wires<P>,
    ) -> Result<ConnId, ConnectError> {
        if protocol != SCTP {
            return self.connect(now, ends, path, is_own, wires);
        }
        Ok(sctp_id(self.sctp_streams_at, self.sctp.connect(now, ends, path, is_own, wires)?))
    }

    fn set_timeouts(&mut self, id: ConnId, timeouts: Timeouts) {
        match self.of(id) {
            Either::Tcp(id) => self.tcp.set_timeouts(id, timeouts),
            Either::Sctp(id) => Transport::set_timeouts(&mut self.sctp, id, timeouts),
        }
    }

    #[inline(always)]
    fn transmit(
        &mut self,
        now: Nanos,
        id: ConnId,
        source: &mut impl UnitSource,
        wires: &mut Wires<P>,
        packets_max: usize,
    ) -> Transmitted {
        match self.of(id) {
            Either::Tcp(id) => self.tcp.transmit(now, id, source, wires, packets_max),
            Either::Sctp(id) => self.sctp.transmit(now, id, source, wires, packets_max),
        }
    }

    fn close(&mut self, now: Nanos, id: ConnId, wires: &mut Wires<P>) -> Events {
        match self.of(id) {
            Either::Tcp(id) => self.tcp.close(now, id, wires),
            Either::Sctp(id) => self.sctp.close(now, id, wires),
        }
    }

    fn abort(&mut self, now: Nanos, id: ConnId, how: Abort, wires: &mut Wires<P>) {
        match self.of(id) {
            Either::Tcp(id) => Transport::abort(&mut self.tcp, now, id, how, wires),
            Either::Sctp(id) => self.sctp.abort(now, id, how, wires),
        }
    }

    fn release(&mut self, id: ConnId) {
        match self.of(id) {
            Either::Tcp(id) => self.tcp.release(id),
            Either::Sctp(id) => self.sctp.release(id),
        }
    }

    fn flow(&self, id: ConnId) -> Option<Flow> {
        match self.of(id) {
            Either::Tcp(id) => self.tcp.flow(id),
            Either::Sctp(id) => self.sctp.flow(id),
        }
    }

    fn listener(&self, id: ConnId) -> Option<ListenerId> {
        match self.of(id) {
            Either::Tcp(id) => self.tcp.listener(id),
            Either::Sctp(id) => {
                let ListenerId { slot, generation } = self.sctp.listener(id)?;
                Some(ListenerId { slot: self.sctp_listeners_at + slot, generation })
            }
        }
    }

    #[inline(always)]
    fn progress(&self, id: ConnId) -> Progress {
        match self.of(id) {
            Either::Tcp(id) => self.tcp.progress(id),
            Either::Sctp(id) => self.sctp.progress(id),
        }
    }

    #[inline(always)]
    fn rx(&mut self, id: ConnId) -> EitherRx<'_, P> {
        match self.of(id) {
            Either::Tcp(id) => Either::Tcp(Transport::rx(&mut self.tcp, id)),
            Either::Sctp(id) => Either::Sctp(self.sctp.rx(id)),
        }
    }

    fn discard(&mut self, id: ConnId) {
        match self.of(id) {
            Either::Tcp(id) => Transport::discard(&mut self.tcp, id),
            Either::Sctp(id) => self.sctp.discard(id),
        }
    }

    #[inline(always)]
    fn on_packet<R>(
        &mut self,
        now: Nanos,
        packet: Packet<P::Frame>,
        network: &Net,
        wires: &mut Wires<P>,
        reader: impl for<'a> PayloadReader<EitherLent<'a, P::Frame>, R>,
    ) -> Option<Arrival<R>> {
        if packet.protocol != SCTP {
            return self.tcp.on_packet(now, packet, network, wires, TcpReader(reader));
        }
        let streams_at = self.sctp_streams_at;
        let reader = SctpReader { reader, streams_at, frame: PhantomData::<P::Frame> };
        Some(match self.sctp.on_packet(now, packet, network, wires, reader)? {
            Arrival::Events(id, events) => Arrival::Events(sctp_id(streams_at, id), events),
            delivered => delivered,
        })
    }

    #[inline(always)]
    fn next_events(&mut self) -> Option<(ConnId, Events)> {
        let (id, events) = self.sctp.next_events()?;
        Some((sctp_id(self.sctp_streams_at, id), events))
    }

    fn on_path_error(&mut self, now: Nanos, error: &IcmpError, wires: &mut Wires<P>) -> PathErrorOutcome {
        if error.protocol != SCTP {
            return self.tcp.on_path_error(now, error, wires);
        }
        let outcome = self.sctp.on_path_error(now, error, wires);
        let events = outcome.events.map(|(id, events)| (sctp_id(self.sctp_streams_at, id), events));
        PathErrorOutcome { events, ..outcome }
    }

    #[inline(always)]
    fn on_timers(&mut self, now: Nanos, wires: &mut Wires<P>, events: &mut impl FnMut(ConnId, Events)) {
        Transport::on_timers(&mut self.tcp, now, wires, events);
        let streams_at = self.sctp_streams_at;
        self.sctp.on_timers(now, wires, &mut |id, happened| events(sctp_id(streams_at, id), happened));
    }

    #[inline(always)]
    fn next_deadline(&self) -> Option<Nanos> {
        self.tcp.next_deadline().into_iter().chain(self.sctp.next_deadline()).min()
    }

    #[inline(always)]
    fn flush_acks(&mut self, now: Nanos, wires: &mut Wires<P>) {
        self.tcp.flush_acks(now, wires);
        self.sctp.flush_acks(now, wires);
    }

    fn update_paths(&mut self, from: u32, slots_max: u32, update: impl FnMut(&mut Path, u16)) -> Option<u32> {
        let first = self.sctp_streams_at;
        match from.checked_sub(first) {
            None => self.tcp.update_paths(from, slots_max, update).or(Some(first)),
            Some(from) => Some(first + self.sctp.update_paths(from, slots_max, update)?),
        }
    }

    #[inline(always)]
    fn add_paths(&mut self, now: Nanos, route: impl FnMut(IpAddr) -> Option<Path>) {
        self.sctp.add_paths(now, route);
    }

    #[inline(always)]
    fn pop_path_change(&mut self) -> Option<(ConnId, IpAddr, bool)> {
        let (id, remote, up) = self.sctp.pop_path_change()?;
        Some((sctp_id(self.sctp_streams_at, id), remote, up))
    }

    fn slots(&self) -> u32 {
        self.sctp_streams_at + self.sctp.slots()
    }

    fn connection_info(&self, slot: u32) -> Option<(Self::State, ConnectionInfo)> {
        Some(match slot.checked_sub(self.sctp_streams_at) {
            None => {
                let (state, info) = self.tcp.connection_info(slot)?;
                (Either::Tcp(state), info)
            }
            Some(slot) => {
                let (state, info) = self.sctp.connection_info(slot)?;
                let id = sctp_id(self.sctp_streams_at, info.id);
                (Either::Sctp(state), ConnectionInfo { id, ..info })
            }
        })
    }

    fn resource_usage(&self) -> ResourceUsage {
        let (tcp, sctp) = (self.tcp.resource_usage(), self.sctp.resource_usage());
        ResourceUsage {
            connections: tcp.connections + sctp.connections,
            time_wait: tcp.time_wait + sctp.time_wait,
            half_open: tcp.half_open + sctp.half_open,
            flows: tcp.flows + sctp.flows,
            rx_frames: tcp.rx_frames + sctp.rx_frames,
            tx_units: tcp.tx_units + sctp.tx_units,
        }
    }

    fn check(&self) -> Result<(), String> {
        Transport::check(&self.tcp)?;
        self.sctp.check()
    }

    #[inline(always)]
    fn on_frame<R>(
        &mut self,
        now: Nanos,
        network: &Net,
        frame: P::Frame,
        wires: &mut Wires<P>,
        reader: impl for<'a> PayloadReader<EitherLent<'a, P::Frame>, R>,
    ) -> Result<Arrival<R>, P::Frame> {
        self.tcp.on_frame(now, network, frame, wires, TcpReader(reader))
    }

    fn save(&self, now: Nanos, id: ConnId) -> Result<Vec<u8>, SaveError> {
        match self.of(id) {
            Either::Tcp(id) => Transport::save(&self.tcp, now, id),
            Either::Sctp(id) => self.sctp.save(now, id),
        }
    }

    fn restore(
        &mut self,
        now: Nanos,
        saved: &[u8],
        path: impl FnOnce(&Flow, u32) -> Option<Path>,
        wires: &mut Wires<P>,
    ) -> Result<ConnId, RestoreError> {
        Transport::restore(&mut self.tcp, now, saved, path, wires)
    }

    fn report_out_of_order(&mut self, id: ConnId) {
        match self.of(id) {
            Either::Tcp(id) => Transport::report_out_of_order(&mut self.tcp, id),
            Either::Sctp(id) => self.sctp.report_out_of_order(id),
        }
    }

    #[inline(always)]
    fn has_pending_acks(&self) -> bool {
        self.tcp.has_pending_acks() || self.sctp.has_pending_acks()
    }

    #[inline(always)]
    fn has_retries(&self) -> bool {
        self.tcp.has_retries()
    }

    fn connections(&self) -> u32 {
        Transport::connections(&self.tcp)
    }

    #[inline(always)]
    fn prefetch_flow(&self, hash: u32) {
        Transport::prefetch_flow(&self.tcp, hash);
    }

    #[inline(always)]
    fn prefetch_by_hash(&self, hash: u32) -> Option<u32> {
        Transport::prefetch_by_hash(&self.tcp, hash)
    }

    #[inline(always)]
    fn prefetch(&self, id: ConnId) {
        if let Either::Tcp(id) = self.of(id) {
            Transport::prefetch(&self.tcp, id);
        }
    }
}
