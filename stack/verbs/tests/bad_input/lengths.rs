//! Every length from zero to beyond the longest: messages, headers, start-up frames (RFC 5044 s4.1,
//! s7.1.1, RFC 5041 s7.1, RFC 5040 s4.4, s4.8).

use ironwarp::{CompletionStatus, ConnectParams, DisconnectReason, Event, MpaRevision, RecvWr, Terminate};
use ironwarp_tcp::TcpEvents;

use crate::bad_input::bench::{BUFFER, Begins, Bench, RECEIVE};
use crate::bad_input::codes;
use crate::common::contents;
use crate::common::messages::{
    self, NODE, fpdu, place, read_request, reply, request, send, tagged, untagged,
};
use crate::common::peer::{PEER, Scene};

/// The longest ULPDU that the length field can express.
const ULPDU_MAX: usize = 65_535;

/// RFC 5041 s7.1, untagged check 4: a message that fits is delivered with its length. If it is one
/// octet longer, nothing of it is placed.
#[test]
fn sends_of_every_length() {
    let mut bench = Bench::new();
    for bytes in 0..RECEIVE + 20 {
        let message = send(1, &vec![0x5a; bytes]);
        if bytes > RECEIVE {
            bench.refuses(Begins::Peer, "DDP: message too long", |_| message);
            continue;
        }
        let victim = bench.victim(Begins::Peer);
        bench.says(&[message]);
        bench.scene.until("the message", |scene| !scene.node.completions.is_empty());
        let done = bench.scene.node.completions[0];
        assert_eq!((done.byte_len as usize, done.status), (bytes, CompletionStatus::Success));
        assert_eq!(contents(&victim.inbox), [vec![0x5a; bytes], vec![0x1b; RECEIVE - bytes]].concat());
        bench.scene.peer.close();
        bench.is_over(victim, DisconnectReason::Closed);
    }
}

/// The same with a second segment that passes the end, at every offset of the cut.
#[test]
fn sends_that_grow_too_long() {
    let mut bench = Bench::new();
    for first in 0..=RECEIVE {
        let victim = bench.victim(Begins::Node);
        let mut head = send(1, &vec![0x1b; first]);
        head[0] = 0x01;
        let tail = untagged(3, 0, 1, first as u32, &vec![0xff; RECEIVE + 1 - first]);
        bench.says(&[head, tail.clone()]);
        bench.ends_with(victim, "DDP: message too long", &tail);
    }
}

/// RFC 5044 s4.1: the longest possible FPDU. If there is room, it is a segment of a message like
/// any other.
#[test]
fn the_longest_fpdu() {
    let payload = ULPDU_MAX - 18;
    let message = send(1, &vec![0x77; payload]);
    let mut bench = Bench::new();
    let victim = bench.victim(Begins::Peer);
    fpdu(&message).chunks(1400).for_each(|piece| bench.scene.peer.say(piece));
    bench.ends_with(victim, "DDP: message too long", &message);
    let mut scene = Scene::new(|_| {});
    let (qp, _inbox) = scene.called();
    let large = scene.node.memory(&vec![0; payload + 1]);
    scene.node.ctx.post_recv(qp, &RecvWr::new(2, &[large.slice(0, payload as u32).unwrap()])).unwrap();
    scene.peer.say(&fpdu(&send(1, b"")));
    fpdu(&send(2, &message[18..])).chunks(1400).for_each(|piece| scene.peer.say(piece));
    scene.until("both", |scene| scene.node.completions.len() == 2);
    assert_eq!(scene.node.completions[1].byte_len as usize, payload);
    assert!(contents(&large) == [vec![0x77; payload], vec![0]].concat());
}

/// Returns FPDUs from the start of a stream, with markers (RFC 5044 s4.2, s4.3). Also returns
/// whether each marker can express the distance back to its FPDU. A marker that cannot has the low
/// 16 bits of the distance.
fn marked(ulpdus: &[Vec<u8>]) -> (Vec<u8>, bool) {
    let (mut stream, mut right) = (Vec::new(), true);
    for ulpdu in ulpdus {
        let (begin, mut length_at) = (stream.len(), None);
        for word in fpdu(ulpdu).chunks(4) {
            if stream.len() % 512 == 0 {
                let back = length_at.map_or(0, |at| stream.len() - at);
                right &= back <= 0xffff;
                stream.extend([[0; 2], (back as u16).to_be_bytes()].concat());
            }
            length_at.get_or_insert(stream.len());
            stream.extend(word);
        }
        let end = stream.len() - 4;
        let sum = messages::crc(&stream[begin..end]);
        stream[end..].copy_from_slice(&sum);
    }
    (stream, right)
}

