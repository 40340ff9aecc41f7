//! One fake peer for each habit of the world's stacks that concerns start-up and framing, under the number that the
//! survey of peers gives it.

mod common;

use common::peer::{PEER, Scene};
use ironwarp::{
    CompletionStatus, ConnectFailure, ConnectionRequest, DisconnectReason, Event, MpaRevision, QpAttr,
    QueuePair, READS_UNNEGOTIATED, ReadDepths, RecvWr, Region, SendWr, Settled, Terminate,
};

const NODE: &str = "10.0.0.1:4791";
const KEY: usize = 16;
const EMPTY_WRITE: [u8; 14] = [0xc1, 0x40, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0];
const EMPTY_READ: [u8; 46] = {
    let mut ulpdu = [0; 46];
    (ulpdu[0], ulpdu[1], ulpdu[9], ulpdu[13]) = (0x41, 0x41, 1, 1);
    (ulpdu[21], ulpdu[37]) = (1, 1);
    ulpdu
};

fn frame(key: &[u8; KEY], flags: u8, revision: u8, said: &[u8]) -> Vec<u8> {
    [key, &[flags, revision][..], &(said.len() as u16).to_be_bytes(), said].concat()
}

fn request(flags: u8, revision: u8, said: &[u8]) -> Vec<u8> {
    frame(b"MPA ID Req Frame", flags, revision, said)
}

fn reply(flags: u8, revision: u8, said: &[u8]) -> Vec<u8> {
    frame(b"MPA ID Rep Frame", flags, revision, said)
}

/// CRC-32C, bit by bit.
fn crc(octets: &[u8]) -> [u8; 4] {
    let sum = !octets.iter().fold(!0u32, |crc, &octet| {
        (0..8).fold(crc ^ u32::from(octet), |crc, _| (crc >> 1) ^ (0x82f6_3b78 & (crc & 1).wrapping_neg()))
    });
    sum.to_le_bytes()
}

fn fpdu(ulpdu: &[u8]) -> Vec<u8> {
    let mut octets = [&(ulpdu.len() as u16).to_be_bytes()[..], ulpdu].concat();
    octets.resize(octets.len().next_multiple_of(4), 0);
    [&octets[..], &crc(&octets)].concat()
}

fn send(msn: u8, payload: &[u8]) -> Vec<u8> {
    [&[0x41, 0x43, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, msn, 0, 0, 0, 0], payload].concat()
}

impl Scene {
    fn qp(&mut self) -> QueuePair {
        let attr = QpAttr::new(self.node.cq);
        self.node.ctx.create_qp(self.node.pd, &attr).unwrap()
    }

    /// A queue pair with a receive of 64 bytes that asks the peer for a connection, and its request.
    fn calls(&mut self, bytes: usize) -> (QueuePair, Region, Vec<u8>) {
        let (qp, inbox) = (self.qp(), self.node.memory(&[0; 64]));
        self.node.ctx.post_recv(qp, &RecvWr::new(1, &[inbox.slice(0, 64).unwrap()])).unwrap();
        self.node.ctx.connect(qp, PEER.parse().unwrap(), b"").unwrap();
        let heard = self.hear("the request", bytes);
        (qp, inbox, heard)
    }

    fn settled(&mut self) -> Settled {
        self.event("established", |event| match event {
            Event::Established { settled, .. } => Some(*settled),
            _ => None,
        })
    }

    /// The peer asks with `octets`; what our application hears.
    fn is_asked(&mut self, octets: &[u8]) -> (ConnectionRequest, Vec<u8>) {
        self.node.ctx.listen(NODE.parse().unwrap()).unwrap();
        self.turn();
        self.peer.connect(NODE);
        self.peer.say(octets);
        self.until("the request", |scene| !scene.node.events.is_empty());
        match self.node.events.remove(0) {
            Event::ConnectRequest { request, private_data, .. } => (request, private_data.to_vec()),
            other => panic!("{other:?}"),
        }
    }

    /// The peer asks, our application accepts, and this is the reply.
    fn answers(&mut self, octets: &[u8], bytes: usize) -> (QueuePair, Region, Vec<u8>) {
        let (request, _) = self.is_asked(octets);
        let (qp, inbox) = (self.qp(), self.node.memory(&[0; 64]));
        self.node.ctx.post_recv(qp, &RecvWr::new(1, &[inbox.slice(0, 64).unwrap()])).unwrap();
        self.node.ctx.accept(request, qp, b"").unwrap();
        let heard = self.hear("the reply", bytes);
        (qp, inbox, heard)
    }

