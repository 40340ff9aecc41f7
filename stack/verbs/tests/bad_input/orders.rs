//! Every order of messages that the tables forbid (RFC 5040 s5, s6, RFC 5041 s5.3, s7.1), Reads
//! beyond IRD included.

use ironwarp::{Access, DisconnectReason, Region, RemoteMemory, STag, SendWr, Terminate};
use proptest::prelude::*;

use crate::bad_input::bench::{Begins, Bench, RECEIVES, Victim};
use crate::bad_input::cases;
use crate::common::contents;
use crate::common::messages::{self, REQUEST, fpdu, place, read_request, reply, send, tagged, untagged};

/// One message of a sequence.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Said {
    /// A Write to the buffer.
    Write,
    /// The next Send.
    Send,
    /// The previous Send, repeated.
    SendAgain,
    /// The Send after the next one.
    SendAhead,
    /// The next Read Request.
    Read,
    /// The previous Read Request, repeated.
    ReadAgain,
    /// A Read Response without a Read.
    Answer,
    /// A Terminate.
    Terminate,
}

const SAID: [Said; 8] = [
    Said::Write,
    Said::Send,
    Said::SendAgain,
    Said::SendAhead,
    Said::Read,
    Said::ReadAgain,
    Said::Answer,
    Said::Terminate,
];

/// The tables applied to a sequence so far: RFC 5041 s4.3 numbers each queue's messages, s7.1
/// requires a buffer for each.
#[derive(Default)]
struct Model {
    sends: u32,
    reads: u32,
}

impl Model {
    /// Returns the segment and the error that it causes. The stack ignores everything behind an
    /// error.
    fn take(&mut self, said: Said, victim: &Victim, ird: u16) -> (Vec<u8>, Option<&'static str>) {
        let (stag, to) = place(&victim.buffer);
        let send = |number: u32| untagged(3, 0, number, 0, b"");
        let read = |number| read_request(number, (9, 9), 1, (stag, to));
        match said {
            Said::Write => (tagged(0, stag, to, b"\xb0"), None),
            Said::Send => {
                self.sends += 1;
                let fault = (self.sends > RECEIVES as u32).then_some("DDP: no buffer");
                (send(self.sends), fault)
            }
            Said::SendAgain => (send(self.sends), Some("DDP: MSN range")),
            Said::SendAhead => (send(self.sends + 2), Some("DDP: MSN range")),
            Said::Read => {
                self.reads += 1;
                (read(self.reads), (self.reads > u32::from(ird)).then_some("DDP: no buffer"))
            }
            Said::ReadAgain => (read(self.reads), Some("DDP: MSN range")),
            Said::Answer => (tagged(2, stag, to, b"\xb0"), Some("RDMAP: unexpected OpCode")),
            Said::Terminate => (messages::terminate(&[0x20, 2, 0, 0]), Some("")),
        }
    }
}

/// Sends a sequence in one TCP segment, so that the stack processes all of it before it sends
/// anything.
#[track_caller]
fn says_in_order(bench: &mut Bench, sequence: &[Said]) {
    let begins = if sequence.len().is_multiple_of(2) { Begins::Node } else { Begins::Peer };
    let victim = bench.victim(begins);
    let (mut model, mut segments, mut fault) = (Model::default(), Vec::new(), None);
    for said in sequence {
        let (segment, found) = model.take(*said, &victim, bench.ird);
        // RFC 5041 s7.1, RFC 5040 s7.1: the first error is reported, and what follows it is
        // dropped.
        fault = fault.or(found.map(|name| (name, segment.clone())));
        segments.push(segment);
    }
    bench.says(&segments);
    match fault {
        // RFC 5040 s5.4: a Terminate gets no reply. Earlier Reads may have had their responses.
        Some(("", _)) => {
            assert_eq!(
                bench.scene.terminated(),
                (false, Terminate { layer: 2, etype: 0, code: 2 }),
                "{sequence:?}"
            );
            bench.is_over(victim, DisconnectReason::Terminated);
        }
        Some((name, offender)) => bench.ends_with(victim, name, &offender),
        None => {
            let answers = sequence.iter().filter(|said| **said == Said::Read).count();
            (0..answers).for_each(|_| assert_eq!(bench.scene.segment("an answer")[1], 0x42));
            bench.scene.until("delivery", |scene| {
                scene.peer.has_said_all() && scene.node.completions.len() == model.sends as usize
            });
            bench.scene.peer.close();
            bench.is_over(victim, DisconnectReason::Closed);
        }
    }
}

