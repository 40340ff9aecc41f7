//! A hostile host: it attacks from inside its connections, above TCP or by a habit of TCP.
//!
//! It opens each of its sessions at its start time, over a connection of its own; see [`conn`]. It
//! replaces the initiator's application: the oracle records what it sends and what its victims must
//! do. Its frames are built by hand.

mod conn;
mod craft;

use ironwarp::Nanos;
use ironwarp_port::memory::MemoryPort;
use ironwarp_sim::Node;
use ironwarp_testkit::Route;
use ironwarp_types::{Entropy, SeededEntropy};

use crate::adversary::RawWire;
use crate::app::lifecycle::finish;
use crate::app::{SharedOracle, Stage};
use crate::plan::{HostilePlan, Plan};
use conn::HostileConn;

pub struct Hostile {
    host: u8,
    wire: RawWire,
    oracle: SharedOracle,
    rng: SeededEntropy,
    /// Its connections. Those that have ended stay: TCP answers late segments of the victim.
    conns: Vec<HostileConn>,
    /// Sessions that have not begun.
    waiting: Vec<usize>,
}

impl Hostile {
    /// The hostile host of a plan, on `port`.
    pub fn new(plan: &Plan, hostile: &HostilePlan, port: MemoryPort, oracle: &SharedOracle) -> Self {
        let number = plan.hosts.len();
        let mine = plan.sessions.iter().enumerate().filter(|(_, session)| session.hosts[0] == number);
        Hostile {
            host: number as u8 + 1,
            wire: RawWire::new(number as u8 + 1, port),
            oracle: oracle.clone(),
            rng: SeededEntropy::new(hostile.seed),
            conns: Vec::new(),
            waiting: mine.map(|(number, _)| number).collect(),
        }
    }

    /// Handles a burst of frames. Returns whether more may wait.
    fn receive(&mut self, now: Nanos) -> bool {
        let mut out = Vec::new();
        let (segments, _, is_full) = self.wire.receive(&mut out);
        let oracle = &mut *self.oracle.borrow_mut();
        for arrived in segments {
            if let Some(conn) = self.conns.iter_mut().find(|conn| conn.owns(&arrived)) {
                conn.on_segment(now, &arrived.1, oracle, &mut out);
            }
        }
        self.wire.push(&out);
        is_full
    }

    /// Opens the connections whose start time has come.
    fn begin(&mut self, now: Nanos) {
        let mut oracle = self.oracle.borrow_mut();
        let due = |number: &mut usize| oracle.sessions[*number].plan.start <= now;
        for number in self.waiting.extract_if(.., due).collect::<Vec<usize>>() {
            let session = &mut oracle.sessions[number];
            session.sides[0].stage = Stage::Connecting;
            // It accepts everything that it receives.
            session.sides[0].receives_posted = u64::MAX;
            let route = Route::v4(self.host, session.plan.hosts[1] as u8 + 1);
            let rng = SeededEntropy::new(self.rng.next_u64());
            let (conn, syn) = HostileConn::open(session, route, now, rng);
            self.conns.push(conn);
            self.wire.push(&[syn]);
        }
    }

    /// Continues the connections. One that is over ends the attacker's side of its session.
    fn go_on(&mut self, now: Nanos) {
        let mut out = Vec::new();
        let oracle = &mut *self.oracle.borrow_mut();
        for conn in self.conns.iter_mut().rev() {
            conn.poll(now, oracle, &mut out);
            if !conn.has_just_ended() {
                continue;
            }
            let session = &mut oracle.sessions[conn.number];
            oracle.totals.attacks += u64::from(session.attack_outcome.is_some());
            session.sides[0].stage = Stage::Gone;
            session.ended_at.get_or_insert(now);
            let (is_ended, outcome) = (session.is_ended(), conn.check_result(session));
            oracle.record(conn.number, 0, outcome);
            if is_ended {
                finish(now, oracle, conn.number);
            }
        }
        self.wire.push(&out);
    }
}

impl Node for Hostile {
    fn poll(&mut self, now: Nanos) -> Option<Nanos> {
        let more = self.receive(now);
        self.begin(now);
        self.go_on(now);
        if self.wire.flush() || more {
            return Some(now);
        }
        let oracle = self.oracle.borrow();
        let starts = self.waiting.iter().map(|number| oracle.sessions[*number].plan.start);
        starts.chain(self.conns.iter().filter_map(HostileConn::next_poll)).min()
    }

    fn check(&self) -> Result<(), String> {
        self.oracle.borrow().fault.clone().map_or(Ok(()), Err)
    }
}
