//! What the core loop asks of a transport: one trait, which TCP implements, and another transport
//! may.
//!
//! A value is the transport of one core. It is sans-IO: the time and the wires are arguments, and
//! so are the packets that the network layer has checked. It allocates nothing after it is created,
//! and no packet causes a panic.
//!
//! RFC 5041 s3, requirements 8 to 10: the core loop works with *streams*. A stream is opened,
//! closed and aborted by itself. A transport with several streams in a connection decides when the
//! connection follows. One [`ConnId`] is one stream; over TCP it is the connection.

use core::net::{IpAddr, SocketAddr};

use ironwarp_types::{Flow, Nanos};

use crate::{
    Arrival, ConnId, ConnectError, Events, ListenError, ListenerId, PayloadReader, RestoreError, SaveError,
    Timeouts, Transmitted, UnitSource,
};

/// The transport of one core. See the module.
pub trait Transport {
    /// The wires of the core's ports.
    type Wires;
    /// A received frame.
    type Frame;
    /// The network layer of a port.
    type Network;
    /// A packet of this transport that the network layer has checked.
    type Packet;
    /// The headers of packets to one address of a peer. A transport with several addresses for a
    /// peer keeps several.
    type Path;
    /// What a router reported about a packet.
    type PathError;
    /// Payload that is lent in its frame.
    type Lent<'a>;
    /// The received data of a stream: bytes, or messages.
    type Rx<'a>
    where
        Self: 'a;
    /// The states of a connection, for observers.
    type State;

    /// Listens on an address, or on all addresses of a family when it is unspecified.
    fn listen(&mut self, local: SocketAddr) -> Result<ListenerId, ListenError>;

    /// As [`Transport::listen`], for a transport of several IP protocols, over the one with this
    /// number.
    fn listen_over(&mut self, protocol: u8, local: SocketAddr) -> Result<ListenerId, ListenError> {
        let _ = protocol;
        self.listen(local)
    }

    /// Removes a listener. Connections that it opened continue.
    fn unlisten(&mut self, listener: ListenerId);

    /// Opens a stream to `remote` along `path`. Port 0 of `local` selects a free one. Packets of
    /// the flow must arrive on this core, which `is_own` decides from the flow and its hash.
    /// ESTABLISHED, REFUSED or TIMED_OUT follows.
    fn connect(
        &mut self,
        now: Nanos,
        ends: Flow,
        path: Self::Path,
        is_own: impl Fn(&Flow, u32) -> bool,
        wires: &mut Self::Wires,
    ) -> Result<ConnId, ConnectError>;

    /// As [`Transport::connect`], for a transport of several IP protocols, over the one with this
    /// number.
    fn connect_over(
        &mut self,
        protocol: u8,
        now: Nanos,
        ends: Flow,
        path: Self::Path,
        is_own: impl Fn(&Flow, u32) -> bool,
        wires: &mut Self::Wires,
    ) -> Result<ConnId, ConnectError> {
        let _ = protocol;
        self.connect(now, ends, path, is_own, wires)
    }

    /// Sets the timeouts from now on.
    fn set_timeouts(&mut self, id: ConnId, timeouts: Timeouts);

    /// Sends up to `packets_max` packets: what was lost, units pulled from `source` while the peer
    /// and the network take a whole one, a due close.
    fn transmit(
        &mut self,
        now: Nanos,
        id: ConnId,
        source: &mut impl UnitSource,
        wires: &mut Self::Wires,
        packets_max: usize,
    ) -> Transmitted;

    /// Closes our direction after everything pulled so far. Returns CLOSED when the stream ends at
    /// once; otherwise that event follows.
    fn close(&mut self, now: Nanos, id: ConnId, wires: &mut Self::Wires) -> Events;

    /// Aborts a stream, tells the peer, and releases it. No event follows.
    fn abort(&mut self, now: Nanos, id: ConnId, how: Abort, wires: &mut Self::Wires);

    /// Releases a stream that has ended. Its id is stale then.
    fn release(&mut self, id: ConnId);

