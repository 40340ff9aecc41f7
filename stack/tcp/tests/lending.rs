//! Payload that is lent in its frame: the bytes, the ACKs and the windows are those of payload that passes the queue.

mod common;

use common::pattern::{Pattern, read_all};
use common::script::Script;
use ironwarp_stats::Counter;
use ironwarp_tcp::{ByteStream, TcpConfig, TcpEvents};
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
fn payload_that_is_not_predicted_is_not_lent() {
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
    },
    /// This side sends, and sends due ACKs.
    Transmit(usize),
    Flush,
    Advance(u64),
}

fn step() -> impl Strategy<Value = Step> {
    let skip = prop_oneof![8 => Just(0), 1 => -200..200i32];
    let win = prop_oneof![6 => Just(64_000u32), 1 => 0..2_000u32];
    let fin = prop_oneof![40 => Just(false), 1 => Just(true)];
    prop_oneof![
        8 => (skip, 0..600u32, any::<bool>(), win, fin)
            .prop_map(|(skip, len, ack_all, win, fin)| Step::Data { skip, len, ack_all, win, fin }),
        2 => (1..6usize).prop_map(Step::Transmit),
        2 => Just(Step::Flush),
        1 => (1..400u64).prop_map(Step::Advance),
    ]
}

/// One side of the comparison: the script, and the numbers that the peer uses next.
struct Run {
    s: Script,
    lends: bool,
    next: i32,
    our_next: u64,
    source: Pattern,
}

impl Run {
    fn new(lends: bool) -> Self {
        Run { s: script(), lends, next: 1, our_next: 1, source: Pattern::new(1_000_000, 500) }
    }

    /// Carries out a step and returns all that can be seen of it.
    fn step(&mut self, step: &Step) -> (Vec<String>, TcpEvents, usize) {
        match *step {
            Step::Data { skip, len, ack_all, win, fin } => {
                let start = (self.next + skip).max(1);
                let end = start + len as i32;
                let (ack, flags) = (if ack_all { self.our_next } else { 1 }, if fin { "F." } else { "P." });
                let text = format!("{flags} {start}:{end}({len}) ack {ack} win {win}");
                self.next = self.next.max(end);
                match self.lends {
                    true => drop(self.s.peer_lending(&text, read_records)),
                    false => self.s.peer(&text),
                }
            }
            Step::Transmit(segments) => {
                self.our_next += self.s.transmit(&mut self.source, segments).bytes as u64;
            }
            Step::Flush => {}
            Step::Advance(ms) => self.s.advance(Nanos::from_millis(ms)),
        }
        let id = self.s.id();
        read_records(&mut self.s.node.tcp.rx(id));
        let events = self.s.events().difference(TcpEvents::READABLE);
        (self.s.sent(), events, self.s.node.tcp.rx(id).available())
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(300) })]

    /// Whatever the peer sends, a reader of lent payload and a reader of the queue send the same segments, get the same
    /// events and leave the same bytes.
    #[test]
    fn lending_cannot_be_told_from_queueing(steps in prop::collection::vec(step(), 1..60)) {
        let (mut queueing, mut lending) = (Run::new(false), Run::new(true));
        for step in &steps {
            prop_assert_eq!(queueing.step(step), lending.step(step), "{:?}", step);
        }
        for &counter in Counter::ALL {
            prop_assert_eq!(queueing.s.node.read(counter), lending.s.node.read(counter), "{:?}", counter);
        }
    }
}
