//! One node: net and tcp over an in-memory port, driven in the order of the core loop.

use std::net::{Ipv4Addr, SocketAddr};

use ironwarp_net::{Net, NetConfig, Path, Received};
use ironwarp_port::memory::{self, FarEnd, MemoryConfig, MemoryControl, MemoryFrame, MemoryPort};
use ironwarp_port::{Burst, Frame, Wire, Wires};
use ironwarp_stats::{CoreStats, Counter};
use ironwarp_tcp::{
    Arrival, ByteStream, ConnId, Lent, LentBytes, RestoreError, Tcp, TcpConfig, TcpEvents, Transmitted,
    Transport, UnitSource,
};
use ironwarp_types::{Flow, MacAddr, Nanos};

pub struct Node {
    pub net: Net,
    pub tcp: Tcp<MemoryPort>,
    pub wires: Wires<MemoryPort>,
    pub control: MemoryControl,
    far: FarEnd,
    tx_frames: usize,
    pub stats: CoreStats,
    pub now: Nanos,
    pub events: Vec<(ConnId, TcpEvents)>,
    pub host: u8,
    /// Check the invariants after every call of TCP.
    pub checks: bool,
}

pub fn mac(host: u8) -> MacAddr {
    MacAddr([2, 0, 0, 0, 0, host])
}

pub fn addr(host: u8, port: u16) -> SocketAddr {
    SocketAddr::from(([10, 0, 0, host], port))
}

/// Buffers of each pool, and frames of each ring, unless a test needs more.
const FRAMES: usize = 1024;

/// Returns an arriving frame, in a buffer of the usual size or larger if needed.
pub fn arrived(bytes: &[u8]) -> MemoryFrame {
    MemoryFrame::detached(bytes, 2_048)
}

impl Node {
    pub fn new(host: u8, mtu_bytes: u16, config: TcpConfig) -> Self {
        Self::with_frames(FRAMES, host, mtu_bytes, config)
    }

    /// Creates a node whose port has `frames` buffers in each pool and room for as many in each
    /// ring.
    pub fn with_frames(frames: usize, host: u8, mtu_bytes: u16, config: TcpConfig) -> Self {
        let (port, far) = memory::detached(&MemoryConfig {
            mac: mac(host),
            mtu_bytes,
            rx_frames: frames,
            tx_frames: frames,
            rx_ring_frames: frames,
            tx_ring_frames: frames,
            ..MemoryConfig::default()
        });
        let stats = CoreStats::detached();
        let net_config =
            NetConfig::new(mac(host), Ipv4Addr::new(10, 0, 0, host), 24, mtu_bytes, [u64::from(host), 7]);
        let (control, wire) = (port.control(), Wire::new(port));
        let net = Net::new(net_config, wire.caps(), stats.clone());
        let tcp = Tcp::new(config, net.hasher(), [u64::from(host), 11], stats.clone());
        Node {
            net,
            tcp,
            wires: Wires::single(wire),
            control,
            far,
            tx_frames: frames,
            stats,
            now: Nanos::from_secs(1),
            events: Vec::new(),
            host,
            checks: true,
        }
    }

    pub fn path_to(&self, host: u8) -> Path {
        let flow = Flow { local: addr(self.host, 0), remote: addr(host, 0) };
        self.net.path_to(&flow, mac(host))
    }

    pub fn connect(&mut self, local_port: u16, remote: SocketAddr, remote_host: u8) -> ConnId {
        let flow = Flow { local: addr(self.host, local_port), remote };
        let path = self.path_to(remote_host);
        self.tcp.connect(self.now, flow, path, &mut self.wires).expect("a free slot")
    }

    /// Restores a connection that was saved on this host.
    pub fn restore(&mut self, saved: &[u8]) -> Result<ConnId, RestoreError> {
        let net = &self.net;
        let path = |flow: &Flow, _| match flow.remote.ip().is_ipv4() {
            true => Some(net.path_to(flow, mac(self.host ^ 3))),
            false => None,
        };
        self.tcp.restore(self.now, saved, path, &mut self.wires)
    }

    /// Processes an arriving frame.
    pub fn receive(&mut self, bytes: &[u8]) {
        self.arrive(bytes, &mut |_| None::<()>);
    }

