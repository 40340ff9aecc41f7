//! Payload that is lent in its frame: the bytes, the ACKs and the windows are those of payload that
//! passes the queue.

use crate::common;

use common::pattern::{Pattern, read_all};
use common::raw::{Peer, correct_checksums};
use common::script::Script;
use ironwarp_stats::Counter;
use ironwarp_tcp::{ByteStream, ConnId, TcpConfig, TcpEvents};
use ironwarp_types::Nanos;
use proptest::prelude::*;

/// The reader consumes bytes in records of this size, like whole FPDUs.
const RECORD_BYTES: usize = 37;

fn script() -> Script {
    Script::accepted(TcpConfig::default(), 64_000)
}

fn read_records(stream: &mut impl ByteStream) {
    while stream.available() >= RECORD_BYTES {
        stream.consume(RECORD_BYTES);
    }
}

/// RFC 9293 s3.10.7.4, seventh step: consumed payload advances RCV.NXT and is acknowledged.
#[test]
fn consumed_payload_is_acknowledged_and_not_queued() {
    let mut s = script();
    let mut taken = 0;
    let lent = s.peer_lending("P. 1:101(100) ack 1 win 64000", |lent| read_all(lent, &mut taken));
    assert_eq!((lent, taken, s.events()), (100, 100, TcpEvents::empty()));
    let id = s.id();
    assert_eq!(s.node.tcp.rx(id).available(), 0);
    assert_eq!(s.node.read(Counter::TcpRxBytes), 100);
    s.expect(&[]);
    s.expect(&[". 1 ack 101"]);
}

#[test]
fn the_rest_of_lent_payload_is_queued() {
    let mut s = script();
    s.peer_lending("P. 1:101(100) ack 1 win 64000", |lent| lent.consume(60));
    assert_eq!(s.events(), TcpEvents::READABLE);
    s.taken = 60;
    assert_eq!(s.read(), 100);
    s.expect(&[]);
    s.expect(&[". 1 ack 101"]);
}

#[test]
fn payload_behind_unread_bytes_is_not_lent() {
    let mut s = script();
    s.peer("P. 1:101(100) ack 1 win 64000");
    assert_eq!(s.peer_lending("P. 101:201(100) ack 1 win 64000", |_| unreachable!()), 0);
    assert_eq!(s.read(), 200);
}

#[test]
fn payload_of_the_general_path_is_not_lent() {
    let mut s = script();
    assert_eq!(s.peer_lending("P. 101:201(100) ack 1 win 64000", |_| unreachable!()), 0);
    assert_eq!(s.peer_lending("P. 1:101(100) ack 1 win 64000", |_| unreachable!()), 0);
    assert_eq!(s.peer_lending("F. 201:211(10) ack 1 win 64000", |_| unreachable!()), 0);
    assert_eq!(s.read(), 210);
}

/// The ACK of a segment with lent payload takes effect before the payload is read.
#[test]
fn a_segment_with_lent_payload_acknowledges_too() {
    let mut s = script();
    s.transmit(&mut Pattern::new(10, 10), 1);
    s.expect(&["P. 1:11(10) ack 1"]);
    s.peer_lending("P. 1:101(100) ack 11 win 64000", |lent| lent.consume(100));
    assert_eq!(s.events(), TcpEvents::ACKED);
    let id = s.id();
    assert_eq!(s.node.tcp.acked_bytes(id), 10);
}

/// One step of the peer or of this side.
#[derive(Clone, Debug)]
enum Step {
    /// A segment that begins `skip` bytes behind the last one's end, or before it if negative.
    Data {
        skip: i32,
        len: u32,
        ack_all: bool,
        win: u32,
        fin: bool,
        change: Option<Change>,
    },
    /// This side sends, and sends due ACKs.
    Transmit(usize),
    Flush,
    Advance(u64),
    /// The peer of another connection, whose reader is late, sends this many bytes.
    Other(usize),
    /// The late reader consumes everything.
    OtherReads,
}

/// A byte of a frame that is changed on its way.
#[derive(Clone, Debug)]
struct Change {
    at: usize,
    flipped: u8,
    /// The checksums are correct afterwards, so that TCP sees the change.
    hidden: bool,
}

fn change() -> impl Strategy<Value = Change> {
    // Not the source's link address, to which resets return.
    let at = prop_oneof![1 => 0..6usize, 1 => 12..34usize, 3 => 34..66usize, 1 => 66..100usize];
    (at, 1..=255u8, any::<bool>()).prop_map(|(at, flipped, hidden)| Change { at, flipped, hidden })
}

fn step() -> impl Strategy<Value = Step> {
    let skip = prop_oneof![8 => Just(0), 1 => -200..200i32];
    let win = prop_oneof![6 => Just(64_000u32), 1 => 0..2_000u32];
    let fin = prop_oneof![40 => Just(false), 1 => Just(true)];
    let change = prop_oneof![6 => Just(None), 1 => change().prop_map(Some)];
    prop_oneof![
        8 => (skip, 0..600u32, any::<bool>(), win, fin, change)
            .prop_map(|(skip, len, ack_all, win, fin, change)| {
                Step::Data { skip, len, ack_all, win, fin, change }
            }),
        2 => (1..6usize).prop_map(Step::Transmit),
        2 => Just(Step::Flush),
        1 => (1..400u64).prop_map(Step::Advance),
        1 => (1..1_400usize).prop_map(Step::Other),
        1 => Just(Step::OtherReads),
    ]
}

