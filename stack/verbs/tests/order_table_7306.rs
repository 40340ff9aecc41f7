//! RFC 7306 s7 as a test: every pair of operations of its table that one side issues, the result at
//! the remote peer, and the result at the local peer. Also its rules of order (s5.4) for Reads and
//! Atomics that share a queue.
//!
//! Where the table gives no guarantee, this stack keeps the order, because TCP does. The model
//! contains the other outcomes that the table allows.

use crate::common;

use common::contents;
use common::messages::{
    atomic_request, atomic_response, fetch_add, fpdu, immediate, place, read_request, reply, request, send,
    tagged, ulpdu,
};
use common::peer::{PEER, Scene};
use ironwarp::{
    Access, AlignedBuf, AtomicOp, CompletionOpcode, CompletionStatus, ConnectParams, Extensions, MpaRevision,
    QpAttr, QueuePair, RecvWr, Region, RemoteMemory, STag, SendWr,
};
use proptest::prelude::*;

const OK: CompletionStatus = CompletionStatus::Success;
/// The initial value of the word, and the value that each of two messages writes to it.
const BEFORE: u64 = 5;
const CARRIED: [u64; 2] = [0x1111_1111_1111_1111, 0x2222_2222_2222_2222];

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Op {
    Send,
    Write,
    Read,
    /// A FetchAdd of 1.
    Atomic,
    Immediate,
}

use Op::{Atomic, Immediate, Read, Send, Write};

/// The rows of s7, in its order. The row "Immediate Data or Send" before Immediate Data becomes two
/// rows.
const ROWS: [(Op, Op); 16] = [
    (Immediate, Send),
    (Immediate, Write),
    (Immediate, Read),
    (Immediate, Atomic),
    (Immediate, Immediate),
    (Send, Immediate),
    (Write, Immediate),
    (Read, Immediate),
    (Atomic, Immediate),
    (Atomic, Send),
    (Atomic, Write),
    (Atomic, Read),
    (Atomic, Atomic),
    (Send, Atomic),
    (Write, Atomic),
    (Read, Atomic),
];

impl Op {
    /// RFC 5040 s4.3 and RFC 7306 s4.1: the operation code of the message.
    fn opcode(self) -> u8 {
        match self {
            Write => 0,
            Read => 1,
            Send => 3,
            Immediate => 8,
            Atomic => 10,
        }
    }

    /// The operation code of the response, if there is one.
    fn answer(self) -> Option<u8> {
        match self {
            Read => Some(2),
            Atomic => Some(11),
            _ => None,
        }
    }

    fn takes_a_receive(self) -> bool {
        matches!(self, Send | Immediate)
    }
}

/// A page whose first word is [`BEFORE`].
fn page(scene: &Scene) -> Region {
    let mut page = AlignedBuf::pages(4096).unwrap();
    page[..8].copy_from_slice(&BEFORE.to_ne_bytes());
    let rights = Access::LOCAL_WRITE | Access::REMOTE_READ | Access::REMOTE_WRITE | Access::REMOTE_ATOMIC;
    scene.node.ctx.register(scene.node.pd, page, rights).unwrap()
}

fn word(region: &Region, at: usize) -> u64 {
    let mut octets = [0; 8];
    region.read_at(8 * at, &mut octets).unwrap();
    u64::from_ne_bytes(octets)
}

fn extended() -> Scene {
    Scene::new(|config| config.rdmap.extensions = Extensions::Rfc7306)
}

/// A node whose receives all use the word, which the peer may also write, read and change.
fn asked(ird: u16) -> (Scene, Region) {
    let mut scene = extended();
    let (asked, _) = scene.is_asked(&request(0x40, 1, b""));
    let attr = QpAttr { ird, ..QpAttr::new(scene.node.cq) };
    let qp = scene.node.ctx.create_qp(scene.node.pd, &attr).unwrap();
    let target = page(&scene);
    for wr_id in 1..=3 {
        let scatter = [target.slice(0, 8).unwrap()];
        scene.node.ctx.post_recv(qp, &RecvWr::new(wr_id, &scatter)).unwrap();
    }
    scene.node.ctx.accept(asked, qp, b"").unwrap();
    scene.hear("the reply", 20);
    scene.negotiated();
    (scene, target)
}

/// Returns the two messages that the peer sends, all of them about one word, and a final empty
/// Send.
fn said(row: (Op, Op), target: &Region) -> Vec<u8> {
    let (mut sends, mut asks) = (0, 0);
    let (stag, to) = place(target);
    let mut octets = Vec::new();
    for (op, carried) in [row.0, row.1].into_iter().zip(CARRIED) {
        sends += u32::from(op.takes_a_receive());
        asks += u32::from(op.answer().is_some());
        octets.extend(fpdu(&match op {
            Send => send(sends as u8, &carried.to_ne_bytes()),
            Immediate => immediate(sends, &carried.to_ne_bytes()),
            Write => tagged(0, stag, to, &carried.to_ne_bytes()),
            Read => read_request(asks, (asks, 0), 8, (stag, to)),
            Atomic => fetch_add(asks, (stag, to), 1),
        }));
    }
    octets.extend(fpdu(&send(sends as u8 + 1, b"")));
    octets
}

