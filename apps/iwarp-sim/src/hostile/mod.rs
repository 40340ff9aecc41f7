//! A hostile host: it follows the rules of TCP and no others.
//!
//! It opens each of its sessions at its start time, over a connection of its own; see [`attack_conn`]. It replaces the
//! initiator's application: the oracle records what it sends and what its victims must do.

mod attack_conn;
mod craft;
pub(crate) mod frames;
mod visit;
mod visitor;

use core::net::{IpAddr, Ipv4Addr, SocketAddr};

use ironwarp::{MacAddr, Nanos};
use ironwarp_net::{Net, NetConfig, Received};
use ironwarp_port::memory::{MemoryFrame, MemoryPort};
use ironwarp_port::{Burst, Wire, Wires};
use ironwarp_sim::Node;
use ironwarp_stats::CoreStats;
use ironwarp_tcp::{ByteStream, ConnId, Tcp, TcpConfig, TcpEvents};
use ironwarp_types::{Entropy, Flow, SeededEntropy};

use crate::app::lifecycle::finish;
use crate::app::{SharedOracle, Stage};
use crate::plan::{HostilePlan, Plan, addresses_of};
use attack_conn::{AttackConn, ConnAction};
pub use visitor::Visitor;

/// A hostile host.
pub struct Hostile {
    address: IpAddr,
    net: Net,
    tcp: Tcp<MemoryPort>,
    wires: Wires<MemoryPort>,
    oracle: SharedOracle,
    rng: SeededEntropy,
    attack_conns: Vec<AttackConn>,
    /// Sessions that have not begun.
    waiting: Vec<usize>,
}

/// Units that a connection may send per scheduling round.
const TX_UNITS_PER_POLL: usize = 16;

/// Bursts received in one iteration.
const RX_BURSTS_PER_POLL: usize = 4;

impl Hostile {
    /// The hostile host of a plan, on `port`.
    pub fn new(plan: &Plan, hostile: &HostilePlan, port: MemoryPort, oracle: &SharedOracle) -> Self {
        let number = plan.hosts.len();
        let mut rng = SeededEntropy::new(hostile.seed);
        let secret = [rng.next_u64(), rng.next_u64()];
        let address = Ipv4Addr::new(10, 0, 0, number as u8 + 1);
        let config = NetConfig::new(hostile.device.mac, address, 24, hostile.device.mtu_bytes, secret);
        let (stats, wire) = (CoreStats::detached(), Wire::new(port));
        let net = Net::new(config, wire.caps(), stats.clone());
        let tcp = TcpConfig { connections_max: 256, time_wait: plan.time_wait, ..TcpConfig::default() };
        let mine = plan.sessions.iter().enumerate().filter(|(_, session)| session.hosts[0] == number);
        Hostile {
            address: address.into(),
            tcp: Tcp::new(tcp, net.hasher(), secret, stats),
            net,
            wires: Wires::single(wire),
            oracle: oracle.clone(),
            rng,
            attack_conns: Vec::new(),
            waiting: mine.map(|(number, _)| number).collect(),
        }
    }

    fn receive(&mut self, now: Nanos) {
        for _ in 0..RX_BURSTS_PER_POLL {
            let mut burst: Burst<MemoryFrame> = Burst::new();
            self.wires.first_mut().rx_burst(&mut burst);
            if burst.is_empty() {
                return;
            }
            for frame in burst {
                let Some(Received::Segment(segment)) = self.net.on_frame(now, frame, self.wires.first_mut())
                else {
                    continue;
                };
                let (net, flow, mac) = (&self.net, segment.flow, segment.remote_mac);
                let path = || net.path_to(&flow, mac);
                if let Some((conn, events)) = self.tcp.on_segment(now, segment, path, &mut self.wires) {
                    self.on_events(now, conn, events);
                }
            }
        }
    }

    fn timers(&mut self, now: Nanos) {
        self.net.on_timers(now, self.wires.first_mut());
        let mut fired = Vec::new();
        self.tcp.on_timers(now, &mut self.wires, &mut |conn, events| fired.push((conn, events)));
        for (conn, events) in fired {
            self.on_events(now, conn, events);
        }
    }

    fn on_events(&mut self, now: Nanos, conn: ConnId, events: TcpEvents) {
        let Some(index) = self.attack_conns.iter().position(|attack_conn| attack_conn.conn == conn) else {
            if events.intersects(TcpEvents::ENDED) {
                self.tcp.release(conn);
            }
            return;
        };
        let oracle = self.oracle.clone();
        let mut oracle = oracle.borrow_mut();
        let attack_conn = &mut self.attack_conns[index];
        let number = attack_conn.number;
        let mut stream = self.tcp.rx(conn);
        while stream.available() > 0 {
            let piece = stream.front().to_vec();
            stream.consume(piece.len());
            attack_conn.on_bytes(&piece);
        }
        attack_conn.on_events(&mut oracle.sessions[number], events);
        drop(oracle);
        self.poll_conn(now, index);
        if events.intersects(TcpEvents::ENDED) {
            self.end(now, conn);
        }
    }

