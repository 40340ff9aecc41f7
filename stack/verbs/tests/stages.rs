//! The order of an iteration's stages, as a peer sees it.

mod common;

use common::messages::{fpdu, request, send};
use common::peer::Scene;
use ironwarp::{QueuePair, RecvWr, Region, SendWr};
use ironwarp_tcp::TcpEvents;

/// A connection over which the peer has just said something that nobody has looked for yet, and knows nothing acknowledged.
fn spoken_to() -> (Scene, QueuePair, Region) {
    let mut scene = Scene::patient();
    let (qp, inbox, _) = scene.answers(&request(0x40, 1, b""), 20);
    // The first FPDU is the caller's (RFC 5044 s7.1.2).
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

/// What the peer has received and whether it has the acknowledgement of its data, after so many iterations of the node.
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
    assert_eq!(after(&mut scene, 1), (1, false), "a message, and no word of what has arrived meanwhile");
}

/// RFC 9293 s3.8.6.3: an acknowledgement is held for one iteration, so that the reply carries it.
#[test]
fn a_reply_carries_the_acknowledgement_of_what_it_replies_to() {
    let (mut scene, qp, _inbox) = spoken_to();
    assert_eq!(after(&mut scene, 1), (0, false), "it is held");
    let frames = scene.node.counter("tcp_tx_segments");
    post(&mut scene, qp);
    assert_eq!(after(&mut scene, 1), (1, true));
    assert_eq!(scene.node.counter("tcp_tx_segments"), frames + 1);
}

/// As above: what arrives behind a reply waits for the next one, though something before it was owed.
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
