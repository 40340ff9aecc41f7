//! The fast transmission, of one unit while nothing else is outstanding: frames, results, events,
//! timers and counters are those of the general path, bit by bit.

use crate::common;

use common::pattern::byte_at;
use common::script::Script;
use ironwarp_arch::checksum;
use ironwarp_stats::Counter;
use ironwarp_tcp::{Blocked, ByteStream, TcpConfig, TcpEvents, Transmitted, Transport, UnitSource};
use ironwarp_types::Nanos;
use proptest::prelude::*;

/// A source of units of these sizes, the last first. A size of 0 is work that sends nothing, like a
/// local request of a stream.
#[derive(Clone, Debug)]
struct Units {
    sizes: Vec<usize>,
    /// It says that it is empty, and the sum of a unit, as streams do.
    informs: bool,
    sum: Option<u32>,
    /// The offset of the next byte in the stream.
    next: u64,
}

impl Units {
    fn new(sizes: &[usize], informs: bool) -> Self {
        Units { sizes: sizes.to_vec(), informs, sum: None, next: 0 }
    }
}

impl UnitSource for Units {
    fn fill(&mut self, room: &mut [u8]) -> usize {
        let Some(size) = self.sizes.pop() else { return 0 };
        // Path MTU discovery may have reduced the segment size.
        let size = size.min(room.len());
        let unit = &mut room[..size];
        unit.iter_mut().zip(self.next..).for_each(|(byte, at)| *byte = byte_at(at));
        self.next += size as u64;
        self.sum = self.informs.then(|| checksum::sum(unit));
        size
    }

    fn sum(&self) -> Option<u32> {
        self.sum
    }

    fn is_empty(&mut self) -> bool {
        self.informs && self.sizes.is_empty()
    }
}

/// What the connection has agreed on.
#[derive(Clone, Copy, Debug)]
struct Agreed {
    timestamps: bool,
    ecn: bool,
    initial_window_segments: u8,
}

impl Agreed {
    fn new(timestamps: bool, ecn: bool) -> Self {
        Agreed { timestamps, ecn, initial_window_segments: 10 }
    }
}

fn script(fast_path: bool, agreed: Agreed) -> Script {
    let Agreed { timestamps, ecn, initial_window_segments } = agreed;
    let config = TcpConfig {
        fast_path,
        timestamps,
        sack: timestamps,
        ecn,
        initial_window_segments,
        ..TcpConfig::default()
    };
    let syn = if ecn { "SEW" } else { "S" };
    let (syn_option, option) = match timestamps {
        true => (",sackOK,TS val 0 ecr 0", " <TS val 0 ecr 0>"),
        false => ("", ""),
    };
    Script::accepted_with(
        config,
        &format!("{syn} 0 win 65535 <mss 1460{syn_option}>"),
        &format!(". 1 ack 1 win 64000{option}"),
    )
}

/// RFC 9293 s3.7.2 and RFC 7323 s3.2: the one segment of a message carries the pending ACK, PSH and
/// timestamps.
#[test]
fn a_message_of_a_connection_at_rest_is_one_segment_with_the_pending_ack() {
    let mut s = script(true, Agreed::new(true, false));
    s.peer("P. 1:101(100) ack 1 win 64000 <TS val 5 ecr 0>");
    let sent = s.transmit(&mut Units::new(&[88], true), 64);
    assert_eq!(sent, Transmitted { units: 1, bytes: 88, blocked: Blocked::Source });
    let sent = s.sent();
    assert_eq!(sent.len(), 1);
    assert!(sent[0].starts_with("P. 1:89(88) ack 101"), "{sent:?}");
    assert!(sent[0].contains("ecr 5"), "{sent:?}");
    s.expect(&[]);
    s.node.check();
}

/// RFC 6298 s5.1 and RFC 8985 s7.2: the lost segment is sent again, with the same payload.
#[test]
fn a_lost_message_is_sent_again() {
    let mut s = script(true, Agreed::new(true, false));
    s.transmit(&mut Units::new(&[88], true), 64);
    let first = s.node.sent();
    s.advance(Nanos::from_secs(2));
    let again = s.node.sent();
    assert_eq!((first.len(), again.len()), (1, 1));
    assert_eq!(first[0][66..], again[0][66..]);
}

/// A full device is offered the frames that wait once for each segment, on both paths: it must not
/// take more frames because the fast path asked first.
#[test]
fn a_full_device_is_offered_its_frames_as_often_as_on_the_general_path() {
    let waiting = [true, false].map(|fast_path| {
        let mut s = script(fast_path, Agreed::new(true, false));
        s.node.limit_tx_burst(0);
        let (mut peer, mut ours) = (1, 1);
        // Units that the peer acknowledges fill the slots of data, and ACKs those of control
        // segments.
        for round in 0..400 {
            let sent = s.transmit(&mut Units::new(&[8], true), 1);
            ours += sent.bytes;
            s.peer(&format!("P. {peer}:{}(1) ack {ours} win 64000 <TS val {round} ecr 0>", peer + 1));
            peer += 1;
            let id = s.id();
            s.node.tcp.rx(id).consume(usize::MAX);
            s.node.flush();
            s.node.flush();
        }
        s.node.limit_tx_burst(1);
        let before = s.node.wires.waiting_frames();
        let sent = s.transmit(&mut Units::new(&[8], true), 1);
        assert_eq!((sent.units, sent.blocked), (0, Blocked::Wire), "fast path: {fast_path}");
        (before, s.node.wires.waiting_frames())
    });
    let [(before, after), general] = waiting;
    assert_eq!((before, after), general);
    assert_eq!(before, after + 1, "the device took one frame");
}

