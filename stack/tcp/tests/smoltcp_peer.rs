//! Unmodified smoltcp as the peer, in both roles, over a clean and over a lossy link: an
//! independent implementation.

use crate::common;

use std::collections::VecDeque;

use common::link::{Faults, Link, Rng};
use common::node::{Node, addr, mac};
use common::pattern::{Pattern, byte_at, read_all};
use ironwarp_stats::Counter;
use ironwarp_tcp::{ConnId, TcpConfig, TcpEvents, Transport};
use ironwarp_types::Nanos;
use smoltcp::iface::{Config, Interface, SocketHandle, SocketSet};
use smoltcp::phy::{Device, DeviceCapabilities, Medium, RxToken, TxToken};
use smoltcp::socket::tcp;
use smoltcp::time::Instant;
use smoltcp::wire::{EthernetAddress, IpAddress, IpCidr};

const DELAY: Nanos = Nanos::from_micros(50);
const PORT: u16 = 4_420;
const BYTES: u64 = 150_000;

#[derive(Default)]
struct Queues {
    rx: VecDeque<Vec<u8>>,
    tx: Vec<Vec<u8>>,
}

struct Received(Vec<u8>);

struct Sent<'a>(&'a mut Vec<Vec<u8>>);

impl RxToken for Received {
    fn consume<R, F: FnOnce(&[u8]) -> R>(self, f: F) -> R {
        f(&self.0)
    }
}

impl TxToken for Sent<'_> {
    fn consume<R, F: FnOnce(&mut [u8]) -> R>(self, len: usize, f: F) -> R {
        let mut frame = vec![0; len];
        let result = f(&mut frame);
        self.0.push(frame);
        result
    }
}

impl Device for Queues {
    type RxToken<'a> = Received;
    type TxToken<'a> = Sent<'a>;

    fn receive(&mut self, _at: Instant) -> Option<(Received, Sent<'_>)> {
        let frame = self.rx.pop_front()?;
        Some((Received(frame), Sent(&mut self.tx)))
    }

    fn transmit(&mut self, _at: Instant) -> Option<Sent<'_>> {
        Some(Sent(&mut self.tx))
    }

    fn capabilities(&self) -> DeviceCapabilities {
        let mut capabilities = DeviceCapabilities::default();
        capabilities.medium = Medium::Ethernet;
        capabilities.max_transmission_unit = 1_514;
        capabilities
    }
}

/// The smoltcp side: one socket that sends a pattern and checks the received one.
struct SmoltcpPeer {
    device: Queues,
    interface: Interface,
    sockets: SocketSet<'static>,
    socket: SocketHandle,
    sent: u64,
    taken: u64,
    closed: bool,
}

impl SmoltcpPeer {
    fn new(buffer: usize) -> Self {
        let mut device = Queues::default();
        let config = Config::new(EthernetAddress(mac(2).0).into());
        let mut interface = Interface::new(config, &mut device, Instant::ZERO);
        interface.update_ip_addrs(|addrs| {
            addrs.push(IpCidr::new(IpAddress::v4(10, 0, 0, 2), 24)).expect("room for an address");
        });
        let ring = || tcp::SocketBuffer::new(vec![0; buffer]);
        let mut sockets = SocketSet::new(Vec::new());
        let socket = sockets.add(tcp::Socket::new(ring(), ring()));
        SmoltcpPeer { device, interface, sockets, socket, sent: 0, taken: 0, closed: false }
    }

    fn poll(&mut self, now: Nanos, arrived: Vec<Vec<u8>>) -> Vec<Vec<u8>> {
        self.device.rx.extend(arrived);
        let at = Instant::from_micros((now.0 / 1_000) as i64);
        self.interface.poll(at, &mut self.device, &mut self.sockets);
        self.read_and_write();
        self.interface.poll(at, &mut self.device, &mut self.sockets);
        std::mem::take(&mut self.device.tx)
    }

    fn read_and_write(&mut self) {
        let socket = self.sockets.get_mut::<tcp::Socket>(self.socket);
        while socket.can_recv() {
            let taken = self.taken;
            let read = socket.recv(|bytes| {
                let right = bytes.iter().enumerate().all(|(at, &byte)| byte == byte_at(taken + at as u64));
                assert!(right, "wrong bytes from {taken} on");
                (bytes.len(), bytes.len())
            });
            self.taken += read.expect("readable") as u64;
        }
        while socket.can_send() && self.sent < BYTES {
            let sent = self.sent;
            let wrote = socket.send(|room| {
                let len = room.len().min((BYTES - sent) as usize);
                for (at, byte) in room[..len].iter_mut().enumerate() {
                    *byte = byte_at(sent + at as u64);
                }
                (len, len)
            });
            self.sent += wrote.expect("writable") as u64;
        }
        if self.sent == BYTES && self.taken == BYTES && !self.closed {
            self.closed = true;
            socket.close();
        }
    }

