//! Octets that arrive too early: behind a request without a reply, and start-up frames that arrive
//! twice.

use crate::common;

use common::messages::{EMPTY_WRITE, REQUEST, TAKES_WRITES, fpdu, reply, request};
use common::peer::Scene;
use ironwarp::{ConnectFailure, DisconnectReason, Event, Terminate};
use ironwarp_tcp::TcpEvents;

const STARTUP: Terminate = Terminate { layer: 2, etype: 0, code: 4 };

fn failed(event: &Event) -> Option<ConnectFailure> {
    if let Event::ConnectFailed { reason, .. } = event { Some(*reason) } else { None }
}

fn ended(event: &Event) -> Option<DisconnectReason> {
    if let Event::Disconnected { reason, .. } = event { Some(*reason) } else { None }
}

/// TCP has ended for the peer, and it has received no further octet.
fn is_closed(scene: &mut Scene) {
    let ends = TcpEvents::PEER_CLOSED | TcpEvents::RESET;
    scene.until("the end of TCP", |scene| scene.peer.events.intersects(ends));
    assert!(scene.peer.heard.is_empty(), "{:02x?}", scene.peer.heard);
    assert_eq!(scene.node.counter("iwarp_startup_errors"), 1);
}

/// RFC 5044 s7.1.1, s7.1.2, rule 9, s8, code 4: octets between the request and its reply belong to
/// no frame. They arrive with the request, before our application decides, or after it accepts and
/// before the reply is sent.
#[test]
fn bytes_before_our_reply_end_start_up_at_every_segmentation() {
    for early in [fpdu(&EMPTY_WRITE), request(0x40, 1, b""), vec![0]] {
        let asked = request(0x40, 1, b"");
        let mut scene = Scene::new(|_| {});
        scene.node.ctx.listen(common::messages::NODE.parse().unwrap()).unwrap();
        scene.turn();
        scene.peer.connect(common::messages::NODE);
        scene.peer.say(&[&asked[..], &early].concat());
        is_closed(&mut scene);
        assert!(scene.node.events.is_empty(), "unexpected events: {:?}", scene.node.events);

        let mut scene = Scene::new(|_| {});
        let (decision, _) = scene.is_asked(&asked);
        scene.peer.say(&early);
        is_closed(&mut scene);
        let qp = scene.qp();
        scene.node.ctx.accept(decision, qp, b"").unwrap();
        assert_eq!(scene.event("the late failure", failed), ConnectFailure::Closed);

        let mut scene = Scene::new(|_| {});
        let (decision, _) = scene.is_asked(&asked);
        let qp = scene.qp();
        // No frame is free for the reply.
        scene.control.allow_allocations(0);
        scene.node.ctx.accept(decision, qp, b"").unwrap();
        scene.turns(10);
        scene.peer.say(&early);
        assert_eq!(scene.event("the failure", failed), ConnectFailure::Protocol);
        scene.control.allow_allocations(u64::MAX);
        // The reset found no free frame either. The reset goes out when the peer's next segment
        // arrives.
        scene.peer.say(&early);
        is_closed(&mut scene);
    }
}

/// RFC 5044 s7.1.2, s8, code 4: a request in place of the first FPDU is an error. It is not parsed
/// as an FPDU whose end never arrives.
#[test]
fn a_second_request_ends_the_connection() {
    let asked = request(0x40, 1, b"again");
    for cut in [asked.len(), 3, 20] {
        let mut scene = Scene::new(|_| {});
        scene.answers(&request(0x40, 1, b""), 20);
        scene.negotiated();
        asked.chunks(cut).for_each(|piece| scene.peer.say(piece));
        is_closed(&mut scene);
        scene.peer.close();
        assert_eq!(scene.event("the end", ended), DisconnectReason::LocalError(STARTUP));
    }
}

/// The same on a peer-to-peer connection: it is never established.
#[test]
fn a_second_request_in_place_of_the_rtr_fails_the_connection() {
    let asked = request(0x50, 2, &[0x80, 16, 0xc0, 16]);
    let mut scene = Scene::new(|_| {});
    scene.answers(&asked, 24);
    scene.peer.say(&asked);
    is_closed(&mut scene);
    scene.peer.close();
    assert_eq!(scene.event("the failure", failed), ConnectFailure::Protocol);
    assert!(scene.node.events.is_empty(), "{:?}", scene.node.events);
}

/// The same for a second reply, in one segment with the first or in its own segment.
#[test]
fn a_second_reply_ends_the_connection() {
    let said = reply(0x50, 2, &TAKES_WRITES);
    for together in [true, false] {
        let mut scene = Scene::new(|_| {});
        scene.calls(REQUEST.len());
        match together {
            true => scene.peer.say(&[&said[..], &said].concat()),
            false => (0..2).for_each(|_| scene.peer.say(&said)),
        }
        scene.negotiated();
        scene.until("the end of TCP", |scene| scene.peer.events.contains(TcpEvents::PEER_CLOSED));
        scene.peer.close();
        assert_eq!(scene.event("the end", ended), DisconnectReason::LocalError(STARTUP));
        assert!(scene.node.events.is_empty(), "unexpected events: {:?}", scene.node.events);
        let indication = fpdu(&EMPTY_WRITE);
        assert!(indication.starts_with(&scene.peer.heard), "unexpected octets: {:02x?}", scene.peer.heard);
    }
}
