//! One connection of a hostile host: it connects, starts its stream, and sends packets of its kind.

use ironwarp_types::Nanos;

use crate::adversary::conn::{ConnState, RawConn};
use crate::adversary::segment::{Arrived, Way};
use crate::adversary::stream::{self, Needs, Place};
use crate::adversary::{Adversary, acceptor};
use crate::hostile::frames::PeerSender;

/// A connection.
pub(super) struct Guest {
    conn: RawConn,
    kind: Adversary,
    place: Place,
    stage: Stage,
    /// Since when the victim has acknowledged nothing, and up to where it has acknowledged.
    quiet_since: Nanos,
    unacked: usize,
}

enum Stage {
    /// Its SYN or its request has no reply.
    Starting,
    /// It sends packets of its kind.
    Running(PeerSender),
    /// It has sent its only packet of the kind.
    Sent,
    /// The victim has ended it.
    Over,
}

impl Guest {
    /// A connection that begins, and its SYN.
    pub fn open(
        kind: Adversary,
        way: Way,
        from_port: u16,
        place: Place,
        now: Nanos,
        out: &mut Vec<Vec<u8>>,
    ) -> Self {
        let iss = 0x1000 + (u32::from(from_port) << 16);
        let (conn, syn) = RawConn::open(way, [from_port, acceptor::PORT], iss);
        out.push(syn);
        Guest { conn, kind, place, stage: Stage::Starting, quiet_since: now, unacked: 0 }
    }

    /// Returns whether a segment belongs to it.
    pub fn owns(&self, arrived: &Arrived) -> bool {
        self.conn.owns(arrived)
    }

    /// Its ports, its own first.
    pub fn ports(&self) -> [u16; 2] {
        self.conn.ports
    }

    /// Returns whether it sends packets of its kind.
    pub fn is_running(&self) -> bool {
        matches!(self.stage, Stage::Running(_))
    }

    /// Returns whether the victim has ended it.
    pub fn is_over(&self) -> bool {
        matches!(self.stage, Stage::Over)
    }

    /// Handles a segment of the victim.
    pub fn on_segment(&mut self, arrived: &Arrived, out: &mut Vec<Vec<u8>>) {
        let was_opening = self.conn.state() == ConnState::Opening;
        self.conn.on_segment(arrived, out);
        if self.conn.state() == ConnState::Over || arrived.fin {
            out.push(self.conn.reset());
            self.stage = Stage::Over;
        } else if was_opening && self.conn.state() == ConnState::Open {
            self.begin(out);
        } else if let Stage::Starting = self.stage
            && let Some(Ok(sender)) = stream::started(self.conn.heard())
        {
            self.run(sender, out);
        }
    }

    /// The connection is established.
    fn begin(&mut self, out: &mut Vec<Vec<u8>>) {
        match self.kind {
            Adversary::Startups => self.run(PeerSender::new(false), out),
            _ => self.conn.send(stream::REQUEST, out),
        }
    }

    /// The stream is established.
    fn run(&mut self, mut sender: PeerSender, out: &mut Vec<Vec<u8>>) {
        if let Adversary::Habit(habit) = self.kind {
            stream::adopt(habit, self.place, (&mut self.conn, &mut sender), out);
        }
        self.stage = Stage::Running(sender);
        if self.kind.needs() == Needs::FreshConn {
            self.step(out);
        }
    }

    /// Sends the next packets of its kind, if its window has room.
    pub fn step(&mut self, out: &mut Vec<Vec<u8>>) {
        let Stage::Running(sender) = &mut self.stage else { return };
        if self.conn.unacked_bytes() >= WINDOW_BYTES {
            return;
        }
        match self.kind {
            Adversary::Habit(_) => self.conn.step(out),
            kind => stream::next_packets(kind, self.place, (&mut self.conn, sender), out),
        }
        if self.kind.needs() == Needs::FreshConn {
            self.stage = Stage::Sent;
        }
    }

    /// Resends what has had no acknowledgement for a while. A connection whose only packet is sent gives up instead.
    pub fn on_time(&mut self, now: Nanos, out: &mut Vec<Vec<u8>>) {
        let unacked = self.conn.unacked_bytes();
        let is_waiting = unacked > 0 || !self.is_running();
        if unacked != self.unacked || !is_waiting {
            (self.unacked, self.quiet_since) = (unacked, now);
        }
        if now < self.quiet_since + PATIENCE {
            return;
        }
        self.quiet_since = now;
        if let Stage::Sent = self.stage {
            out.push(self.conn.reset());
            self.stage = Stage::Over;
        } else {
            self.conn.resend(out);
        }
    }
}

/// The most bytes in flight: less than a victim's window.
const WINDOW_BYTES: usize = 64 << 10;

/// The time without an acknowledgement after which a connection resends.
const PATIENCE: Nanos = Nanos::from_millis(2);
