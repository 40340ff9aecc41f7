//! Two stacks with every fast path, and two without: applications and peers cannot tell them apart.

use crate::common;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use common::{FAR, Node, Pair, config, contents, pattern};
use ironwarp::memory::{MemoryConfig, MemoryPort, pair};
use ironwarp::{Completion, Nanos, QpNum, QueuePair, RecvWr, Region, RemoteMemory, SendWr, Stack};
use ironwarp_types::Clock;
use proptest::prelude::*;

const PAIRS: usize = 3;
const AREA: usize = 1 << 13;

/// A clock that only a test moves, so that a run repeats to the last timer.
#[derive(Clone, Default)]
struct StoppedClock(Arc<AtomicU64>);

impl Clock for StoppedClock {
    fn now(&self) -> Nanos {
        Nanos(self.0.load(Ordering::Relaxed))
    }
}

/// What happens in one turn.
#[derive(Clone, Debug)]
enum Step {
    /// Posts requests of these lengths to a queue pair of the near or the far node: Sends, Writes
    /// or Reads.
    Post { near: bool, qp: usize, kind: u8, lens: Vec<u32> },
    /// Polls the nodes, each as often.
    Poll { near: usize, far: usize },
    /// Time passes, in microseconds.
    Wait(u64),
}

fn steps() -> impl Strategy<Value = Step> {
    let len = prop_oneof![3 => 0..200u32, 1 => 0..AREA as u32];
    let lens = prop_oneof![3 => prop::collection::vec(len.clone(), 1), 1 => prop::collection::vec(len, 1..5)];
    prop_oneof![
        4 => (any::<bool>(), 0..PAIRS, 0..4u8, lens)
            .prop_map(|(near, qp, kind, lens)| Step::Post { near, qp, kind, lens }),
        5 => (0..3usize, 0..3usize).prop_map(|(near, far)| Step::Poll { near, far }),
        1 => (1..3_000u64).prop_map(Step::Wait),
    ]
}

/// One end of every connection, with the memory that it sends, receives and lends.
struct End {
    qps: Vec<QueuePair>,
    area: Region,
}

struct Run {
    pair: Pair,
    clock: StoppedClock,
    near: End,
    far: End,
    posted: u64,
}

impl Run {
    fn new(fast_path: bool) -> Self {
        let far_port = MemoryConfig { mac: ironwarp::MacAddr([2, 0, 0, 0, 0, 2]), ..MemoryConfig::default() };
        let (near_port, far_port) = pair(&MemoryConfig::default(), &far_port);
        let clock = StoppedClock(Arc::new(AtomicU64::new(1_000_000_000)));
        let node = |address: &str, port: MemoryPort| {
            let mut config = config(address);
            config.stack.fast_path = fast_path;
            let stack = Stack::builder(config).build_replayable(port, clock.clone(), [1, 2]);
            Node::of(stack.expect("a stack"))
        };
        let (near, far) = (node("10.0.0.1/24", near_port), node("10.0.0.2/24", far_port));
        let mut pair = Pair { near, far, at: FAR.parse().expect("an address") };
        let (mut near_qps, mut far_qps) = (Vec::new(), Vec::new());
        for _ in 0..PAIRS {
            let (near, far) = pair.connect();
            near_qps.push(near);
            far_qps.push(far);
        }
        let near = End { qps: near_qps, area: pair.near.memory(&pattern(AREA, 1)) };
        let far = End { qps: far_qps, area: pair.far.memory(&pattern(AREA, 2)) };
        Run { pair, clock, near, far, posted: 0 }
    }

    /// Posts requests, and a receive at the other end for each Send. A ring that is full refuses
    /// them.
    fn post(&mut self, near: bool, qp: usize, kind: u8, lens: &[u32]) {
        let Run { pair, near: near_end, far: far_end, posted, .. } = self;
        let (node, end, peer_node, peer) = match near {
            true => (&mut pair.near, &*near_end, &mut pair.far, &*far_end),
            false => (&mut pair.far, &*far_end, &mut pair.near, &*near_end),
        };
        for &len in lens {
            *posted += 1;
            let local = [end.area.slice(0, len).expect("inside")];
            let remote = RemoteMemory { stag: peer.area.stag(), tagged_offset: peer.area.base_to() };
            let request = match kind {
                0 | 1 => {
                    let sink = [peer.area.slice(0, len).expect("inside")];
                    let _ = peer_node.ctx.post_recv(peer.qps[qp], &RecvWr::new(*posted, &sink));
                    SendWr::send(*posted, &local)
                }
                2 => SendWr::write(*posted, &local, remote),
                _ => SendWr::read(*posted, &local, remote),
            };
            let _ = node.ctx.post_send(end.qps[qp], &request);
        }
    }

    /// Returns what an application can see after the step.
    fn step(&mut self, step: &Step) -> [Vec<Completion>; 2] {
        match step {
            Step::Post { near, qp, kind, lens } => self.post(*near, *qp, *kind, lens),
            Step::Poll { near, far } => {
                (0..*near).for_each(|_| self.pair.near.turn());
                (0..*far).for_each(|_| self.pair.far.turn());
            }
            Step::Wait(us) => {
                self.clock.0.fetch_add(us * 1_000, Ordering::Relaxed);
            }
        }
        // The numbers of queue pairs are those of the process.
        let without_number = |one: &Completion| Completion { qp: QpNum(0), ..*one };
        [&self.pair.near, &self.pair.far].map(|node| node.completions.iter().map(without_number).collect())
    }

    /// Returns the counters of both stacks, and the contents of their memory.
    fn end(&mut self) -> impl PartialEq + core::fmt::Debug + use<> {
        let counters = [&self.pair.near, &self.pair.far].map(|node| node.stack.counters());
        let areas = [&self.near.area, &self.far.area].map(contents);
        (counters, areas)
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(150))]

    /// Completions after each turn, counters and memory are the same.
    #[test]
    fn the_fast_path_cannot_be_told_from_the_general_path(steps in prop::collection::vec(steps(), 1..60)) {
        let (mut fast, mut general) = (Run::new(true), Run::new(false));
        for step in &steps {
            prop_assert_eq!(fast.step(step), general.step(step), "{:?}", step);
        }
        prop_assert_eq!(fast.end(), general.end());
    }
}
