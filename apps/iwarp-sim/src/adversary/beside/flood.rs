//! A hostile host on a simulated link: it sends packets of one kind at a steady rate.

use ironwarp_port::memory::MemoryPort;
use ironwarp_sim::Node;
use ironwarp_testkit::{Frames, Route};
use ironwarp_types::Nanos;

use super::guest::Guest;
use crate::adversary::{Adversary, Needs, Place, RawWire, packets};

/// A hostile host.
pub struct Visitors {
    wire: RawWire,
    route: Route,
    place: Place,
    schedule: Schedule,
    guests: Vec<Guest>,
    /// Its connections have been open at once. Packets that disturb them do not come before: they would keep its own
    /// handshakes from ending.
    was_open: bool,
    next_port: u16,
    /// Frames so far, without those in reply to what arrives, and those in reply.
    pub sent: u64,
    /// See above.
    pub replies: u64,
    /// Frames that have arrived.
    pub arrived: u64,
    /// Connections that the victim has ended.
    pub ended: u64,
    /// Intervals of the schedule that are used up: one for each packet, or one without.
    turns: u64,
}

/// The packets of a host: their kind, the first one's time, the interval of the others, and its connections at a time.
#[derive(Clone, Copy, Debug)]
pub struct Schedule {
    /// The kind.
    pub kind: Adversary,
    /// Time of the first.
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
        Guest::open(self.schedule.kind, self.route, self.next_port, self.place, now, out)
    }

    fn receive(&mut self, now: Nanos) -> bool {
        let mut out = Vec::new();
        let (segments, frames, is_full) = self.wire.receive(&mut out);
        self.arrived += frames as u64;
        for arrived in segments {
            let Some(place) = self.guests.iter().position(|guest| guest.owns(&arrived)) else { continue };
            self.guests[place].on_segment(&arrived.1, &mut out);
            if self.guests[place].is_over() {
                self.ended += 1;
                self.guests[place] = self.open(now, &mut out);
            }
        }
        self.replies += out.len() as u64;
        self.wire.push(&out);
        is_full
    }

    /// Opens its connections.
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

    /// Sends the next packets of the kind.
    fn send_next(&mut self, now: Nanos) {
        let (turn, count) = (self.turns as usize, self.guests.len().max(1));
        let mut out = Vec::new();
        self.was_open |= self.open_conns() == self.guests.len();
        if self.was_open {
            let ports = self.guests.first().map_or([0; 2], Guest::ports);
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
        self.guests.iter().filter(|guest| guest.is_running()).count()
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
