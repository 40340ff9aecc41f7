//! Two engines over a link that loses, repeats and reorders frames, in virtual time. Every byte
//! arrives once, in order and unchanged, in both directions at once, and the connection closes. A
//! seed reproduces a run exactly.

use crate::common;

use common::link::{Faults, Link, Rng};
use common::node::{Node, addr};
use common::pattern::{Pattern, bytes_at};
use ironwarp_stats::Counter;
use ironwarp_tcp::{ByteStream, Congestion, ConnId, State, TcpConfig, TcpEvents, Transport};
use ironwarp_types::Nanos;

const DELAY: Nanos = Nanos::from_micros(20);
const STEP: Nanos = Nanos::from_micros(10);
const PORT: u16 = 4_420;

/// The task of one side of the connection.
pub struct Side {
    pub node: Node,
    id: Option<ConnId>,
    source: Pattern,
    taken: u64,
    expected: u64,
    peer_closed: bool,
    closed: bool,
    over: bool,
    /// How likely the connection moves to another engine after an iteration.
    moves_percent: u64,
    /// The difference of its clock from that of the run.
    clock: Nanos,
    /// What was saved each time that the connection moved.
    pub moves: Vec<Vec<u8>>,
}

impl Side {
    fn new(mut node: Node, sends: u64, expects: u64, unit: usize) -> Self {
        // Each iteration ends with a check.
        node.checks = false;
        Side {
            node,
            id: None,
            source: Pattern::new(sends, unit),
            taken: 0,
            expected: expects,
            peer_closed: false,
            closed: false,
            over: false,
            moves_percent: 0,
            clock: Nanos::ZERO,
            moves: Vec::new(),
        }
    }

    /// One iteration of the core loop.
    fn poll(&mut self, now: Nanos, arrived: Vec<Vec<u8>>) -> Vec<Vec<u8>> {
        self.node.now = now + self.clock;
        for frame in arrived {
            self.node.receive(&frame);
        }
        self.node.timers();
        for (id, events) in std::mem::take(&mut self.node.events) {
            self.on_events(id, events);
        }
        self.node.flush();
        if let Some(id) = self.id.filter(|_| !self.over) {
            self.node.transmit(id, &mut self.source, 8);
            self.close_when_done(id);
        }
        self.node.check();
        self.node.sent()
    }

    /// Moves the connection, if it is established, to a new engine of the same host, whose clock
    /// shows `clock` more than that of the run. What is saved there again at once is the same.
    fn move_to(&mut self, mut new: Node, clock: Nanos) {
        let Some(Ok(saved)) = self.id.map(|id| self.node.tcp.save(self.node.now, id)) else { return };
        new.now = self.node.now - self.clock + clock;
        new.checks = false;
        let id = new.restore(&saved).expect("a consistent state");
        assert_eq!(new.tcp.save(new.now, id), Ok(saved.clone()));
        new.check();
        self.node = new;
        (self.id, self.clock) = (Some(id), clock);
        self.moves.push(saved);
    }

    /// Reads what has arrived; if the connection moves, only whole hundreds of bytes before the
    /// last ones, so that some are unread.
    fn read(&mut self, id: ConnId, moves: bool) {
        let mut stream = self.node.tcp.rx(id);
        let left = (self.expected - self.taken) as usize;
        let keep = if moves && stream.available() < left { stream.available() % 100 } else { 0 };
        let mut bytes = vec![0; stream.available() - keep];
        assert!(stream.peek(&mut bytes));
        assert_eq!(bytes, bytes_at(self.taken, bytes.len()));
        stream.consume(bytes.len());
        self.taken += bytes.len() as u64;
    }

    fn on_events(&mut self, id: ConnId, events: TcpEvents) {
        assert!(
            !events.intersects(TcpEvents::RESET | TcpEvents::TIMED_OUT | TcpEvents::REFUSED),
            "{events:?}"
        );
        self.id.get_or_insert(id);
        self.read(id, self.moves_percent > 0);
        self.peer_closed |= events.contains(TcpEvents::PEER_CLOSED);
        if self.peer_closed {
            assert_eq!(self.taken, self.expected, "the peer closed before all its bytes arrived");
        }
        self.over |= events.contains(TcpEvents::CLOSED);
    }