    fn is_over(&self) -> bool {
        let state = self.sockets.get::<tcp::Socket>(self.socket).state();
        self.closed && matches!(state, tcp::State::Closed | tcp::State::TimeWait)
    }
}

/// The side under test.
struct TcpSide {
    node: Node,
    id: Option<ConnId>,
    source: Pattern,
    taken: u64,
    closed: bool,
    over: bool,
}

impl TcpSide {
    fn poll(&mut self, now: Nanos, arrived: Vec<Vec<u8>>) -> Vec<Vec<u8>> {
        self.node.now = now;
        for frame in arrived {
            self.node.receive(&frame);
        }
        self.node.timers();
        for (id, events) in std::mem::take(&mut self.node.events) {
            assert!(
                !events.intersects(TcpEvents::RESET | TcpEvents::TIMED_OUT | TcpEvents::REFUSED),
                "{events:?}"
            );
            self.id = Some(id);
            read_all(&mut self.node.tcp.rx(id), &mut self.taken);
            self.over |= events.contains(TcpEvents::CLOSED);
        }
        self.node.flush();
        if let Some(id) = self.id.filter(|_| !self.over) {
            self.node.transmit(id, &mut self.source, 16);
            if self.source.left == 0 && self.taken == BYTES && !self.closed {
                self.closed = true;
                self.node.tcp.close(now, id, &mut self.node.wires);
            }
        }
        self.node.sent()
    }
}

fn run(active: bool, faults: Faults, buffer: usize, seed: u64) -> TcpSide {
    let mut rng = Rng(seed);
    let config = TcpConfig {
        // smoltcp delays its ACKs by 10 ms.
        rto_min: Nanos::from_millis(20),
        rto_initial: Nanos::from_millis(50),
        rto_max: Nanos::from_secs(1),
        syn_retries: 20,
        user_timeout: Nanos::from_secs(120),
        ..TcpConfig::default()
    };
    let mut tcp_side = TcpSide {
        node: Node::new(1, 1_500, config),
        id: None,
        source: Pattern::new(BYTES, 1_460),
        taken: 0,
        closed: false,
        over: false,
    };
    let mut smoltcp_peer = SmoltcpPeer::new(buffer);
    let socket = smoltcp_peer.sockets.get_mut::<tcp::Socket>(smoltcp_peer.socket);
    if active {
        socket.listen(PORT).expect("a closed socket");
        tcp_side.id = Some(tcp_side.node.connect(50_000, addr(2, PORT), 2));
    } else {
        tcp_side.node.tcp.listen(addr(1, PORT)).expect("room");
        let remote = (IpAddress::v4(10, 0, 0, 1), PORT);
        socket.connect(smoltcp_peer.interface.context(), remote, 50_000).expect("a closed socket");
    }
    let (mut to_tcp, mut to_smoltcp) = (Link::new(faults, DELAY), Link::new(faults, DELAY));
    let mut now = Nanos::from_secs(1);
    while !(tcp_side.over && smoltcp_peer.is_over()) {
        for frame in tcp_side.poll(now, to_tcp.arrived(now)) {
            to_smoltcp.send(now, frame, &mut rng);
        }
        for frame in smoltcp_peer.poll(now, to_smoltcp.arrived(now)) {
            to_tcp.send(now, frame, &mut rng);
        }
        let idle = to_tcp.next_arrival().is_none() && to_smoltcp.next_arrival().is_none();
        now += if idle { Nanos::from_millis(1) } else { Nanos::from_micros(25) };
        assert!(
            now < Nanos::from_secs(600),
            "seed {seed}: ours took {}, smoltcp {}",
            tcp_side.taken,
            smoltcp_peer.taken
        );
    }
    assert_eq!((tcp_side.taken, smoltcp_peer.taken), (BYTES, BYTES));
    tcp_side.node.tcp.release(tcp_side.id.expect("a connection"));
    tcp_side.node.check();
    tcp_side
}

#[test]
fn an_active_open_to_smoltcp_transfers_both_ways() {
    let tcp_side = run(true, Faults::default(), 65_536, 1);
    assert_eq!(tcp_side.node.read(Counter::TcpTxRetransmits), 0);
}

#[test]
fn a_passive_open_from_smoltcp_transfers_both_ways() {
    let tcp_side = run(false, Faults::default(), 65_536, 1);
    assert_eq!(tcp_side.node.read(Counter::TcpTxRetransmits), 0);
}

#[test]
fn scaled_and_tiny_windows_transfer_the_stream() {
    run(true, Faults::default(), 400_000, 2);
    run(false, Faults::default(), 2_000, 3);
}

#[test]
fn the_stream_survives_loss_in_both_roles() {
    for seed in 0..6 {
        let faults = Faults { lost_percent: 1 + seed % 4, duplicated_percent: 1, reordered_percent: 2 };
        run(seed % 2 == 0, faults, 32_768, seed);
    }
}
