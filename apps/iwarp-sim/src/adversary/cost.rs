//! Sends hostile packets to a whole node and counts what they cost it.
//!
//! A [`Run`] repeats four steps: [`Run::load`] builds the next packets and puts them into the
//! receive ring, [`Run::work`] lets the core process them, [`Run::account`] counts what it sent and
//! what it holds, and the connections react. Only [`Run::work`] is the cost of the packets; an
//! example program counts its instructions with callgrind.

use super::host::{VICTIM, Victim};
use super::{Adversary, Needs, PORT, Peer, packets};
use ironwarp::Nanos;
use ironwarp_testkit::{ConnState, Frames, Route, Segment};

/// What the packets of a run have cost.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Cost {
    pub packets: u64,
    /// Frames that the victim sent while it processed them.
    pub sent: u64,
    /// The most received frames, transmit units and connections that it held.
    pub rx_frames: usize,
    pub tx_units: usize,
    pub connections: usize,
}

/// A victim and its adversary.
pub struct Run {
    victim: Victim,
    kind: Adversary,
    conns: Vec<Peer>,
    /// Packets that the connections have sent in reply.
    replies: Frames,
    /// Number of the next packet, and of the next local port.
    number: u32,
    next_port: u16,
    cost: Cost,
}

const ADVERSARY: u8 = 2;

/// Packets of one step, or connections where each packet needs one.
const BATCH: u32 = 32;
const CONNS_BATCH: u32 = 8;

/// The time between two steps.
const STEP: Nanos = Nanos::from_micros(100);

impl Run {
    /// A victim whose adversary has established what its packets need.
    pub fn new(kind: Adversary) -> Result<Self, String> {
        let victim = Victim::new(|config| {
            config.mpa.markers = kind == Adversary::Markers;
            // A host that guesses is refused for a while. Here each guess counts.
            config.limits.protection_errors = 0;
        })?;
        let (conns, replies) = (Vec::new(), Vec::new());
        let mut run =
            Run { victim, kind, conns, replies, number: 0, next_port: 2_000, cost: Cost::default() };
        if kind.needs() == Needs::Conn {
            run.connect()?;
        }
        if let Adversary::Habit(habit) = kind {
            let place = run.victim.host.app.place();
            run.conns.iter_mut().for_each(|peer| peer.adopt(habit, place, &mut run.replies));
        }
        Ok(run)
    }

    fn connect(&mut self) -> Result<(), String> {
        let mut peer = self.open()?;
        let mut out = Vec::new();
        peer.request(&[], &mut out);
        self.exchange(&mut peer, out);
        peer.take_reply()?.ok_or("no reply to a start-up frame")?;
        self.conns.push(peer);
        Ok(())
    }

    /// Establishes a TCP connection.
    fn open(&mut self) -> Result<Peer, String> {
        self.next_port = if self.next_port == u16::MAX { 2_000 } else { self.next_port + 1 };
        let (route, ports) = (Route::v4(ADVERSARY, VICTIM), [self.next_port, PORT]);
        let (mut peer, syn) = Peer::open(route, ports, u32::from(self.next_port) << 8);
        self.exchange(&mut peer, vec![syn]);
        (peer.conn.state == ConnState::Open).then_some(peer).ok_or("the victim does not accept".to_owned())
    }

    /// Delivers frames of a connection, and both ends react until nothing is left to say.
    fn exchange(&mut self, peer: &mut Peer, mut out: Frames) {
        while !out.is_empty() {
            self.victim.inject(&out);
            out.clear();
            self.victim.settle();
            for arrived in self.victim.collect().iter().filter_map(|frame| Segment::read(frame)) {
                if peer.conn.owns(&arrived) {
                    peer.on_segment(&arrived.1, &mut out);
                }
            }
        }
    }

    /// Builds the next packets and puts them into the victim's receive ring.
    pub fn load(&mut self) -> Result<(), String> {
        let mut out = core::mem::take(&mut self.replies);
        match self.kind {
            kind if kind.needs() == Needs::FreshConn => self.fresh_conns(&mut out)?,
            Adversary::Habit(_) => {
                let conn = self.conns.first_mut().ok_or("no connection")?;
                (0..BATCH).for_each(|_| conn.step(&mut out));
            }
            _ => self.loose(&mut out),
        }
        self.cost.packets += out.len() as u64;
        let accepted = self.victim.inject(&out);
        if accepted == out.len() { Ok(()) } else { Err(format!("{accepted} of {} packets fit", out.len())) }
    }

    /// Packets that need a connection each, whose last packet they are.
    fn fresh_conns(&mut self, out: &mut Frames) -> Result<(), String> {
        self.conns.clear();
        let place = self.victim.host.app.place();
        for _ in 0..CONNS_BATCH {
            if self.kind == Adversary::Startups {
                let peer = self.open()?;
                self.conns.push(peer);
            } else {
                self.connect()?;
            }
            if let Some(peer) = self.conns.last_mut() {
                peer.next_packets(self.kind, place, out);
            }
        }
        Ok(())
    }

    /// Packets of no connection, or of one that stays.
    fn loose(&mut self, out: &mut Frames) {
        let place = self.victim.host.app.place();
        // One FPDU byte by byte is more than enough packets for a step.
        let batch = if self.kind == Adversary::OneByteSegments { 1 } else { BATCH };
        for _ in 0..batch {
            self.number += 1;
            let peer = self.conns.first_mut();
            let ports = peer.as_ref().map_or([0; 2], |peer| peer.conn.ports);
            match (packets::of_kind(self.kind, Route::v4(ADVERSARY, VICTIM), ports, self.number), peer) {
                (Some(packet), _) => out.push(packet),
                (None, Some(peer)) => peer.next_packets(self.kind, place, out),
                (None, None) => {}
            }
        }
    }

    /// The victim's core processes what has arrived.
    pub fn work(&mut self) {
        self.victim.work();
    }

    /// Counts what the victim sent and holds. Its peers and its application react, and time passes.
    pub fn account(&mut self) -> Result<(), String> {
        let held = self.victim.host.held();
        self.cost.rx_frames = self.cost.rx_frames.max(held.rx_frames);
        self.cost.tx_units = self.cost.tx_units.max(held.tx_units);
        self.cost.connections = self.cost.connections.max(held.connections);
        let sent = self.victim.collect();
        self.cost.sent += sent.len() as u64;
        for arrived in sent.iter().filter_map(|frame| Segment::read(frame)) {
            if let Some(peer) = self.conns.iter_mut().find(|peer| peer.conn.owns(&arrived)) {
                peer.on_segment(&arrived.1, &mut self.replies);
            }
        }
        if self.kind.needs() == Needs::FreshConn {
            let resets: Frames = self.conns.iter_mut().map(|peer| peer.conn.reset()).collect();
            self.replies.clear();
            self.victim.inject(&resets);
        }
        self.victim.settle();
        self.victim.advance(STEP);
        self.victim.check()
    }

    /// Runs `steps` steps. Returns their cost.
    pub fn steps(&mut self, steps: u32) -> Result<Cost, String> {
        for _ in 0..steps {
            self.load()?;
            self.work();
            self.account()?;
        }
        Ok(self.cost)
    }

    pub fn cost(&self) -> Cost {
        self.cost
    }

    pub fn received(&self) -> u64 {
        self.victim.host.app.received
    }

    /// A counter of the victim; `None` if there is none of this name.
    pub fn counter(&self, name: &str) -> Option<u64> {
        self.victim.host.counter(name)
    }
}