/// Returns the allowed final values of the word, each with the values that the responses return, if
/// the messages are executed one after the other. The later message may be placed before the
/// response to the earlier one is generated (s7: Send or Write behind an Atomic).
fn outcomes(row: (Op, Op)) -> Vec<(u64, Vec<u64>)> {
    let turns = [(row.0, CARRIED[0]), (row.1, CARRIED[1])];
    let one_by_one = |order: [usize; 2]| {
        let (mut word, mut answers) = (BEFORE, Vec::new());
        for (op, carried) in order.map(|at| turns[at]) {
            match op {
                Send | Write => word = carried,
                Read => answers.push(word),
                Atomic => {
                    answers.push(word);
                    word += 1;
                }
                Immediate => {}
            }
        }
        (word, answers)
    };
    let mut found = vec![one_by_one([0, 1])];
    if row.0 == Atomic && matches!(row.1, Send | Write) {
        found.push(one_by_one([1, 0]));
    }
    found
}

/// RFC7306-7-01 to RFC7306-7-08, RFC7306-6.4-01 and RFC7306-6.3-03, the remote peer: for every
/// pair, in one TCP segment and in many.
#[test]
fn the_table_of_ordering_holds_for_every_pair() {
    for row in ROWS {
        for cut in [7, 50, 1000] {
            let (mut scene, target) = asked(4);
            said(row, &target).chunks(cut).for_each(|piece| scene.peer.say(piece));
            let mut answers = Vec::new();
            for opcode in [row.0, row.1].into_iter().filter_map(Op::answer) {
                let answer = scene.segment("a response");
                assert_eq!(answer[1] & 0x0f, opcode, "{row:?}: in the order of the requests");
                if row.0.takes_a_receive() {
                    let first = scene.node.completions.first().map(|done| done.wr_id);
                    assert_eq!(
                        first,
                        Some(1),
                        "{row:?}: the first completes before the response is generated"
                    );
                }
                let octets = answer[answer.len() - 8..].try_into().unwrap();
                // Atomic Responses are big-endian. A Read Response contains the octets as they are
                // in memory.
                answers.push(if opcode == 11 {
                    u64::from_be_bytes(octets)
                } else {
                    u64::from_ne_bytes(octets)
                });
            }
            let receives = 1 + [row.0, row.1].iter().filter(|op| op.takes_a_receive()).count();
            scene.until("every receive", |scene| scene.node.completions.len() == receives);
            let done = &scene.node.completions;
            let in_order = done.iter().map(|one| (one.wr_id, one.status));
            assert!(in_order.eq((1..=receives as u64).map(|id| (id, OK))), "{row:?}: completed in order");
            let delivered = [row.0, row.1].into_iter().zip(CARRIED).filter(|(op, _)| op.takes_a_receive());
            for (one, (op, carried)) in done.iter().zip(delivered) {
                assert_eq!(one.opcode == CompletionOpcode::ReceiveImmediate, op == Immediate, "{row:?}");
                assert_eq!(one.immediate, if op == Immediate { carried.to_ne_bytes() } else { [0; 8] });
            }
            let found = (word(&target, 0), answers);
            assert!(outcomes(row).contains(&found), "{row:?} cut at {cut}: {found:x?}");
        }
    }
}

/// Posts `op` as work request `id`.
fn post(scene: &mut Scene, qp: QueuePair, id: u64, op: Op, sink: &Region, fenced: bool) {
    let remote = RemoteMemory { stag: STag(9), tagged_offset: 0 };
    let (into, add, octets) = ([sink.slice(8 * id as usize, 8).unwrap()], AtomicOp::add(1), [3; 8]);
    let wr = match op {
        Send => SendWr::send_inline(id, &octets),
        Write => SendWr::write_inline(id, &octets, remote),
        Read => SendWr::read(id, &into, remote),
        Atomic => SendWr::atomic(id, &into, remote, &add),
        Immediate => SendWr::immediate(id, &octets),
    };
    scene.node.ctx.post_send(qp, &if fenced { wr.fenced() } else { wr }).unwrap();
}