    fn close_when_done(&mut self, id: ConnId) {
        let established = matches!(self.node.tcp.state(id), State::Established | State::CloseWait);
        if established && !self.closed && self.source.left == 0 && self.taken == self.expected {
            self.closed = true;
            assert_eq!(self.node.tcp.close(self.node.now, id, &mut self.node.wires), TcpEvents::empty());
        }
    }
}

pub struct Run {
    pub faults: Faults,
    pub bytes: [u64; 2],
    pub unit: usize,
    pub mtus: [u16; 2],
    pub config: TcpConfig,
    /// How likely a side's connection moves to another engine after an iteration.
    pub moves_percent: u64,
}

impl Default for Run {
    fn default() -> Self {
        let config = TcpConfig {
            rto_min: Nanos::from_millis(1),
            rto_initial: Nanos::from_millis(5),
            rto_max: Nanos::from_millis(500),
            syn_retries: 20,
            connections_max: 4,
            ..TcpConfig::default()
        };
        Run {
            faults: Faults::default(),
            bytes: [100_000, 60_000],
            unit: 1_460,
            mtus: [1_500, 1_500],
            config,
            moves_percent: 0,
        }
    }
}

impl Run {
    /// Runs to the end and returns both sides and the elapsed time.
    pub fn run(&self, seed: u64) -> ([Side; 2], Nanos) {
        let mut rng = Rng(seed);
        let [to_b, to_a] = self.bytes;
        let node = |host: u8, mtu| Node::new(host, mtu, self.config.clone());
        let mut a = Side::new(node(1, self.mtus[0]), to_b, to_a, self.unit);
        let mut b = Side::new(node(2, self.mtus[1]), to_a, to_b, self.unit);
        (a.moves_percent, b.moves_percent) = (self.moves_percent, self.moves_percent);
        b.node.tcp.listen(addr(2, PORT)).expect("room");
        a.id = Some(a.node.connect(50_000, addr(2, PORT), 2));
        let (mut towards_a, mut towards_b) = (Link::new(self.faults, DELAY), Link::new(self.faults, DELAY));
        let start = Nanos::from_secs(1);
        let mut now = start;
        while !(a.over && b.over) {
            for frame in a.poll(now, towards_a.arrived(now)) {
                towards_b.send(now, frame, &mut rng);
            }
            for frame in b.poll(now, towards_b.arrived(now)) {
                towards_a.send(now, frame, &mut rng);
            }
            for (side, mtu) in [&mut a, &mut b].into_iter().zip(self.mtus) {
                if rng.percent(self.moves_percent) {
                    let new = Node::with_frames(256, side.node.host, mtu, self.config.clone());
                    side.move_to(new, Nanos(rng.below(1 << 40)));
                }
            }
            now = next_time(now, [&a, &b], [&towards_a, &towards_b]);
            assert!(
                now < start + Nanos::from_secs(120),
                "seed {seed}: the run does not end: {:?}",
                self.faults
            );
        }
        for side in [&mut a, &mut b] {
            side.node.tcp.release(side.id.expect("a connection"));
            side.node.check();
            assert_eq!(side.taken, side.expected, "seed {seed}");
        }
        ([a, b], now.since(start))
    }
}

/// The next time at which something can happen.
fn next_time(now: Nanos, sides: [&Side; 2], links: [&Link; 2]) -> Nanos {
    let busy = sides
        .iter()
        .any(|side| side.node.tcp.has_pending_acks() || side.source.left > 0 && side.id.is_some());
    let arrivals = links.iter().filter_map(|link| link.next_arrival());
    let timers = sides.iter().filter_map(|side| Some(side.node.tcp.next_deadline()? - side.clock));
    let next = arrivals.chain(timers).min().unwrap_or(now + STEP);
    if busy { (now + STEP).min(next.max(now + Nanos(1))) } else { next.max(now + Nanos(1)) }
}