    fn received(&mut self, inbox: &Region, want: &[u8]) {
        self.until("the message", |scene| !scene.node.completions.is_empty());
        assert_eq!(self.node.completions[0].status, CompletionStatus::Success);
        assert_eq!(common::contents(inbox)[..want.len()], *want);
    }

    fn terminated(&mut self) -> (bool, Terminate) {
        self.event("the Terminate", |event| match event {
            Event::Terminated { sent, terminate, .. } => Some((*sent, *terminate)),
            _ => None,
        })
    }
}

/// What our initiator sends by default: CRC, revision 2, peer to peer, every indication, 16 Reads each way.
const REQUEST: [u8; 24] = *b"MPA ID Req Frame\x50\x02\x00\x04\xc0\x10\xc0\x10";
/// What a responder of revision 2 says that takes Writes and 16 Reads.
const TAKES_WRITES: [u8; 4] = [0x80, 16, 0x80, 16];

/// Q1: siw lays the Terminate's nibbles and header bits out the other way round; both orders are understood.
#[test]
fn q1_a_terminate_in_siws_octet_order_is_understood() {
    for octets in [[0x21, 0x02, 0x03, 0], [0x12, 0x02, 0xc0, 0]] {
        let mut scene = Scene::new(|_| {});
        scene.calls(REQUEST.len());
        let mut ulpdu = vec![0x41, 0x47, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 1, 0, 0, 0, 0];
        ulpdu.extend(octets);
        scene.peer.say(&[reply(0x50, 2, &TAKES_WRITES), fpdu(&ulpdu)].concat());
        assert_eq!(scene.terminated(), (false, Terminate { layer: 1, etype: 2, code: 2 }));
    }
}

/// Q2: siw and cxgb4 take any octet behind the reply for an error. Nothing follows it until the initiator's first FPDU.
#[test]
fn q2_nothing_follows_the_reply_before_the_initiators_first_fpdu() {
    let mut scene = Scene::new(|_| {});
    let (qp, ..) = scene.answers(&request(0x40, 1, b""), 20);
    scene.node.ctx.post_send(qp, &SendWr::send_inline(2, b"server")).unwrap();
    scene.turns(2000);
    assert_eq!((&scene.peer.heard[..], &scene.peer.segments[..]), (&[][..], &[20][..]));
    scene.peer.say(&fpdu(&EMPTY_WRITE));
    let want = fpdu(&send(1, b"server"));
    assert_eq!(scene.hear("the server's message", want.len()), want);
}

/// Q3: siw without flag A speaks at once: reply and FPDUs in one segment.
#[test]
fn q3_fpdus_in_the_segment_of_the_reply_are_taken() {
    let mut scene = Scene::new(|_| {});
    let (_, inbox, _) = scene.calls(REQUEST.len());
    scene.peer.say(&[reply(0x50, 2, &[0, 16, 0, 16]), fpdu(&send(1, b"at once"))].concat());
    scene.settled();
    scene.received(&inbox, b"at once");
}

/// Q4: siw never asks for CRCs and uses them when we do, in either role.
#[test]
fn q4_a_peer_that_asks_for_no_crc_gets_them() {
    let mut scene = Scene::new(|_| {});
    let (_, inbox, _) = scene.calls(REQUEST.len());
    // As responder it echoes our C; one that does not is bound by ours all the same (RFC 5044 s7.1.1).
    scene.peer.say(&[reply(0x10, 2, &[0, 16, 0, 16]), fpdu(&send(1, b"checked"))].concat());
    scene.received(&inbox, b"checked");
    let mut scene = Scene::new(|_| {});
    let (_, inbox, heard) = scene.answers(&request(0x10, 2, &[0, 16, 0, 16]), 24);
    assert_eq!(heard[16], 0x50, "C is set in the reply, unasked");
    scene.peer.say(&fpdu(&send(1, b"checked")));
    scene.received(&inbox, b"checked");
}