/// RFC 5044 s4.2, s4.5: with at most 64 768 octets of ULPDU, all markers of an FPDU can point to
/// its start. A longer FPDU is accepted as long as they still can, and the FPDU behind it is
/// received as usual. If a marker cannot, it is an error.
#[test]
fn marked_fpdus_longer_than_any_mulpdu() {
    let (mut delivered, mut refused) = (0, 0);
    for bytes in (64_768..64_772).chain((64_800..65_535).step_by(61)).chain(65_520..=ULPDU_MAX) {
        let payload = bytes - 18;
        let octets: Vec<u8> = (0..payload).map(|at| (at % 251) as u8).collect();
        let (stream, right) = marked(&[send(1, &octets), send(2, b"behind")]);
        let mut scene = Scene::new(|config| config.mpa.markers = true);
        let qp = scene.qp();
        let (large, small) = (scene.node.memory(&vec![0; payload + 1]), scene.node.memory(&[0; 6]));
        for (wr_id, scatter) in
            [(1, large.slice(0, payload as u32).unwrap()), (2, small.slice(0, 6).unwrap())]
        {
            scene.node.ctx.post_recv(qp, &RecvWr::new(wr_id, &[scatter])).unwrap();
        }
        let params = ConnectParams { revision: Some(MpaRevision::One), ..Default::default() };
        scene.node.ctx.connect_with(qp, PEER.parse().unwrap(), &params).unwrap();
        scene.hear("the request", 20);
        scene.peer.say(&reply(0x40, 1, b""));
        scene.negotiated();
        stream.chunks(1400).for_each(|piece| scene.peer.say(piece));
        if right {
            delivered += 1;
            scene.until("both", |scene| scene.node.completions.len() == 2);
            let told: Vec<_> =
                scene.node.completions.iter().map(|done| (done.status, done.byte_len as usize)).collect();
            let good = CompletionStatus::Success;
            assert_eq!(told, [(good, payload), (good, 6)], "{bytes} octets");
            assert!(contents(&large) == [octets, vec![0]].concat() && contents(&small) == b"behind");
        } else {
            refused += 1;
            assert_eq!(scene.segment("the Terminate"), codes::named("MPA: marker").terminate(&[]));
            scene.hears_fin();
            assert!(contents(&large) == vec![0; payload + 1] && contents(&small) == [0; 6]);
        }
    }
    assert!(delivered >= 5 && refused >= 5, "{delivered} delivered, {refused} refused");
}

/// RFC 5041 s7.2: a ULPDU that ends within its own header, on a connection that awaits no
/// indication.
#[test]
fn segments_shorter_than_their_header() {
    let mut bench = Bench::new();
    for (control, header) in [(0xc1, 14), (0x41, 18)] {
        for bytes in 0..header {
            let mut segment = vec![control, 0x43];
            segment.resize(bytes.max(2), 0);
            segment.truncate(bytes);
            bench.refuses(Begins::Peer, "DDP: local catastrophic", |_| segment);
        }
    }
}

/// RFC 5040 s4.4: the payload of a Read Request is one header. More does not fit the buffer of
/// queue 1; less is not a header.
#[test]
fn read_requests_of_every_length() {
    let mut bench = Bench::new();
    for bytes in 0..64 {
        let victim = bench.victim(Begins::Node);
        let mut segment = read_request(1, (5, 6), 1, place(&victim.buffer));
        segment.resize(18 + bytes, 0);
        bench.says(std::slice::from_ref(&segment));
        match bytes {
            28 => {
                assert_eq!(bench.scene.segment("the Read Response"), tagged(2, 5, 6, &[0xb0]));
                bench.scene.peer.close();
                bench.is_over(victim, DisconnectReason::Closed);
            }
            0..28 => bench.ends_with(victim, "RDMAP: unspecified operation error", &segment),
            _ => bench.ends_with(victim, "DDP: message too long", &segment),
        }
    }
}