    /// Returns both endpoints while the id is valid.
    fn flow(&self, id: ConnId) -> Option<Flow>;

    /// Returns the listener of a stream that the peer opened.
    fn listener(&self, id: ConnId) -> Option<ListenerId>;

    /// Returns how far the peer has acknowledged.
    fn progress(&self, id: ConnId) -> Progress;

    /// Returns the received data. It stays readable after the end until the stream is released.
    fn rx(&mut self, id: ConnId) -> Self::Rx<'_>;

    /// Discards the received data.
    fn discard(&mut self, id: ConnId);

    /// Processes a packet that `network` has checked. Payload may be lent to `reader`.
    fn on_packet<R>(
        &mut self,
        now: Nanos,
        packet: Self::Packet,
        network: &Self::Network,
        wires: &mut Self::Wires,
        reader: impl for<'a> PayloadReader<Self::Lent<'a>, R>,
    ) -> Option<Arrival<R>>;

    /// Takes the events of another stream of the packet that was processed last. Called until there
    /// are none.
    #[inline(always)]
    fn next_events(&mut self) -> Option<(ConnId, Events)> {
        None
    }

    /// Processes the report of a router, which anybody can forge (RFC 5927).
    fn on_path_error(
        &mut self,
        now: Nanos,
        error: &Self::PathError,
        wires: &mut Self::Wires,
    ) -> PathErrorOutcome;

    /// Runs the expired timers, and reports events of streams to `events`.
    fn on_timers(&mut self, now: Nanos, wires: &mut Self::Wires, events: &mut impl FnMut(ConnId, Events));

    /// Returns when to call [`Transport::on_timers`] next. May be early.
    fn next_deadline(&self) -> Option<Nanos>;

    /// Sends the acknowledgements that are due. Called once an iteration.
    fn flush_acks(&mut self, now: Nanos, wires: &mut Self::Wires);

    /// Calls `update` with the path and the MTU of each connection in up to `slots_max` slots from
    /// `from` on. Returns the slot to continue at, or `None` at the end.
    fn update_paths(
        &mut self,
        from: u32,
        slots_max: u32,
        update: impl FnMut(&mut Self::Path, u16),
    ) -> Option<u32>;

    /// Asks `route` for the paths to further addresses of peers. Without one it asks again later.
    #[inline(always)]
    fn add_paths(&mut self, now: Nanos, route: impl FnMut(IpAddr) -> Option<Self::Path>) {
        let _ = (now, route);
    }

    /// Takes the report of an address of a peer that has failed or answers again: the stream, the
    /// address, and whether it answers.
    #[inline(always)]
    fn pop_path_change(&mut self) -> Option<(ConnId, IpAddr, bool)> {
        None
    }

    /// Returns the number of slots: ids are below.
    fn slots(&self) -> u32;

    /// Returns the stream in a slot, if there is one, for observers: its state and the rest.
    fn connection_info(&self, slot: u32) -> Option<(Self::State, ConnectionInfo)>;

    /// Counts the resources held now.
    fn resource_usage(&self) -> ResourceUsage;

    /// Checks the invariants. For simulators and tests.
    fn check(&self) -> Result<(), String>;

    /// Processes a frame that the network layer has not checked, if it is of the usual kind: a
    /// shortcut for [`Transport::on_packet`]. Any other frame is returned unchanged.
    #[inline(always)]
    fn on_frame<R>(
        &mut self,
        now: Nanos,
        network: &Self::Network,
        frame: Self::Frame,
        wires: &mut Self::Wires,
        reader: impl for<'a> PayloadReader<Self::Lent<'a>, R>,
    ) -> Result<Arrival<R>, Self::Frame> {
        let _ = (now, network, wires, reader);
        Err(frame)
    }

    /// Returns an established stream as bytes, from which [`Transport::restore`] makes it again on
    /// another core. The stream stays; release it before its peer sends to both.
    fn save(&self, now: Nanos, id: ConnId) -> Result<Vec<u8>, SaveError> {
        let _ = (now, id);
        Err(SaveError::Unsupported)
    }