/// One side of the comparison: the script, and the numbers that the peer uses next.
struct Run {
    s: Script,
    fast: bool,
    timestamps: bool,
    next: i32,
    our_next: u64,
    peer_clock: u32,
    source: Pattern,
    /// A connection that holds frames.
    other: (Peer, ConnId),
}

/// The shared and the emergency frames of a core whose connections have none of their own.
type Scarce = Option<(u32, u16)>;

impl Run {
    /// With the fast path, a reader of lent payload; without, one of the queue.
    fn new(fast: bool, timestamps: bool, scarce: Scarce) -> Self {
        let mut config =
            TcpConfig { fast_path: fast, timestamps, sack: timestamps, ecn: false, ..TcpConfig::default() };
        if let Some((shared, emergency)) = scarce {
            config.rx_frames_reserve = 0;
            (config.rx_frames_shared, config.rx_frames_emergency_reserve) = (shared, emergency);
        }
        let mut s = match timestamps {
            true => Script::accepted_with(
                config,
                "S 0 win 65535 <mss 1460,sackOK,TS val 0 ecr 0>",
                ". 1 ack 1 win 64000 <TS val 0 ecr 0>",
            ),
            false => Script::accepted(config, 64_000),
        };
        let other = Peer::open(&mut s.node, 50_001, 7, &[]);
        // Each step ends with a check.
        s.node.checks = false;
        let source = Pattern::new(1_000_000, 500);
        Run { s, fast, timestamps, next: 1, our_next: 1, peer_clock: 1, source, other }
    }

    /// Carries out a step and returns all that can be seen of it.
    fn step(&mut self, step: &Step) -> (Vec<Vec<u8>>, TcpEvents, usize) {
        match *step {
            Step::Data { skip, len, ack_all, win, fin, ref change } => {
                let start = (self.next + skip).max(1);
                let end = start + len as i32;
                let (ack, flags) = (if ack_all { self.our_next } else { 1 }, if fin { "F." } else { "P." });
                self.peer_clock += 1;
                let option = format!(" <TS val {} ecr 0>", self.peer_clock);
                let option = if self.timestamps { option.as_str() } else { "" };
                let frame =
                    self.s.frame(&format!("{flags} {start}:{end}({len}) ack {ack} win {win}{option}"));
                self.next = self.next.max(end);
                self.receive(changed(frame, change.as_ref()));
            }
            Step::Transmit(segments) => {
                self.our_next += self.s.transmit(&mut self.source, segments).bytes as u64;
            }
            Step::Flush => {}
            Step::Advance(ms) => self.s.advance(Nanos::from_millis(ms)),
            Step::Other(bytes) => self.other.0.send(&mut self.s.node, bytes),
            Step::OtherReads => self.s.node.tcp.rx(self.other.1).consume(usize::MAX),
        }
        let id = self.s.id();
        read_records(&mut self.s.node.tcp.rx(id));
        let events = self.s.events().difference(TcpEvents::READABLE);
        self.s.node.flush();
        self.s.node.check();
        (self.s.node.sent(), events, self.s.node.tcp.rx(id).available())
    }

    fn receive(&mut self, frame: Vec<u8>) {
        match self.fast {
            true => drop(self.s.node.receive_lending(&frame, read_records)),
            false => self.s.node.receive(&frame),
        }
    }
}

fn changed(mut frame: Vec<u8>, change: Option<&Change>) -> Vec<u8> {
    if let Some(&Change { at, flipped, hidden }) = change {
        let at = at % frame.len();
        frame[at] ^= flipped;
        // Not of addresses and ports: the script reads only this connection's segments.
        if hidden && !(26..38).contains(&at) {
            correct_checksums(&mut frame);
        }
    }
    frame
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    /// Whatever the peer sends, and whether frames are scarce or not, the fast path with a reader
    /// of lent payload and the general path with a reader of the queue send the same segments,
    /// report the same events, leave the same bytes and count the same.
    #[test]
    fn the_fast_path_cannot_be_told_from_the_general_path(
        timestamps in any::<bool>(),
        scarce in prop_oneof![Just(None), (1..4u32, 0..3u16).prop_map(Some)],
        steps in prop::collection::vec(step(), 1..60),
    ) {
        let (mut general, mut fast) = (Run::new(false, timestamps, scarce), Run::new(true, timestamps, scarce));
        for step in &steps {
            prop_assert_eq!(general.step(step), fast.step(step), "{:?}", step);
        }
        for &counter in Counter::ALL {
            prop_assert_eq!(general.s.node.read(counter), fast.s.node.read(counter), "{:?}", counter);
        }
    }
}
