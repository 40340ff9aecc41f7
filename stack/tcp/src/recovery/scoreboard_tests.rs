//! Compares the scoreboard with a simple one that tracks every sequence number.

use std::rc::Rc;

use ironwarp_port::TxMeta;
use proptest::prelude::*;

use super::*;

#[derive(Clone)]
struct TestSealed(Rc<[u8]>);

impl Sealed for TestSealed {
    fn bytes(&self) -> &[u8] {
        &self.0
    }

    fn tx(&self) -> TxMeta {
        TxMeta::default()
    }
}

const UNA: u32 = u32::MAX - 1_000;

/// Contiguous units, each with payload of its own.
struct Flight {
    tx: Arena<Unit<TestSealed>>,
    list: List,
    board: Scoreboard,
    una: Seq,
    end: Seq,
    delivered: Vec<Delivered>,
}

impl Flight {
    /// Creates units of these lengths, sent one nanosecond apart, in an arena of `nodes` nodes.
    fn of(lengths: &[u16], nodes: u32) -> Self {
        let mut flight = Flight {
            tx: Arena::new(0, nodes),
            list: List::with_reserve(0),
            board: Scoreboard::new(),
            una: Seq(UNA),
            end: Seq(UNA),
            delivered: Vec::new(),
        };
        for (n, &len) in lengths.iter().enumerate() {
            let sealed = TestSealed((0..len).map(|at| at as u8).collect());
            let mut unit = Unit::new(sealed, flight.end, len, 0, false);
            flight.board.on_sent(&mut unit, Nanos(n as u64));
            flight.end = unit.seq_end();
            assert!(flight.tx.push_back(&mut flight.list, unit).is_ok());
        }
        flight
    }

    /// Applies blocks, given as distances from the first sequence number.
    fn sack(&mut self, blocks: &[(u32, u32)]) {
        let block = |&(start, end): &(u32, u32)| SackBlock {
            start: Seq(UNA).plus(start).max(self.una),
            end: Seq(UNA).plus(end),
        };
        let mut blocks: Vec<SackBlock> =
            blocks.iter().map(block).filter(|block| block.start.lt(block.end)).collect();
        let delivered = &mut self.delivered;
        self.board.sack(&mut self.tx, &mut self.list, self.una, (&mut blocks, 1_000), &mut |unit| {
            delivered.push(unit)
        });
    }

    fn ack(&mut self, to: u32) {
        self.una = self.una.max(Seq(UNA).plus(to).min(self.end));
        while let Some(unit) = self.tx.front(&self.list).filter(|unit| unit.seq_end().leq(self.una)) {
            self.board.on_released(unit, self.list.head());
            self.tx.pop_front(&mut self.list);
        }
        if let Some(unit) = self.tx.front_mut(&self.list).filter(|unit| unit.seq.lt(self.una)) {
            let bytes = self.una.since(unit.seq);
            unit.trim_front(bytes);
            self.board.on_acked(unit.state, bytes);
        }
    }

    /// Retransmits the first lost unit at this time.
    fn resend(&mut self, now: Nanos) -> Option<(u32, u32)> {
        let at = self.board.next_lost(&mut self.tx, &self.list)?;
        let unit = self.tx.value_mut(at)?;
        self.board.on_sent(unit, now);
        Some((unit.seq.since(Seq(UNA)), unit.seq_len()))
    }

    fn lose(&mut self, before: Nanos) {
        self.board.on_timeout(&mut self.tx, &self.list, before);
    }

    /// The states of the units, as `F`, `S` and `L` with their lengths.
    fn marks(&self) -> String {
        let letter = |unit: &Unit<TestSealed>| match unit.state {
            UnitState::Unsent => 'U',
            UnitState::InFlight => 'F',
            UnitState::Sacked => 'S',
            UnitState::Lost => 'L',
        };
        let show = |unit| format!("{}{}", letter(unit), unit.seq_len());
        self.tx.iter(&self.list).map(show).collect::<Vec<_>>().join(" ")
    }

    fn check(&self) {
        self.board.check(&self.tx, &self.list, true).expect("consistent sums");
    }
}

/// RFC 2018 s5.
/// RFC 6675 s4 and s5.
#[test]
fn blocks_mark_the_units_they_cover() {
    let mut flight = Flight::of(&[100; 5], 16);
    flight.sack(&[(300, 400), (100, 200)]);
    assert_eq!(flight.marks(), "F100 S100 F100 S100 F100");
    assert_eq!((flight.board.sacked, flight.board.sacked_units), (200, 2));
    flight.sack(&[(100, 500)]);
    assert_eq!(flight.marks(), "F100 S100 S100 S100 S100");
    assert_eq!(flight.delivered.len(), 4);
}

