//! HEARTBEATs on an idle path (RFC 9260 s8.3).

use ironwarp_llp::Events;
use ironwarp_sctp::{MessageHeader, SctpConfig, State};
use ironwarp_stats::Counter;
use ironwarp_types::Nanos;

use crate::common::*;

const INTERVAL: Nanos = Nanos::from_secs(30);
/// The initial timeout.
const RTO: Nanos = Nanos::from_millis(200);

fn scene() -> (Node, Peer) {
    let mut node = Node::new(2, SctpConfig { association_retries: 3, ..SctpConfig::default() });
    node.listen();
    let peer = Peer::set_up(&mut node);
    (node, peer)
}

/// Returns the value of the only HEARTBEAT.
fn heartbeat(node: &mut Node) -> Vec<u8> {
    let sent = node.sent();
    assert_eq!((sent.len(), sent[0].tag, sent[0].kinds()), (1, Peer::OWN_TAG, vec![HEARTBEAT]));
    sent[0].value().to_vec()
}

/// RFC 9260 s8.3: after HB.interval and an RTO, with half an RTO of jitter. The answer is a round
/// trip.
#[test]
fn an_idle_path_is_probed_and_measured() {
    let (mut node, peer) = scene();
    node.pass(INTERVAL + Nanos(RTO.0 / 2 - 1_000_000));
    assert_eq!(node.sent(), []);
    node.pass(RTO + Nanos(2_000_000));
    let value = heartbeat(&mut node);
    assert_eq!(tlvs(&value)[0].0, 1, "heartbeat information");
    // It is sent within the jitter, and answered after at least a part of the pass.
    assert_eq!(peer.send(&mut node, &[chunk(HEARTBEAT_ACK, 0, &value)]), []);
    assert_ne!(node.info(peer.id).rto, RTO, "a sample");
    node.pass(Nanos::from_secs(29));
    assert_eq!(node.sent(), []);
    node.pass(Nanos::from_secs(2));
    assert_ne!(heartbeat(&mut node), value, "another nonce (s5.4)");
}

/// RFC 9260 s8.1 and s8.3: a HEARTBEAT that is not answered within an RTO is an error, and RTO
/// doubles.
#[test]
fn a_peer_that_answers_no_heartbeat_is_given_up() {
    let (mut node, peer) = scene();
    let mut heartbeats = 0;
    while node.state(peer.id) == State::Established {
        node.pass(Nanos::from_secs(1));
        heartbeats += node.sent().len();
        assert!(heartbeats <= 4);
    }
    assert_eq!((heartbeats, node.info(peer.id).rto), (4, RTO.times(16)));
    assert_eq!(node.take_events(), [(peer.id, Events::TIMED_OUT)]);
    assert!(node.now >= Nanos::from_secs(1_000) + INTERVAL.times(4));
}

/// RFC 9260 s8.1: an answer clears the errors.
#[test]
fn an_answer_clears_the_errors() {
    let (mut node, peer) = scene();
    for n in 1..20 {
        while node.read(Counter::SctpTxHeartbeats) < n {
            node.pass(Nanos::from_millis(50));
        }
        let value = heartbeat(&mut node);
        if n % 3 == 0 {
            peer.send(&mut node, &[chunk(HEARTBEAT_ACK, 0, &value)]);
        }
    }
    assert_eq!(node.state(peer.id), State::Established);
}

/// RFC 9260 s5.4: only the nonce of the last HEARTBEAT counts.
#[test]
fn a_forged_heartbeat_ack_is_dropped() {
    let (mut node, peer) = scene();
    while node.read(Counter::SctpTxHeartbeats) < 1 {
        node.pass(Nanos::from_millis(50));
    }
    let value = heartbeat(&mut node);
    let mut forged = value.clone();
    forged[7] ^= 1;
    for value in [&forged[..], b"", b"abc", &value[..8], &tlv(1, b"nonce")] {
        peer.send(&mut node, &[chunk(HEARTBEAT_ACK, 0, value)]);
    }
    assert_eq!((node.info(peer.id).rto, node.read(Counter::SctpDropUnexpectedChunk)), (RTO, 5));
    peer.send(&mut node, &[chunk(HEARTBEAT_ACK, 0, &value)]);
    assert_ne!(node.info(peer.id).rto, RTO);
    peer.send(&mut node, &[chunk(HEARTBEAT_ACK, 0, &value)]);
    assert_eq!(node.read(Counter::SctpDropUnexpectedChunk), 6, "once");
}

/// RFC 9260 s8.3: a path with DATA is not idle, and none is probed after SHUTDOWN. HB.interval may
/// be infinite.
#[test]
fn a_busy_or_closing_path_is_not_probed() {
    let (mut node, peer) = scene();
    let header = MessageHeader { stream: 0, ppid: 0, is_unordered: true };
    for _ in 0..10 {
        node.pass(Nanos::from_secs(10));
        node.transmit(peer.id, header, &[b"x"]);
        let data = SentData::all(&node.sent()).remove(0);
        peer.send(&mut node, &[sack(data.tsn, 65_536, &[])]);
    }
    node.close(peer.id);
    node.pass(Nanos::from_secs(2));
    assert_eq!(node.read(Counter::SctpTxHeartbeats), 0);

    let mut node = Node::new(2, SctpConfig { heartbeat_interval: Nanos::MAX, ..SctpConfig::default() });
    node.listen();
    let peer = Peer::set_up(&mut node);
    node.pass(Nanos::from_secs(1_000));
    assert_eq!((node.sctp.next_deadline(), node.state(peer.id)), (None, State::Established));
}