/// Q5: without CRCs the field is still there, sent as zeros, and not looked at.
#[test]
fn q5_without_crcs_the_field_is_zero_and_not_checked() {
    let mut scene = Scene::new(|config| config.mpa.crc = false);
    let (qp, inbox, heard) = scene.answers(&request(0x00, 1, b""), 20);
    assert_eq!(heard[16], 0);
    let mut octets = fpdu(&send(1, b"unchecked"));
    let end = octets.len();
    octets[end - 4..].copy_from_slice(&[0xde, 0xad, 0xbe, 0xef]);
    scene.peer.say(&octets);
    scene.received(&inbox, b"unchecked");
    scene.node.ctx.post_send(qp, &SendWr::send_inline(2, b"back")).unwrap();
    let back = scene.hear("the answer", fpdu(&send(1, b"back")).len());
    assert_eq!(back[back.len() - 4..], [0; 4]);
}

/// Q6: siw takes a Write where it is offered, then waits for any first FPDU. Ours has a steering tag other than 0.
#[test]
fn q6_the_indication_that_siw_picks_is_sent_first() {
    let mut scene = Scene::new(|_| {});
    let (qp, ..) = scene.calls(REQUEST.len());
    scene.node.ctx.post_send(qp, &SendWr::send_inline(2, b"behind it")).unwrap();
    scene.peer.say(&reply(0x50, 2, &TAKES_WRITES));
    let want = [fpdu(&EMPTY_WRITE), fpdu(&send(1, b"behind it"))].concat();
    assert_eq!(scene.hear("indication and message", want.len()), want);
}

/// Q6: as initiator with flag A, siw sends a Write or a Read; our application hears of the connection then.
#[test]
fn q6_the_connection_is_up_when_the_indication_has_come() {
    let mut scene = Scene::new(|_| {});
    let (qp, ..) = scene.answers(&request(0x50, 2, &[0x80, 16, 0xc0, 16]), 24);
    scene.turns(500);
    assert!(scene.node.events.is_empty(), "not yet: {:?}", scene.node.events);
    assert_eq!(scene.node.ctx.qp_state(qp).unwrap(), ironwarp::QpState::Connecting);
    scene.peer.say(&fpdu(&EMPTY_WRITE));
    let reads = ReadDepths { ird: 16, ord: 16 };
    assert_eq!(scene.settled(), Settled { revision: 2, peer_reads: Some(reads), reads });
    assert_eq!(scene.node.ctx.qp_state(qp).unwrap(), ironwarp::QpState::Established);
}

/// Q7: irdma refuses revision 2 without A and an indication by Write or Read, and wants the request in one segment.
#[test]
fn q7_the_request_is_one_that_irdma_takes() {
    let mut scene = Scene::new(|_| {});
    let (.., heard) = scene.calls(REQUEST.len());
    assert_eq!(heard, REQUEST);
    assert_eq!(scene.peer.segments, [REQUEST.len()]);
}

/// Q7: a peer that resets or closes on revision 2 is asked again, once, in revision 1 (RFC 6581 s10).
#[test]
fn q7_a_peer_that_closes_on_revision_2_is_asked_in_revision_1() {
    for resets in [true, false] {
        let mut scene = Scene::new(|_| {});
        let (qp, ..) = scene.calls(REQUEST.len());
        if resets {
            scene.peer.reset()
        } else {
            scene.peer.close()
        }
        scene.until("the second connection", |scene| scene.peer.connections == 2);
        assert_eq!(scene.hear("the second request", 20), request(0x40, 1, b""));
        scene.peer.say(&reply(0x40, 1, b""));
        let reads = ReadDepths { ird: 16, ord: 16 };
        assert_eq!(scene.settled(), Settled { revision: 1, peer_reads: None, reads });
        assert_eq!(scene.node.counter("iwarp_revision_fallbacks"), 1);
        scene.node.ctx.post_send(qp, &SendWr::send_inline(2, b"data")).unwrap();
        scene.hear("no indication, the message", fpdu(&send(1, b"data")).len());
    }
}

/// Q7: not twice, and not where the setting says no.
#[test]
fn q7_a_peer_that_closes_on_revision_1_too_is_given_up() {
    for fallback in [true, false] {
        let mut scene = Scene::new(|config| config.mpa.fallback = fallback);
        scene.calls(REQUEST.len());
        scene.peer.reset();
        if fallback {
            scene.until("the second request", |scene| {
                scene.peer.connections == 2 && scene.peer.heard.len() == 20
            });
            scene.peer.reset();
        }
        let reason = scene.event("the failure", |event| match event {
            Event::ConnectFailed { reason, .. } => Some(*reason),
            _ => None,
        });
        assert_eq!((reason, scene.peer.connections), (ConnectFailure::Closed, 1 + u32::from(fallback)));
    }
}

