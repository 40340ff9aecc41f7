//! Any traffic, with segments in any order: memory and completions equal those of in-order
//! placement.

use proptest::prelude::*;

use super::*;

#[derive(Clone, Debug)]
enum Op {
    Send(usize),
    /// From the start of the sender's area to this offset.
    Write(usize, usize),
    /// From the sender's area to this offset in the receiver's.
    Read(usize, usize),
}

const AREA: usize = 16_384;
/// There are few offsets, so that messages often share memory.
const PLACES: usize = 8;

fn ops() -> impl Strategy<Value = Vec<Op>> {
    let bytes = prop_oneof![0..100usize, 1400..1500usize, 1..8000usize];
    let at = (0..PLACES).prop_map(|at| at * (AREA / 2 / PLACES));
    let op = prop_oneof![
        bytes.clone().prop_map(Op::Send),
        (at.clone(), bytes.clone()).prop_map(|(at, bytes)| Op::Write(at, bytes)),
        (at, bytes).prop_map(|(at, bytes)| Op::Read(at, bytes)),
    ];
    proptest::collection::vec(op, 1..10)
}

/// The random parameters of one run.
#[derive(Clone, Copy)]
struct ScenarioParams<'a> {
    ops: &'a [Op],
    /// The segment payload of the sender.
    room: usize,
    markers: bool,
    crc: bool,
}

/// A sender and a receiver with all requests posted, and the stream between them.
struct Scenario {
    /// Keeps the memory of the sender registered.
    _sender: Endpoint,
    _sources: Vec<Region>,
    receiver: Endpoint,
    area: Region,
    inboxes: Vec<Region>,
    arrival: Arrival,
    units: Vec<Range<usize>>,
}

/// Everything that an application can observe.
#[derive(PartialEq, Debug)]
struct Outcome {
    area: Vec<u8>,
    inboxes: Vec<Vec<u8>>,
    sends: Vec<(u64, CompletionStatus)>,
    receives: Vec<(u64, u32, CompletionStatus)>,
}

impl Scenario {
    fn new(place_out_of_order: bool, params: ScenarioParams<'_>) -> Self {
        let mut sender = Endpoint::idle(StreamConfig { ird: 16, ..config() });
        let mut receiver = Endpoint::idle(StreamConfig { place_out_of_order, ord: 16, ..config() });
        let (markers, crc) = (Markers { sent: false, received: params.markers }, params.crc);
        receiver.stream.start(StreamStart {
            framing: Mpa::new(crc, markers),
            ..StreamStart::plain(Role::Initiator, crc)
        });
        let markers = Markers { sent: params.markers, received: false };
        sender.stream.start(StreamStart {
            framing: Mpa::new(crc, markers),
            ..StreamStart::plain(Role::Responder, crc)
        });
        let area = receiver.region(AREA, EVERYTHING);
        let source = sender.filled(AREA, EVERYTHING);
        let inboxes = post_at_receiver(&mut receiver, params.ops, &area, remote(&source));
        for request in receiver.pull_all(SEGMENT_BYTES) {
            sender.feed(&request).unwrap();
        }
        receiver.ack_all();
        let mut sources = post_at_sender(&mut sender, params.ops, remote(&area));
        sources.push(source);
        let units = sender.pull_all(params.room);
        let ends = units.iter().scan(0, |at, unit| {
            *at += unit.len();
            Some(*at - unit.len()..*at)
        });
        let (ends, arrival) = (ends.collect(), Arrival::of(units.concat()));
        Scenario { _sender: sender, _sources: sources, receiver, area, inboxes, arrival, units: ends }
    }

    fn arrive(&mut self, segment: impl RangeBounds<usize>) {
        self.receiver.arrive(&mut self.arrival, segment).unwrap();
    }

    fn outcome(&self) -> Outcome {
        let summary = |done: &Completion| (done.wr_id, done.byte_len, done.status);
        Outcome {
            area: Endpoint::bytes(&self.area),
            inboxes: self.inboxes.iter().map(Endpoint::bytes).collect(),
            sends: ids(&self.receiver.log.sends),
            receives: self.receiver.log.receives.iter().map(summary).collect(),
        }
    }
}

/// Posts receives for the Sends, and the Reads, each from a different offset at `source`.
fn post_at_receiver(side: &mut Endpoint, ops: &[Op], area: &Region, source: (STag, u64)) -> Vec<Region> {
    let mut inboxes = Vec::new();
    // RFC 5044 s7.1.2: the first FPDU lets the other side send.
    side.write(100, &[], (STag(0), 0));
    for (wr_id, op) in ops.iter().enumerate() {
        match *op {
            Op::Send(bytes) => {
                let inbox = side.region(bytes + 1, EVERYTHING);
                side.receive(wr_id as u64, &[all(&inbox)]);
                inboxes.push(inbox);
            }
            Op::Read(at, bytes) => {
                let sink = area.slice(at, bytes as u32).unwrap();
                side.read(wr_id as u64, sink, (source.0, source.1 + 97 * wr_id as u64));
            }
            Op::Write(..) => {}
        }
    }
    inboxes
}

