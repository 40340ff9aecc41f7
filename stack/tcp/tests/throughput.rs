//! Throughput of a bulk transfer over a link with a given rate, delay, queue and loss, in virtual
//! time. The result must reach the figure of a formula. A seed reproduces a run exactly.

use crate::common;

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use common::link::Rng;
use common::node::{Node, addr};
use common::pattern::{Pattern, read_all};
use ironwarp_stats::Counter;
use ironwarp_tcp::{Congestion, ConnId, TcpConfig, TcpEvents, Transport};
use ironwarp_types::Nanos;

const PORT: u16 = 4_420;
/// Preamble, inter-frame gap and frame check sequence of Ethernet, in bytes.
const WIRE_OVERHEAD: u64 = 24;
/// The duration of a core loop iteration with work.
const ITERATION: Nanos = Nanos::from_micros(1);

/// Both directions of a link.
#[derive(Clone, Copy)]
struct Shape {
    gbit: u64,
    rtt: Nanos,
    mtu: u16,
    /// Lost frames per million, from the sender.
    lost_ppm: u64,
    queue_bytes: u64,
    /// Bytes in the queue above which frames are marked.
    mark_bytes: u64,
}

impl Default for Shape {
    fn default() -> Self {
        let rtt = Nanos::from_micros(50);
        Shape { gbit: 10, rtt, mtu: 1_500, lost_ppm: 0, queue_bytes: 1 << 20, mark_bytes: u64::MAX }
    }
}

/// One direction: a queue that drains at the link's rate.
struct Pipe {
    shape: Shape,
    lost_ppm: u64,
    free_at: Nanos,
    in_flight: BinaryHeap<Reverse<(Nanos, u64, Vec<u8>)>>,
    count: u64,
}

impl Pipe {
    fn new(shape: Shape, lost_ppm: u64) -> Self {
        Pipe { shape, lost_ppm, free_at: Nanos::ZERO, in_flight: BinaryHeap::new(), count: 0 }
    }

    fn send(&mut self, now: Nanos, mut frame: Vec<u8>, rng: &mut Rng) {
        let queued = self.free_at.since(now).0 * self.shape.gbit / 8;
        if rng.below(1_000_000) < self.lost_ppm || queued > self.shape.queue_bytes {
            return;
        }
        if queued > self.shape.mark_bytes {
            mark(&mut frame);
        }
        let bytes = frame.len() as u64 + WIRE_OVERHEAD;
        self.free_at = self.free_at.max(now) + Nanos(bytes * 8 / self.shape.gbit);
        self.count += 1;
        let arrives = self.free_at + Nanos(self.shape.rtt.0 / 2);
        self.in_flight.push(Reverse((arrives, self.count, frame)));
    }

    fn arrived(&mut self, now: Nanos) -> Option<Vec<u8>> {
        self.next().filter(|&at| at <= now)?;
        self.in_flight.pop().map(|Reverse((.., frame))| frame)
    }

    fn next(&self) -> Option<Nanos> {
        self.in_flight.peek().map(|Reverse((at, ..))| *at)
    }
}

/// Sets the CE bits of an ECN-capable packet. Other packets are kept, since the queue is long.
fn mark(frame: &mut [u8]) {
    if frame[15] & 3 != 0 {
        let sum = u16::from_be_bytes([frame[24], frame[25]]);
        let (old, new) = (u16::from(frame[15]), u16::from(frame[15] | 3));
        frame[15] |= 3;
        // RFC 1624: updates the header checksum for one changed word.
        let changed = u32::from(!sum) + u32::from(!old) + u32::from(new);
        let folded = (changed & 0xffff) + (changed >> 16);
        let folded = (folded & 0xffff) + (folded >> 16);
        frame[24..26].copy_from_slice(&(!(folded as u16)).to_be_bytes());
    }
}

/// The measurements of a transfer.
#[derive(Debug)]
struct Measured {
    gbit: f64,
    resent: u64,
    timeouts: u64,
}

/// One side. It reads everything and sends from a source.
struct Side {
    node: Node,
    id: Option<ConnId>,
    taken: u64,
}

impl Side {
    fn poll(&mut self, now: Nanos, from: &mut Pipe, source: &mut Pattern) -> Vec<Vec<u8>> {
        self.node.now = now;
        for _ in 0..32 {
            let Some(frame) = from.arrived(now) else { break };
            self.node.receive(&frame);
        }
        self.node.timers();
        for (id, events) in std::mem::take(&mut self.node.events) {
            assert!(!events.intersects(TcpEvents::ENDED), "{events:?}");
            self.id.get_or_insert(id);
            read_all(&mut self.node.tcp.rx(id), &mut self.taken);
        }
        if let Some(id) = self.id {
            self.node.transmit(id, source, 32);
        }
        self.node.flush();
        self.node.sent()
    }

    fn busy(&self) -> bool {
        self.node.tcp.has_pending_acks()
    }
}

fn config(congestion: Congestion) -> TcpConfig {
    TcpConfig { congestion, connections_max: 2, rcv_window_bytes: 4 << 20, ..TcpConfig::default() }
}