/// Q8: siw and cxgb4 keep the length of private data in 8 bits. What we take is 512, four less in revision 2.
#[test]
fn q8_private_data_of_every_length_that_a_peer_may_send_is_taken() {
    for bytes in [0, 251, 252, 508] {
        let said = [&[0, 16, 0, 16][..], &vec![7; bytes]].concat();
        let (_, heard) = Scene::new(|_| {}).is_asked(&request(0x50, 2, &said));
        assert_eq!(heard, vec![7; bytes]);
    }
    let (_, heard) = Scene::new(|_| {}).is_asked(&request(0x40, 1, &[7; 512]));
    assert_eq!(heard, [7; 512]);
    // And 251 of ours make a length of 255.
    let mut scene = Scene::new(|_| {});
    let qp = scene.qp();
    scene.node.ctx.connect(qp, PEER.parse().unwrap(), &[7; 251]).unwrap();
    assert_eq!(scene.hear("the request", 20)[18..], [0, 255]);
}

/// Q9: cxgb4 insists on the kind of indication that it offers, by default a Read, which is answered.
#[test]
fn q9_a_read_is_answered_to_an_offer_of_reads_alone() {
    let mut scene = Scene::new(|_| {});
    let (.., heard) = scene.answers(&request(0x50, 2, &[0x80, 32, 0x40, 32]), 24);
    assert_eq!(heard[16..], [0x50, 2, 0, 4, 0x80, 16, 0x40, 16]);
    scene.peer.say(&fpdu(&EMPTY_READ));
    let answer = [0xc1, 0x42, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0];
    assert_eq!(scene.hear("the empty response", fpdu(&answer).len()), fpdu(&answer));
    scene.settled();
}

/// Q9: it ends what it cannot keep with code 6 or 7; our application hears which.
#[test]
fn q9_a_terminate_instead_of_an_indication_is_understood() {
    let mut scene = Scene::new(|_| {});
    scene.answers(&request(0x50, 2, &[0x80, 32, 0x40, 32]), 24);
    scene.peer.say(&fpdu(&[0x41, 0x47, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 1, 0, 0, 0, 0, 0x20, 7, 0, 0]));
    assert_eq!(scene.terminated(), (false, Terminate { layer: 2, etype: 0, code: 7 }));
}

/// Q10: cxgb4 in revision 1 sends an empty Read first all the same.
#[test]
fn q10_an_empty_read_in_revision_1_is_answered() {
    let mut scene = Scene::new(|_| {});
    scene.answers(&request(0x40, 1, b""), 20);
    scene.peer.say(&fpdu(&EMPTY_READ));
    let answer = [0xc1, 0x42, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0];
    assert_eq!(scene.hear("the empty response", fpdu(&answer).len()), fpdu(&answer));
}

/// Q11: peers take the numbers of Reads in our reply for what they are: real ones, and 0x3fff only where it was asked.
#[test]
fn q11_the_numbers_of_reads_in_a_reply_are_real() {
    for (asked, answered) in [
        ([0, 4, 0, 128], [0, 16, 0, 4]),
        ([0, 128, 0, 1], [0, 16, 0, 16]),
        ([0x3f, 0xff, 0x3f, 0xff], [0x3f, 0xff, 0x3f, 0xff]),
    ] {
        let mut scene = Scene::new(|_| {});
        let (qp, _, heard) = scene.answers(&request(0x50, 2, &asked), 24);
        assert_eq!(heard[20..], answered);
        let settled = scene.settled();
        assert_eq!(scene.node.ctx.qp_settled(qp).unwrap(), Some(settled));
        let number = |octets: &[u8]| u16::from_be_bytes([octets[0] & 0x3f, octets[1]]);
        let peer_reads = ReadDepths { ird: number(&asked), ord: number(&asked[2..]) };
        assert_eq!(settled.peer_reads, Some(peer_reads));
        let ord = if peer_reads.ird == READS_UNNEGOTIATED { 16 } else { 16.min(peer_reads.ird) };
        assert_eq!(settled.reads, ReadDepths { ird: 16, ord });
    }
}

