//! Each FPDU vector as a fake peer sends it, and what our node then does.

use ironwarp::{
    Access, AlignedBuf, AtomicOp, CompletionFlags, CompletionOpcode, CompletionStatus, ConnectParams,
    MpaRevision, QueuePair, RecvWr, Region, RemoteMemory, RtrKinds, STag, SendWr, Terminate,
};

use crate::common::contents;
use crate::common::messages::{place, reply, request};
use crate::common::peer::{PEER, Scene};
use crate::golden::vector::{Vector, named};

/// A node that connected to a peer in revision 1 and is in full operation, with the framing of the
/// vector's stream.
fn caller(vector: &Vector) -> (Scene, QueuePair) {
    let mut scene = Scene::new(|config| {
        (config.mpa.crc, config.mpa.markers) = (vector.crc, vector.markers);
        config.rdmap.extensions = vector.extensions;
    });
    let qp = scene.qp();
    let params = ConnectParams { revision: Some(MpaRevision::One), ..Default::default() };
    scene.node.ctx.connect_with(qp, PEER.parse().unwrap(), &params).unwrap();
    scene.hear("the request", 20);
    scene.peer.say(&reply(0x40 * u8::from(vector.crc), 1, b""));
    scene.negotiated();
    (scene, qp)
}

fn say(scene: &mut Scene, vector: &Vector) {
    vector.fpdus().iter().for_each(|fpdu| scene.peer.say(fpdu));
}

/// Makes the region whose tag a message invalidates.
type MakeRegion<'a> = &'a dyn Fn(&Scene, QueuePair) -> Region;

/// A peer sends the messages of `name`. Each payload must be placed in a receive of its own.
/// Returns the flags of the first completion.
#[track_caller]
fn delivers(name: &str, messages: &[&[u8]], tag: Option<MakeRegion<'_>>) -> CompletionFlags {
    let vector = named(name);
    let (mut scene, qp) = caller(&vector);
    let region = tag.map(|make| make(&scene, qp));
    let stag = region.as_ref().map_or(STag(0), Region::stag);
    let vector = if region.is_some() { vector.with("inv_stag", stag.0.into()) } else { vector };
    let inboxes: Vec<Region> =
        messages.iter().map(|message| scene.node.memory(&vec![0xee; message.len() + 1])).collect();
    for (wr_id, inbox) in inboxes.iter().enumerate() {
        let scatter = [inbox.slice(0, inbox.len() as u32 - 1).unwrap()];
        scene.node.ctx.post_recv(qp, &RecvWr::new(wr_id as u64, &scatter)).unwrap();
    }
    say(&mut scene, &vector);
    scene.until(name, |scene| scene.node.completions.len() == messages.len());
    for (wr_id, ((inbox, message), done)) in
        inboxes.iter().zip(messages).zip(&scene.node.completions).enumerate()
    {
        assert_eq!((done.wr_id, done.status), (wr_id as u64, CompletionStatus::Success), "{name}");
        assert_eq!((done.byte_len as usize, done.invalidated), (message.len(), stag), "{name}");
        assert!(contents(inbox) == [message, &[0xee][..]].concat(), "{name}");
    }
    scene.node.completions[0].flags
}

/// RFC 5044 s4.1 to s4.4: markers and CRCs at every possible position, padding of every length.
#[test]
fn framing() {
    for (name, messages) in [
        ("figure 5", &[&[0; 24][..]][..]),
        ("marker before the crc", &[&[0x33; 488]]),
        ("marker behind the crc", &[&[0x44; 484], b"next"]),
        ("markers within", &[&[0x55; 1100]]),
        ("no crc", &[b"abc"]),
        ("no crc, markers", &[b"abc"]),
        ("padding", &[b"\xf1", b"\xf1\xf2", b"\xf1\xf2\xf3", b"\xf1\xf2\xf3\xf4"]),
    ] {
        delivers(name, messages, None);
    }
}