/// Sends `bytes` over a link and measures from the first SYN to the last byte.
fn transfer(shape: Shape, config: &TcpConfig, bytes: u64, seed: u64) -> Measured {
    let mut rng = Rng(seed);
    // A window of frames is in flight.
    let node = |host| Node::with_frames(4096, host, shape.mtu, config.clone());
    let mut a = Side { node: node(1), id: None, taken: 0 };
    let mut b = Side { node: node(2), id: None, taken: 0 };
    // A check goes through all of these frames.
    (a.node.checks, b.node.checks) = (false, false);
    let mut polls = 0;
    b.node.tcp.listen(addr(2, PORT)).expect("room");
    let start = Nanos::from_secs(1);
    let mut now = start;
    a.node.now = now;
    a.id = Some(a.node.connect(50_000, addr(2, PORT), 2));
    let (mut source, mut nothing) = (Pattern::new(bytes, 65_535), Pattern::new(0, 1));
    let (mut towards_b, mut towards_a) = (Pipe::new(shape, shape.lost_ppm), Pipe::new(shape, 0));
    while b.taken < bytes {
        for frame in a.poll(now, &mut towards_a, &mut source) {
            towards_b.send(now, frame, &mut rng);
        }
        for frame in b.poll(now, &mut towards_b, &mut nothing) {
            towards_a.send(now, frame, &mut rng);
        }
        let soonest =
            [towards_a.next(), towards_b.next(), a.node.tcp.next_deadline(), b.node.tcp.next_deadline()];
        let soonest = soonest.into_iter().flatten().min().unwrap_or(now);
        let idle = !a.busy() && !b.busy();
        now = if idle { soonest.max(now + ITERATION) } else { now + ITERATION };
        polls += 1;
        if polls % 64 == 0 {
            a.node.check();
            b.node.check();
        }
        assert!(now < start + Nanos::from_secs(100), "the transfer does not end");
    }
    Measured {
        gbit: bytes as f64 * 8.0 / now.since(start).0 as f64,
        resent: a.node.read(Counter::TcpTxRetransmits),
        timeouts: a.node.read(Counter::TcpTimeouts),
    }
}

/// The maximum payload rate of the link, in Gbit/s.
fn link_gbit(shape: Shape) -> f64 {
    let payload = f64::from(shape.mtu) - 52.0;
    shape.gbit as f64 * payload / (f64::from(shape.mtu) + 14.0 + WIRE_OVERHEAD as f64)
}

/// The Mathis formula, MSS / RTT * sqrt(1.5 / p), in Gbit/s, limited by the link rate.
fn under_loss_gbit(shape: Shape) -> f64 {
    let payload = f64::from(shape.mtu) - 52.0;
    let p = shape.lost_ppm as f64 / 1e6;
    let formula = payload * 8.0 / shape.rtt.0 as f64 * (1.5 / p).sqrt();
    formula.min(link_gbit(shape))
}

const MTUS: [u16; 2] = [1_500, 9_000];
const LOSS_BASED: [Congestion; 2] = [Congestion::NewReno, Congestion::Cubic];

/// Bytes per transfer: enough for a stable result, and short enough for a test.
const BYTES: u64 = 6_000_000;

/// Without loss: nine tenths of a link of 10 Gbit/s and 50 us.
#[test]
fn a_clean_link_is_used_to_nine_tenths() {
    for mtu in MTUS {
        for congestion in LOSS_BASED {
            let shape = Shape { mtu, ..Shape::default() };
            let measured = transfer(shape, &config(congestion), BYTES, 1);
            assert!(measured.gbit >= 0.9 * link_gbit(shape), "{mtu} {congestion:?}: {measured:?}");
            assert_eq!(measured.timeouts, 0, "{mtu} {congestion:?}");
        }
    }
}

/// With random loss of 0.1 % and 1 %: four fifths of the formula's result.
#[test]
fn throughput_under_random_loss_reaches_the_formula() {
    for mtu in MTUS {
        for congestion in LOSS_BASED {
            for lost_ppm in [1_000, 10_000] {
                let shape = Shape { mtu, lost_ppm, ..Shape::default() };
                let measured = transfer(shape, &config(congestion), BYTES, 1);
                let least = 0.8 * under_loss_gbit(shape);
                assert!(
                    measured.gbit >= least,
                    "{mtu} {congestion:?} {lost_ppm}: {measured:?}, least {least}"
                );
                assert_eq!(measured.timeouts, 0, "{mtu} {congestion:?} {lost_ppm}: {measured:?}");
            }
        }
    }
}

/// RFC 8257: with a switch that marks above a short queue, DCTCP fills the link without filling the
/// queue.
#[test]
fn dctcp_fills_a_marking_link_without_loss() {
    let shape = Shape { mark_bytes: 30_000, ..Shape::default() };
    let measured = transfer(shape, &config(Congestion::Dctcp), BYTES, 1);
    assert!(measured.gbit >= 0.9 * link_gbit(shape), "{measured:?}");
    assert_eq!(measured.resent, 0, "{measured:?}");
}