/// Q12: siw ends the connection at one Read too many. What the reply allows is what is kept to.
#[test]
fn q12_no_more_reads_are_outstanding_than_the_reply_allows() {
    let mut scene = Scene::new(|_| {});
    let (qp, inbox, _) = scene.calls(REQUEST.len());
    scene.peer.say(&reply(0x50, 2, &[0, 2, 0, 0]));
    assert_eq!(scene.settled().reads, ReadDepths { ird: 16, ord: 2 });
    let remote = ironwarp::RemoteMemory { stag: ironwarp::STag(5), tagged_offset: 0 };
    for read in 0..4 {
        let sink = [inbox.slice(0, 8).unwrap()];
        scene.node.ctx.post_send(qp, &SendWr::read(read, &sink, remote)).unwrap();
    }
    scene.hear("two Read Requests", 2 * 52);
    scene.turns(2000);
    assert!(scene.peer.heard.is_empty());
}

/// Q17: siw's FIN ends the connection in both directions; it is no half close.
#[test]
fn q17_a_fin_is_answered_with_a_fin() {
    let mut scene = Scene::new(|_| {});
    scene.calls(REQUEST.len());
    scene.peer.say(&reply(0x50, 2, &TAKES_WRITES));
    scene.hear("the indication", 20);
    scene.peer.close();
    let reason = scene.event("the end", |event| match event {
        Event::Disconnected { reason, .. } => Some(*reason),
        _ => None,
    });
    assert_eq!(reason, DisconnectReason::Closed);
}

/// Q19: any alignment, several FPDUs in a segment, an FPDU in several segments.
#[test]
fn q19_fpdus_come_in_any_segments() {
    let stream: Vec<u8> = (1..=3).flat_map(|msn| fpdu(&send(msn, &[msn; 21]))).collect();
    for cut in [1, 2, 7, 49, 50, 51, stream.len()] {
        let mut scene = Scene::new(|_| {});
        let (qp, _first, _) = scene.calls(REQUEST.len());
        let inbox = scene.node.memory(&[0; 64]);
        for receive in 2..=3 {
            scene.node.ctx.post_recv(qp, &RecvWr::new(receive, &[inbox.slice(0, 64).unwrap()])).unwrap();
        }
        scene.peer.say(&reply(0x50, 2, &[0, 0, 0, 0]));
        stream.chunks(cut).for_each(|piece| scene.peer.say(piece));
        scene.until("three messages", |scene| scene.node.completions.len() == 3);
        assert_eq!(common::contents(&inbox)[..21], [3; 21]);
    }
}

/// Q20: a refusal has R set and keeps its private data; FIN follows. Both shapes.
#[test]
fn q20_a_refusal_keeps_its_private_data_and_ends_with_fin() {
    for (asked, want) in [
        (request(0x40, 1, b""), reply(0x60, 1, b"busy")),
        (request(0x50, 2, &[0x80, 1, 0xc0, 1]), reply(0x70, 2, &[&[0x80, 0, 0xc0, 0][..], b"busy"].concat())),
    ] {
        let mut scene = Scene::new(|_| {});
        let (request, _) = scene.is_asked(&asked);
        scene.node.ctx.reject(request, b"busy").unwrap();
        assert_eq!(scene.hear("the refusal", want.len()), want);
        scene.until("FIN", |scene| scene.peer.events.contains(ironwarp_tcp::TcpEvents::PEER_CLOSED));
    }
}

/// Q20: and as initiator the refusal is heard, with the numbers of Reads that it names.
#[test]
fn q20_a_refusal_of_either_shape_is_heard() {
    for (revision, octets, reads) in [
        (MpaRevision::One, reply(0x60, 1, b"busy"), None),
        (MpaRevision::Two, reply(0x70, 2, b"\x00\x00\x00\x20busy"), Some(ReadDepths { ird: 0, ord: 32 })),
    ] {
        let mut scene = Scene::new(|_| {});
        let qp = scene.qp();
        let params = ironwarp::ConnectParams { revision: Some(revision), ..Default::default() };
        scene.node.ctx.connect_with(qp, PEER.parse().unwrap(), &params).unwrap();
        scene.until("the request", |scene| scene.peer.heard.len() >= 20);
        scene.peer.say(&octets);
        let (said, peer_reads) = scene.event("the refusal", |event| match event {
            Event::Rejected { private_data, peer_reads, .. } => Some((private_data.to_vec(), *peer_reads)),
            _ => None,
        });
        assert_eq!((&said[..], peer_reads), (&b"busy"[..], reads));
    }
}