/// RFC 5044 s4.4, figure 6: the Write before the example is placed, and both Sends are delivered.
#[test]
fn the_second_example() {
    let vector = named("figure 6");
    let (mut scene, qp) = caller(&vector);
    let (inbox, target) = (scene.node.memory(&[0xee; 24]), scene.node.memory(&[0; 420]));
    for wr_id in 1..=2 {
        scene.node.ctx.post_recv(qp, &RecvWr::new(wr_id, &[inbox.slice(0, 24).unwrap()])).unwrap();
    }
    let (stag, to) = place(&target);
    say(&mut scene, &vector.with("stag", stag.into()).with("to", to));
    scene.until("both Sends", |scene| scene.node.completions.len() == 2);
    assert_eq!((contents(&inbox), contents(&target)), (vec![0; 24], vec![0x77; 420]));
}

/// RFC 5040 s5.3: the completion flags of each kind of Send.
#[test]
fn sends_of_the_four_kinds() {
    let own: MakeRegion<'_> =
        &|scene, qp| scene.node.ctx.register_for_qp(qp, vec![0u8; 8], Access::REMOTE_READ).unwrap();
    let (none, solicited, invalidated) =
        (CompletionFlags::empty(), CompletionFlags::SOLICITED, CompletionFlags::INVALIDATED);
    for (name, message, flags) in [
        ("send", &b"iwarp"[..], none),
        ("send solicited", b"iwarp", solicited),
        ("send invalidate", b"iwarp", invalidated),
        ("send solicited invalidate", b"iwarp", solicited | invalidated),
        ("send empty", b"", none),
        ("send solicited empty", b"", solicited),
        ("send invalidate empty", b"", invalidated),
        ("send solicited invalidate empty", b"", solicited | invalidated),
        ("send in two segments", &[0xaa; 1524], invalidated),
    ] {
        let tag = flags.contains(invalidated).then_some(own);
        assert_eq!(delivers(name, &[message], tag), flags, "{name}");
    }
}

/// RFC 5040 s5.1, RFC 5041 s5.2: a Write is placed at its address. The tag of an empty Write is not
/// checked.
#[test]
fn writes() {
    for (name, octets) in
        [("write", &b"iwarp"[..]), ("write empty", b""), ("write in three segments", &[0xbb; 3000])]
    {
        let vector = named(name);
        let (mut scene, _) = caller(&vector);
        let target = scene.node.memory(&vec![0xee; octets.len() + 1]);
        let (stag, to) = place(&target);
        let vector = if octets.is_empty() { vector } else { vector.with("stag", stag.into()).with("to", to) };
        say(&mut scene, &vector);
        scene.until(name, |scene| scene.node.counter("iwarp_rx_writes") == 1);
        assert!(contents(&target) == [octets, &[0xee]].concat(), "{name}");
        assert!(
            scene.node.completions.is_empty() && scene.node.events.is_empty(),
            "no event and no completion"
        );
    }
}

/// RFC 5040 s5.2.1: a Read Request gets its response. The tag of an empty Read is not checked.
#[test]
fn read_requests() {
    for (name, bytes) in [("read request", 5), ("read request empty", 0), ("read request long", 1500)] {
        let vector = named(name);
        let (mut scene, _) = caller(&vector);
        let source = scene.node.memory(&vec![0xcc; bytes.max(1)]);
        let (stag, to) = place(&source);
        let vector =
            if bytes == 0 { vector } else { vector.with("source_stag", stag.into()).with("source_to", to) };
        say(&mut scene, &vector);
        let heard = scene.hear(name, 20 + bytes);
        assert_eq!(heard[2..4], [if bytes > 1428 { 0x81 } else { 0xc1 }, 0x42]);
        assert_eq!(scene.node.counter("iwarp_rx_read_requests"), 1);
    }
}