#[test]
fn a_clean_link_needs_no_retransmission_and_few_acks() {
    let (sides, took) = Run { bytes: [1_000_000, 0], ..Run::default() }.run(1);
    for side in &sides {
        assert_eq!(side.node.read(Counter::TcpTxRetransmits), 0);
    }
    let segments = sides[0].node.read(Counter::TcpTxSegments);
    assert!(sides[1].node.read(Counter::TcpTxAcks) * 2 < segments, "one ACK per burst, not per segment");
    assert!(took < Nanos::from_millis(20), "{took:?}");
}

#[test]
fn every_byte_arrives_over_a_link_that_loses_frames() {
    for seed in 0..40 {
        Run { faults: Faults { lost_percent: 1 + seed % 20, ..Faults::default() }, ..Run::default() }
            .run(seed);
    }
}

#[test]
fn every_byte_arrives_over_a_link_that_repeats_and_reorders_frames() {
    for seed in 100..140 {
        let faults = Faults { lost_percent: 0, duplicated_percent: seed % 30, reordered_percent: seed % 50 };
        Run { faults, ..Run::default() }.run(seed);
    }
}

#[test]
fn every_byte_arrives_over_a_link_with_all_faults() {
    for seed in 200..260 {
        let faults =
            Faults { lost_percent: seed % 12, duplicated_percent: seed % 10, reordered_percent: seed % 20 };
        let unit = 1 + (seed as usize * 137) % 1_460;
        Run { faults, unit, bytes: [40_000, 20_000], ..Run::default() }.run(seed);
    }
}

/// A window below one segment, frames of different sizes, few buffers: all limits together.
#[test]
fn every_byte_arrives_with_small_windows_and_little_memory() {
    for seed in 300..330 {
        let config = TcpConfig {
            rcv_window_bytes: 500 + 700 * (seed as u32 % 5),
            ooo_frames_max: 2,
            rx_frames_shared: 6,
            retained_units_max: 3,
            ..Run::default().config
        };
        let faults = Faults { lost_percent: seed % 8, duplicated_percent: 2, reordered_percent: 5 };
        let (mtus, bytes) = ([9_000, 1_500], [30_000, 30_000]);
        Run { faults, config, mtus, bytes, unit: 8_960, moves_percent: 0 }.run(seed);
    }
}

/// RFC 6582: one lost segment of a flight is repaired in round trips, without a timeout.
#[test]
fn light_loss_is_mostly_repaired_without_timeouts() {
    let faults = Faults { lost_percent: 1, ..Faults::default() };
    let (sides, _) = Run { faults, bytes: [4_000_000, 0], ..Run::default() }.run(77);
    let (fast, timeouts) =
        (sides[0].node.read(Counter::TcpFastRetransmits), sides[0].node.read(Counter::TcpTimeouts));
    assert!(fast > 3 * timeouts, "{fast} fast retransmits, {timeouts} timeouts");
}

/// Every congestion control, with and without SACK, timestamps and ECN, over a link with all
/// faults.
#[test]
fn every_byte_arrives_with_every_set_of_options() {
    let controllers = [Congestion::NewReno, Congestion::Cubic, Congestion::Dctcp];
    for seed in 400..424u64 {
        let [sack, timestamps, ecn] = [seed & 1 != 0, seed & 2 != 0, seed & 4 != 0];
        let congestion = controllers[seed as usize % 3];
        let config = TcpConfig { sack, timestamps, ecn, congestion, ..Run::default().config };
        let faults =
            Faults { lost_percent: seed % 9, duplicated_percent: seed % 7, reordered_percent: seed % 25 };
        Run { faults, config, bytes: [60_000, 30_000], ..Run::default() }.run(seed);
    }
}

/// RFC 8985: with SACK, RACK repairs nearly all losses without a timeout. The minimum timeout is
/// fifty round trips here.
#[test]
fn with_sack_losses_are_repaired_without_timeouts() {
    let faults = Faults { lost_percent: 1, ..Faults::default() };
    let (sides, _) = Run { faults, bytes: [2_000_000, 0], ..Run::default() }.run(78);
    let sent = &sides[0].node;
    assert!(sent.read(Counter::TcpTxRetransmits) >= 10);
    assert!(sent.read(Counter::TcpTimeouts) <= 1, "{} timeouts", sent.read(Counter::TcpTimeouts));
}