    /// Opens the connections whose start time has come.
    fn begin(&mut self, now: Nanos) {
        let oracle = self.oracle.clone();
        let due = |number: &mut usize| oracle.borrow().sessions[*number].plan.start <= now;
        let due: Vec<usize> = self.waiting.extract_if(.., due).collect();
        for number in due {
            let (victim, port) = {
                let plan = &oracle.borrow().sessions[number].plan;
                (plan.hosts[1], plan.port)
            };
            let remote = SocketAddr::new(addresses_of(victim)[0].ip(), port);
            let mac = MacAddr([2, 0, 0, 0, 0, victim as u8 + 1]);
            let local = self.tcp.ephemeral_port(now, self.address, remote).unwrap_or(40_000 + number as u16);
            let flow = Flow { local: SocketAddr::new(self.address, local), remote };
            let path = self.net.path_to(&flow, mac);
            let opened = self.tcp.connect(now, flow, path, &mut self.wires);
            let mut oracle = oracle.borrow_mut();
            match opened {
                Ok(conn) => {
                    let session = &mut oracle.sessions[number];
                    session.sides[0].stage = Stage::Connecting;
                    // It accepts everything that it receives.
                    session.sides[0].receives_posted = u64::MAX;
                    let rng = SeededEntropy::new(self.rng.next_u64());
                    self.attack_conns.push(AttackConn::new(session, conn, now, rng));
                }
                Err(error) => oracle.report_failure(number, 0, &format!("connecting failed: {error:?}")),
            }
        }
    }

    /// Polls one connection.
    fn poll_conn(&mut self, now: Nanos, index: usize) {
        let oracle = self.oracle.clone();
        let mut oracle = oracle.borrow_mut();
        let attack_conn = &mut self.attack_conns[index];
        let (number, conn) = (attack_conn.number, attack_conn.conn);
        let action = attack_conn.poll_conn(now, &mut oracle.sessions[number]);
        let action = action.unwrap_or_else(|fault| {
            oracle.report_failure(number, 0, &fault);
            ConnAction::Abort
        });
        drop(oracle);
        match action {
            ConnAction::Keep => {}
            ConnAction::Close => {
                let events = self.tcp.close(now, conn, &mut self.wires);
                if events.intersects(TcpEvents::ENDED) {
                    self.end(now, conn);
                }
            }
            ConnAction::Abort => {
                self.tcp.abort(now, conn, &mut self.wires);
                self.end(now, conn);
            }
        }
    }

    /// A connection is over, and with it the attacker's side of the session.
    fn end(&mut self, now: Nanos, conn: ConnId) {
        let Some(index) = self.attack_conns.iter().position(|attack_conn| attack_conn.conn == conn) else {
            return;
        };
        let attack_conn = self.attack_conns.swap_remove(index);
        self.tcp.release(attack_conn.conn);
        let mut oracle = self.oracle.borrow_mut();
        if let Err(fault) = attack_conn.check_result(&mut oracle.sessions[attack_conn.number]) {
            oracle.report_failure(attack_conn.number, 0, &fault);
        }
        oracle.totals.attacks += u64::from(oracle.sessions[attack_conn.number].attack_outcome.is_some());
        let session = &mut oracle.sessions[attack_conn.number];
        session.sides[0].stage = Stage::Gone;
        session.ended_at.get_or_insert(now);
        if session.is_ended() {
            finish(now, &mut oracle, attack_conn.number);
        }
    }

    fn transmit(&mut self, now: Nanos) {
        for attack_conn in &mut self.attack_conns {
            let conn = attack_conn.conn;
            self.tcp.transmit(now, conn, attack_conn, &mut self.wires, TX_UNITS_PER_POLL);
        }
    }

    fn next_deadline(&self, now: Nanos) -> Option<Nanos> {
        if self.tcp.has_pending_acks() || self.wires.waiting_frames() > 0 {
            return Some(now);
        }
        let oracle = self.oracle.borrow();
        let starts = self.waiting.iter().map(|number| oracle.sessions[*number].plan.start);
        let looks = self.attack_conns.iter().map(|attack_conn| attack_conn.next_poll(now));
        starts.chain(looks).chain(self.tcp.next_deadline()).chain(self.net.next_deadline()).min()
    }
}

impl Node for Hostile {
    fn poll(&mut self, now: Nanos) -> Option<Nanos> {
        self.receive(now);
        self.timers(now);
        self.begin(now);
        for index in (0..self.attack_conns.len()).rev() {
            self.poll_conn(now, index);
        }
        self.transmit(now);
        self.tcp.flush_acks(now, &mut self.wires);
        self.wires.flush();
        self.next_deadline(now)
    }

    fn check(&self) -> Result<(), String> {
        self.tcp.check()?;
        self.oracle.borrow().fault.clone().map_or(Ok(()), Err)
    }
}
