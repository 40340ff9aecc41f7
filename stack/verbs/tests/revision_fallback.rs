//! The fallback to revision 1 (RFC 6581 s10), for each form in which a peer refuses revision 2.

use crate::common;

use common::messages::{REQUEST, fpdu, reply, request, send};
use common::peer::Scene;
use ironwarp::instrument::{FaultRates, Faults};
use ironwarp::{Event, NegotiatedParams, ReadDepths, SendWr};

/// The second connection is established in revision 1, and data is transferred.
fn is_asked_again(scene: &mut Scene, qp: ironwarp::QueuePair) {
    scene.until("the second connection", |scene| scene.peer.connections == 2);
    assert_eq!(scene.hear("the second request", 20), request(0x40, 1, b""));
    scene.peer.say(&reply(0x40, 1, b""));
    let reads = ReadDepths { ird: 16, ord: 16 };
    assert_eq!(scene.negotiated(), NegotiatedParams { revision: 1, peer_reads: None, reads });
    scene.node.ctx.post_send(qp, &SendWr::send_inline(2, b"data")).unwrap();
    scene.hear("the message", fpdu(&send(1, b"data")).len());
    scene.turns(500);
    assert!(scene.node.events.is_empty(), "more than one event: {:?}", scene.node.events);
    assert_eq!(scene.node.counter("iwarp_revision_fallbacks"), 1);
}

/// Q7, RFC 6581 s10: a peer without the enhanced set-up replies as RFC 5044 says.
#[test]
fn q7_a_plain_reply_is_retried_in_revision_1() {
    let mut scene = Scene::new(|_| {});
    let (qp, ..) = scene.calls(REQUEST.len());
    scene.peer.say(&reply(0x40, 1, b""));
    is_asked_again(&mut scene, qp);
}

/// Q7: the peer's FIN may arrive in the segment of the reply. It ends the first connection, not the
/// second.
#[test]
fn q7_a_plain_reply_with_fin_in_one_segment_still_falls_back() {
    let mut scene = Scene::new(|_| {});
    let (qp, ..) = scene.calls(REQUEST.len());
    // The reply is lost and is retransmitted together with the FIN, so that our TCP reports both at
    // once.
    let rx = FaultRates { drop_ppm: 1_000_000, ..FaultRates::default() };
    scene.node.worker.port_control().set_faults(Faults { seed: 1, rx, tx: FaultRates::default() });
    scene.peer.say(&reply(0x40, 1, b""));
    scene.turns(3);
    scene.node.worker.port_control().set_faults(Faults::default());
    scene.peer.close();
    is_asked_again(&mut scene, qp);
}

/// A reject in the form of revision 1 is a reject: the stack does not retry, and the application
/// gets its private data.
#[test]
fn a_plain_reject_of_an_enhanced_request_is_not_retried() {
    for revision in [1, 2] {
        let mut scene = Scene::new(|_| {});
        scene.calls(REQUEST.len());
        scene.peer.say(&reply(0x60, revision, b"full"));
        let said = scene.event("the refusal", |event| match event {
            Event::Rejected { private_data, peer_reads: None, .. } => Some(private_data.to_vec()),
            _ => None,
        });
        assert_eq!(said, b"full");
        scene.peer.close();
        scene.turns(500);
        assert_eq!((scene.peer.connections, scene.node.events.len()), (1, 0));
    }
}