/// Q22: a peer that asks for markers gets them in what we send, from the first octet on, and sends none itself.
#[test]
fn q22_a_peer_that_asks_for_markers_gets_them() {
    let mut scene = Scene::new(|_| {});
    let (qp, inbox, heard) = scene.answers(&request(0xc0, 1, b""), 20);
    assert_eq!(heard[16], 0x40, "we ask for none");
    scene.peer.say(&fpdu(&send(1, b"plain")));
    scene.received(&inbox, b"plain");
    let source = scene.node.memory(&[9; 1000]);
    scene.node.ctx.post_send(qp, &SendWr::send(2, &[source.slice(0, 1000).unwrap()])).unwrap();
    let octets = scene.hear("a marked FPDU", 1024 + 4 * 3);
    assert_eq!(
        [&octets[..4], &octets[512..516], &octets[1024..1028]],
        [[0; 4], [0, 0, 1, 252], [0, 0, 3, 252]]
    );
    let end = octets.len() - 4;
    assert_eq!(octets[end..], crc(&octets[..end]));
    assert_eq!(scene.node.counter("iwarp_marked_streams"), 1);
}

/// Q23: siw as responder loses its own first message when ours comes right behind the reply. The hold-off keeps ours
/// back, the indication too.
#[test]
fn q23_the_hold_off_keeps_the_first_fpdu_back() {
    let mut scene = Scene::new(|_| {});
    let qp = scene.qp();
    let holdoff = ironwarp::Nanos::from_millis(30);
    let params = ironwarp::ConnectParams { first_fpdu_holdoff: Some(holdoff), ..Default::default() };
    scene.node.ctx.connect_with(qp, PEER.parse().unwrap(), &params).unwrap();
    scene.hear("the request", REQUEST.len());
    scene.peer.say(&reply(0x50, 2, &TAKES_WRITES));
    scene.settled();
    let established = std::time::Instant::now();
    assert!(scene.peer.heard.is_empty());
    scene.hear("the indication", 20);
    assert!(established.elapsed() >= std::time::Duration::from_millis(20), "{:?}", established.elapsed());
}

/// RFC 6581 s9.1, s9.2: what a responder accepts and we cannot keep ends with a Terminate as our first FPDU.
#[test]
fn terms_that_cannot_be_kept_end_with_the_terminate_that_names_them() {
    for (octets, code) in [([0x80, 16, 0x80, 17], 6), ([0x80, 16, 0, 16], 7), ([0x80, 0, 0x40, 0], 7)] {
        let mut scene = Scene::new(|_| {});
        let (qp, ..) = scene.calls(REQUEST.len());
        scene.node.ctx.post_send(qp, &SendWr::send_inline(2, b"never")).unwrap();
        scene.peer.say(&reply(0x50, 2, &octets));
        assert_eq!(scene.terminated(), (true, Terminate { layer: 2, etype: 0, code }));
        let ulpdu =
            [&[0x41, 0x47, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 1, 0, 0, 0, 0][..], &[0x20, code, 0, 0]].concat();
        assert_eq!(scene.hear("the Terminate", fpdu(&ulpdu).len()), fpdu(&ulpdu));
        scene.until("FIN", |scene| scene.peer.events.contains(ironwarp_tcp::TcpEvents::PEER_CLOSED));
        scene.peer.close();
        scene.event("the end", |event| matches!(event, Event::Disconnected { .. }).then_some(()));
        let reads = scene.node.ctx.qp_settled(qp).unwrap().unwrap().peer_reads;
        assert_eq!(reads.map(|reads| reads.ord), Some(u16::from(octets[3])));
    }
}

/// RFC 5044 s7.1.2, rule 10: an initiator of the peer-to-peer model that never sends its indication is not waited for
/// longer than one that never sends its request.
#[test]
fn an_indication_that_never_comes_is_a_start_up_that_takes_too_long() {
    let mut scene = Scene::new(|config| config.mpa.startup_timeout_ms = 50);
    scene.answers(&request(0x50, 2, &[0x80, 16, 0xc0, 16]), 24);
    let reason = scene.event("the failure", |event| match event {
        Event::ConnectFailed { reason, .. } => Some(*reason),
        _ => None,
    });
    assert_eq!(reason, ConnectFailure::TimedOut);
}