#[derive(Clone, Debug)]
enum Step {
    /// The layer above sends.
    Send {
        sizes: Vec<usize>,
        informs: bool,
        segments_max: usize,
    },
    /// A segment of the peer with `len` bytes, which acknowledges everything or nothing new.
    Peer {
        len: u32,
        ack_all: bool,
        win: u32,
        flags: &'static str,
    },
    Advance(u64),
    Flush,
    /// This many frames can be allocated.
    Allocations(u64),
    /// The device takes this many frames of a burst.
    Sending(u64),
    Close,
}

fn step() -> impl Strategy<Value = Step> {
    let send = || {
        let sizes = prop_oneof![
            6 => (1..200usize).prop_map(|size| vec![size]),
            2 => prop::collection::vec(prop_oneof![1 => Just(0usize), 4 => 1..1_400usize], 0..5),
        ];
        (sizes, any::<bool>(), prop_oneof![6 => Just(64usize), 1 => 1..4usize])
            .prop_map(|(sizes, informs, segments_max)| Step::Send { sizes, informs, segments_max })
    };
    let win = prop_oneof![8 => Just(64_000u32), 1 => 0..3_000u32];
    let flags = prop_oneof![12 => Just("P."), 1 => Just("PE.")];
    let len = prop_oneof![2 => Just(0u32), 3 => 1..600u32];
    prop_oneof![
        6 => send(),
        6 => (len, prop::bool::weighted(0.8), win, flags)
            .prop_map(|(len, ack_all, win, flags)| Step::Peer { len, ack_all, win, flags }),
        2 => prop_oneof![3 => 0..20u64, 1 => 20..2_000u64].prop_map(Step::Advance),
        2 => Just(Step::Flush),
        1 => prop_oneof![2 => Just(u64::MAX), 2 => 0..6u64].prop_map(Step::Allocations),
        1 => prop_oneof![2 => Just(u64::MAX), 2 => 0..4u64].prop_map(Step::Sending),
        1 => prop::bool::weighted(0.05).prop_map(|closes| if closes { Step::Close } else { Step::Flush }),
    ]
}

/// One side of the comparison, and the numbers that the peer uses next.
struct Run {
    s: Script,
    agreed: Agreed,
    next: u32,
    our_next: u64,
    peer_clock: u32,
}

/// All that can be seen of a step.
type Seen = (Option<Transmitted>, Vec<Vec<u8>>, TcpEvents, Option<Nanos>, usize);

impl Run {
    fn new(fast_path: bool, agreed: Agreed) -> Self {
        let mut s = script(fast_path, agreed);
        // Each step ends with a check.
        s.node.checks = false;
        Run { s, agreed, next: 1, our_next: 1, peer_clock: 1 }
    }

    fn step(&mut self, step: &Step) -> Seen {
        let mut transmitted = None;
        match *step {
            Step::Send { ref sizes, informs, segments_max } => {
                let mut source = Units::new(sizes, informs);
                let done = self.s.transmit(&mut source, segments_max);
                self.our_next += sizes[source.sizes.len()..].iter().sum::<usize>() as u64;
                transmitted = Some(done);
            }
            Step::Peer { len, ack_all, win, flags } => {
                let (start, end) = (self.next, self.next + len);
                let ack = if ack_all { self.our_next } else { 1 };
                self.peer_clock += 1;
                let option = match self.agreed.timestamps {
                    true => format!(" <TS val {} ecr 0>", self.peer_clock),
                    false => String::new(),
                };
                self.s.peer(&format!("{flags} {start}:{end}({len}) ack {ack} win {win}{option}"));
                self.next = end;
            }
            Step::Advance(ms) => self.s.advance(Nanos::from_millis(ms)),
            Step::Flush => self.s.node.flush(),
            Step::Allocations(frames) => self.s.node.limit_allocations(frames),
            Step::Sending(frames) => self.s.node.limit_tx_burst(frames),
            Step::Close => drop(self.s.close()),
        }
        let id = self.s.id();
        self.s.node.tcp.rx(id).consume(usize::MAX);
        self.s.node.check();
        let deadline = self.s.node.tcp.next_deadline();
        (transmitted, self.s.node.sent(), self.s.events(), deadline, self.s.node.tx_frames_in_use())
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn the_fast_transmission_cannot_be_told_from_the_general_path(
        (timestamps, ecn) in (prop::bool::weighted(0.8), any::<bool>()),
        initial_window_segments in prop_oneof![3 => Just(10u8), 1 => Just(1u8)],
        steps in prop::collection::vec(step(), 1..80),
    ) {
        let agreed = Agreed { initial_window_segments, ..Agreed::new(timestamps, ecn) };
        let (mut general, mut fast) = (Run::new(false, agreed), Run::new(true, agreed));
        for step in &steps {
            prop_assert_eq!(general.step(step), fast.step(step), "{:?}", step);
        }
        for &counter in Counter::ALL {
            prop_assert_eq!(general.s.node.read(counter), fast.s.node.read(counter), "{:?}", counter);
        }
    }
}
