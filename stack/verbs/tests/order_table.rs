//! RFC 5040 appendix B as a test: every pair of operations that one side issues, the result at the
//! remote peer, and the result at the local peer.
//!
//! The table's guarantees are those of s5.5. Where the table gives no guarantee, this stack keeps
//! the order, because TCP does. The test then checks what the stack does.

use crate::common;

use common::contents;
use common::messages::{fpdu, place, read_request, request, send, tagged, ulpdu};
use common::peer::Scene;
use ironwarp::{CompletionStatus, QueuePair, RecvWr, Region, RemoteMemory, STag, SendWr};

const OK: CompletionStatus = CompletionStatus::Success;
/// Octets of each message.
const BYTES: usize = 40;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Op {
    Send,
    Write,
    Read,
}

use Op::{Read, Send, Write};

/// The rows of figure 17, in its order.
const ROWS: [(Op, Op); 9] = [
    (Send, Send),
    (Send, Write),
    (Send, Read),
    (Write, Send),
    (Write, Write),
    (Write, Read),
    (Read, Send),
    (Read, Write),
    (Read, Read),
];

impl Op {
    /// RFC 5040 s4.3, figure 4: the operation code of the message.
    fn opcode(self) -> u8 {
        match self {
            Write => 0,
            Read => 1,
            Send => 3,
        }
    }
}

/// The payload of each of the peer's messages, the first and the later one.
const CARRIED: [[u8; BYTES]; 2] = [[1; BYTES], [2; BYTES]];

/// Returns the two messages that the peer sends, all of them about `target`, and a final empty
/// Send.
fn said(row: (Op, Op), target: &Region) -> Vec<u8> {
    let (mut sends, mut reads) = (0, 0);
    let mut octets = Vec::new();
    for (turn, op) in [row.0, row.1].into_iter().enumerate() {
        let (stag, to) = place(target);
        octets.extend(fpdu(&match op {
            Send => {
                sends += 1;
                send(sends, &CARRIED[turn])
            }
            Write => tagged(0, stag, to, &CARRIED[turn]),
            Read => {
                reads += 1;
                read_request(reads, (turn as u32 + 1, 0), BYTES as u32, (stag, to))
            }
        }));
    }
    octets.extend(fpdu(&send(sends + 1, b"")));
    octets
}

/// A node whose receives all use the same memory, which the peer may also write and read.
fn asked() -> (Scene, Region) {
    let mut scene = Scene::new(|_| {});
    let (asked, _) = scene.is_asked(&request(0x40, 1, b""));
    let (qp, target) = (scene.qp(), scene.node.memory(&[0; BYTES]));
    for wr_id in 1..=3 {
        let scatter = [target.slice(0, BYTES as u32).unwrap()];
        scene.node.ctx.post_recv(qp, &RecvWr::new(wr_id, &scatter)).unwrap();
    }
    scene.node.ctx.accept(asked, qp, b"").unwrap();
    scene.hear("the reply", 20);
    scene.negotiated();
    (scene, target)
}

/// Returns the responses to the Reads of `row`, in order of arrival. An operation before a Read
/// completes before the response is generated.
fn answers(scene: &mut Scene, row: (Op, Op)) -> Vec<Vec<u8>> {
    let asked: Vec<u32> =
        (1..).zip([row.0, row.1]).filter(|(_, op)| *op == Read).map(|(sink, _)| sink).collect();
    let mut found = Vec::new();
    for sink in asked {
        let answer = scene.segment("a Read Response");
        assert_eq!((answer[1] & 0x0f, &answer[2..6]), (2, &sink.to_be_bytes()[..]), "{row:?}: in order");
        if row == (Send, Read) {
            assert_eq!(
                scene.node.completions.first().map(|done| done.wr_id),
                Some(1),
                "the Send completes before the Read Response"
            );
        }
        found.push(answer[14..].to_vec());
    }
    found
}

