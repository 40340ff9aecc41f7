//! Quirks in full operation: framing, Reads, the order of messages, rights.

use ironwarp::{Access, CompletionStatus, ReadDepths, RecvWr, Region, RemoteMemory, STag, SendWr, Terminate};

use crate::common;
use crate::common::contents;
use crate::common::messages::{
    REQUEST, crc, fpdu, place, read_request, reply, request, send, tagged, terminate, untagged,
};
use crate::common::peer::Scene;

/// Q5: without CRCs the field is present, sent as zeros, and not checked.
/// RFC 5044 s4.4.
#[test]
fn q5_without_crc_the_field_is_zero_and_not_checked() {
    let mut scene = Scene::new(|config| config.mpa.crc = false);
    let (qp, inbox, heard) = scene.answers(&request(0x00, 1, b""), 20);
    assert_eq!(heard[16], 0);
    let mut octets = fpdu(&send(1, b"unchecked"));
    let end = octets.len();
    octets[end - 4..].copy_from_slice(&[0xde, 0xad, 0xbe, 0xef]);
    scene.peer.say(&octets);
    scene.received(&inbox, b"unchecked");
    scene.node.ctx.post_send(qp, &SendWr::send_inline(2, b"back")).unwrap();
    let back = scene.hear("the reply", fpdu(&send(1, b"back")).len());
    assert_eq!(back[back.len() - 4..], [0; 4]);
}

/// Q12: siw ends the connection if a Read exceeds its limit. The initiator keeps to the number in
/// the reply.
#[test]
fn q12_no_more_reads_are_outstanding_than_the_reply_allows() {
    let mut scene = Scene::new(|_| {});
    let (qp, inbox, _) = scene.calls(REQUEST.len());
    scene.peer.say(&reply(0x50, 2, &[0, 2, 0, 0]));
    assert_eq!(scene.negotiated().reads, ReadDepths { ird: 16, ord: 2 });
    let remote = ironwarp::RemoteMemory { stag: ironwarp::STag(5), tagged_offset: 0 };
    for read in 0..4 {
        let sink = [inbox.slice(0, 8).unwrap()];
        scene.node.ctx.post_send(qp, &SendWr::read(read, &sink, remote)).unwrap();
    }
    scene.hear("two Read Requests", 2 * 52);
    scene.turns(2000);
    assert!(scene.peer.heard.is_empty());
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
        assert_eq!(contents(&inbox)[..21], [3; 21]);
    }
}

/// Q22: a peer that asks for markers receives them from the first octet on, and sends none itself.
#[test]
fn q22_a_peer_that_asks_for_markers_gets_them() {
    let mut scene = Scene::new(|_| {});
    let (qp, inbox, heard) = scene.answers(&request(0xc0, 1, b""), 20);
    assert_eq!(heard[16], 0x40, "our reply asks for no markers");
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
    assert_eq!(scene.node.counter("iwarp_streams_with_markers"), 1);
}

/// Q12: siw sends a Terminate in its own octet order instead of the code for a queue without a
/// buffer. The stack understands it.
#[test]
fn q12_siws_code_for_one_read_too_many_is_understood() {
    let mut scene = Scene::new(|_| {});
    scene.called();
    scene.peer.say(&fpdu(&terminate(&[0x20, 0x07, 0x03, 0x00])));
    assert_eq!(scene.terminated(), (false, Terminate { layer: 0, etype: 2, code: 7 }));
}

/// The state that siw keeps for an incomplete tagged message: its operation, its steering tag and
/// the next offset.
#[derive(Default)]
struct Strict {
    open: Option<(u8, u32, u64)>,
    messages: Vec<u8>,
}

impl Strict {
    /// siw's rule: the segments of a tagged message are contiguous, without a segment of another
    /// tagged message between them.
    fn take(&mut self, segment: &[u8]) {
        if segment[0] & 0x80 == 0 {
            self.messages.push(segment[1] & 0x0f);
            return;
        }
        let stag = u32::from_be_bytes(*segment[2..].first_chunk().unwrap());
        let to = u64::from_be_bytes(*segment[6..].first_chunk().unwrap());
        let now = (segment[1] & 0x0f, stag, to);
        assert!(self.open.is_none_or(|open| open == now), "{now:x?} interrupts {:x?}", self.open);
        let last = segment[0] & 0x40 != 0;
        self.open = (!last).then_some((now.0, stag, to + segment.len() as u64 - 14));
        if last {
            self.messages.push(now.0);
        }
    }
}

