//! A hostile host that abuses TCP from inside its connections; above TCP they are valid.
//!
//! Like [`super::Hostile`] it opens each of its sessions at its start time and replaces the initiator's application. Its
//! segments are built one by one; see [`Visit`].

use ironwarp::Nanos;
use ironwarp_port::memory::{MemoryFrame, MemoryPort};
use ironwarp_port::{Burst, Frame, TxMeta, Wire};
use ironwarp_sim::Node;
use ironwarp_types::{Entropy, SeededEntropy};

use super::visit::Visit;
use crate::adversary::{Arrived, Way, packets};
use crate::app::lifecycle::finish;
use crate::app::{SharedOracle, Stage};
use crate::plan::{HostilePlan, Plan};

/// A hostile host.
pub struct Visitor {
    host: u8,
    wire: Wire<MemoryPort>,
    oracle: SharedOracle,
    rng: SeededEntropy,
    visits: Vec<Visit>,
    /// Sessions that have not begun.
    waiting: Vec<usize>,
}

impl Visitor {
    /// The hostile host of a plan, on `port`.
    pub fn new(plan: &Plan, hostile: &HostilePlan, port: MemoryPort, oracle: &SharedOracle) -> Self {
        let number = plan.hosts.len();
        let mine = plan.sessions.iter().enumerate().filter(|(_, session)| session.hosts[0] == number);
        Visitor {
            host: number as u8 + 1,
            wire: Wire::new(port),
            oracle: oracle.clone(),
            rng: SeededEntropy::new(hostile.seed),
            visits: Vec::new(),
            waiting: mine.map(|(number, _)| number).collect(),
        }
    }

    fn receive(&mut self, now: Nanos) -> bool {
        let mut burst: Burst<MemoryFrame> = Burst::new();
        self.wire.rx_burst(&mut burst);
        let is_full = burst.is_full();
        let mut out = Vec::new();
        for frame in burst {
            out.extend(self.answer(frame.bytes()));
            let Some(arrived) = Arrived::parse(frame.bytes()) else { continue };
            if let Some(visit) = self.visits.iter_mut().find(|visit| visit.conn.owns(&arrived)) {
                visit.on_segment(now, &arrived, &mut self.oracle.borrow_mut(), &mut out);
            }
        }
        self.push(&out);
        is_full
    }

    /// The reply to an ARP request for this host's address.
    fn answer(&self, frame: &[u8]) -> Option<Vec<u8>> {
        let asker = frame.get(6..12)?.last()?;
        packets::arp_answer(Way { from: self.host, to: *asker }, frame)
    }

    /// Opens the connections whose start time has come.
    fn begin(&mut self, now: Nanos) {
        let oracle = self.oracle.clone();
        let due = |number: &mut usize| oracle.borrow().sessions[*number].plan.start <= now;
        let due: Vec<usize> = self.waiting.extract_if(.., due).collect();
        for number in due {
            let mut oracle = oracle.borrow_mut();
            let session = &mut oracle.sessions[number];
            session.sides[0].stage = Stage::Connecting;
            // It accepts everything that it receives.
            session.sides[0].receives_posted = u64::MAX;
            let way = Way { from: self.host, to: session.plan.hosts[1] as u8 + 1 };
            let rng = SeededEntropy::new(self.rng.next_u64());
            let (visit, syn) = Visit::open(session, way, now, rng);
            self.visits.push(visit);
            self.push(&[syn]);
        }
    }

    /// Continues the visits, and ends those that are over.
    fn continue_visits(&mut self, now: Nanos) {
        let mut out = Vec::new();
        for index in (0..self.visits.len()).rev() {
            let visit = &mut self.visits[index];
            visit.poll(now, &mut self.oracle.borrow_mut(), &mut out);
            if visit.is_over() {
                let number = self.visits.swap_remove(index).number;
                self.end(now, number);
            }
        }
        self.push(&out);
    }

    /// A connection is over, and with it the visitor's side of the session.
    fn end(&mut self, now: Nanos, number: usize) {
        let mut oracle = self.oracle.borrow_mut();
        oracle.totals.attacks += u64::from(oracle.sessions[number].attack_outcome.is_some());
        let session = &mut oracle.sessions[number];
        session.sides[0].stage = Stage::Gone;
        session.ended_at.get_or_insert(now);
        if session.is_ended() {
            finish(now, &mut oracle, number);
        }
    }

    /// Sends frames, and drops those that the device has no room for.
    fn push(&mut self, frames: &[Vec<u8>]) {
        for bytes in frames {
            let Some(mut frame) = self.wire.alloc() else { return };
            frame.resize(bytes.len());
            frame.bytes_mut().copy_from_slice(bytes);
            self.wire.push(frame.seal(TxMeta::default()));
        }
    }

    fn next_deadline(&self) -> Option<Nanos> {
        let oracle = self.oracle.borrow();
        let starts = self.waiting.iter().map(|number| oracle.sessions[*number].plan.start);
        starts.chain(self.visits.iter().map(Visit::next_poll)).min()
    }
}

impl Node for Visitor {
    fn poll(&mut self, now: Nanos) -> Option<Nanos> {
        let more = self.receive(now);
        self.begin(now);
        self.continue_visits(now);
        self.wire.flush();
        if more || self.wire.waiting_frames() > 0 { Some(now) } else { self.next_deadline() }
    }

    fn check(&self) -> Result<(), String> {
        self.oracle.borrow().fault.clone().map_or(Ok(()), Err)
    }
}