/// The peer responds with `value` to the Read or Atomic Request in `asked`; `atomics` counts the
/// Atomic Responses so far.
fn answer(scene: &mut Scene, asked: &[u8], atomics: &mut u32, value: u64) {
    let field = |at: usize| u32::from_be_bytes(asked[at..at + 4].try_into().unwrap());
    if asked[1] & 0x0f == 10 {
        *atomics += 1;
        return scene.peer.say(&fpdu(&atomic_response(*atomics, field(22), value)));
    }
    let to = (u64::from(field(22)) << 32) | u64::from(field(26));
    scene.peer.say(&fpdu(&tagged(2, field(18), to, &value.to_ne_bytes())));
}

fn completed(scene: &Scene) -> Vec<u64> {
    assert!(scene.node.completions.iter().all(|done| done.status == OK));
    scene.node.completions.iter().map(|done| done.wr_id).collect()
}

/// A connection that the node requests, with an ORD of `ord` for Reads and Atomics together.
fn calling(ord: u16) -> (Scene, QueuePair, Region) {
    let mut scene = extended();
    let attr = QpAttr { ord, ..QpAttr::new(scene.node.cq) };
    let qp = scene.node.ctx.create_qp(scene.node.pd, &attr).unwrap();
    let params = ConnectParams { revision: Some(MpaRevision::One), ..Default::default() };
    scene.node.ctx.connect_with(qp, PEER.parse().unwrap(), &params).unwrap();
    scene.hear("the request", 20);
    scene.peer.say(&reply(0x40, 1, b""));
    scene.negotiated();
    let sink = page(&scene);
    (scene, qp, sink)
}

/// RFC7306-5.4-01, RFC7306-5.4-08 and RFC7306-6.3-06, the local peer: every pair is sent and
/// completes in the order of posting. A Read or Atomic completes when its response arrives. A fence
/// holds an operation that follows a Read or Atomic, and nothing else.
#[test]
fn every_pair_leaves_and_completes_in_the_order_of_posting() {
    for (first, later) in ROWS {
        for fenced in [false, true] {
            let (mut scene, qp, sink) = calling(4);
            let mut atomics = 0;
            post(&mut scene, qp, 1, first, &sink, false);
            post(&mut scene, qp, 2, later, &sink, fenced);
            let one = scene.segment("the first message");
            assert_eq!(one[1], 0x40 | first.opcode());
            if first.answer().is_some() {
                scene.turns(300);
                assert!(completed(&scene).is_empty(), "{later:?} completed before {first:?}");
                assert_eq!(ulpdu(&scene.peer.heard).is_none(), fenced, "{first:?}, {later:?}");
                answer(&mut scene, &one, &mut atomics, 71);
            }
            let two = scene.segment("the later message");
            assert_eq!(two[1], 0x40 | later.opcode());
            scene.until("the first completion", |scene| !scene.node.completions.is_empty());
            if later.answer().is_some() {
                scene.turns(300);
                assert_eq!(completed(&scene), [1], "{later:?} completed without a response");
                answer(&mut scene, &two, &mut atomics, 72);
            }
            scene.until("both completions", |scene| scene.node.completions.len() == 2);
            assert_eq!(completed(&scene), [1, 2], "{first:?}, {later:?}");
            let want = |op: Op, value: u64| if op.answer().is_some() { value } else { 0 };
            assert_eq!([word(&sink, 1), word(&sink, 2)], [want(first, 71), want(later, 72)]);
        }
    }
}

/// The pseudo-code of s5.1.1, one bit after the other.
fn added(original: u64, add: u64, mask: u64) -> u64 {
    let (mut value, mut carry) = (0, 0);
    for bit in 0..64 {
        let sum = carry + (original >> bit & 1) + (add >> bit & 1);
        value |= (sum & 1) << bit;
        carry = if mask >> bit & 1 == 1 { 0 } else { sum >> 1 };
    }
    value
}

/// The pseudo-code of s5.1.2, one bit after the other.
fn swapped(original: u64, [swap, swap_mask, compare, compare_mask]: [u64; 4]) -> u64 {
    let bit = |word: u64, at: u32| word >> at & 1;
    let differs = (0..64).any(|at| bit(compare_mask, at) == 1 && bit(compare, at) != bit(original, at));
    (0..64).fold(0, |value, at| {
        let from = if bit(swap_mask, at) == 1 && !differs { swap } else { original };
        value | bit(from, at) << at
    })
}

/// A request of the peer about one of four words.
#[derive(Clone, Copy, Debug)]
enum Question {
    Read,
    FetchAdd([u64; 4]),
    CmpSwap([u64; 4]),
    /// A compare and swap whose comparison matches.
    Matching([u64; 4]),
}

/// Operands with long carries, operands whose fields end at octet boundaries, and arbitrary
/// operands.
fn operand() -> impl Strategy<Value = u64> {
    prop_oneof![
        any::<u64>(),
        prop::sample::select(&[0, 1, u64::MAX, 1 << 63, 0x8080_8080_8080_8080, 0x8000_0000_8000_0000][..]),
        (0..64u32).prop_map(|bit| u64::MAX << bit),
        (0..64u32, 0..64u32).prop_map(|(one, other)| 1 << one | 1 << other),
    ]
}