/// Q14: siw drops the connection when a tagged message interrupts another. So our Writes and our
/// Read Responses wait for each other; Sends need not.
#[test]
fn q14_a_strict_peer_never_sees_a_tagged_message_within_another() {
    let mut scene = Scene::new(|_| {});
    let (qp, _) = scene.called();
    let memory = scene.node.memory(&[5; 9000]);
    let gather = [memory.slice(0, 9000).unwrap()];
    for write in 0..4u32 {
        let remote = RemoteMemory { stag: STag(100 + write), tagged_offset: 7 };
        scene.node.ctx.post_send(qp, &SendWr::write(1, &gather, remote)).unwrap();
        scene.node.ctx.post_send(qp, &SendWr::send_inline(2, b"between")).unwrap();
        scene.peer.say(&fpdu(&read_request(write + 1, (200 + write, 3), 9000, place(&memory))));
    }
    let mut strict = Strict::default();
    while strict.messages.len() < 12 {
        let segment = scene.segment("four Writes, Sends and Read Responses");
        strict.take(&segment);
    }
    strict.messages.sort_unstable();
    assert_eq!(strict.messages, [0, 0, 0, 0, 2, 2, 2, 2, 3, 3, 3, 3]);
}

/// Q14: siw itself sends a Send between the segments of a Write or of a Read Response. The stack
/// accepts it.
#[test]
fn q14_a_send_within_a_tagged_message_is_taken() {
    let mut scene = Scene::new(|_| {});
    let (qp, inbox) = scene.called();
    let target = scene.node.memory(&[0; 8]);
    let (stag, to) = place(&target);
    let mut begin = tagged(0, stag, to, b"four");
    begin[0] = 0x81;
    for segment in [begin, send(1, b"within"), tagged(0, stag, to + 4, b"more")] {
        scene.peer.say(&fpdu(&segment));
    }
    scene.received(&inbox, b"within");
    scene.until("the Write", |_| contents(&target) == b"fourmore");
    let sink = scene.node.memory(&[0; 8]);
    let (stag, to) = place(&sink);
    scene.node.ctx.post_recv(qp, &RecvWr::new(2, &[inbox.slice(0, 64).unwrap()])).unwrap();
    let remote = RemoteMemory { stag: STag(1), tagged_offset: 0 };
    scene.node.ctx.post_send(qp, &SendWr::read(3, &[sink.slice(0, 8).unwrap()], remote)).unwrap();
    scene.segment("the request");
    let mut begin = tagged(2, stag, to, b"read");
    begin[0] = 0x81;
    for segment in [begin, send(2, b"again"), tagged(2, stag, to + 4, b"back")] {
        scene.peer.say(&fpdu(&segment));
    }
    scene.until("the Read", |scene| scene.node.completions.len() == 3);
    assert_eq!((contents(&sink), contents(&inbox)[..5].to_vec()), (b"readback".to_vec(), b"again".to_vec()));
}

/// Q15: siw compares a response exactly with its oldest Read: sink, offset and length. A response
/// repeats the sink of its request unchanged, and responses are in the order of the requests.
#[test]
fn q15_a_response_matches_its_request_exactly() {
    let mut scene = Scene::new(|_| {});
    scene.called();
    let source = scene.node.memory(&common::pattern(4000, 9));
    let sinks = [(0, 0), (0xfeed_f00d, u64::MAX - 1000), (u32::MAX, 1 << 63), (1, u64::MAX)];
    let lengths = [4000, 3001, 1, 0];
    for (msn, (sink, bytes)) in (1..).zip(sinks.into_iter().zip(lengths)) {
        scene.peer.say(&fpdu(&read_request(msn, sink, bytes, place(&source))));
    }
    for ((stag, to), bytes) in sinks.into_iter().zip(lengths) {
        let mut got: Vec<u8> = Vec::new();
        loop {
            let segment = scene.segment("a Read Response");
            let want = tagged(2, stag, to.wrapping_add(got.len() as u64), &[]);
            assert_eq!((segment[0] | 0x40, &segment[1..14]), (0xc1, &want[1..]));
            got.extend(&segment[14..]);
            if segment[0] & 0x40 != 0 {
                break;
            }
        }
        assert!(got == common::pattern(4000, 9)[..bytes as usize], "{bytes} octets of the source");
    }
}

