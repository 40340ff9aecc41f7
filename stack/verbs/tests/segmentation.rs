//! Start-up frames and first FPDUs, divided among TCP segments at every octet (RFC 5044 s5.1, s6,
//! s7.1.2; RFC 6581 s6).
//!
//! A receiver cannot rely on segmentation. Linux siw sends its reply and its first FPDU in one
//! segment, and a device between two hosts may cut anywhere.

use crate::common;

use common::contents;
use common::messages::{NODE, crc, fpdu, reply, request, send};
use common::peer::{PEER, Scene};
use ironwarp::{CompletionStatus, ConnectParams, Event, MpaRevision, QueuePair, RecvWr, Region, RtrKinds};

const SAID: &[u8] = b"first words";

/// An initiator of each kind: its parameters, the length of its request, and the reply that it
/// receives.
struct Caller {
    params: ConnectParams<'static>,
    markers: bool,
    request_bytes: usize,
    reply: Vec<u8>,
    /// Octets of the indication that the initiator sends.
    indication_bytes: usize,
}

fn callers() -> [Caller; 4] {
    let one = ConnectParams { revision: Some(MpaRevision::One), ..Default::default() };
    let two = ConnectParams { peer_to_peer: Some(false), ..Default::default() };
    let peer_to_peer = ConnectParams { rtr: Some(RtrKinds::WRITE), ..Default::default() };
    let caller = |params, markers, request_bytes, reply, indication_bytes| Caller {
        params,
        markers,
        request_bytes,
        reply,
        indication_bytes,
    };
    [
        caller(one, false, 20, reply(0x40, 1, b"private"), 0),
        caller(one, true, 20, reply(0x40, 1, b"private"), 0),
        caller(two, false, 24, reply(0x50, 2, b"\x00\x10\x00\x10private"), 0),
        caller(peer_to_peer, false, 24, reply(0x50, 2, b"\x80\x10\x80\x10private"), 20),
    ]
}

/// The first FPDU of a stream, behind its marker if markers are in use.
fn first_fpdu(markers: bool) -> Vec<u8> {
    let plain = fpdu(&send(1, SAID));
    if !markers {
        return plain;
    }
    let covered = [&[0; 4][..], &plain[..plain.len() - 4]].concat();
    [&covered[..], &crc(&covered)].concat()
}

fn with_receive(scene: &mut Scene) -> (QueuePair, Region) {
    let (qp, inbox) = (scene.qp(), scene.node.memory(&[0; SAID.len()]));
    scene.node.ctx.post_recv(qp, &RecvWr::new(1, &[inbox.slice(0, SAID.len() as u32).unwrap()])).unwrap();
    (qp, inbox)
}

/// The peer sends `octets` in the pieces that `cuts` define. It sends each piece after the node has
/// received the one before.
fn say_in_pieces(scene: &mut Scene, octets: &[u8], cuts: impl IntoIterator<Item = usize>) {
    let mut from = 0;
    for cut in cuts.into_iter().chain([octets.len()]) {
        scene.peer.say(&octets[from..cut]);
        scene.until("the transmission", |scene| scene.peer.has_said_all());
        scene.turns(3);
        from = cut;
    }
}

#[track_caller]
fn is_received(scene: &mut Scene, inbox: &Region) {
    scene.until("the message", |scene| !scene.node.completions.is_empty());
    assert_eq!(scene.node.completions[0].status, CompletionStatus::Success);
    assert_eq!(contents(inbox), SAID);
}

/// A node connects. The reply and the first FPDU arrive together, cut into pieces by `cuts`.
#[track_caller]
fn hears_the_reply(caller: &Caller, cuts: impl FnOnce(usize) -> Vec<usize>) {
    let mut scene = Scene::new(|config| config.mpa.markers = caller.markers);
    let (qp, inbox) = with_receive(&mut scene);
    scene.node.ctx.connect_with(qp, PEER.parse().unwrap(), &caller.params).unwrap();
    scene.hear("the request", caller.request_bytes);
    let octets = [&caller.reply[..], &first_fpdu(caller.markers)].concat();
    let cuts = cuts(octets.len());
    say_in_pieces(&mut scene, &octets, cuts);
    let private_data = scene.event("established", |event| match event {
        Event::Established { private_data, .. } => Some(private_data.to_vec()),
        _ => None,
    });
    assert_eq!(private_data, b"private");
    is_received(&mut scene, &inbox);
    assert_eq!(scene.peer.connections, 1, "the node connected again");
    scene.hear("the indication", caller.indication_bytes);
}

/// RFC 5044 s7.1.2, rule 3: the reply and the FPDU behind it, cut once at every octet of both.
#[test]
fn a_reply_and_the_first_fpdu_are_cut_at_every_octet() {
    for caller in callers() {
        let bytes = caller.reply.len() + first_fpdu(caller.markers).len();
        for cut in 1..bytes {
            hears_the_reply(&caller, |_| vec![cut]);
        }
    }
}

/// The same in segments of one octet each, and in one segment.
#[test]
fn a_reply_and_the_first_fpdu_come_octet_by_octet_or_at_once() {
    for caller in callers() {
        hears_the_reply(&caller, |bytes| (1..bytes).collect());
        hears_the_reply(&caller, |_| Vec::new());
    }
}

/// A peer connects and sends `request` in pieces, then its first FPDU in pieces.
#[track_caller]
fn is_called(markers: bool, request: &[u8], cuts: &[usize], fpdu_cuts: &[usize]) {
    let mut scene = Scene::new(|config| config.mpa.markers = markers);
    scene.node.ctx.listen(NODE.parse().unwrap()).unwrap();
    scene.turn();
    scene.peer.connect(NODE);
    scene.until("the connection", |scene| scene.peer.connections == 1);
    say_in_pieces(&mut scene, request, cuts.iter().copied());
    scene.until("the request", |scene| !scene.node.events.is_empty());
    let Event::ConnectRequest { request: asked, private_data, .. } = scene.node.events.remove(0) else {
        panic!()
    };
    assert_eq!(&private_data[..], b"private");
    let (qp, inbox) = with_receive(&mut scene);
    scene.node.ctx.accept(asked, qp, b"").unwrap();
    scene.until("the reply", |scene| !scene.peer.heard.is_empty());
    say_in_pieces(&mut scene, &first_fpdu(markers), fpdu_cuts.iter().copied());
    is_received(&mut scene, &inbox);
    assert!(scene.node.is_established(qp), "{:?}", scene.node.events);
}

/// RFC 5044 s7.1.2, rules 2 and 4: requests of both revisions, and the first FPDU, after which the
/// responder may send. Each is cut once at every octet, and octet by octet.
#[test]
fn a_request_and_the_first_fpdu_are_cut_at_every_octet() {
    let requests = [
        (false, request(0x40, 1, b"private")),
        (true, request(0x40, 1, b"private")),
        (false, request(0x50, 2, b"\x00\x10\x00\x10private")),
        (false, request(0x50, 2, b"\xc0\x10\xc0\x10private")),
    ];
    for (markers, request) in &requests {
        let fpdu_bytes = first_fpdu(*markers).len();
        for cut in 1..request.len().max(fpdu_bytes) {
            let within = |bytes: usize| 1 + (cut - 1) % (bytes - 1);
            is_called(*markers, request, &[within(request.len())], &[within(fpdu_bytes)]);
        }
        let every = |bytes| (1..bytes).collect::<Vec<_>>();
        is_called(*markers, request, &every(request.len()), &every(fpdu_bytes));
    }
}
