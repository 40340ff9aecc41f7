//! A peer with a correct TCP. Above TCP it sends only what a test specifies.

use std::collections::VecDeque;
use std::net::{Ipv4Addr, SocketAddr};
use std::time::Instant;

use ironwarp::memory::{MemoryConfig, MemoryControl, MemoryPort, pair};
use ironwarp::{Config, Event, MacAddr, Nanos};
use ironwarp_net::{Net, NetConfig, Prefix, Received, Route};
use ironwarp_port::{Burst, Port, Wire, Wires};
use ironwarp_stats::CoreStats;
use ironwarp_tcp::{ByteStream, ConnId, Tcp, TcpConfig, TcpEvents, Transport, UnitSource};
use ironwarp_types::Flow;

use super::{Node, TURNS_MAX};

/// The peer's address, on which it also listens.
pub const PEER: &str = "10.0.0.9:4791";
const ADDRESS: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 9);
/// The peer's other addresses. To the node they are other hosts.
pub const OTHERS: [Ipv4Addr; 2] = [Ipv4Addr::new(10, 0, 0, 8), Ipv4Addr::new(10, 0, 0, 7)];

/// Queued transmissions, each entry in a segment of its own.
#[derive(Default)]
struct Said(VecDeque<Vec<u8>>);

impl UnitSource for Said {
    fn fill(&mut self, room: &mut [u8]) -> usize {
        let Some(unit) = self.0.pop_front() else { return 0 };
        room[..unit.len()].copy_from_slice(&unit);
        unit.len()
    }
}

pub struct FakePeer {
    wires: Wires<MemoryPort>,
    net: Net,
    tcp: Tcp<MemoryPort>,
    begun: Instant,
    conn: Option<ConnId>,
    calling: Option<SocketAddr>,
    calls_from: Ipv4Addr,
    said: Said,
    /// The octets received on the open connection, and the payload length of each segment.
    pub heard: Vec<u8>,
    pub segments: Vec<usize>,
    /// The TCP events of that connection.
    pub events: TcpEvents,
    /// Connections that were established.
    pub connections: u32,
    /// If set, the peer reads nothing, so its window closes.
    pub deaf: bool,
}

impl FakePeer {
    fn new(port: MemoryPort, tcp: TcpConfig) -> Self {
        let (secret, stats) = ([3, 4], CoreStats::detached());
        let caps = port.caps();
        let mut config = NetConfig::new(caps.mac, ADDRESS, 24, 1500, secret);
        config.addresses.extend(OTHERS.map(|addr| Prefix { addr: addr.into(), len: 24 }));
        let net = Net::new(config, caps, stats.clone());
        let mut tcp = Tcp::new(tcp, net.hasher(), secret, stats);
        tcp.listen(PEER.parse().unwrap()).expect("a free address");
        FakePeer {
            wires: Wires::single(Wire::new(port)),
            net,
            tcp,
            begun: Instant::now(),
            conn: None,
            calling: None,
            calls_from: ADDRESS,
            said: Said::default(),
            heard: Vec::new(),
            segments: Vec::new(),
            events: TcpEvents::empty(),
            connections: 0,
            deaf: false,
        }
    }

    pub fn turn(&mut self) {
        let now = Nanos::from_micros(self.begun.elapsed().as_micros() as u64);
        let mut burst = Burst::new();
        self.wires.first_mut().rx_burst(&mut burst);
        for frame in burst.drain(..) {
            let received = self.net.on_frame(now, frame, self.wires.first_mut());
            let Some(Received::Packet(segment)) = received else { continue };
            let (flow, mac, net) = (segment.flow, segment.remote_mac, &self.net);
            let path = || net.path_to(&flow, mac);
            if let Some((conn, events)) = self.tcp.on_segment(now, segment, path, &mut self.wires) {
                self.on_events(conn, events);
            }
        }
        self.net.on_timers(now, self.wires.first_mut());
        let mut told = Vec::new();
        self.tcp.on_timers(now, &mut self.wires, &mut |conn, events| told.push((conn, events)));
        for (conn, events) in told {
            self.on_events(conn, events);
        }
        self.call(now);
        if let Some(conn) = self.conn {
            self.tcp.transmit(now, conn, &mut self.said, &mut self.wires, 16);
        }
        self.tcp.flush_acks(now, &mut self.wires);
        self.wires.flush();
    }

    fn on_events(&mut self, conn: ConnId, events: TcpEvents) {
        if events.contains(TcpEvents::ESTABLISHED) {
            (self.conn, self.events) = (Some(conn), TcpEvents::empty());
            self.heard.clear();
            self.segments.clear();
            self.connections += 1;
        }
        if events.contains(TcpEvents::READABLE) && !self.deaf {
            let mut stream = self.tcp.rx(conn);
            self.segments.push(stream.available());
            while stream.available() > 0 {
                let piece = stream.front().to_vec();
                stream.consume(piece.len());
                self.heard.extend(piece);
            }
        }
        if self.conn == Some(conn) {
            self.events |= events;
        }
        if events.intersects(TcpEvents::ENDED) {
            self.tcp.release(conn);
            self.conn = self.conn.filter(|open| *open != conn);
        }
    }

