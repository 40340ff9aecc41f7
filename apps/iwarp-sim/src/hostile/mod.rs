//! A host that keeps the rules of TCP and no others.
//!
//! It opens its sessions when their time comes, each over a connection of its own; see [`visit`]. It stands in for the
//! initiator's application: what it says is in the ledger, and so is everything that its victims must make of it.

mod craft;
mod frames;
mod visit;

use core::net::{IpAddr, Ipv4Addr, SocketAddr};

use ironwarp::{MacAddr, Nanos};
use ironwarp_net::{Net, NetConfig, Received};
use ironwarp_port::memory::{MemoryFrame, MemoryPort};
use ironwarp_port::{Burst, Wire};
use ironwarp_sim::Node;
use ironwarp_stats::CoreStats;
use ironwarp_tcp::{ByteStream, ConnId, Tcp, TcpConfig, TcpEvents};
use ironwarp_types::{Entropy, Flow, SeededEntropy};

use crate::app::life::finish;
use crate::app::{SharedLedger, Stage};
use crate::plan::{HostilePlan, Plan, addresses_of};
use visit::{Visit, Wish};

/// A hostile host.
pub struct Hostile {
    address: IpAddr,
    net: Net,
    tcp: Tcp<MemoryPort>,
    wire: Wire<MemoryPort>,
    ledger: SharedLedger,
    dice: SeededEntropy,
    visits: Vec<Visit>,
    /// Sessions that have not begun.
    waiting: Vec<usize>,
}

/// Units that a connection may say in its turn.
const TURN_UNITS: usize = 16;

/// Bursts received in one iteration.
const BURSTS: usize = 4;

