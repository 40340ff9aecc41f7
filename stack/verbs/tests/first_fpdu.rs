//! RFC 5044 s7.1.2: a responder waits for the initiator's first FPDU, and its application may learn
//! of it.

use crate::common;

use common::contents;
use ironwarp::{Event, RecvWr, RemoteMemory, SendWr};

/// RFC 5044 s7.1.2: a server's post before the initiator's first FPDU is held, not failed.
#[test]
fn a_responder_that_sends_first_waits_for_the_initiators_first_fpdu() {
    // RFC 6581 s9.2: in the client-server model. In the peer-to-peer model the initiator's first
    // FPDU is sent automatically.
    let client_server = |address: &str| {
        let mut config = common::config(address);
        config.mpa.peer_to_peer = false;
        config
    };
    let mut pair = common::joined_with(client_server);
    let (near, far) = pair.connect();
    let (near_sink, far_sink) = (pair.near.memory(&[0; 8]), pair.far.memory(&[0; 8]));
    pair.near.ctx.post_recv(near, &RecvWr::new(1, &[near_sink.slice(0, 8).unwrap()])).unwrap();
    pair.far.ctx.post_recv(far, &RecvWr::new(1, &[far_sink.slice(0, 8).unwrap()])).unwrap();
    pair.far.ctx.post_send(far, &SendWr::send_inline(2, b"early")).unwrap();
    for _ in 0..200 {
        pair.turn();
    }
    assert!(pair.near.completions.is_empty() && pair.far.completions.is_empty());
    pair.near.ctx.post_send(near, &SendWr::send_inline(2, b"first")).unwrap();
    pair.until("both receives", |pair| pair.near.completions.len() == 2 && pair.far.completions.len() == 2);
    assert_eq!(contents(&near_sink)[..5], *b"early");
}

/// COMM_EST: the accepting side gets an event of the peer's first message, once; the connecting
/// side gets none.
#[test]
fn the_accepting_side_gets_an_event_for_the_first_message() {
    // RFC 6581 s9.2: in the peer-to-peer model the initiator's first FPDU is sent automatically.
    let mut pair = common::joined_with(|address| {
        let mut config = common::config(address);
        config.mpa.peer_to_peer = false;
        config
    });
    let (near, far) = pair.connect();
    let heard = |events: &[Event]| {
        events.iter().filter(|event| matches!(event, Event::CommunicationEstablished { .. })).count()
    };
    let target = pair.far.memory(&[0; 8]);
    let at = RemoteMemory { stag: target.stag(), tagged_offset: target.base_to() };
    (0..20).for_each(|_| pair.turn());
    assert_eq!(heard(&pair.far.events), 0);
    for id in 0..3 {
        pair.near.ctx.post_send(near, &SendWr::write_inline(id, b"x", at)).unwrap();
        pair.until("the Write", |pair| pair.near.completions.len() as u64 == id + 1);
    }
    assert_eq!((heard(&pair.far.events), heard(&pair.near.events)), (1, 0));
    assert!(
        pair.far
            .events
            .iter()
            .any(|event| matches!(event, Event::CommunicationEstablished { qp } if *qp == far))
    );
}