/// RFC 5040 s5.2.2: the response to our Read is placed in its sink, and the Read completes.
#[test]
fn read_responses() {
    for (name, octets) in [
        ("read response", &b"iwarp"[..]),
        ("read response empty", b""),
        ("read response in two segments", &[0xcc; 1500]),
    ] {
        let vector = named(name);
        let (mut scene, qp) = caller(&vector);
        let sink = scene.node.memory(&vec![0xee; octets.len() + 1]);
        let remote = RemoteMemory { stag: STag(1), tagged_offset: 0 };
        let into = [sink.slice(0, octets.len() as u32).unwrap()];
        scene.node.ctx.post_send(qp, &SendWr::read(9, &into, remote)).unwrap();
        scene.hear("the request", 52);
        let (stag, to) = place(&sink);
        say(&mut scene, &vector.with("stag", stag.into()).with("to", to));
        scene.until(name, |scene| scene.node.completions.len() == 1);
        let done = scene.node.completions[0];
        assert_eq!((done.wr_id, done.status), (9, CompletionStatus::Success));
        assert_eq!(done.byte_len as usize, octets.len());
        assert!(contents(&sink) == [octets, &[0xee]].concat(), "{name}");
    }
}

/// RFC 6581 s9.2: each kind of indication establishes the connection, and the application does not
/// see it.
#[test]
fn indications() {
    for (name, asked) in [
        ("rtr send", [0xc0, 16, 0, 16]),
        ("rtr write", [0x80, 16, 0x80, 16]),
        ("rtr read", [0x80, 16, 0x40, 16]),
    ] {
        let mut scene = Scene::new(|_| {});
        scene.answers(&request(0x50, 2, &asked), 24);
        scene.turns(50);
        assert!(scene.node.events.is_empty(), "{name}: an event before the indication");
        scene.peer.say(&named(name).octets);
        scene.negotiated();
        assert!(scene.node.completions.is_empty(), "{name}");
        assert_eq!(scene.node.counter("iwarp_rx_rtrs"), 1, "{name}");
    }
}

/// RFC 6581 s9.2: the response to an indication by Read completes no work request. The next message
/// is received.
#[test]
fn the_response_to_an_rtr_by_read() {
    let mut scene = Scene::new(|_| {});
    let qp = scene.qp();
    let params = ConnectParams { rtr: Some(RtrKinds::READ), ..Default::default() };
    scene.node.ctx.connect_with(qp, PEER.parse().unwrap(), &params).unwrap();
    scene.hear("the request", 24);
    scene.peer.say(&reply(0x50, 2, &[0x80, 16, 0x40, 16]));
    scene.negotiated();
    scene.hear("the indication", 52);
    let inbox = scene.node.memory(&[0; 64]);
    scene.node.ctx.post_recv(qp, &RecvWr::new(1, &[inbox.slice(0, 64).unwrap()])).unwrap();
    scene.peer.say(&named("rtr read answer").octets);
    scene.peer.say(&named("send").octets);
    scene.received(&inbox, b"iwarp");
    assert_eq!(scene.node.completions.len(), 1);
}

/// RFC 5040 s5.4: every form of Terminate is understood and reported, and gets no reply.
#[test]
fn terminates() {
    for name in [
        "terminate local catastrophic",
        "terminate crc",
        "terminate marker",
        "terminate startup local",
        "terminate insufficient ird",
        "terminate no matching rtr",
        "terminate short segment",
        "terminate marked",
        "terminate no crc",
        "terminate tagged buffer",
        "terminate untagged buffer",
        "terminate tagged operation",
        "terminate untagged operation",
        "terminate read request",
        "terminate send invalidate",
        "terminate misaligned",
        "terminate atomic tag",
        "terminate atomic code",
        "terminate atomic not there",
        "terminate immediate not there",
        "terminate immediate long",
        "terminate atomic response",
    ] {
        let vector = named(name);
        let (mut scene, _) = caller(&vector);
        say(&mut scene, &vector);
        let [layer, etype, code] = ["layer", "etype", "code"].map(|field| vector.number(field) as u8);
        assert_eq!(scene.terminated(), (false, Terminate { layer, etype, code }), "{name}");
        scene.until("FIN", |scene| scene.peer.events.contains(ironwarp_tcp::TcpEvents::PEER_CLOSED));
        assert!(scene.peer.heard.is_empty(), "{name}: octets after the Terminate: {:02x?}", scene.peer.heard);
    }
}

