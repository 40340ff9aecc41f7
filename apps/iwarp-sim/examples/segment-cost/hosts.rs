//! One host, with either stack, of a connection that carries bytes in one direction.

use std::net::{Ipv4Addr, SocketAddr};

use ironwarp_net::{Net, NetConfig, Received};
use ironwarp_port::{Burst, Wire, Wires};
use ironwarp_stats::CoreStats;
use ironwarp_tcp::{ByteStream, ConnId, State, Tcp, TcpConfig, TcpEvents, UnitSource};
use ironwarp_types::{Flow, Nanos};
use iwarp_sim::tcp::{SmoltcpDevice, address, link_address};
use smoltcp::iface::{Config, Interface, PollIngressSingleResult, PollResult, SocketHandle, SocketSet};
use smoltcp::phy::ChecksumCapabilities;
use smoltcp::socket::tcp::{Socket, SocketBuffer};
use smoltcp::time::Instant;
use smoltcp::wire::{EthernetAddress, IpAddress, IpCidr};

use crate::port::{BenchFrame, BenchPort};
use crate::{MTU_BYTES, TURN};

const PORT: u16 = 4_420;
const WINDOW_BYTES: u32 = 1 << 20;

/// A host of either stack.
pub trait Host {
    /// A host on a port whose device does or does not offload checksums.
    fn new(host: u8, port: BenchPort, offloads: bool) -> Self;
    /// Waits for a connection.
    fn listen(&mut self);
    /// Opens a connection to host 2.
    fn connect(&mut self, now: Nanos);
    /// Receives frames, reads their bytes and sends the acknowledgement that is due.
    fn receive(&mut self, now: Nanos);
    /// Sends the segments of one round.
    fn send(&mut self, now: Nanos);
    /// Returns whether the connection is established.
    fn is_open(&self) -> bool;
}

pub struct Ironwarp {
    host: u8,
    net: Net,
    tcp: Tcp<BenchPort>,
    wires: Wires<BenchPort>,
    /// `Some`, except while the burst is being emptied: taking it moves a pointer, not the frames.
    received: Option<Box<Burst<BenchFrame>>>,
    conn: Option<ConnId>,
    source: Endless,
}

/// A byte source without end.
struct Endless(Box<[u8]>);

impl UnitSource for Endless {
    fn fill(&mut self, room: &mut [u8]) -> usize {
        let len = room.len().min(self.0.len());
        room[..len].copy_from_slice(&self.0[..len]);
        len
    }
}

impl Ironwarp {
    fn on_frame(&mut self, now: Nanos, frame: BenchFrame) {
        let Some(Received::Segment(segment)) = self.net.on_frame(now, frame, self.wires.first_mut()) else {
            return;
        };
        let (net, flow, mac) = (&self.net, segment.flow, segment.remote_mac);
        let path = || net.path_to(&flow, mac);
        let Some((id, events)) = self.tcp.on_segment(now, segment, path, &mut self.wires) else { return };
        if events.contains(TcpEvents::ESTABLISHED) {
            self.conn = Some(id);
        }
        if events.contains(TcpEvents::READABLE) {
            let mut stream = self.tcp.rx(id);
            let available = stream.available();
            stream.consume(available);
        }
    }
}

impl Host for Ironwarp {
    fn new(host: u8, port: BenchPort, _offloads: bool) -> Self {
        let wire = Wire::new(port);
        let stats = CoreStats::detached();
        let addr = Ipv4Addr::new(10, 0, 0, host);
        let net = Net::new(
            NetConfig::new(link_address(host), addr, 24, MTU_BYTES, [1, 2]),
            wire.caps(),
            stats.clone(),
        );
        let config = TcpConfig {
            rcv_window_bytes: WINDOW_BYTES,
            retransmit_queue_bytes_max: WINDOW_BYTES,
            ..TcpConfig::default()
        };
        let tcp = Tcp::new(config, net.hasher(), [3, 4], stats);
        let source = Endless((0..9_000).map(|at| at as u8).collect());
        Ironwarp {
            host,
            net,
            tcp,
            wires: Wires::single(wire),
            received: Some(Box::default()),
            conn: None,
            source,
        }
    }

    fn listen(&mut self) {
        self.tcp.listen(address(self.host, PORT)).expect("room for a listener");
    }

