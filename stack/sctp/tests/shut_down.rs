//! The end of an association, in order (RFC 9260 s9.2) and at once (s9.1).

use ironwarp_llp::Events;
use ironwarp_sctp::{SctpConfig, State};
use ironwarp_stats::Counter;
use ironwarp_types::Nanos;

use crate::common::*;

/// RFC 9260 s9.2: SHUTDOWN, SHUTDOWN ACK, SHUTDOWN COMPLETE. Without data the cumulative TSN is the
/// one before the first.
#[test]
fn three_packets_end_an_association() {
    let mut node = Node::listening(2);
    let peer = Peer::set_up(&mut node);
    assert_eq!(node.close(peer.id), Events::empty());
    assert_eq!(node.sent()[0].chunks, [(SHUTDOWN, 0, vec![0, 0, 0, 99])]);
    let complete = peer.send(&mut node, &[chunk(SHUTDOWN_ACK, 0, &[])]);
    assert_eq!(
        (complete[0].tag, &complete[0].chunks[..]),
        (Peer::OWN_TAG, &[(SHUTDOWN_COMPLETE, 0, vec![])][..])
    );
    assert_eq!(node.take_events(), [(peer.id, Events::CLOSED)]);

    let (mut a, at_a, mut b, at_b) = established();
    a.close(at_a);
    assert_eq!(exchange(&mut a, &mut b), [SHUTDOWN, SHUTDOWN_ACK, SHUTDOWN_COMPLETE]);
    assert_eq!(a.take_events(), [(at_a, Events::CLOSED)]);
    assert_eq!(b.take_events(), [(at_b, Events::PEER_CLOSED), (at_b, Events::CLOSED)]);
    for (node, id) in [(&mut a, at_a), (&mut b, at_b)] {
        node.sctp.release(id);
        assert_eq!((node.associations(), node.sctp.resource_usage().flows), (0, 0));
    }
}

/// RFC 9260 s9.2: a SHUTDOWN in SHUTDOWN-SENT.
#[test]
fn both_sides_may_close_at_once() {
    let (mut a, at_a, mut b, at_b) = established();
    a.close(at_a);
    b.close(at_b);
    exchange(&mut a, &mut b);
    assert_eq!((a.state(at_a), b.state(at_b)), (State::Closed, State::Closed));
    assert_eq!(a.take_events().last(), Some(&(at_a, Events::CLOSED)));
}

/// RFC 9260 s9.2: SHUTDOWN and SHUTDOWN ACK are sent again, up to Association.Max.Retrans.
#[test]
fn a_peer_that_never_answers_a_shutdown_is_given_up() {
    for by_peer in [false, true] {
        let config =
            SctpConfig { association_retries: 3, rto_max: Nanos::from_millis(200), ..SctpConfig::default() };
        let mut node = Node::new(2, config);
        node.listen();
        let peer = Peer::set_up(&mut node);
        let mut sent = if by_peer { peer.send(&mut node, &[chunk(SHUTDOWN, 0, &[0; 4])]) } else { vec![] };
        node.close(peer.id);
        node.pass(Nanos::from_secs(2));
        sent.extend(node.sent());
        let kind = if by_peer { SHUTDOWN_ACK } else { SHUTDOWN };
        assert_eq!(sent.iter().flat_map(Sent::kinds).collect::<Vec<_>>(), [kind; 4]);
        assert_eq!(node.take_events().last(), Some(&(peer.id, Events::TIMED_OUT)));
    }
}

/// RFC 9260 s9.2: a repeated SHUTDOWN is answered, and SHUTDOWN COMPLETE counts in
/// SHUTDOWN-ACK-SENT only (s8.5.1 C).
#[test]
fn shutdown_chunks_count_in_their_states_only() {
    let mut node = Node::listening(2);
    let peer = Peer::set_up(&mut node);
    assert_eq!(peer.send(&mut node, &[chunk(SHUTDOWN_COMPLETE, 0, &[])]), []);
    assert_eq!(peer.send(&mut node, &[chunk(SHUTDOWN_ACK, 0, &[])]), []);
    assert_eq!((node.state(peer.id), node.read(Counter::SctpDropUnexpectedChunk)), (State::Established, 2));
    for _ in 0..2 {
        let answers = peer.send(&mut node, &[chunk(SHUTDOWN, 0, &[0; 4])]);
        assert_eq!(answers[0].kinds(), [SHUTDOWN_ACK]);
    }
    peer.send(&mut node, &[chunk(SHUTDOWN_COMPLETE, 0, &[])]);
    assert_eq!(node.take_events(), [(peer.id, Events::PEER_CLOSED), (peer.id, Events::CLOSED)]);
}