    /// Processes an arriving frame, and lets `read` consume lent payload. Returns the number of
    /// lent bytes.
    pub fn receive_lending(&mut self, bytes: &[u8], read: impl FnOnce(&mut LentBytes<MemoryFrame>)) -> usize {
        let mut read = Some(read);
        let mut read_once = |lent: Lent<'_, LentBytes<MemoryFrame>>| {
            let len = lent.bytes.available();
            read.take()?(lent.bytes);
            let readable = if lent.bytes.available() > 0 { TcpEvents::READABLE } else { TcpEvents::empty() };
            Some((lent.conn, lent.events | readable, len))
        };
        let Some((conn, events, len)) = self.arrive(bytes, &mut read_once) else { return 0 };
        self.events.push((conn, events));
        len
    }

    /// Passes a frame to TCP in the order of the core loop: as a fast one, or after the checks of
    /// `net`. Returns what `read` returns for lent payload.
    fn arrive<R>(
        &mut self,
        bytes: &[u8],
        read: &mut impl FnMut(Lent<'_, LentBytes<MemoryFrame>>) -> Option<R>,
    ) -> Option<R> {
        let (now, wires) = (self.now, &mut self.wires);
        let arrival = match self.tcp.on_fast_frame(now, &self.net, arrived(bytes), wires, &mut *read) {
            Ok(arrival) => Some(arrival),
            Err(frame) => match self.net.on_frame(now, frame, wires.first_mut()) {
                Some(Received::Packet(segment)) => {
                    let (net, flow, mac) = (&self.net, segment.flow, segment.remote_mac);
                    self.tcp.on_segment_lending(now, segment, || net.path_to(&flow, mac), wires, read)
                }
                _ => None,
            },
        };
        let read = match arrival? {
            Arrival::Delivered(read) => Some(read),
            Arrival::Events(conn, events) => {
                self.events.push((conn, events));
                None
            }
        };
        self.check_step();
        read
    }

    pub fn timers(&mut self) {
        self.net.on_timers(self.now, self.wires.first_mut());
        let events = &mut self.events;
        self.tcp.on_timers(self.now, &mut self.wires, &mut |id, event| events.push((id, event)));
        self.check_step();
    }

    pub fn transmit(&mut self, id: ConnId, source: &mut impl UnitSource, segments_max: usize) -> Transmitted {
        let done = self.tcp.transmit(self.now, id, source, &mut self.wires, segments_max);
        self.check_step();
        done
    }

    pub fn flush(&mut self) {
        self.tcp.flush_acks(self.now, &mut self.wires);
        self.wires.flush();
        self.check_step();
    }

    /// Returns the union of a connection's events since the last call.
    pub fn take_events(&mut self, id: ConnId) -> TcpEvents {
        let (mine, others) = self.events.drain(..).partition::<Vec<_>, _>(|&(of, _)| of == id);
        self.events = others;
        mine.into_iter().fold(TcpEvents::empty(), |all, (_, event)| all | event)
    }

    /// Returns the connection of an ESTABLISHED event.
    pub fn established(&self) -> Option<ConnId> {
        self.events.iter().find(|(_, event)| event.contains(TcpEvents::ESTABLISHED)).map(|&(id, _)| id)
    }

    pub fn sent(&mut self) -> Vec<Vec<u8>> {
        let mut sent = Vec::new();
        loop {
            self.wires.flush();
            let mut burst = Burst::new();
            self.far.collect(&mut burst);
            if burst.is_empty() {
                return sent;
            }
            sent.extend(burst.iter().map(|frame| frame.bytes().to_vec()));
        }
    }

    /// Lets allocations of transmit frames succeed or fail.
    pub fn allow_allocations(&self, allowed: bool) {
        self.control.allow_allocations(if allowed { u64::MAX } else { 0 });
    }

    /// Lets this many more frames be allocated; `u64::MAX` is no limit.
    pub fn limit_allocations(&self, frames: u64) {
        self.control.allow_allocations(frames);
    }

    /// Lets the device take frames or not.
    pub fn allow_sending(&self, allowed: bool) {
        self.control.limit_tx_burst(if allowed { u64::MAX } else { 0 });
    }

    /// Lets the device take this many frames of a burst.
    pub fn limit_tx_burst(&self, frames: u64) {
        self.control.limit_tx_burst(frames);
    }

    /// Returns the number of transmit frames in use.
    pub fn tx_frames_in_use(&self) -> usize {
        self.tx_frames - self.control.free_frames().tx
    }

    pub fn read(&self, counter: Counter) -> u64 {
        self.stats.read(counter)
    }

    fn check_step(&self) {
        if self.checks {
            self.check();
        }
    }

    pub fn check(&self) {
        self.tcp.check().unwrap_or_else(|fault| panic!("at {:?}: {fault}", self.now));
    }
}
