//! A core that stood still for minutes, such as that of a stopped process or virtual machine: what
//! its peers have answered meanwhile waits in its device, behind more frames than an iteration
//! reads, and counts although the time for it is over.

use crate::common;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use common::{FAR, Node, Pair, config};
use ironwarp::memory::{MemoryConfig, MemoryPort, pair};
use ironwarp::{CompletionStatus, Event, Nanos, QpAttr, QueuePair, Region, RemoteMemory, SendWr, Stack};
use ironwarp_types::Clock;

/// A clock that goes on by a little with each reading, and that a test can move.
#[derive(Clone, Default)]
struct VirtualClock(Arc<AtomicU64>);

impl Clock for VirtualClock {
    fn now(&self) -> Nanos {
        Nanos(self.0.fetch_add(100, Ordering::Relaxed))
    }
}

/// Bytes of a Write of some 180 segments: more than an iteration reads, fewer than the device
/// holds.
const BULK_BYTES: usize = 1 << 18;

/// Turns in which the far node has sent such a Write.
const BULK_TURNS: usize = 200;

/// Two nodes, of which the near one may stand still.
struct Paused {
    pair: Pair,
    clock: VirtualClock,
    far: QueuePair,
    /// The far node's source and the near node's sink of a Write that fills the device.
    bulk: (Region, Region),
    writes: u64,
}

impl Paused {
    fn new() -> Self {
        let far_port = MemoryConfig { mac: ironwarp::MacAddr([2, 0, 0, 0, 0, 2]), ..MemoryConfig::default() };
        let (near_port, far_port) = pair(&MemoryConfig::default(), &far_port);
        let clock = VirtualClock::default();
        let node = |address: &str, port: MemoryPort, clock: VirtualClock| {
            Node::of(Stack::builder(config(address)).build_replayable(port, clock, [1, 2]).expect("a stack"))
        };
        let near = node("10.0.0.1/24", near_port, clock.clone());
        let far = node("10.0.0.2/24", far_port, VirtualClock::default());
        let mut pair = Pair { near, far, at: FAR.parse().expect("an address") };
        let (_, far) = pair.connect();
        let bytes = [7; BULK_BYTES];
        let bulk = (pair.far.memory(&bytes), pair.near.memory(&bytes));
        let mut paused = Paused { pair, clock, far, bulk, writes: 0 };
        // The congestion window opens.
        for _ in 0..12 {
            paused.write();
            paused.until_written();
        }
        paused
    }

    fn write(&mut self) {
        let (source, sink) = &self.bulk;
        self.writes += 1;
        let gather = [source.slice(0, BULK_BYTES as u32).expect("inside")];
        let to = RemoteMemory { stag: sink.stag(), tagged_offset: sink.base_to() };
        let wr = SendWr::write(self.writes, &gather, to);
        self.pair.far.ctx.post_send(self.far, &wr).expect("room");
    }

    fn until_written(&mut self) {
        let writes = self.writes as usize;
        self.pair.until("the Writes", |pair| pair.far.completions.len() == writes);
    }

    /// The far node fills the device of the near one with a Write.
    fn fill_device(&mut self) {
        self.write();
        (0..BULK_TURNS).for_each(|_| self.pair.far.turn());
    }

    /// The near core does what it was asked to, and reads a burst.
    fn step(&mut self) {
        self.pair.near.worker.poll(1);
    }

    /// The far node answers. Then the near core stands still for ten minutes, and goes on with one
    /// burst.
    fn pause(&mut self) {
        (0..8).for_each(|_| self.pair.far.turn());
        self.clock.0.fetch_add(600_000_000_000, Ordering::Relaxed);
        self.step();
    }
}

/// The start-up timeout of RFC 5044 s7.1 ends the wait for a peer that does not answer.
#[test]
fn a_reply_that_waits_completes_a_start_up_whose_time_is_over() {
    let mut paused = Paused::new();
    let Pair { near, far, at } = &mut paused.pair;
    let qp = near.ctx.create_qp(near.pd, &QpAttr::new(near.cq)).expect("a queue pair");
    let accepted = far.ctx.create_qp(far.pd, &QpAttr::new(far.cq)).expect("a queue pair");
    near.ctx.connect(qp, *at, b"").expect("connect");
    // The SYN and its answer, then the request.
    near.turn();
    far.turn();
    paused.fill_device();
    paused.step();
    let far = &mut paused.pair.far;
    far.turn();
    let asked = far.events.iter().position(|event| matches!(event, Event::ConnectRequest { .. }));
    let Event::ConnectRequest { request, .. } = far.events.remove(asked.expect("a request")) else {
        unreachable!("the event at this place is a request")
    };
    far.ctx.accept(request, accepted, b"").expect("accept");
    paused.pause();
    paused
        .pair
        .until("the connection", |pair| pair.near.is_established(qp) || has_failed(&pair.near.events, qp));
    assert!(paused.pair.near.is_established(qp));
    paused.until_written();
}

fn has_failed(events: &[Event], of: QueuePair) -> bool {
    events.iter().any(|event| matches!(event, Event::ConnectFailed { qp, .. } if *qp == of))
}

/// RFC 6298 s5.1: the acknowledgement and the answer are there, so nothing is sent again and no
/// Read is given up.
#[test]
fn an_answer_that_waits_completes_a_read_whose_time_is_over() {
    let mut paused = Paused::new();
    // Of its own, so that the window of the Write does not hold its answer back.
    let (qp, _) = paused.pair.connect();
    let (source, word) = (paused.pair.far.memory(b"an answer"), paused.pair.near.memory(&[0; 9]));
    let from = RemoteMemory { stag: source.stag(), tagged_offset: source.base_to() };
    let sink = [word.slice(0, 9).expect("inside")];
    let read = SendWr::read(1, &sink, from);
    paused.fill_device();
    paused.pair.near.ctx.post_send(qp, &read).expect("room");
    paused.step();
    let timeouts = paused.pair.near.counter("tcp_timeouts");
    paused.pause();
    paused.pair.until("the Read", |pair| !pair.near.completions.is_empty() || pair.near.is_disconnected(qp));
    let done: Vec<_> = paused.pair.near.completions.iter().map(|one| (one.wr_id, one.status)).collect();
    assert_eq!(done, [(1, CompletionStatus::Success)]);
    assert_eq!(paused.pair.near.counter("tcp_timeouts"), timeouts);
    paused.until_written();
}
