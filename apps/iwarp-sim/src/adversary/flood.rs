//! A hostile host on a simulated link: it sends packets of one kind at a steady rate.

use ironwarp_port::memory::{MemoryFrame, MemoryPort};
use ironwarp_port::{Burst, Frame, TxMeta, Wire};
use ironwarp_sim::Node;
use ironwarp_types::Nanos;

use super::conn::{ConnState, RawConn};
use super::segment::{Arrived, Way};
use super::{Adversary, Habit, packets};

/// A hostile host.
pub struct Visitors {
    wire: Wire<MemoryPort>,
    received: Burst<MemoryFrame>,
    way: Way,
    to_port: u16,
    kind: Adversary,
    conns: Vec<RawConn>,
    /// Time of the first packet of the kind, and the interval of the next ones.
    start: Nanos,
    every: Nanos,
    /// Packets of the kind so far, not counting those in reply to what arrives.
    pub sent: u64,
    /// Packets in reply to what has arrived.
    pub replies: u64,
    /// Frames that have arrived.
    pub arrived: u64,
    /// Connections that it opens at the start.
    conns_to_open: u16,
}

/// The packets of a host: their kind, the first one's time and the interval of the others.
#[derive(Clone, Copy, Debug)]
pub struct Schedule {
    /// The kind.
    pub kind: Adversary,
    /// Time of the first.
    pub start: Nanos,
    /// The interval.
    pub every: Nanos,
}

impl Visitors {
    /// A host on `port` that attacks `to_port` of the other end of `way`, with `conns` connections where it needs any.
    pub fn new(port: MemoryPort, way: Way, to_port: u16, schedule: Schedule, conns: u16) -> Self {
        let Schedule { kind, start, every } = schedule;
        let conns_to_open = if matches!(kind, Adversary::Habit(_)) { conns } else { 0 };
        Visitors {
            wire: Wire::new(port),
            received: Burst::new(),
            way,
            to_port,
            kind,
            conns: Vec::new(),
            start,
            every,
            sent: 0,
            replies: 0,
            arrived: 0,
            conns_to_open,
        }
    }

    fn open(&mut self, number: u16) {
        let ports = [2_000 + number, self.to_port];
        let (conn, syn) = RawConn::open(self.way, ports, 0x1000 + (u32::from(number) << 20));
        self.conns.push(conn);
        self.push(&syn);
    }

    /// Sends a frame, or drops it where the device has no room.
    fn push(&mut self, bytes: &[u8]) {
        if let Some(mut frame) = self.wire.alloc() {
            frame.resize(bytes.len());
            frame.bytes_mut().copy_from_slice(bytes);
            self.wire.push(frame.seal(TxMeta::default()));
        }
    }

    fn receive(&mut self) -> bool {
        self.wire.rx_burst(&mut self.received);
        let is_full = self.received.is_full();
        let mut out = Vec::new();
        for frame in core::mem::take(&mut self.received) {
            self.arrived += 1;
            let Some(arrived) = Arrived::parse(frame.bytes()) else { continue };
            if let Some(conn) = self.conns.iter_mut().find(|conn| conn.owns(&arrived)) {
                conn.on_segment(&arrived, &mut out);
            }
        }
        if let Adversary::Habit(habit) = self.kind {
            self.conns.iter_mut().for_each(|conn| adopt(conn, habit));
        }
        self.replies += out.len() as u64;
        out.iter().for_each(|frame| self.push(frame));
        is_full
    }

    /// Sends the next packet of the kind.
    fn send_next(&mut self) {
        let number = self.sent as u32;
        self.sent += 1;
        let (way, port) = (self.way, self.to_port);
        let frame = match self.kind {
            Adversary::Garbage => packets::garbage(way, port, number),
            Adversary::ArpRequests => packets::arp_request(way, number),
            Adversary::ArpFlaps => packets::arp_flap(way, number),
            Adversary::Solicitations => packets::solicitation(way, number),
            Adversary::Echoes => packets::echo(way, number),
            Adversary::IcmpErrors => packets::icmp_error(way, [2_000, port], number),
            Adversary::Unknown => packets::unknown(way, port, number),
            Adversary::Syns => packets::forged_syn(way, port, number),
            Adversary::Habit(_) => return self.step(number),
            // The others need an application above TCP.
            _ => return,
        };
        self.push(&frame);
    }

    fn step(&mut self, number: u32) {
        let mut out = Vec::new();
        let count = self.conns.len().max(1);
        if let Some(conn) = self.conns.get_mut(number as usize % count) {
            conn.step(&mut out);
        }
        out.iter().for_each(|frame| self.push(frame));
    }

    /// Number of its connections that are established.
    pub fn open_conns(&self) -> usize {
        self.conns.iter().filter(|conn| conn.state() == ConnState::Open).count()
    }
}

fn adopt(conn: &mut RawConn, habit: Habit) {
    if conn.state() == ConnState::Open && !conn.has_habit() {
        conn.begin(habit);
    }
}

impl Node for Visitors {
    fn poll(&mut self, now: Nanos) -> Option<Nanos> {
        let more = self.receive();
        if now >= self.start {
            (0..core::mem::take(&mut self.conns_to_open)).for_each(|number| self.open(number));
        }
        while self.start + self.every.times(self.sent) <= now {
            self.send_next();
        }
        self.wire.flush();
        let next = self.start + self.every.times(self.sent);
        Some(if more { now } else { next })
    }
}