/// Every sequence of up to three messages, and the result that the tables require.
#[test]
fn every_short_sequence_of_messages() {
    let mut bench = Bench::new();
    bench.ird = 2;
    for first in SAID {
        says_in_order(&mut bench, &[first]);
        for second in SAID {
            says_in_order(&mut bench, &[first, second]);
        }
    }
    for first in [Said::Write, Said::Send, Said::Read] {
        for second in [Said::Write, Said::Send, Said::Read] {
            SAID.iter().for_each(|third| says_in_order(&mut bench, &[first, second, *third]));
        }
    }
}

proptest! {
    #![proptest_config(cases(32))]

    /// Also longer ones.
    #[test]
    fn any_sequence_of_messages(
        sequence in prop::collection::vec(prop::sample::select(&SAID[..]), 4..12),
        ird in 0..4u16,
    ) {
        let mut bench = Bench::new();
        bench.ird = ird;
        says_in_order(&mut bench, &sequence);
    }

    /// RFC 5040 s5.2.2, RFC 5041 s7.1, untagged check 2: queue 1 has as many buffers as Reads were
    /// negotiated, including zero. The Terminate shows the Read that exceeds them.
    #[test]
    fn more_reads_than_were_agreed_on(ird in 0..6u16, more in 1..4u32, bytes in 1..4096u32) {
        let mut bench = Bench::new();
        bench.ird = ird;
        let victim = bench.victim(Begins::Peer);
        let place = place(&victim.buffer);
        let requests: Vec<_> = (1..=u32::from(ird) + more).map(|msn| read_request(msn, (3, 4), bytes, place)).collect();
        bench.says(&requests);
        bench.ends_with(victim, "DDP: no buffer", &requests[usize::from(ird)]);
    }

    /// RFC 5041 s5.2, s5.3, s7.1: the segments of a message arrive in order and once. The offset
    /// reveals a segment that is missing, repeated or started again. The partial message is not
    /// delivered.
    #[test]
    fn segments_of_a_message_in_another_order(
        begins in prop_oneof![Just(Begins::Node), Just(Begins::Peer)],
        first in 1..30usize,
        at in 0..64u32,
    ) {
        prop_assume!(at as usize != first);
        let mut bench = Bench::new();
        let victim = bench.victim(begins);
        let mut head = untagged(3, 0, 1, 0, &[0x1b; 30][..first]);
        head[0] = 0x01;
        let tail = untagged(3, 0, 1, at, b"tail");
        bench.says(&[head, tail.clone()]);
        bench.ends_with(victim, "DDP: invalid MO", &tail);
    }
}

/// A victim with a Read of `bytes` octets outstanding. Its sink has no remote rights.
fn reading(bench: &mut Bench, bytes: u32) -> (Victim, Region) {
    let victim = bench.victim(Begins::Node);
    let sink =
        bench.scene.node.ctx.register(bench.scene.node.pd, vec![0x51; 4096], Access::LOCAL_WRITE).unwrap();
    let remote = RemoteMemory { stag: STag(1), tagged_offset: 0 };
    let into = [sink.slice(0, bytes).unwrap()];
    bench.scene.node.ctx.post_send(victim.qp, &SendWr::read(9, &into, remote)).unwrap();
    bench.scene.segment("the Read Request");
    (victim, sink)
}

/// The peer responds to a Read of `bytes` octets with the segments that `answer` makes of the
/// sink's tag and offset. The last segment must be refused.
#[track_caller]
fn answered(bytes: u32, name: &str, answer: impl FnOnce(u32, u64) -> Vec<Vec<u8>>) {
    let mut bench = Bench::new();
    let (victim, sink) = reading(&mut bench, bytes);
    let (stag, to) = place(&sink);
    let segments = answer(stag, to);
    bench.says(&segments);
    bench.ends_with(victim, name, segments.last().unwrap());
}

fn not_last(mut segment: Vec<u8>) -> Vec<u8> {
    segment[0] &= !0x40;
    segment
}

