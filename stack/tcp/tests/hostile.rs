//! Invalid and malicious segments: nothing panics, every invariant holds, and connections that the
//! segments do not name are not affected.

use crate::common;

use common::node::arrived;
use common::node::{Node, addr, mac};
use common::pattern::{Pattern, bytes_at, read_all};
use common::script::Script;
use ironwarp_net::Packet;
use ironwarp_tcp::{ConnId, TcpConfig, TcpEvents, Transport};
use ironwarp_types::{Ecn, Flow, Nanos};
use proptest::prelude::*;

fn config() -> TcpConfig {
    TcpConfig {
        connections_max: 6,
        half_open_max: 3,
        time_wait_max: 3,
        ooo_frames_max: 4,
        rx_frames_shared: 12,
        retained_units_shared: 12,
        rcv_window_bytes: 20_000,
        rto_min: Nanos::from_millis(1),
        rto_initial: Nanos::from_millis(5),
        user_timeout: Nanos::from_millis(400),
        ..TcpConfig::default()
    }
}

/// A TCP header with options and payload. Every field may have any value; sequence numbers are
/// relative to the valid ones.
#[derive(Clone, Debug)]
struct ArbitrarySegment {
    port: u16,
    seq: u32,
    ack: u32,
    flags: u8,
    window: u16,
    header_words: u8,
    options: Vec<u8>,
    payload: u16,
}

/// The distance of a number from the valid one.
fn offset() -> impl Strategy<Value = u32> {
    prop_oneof![
        6 => Just(0),
        3 => (-2_000i32..2_000).prop_map(|off| off as u32),
        1 => (-70_000i32..70_000).prop_map(|off| off as u32),
        1 => any::<u32>(),
    ]
}

/// The data offset in words, and options: none, timestamps near the valid ones, SACK blocks, SYN
/// options, random octets.
fn options() -> impl Strategy<Value = (u8, Vec<u8>)> {
    let stamps = || {
        (offset(), offset()).prop_map(|(value, echo)| {
            [&[1, 1, 8, 10][..], &value.to_be_bytes(), &echo.to_be_bytes()].concat()
        })
    };
    let block =
        prop::collection::vec(any::<u8>(), 24).prop_map(|blocks| [vec![1, 1, 5, 26], blocks].concat());
    let offer = prop_oneof![Just(vec![2, 4, 5, 180, 4, 2, 1, 1]), Just(vec![2, 4, 0, 1, 1, 3, 3, 14])];
    let whole = |options: Vec<u8>| (5 + options.len() as u8 / 4, options);
    prop_oneof![
        3 => Just((5, Vec::new())),
        3 => stamps().prop_map(whole),
        1 => (stamps(), block).prop_map(move |(stamps, blocks)| whole([stamps, blocks].concat())),
        1 => (stamps(), offer).prop_map(move |(stamps, offer)| whole([stamps, offer].concat())),
        2 => (0u8..16, prop::collection::vec(any::<u8>(), 0..40)),
    ]
}

fn arbitrary() -> impl Strategy<Value = ArbitrarySegment> {
    let flags = prop_oneof![3 => Just(0x10u8), 2 => Just(0x18u8), 1 => Just(0x02u8), 1 => Just(0x11u8), 3 => any::<u8>()];
    (0u16..4, offset(), offset(), flags, any::<u16>(), options(), 0u16..1_400).prop_map(
        |(port, seq, ack, flags, window, (header_words, options), payload)| ArbitrarySegment {
            port,
            seq,
            ack,
            flags,
            window,
            header_words,
            options,
            payload,
        },
    )
}

#[derive(Clone, Debug)]
enum Step {
    Segment(ArbitrarySegment),
    Time(u64),
    Transmit(usize),
    Read,
    Flush,
    Close,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        8 => arbitrary().prop_map(Step::Segment),
        1 => (0u64..200_000_000).prop_map(Step::Time),
        2 => (0usize..3_000).prop_map(Step::Transmit),
        1 => Just(Step::Read),
        1 => Just(Step::Flush),
        1 => Just(Step::Close),
    ];
    prop::collection::vec(step, 1..80)
}

/// Passes a segment to TCP as `net` does after its checks.
fn deliver(node: &mut Node, arbitrary: &ArbitrarySegment, seen: &Seen) {
    let (seq, ack) = seen.next[usize::from(arbitrary.port)];
    let mut frame = vec![0u8; 34];
    frame.extend(40_000u16.wrapping_add(arbitrary.port).to_be_bytes());
    frame.extend(4_420u16.to_be_bytes());
    frame.extend(seq.wrapping_add(arbitrary.seq).to_be_bytes());
    frame.extend(ack.wrapping_add(arbitrary.ack).to_be_bytes());
    frame.extend([arbitrary.header_words << 4, arbitrary.flags]);
    frame.extend(arbitrary.window.to_be_bytes());
    frame.extend([0; 4]);
    frame.extend(&arbitrary.options);
    frame.resize(frame.len() + usize::from(arbitrary.payload), 0x77);
    let flow = Flow { local: addr(1, 4_420), remote: addr(2, 40_000 + arbitrary.port) };
    let segment = Packet {
        l4_end: frame.len() as u16,
        frame: arrived(&frame),
        hash: node.net.hasher().hash(&flow),
        flow,
        l4_offset: 34,
        remote_mac: mac(2),
        ecn: Ecn::NotEct,
        protocol: 6,
        udp_port: 0,
    };
    let net = &node.net;
    let event = node.tcp.on_segment(node.now, segment, || net.path_to(&flow, mac(2)), &mut node.wires);
    node.events.extend(event);
}