fn question() -> impl Strategy<Value = Question> {
    let operands = || [operand(), operand(), operand(), operand()];
    prop_oneof![
        Just(Question::Read),
        operands().prop_map(Question::FetchAdd),
        operands().prop_map(Question::CmpSwap),
        operands().prop_map(Question::Matching),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 32, ..ProptestConfig::default() })]

    /// RFC7306-5.4-09, RFC7306-5.4-10, RFC7306-5.1.1-06 and RFC7306-5.1.2-01: Reads and Atomics on
    /// a few words, in any order and cut at any offset. The node executes them and responds one
    /// after the other, each as the pseudo-code of s5.1 says.
    #[test]
    fn reads_and_atomics_are_one_after_the_other(
        questions in prop::collection::vec((question(), 0..4usize), 1..16),
        cut in 1..400usize,
    ) {
        let (mut scene, target) = asked(16);
        let (stag, to) = place(&target);
        let (mut words, mut octets, mut want) = ([BEFORE, 0, 0, 0], Vec::new(), Vec::new());
        for (msn, (question, at)) in (1..).zip(&questions) {
            let place = (stag, to + 8 * *at as u64);
            let original = words[*at];
            let (segment, value) = match *question {
                Question::Read => (read_request(msn, (1, 0), 8, place), original),
                Question::FetchAdd(operands) =>
                    (atomic_request(msn, msn ^ 0xabcd, 0, place, operands), added(original, operands[0], operands[1])),
                Question::CmpSwap(operands) =>
                    (atomic_request(msn, msn ^ 0xabcd, 2, place, operands), swapped(original, operands)),
                Question::Matching([swap, swap_mask, noise, mask]) => {
                    let operands = [swap, swap_mask, (original & mask) | (noise & !mask), mask];
                    (atomic_request(msn, msn ^ 0xabcd, 2, place, operands), swapped(original, operands))
                }
            };
            octets.extend(fpdu(&segment));
            words[*at] = value;
            let is_read = matches!(question, Question::Read);
            want.push((is_read, msn ^ 0xabcd, original));
        }
        octets.chunks(cut).for_each(|piece| scene.peer.say(piece));
        let mut atomics = 0u32;
        for (is_read, id, original) in want {
            let answer = scene.segment("a response");
            let octets: [u8; 8] = answer[answer.len() - 8..].try_into().unwrap();
            if is_read {
                prop_assert_eq!((answer[1], u64::from_ne_bytes(octets)), (0x42, original));
            } else {
                atomics += 1;
                prop_assert_eq!(answer, atomic_response(atomics, id, original));
            }
        }
        prop_assert_eq!([0, 1, 2, 3].map(|at| word(&target, at)), words);
        prop_assert_eq!(&contents(&target)[32..40], &[0; 8]);
    }

    /// RFC7306-5.2-01: the number of outstanding Reads and Atomics together does not exceed ORD.
    /// Each response allows one more request. All complete in the order of posting, with the values
    /// of their responses.
    #[test]
    fn reads_and_atomics_share_what_may_be_outstanding(
        ord in 1..5u16,
        kinds in prop::collection::vec(any::<bool>(), 1..12),
    ) {
        let (mut scene, qp, sink) = calling(ord);
        for (id, is_atomic) in (0..).zip(&kinds) {
            post(&mut scene, qp, id, if *is_atomic { Atomic } else { Read }, &sink, false);
        }
        let (mut waiting, mut begun, mut atomics) = (std::collections::VecDeque::new(), 0, 0);
        for done in 0..kinds.len() {
            while begun < kinds.len().min(done + usize::from(ord)) {
                let asked = scene.segment("a request");
                let queue = [&asked[6..10], &asked[10..14]].concat();
                prop_assert_eq!(&queue, &[1, begun as u32 + 1].map(u32::to_be_bytes).concat(), "one count on queue 1");
                prop_assert_eq!(asked[1], if kinds[begun] { 0x4a } else { 0x41 });
                waiting.push_back(asked);
                begun += 1;
            }
            scene.turns(20);
            prop_assert!(scene.peer.heard.is_empty(), "more than {ord} outstanding");
            answer(&mut scene, &waiting.pop_front().unwrap(), &mut atomics, 100 + done as u64);
            scene.until("its completion", |scene| scene.node.completions.len() == done + 1);
        }
        prop_assert_eq!(completed(&scene), (0..kinds.len() as u64).collect::<Vec<_>>());
        let told: Vec<_> = (0..kinds.len()).map(|at| word(&sink, at)).collect();
        prop_assert_eq!(told, (0..kinds.len() as u64).map(|at| 100 + at).collect::<Vec<_>>());
    }
}