/// RFC 5040 s5.2.2: a response continues the oldest Read, in its buffer at its next octet. Nothing
/// of another response is placed.
#[test]
fn responses_to_another_read() {
    answered(8, "DDP: invalid STag", |stag, to| vec![tagged(2, stag ^ 1, to, &[1; 8])]);
    answered(8, "DDP: base or bounds", |stag, to| vec![tagged(2, stag, to + 1, &[1; 8])]);
    answered(8, "DDP: base or bounds", |stag, to| vec![tagged(2, stag, to.wrapping_sub(8), &[1; 8])]);
    let head = |stag, to| not_last(tagged(2, stag, to, &[1; 4]));
    answered(8, "DDP: base or bounds", |stag, to| vec![head(stag, to), tagged(2, stag, to, &[1; 4])]);
    answered(8, "DDP: base or bounds", |stag, to| vec![head(stag, to), tagged(2, stag, to + 5, &[1; 4])]);
    answered(8, "DDP: invalid STag", |stag, to| {
        vec![head(stag, to), tagged(2, stag.wrapping_add(1), to + 4, &[1; 4])]
    });
    // A second response to one Read.
    let whole = |stag, to| tagged(2, stag, to, &[1; 8]);
    answered(8, "RDMAP: unexpected OpCode", |stag, to| vec![whole(stag, to), whole(stag, to)]);
    answered(8, "RDMAP: unexpected OpCode", |stag, to| vec![whole(stag, to), tagged(2, stag, to, b"")]);
}

/// RFC 5040 s5.2.2: the response is as long as the Read, and only its last segment has L set.
#[test]
fn responses_of_another_length() {
    for bytes in [1, 8, 20] {
        for answered_bytes in 0..=bytes + 3 {
            let octets = vec![1; answered_bytes as usize];
            let name = if answered_bytes > bytes {
                "DDP: base or bounds"
            } else {
                "RDMAP: catastrophic, this stream"
            };
            if answered_bytes != bytes {
                answered(bytes, name, |stag, to| vec![tagged(2, stag, to, &octets)]);
            }
            if answered_bytes >= bytes {
                answered(bytes, name, |stag, to| vec![not_last(tagged(2, stag, to, &octets))]);
            }
        }
    }
}

/// semantics "Read Response": a Read's sink needs only the local write right. So a Write to it is
/// refused during the Read.
#[test]
fn a_write_to_the_sink_of_a_read() {
    let mut bench = Bench::new();
    let (victim, sink) = reading(&mut bench, 8);
    let (stag, to) = place(&sink);
    let segment = tagged(0, stag, to, b"x");
    bench.says(std::slice::from_ref(&segment));
    bench.ends_with(victim, "DDP: invalid STag", &segment);
    assert_eq!(contents(&sink), [0x51; 4096]);
}

/// RFC 5040 s4.4: a Read Request is one segment.
#[test]
fn a_read_request_in_two_segments() {
    Bench::new().refuses(Begins::Peer, "RDMAP: catastrophic, this stream", |victim| {
        not_last(read_request(1, (1, 0), 8, place(&victim.buffer)))
    });
}

/// RFC 6581 s9.1, s9.2: a responder accepts with parameters that were not requested. Our first FPDU
/// is a Terminate.
#[test]
fn parameters_that_cannot_be_met() {
    let mut bench = Bench::new();
    for (said, name) in [
        ([0x80, 16, 0x80, 17], "MPA: insufficient IRD"),
        ([0x80, 16, 0xbf, 0xfe], "MPA: insufficient IRD"),
        ([0x80, 16, 0, 16], "MPA: no matching RTR"),
        ([0x80, 0, 0x40, 0], "MPA: no matching RTR"),
    ] {
        let (qp, ..) = bench.scene.calls(REQUEST.len());
        bench.scene.peer.say(&reply(0x50, 2, &said));
        bench.reports(qp, name, &[]);
        bench.scene.hears_fin();
        bench.scene.peer.close();
        assert_eq!(bench.scene.disconnected(), DisconnectReason::Terminated);
        bench.scene.node.completions.clear();
        bench.scene.node.ctx.destroy_qp(qp).unwrap();
    }
}

/// RFC 5044 s7.1.2: an initiator that does not wait for the reply sends octets that can only be
/// private data beyond its length. TCP is closed, and no reply is sent.
#[test]
fn an_fpdu_before_the_reply() {
    let mut scene = crate::common::peer::Scene::new(|_| {});
    scene.node.ctx.listen(messages::NODE.parse().unwrap()).unwrap();
    scene.turn();
    scene.peer.connect(messages::NODE);
    scene.peer.say(&[messages::request(0x40, 1, b""), fpdu(&send(1, b"early"))].concat());
    scene.until("the end", |scene| {
        scene.peer.events.intersects(ironwarp_tcp::TcpEvents::ENDED | ironwarp_tcp::TcpEvents::PEER_CLOSED)
    });
    assert!(scene.peer.heard.is_empty() && scene.node.events.is_empty());
    assert_eq!(scene.node.counter("iwarp_startup_errors"), 1);
}