/// RFC 7306 s6.1, s6.3: Immediate Data of both kinds is delivered in order and consumes a receive,
/// whose memory it does not change.
#[test]
fn immediates() {
    let (none, solicited) = (CompletionFlags::empty(), CompletionFlags::SOLICITED);
    let (octets, nothing) = (*b"8 octets", [0; 8]);
    for (name, told) in [
        ("immediate", &[(octets, none)][..]),
        ("immediate solicited", &[(octets, solicited)]),
        ("immediates among sends", &[([0xa1; 8], none), (nothing, none), ([0xa3; 8], solicited)]),
        ("immediate by figure 2", &[(octets, none)]),
        ("immediate solicited by figure 2", &[(octets, solicited)]),
    ] {
        let vector = named(name);
        let (mut scene, qp) = caller(&vector);
        let inbox = scene.node.memory(&[0xee; 8]);
        for wr_id in 0..told.len() as u64 {
            scene.node.ctx.post_recv(qp, &RecvWr::new(wr_id, &[inbox.slice(0, 8).unwrap()])).unwrap();
        }
        say(&mut scene, &vector);
        scene.until(name, |scene| scene.node.completions.len() == told.len());
        for (wr_id, (done, (octets, flags))) in scene.node.completions.iter().zip(told).enumerate() {
            let is_send = *octets == nothing;
            let opcode = if is_send { CompletionOpcode::Receive } else { CompletionOpcode::ReceiveImmediate };
            assert_eq!((done.wr_id, done.status), (wr_id as u64, CompletionStatus::Success), "{name}");
            assert_eq!((done.opcode, done.flags, done.immediate), (opcode, *flags, *octets), "{name}");
        }
        let want: &[u8] = if told.len() > 1 { b"iwarp\xee\xee\xee" } else { &[0xee; 8] };
        assert_eq!(contents(&inbox), want, "{name}");
    }
}

/// A region of the node with `value` in the first word of its page.
fn word(scene: &Scene, value: u64) -> Region {
    let mut page = AlignedBuf::pages(4096).unwrap();
    page[..8].copy_from_slice(&value.to_ne_bytes());
    let rights = Access::LOCAL_WRITE | Access::REMOTE_READ | Access::REMOTE_ATOMIC;
    scene.node.ctx.register(scene.node.pd, page, rights).unwrap()
}

fn value(region: &Region) -> u64 {
    u64::from_ne_bytes(contents(region)[..8].try_into().unwrap())
}

/// RFC 7306 s5.1, s5.2.1: the effect of each Atomic Request on its word. The responses are among
/// the vectors of `sent`. RFC7306-1.1-01: all operations are supported; RFC7306-5.2.1-12: none
/// raises an event.
#[test]
fn atomic_requests() {
    for (name, before, after) in [
        ("fetch add", 1, 0x0102_0304_0506_0709),
        // Fields end at bits 7, 15, 31 and 63; the carries out of the three lower ones are lost.
        ("fetch add with fields", 0x0000_0001_0001_0101, 0x0000_0002_0000_0000),
        ("cmp swap", 0x7733_7733_7744_7744, 0x1111_7733_2222_7744),
        // One of the compared bits differs.
        ("cmp swap", 0x7733_7733_7744_7745, 0x7733_7733_7744_7745),
        ("fetch add, marked", u64::MAX, 0),
        ("cmp swap, no crc", 0, 1),
        ("swap", 9, 0x0102_0304_0506_0708),
        ("swap by draft 01", 9, 0x0102_0304_0506_0708),
    ] {
        let vector = named(name);
        let (mut scene, _) = caller(&vector);
        let target = word(&scene, before);
        let (stag, to) = place(&target);
        say(&mut scene, &vector.with("remote_stag", stag.into()).with("remote_to", to));
        let answer = scene.hear(name, 36);
        assert_eq!(
            (&answer[..4], &answer[24..32]),
            (&[0, 30, 0x41, 0x4b][..], &before.to_be_bytes()[..]),
            "{name}"
        );
        assert_eq!(value(&target), after, "{name}");
        assert_eq!(contents(&target)[8..16], [0; 8], "{name}");
        assert_eq!(scene.node.counter("iwarp_rx_atomic_requests"), 1, "{name}");
        assert!(scene.node.completions.is_empty() && scene.node.events.is_empty(), "{name}");
    }
}

