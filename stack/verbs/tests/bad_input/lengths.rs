//! Every length from nothing to beyond the longest: messages, headers, start-up frames (RFC 5044 s4.1, s7.1.1, RFC 5041
//! s7.1, RFC 5040 s4.4, s4.8).

use ironwarp::{CompletionStatus, DisconnectReason, Event, RecvWr, Terminate};
use ironwarp_tcp::TcpEvents;

use crate::bench::{BUFFER, Begins, Bench, RECEIVE};
use crate::common::contents;
use crate::common::peer::Scene;
use crate::common::speech::{self, NODE, fpdu, place, read_request, request, send, tagged, untagged};

/// The longest ULPDU that the length field can say.
const ULPDU_MAX: usize = 65_535;

/// RFC 5041 s7.1, untagged check 4: what fits is delivered with its length, one octet more is not placed at all.
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

/// The same where the second segment is the one that passes the end, at every place of the cut.
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

/// RFC 5044 s4.1: the longest FPDU there is. It is one segment of a message like any other where there is room for it.
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

/// RFC 5041 s7.2: a ULPDU that ends within its own header, as it comes without an indication awaited.
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

/// RFC 5040 s4.4: a Read Request's payload is one header. More does not fit the buffer of queue 1, less is none.
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
                assert_eq!(bench.scene.segment("the answer"), tagged(2, 5, 6, &[0xb0]));
                bench.scene.peer.close();
                bench.is_over(victim, DisconnectReason::Closed);
            }
            0..28 => bench.ends_with(victim, "RDMAP: unspecified operation error", &segment),
            _ => bench.ends_with(victim, "DDP: message too long", &segment),
        }
    }
}

/// RFC 5040 s4.8, s5.4: a Terminate is taken however much it shows; one that names no error is none.
#[test]
fn terminates_of_every_length() {
    let mut bench = Bench::new();
    for bytes in (0..80).chain([1000, 1400]) {
        let victim = bench.victim(Begins::Peer);
        let mut header = vec![0x12, 2, 0xc0, 0];
        header.resize(bytes.max(4), 0xff);
        header.truncate(bytes);
        let segment = speech::terminate(&header);
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

/// RFC 5044 s7.1.1, RFC 6581 s9: private data of every length up to 512 octets is a request; a frame that says that
/// it has more, or less than its enhanced data, closes TCP before the rest has come. Nothing is said to it.
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

/// TCP is closed at once, and neither the peer nor our application is told anything.
#[track_caller]
fn is_let_go(scene: &mut Scene) {
    scene.until("the end", |scene| scene.peer.events.intersects(TcpEvents::OVER | TcpEvents::PEER_CLOSED));
    assert!(scene.peer.heard.is_empty() && scene.node.events.is_empty());
    scene.peer.reset();
    scene.peer.events = TcpEvents::empty();
}