/// Posts Sends and Writes with different octets in each message.
fn post_at_sender(side: &mut Endpoint, ops: &[Op], (stag, base): (STag, u64)) -> Vec<Region> {
    let mut sources = Vec::new();
    for (wr_id, op) in ops.iter().enumerate() {
        let (Op::Send(bytes) | Op::Write(_, bytes) | Op::Read(_, bytes)) = *op;
        let source = side.region(bytes + 1, EVERYTHING);
        source.write_at(0, &vec![200 + wr_id as u8; bytes]).unwrap();
        let gather = [source.slice(0, bytes as u32).unwrap()];
        match *op {
            Op::Send(_) => side.send(wr_id as u64, &gather),
            Op::Write(at, _) => side.write(wr_id as u64, &gather, (stag, base + at as u64)),
            Op::Read(..) => {}
        }
        sources.push(source);
    }
    sources
}

/// Cuts a stream of `bytes` octets in segments of these sizes, in rotation.
fn cut(bytes: usize, sizes: &[usize]) -> Vec<Range<usize>> {
    let mut at = 0;
    let pieces = sizes.iter().cycle().map(|size| {
        let begin = at;
        at = bytes.min(at + size);
        begin..at
    });
    pieces.take_while(|piece| !piece.is_empty()).collect()
}

/// Returns the segments in order of arrival: each is delayed by this many others, and some arrive
/// twice.
fn arrivals(segments: &[Range<usize>], delays: &[usize], again: &[bool]) -> Vec<Range<usize>> {
    let mut order = Vec::new();
    for (number, segment) in segments.iter().enumerate() {
        let delay = delays[number % delays.len()];
        order.push((number + delay, segment.clone()));
        if again[number % again.len()] {
            order.push((number + 3 * delay, segment.clone()));
        }
    }
    order.sort_by_key(|(at, _)| *at);
    order.into_iter().map(|(_, segment)| segment).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(192))]

    /// RFC 5041 s5.3 and s5.4, RFC 5040 s5.5: for any order of arrival and any segmentation, with
    /// markers and CRCs or without. What is delivered is always a prefix of what in-order placement
    /// delivers. At the end memory is the same, also where messages share it.
    #[test]
    fn out_of_order_placement_has_the_result_of_in_order_placement(
        ops in ops(),
        room in 300..3000usize,
        sizes in proptest::option::of(proptest::collection::vec(1..2500usize, 1..20)),
        delays in proptest::collection::vec(prop_oneof![Just(0usize), 0..12usize], 1..20),
        again in proptest::collection::vec(any::<bool>(), 1..8),
        markers in prop_oneof![4 => Just(true), 1 => Just(false)],
        crc in prop_oneof![4 => Just(true), 1 => Just(false)],
    ) {
        let params = ScenarioParams { ops: &ops, room, markers, crc };
        let mut in_order = Scenario::new(!OUT_OF_ORDER, params);
        in_order.arrive(..);
        let expected = in_order.outcome();
        let mut scenario = Scenario::new(OUT_OF_ORDER, params);
        let bytes = scenario.arrival.octets.len();
        let segments = sizes.map_or(scenario.units.clone(), |sizes| cut(bytes, &sizes));
        for segment in arrivals(&segments, &delays, &again) {
            scenario.arrive(segment);
            let outcome = scenario.outcome();
            prop_assert!(expected.receives.starts_with(&outcome.receives));
            prop_assert!(expected.sends.starts_with(&outcome.sends));
        }
        prop_assert_eq!(scenario.arrival.available(), 0);
        prop_assert!(scenario.outcome() == expected);
        prop_assert!(markers && crc || placed(&scenario.receiver) == 0);
    }

    /// Random octets, in any order, place nothing. They end the stream or have no effect.
    #[test]
    fn hostile_octets_beyond_a_gap_place_nothing(
        octets in proptest::collection::vec(any::<u8>(), 600..4000),
        sizes in proptest::collection::vec(1..900usize, 1..8),
        delays in proptest::collection::vec(0..5usize, 1..8),
    ) {
        let mut side = receiver(OUT_OF_ORDER, MARKED, true);
        let mut arrival = Arrival::of(octets);
        for segment in arrivals(&cut(arrival.octets.len(), &sizes), &delays, &[false]) {
            let _ = side.arrive(&mut arrival, segment);
        }
        prop_assert_eq!(placed(&side), 0);
    }
}

proptest! {
    // Each segment waits for all others.
    #![proptest_config(ProptestConfig::with_cases(48))]

    /// The extreme case: segments arrive in reverse order.
    #[test]
    fn segments_in_reverse_order_give_the_same_result(ops in ops(), room in 300..3000usize) {
        let params = ScenarioParams { ops: &ops, room, markers: true, crc: true };
        let mut in_order = Scenario::new(!OUT_OF_ORDER, params);
        in_order.arrive(..);
        let mut scenario = Scenario::new(OUT_OF_ORDER, params);
        for segment in scenario.units.clone().into_iter().rev() {
            scenario.arrive(segment);
        }
        prop_assert!(scenario.outcome() == in_order.outcome());
    }
}