/// RFC 7306 s5.2: Reads, Atomics and, by figure 2 of draft -01, solicited immediates share one
/// sequence of numbers on queue 1.
#[test]
fn requests_of_several_kinds_on_one_queue() {
    let vector = named("atomic behind a read");
    let (mut scene, _) = caller(&vector);
    let target = word(&scene, 1);
    let (stag, to) = place(&target);
    let vector = vector.with("remote_stag", stag.into()).with("remote_to", to);
    say(&mut scene, &vector.with("source_stag", stag.into()).with("source_to", to));
    let answers = [scene.segment("the Read Response"), scene.segment("the Atomic Response")];
    assert_eq!(answers.map(|answer| answer[1]), [0x42, 0x4b]);
    assert_eq!(value(&target), 2);

    let vector = named("solicited immediate behind an atomic, by figure 2");
    let (mut scene, qp) = caller(&vector);
    let target = word(&scene, 1);
    scene.node.ctx.post_recv(qp, &RecvWr::new(1, &[])).unwrap();
    let (stag, to) = place(&target);
    say(&mut scene, &vector.with("remote_stag", stag.into()).with("remote_to", to));
    scene.until("the immediate", |scene| !scene.node.completions.is_empty());
    assert_eq!((scene.node.completions[0].immediate, scene.segment("the answer")[1]), (*b"8 octets", 0x4b));
    assert_eq!(value(&target), 2);
}

/// RFC 7306 s5.2.2: an Atomic Response completes the oldest request. The previous value of the word
/// is in its sink, in this machine's octet order.
#[test]
fn atomic_responses() {
    for (name, values) in [
        ("atomic response", &[0x0102_0304_0506_0708][..]),
        ("atomic responses", &[0x1001, 0x1002]),
        ("atomic response by figure 2", &[0x0102_0304_0506_0708]),
    ] {
        let vector = named(name);
        let (mut scene, qp) = caller(&vector);
        let before = scene.node.memory(&[0xee; 24]);
        let remote = RemoteMemory { stag: STag(1), tagged_offset: 0 };
        for at in 0..values.len() {
            let sink = [before.slice(at * 8, 8).unwrap()];
            let add = AtomicOp::add(1);
            scene.node.ctx.post_send(qp, &SendWr::atomic(at as u64, &sink, remote, &add)).unwrap();
        }
        scene.hear("the requests", values.len() * 76);
        say(&mut scene, &vector);
        scene.until(name, |scene| scene.node.completions.len() == values.len());
        for (at, done) in scene.node.completions.iter().enumerate() {
            assert_eq!((done.wr_id, done.status), (at as u64, CompletionStatus::Success), "{name}");
            assert_eq!((done.opcode, done.byte_len), (CompletionOpcode::FetchAdd, 8), "{name}");
        }
        let want: Vec<u8> = values.iter().flat_map(|value: &u64| value.to_ne_bytes()).collect();
        assert_eq!(contents(&before), [&want[..], &vec![0xee; 24 - want.len()]].concat(), "{name}");
    }
}