/// RFC 9260 s9.2 and s8.4, rule 5: the SHUTDOWN COMPLETE is lost, and nobody knows the association
/// when the SHUTDOWN ACK returns.
#[test]
fn a_lost_shutdown_complete_is_repeated_without_an_association() {
    let (mut a, at_a, mut b, at_b) = established();
    a.close(at_a);
    let shutdown = a.frames();
    b.receive(&shutdown[0]);
    let shutdown_ack = b.frames();
    a.receive(&shutdown_ack[0]);
    a.frames();
    a.sctp.release(at_a);
    b.pass(Nanos::from_millis(201));
    let shutdown_ack = b.frames();
    a.receive(&shutdown_ack[0]);
    let complete = a.frames();
    let read = Sent::read(&complete[0]);
    assert_eq!(
        (read.tag, &read.chunks[..]),
        (Sent::read(&shutdown_ack[0]).tag, &[(SHUTDOWN_COMPLETE, 1, vec![])][..])
    );
    b.receive(&complete[0]);
    assert_eq!(b.take_events().last(), Some(&(at_b, Events::CLOSED)));
}

/// RFC 9260 s9.2 and s5.2.4 (A): while SHUTDOWN COMPLETE is missing, no new association begins.
#[test]
fn a_restart_while_shutting_down_gets_the_shutdown_ack_again() {
    let mut node = Node::listening(2);
    let peer = Peer::set_up(&mut node);
    let (tag, cookie) = Peer::cookie(&mut node, &InitChunk { tag: 77, ..InitChunk::default() });
    peer.send(&mut node, &[chunk(SHUTDOWN, 0, &[0; 4])]);
    let init = InitChunk { tag: 78, ..InitChunk::default() };
    assert_eq!(node.answers(1, &init.packet())[0].kinds(), [SHUTDOWN_ACK]);
    let answers = node.answers(1, &echo(tag, &cookie));
    let chunks = vec![(ERROR, 0, tlv(10, &[])), (SHUTDOWN_ACK, 0, vec![])];
    assert_eq!((answers[0].tag, &answers[0].chunks), (Peer::OWN_TAG, &chunks));
    assert_eq!(node.state(peer.id), State::ShutdownAckSent);
}

/// RFC 9260 s9.2: a SHUTDOWN ACK in set-up is of an older association; a SHUTDOWN is discarded.
#[test]
fn the_end_of_an_older_association_does_not_stop_set_up() {
    let mut a = Node::new(1, SctpConfig::default());
    let id = a.connect(2);
    let tag = word(a.sent()[0].value(), 0);
    let answers = a.answers(2, &packet([PORT, FROM], 500, &[chunk(SHUTDOWN_ACK, 0, &[])]));
    assert_eq!((answers[0].tag, &answers[0].chunks[..]), (500, &[(SHUTDOWN_COMPLETE, 1, vec![])][..]));
    assert_eq!(a.answers(2, &packet([PORT, FROM], tag, &[chunk(SHUTDOWN, 0, &[0; 4])])), []);
    assert_eq!(a.state(id), State::CookieWait);
}

/// RFC 9260 s9.1: an abort tells the peer why, and is not answered.
#[test]
fn an_abort_ends_both_sides_at_once() {
    let (mut a, at_a, mut b, at_b) = established();
    a.sctp.abort(a.now, at_a, &mut a.wires);
    let frame = a.frames().remove(0);
    assert_eq!(Sent::read(&frame).chunks, [(ABORT, 0, tlv(12, &[]))]);
    b.receive(&frame);
    assert_eq!((b.sent(), b.take_events()), (vec![], vec![(at_b, Events::RESET)]));
    assert_eq!((a.associations(), a.take_events()), (0, vec![]));
}

/// A close in set-up ends the attempt, and tells the peer if it has a tag.
#[test]
fn a_close_in_set_up_ends_at_once() {
    let (mut a, mut b) = (Node::new(1, SctpConfig::default()), Node::listening(2));
    let id = a.connect(2);
    let init = a.sent().remove(0);
    assert_eq!((a.close(id), a.sent()), (Events::CLOSED, vec![]));
    a.sctp.release(id);
    let id = a.connect(2);
    let again = a.sent().remove(0);
    assert_ne!(init.value()[..4], again.value()[..4], "RFC 9260 s5.3.1: a new tag");
    let init_ack = b.answers(1, &again.packet());
    a.answers(2, &init_ack[0].packet());
    assert_eq!(a.close(id), Events::CLOSED);
    assert_eq!(a.sent()[0].kinds(), [ABORT]);
}