    fn connect(&mut self, now: Nanos) {
        let remote = address(2, PORT);
        let flow = Flow { local: SocketAddr::new(address(self.host, 0).ip(), 50_000), remote };
        let path = self.net.path_to(&flow, link_address(2));
        self.tcp.connect(now, flow, path, &mut self.wires).expect("a place");
        self.wires.flush();
    }

    fn receive(&mut self, now: Nanos) {
        let Some(mut burst) = self.received.take() else { return };
        self.wires.first_mut().rx_burst(&mut burst);
        burst.drain(..).for_each(|frame| self.on_frame(now, frame));
        self.received = Some(burst);
        self.net.on_timers(now, self.wires.first_mut());
        self.tcp.on_timers(now, &mut self.wires, &mut |_, _| ());
        self.tcp.flush_acks(now, &mut self.wires);
        self.wires.flush();
    }

    fn send(&mut self, now: Nanos) {
        if let Some(id) = self.conn {
            self.tcp.transmit(now, id, &mut self.source, &mut self.wires, TURN);
        }
        self.wires.flush();
    }

    fn is_open(&self) -> bool {
        self.conn.is_some_and(|id| self.tcp.state(id) == State::Established)
    }
}

pub struct Smoltcp {
    device: SmoltcpDevice<BenchPort>,
    interface: Interface,
    sockets: SocketSet<'static>,
    socket: SocketHandle,
    source: Endless,
}

impl Smoltcp {
    fn tcp(&mut self) -> &mut Socket<'static> {
        self.sockets.get_mut(self.socket)
    }

    fn egress(&mut self, at: Instant) {
        while self.device.tx_left > 0 {
            if let PollResult::None = self.interface.poll_egress(at, &mut self.device, &mut self.sockets) {
                break;
            }
        }
        self.device.wire.flush();
    }
}

fn instant(now: Nanos) -> Instant {
    Instant::from_micros((now.0 / 1_000) as i64)
}

impl Host for Smoltcp {
    fn new(host: u8, port: BenchPort, offloads: bool) -> Self {
        let mut device = SmoltcpDevice::new(port);
        if offloads {
            device.checksums = ChecksumCapabilities::ignored();
        }
        let config = Config::new(EthernetAddress(link_address(host).0).into());
        let mut interface = Interface::new(config, &mut device, Instant::ZERO);
        interface.update_ip_addrs(|addrs| {
            addrs.push(IpCidr::new(IpAddress::v4(10, 0, 0, host), 24)).expect("room for an address");
        });
        let ring = || SocketBuffer::new(vec![0; WINDOW_BYTES as usize]);
        let mut sockets = SocketSet::new(Vec::with_capacity(1));
        let socket = sockets.add(Socket::new(ring(), ring()));
        let source = Endless((0..9_000).map(|at| at as u8).collect());
        Smoltcp { device, interface, sockets, socket, source }
    }

    fn listen(&mut self) {
        self.tcp().listen(PORT).expect("a fresh socket");
    }

    fn connect(&mut self, _now: Nanos) {
        let remote = (IpAddress::v4(10, 0, 0, 2), PORT);
        let socket = self.sockets.get_mut::<Socket>(self.socket);
        socket.connect(self.interface.context(), remote, 50_000).expect("a fresh socket");
    }

    fn receive(&mut self, now: Nanos) {
        let at = instant(now);
        loop {
            let result = self.interface.poll_ingress_single(at, &mut self.device, &mut self.sockets);
            if let PollIngressSingleResult::None = result {
                break;
            }
        }
        let socket = self.tcp();
        while socket.can_recv() {
            socket.recv(|bytes| (bytes.len(), ())).expect("bytes");
        }
        self.device.tx_left = 1;
        self.egress(at);
    }

    fn send(&mut self, now: Nanos) {
        let mut left = TURN * 1_460;
        while left > 0 && self.tcp().can_send() {
            let source = &mut self.source;
            let socket = self.sockets.get_mut::<Socket>(self.socket);
            let sent = socket.send(|room| {
                let len = room.len().min(left);
                let len = source.fill(&mut room[..len]);
                (len, len)
            });
            left -= sent.expect("an open socket");
        }
        self.device.tx_left = TURN;
        self.egress(instant(now));
    }

    fn is_open(&self) -> bool {
        self.sockets.get::<Socket>(self.socket).may_send()
    }
}