    /// Makes a saved stream again. The peer notices nothing but a pause, which no timer counts.
    /// `path` returns the path for both endpoints. Events are reported from now on: read what is
    /// readable, and transmit.
    fn restore(
        &mut self,
        now: Nanos,
        saved: &[u8],
        path: impl FnOnce(&Flow, u32) -> Option<Self::Path>,
        wires: &mut Self::Wires,
    ) -> Result<ConnId, RestoreError> {
        let _ = (now, saved, path, wires);
        Err(RestoreError::Unsupported)
    }

    /// Enables the event OUT_OF_ORDER.
    fn report_out_of_order(&mut self, id: ConnId) {
        let _ = id;
    }

    /// Returns whether an acknowledgement waits for the next iteration. The loop must not sleep
    /// before it.
    #[inline(always)]
    fn has_pending_acks(&self) -> bool {
        false
    }

    /// Returns whether [`Transport::on_timers`] has to try something again in each iteration.
    #[inline(always)]
    fn has_retries(&self) -> bool {
        false
    }

    /// Returns the number of connections.
    fn connections(&self) -> u32 {
        0
    }

    /// Prefetches the entry of a flow in the table of flows.
    #[inline(always)]
    fn prefetch_flow(&self, hash: u32) {
        let _ = hash;
    }

    /// Prefetches the stream of a flow, or of another with the same hash. Returns its slot.
    #[inline(always)]
    fn prefetch_by_hash(&self, hash: u32) -> Option<u32> {
        let _ = hash;
        None
    }

    /// Prefetches a stream that is about to be used.
    #[inline(always)]
    fn prefetch(&self, id: ConnId) {
        let _ = id;
    }
}

/// How a stream is aborted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Abort {
    /// Its user has taken data from it.
    Used,
    /// Its user has taken nothing, so that nothing needs an acknowledgement of its own.
    Unused,
}

/// How far the peer has acknowledged.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Progress {
    /// Payload bytes that the peer has acknowledged since the stream opened.
    pub acked_bytes: u64,
    /// Everything pulled so far is acknowledged.
    pub all_acked: bool,
    /// [`Transport::transmit`] has something to send even with an empty source.
    pub wants_transmit: bool,
}

/// What became of a router's report.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct PathErrorOutcome {
    /// The stream that it concerns, with its events, if there are any.
    pub events: Option<(ConnId, Events)>,
    /// The connection respects the MTU that was reported, so that later ones to the same host may.
    pub mtu_accepted: bool,
}

/// A stream at a moment, for observers. Reading it changes nothing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ConnectionInfo {
    /// The stream.
    pub id: ConnId,
    /// The number of the IP protocol.
    pub protocol: u8,
    /// Both endpoints.
    pub flow: Flow,
    /// Payload bytes that the peer has acknowledged.
    pub acked_bytes: u64,
    /// Payload bytes received in order, modulo 2^32.
    pub received_bytes: u32,
    /// Packets sent again.
    pub retransmits: u32,
    /// When the last packet of the peer arrived; before that, when the stream was opened.
    pub last_rx_at: Nanos,
    /// The smoothed round-trip time (RFC 6298 s2); zero before the first sample.
    pub srtt: Nanos,
    /// The retransmission timeout.
    pub rto: Nanos,
    /// The congestion window.
    pub cwnd_bytes: u32,
    /// Bytes sent and not acknowledged.
    pub flight_bytes: u32,
    /// The addresses of the peer that it may use, and those of them that answer.
    pub paths: u8,
    /// See `paths`.
    pub paths_up: u8,
}

/// The resources that a transport holds at a moment, for leak checks.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ResourceUsage {
    /// Connections, including those in handshake and those not yet released.
    pub connections: usize,
    /// Flows that are remembered after their end.
    pub time_wait: usize,
    /// Connections in handshake that a peer opened.
    pub half_open: usize,
    /// Entries of the flow table.
    pub flows: usize,
    /// Received frames held for their payload.
    pub rx_frames: usize,
    /// Units retained until they are acknowledged.
    pub tx_units: usize,
}