    fn call(&mut self, now: Nanos) {
        let Some(remote) = self.calling else { return };
        let Route::Ready(path) = self.net.route(now, remote.ip(), self.wires.first_mut()) else { return };
        let port = self.tcp.ephemeral_port(now, self.calls_from.into(), remote).expect("a free port");
        let flow = Flow { local: SocketAddr::new(self.calls_from.into(), port), remote };
        // The path is the same from all its addresses.
        let path = self.net.path_to(&flow, path.remote_mac());
        self.tcp.connect(now, flow, path, &mut self.wires).expect("a connection");
        self.calling = None;
    }

    /// Opens a connection from one of its addresses.
    pub fn connect_from(&mut self, address: Ipv4Addr, remote: &str) {
        self.calls_from = address;
        self.connect(remote);
    }

    /// Opens a connection.
    pub fn connect(&mut self, remote: &str) {
        self.calling = Some(remote.parse().unwrap());
    }

    /// Sends `octets` in one segment.
    pub fn say(&mut self, octets: &[u8]) {
        self.said.0.push_back(octets.to_vec());
    }

    /// Whether everything queued has been sent.
    pub fn has_said_all(&self) -> bool {
        self.said.0.is_empty()
    }

    /// Sends FIN.
    pub fn close(&mut self) {
        let now = Nanos::from_micros(self.begun.elapsed().as_micros() as u64);
        if let Some(conn) = self.conn {
            self.tcp.close(now, conn, &mut self.wires);
        }
    }

    /// Sends RST.
    pub fn reset(&mut self) {
        let now = Nanos::from_micros(self.begun.elapsed().as_micros() as u64);
        if let Some(conn) = self.conn.take() {
            self.tcp.abort(now, conn, &mut self.wires);
            self.tcp.release(conn);
            self.wires.flush();
        }
    }
}

/// A stack of ours and a fake peer.
pub struct Scene {
    pub node: Node,
    pub peer: FakePeer,
    /// Controls our port.
    pub control: MemoryControl,
}

impl Scene {
    pub fn new(change: impl FnOnce(&mut Config)) -> Self {
        Self::with_peer(TcpConfig::default(), change)
    }

    /// A scene whose peer retransmits nothing, however long the scheduler delays the test's thread.
    pub fn patient() -> Self {
        let long = Nanos::from_secs(10);
        let tcp = TcpConfig { rto_min: long, rto_initial: long, ack_delay_max: long, ..TcpConfig::default() };
        Self::with_peer(tcp, |_| ())
    }

    fn with_peer(tcp: TcpConfig, change: impl FnOnce(&mut Config)) -> Self {
        let mac = MacAddr([2, 0, 0, 0, 0, 9]);
        let (ours, theirs) = pair(&MemoryConfig::default(), &MemoryConfig { mac, ..MemoryConfig::default() });
        let mut config = super::config("10.0.0.1/24");
        change(&mut config);
        let control = ours.control();
        Scene { node: Node::new(config, ours), peer: FakePeer::new(theirs, tcp), control }
    }

    pub fn turn(&mut self) {
        self.node.turn();
        self.peer.turn();
    }

    pub fn turns(&mut self, turns: usize) {
        (0..turns).for_each(|_| self.turn());
    }

    #[track_caller]
    pub fn until(&mut self, what: &str, mut done: impl FnMut(&mut Scene) -> bool) {
        let limit = Instant::now() + std::time::Duration::from_secs(20);
        let mut turns = 0;
        while !done(self) {
            self.turn();
            turns += 1;
            let heard = &self.peer.heard;
            assert!(
                turns < TURNS_MAX || Instant::now() < limit,
                "timed out waiting for: {what}; events {:?}, received {heard:02x?}",
                self.node.events
            );
        }
    }

    /// Removes and returns the first `bytes` octets that the peer received, once they have arrived.
    #[track_caller]
    pub fn hear(&mut self, what: &str, bytes: usize) -> Vec<u8> {
        self.until(what, |scene| scene.peer.heard.len() >= bytes);
        self.peer.heard.drain(..bytes).collect()
    }

    /// Removes the first event that `pick` accepts and returns its value.
    #[track_caller]
    pub fn event<T>(&mut self, what: &str, mut pick: impl FnMut(&Event) -> Option<T>) -> T {
        self.until(what, |scene| scene.node.events.iter().any(|event| pick(event).is_some()));
        let at = self.node.events.iter().position(|event| pick(event).is_some()).unwrap();
        pick(&self.node.events.remove(at)).unwrap()
    }
}