impl Hostile {
    /// The host of a plan, at the end of `port`.
    pub fn new(plan: &Plan, hostile: &HostilePlan, port: MemoryPort, ledger: &SharedLedger) -> Self {
        let number = plan.hosts.len();
        let mut dice = SeededEntropy::new(hostile.seed);
        let secret = [dice.next_u64(), dice.next_u64()];
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
            wire,
            ledger: ledger.clone(),
            dice,
            visits: Vec::new(),
            waiting: mine.map(|(number, _)| number).collect(),
        }
    }

    fn receive(&mut self, now: Nanos) {
        for _ in 0..BURSTS {
            let mut burst: Burst<MemoryFrame> = Burst::new();
            self.wire.rx_burst(&mut burst);
            if burst.is_empty() {
                return;
            }
            for frame in burst {
                let Some(Received::Segment(segment)) = self.net.on_frame(now, frame, &mut self.wire) else {
                    continue;
                };
                let (net, flow, mac) = (&self.net, segment.flow, segment.remote_mac);
                let path = || net.path_to(&flow, mac);
                if let Some((conn, events)) = self.tcp.on_segment(now, segment, path, &mut self.wire) {
                    self.on_events(now, conn, events);
                }
            }
        }
    }

    fn timers(&mut self, now: Nanos) {
        self.net.on_timers(now, &mut self.wire);
        let mut fired = Vec::new();
        self.tcp.on_timers(now, &mut self.wire, &mut |conn, events| fired.push((conn, events)));
        for (conn, events) in fired {
            self.on_events(now, conn, events);
        }
    }

    fn on_events(&mut self, now: Nanos, conn: ConnId, events: TcpEvents) {
        let Some(index) = self.visits.iter().position(|visit| visit.conn == conn) else {
            if events.intersects(TcpEvents::ENDED) {
                self.tcp.release(conn);
            }
            return;
        };
        let ledger = self.ledger.clone();
        let mut ledger = ledger.borrow_mut();
        let visit = &mut self.visits[index];
        let number = visit.number;
        let mut stream = self.tcp.rx(conn);
        while stream.available() > 0 {
            let piece = stream.front().to_vec();
            stream.consume(piece.len());
            visit.hear(&piece);
        }
        visit.on_events(&mut ledger.sessions[number], events);
        drop(ledger);
        self.turn(now, index);
        if events.intersects(TcpEvents::ENDED) {
            self.end(now, conn);
        }
    }

    /// Opens the connections whose time has come.
    fn begin(&mut self, now: Nanos) {
        let ledger = self.ledger.clone();
        let due = |number: &mut usize| ledger.borrow().sessions[*number].plan.start <= now;
        let due: Vec<usize> = self.waiting.extract_if(.., due).collect();
        for number in due {
            let (victim, port) = {
                let plan = &ledger.borrow().sessions[number].plan;
                (plan.hosts[1], plan.port)
            };
            let remote = SocketAddr::new(addresses_of(victim)[0].ip(), port);
            let mac = MacAddr([2, 0, 0, 0, 0, victim as u8 + 1]);
            let local = self.tcp.ephemeral_port(self.address, remote).unwrap_or(40_000 + number as u16);
            let flow = Flow { local: SocketAddr::new(self.address, local), remote };
            let path = self.net.path_to(&flow, mac);
            let opened = self.tcp.connect(now, flow, path, &mut self.wire);
            let mut ledger = ledger.borrow_mut();
            match opened {
                Ok(conn) => {
                    let session = &mut ledger.sessions[number];
                    session.sides[0].stage = Stage::Connecting;
                    // It takes whatever it is sent.
                    session.sides[0].receives_posted = u64::MAX;
                    let dice = SeededEntropy::new(self.dice.next_u64());
                    self.visits.push(Visit::new(session, conn, now, dice));
                }
                Err(error) => ledger.blame(number, 0, &format!("no connection: {error:?}")),
            }
        }
    }

    /// Lets a visit do what it has to do now.
    fn turn(&mut self, now: Nanos, index: usize) {
        let ledger = self.ledger.clone();
        let mut ledger = ledger.borrow_mut();
        let visit = &mut self.visits[index];
        let (number, conn) = (visit.number, visit.conn);
        let wish = visit.turn(now, &mut ledger.sessions[number]);
        let wish = wish.unwrap_or_else(|fault| {
            ledger.blame(number, 0, &fault);
            Wish::Abort
        });
        drop(ledger);
        match wish {
            Wish::Stay => {}
            Wish::Close => {
                let events = self.tcp.close(now, conn, &mut self.wire);
                if events.intersects(TcpEvents::ENDED) {
                    self.end(now, conn);
                }
            }
            Wish::Abort => {
                self.tcp.abort(now, conn, &mut self.wire);
                self.end(now, conn);
            }
        }
    }

    /// A connection is over, and with it the attacker's part of the session.
    fn end(&mut self, now: Nanos, conn: ConnId) {
        let Some(index) = self.visits.iter().position(|visit| visit.conn == conn) else { return };
        let visit = self.visits.swap_remove(index);
        self.tcp.release(visit.conn);
        let mut ledger = self.ledger.borrow_mut();
        if let Err(fault) = visit.judge(&mut ledger.sessions[visit.number]) {
            ledger.blame(visit.number, 0, &fault);
        }
        ledger.totals.attacks += u64::from(ledger.sessions[visit.number].attacked.is_some());
        let session = &mut ledger.sessions[visit.number];
        session.sides[0].stage = Stage::Gone;
        session.ended_at.get_or_insert(now);
        if session.is_ended() {
            finish(now, &mut ledger, visit.number);
        }
    }

    fn transmit(&mut self, now: Nanos) {
        for visit in &mut self.visits {
            let conn = visit.conn;
            self.tcp.transmit(now, conn, visit, &mut self.wire, TURN_UNITS);
        }
    }

    fn next_deadline(&self, now: Nanos) -> Option<Nanos> {
        if self.tcp.has_pending_acks() || self.wire.waiting_frames() > 0 {
            return Some(now);
        }
        let ledger = self.ledger.borrow();
        let starts = self.waiting.iter().map(|number| ledger.sessions[*number].plan.start);
        let looks = self.visits.iter().map(|visit| visit.next_look(now));
        starts.chain(looks).chain(self.tcp.next_deadline()).chain(self.net.next_deadline()).min()
    }
}

impl Node for Hostile {
    fn poll(&mut self, now: Nanos) -> Option<Nanos> {
        self.receive(now);
        self.timers(now);
        self.begin(now);
        for index in (0..self.visits.len()).rev() {
            self.turn(now, index);
        }
        self.transmit(now);
        self.tcp.flush_acks(now, &mut self.wire);
        self.wire.flush();
        self.next_deadline(now)
    }

    fn check(&self) -> Result<(), String> {
        self.tcp.check()?;
        self.ledger.borrow().fault.clone().map_or(Ok(()), Err)
    }
}
