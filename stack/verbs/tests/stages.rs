//! The order of an iteration's stages, as a peer observes it.

use crate::common;

use common::messages::{fpdu, request, send};
use common::peer::Scene;
use ironwarp::{QueuePair, RecvWr, Region, SendWr};
use ironwarp_tcp::TcpEvents;

/// A connection with a message from the peer that the node has not yet processed, and with no
/// acknowledgement to the peer.
fn spoken_to() -> (Scene, QueuePair, Region) {
    let mut scene = Scene::patient();
    let (qp, inbox, _) = scene.answers(&request(0x40, 1, b""), 20);
    // The initiator sends the first FPDU (RFC 5044 s7.1.2).
    scene.peer.say(&fpdu(&send(1, b"first")));
    scene.received(&inbox, b"first");
    scene.turns(4);
    assert!(scene.peer.segments.len() == 1 && scene.peer.events.contains(TcpEvents::ACKED));
    scene.peer.events = TcpEvents::empty();
    for id in 2..4 {
        scene.node.ctx.post_recv(qp, &RecvWr::new(id, &[inbox.slice(0, 64).unwrap()])).unwrap();
    }
    scene.peer.say(&fpdu(&send(2, b"second")));
    scene.peer.turn();
    (scene, qp, inbox)
}

fn post(scene: &mut Scene, qp: QueuePair) {
    scene.node.ctx.post_send(qp, &SendWr::send_inline(7, b"posted")).unwrap();
}

/// Runs `iterations` of the node. Returns the number of segments that the peer received, and
/// whether its data was acknowledged.
fn after(scene: &mut Scene, iterations: usize) -> (usize, bool) {
    (0..iterations).for_each(|_| {
        scene.node.worker.poll(1);
    });
    scene.peer.turn();
    (scene.peer.segments.len() - 1, scene.peer.events.contains(TcpEvents::ACKED))
}

#[test]
fn posted_work_is_sent_before_the_receive_stage() {
    let (mut scene, qp, _inbox) = spoken_to();
    post(&mut scene, qp);
    assert_eq!(after(&mut scene, 1), (1, false), "a message, without an acknowledgement of later data");
}

/// RFC 9293 s3.8.6.3: an acknowledgement is held for one iteration, so that the reply carries it.
#[test]
fn a_reply_carries_the_acknowledgement_of_what_it_replies_to() {
    let (mut scene, qp, _inbox) = spoken_to();
    assert_eq!(after(&mut scene, 1), (0, false), "the acknowledgement is held");
    let frames = scene.node.counter("tcp_tx_segments");
    post(&mut scene, qp);
    assert_eq!(after(&mut scene, 1), (1, true));
    assert_eq!(scene.node.counter("tcp_tx_segments"), frames + 1);
}

/// RFC 9293 s3.8.6.3: data that arrives after a reply is acknowledged in the next iteration,
/// although earlier data was still unacknowledged.
#[test]
fn data_received_after_a_reply_is_acknowledged_in_the_next_iteration() {
    let (mut scene, qp, _inbox) = spoken_to();
    assert_eq!(after(&mut scene, 1), (0, false));
    let acks = scene.node.counter("tcp_tx_acks");
    post(&mut scene, qp);
    scene.peer.say(&fpdu(&send(3, b"third")));
    scene.peer.turn();
    assert_eq!(after(&mut scene, 1), (1, true));
    assert_eq!((scene.node.counter("iwarp_rx_sends"), scene.node.counter("tcp_tx_acks")), (3, acks));
    after(&mut scene, 1);
    assert_eq!(scene.node.counter("tcp_tx_acks"), acks + 1);
}

#[test]
fn an_acknowledgement_without_data_is_sent_in_the_next_iteration() {
    let (mut scene, _, _inbox) = spoken_to();
    assert_eq!(after(&mut scene, 1), (0, false));
    assert_eq!(after(&mut scene, 1), (0, true));
}