/// docs/semantics.md, Units: a SACK edge inside a unit splits it; each part keeps its payload.
#[test]
fn a_sack_edge_inside_a_unit_splits_it() {
    let mut flight = Flight::of(&[100, 100], 16);
    flight.sack(&[(30, 130)]);
    assert_eq!(flight.marks(), "F30 S70 S30 F70");
    let units: Vec<(u32, u8)> = flight
        .tx
        .iter(&flight.list)
        .map(|unit| (unit.seq.since(Seq(UNA)), unit.range(unit.seq, 1)[0]))
        .collect();
    assert_eq!(units, [(0, 0), (30, 30), (100, 0), (130, 30)]);
    flight.check();
}

/// Both edges lie inside one unit.
#[test]
fn a_sack_block_inside_a_unit_splits_it_into_three() {
    let mut flight = Flight::of(&[100], 16);
    flight.sack(&[(30, 60)]);
    assert_eq!(flight.marks(), "F30 S30 F40");
}

/// Without a free node, a partly SACKed unit does not count as delivered.
#[test]
fn without_a_free_node_a_partly_sacked_unit_is_not_delivered() {
    let mut flight = Flight::of(&[100, 100], 2);
    flight.sack(&[(30, 200)]);
    assert_eq!(flight.marks(), "F100 S100");
    let mut flight = Flight::of(&[100, 100], 2);
    flight.sack(&[(0, 130)]);
    assert_eq!(flight.marks(), "S100 F100");
}

/// A peer that SACKs every other byte leaves other connections a quarter of the shared nodes.
#[test]
fn single_byte_sacks_leave_a_quarter_of_the_nodes() {
    let mut flight = Flight::of(&[100, 100], 40);
    (0..100).for_each(|n| flight.sack(&[(2 * n + 1, 2 * n + 2)]));
    assert!(flight.list.len() <= 31, "{}", flight.list.len());
    flight.check();
}

/// RFC 2018 s8 and RFC 6675 s5.1: SACKed data is retained until it is acknowledged, and the peer
/// may discard it. RFC 6675 s4.
#[test]
fn sacked_data_is_retained_and_may_be_discarded_by_the_peer() {
    let mut flight = Flight::of(&[100; 3], 16);
    flight.sack(&[(100, 300)]);
    flight.ack(100);
    assert_eq!(flight.marks(), "S100 S100");
    flight.board.clear_sacks(&mut flight.tx, &flight.list);
    flight.lose(Nanos(9));
    assert_eq!(flight.marks(), "L100 L100");
    assert_eq!(flight.resend(Nanos(20)), Some((100, 100)));
    flight.check();
}

/// RFC 8985 s6.3: the first unit and the overdue units.
#[test]
fn a_timeout_marks_the_first_unit_and_the_overdue_units_lost() {
    let mut flight = Flight::of(&[100; 4], 16);
    flight.sack(&[(100, 200)]);
    flight.lose(Nanos(2));
    assert_eq!(flight.marks(), "L100 S100 L100 F100");
    assert_eq!(flight.board.lost, 200);
    assert_eq!(
        [flight.resend(Nanos(9)), flight.resend(Nanos(9)), flight.resend(Nanos(9))],
        [Some((0, 100)), Some((200, 100)), None]
    );
}

/// RFC 8985 s6.2, step 5: overdue candidates are lost, other candidates are checked later, and
/// later transmissions are ignored.
#[test]
fn rack_marks_overdue_loss_candidates() {
    let mut flight = Flight::of(&[100; 5], 16);
    let mut rack = Rack::new(Seq(UNA));
    flight.sack(&[(300, 400)]);
    flight.delivered.iter().for_each(|&unit| rack.on_delivered(Nanos(103), unit));
    let pipe = 400;
    let scan = flight.board.detect_loss(&mut flight.tx, &flight.list, pipe, &rack, Nanos(103), Nanos(2));
    // Sent at 0 and 1, with a round trip of 100: due at 102 and 103. The third is due at 104.
    assert_eq!(scan, LossScan { lost: 200, recheck_at: Some(Nanos(104)) });
    assert_eq!(flight.marks(), "L100 L100 F100 S100 F100");
    let scan = flight.board.detect_loss(&mut flight.tx, &flight.list, 200, &rack, Nanos(104), Nanos(2));
    assert_eq!(scan, LossScan { lost: 100, recheck_at: None });
}

/// One sequence number of the simple scoreboard.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Byte {
    Acked,
    InFlight,
    Sacked,
    Lost,
}