/// RFC 5040 s4.8, s5.4: a Terminate may show any number of octets. Without an error code it is
/// invalid.
#[test]
fn terminates_of_every_length() {
    let mut bench = Bench::new();
    for bytes in (0..80).chain([1000, 1400]) {
        let victim = bench.victim(Begins::Peer);
        let mut header = vec![0x12, 2, 0xc0, 0];
        header.resize(bytes.max(4), 0xff);
        header.truncate(bytes);
        let segment = messages::terminate(&header);
        bench.says(std::slice::from_ref(&segment));
        if bytes < 4 {
            bench.ends_with(victim, "RDMAP: unspecified operation error", &segment);
        } else {
            let heard = (false, Terminate { layer: 1, etype: 2, code: 2 });
            assert_eq!(bench.scene.terminated(), heard, "{bytes} octets");
            bench.is_over(victim, DisconnectReason::Terminated);
        }
    }
}

/// RFC 5041 s7.1, tagged check 4: Writes that end at their buffer's last octet, and beyond it.
#[test]
fn writes_of_every_length_at_the_end_of_their_buffer() {
    let mut bench = Bench::new();
    for bytes in 1..40 {
        for beyond in [0, 1, 2] {
            let victim = bench.victim(Begins::Peer);
            let (stag, to) = place(&victim.buffer);
            let segment = tagged(0, stag, to + (BUFFER - bytes) as u64 + beyond, &vec![0xb0; bytes]);
            bench.says(std::slice::from_ref(&segment));
            if beyond > 0 {
                bench.ends_with(victim, "DDP: base or bounds", &segment);
                continue;
            }
            bench.says(&[send(1, b"")]);
            bench.scene.until("delivery", |scene| !scene.node.completions.is_empty());
            bench.scene.peer.close();
            bench.is_over(victim, DisconnectReason::Closed);
        }
    }
}

/// RFC 5044 s7.1.1, RFC 6581 s9: private data of every length up to 512 octets makes a valid
/// request. A frame that announces more, or less than its enhanced data, closes TCP before the rest
/// arrives. No reply is sent.
#[test]
fn private_data_of_every_length() {
    for (flags, revision, least) in [(0x40, 1, 0), (0x50, 2, 4)] {
        let mut scene = Scene::new(|_| {});
        scene.node.ctx.listen(NODE.parse().unwrap()).unwrap();
        scene.turn();
        let edges = [0, 1, 3, 4, 5, 511, 512];
        for bytes in edges.into_iter().chain((64..512).step_by(64)) {
            scene.peer.connect(NODE);
            scene.peer.say(&request(flags, revision, &vec![0; bytes]));
            if bytes < least {
                is_let_go(&mut scene);
                continue;
            }
            scene.until("the request", |scene| !scene.node.events.is_empty());
            let Event::ConnectRequest { private_data, .. } = scene.node.events.remove(0) else { panic!() };
            assert_eq!(private_data.len(), bytes - least);
            scene.peer.reset();
            scene.until("the end of the request", |scene| !scene.node.events.is_empty());
            assert!(matches!(scene.node.events.remove(0), Event::RequestEnded { .. }));
        }
        for bytes in [513u16, 514, 1024, 0x7fff, 0x8000, 0xffff] {
            let mut frame = request(flags, revision, b"");
            frame[18..].copy_from_slice(&bytes.to_be_bytes());
            scene.peer.connect(NODE);
            scene.peer.say(&frame);
            is_let_go(&mut scene);
        }
    }
}

/// TCP is closed at once, without a message to the peer and without an event.
#[track_caller]
fn is_let_go(scene: &mut Scene) {
    scene.until("the end", |scene| scene.peer.events.intersects(TcpEvents::ENDED | TcpEvents::PEER_CLOSED));
    assert!(scene.peer.heard.is_empty() && scene.node.events.is_empty());
    scene.peer.reset();
    scene.peer.events = TcpEvents::empty();
}
