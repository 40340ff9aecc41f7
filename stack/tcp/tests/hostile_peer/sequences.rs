//! Random sequences of segments with nearly valid numbers, on several connections at once, with a
//! bystander connection.

use ironwarp_tcp::{ByteStream, ConnId, TcpEvents, Transport};
use ironwarp_types::Nanos;
use proptest::prelude::*;

use crate::common::node::addr;
use crate::common::pattern::Pattern;
use crate::common::raw::{PORT, Segment, frame};
use crate::hostile_peer::scene::Scene;

#[derive(Clone, Debug)]
enum Step {
    /// From one of a few ports, with numbers relative to the valid ones.
    Segment {
        port: u16,
        seq: u32,
        ack: u32,
        flags: u8,
        window: u16,
        options: Vec<u8>,
        len: usize,
    },
    /// Repeats the last segment.
    Again,
    Connect(u16),
    Time(u64),
    Transmit(u64),
    Read(usize),
    Close,
    Abort,
    /// For a while no transmit buffers, or a full device.
    Starve(bool, bool),
}

fn offset() -> impl Strategy<Value = u32> {
    prop_oneof![
        8 => Just(0),
        4 => (-3_000i32..3_000).prop_map(|off| off as u32),
        1 => (-600_000i32..600_000).prop_map(|off| off as u32),
        1 => any::<u32>(),
    ]
}

/// Valid and invalid option lists.
fn options() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        4 => Just(Vec::new()),
        2 => Just(vec![2, 4, 0x05, 0xb4, 1, 3, 3, 7, 4, 2, 8, 10, 0, 0, 0, 9, 0, 0, 0, 0]),
        2 => (any::<u32>(), any::<u32>()).prop_map(|(value, echo)| {
            [&[1, 1, 8, 10][..], &value.to_be_bytes(), &echo.to_be_bytes()].concat()
        }),
        2 => prop::collection::vec(any::<u32>(), 2..8).prop_map(|edges| {
            let edges = &edges[..edges.len() / 2 * 2];
            let mut list = vec![1, 1, 5, 2 + edges.len() as u8 * 4];
            list.extend(edges.iter().flat_map(|edge| edge.to_be_bytes()));
            list
        }),
        1 => prop::collection::vec(any::<u8>(), 0..40),
    ]
}

fn segment() -> impl Strategy<Value = Step> {
    let flags = prop_oneof![
        4 => Just(0x10u8), 3 => Just(0x18u8), 2 => Just(0x02u8), 2 => Just(0x12u8), 2 => Just(0x11u8),
        1 => Just(0x04u8), 2 => any::<u8>(),
    ];
    (0u16..4, offset(), offset(), flags, any::<u16>(), options(), prop_oneof![Just(0usize), 0usize..1_400])
        .prop_map(|(port, seq, ack, flags, window, options, len)| Step::Segment {
            port,
            seq,
            ack,
            flags,
            window,
            options,
            len,
        })
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        20 => segment(),
        2 => Just(Step::Again),
        1 => (0u16..4).prop_map(Step::Connect),
        2 => (0u64..300_000_000).prop_map(Step::Time),
        3 => (0u64..5_000).prop_map(Step::Transmit),
        2 => (0usize..5_000).prop_map(Step::Read),
        1 => Just(Step::Close),
        1 => Just(Step::Abort),
        1 => any::<(bool, bool)>().prop_map(|(alloc, send)| Step::Starve(alloc, send)),
    ];
    prop::collection::vec(step, 1..120)
}

/// The knowledge of an on-path attacker: the next numbers of each of its connections, in both
/// directions.
#[derive(Default)]
struct Attack {
    next: [(u32, u32); 4],
    conns: Vec<ConnId>,
    last: Vec<u8>,
}

const FIRST_PORT: u16 = 40_000;

impl Attack {
    fn act(&mut self, scene: &mut Scene, step: Step) {
        let node = &mut scene.node;
        match step {
            Step::Segment { port, seq, ack, flags, window, options, len } => {
                let (right_seq, right_ack) = self.next[usize::from(port)];
                let raw = Segment {
                    src_port: FIRST_PORT + port,
                    dst_port: PORT,
                    seq: right_seq.wrapping_add(seq),
                    ack: right_ack.wrapping_add(ack),
                    flags,
                    window,
                    options,
                    payload: vec![0x77; len],
                    ..Segment::default()
                };
                self.last = frame(&raw);
                node.receive(&self.last);
            }
            Step::Again if !self.last.is_empty() => node.receive(&self.last),
            Step::Again => {}
            Step::Connect(port) => {
                let flow = ironwarp_types::Flow { local: addr(1, PORT), remote: addr(2, FIRST_PORT + port) };
                let path = node.path_to(2);
                self.conns.extend(node.tcp.connect(node.now, flow, path, &mut node.wires));
            }
            Step::Time(ns) => {
                node.now += Nanos(ns);
                node.timers();
            }
            Step::Transmit(bytes) => {
                for &id in &self.conns {
                    node.transmit(id, &mut Pattern::new(bytes, 1_400), 4);
                }
            }
            Step::Read(bytes) => self.conns.iter().for_each(|&id| node.tcp.rx(id).consume(bytes)),
            Step::Close => {
                if let Some(&id) = self.conns.first() {
                    node.tcp.close(node.now, id, &mut node.wires);
                }
            }
            Step::Abort => {
                if let Some(id) = self.conns.pop() {
                    node.tcp.abort(node.now, id, &mut node.wires);
                    node.tcp.release(id);
                }
            }
            Step::Starve(alloc, send) => {
                node.allow_allocations(alloc);
                node.allow_sending(send);
            }
        }
    }

    /// Inspects what we sent, and handles events as an application does.
    fn observe(&mut self, scene: &mut Scene) {
        let node = &mut scene.node;
        node.flush();
        for frame in node.sent() {
            let captured = Segment::read(&frame).expect("right checksums").1;
            if let Some(next) = self.next.get_mut(usize::from(captured.dst_port.wrapping_sub(FIRST_PORT))) {
                *next = (captured.ack, captured.seq.wrapping_add(captured.seq_len()));
            }
        }
        for (id, events) in std::mem::take(&mut node.events) {
            if events.contains(TcpEvents::ESTABLISHED) && !self.conns.contains(&id) {
                self.conns.push(id);
            }
            if events.intersects(TcpEvents::ENDED) {
                self.conns.retain(|&conn| conn != id);
                node.tcp.release(id);
            }
        }
        node.check();
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]

    /// RFC 9293 s3.10: any segments, calls and times in any order keep the engine consistent, do
    /// not affect the bystander, and leak nothing.
    #[test]
    fn random_sequences_keep_the_engine_consistent(steps in steps()) {
        let mut scene = Scene::new();
        let mut attack = Attack::default();
        for (count, step) in steps.into_iter().enumerate() {
            attack.act(&mut scene, step);
            attack.observe(&mut scene);
            if count % 10 == 9 {
                scene.node.allow_allocations(true);
                scene.node.allow_sending(true);
                scene.bystander_works();
            }
        }
        scene.node.allow_allocations(true);
        scene.node.allow_sending(true);
        attack.observe(&mut scene);
        for id in attack.conns {
            scene.node.tcp.release(id);
        }
        scene.assert_nothing_leaked();
    }
}
