//! One node: net and tcp over an in-memory port, driven in the order of the core loop.

use std::net::{Ipv4Addr, SocketAddr};

use ironwarp_net::{Net, NetConfig, Path, Received};
use ironwarp_port::Wire;
use ironwarp_port::memory::MemoryPort;
use ironwarp_stats::{CoreStats, Counter};
use ironwarp_tcp::{ConnId, Tcp, TcpConfig, TcpEvents, Transmitted, UnitSource};
use ironwarp_types::{Flow, MacAddr, Nanos};

use super::port::{self, PortHandle};

pub struct Node {
    pub net: Net,
    pub tcp: Tcp<MemoryPort>,
    pub wire: Wire<MemoryPort>,
    pub port_handle: PortHandle,
    pub stats: CoreStats,
    pub now: Nanos,
    pub events: Vec<(ConnId, TcpEvents)>,
    pub host: u8,
    /// Check the invariants after every step.
    pub checks: bool,
}

pub fn mac(host: u8) -> MacAddr {
    MacAddr([2, 0, 0, 0, 0, host])
}

pub fn addr(host: u8, port: u16) -> SocketAddr {
    SocketAddr::from(([10, 0, 0, host], port))
}

impl Node {
    pub fn new(host: u8, mtu_bytes: u16, config: TcpConfig) -> Self {
        let (port, port_handle) = port::port(mac(host), mtu_bytes);
        let stats = CoreStats::detached();
        let net_config =
            NetConfig::new(mac(host), Ipv4Addr::new(10, 0, 0, host), 24, mtu_bytes, [u64::from(host), 7]);
        let wire = Wire::new(port);
        let net = Net::new(net_config, wire.caps(), stats.clone());
        let tcp = Tcp::new(config, net.hasher(), [u64::from(host), 11], stats.clone());
        Node {
            net,
            tcp,
            wire,
            port_handle,
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
        self.tcp.connect(self.now, flow, path, &mut self.wire).expect("a free slot")
    }

    /// Processes an arriving frame.
    pub fn receive(&mut self, bytes: &[u8]) {
        let frame = port::arrived(bytes);
        if let Some(Received::Segment(segment)) = self.net.on_frame(self.now, frame, &mut self.wire) {
            let (net, flow, mac) = (&self.net, segment.flow, segment.remote_mac);
            let event = self.tcp.on_segment(self.now, segment, || net.path_to(&flow, mac), &mut self.wire);
            self.events.extend(event);
            self.check_step();
        }
    }

    pub fn timers(&mut self) {
        self.net.on_timers(self.now, &mut self.wire);
        let events = &mut self.events;
        self.tcp.on_timers(self.now, &mut self.wire, &mut |id, event| events.push((id, event)));
        self.check_step();
    }

    pub fn transmit(&mut self, id: ConnId, source: &mut impl UnitSource, segments_max: usize) -> Transmitted {
        let done = self.tcp.transmit(self.now, id, source, &mut self.wire, segments_max);
        self.check_step();
        done
    }

    pub fn flush(&mut self) {
        self.tcp.flush_acks(self.now, &mut self.wire);
        self.wire.flush();
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
        let mut all = Vec::new();
        loop {
            self.wire.flush();
            let burst = self.port_handle.collect();
            if burst.is_empty() {
                return all;
            }
            all.extend(burst);
        }
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