/// The numbers that an on-path attacker reads from our segments: for each port, the next ones of
/// both directions.
#[derive(Default)]
struct Seen {
    next: [(u32, u32); 4],
}

impl Seen {
    fn observe(&mut self, frames: &[Vec<u8>]) {
        for frame in frames {
            let word =
                |at: usize| u32::from_be_bytes([frame[at], frame[at + 1], frame[at + 2], frame[at + 3]]);
            let port = usize::from(u16::from_be_bytes([frame[36], frame[37]]).wrapping_sub(40_000));
            let payload = frame.len() - 34 - usize::from(frame[46] >> 4) * 4;
            let counted = payload as u32 + u32::from(frame[47] & 1) + u32::from(frame[47] >> 1 & 1);
            if let Some(next) = self.next.get_mut(port) {
                *next = (word(42), word(38).wrapping_add(counted));
            }
        }
    }
}

/// RFC 9293 s3.8: nothing follows a FIN. One before data that are held beyond a gap contradicts
/// them and is ignored.
#[test]
fn a_fin_before_data_that_arrived_earlier_is_ignored() {
    let mut node = Script::accepted(config(), 64_000).node;
    let mut seen = Seen::default();
    for (seq, flags, payload) in [(0, 2, 0), (1072, 16, 433), (1343, 17, 161), (0, 16, 1072)] {
        let segment = ArbitrarySegment {
            port: 1,
            seq,
            ack: 0,
            flags,
            window: 0,
            header_words: 5,
            options: Vec::new(),
            payload,
        };
        deliver(&mut node, &segment, &seen);
        seen.observe(&node.sent());
        node.check();
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    #[test]
    fn no_sequence_of_segments_breaks_an_invariant_or_another_connection(steps in steps()) {
        let mut bystander = Script::accepted(config(), 64_000);
        let mut seen = Seen::default();
        let mut conns: Vec<ConnId> = Vec::new();
        for step in steps {
            let node = &mut bystander.node;
            match step {
                Step::Segment(arbitrary) => deliver(node, &arbitrary, &seen),
                Step::Time(ns) => {
                    node.now += Nanos(ns);
                    node.timers();
                }
                Step::Transmit(bytes) => {
                    for &id in &conns {
                        node.transmit(id, &mut Pattern::new(bytes as u64, 1_000), 4);
                    }
                }
                Step::Read => {
                    for &id in &conns {
                        use ironwarp_tcp::ByteStream;
                        node.tcp.rx(id).consume(3_000);
                    }
                }
                Step::Flush => node.flush(),
                Step::Close => {
                    if let Some(&id) = conns.first() {
                        node.tcp.close(node.now, id, &mut node.wires);
                    }
                }
            }
            seen.observe(&node.sent());
            for (id, events) in std::mem::take(&mut node.events) {
                if events.contains(TcpEvents::ESTABLISHED) {
                    conns.push(id);
                }
                if events.intersects(TcpEvents::ENDED) {
                    conns.retain(|&conn| conn != id);
                    node.tcp.release(id);
                }
            }
            node.check();
        }
        still_works(bystander);
    }
}

/// The bystander connection still transfers data in both directions.
fn still_works(mut s: Script) {
    s.peer("P. 1:101(100) ack 1 win 64000");
    assert_eq!(s.read(), 100);
    s.transmit(&mut Pattern::new(100, 100), 1);
    let sent = s.node.sent();
    assert!(sent.iter().any(|frame| frame.ends_with(&bytes_at(0, 100))), "nothing was sent");
    s.peer(". 101 ack 101 win 64000");
    assert_eq!(s.node.tcp.acked_bytes(s.id()), 100);
}

/// A peer that knows everything about a connection can end it, but nothing else.
#[test]
fn a_reset_ends_one_connection_and_frees_its_memory() {
    let mut s = Script::accepted(config(), 64_000);
    for round in 0..50u16 {
        s.open_to(20_000 + round);
        s.transmit(&mut Pattern::new(3_000, 1_000), 8);
        s.sent();
        s.peer("P. 2001:3001(1000) ack 1 win 64000");
        s.peer("R 1 win 0");
        assert_eq!(s.events(), TcpEvents::RESET);
        read_all(&mut s.node.tcp.rx(s.id()), &mut 0);
        s.node.tcp.release(s.id());
        s.sent();
        s.node.check();
    }
    // One frame may be kept for the next unit.
    assert!(s.node.tx_frames_in_use() <= 1);
}
