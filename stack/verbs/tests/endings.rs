//! Every way to the end of a connection, against a peer that says only what the test tells it: what it hears, and what
//! our application is told.

mod common;

use common::peer::{PEER, Scene};
use common::speech::{REQUEST, TAKES_WRITES, fpdu, reply, tagged};
use ironwarp::{ConnectParams, DisconnectReason, Event, Nanos};
use ironwarp_tcp::TcpEvents;

fn ended(event: &Event) -> Option<DisconnectReason> {
    if let Event::Disconnected { reason, .. } = event { Some(*reason) } else { None }
}

fn closes(scene: &mut Scene) {
    scene.until("FIN", |scene| scene.peer.events.contains(TcpEvents::PEER_CLOSED));
}

/// RFC 6581 s9.2: the indication goes whatever the application does meanwhile, and one by Read is answered before FIN.
#[test]
fn disconnecting_in_the_hold_off_sends_the_indication_first() {
    for (takes, bytes) in [([0xc0, 16, 0, 16], 24), (TAKES_WRITES, 20), ([0x80, 16, 0x40, 16], 52)] {
        let mut scene = Scene::new(|_| {});
        let qp = scene.qp();
        let holdoff = Some(Nanos::from_millis(30));
        let params = ConnectParams { first_fpdu_holdoff: holdoff, ..Default::default() };
        scene.node.ctx.connect_with(qp, PEER.parse().unwrap(), &params).unwrap();
        scene.hear("the request", REQUEST.len());
        scene.peer.say(&reply(0x50, 2, &takes));
        scene.settled();
        scene.node.ctx.disconnect(qp).unwrap();
        scene.hear("the indication", bytes);
        if bytes == 52 {
            scene.turns(500);
            assert!(!scene.peer.events.contains(TcpEvents::PEER_CLOSED), "the Read is not answered");
            scene.peer.say(&fpdu(&tagged(2, 1, 0, b"")));
        }
        closes(&mut scene);
        assert!(scene.peer.heard.is_empty());
        scene.peer.close();
        assert_eq!(scene.event("the end", ended), DisconnectReason::Closed);
    }
}
