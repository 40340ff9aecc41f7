//! A hostile host on a simulated link: it sends packets of one kind at a steady rate, some of them
//! on connections that it opens for that.

use ironwarp_port::memory::MemoryPort;
use ironwarp_sim::Node;
use ironwarp_testkit::{ConnState, FIN, Frames, Route, Segment};
use ironwarp_types::Nanos;

use iwarp_sim::adversary::{Adversary, Needs, PORT, Peer, Place, RawWire, packets};

/// A hostile host.
pub struct Visitors {
    wire: RawWire,
    route: Route,
    place: Place,
    schedule: Schedule,
    guests: Vec<Guest>,
    /// Its connections have been open at once. Packets that disturb them do not come before: they
    /// would keep its own handshakes from ending.
    was_open: bool,
    next_port: u16,
    /// Frames so far, without those in reply to what arrives, and those in reply.
    pub sent: u64,
    pub replies: u64,
    pub arrived: u64,
    pub ended: u64,
    /// Intervals of the schedule that are used up: one for each packet, or one without.
    turns: u64,
}

/// The packets of a host: their kind, the first one's time, the interval of the others, and its
/// connections at a time.
#[derive(Clone, Copy, Debug)]
pub struct Schedule {
    pub kind: Adversary,
    pub start: Nanos,
    /// The interval.
    pub every: Nanos,
    /// Connections, where the kind needs any.
    pub conns: u16,
}

impl Visitors {
    /// The first of two hosts, on `port`, attacks the second, whose memory its packets name.
    pub fn new(port: MemoryPort, [from, to]: [u8; 2], place: Place, schedule: Schedule) -> Self {
        Visitors {
            wire: RawWire::new(from, port),
            route: Route::v4(from, to),
            place,
            schedule,
            guests: Vec::new(),
            was_open: false,
            next_port: FIRST_PORT,
            sent: 0,
            replies: 0,
            arrived: 0,
            ended: 0,
            turns: 0,
        }
    }

    fn open(&mut self, now: Nanos, out: &mut Frames) -> Guest {
        self.next_port = self.next_port.checked_add(1).unwrap_or(FIRST_PORT);
        let iss = 0x1000 + (u32::from(self.next_port) << 16);
        let (peer, syn) = Peer::open(self.route, [self.next_port, PORT], iss);
        out.push(syn);
        let (kind, place, stage) = (self.schedule.kind, self.place, Stage::Starting);
        Guest { peer, kind, place, stage, quiet_since: now, unacked: 0 }
    }

    fn receive(&mut self, now: Nanos) -> bool {
        let mut out = Vec::new();
        let (segments, frames, is_full) = self.wire.receive(&mut out);
        self.arrived += frames as u64;
        for arrived in segments {
            let Some(place) = self.guests.iter().position(|guest| guest.peer.conn.owns(&arrived)) else {
                continue;
            };
            self.guests[place].on_segment(&arrived.1, &mut out);
            if self.guests[place].stage == Stage::Over {
                self.ended += 1;
                self.guests[place] = self.open(now, &mut out);
            }
        }
        self.replies += out.len() as u64;
        self.wire.push(&out);
        is_full
    }

    fn begin(&mut self, now: Nanos) {
        if self.guests.is_empty() && self.schedule.kind.needs() != Needs::Nothing {
            let mut out = Vec::new();
            for _ in 0..self.schedule.conns {
                let guest = self.open(now, &mut out);
                self.guests.push(guest);
            }
            self.wire.push(&out);
        }
    }

    fn send_next(&mut self, now: Nanos) {
        let (turn, count) = (self.turns as usize, self.guests.len().max(1));
        let mut out = Vec::new();
        self.was_open |= self.open_conns() == self.guests.len();
        if self.was_open {
            let ports = self.guests.first().map_or([0; 2], |guest| guest.peer.conn.ports);
            out.extend(packets::of_kind(self.schedule.kind, self.route, ports, turn as u32));
        }
        if let Some(guest) = self.guests.get_mut(turn % count) {
            guest.on_time(now, &mut out);
            guest.step(&mut out);
        }
        self.sent += out.len() as u64;
        self.turns += out.len().max(1) as u64;
        self.wire.push(&out);
    }

    /// Number of its connections that send packets of the kind.
    pub fn open_conns(&self) -> usize {
        self.guests.iter().filter(|guest| guest.stage == Stage::Running).count()
    }

    fn due(&self) -> Nanos {
        self.schedule.start + self.schedule.every.times(self.turns)
    }
}

impl Node for Visitors {
    fn poll(&mut self, now: Nanos) -> Option<Nanos> {
        let more = self.receive(now);
        if now >= self.schedule.start {
            self.begin(now);
        }
        while self.due() <= now {
            self.send_next(now);
        }
        self.wire.flush();
        Some(if more { now } else { self.due() })
    }
}

/// Local ports from here on.
const FIRST_PORT: u16 = 2_000;

/// A connection of a hostile host: it connects, starts its stream, and sends packets of its kind.
struct Guest {
    peer: Peer,
    kind: Adversary,
    place: Place,
    stage: Stage,
    /// Since when the victim has acknowledged nothing, and up to where it has acknowledged.
    quiet_since: Nanos,
    unacked: usize,
}

#[derive(PartialEq, Eq)]
enum Stage {
    /// Its SYN or its request has no reply.
    Starting,
    Running,
    /// It has sent its only packet of the kind.
    Sent,
    Over,
}

impl Guest {
    fn on_segment(&mut self, segment: &Segment, out: &mut Frames) {
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
        } else if self.stage == Stage::Starting
            && let Ok(Some(_)) = self.peer.take_reply()
        {
            self.run(out);
        }
    }

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
    fn step(&mut self, out: &mut Frames) {
        if self.stage != Stage::Running || self.peer.conn.unacked_bytes() >= WINDOW_BYTES {
            return;
        }
        self.peer.step(out);
        self.peer.next_packets(self.kind, self.place, out);
        if self.kind.needs() == Needs::FreshConn {
            self.stage = Stage::Sent;
        }
    }

    /// Resends what has had no acknowledgement for a while. A connection whose only packet is sent
    /// gives up instead.
    fn on_time(&mut self, now: Nanos, out: &mut Frames) {
        let unacked = self.peer.conn.unacked_bytes();
        let is_waiting = unacked > 0 || self.stage != Stage::Running;
        if unacked != self.unacked || !is_waiting {
            (self.unacked, self.quiet_since) = (unacked, now);
        }
        if now < self.quiet_since + PATIENCE {
            return;
        }
        self.quiet_since = now;
        if self.stage == Stage::Sent {
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