/// RFC 5040 s5.5 and appendix B, the remote peer: for every pair, in one TCP segment and in many.
#[test]
fn the_table_of_ordering_holds_for_every_pair() {
    for row in ROWS {
        for cut in [9, 50, 1000] {
            let (mut scene, target) = asked();
            said(row, &target).chunks(cut).for_each(|piece| scene.peer.say(piece));
            let answers = answers(&mut scene, row);
            let sends = 1 + [row.0, row.1].iter().filter(|op| **op == Send).count();
            scene.until("every Send", |scene| scene.node.completions.len() == sends);
            let done = &scene.node.completions;
            // Rule 10: delivered in the order of sending.
            assert!(done.iter().map(|one| (one.wr_id, one.status)).eq((1..=sends as u64).map(|id| (id, OK))));
            assert!(done[..sends - 1].iter().all(|one| one.byte_len as usize == BYTES));
            // The final Send guarantees that everything before it is placed (rule 5). If two
            // messages write one place, the later one remains.
            let last = match row {
                (_, Send | Write) => CARRIED[1].to_vec(),
                (Send | Write, Read) => CARRIED[0].to_vec(),
                (Read, Read) => vec![0; BYTES],
            };
            assert_eq!(contents(&target), last, "{row:?} cut at {cut}");
            let nothing = vec![0; BYTES];
            match row {
                // Rules 12 and 17: the response contains what was sent before the Read.
                (Send | Write, Read) => assert_eq!(answers, [last], "{row:?} cut at {cut}"),
                // Rule 12: it may also contain what was sent after the Read. Each octet is the old
                // one or the new one.
                (Read, Send | Write) => {
                    assert_eq!((answers.len(), answers[0].len()), (1, BYTES));
                    assert!(answers[0].iter().all(|octet| [0, 2].contains(octet)), "{row:?}: {answers:?}");
                }
                // Rule 20.
                (Read, Read) => assert_eq!(answers, [nothing.clone(), nothing]),
                _ => assert!(answers.is_empty()),
            }
        }
    }
}

/// Posts `op` as work request `id`.
fn post(scene: &mut Scene, qp: QueuePair, id: u64, op: Op, sink: &Region, fenced: bool) {
    let remote = RemoteMemory { stag: STag(9), tagged_offset: 0 };
    let into = [sink.slice(0, BYTES as u32).unwrap()];
    let wr = match op {
        Send => SendWr::send_inline(id, &CARRIED[0]),
        Write => SendWr::write_inline(id, &CARRIED[0], remote),
        Read => SendWr::read(id, &into, remote),
    };
    scene.node.ctx.post_send(qp, &if fenced { wr.fenced() } else { wr }).unwrap();
}

/// The peer sends the response to the Read Request in `asked`.
fn answer(scene: &mut Scene, asked: &[u8]) {
    let field = |at: usize| u32::from_be_bytes(asked[at..at + 4].try_into().unwrap());
    let to = (u64::from(field(22)) << 32) | u64::from(field(26));
    scene.peer.say(&fpdu(&tagged(2, field(18), to, &[7; BYTES])));
}

fn completed(scene: &Scene) -> Vec<u64> {
    assert!(scene.node.completions.iter().all(|done| done.status == OK));
    scene.node.completions.iter().map(|done| done.wr_id).collect()
}

/// RFC 5040 s5.5 rules 13 to 15 and 19, the local peer: every pair is sent and completes in the
/// order of posting. A fence holds an operation that follows a Read, and nothing else.
#[test]
fn every_pair_leaves_and_completes_in_the_order_of_posting() {
    for (first, later) in ROWS {
        for fenced in [false, true] {
            let mut scene = Scene::new(|_| {});
            let (qp, _inbox) = scene.called();
            let sink = scene.node.memory(&[0; BYTES]);
            post(&mut scene, qp, 1, first, &sink, false);
            post(&mut scene, qp, 2, later, &sink, fenced);
            let one = scene.segment("the first message");
            assert_eq!(one[1], 0x40 | first.opcode());
            if first == Read {
                scene.turns(300);
                assert!(completed(&scene).is_empty(), "{later:?} completed before the Read");
                assert_eq!(ulpdu(&scene.peer.heard).is_none(), fenced, "{later:?}");
                answer(&mut scene, &one);
            }
            let two = scene.segment("the later message");
            assert_eq!(two[1], 0x40 | later.opcode());
            scene.until("the first completion", |scene| !scene.node.completions.is_empty());
            if later == Read {
                scene.turns(300);
                assert_eq!(completed(&scene), [1], "the Read completed without a response");
                answer(&mut scene, &two);
            }
            scene.until("both completions", |scene| scene.node.completions.len() == 2);
            assert_eq!(completed(&scene), [1, 2], "{first:?}, {later:?}");
            assert_eq!(contents(&sink), [if [first, later].contains(&Read) { 7 } else { 0 }; BYTES]);
        }
    }
}