/// Q16: siw ends the connection at operations above 7. No such operation can be posted, and the
/// stack understands siw's Terminate.
#[test]
fn q16_no_request_has_an_operation_above_seven() {
    let mut scene = Scene::new(|_| {});
    let (qp, inbox) = scene.called();
    let (one, remote) = ([inbox.slice(0, 8).unwrap()], RemoteMemory { stag: STag(9), tagged_offset: 0 });
    let wrs = [
        SendWr::send(1, &one),
        SendWr::send(2, &one).solicited(),
        SendWr::send(3, &one).with_invalidate(STag(5)),
        SendWr::send(4, &one).solicited().with_invalidate(STag(5)),
        SendWr::write(5, &one, remote),
        SendWr::read(6, &one, remote),
    ];
    scene.node.ctx.post_sends(qp, &wrs).unwrap();
    let operations: Vec<u8> = wrs.iter().map(|_| scene.segment("a message")[1] & 0x0f).collect();
    assert_eq!(operations, [3, 5, 4, 6, 0, 1]);
    scene.peer.say(&fpdu(&terminate(&[0x20, 0x06, 0x03, 0x00])));
    assert_eq!(scene.terminated(), (false, Terminate { layer: 0, etype: 2, code: 6 }));
}

/// Q16: undefined operations, tagged and untagged, end the connection here as they do in siw.
#[test]
fn q16_an_operation_that_does_not_exist_is_refused_as_siw_does() {
    for operation in 12..16 {
        for segment in [untagged(operation, 0, 1, 0, b"what"), tagged(operation, 1, 0, b"what")] {
            let mut scene = Scene::new(|_| {});
            scene.called();
            scene.peer.say(&fpdu(&segment));
            assert_eq!(scene.terminated(), (true, Terminate { layer: 0, etype: 2, code: 6 }));
        }
    }
}

/// Q21: siw lets peers read what they may only write; this stack does not. A Write without the
/// right gets the code that siw uses too, because DDP has none of its own.
#[test]
fn q21_rights_that_siw_ignores_are_checked_here() {
    let refused = |access: Access, ask: &dyn Fn(&Region) -> Vec<u8>, code: (u8, u8, u8)| {
        let mut scene = Scene::new(|_| {});
        scene.called();
        let secret = scene.node.ctx.register(scene.node.pd, vec![0x5e; 64], access).unwrap();
        scene.peer.say(&fpdu(&ask(&secret)));
        let (layer, etype, code) = code;
        assert_eq!(scene.terminated(), (true, Terminate { layer, etype, code }));
        assert_eq!(contents(&secret), [0x5e; 64]);
        let told = scene.segment("the Terminate");
        assert!(!told.windows(2).any(|octets| octets == [0x5e, 0x5e]), "the secret: {told:02x?}");
    };
    let read = |secret: &Region| read_request(1, (1, 0), 64, place(secret));
    refused(Access::LOCAL_WRITE | Access::REMOTE_WRITE, &read, (0, 1, 2));
    refused(Access::LOCAL_WRITE, &read, (0, 1, 2));
    let write = |secret: &Region| tagged(0, secret.stag().0, secret.base_to(), b"mine");
    refused(Access::LOCAL_WRITE | Access::REMOTE_READ, &write, (1, 1, 0));
}

/// Q21: the stack understands a peer that reports a missing right in this way.
#[test]
fn q21_a_missing_right_is_reported_as_an_invalid_tag() {
    let mut scene = Scene::new(|_| {});
    let (qp, _) = scene.called();
    let remote = RemoteMemory { stag: STag(0x77), tagged_offset: 5 };
    scene.node.ctx.post_send(qp, &SendWr::write_inline(8, b"denied", remote)).unwrap();
    let written = scene.segment("the Write");
    scene.peer.say(&fpdu(&terminate(&[&[0x11, 0x00, 0x03, 0, 0, 20][..], &written[..14]].concat())));
    assert_eq!(scene.terminated(), (false, Terminate { layer: 1, etype: 1, code: 0 }));
    let receive = |scene: &Scene| scene.node.completions.iter().find(|done| done.wr_id == 1).copied();
    scene.until("the flush", |scene| receive(scene).is_some());
    assert_eq!(receive(&scene).unwrap().status, CompletionStatus::FlushedInError);
}