#[derive(Clone, Debug)]
enum Step {
    Ack(u32),
    Sack(Vec<(u32, u32)>),
    Timeout,
    Resend,
    Forget,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let range = (0u32..900, 1u32..200).prop_map(|(start, len)| (start, start + len));
    let step = prop_oneof![
        2 => (0u32..900).prop_map(Step::Ack),
        6 => prop::collection::vec(range, 1..4).prop_map(Step::Sack),
        1 => Just(Step::Timeout),
        3 => Just(Step::Resend),
        1 => Just(Step::Forget),
    ];
    prop::collection::vec(step, 1..60)
}

proptest! {
    /// With enough nodes, the units agree with the simple scoreboard on every sequence number.
    /// RFC 6675 s4 and s5.
    #[test]
    fn units_agree_with_a_per_byte_scoreboard(
        lengths in prop::collection::vec(1u16..120, 1..12), steps in steps(),
    ) {
        let total: u32 = lengths.iter().map(|&len| u32::from(len)).sum();
        let mut flight = Flight::of(&lengths, 4_096);
        let mut bytes = vec![Byte::InFlight; total as usize];
        for step in steps {
            match step {
                Step::Ack(to) => {
                    let to = to.min(total);
                    flight.ack(to);
                    bytes[..to as usize].fill(Byte::Acked);
                }
                Step::Sack(blocks) => {
                    let blocks: Vec<_> = blocks.into_iter().filter(|&(_, end)| end <= total).collect();
                    flight.sack(&blocks);
                    for (start, end) in blocks {
                        for byte in &mut bytes[start as usize..end as usize] {
                            *byte = if *byte == Byte::Acked { Byte::Acked } else { Byte::Sacked };
                        }
                    }
                }
                Step::Timeout => {
                    flight.lose(Nanos::MAX);
                    for byte in bytes.iter_mut().filter(|byte| **byte == Byte::InFlight) {
                        *byte = Byte::Lost;
                    }
                }
                Step::Resend => match flight.resend(Nanos(1_000)) {
                    Some((from, len)) => {
                        let range = from as usize..(from + len) as usize;
                        prop_assert!(bytes[..range.start].iter().all(|&byte| byte != Byte::Lost));
                        prop_assert!(bytes[range.clone()].iter().all(|&byte| byte == Byte::Lost));
                        bytes[range].fill(Byte::InFlight);
                    }
                    None => prop_assert!(!bytes.contains(&Byte::Lost)),
                },
                Step::Forget => {
                    flight.board.clear_sacks(&mut flight.tx, &flight.list);
                    for byte in bytes.iter_mut().filter(|byte| **byte == Byte::Sacked) {
                        *byte = Byte::InFlight;
                    }
                }
            }
            flight.check();
            for unit in flight.tx.iter(&flight.list) {
                let expected = match unit.state {
                    UnitState::InFlight | UnitState::Unsent => Byte::InFlight,
                    UnitState::Sacked => Byte::Sacked,
                    UnitState::Lost => Byte::Lost,
                };
                let from = unit.seq.since(Seq(UNA)) as usize;
                let range = &bytes[from..from + unit.seq_len() as usize];
                prop_assert!(range.iter().all(|&byte| byte == expected), "{:?} at {from}: {:?}", unit.state, range);
            }
        }
    }

    /// With too few nodes, only SACKed data counts as SACKed, and the sums still agree.
    #[test]
    fn the_scoreboard_stays_consistent_with_few_nodes(lengths in prop::collection::vec(1u16..120, 1..12), steps in steps()) {
        let total: u32 = lengths.iter().map(|&len| u32::from(len)).sum();
        let mut flight = Flight::of(&lengths, lengths.len() as u32 + 1);
        let mut sacked = vec![false; total as usize];
        for step in steps {
            match step {
                Step::Ack(to) => flight.ack(to.min(total)),
                Step::Sack(blocks) => {
                    let blocks: Vec<_> = blocks.into_iter().filter(|&(_, end)| end <= total).collect();
                    flight.sack(&blocks);
                    blocks.iter().for_each(|&(start, end)| sacked[start as usize..end as usize].fill(true));
                }
                Step::Timeout => flight.lose(Nanos::MAX),
                Step::Resend => drop(flight.resend(Nanos(1_000))),
                Step::Forget => flight.board.clear_sacks(&mut flight.tx, &flight.list),
            }
            flight.check();
            for unit in flight.tx.iter(&flight.list).filter(|unit| unit.state == UnitState::Sacked) {
                let from = unit.seq.since(Seq(UNA)) as usize;
                prop_assert!(sacked[from..from + unit.seq_len() as usize].iter().all(|&byte| byte));
            }
        }
    }
}
