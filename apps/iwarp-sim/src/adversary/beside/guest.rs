//! One connection of a hostile host: it connects, starts its stream, and sends packets of its kind.

use ironwarp_testkit::{ConnState, FIN, Frames, Route, Segment};
use ironwarp_types::Nanos;

use crate::adversary::{Adversary, Needs, PORT, Peer, Place};

/// A connection.
pub(super) struct Guest {
    peer: Peer,
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
    Running,
    /// It has sent its only packet of the kind.
    Sent,
    /// The victim has ended it.
    Over,
}

impl Guest {
    /// A connection that begins, and its SYN.
    pub fn open(
        kind: Adversary,
        route: Route,
        from_port: u16,
        place: Place,
        now: Nanos,
        out: &mut Frames,
    ) -> Self {
        let iss = 0x1000 + (u32::from(from_port) << 16);
        let (peer, syn) = Peer::open(route, [from_port, PORT], iss);
        out.push(syn);
        Guest { peer, kind, place, stage: Stage::Starting, quiet_since: now, unacked: 0 }
    }

    /// Returns whether a segment belongs to it.
    pub fn owns(&self, arrived: &(Route, Segment)) -> bool {
        self.peer.conn.owns(arrived)
    }

    /// Its ports, its own first.
    pub fn ports(&self) -> [u16; 2] {
        self.peer.conn.ports
    }

    /// Returns whether it sends packets of its kind.
    pub fn is_running(&self) -> bool {
        matches!(self.stage, Stage::Running)
    }

    /// Returns whether the victim has ended it.
    pub fn is_over(&self) -> bool {
        matches!(self.stage, Stage::Over)
    }

    /// Handles a segment of the victim.
    pub fn on_segment(&mut self, segment: &Segment, out: &mut Frames) {
        let was_opening = self.peer.conn.state == ConnState::Opening;
        self.peer.on_segment(segment, out);
        if self.peer.conn.state == ConnState::Over || segment.has(FIN) {
            out.push(self.peer.conn.reset());
            self.stage = Stage::Over;
        } else if was_opening && self.peer.conn.state == ConnState::Open {
            match self.kind {
                Adversary::Startups => self.run(out),
                _ => self.peer.request(&[], out),
            }
        } else if let Stage::Starting = self.stage
            && let Ok(Some(_)) = self.peer.take_reply()
        {
            self.run(out);
        }
    }

    /// The stream is established.
    fn run(&mut self, out: &mut Frames) {
        if let Adversary::Habit(habit) = self.kind {
            self.peer.adopt(habit, self.place, out);
        }
        self.stage = Stage::Running;
        if self.kind.needs() == Needs::FreshConn {
            self.step(out);
        }
    }

    /// Sends the next packets of its kind, if its window has room.
    pub fn step(&mut self, out: &mut Frames) {
        if !self.is_running() || self.peer.conn.unacked_bytes() >= WINDOW_BYTES {
            return;
        }
        self.peer.step(out);
        self.peer.next_packets(self.kind, self.place, out);
        if self.kind.needs() == Needs::FreshConn {
            self.stage = Stage::Sent;
        }
    }

    /// Resends what has had no acknowledgement for a while. A connection whose only packet is sent gives up instead.
    pub fn on_time(&mut self, now: Nanos, out: &mut Frames) {
        let unacked = self.peer.conn.unacked_bytes();
        let is_waiting = unacked > 0 || !self.is_running();
        if unacked != self.unacked || !is_waiting {
            (self.unacked, self.quiet_since) = (unacked, now);
        }
        if now < self.quiet_since + PATIENCE {
            return;
        }
        self.quiet_since = now;
        if let Stage::Sent = self.stage {
            out.push(self.peer.conn.reset());
            self.stage = Stage::Over;
        } else {
            self.peer.conn.resend(out);
        }
    }
}

/// The most bytes in flight: less than a victim's window.
const WINDOW_BYTES: usize = 64 << 10;

/// The time without an acknowledgement after which a connection resends.
const PATIENCE: Nanos = Nanos::from_millis(2);
