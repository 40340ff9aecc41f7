//! Sent DATA: chunks, windows, loss, and the SACKs of a peer that a test plays.

use std::cell::{Cell, RefCell};

use ironwarp_llp::{Blocked, Events};
use ironwarp_sctp::{MessageHeader, SctpConfig, State};
use ironwarp_stats::Counter;
use ironwarp_testkit::Route;
use ironwarp_types::Nanos;
use proptest::prelude::*;
use proptest::test_runner::TestRunner;

use crate::common::*;

/// The longest message of a packet: 1500 less the headers of IPv4, SCTP and DATA.
const FULL: &[u8] = &[7; 1_500 - 20 - 12 - 16];
/// Its chunk.
const CHUNK: u32 = FULL.len() as u32 + 16;
/// The window of the peer.
const RWND: u32 = 65_536;

const UNORDERED: MessageHeader = MessageHeader { stream: 0, ppid: 16, is_unordered: true };

/// A node with an association, and a peer that it sends to.
struct Scene {
    node: Node,
    peer: Peer,
    /// The TSN before the first.
    base: u32,
}

impl Scene {
    fn with(config: SctpConfig) -> Self {
        let mut node = Node::new(2, config);
        node.listen();
        let init = node.answers(1, &InitChunk::default().packet()).remove(0);
        let base = word(init.value(), 12).wrapping_sub(1);
        let cookie = tlvs(&init.value()[16..]).remove(0).1;
        let tag = word(init.value(), 0);
        node.answers(1, &echo(tag, &cookie));
        let [(id, Events::ESTABLISHED)] = node.take_events()[..] else { panic!("no association") };
        Scene { node, peer: Peer { tag, id }, base }
    }

    fn new() -> Self {
        Scene::with(SctpConfig::default())
    }

    /// Sends up to `count` full messages. Returns the TSNs of what leaves, and what stopped it.
    fn send(&mut self, count: usize) -> (Vec<u32>, Blocked) {
        let (_, blocked) = self.node.transmit(self.peer.id, UNORDERED, &vec![FULL; count]);
        (self.sent(), blocked)
    }

    /// Returns the TSNs of what left.
    fn sent(&mut self) -> Vec<u32> {
        SentData::tsns(&self.node.sent(), self.base)
    }

    /// The peer acknowledges up to `cum`, and blocks as distances from it. Returns the TSNs that
    /// are sent again.
    fn sack(&mut self, cum: u32, blocks: &[[u16; 2]]) -> Vec<u32> {
        self.sack_with(cum, RWND, blocks)
    }

    fn sack_with(&mut self, cum: u32, a_rwnd: u32, blocks: &[[u16; 2]]) -> Vec<u32> {
        let chunk = sack(self.base.wrapping_add(cum), a_rwnd, blocks);
        SentData::tsns(&self.peer.send(&mut self.node, &[chunk]), self.base)
    }

    fn cwnd(&self) -> u32 {
        self.node.info(self.peer.id).cwnd_bytes
    }

    fn flight(&self) -> u32 {
        self.node.info(self.peer.id).flight_bytes
    }

    fn rto(&self) -> Nanos {
        self.node.info(self.peer.id).rto
    }
}

/// RFC 9260 s3.3.1 and s6.5: TSNs in sequence, an SSN for each ordered message of a stream, and
/// none for unordered ones. RFC 7053 s5.1: the last message that there is has the I bit.
#[test]
fn a_message_is_one_chunk_of_its_stream() {
    let Scene { mut node, peer, base } = Scene::new();
    for (stream, is_unordered) in [(0, false), (3, false), (0, true), (0, false), (3, false)] {
        let header = MessageHeader { stream, ppid: 17, is_unordered };
        assert_eq!(node.transmit(peer.id, header, &[b"hello"]), (1, Blocked::Source));
    }
    assert_eq!(node.transmit(peer.id, UNORDERED, &[b"hello", b"hello"]), (2, Blocked::Source));
    let sent = node.sent();
    assert!(
        sent.iter().all(|sent| sent.tag == Peer::OWN_TAG && sent.kinds().iter().all(|&kind| kind == DATA))
    );
    let of = |n: u32, stream, ssn, flags| SentData {
        tsn: base.wrapping_add(n),
        stream,
        ssn,
        ppid: if n < 6 { 17 } else { UNORDERED.ppid },
        flags,
        payload: b"hello".to_vec(),
    };
    let own =
        [of(1, 0, 0, 3 | 8), of(2, 3, 0, 3 | 8), of(3, 0, 0, 7 | 8), of(4, 0, 1, 3 | 8), of(5, 3, 1, 3 | 8)];
    let together = [of(6, UNORDERED.stream, 0, 7), of(7, UNORDERED.stream, 0, 7 | 8)];
    assert_eq!(SentData::all(&sent), [&own[..], &together].concat());
}

/// A stream beyond those that the peer accepts takes nothing, nor does an association that is not
/// set up.
#[test]
fn only_streams_that_exist_take_messages() {
    let Scene { mut node, peer, .. } = Scene::new();
    let streams = node.info(peer.id).outbound_streams;
    let header = MessageHeader { stream: streams, ..UNORDERED };
    assert_eq!(node.transmit(peer.id, header, &[b"x"]), (0, Blocked::None));
    assert_eq!(node.transmit(peer.id, MessageHeader { stream: streams - 1, ..header }, &[b"x"]).0, 1);
    let mut a = Node::new(1, SctpConfig::default());
    let id = a.connect(2);
    a.sent();
    assert_eq!((a.transmit(id, UNORDERED, &[b"x"]), a.sent()), ((0, Blocked::None), vec![]));
}

/// RFC 9260 s6.1: a SACK that waits goes with DATA, and before it (s6.10).
#[test]
fn data_carries_the_sack_that_waits() {
    let Scene { mut node, peer, .. } = Scene::new();
    node.upper.takes = true;
    peer.send(&mut node, &[data(100, b"x")]);
    node.transmit(peer.id, UNORDERED, &[b"x", b"y"]);
    let sent = node.sent();
    assert_eq!(sent.iter().map(Sent::kinds).collect::<Vec<_>>(), [[SACK, DATA, DATA]]);
    assert_eq!(Sack::only(&sent).cum_tsn, 100);
    node.pass(Nanos::from_millis(3));
    assert_eq!(node.sent(), [], "it does not follow");
}

/// RFC 9260 s7.2.1 and s6.1, rule B: the initial window is three packets of 1500 octets. Each SACK
/// of a full window adds what it acknowledges.
#[test]
fn slow_start_opens_the_window() {
    let mut scene = Scene::new();
    assert_eq!(scene.send(9), (vec![1, 2, 3], Blocked::Congestion));
    assert_eq!(scene.sack(2, &[]), []);
    assert_eq!(scene.node.take_events(), [(scene.peer.id, Events::ACKED | Events::WRITABLE)]);
    assert_eq!((scene.cwnd(), scene.flight()), (5 * CHUNK, CHUNK), "PMDCS is CHUNK");
    assert_eq!(scene.send(9), (vec![4, 5, 6, 7], Blocked::Congestion));
    assert_eq!(scene.node.upper.acked, [(0, 2 * FULL.len() as u32)]);
    scene.sack(3, &[]);
    assert_eq!(scene.send(1).1, Blocked::Source);
    scene.sack(4, &[]);
    assert_eq!(scene.cwnd(), 6 * CHUNK, "full twice, and not the third time");
}

/// RFC 9260 s6.1, rule B: one packet may exceed cwnd.
#[test]
fn one_packet_exceeds_the_window() {
    let mut scene = Scene::new();
    scene.node.transmit(scene.peer.id, UNORDERED, &[b"x"]);
    assert_eq!(scene.send(9), (vec![1, 2, 3, 4], Blocked::Congestion));
    assert_eq!((scene.cwnd(), scene.flight()), (3 * CHUNK, 3 * CHUNK + 20), "with padding (s7.2)");
}

/// RFC 9260 s6.1: a later chunk does not restart T3-rtx.
#[test]
fn the_first_chunk_starts_the_timer() {
    let mut scene = Scene::new();
    scene.send(1);
    scene.node.pass(Nanos::from_millis(100));
    assert_eq!(scene.send(1).0, [2]);
    scene.node.pass(Nanos::from_millis(101));
    assert_eq!(scene.sent(), [1]);
}

/// RFC 9260 s7.2.4, note: what a SACK acknowledges opens the window before its loss halves it.
#[test]
fn the_window_grows_before_a_loss_halves_it() {
    let mut scene = Scene::with(SctpConfig { burst_packets_max: 99, ..SctpConfig::default() });
    let mut last = 0;
    for _ in 0..3 {
        last += scene.send(99).0.len() as u32;
        scene.sack(last, &[]);
    }
    for end in 2..=3 {
        scene.send(99);
        assert_eq!(scene.sack(last, &[[2, end]]), []);
    }
    scene.send(99);
    let cwnd = scene.cwnd();
    assert!(cwnd > 8 * CHUNK && scene.flight() >= cwnd);
    assert_eq!(scene.sack(last, &[[2, 4]]), [last + 1]);
    assert_eq!(scene.cwnd(), (cwnd + CHUNK) / 2);
}

/// RFC 9260 s6.1, rule D: at most Max.Burst packets after a SACK.
#[test]
fn a_burst_is_limited() {
    let mut scene = Scene::with(SctpConfig { burst_packets_max: 2, ..SctpConfig::default() });
    assert_eq!(scene.send(9), (vec![1, 2], Blocked::Congestion));
    assert!(scene.flight() < scene.cwnd());
    scene.sack(1, &[]);
    assert_eq!(scene.send(9), (vec![3, 4], Blocked::Congestion));
}

/// RFC 9260 s6.1, rule A: nothing beyond the window of the peer. With nothing outstanding, a
/// message of 516 octets or more is made to fit (RFC 5043 s9).
#[test]
fn the_window_of_the_peer_bounds_what_is_outstanding() {
    let mut scene = Scene::new();
    scene.send(1);
    scene.sack_with(1, 2 * CHUNK + 600, &[]);
    assert_eq!(scene.send(9), (vec![2, 3], Blocked::Window));
    scene.sack_with(3, 600, &[]);
    assert_eq!(
        scene.node.take_events().last().map(|&(_, events)| events),
        Some(Events::ACKED | Events::WRITABLE)
    );
    assert_eq!(scene.node.transmit(scene.peer.id, UNORDERED, &[&[1; 600], &[2; 600]]), (1, Blocked::Window));
    assert_eq!(scene.sent(), [4]);
}

/// RFC 9260 s6.1, rule A: a closed window is probed after an RTO, and then ever more rarely. While
/// SACKs answer, no error counts.
#[test]
fn a_closed_window_is_probed() {
    let mut scene = Scene::with(SctpConfig { association_retries: 2, ..SctpConfig::default() });
    scene.send(1);
    scene.sack_with(1, 0, &[]);
    assert_eq!(scene.send(1), (vec![], Blocked::Window));
    scene.node.take_events();
    let rto = scene.rto();
    scene.node.pass(Nanos(rto.0 - 100_000));
    assert_eq!(scene.node.take_events(), []);
    scene.node.pass(Nanos(200_000));
    assert_eq!(scene.node.take_events(), [(scene.peer.id, Events::WRITABLE)]);
    assert_eq!(scene.send(2), (vec![2], Blocked::Window), "one probe");
    for n in 0..6u32 {
        let wait = rto.times(1 << n);
        scene.node.pass(Nanos(wait.0 * 9 / 10));
        assert_eq!(scene.sent(), [], "{n}");
        scene.node.pass(Nanos(wait.0 / 10 + 200_000));
        assert_eq!(scene.sent(), [2], "{n}");
        scene.sack_with(1, 0, &[]);
    }
    scene.sack(2, &[]);
    assert_eq!(scene.send(1).0, [3]);
}

/// RFC 9260 s6.1, rule A: the same for messages that were in flight when the window closed.
#[test]
fn a_peer_that_reports_a_closed_window_is_not_given_up() {
    let config = SctpConfig { association_retries: 2, rto_max: Nanos::from_secs(1), ..SctpConfig::default() };
    let mut scene = Scene::with(config);
    scene.send(3);
    for _ in 0..8 {
        scene.sack_with(1, 0, &[]);
        scene.node.pass(scene.rto() + Nanos(100_000));
        assert_eq!(scene.sent(), [2]);
    }
    assert_eq!(scene.node.state(scene.peer.id), State::Established);
    scene.node.pass(Nanos::from_secs(4));
    assert_eq!(scene.node.state(scene.peer.id), State::Closed, "silent");
}

/// RFC 9260 s7.2.4: three SACKs that report a chunk missing before a newly acknowledged one (HTNA)
/// have it sent again at once. The window is halved once in a recovery.
#[test]
fn three_reports_retransmit_a_chunk() {
    let mut scene = Scene::new();
    scene.send(3);
    scene.sack(3, &[]);
    scene.send(4);
    scene.sack(7, &[]);
    assert_eq!(scene.send(4).0, [8, 9, 10, 11]);
    let cwnd = scene.cwnd();
    assert_eq!(scene.sack(7, &[[2, 2]]), []);
    assert_eq!(scene.sack(7, &[[2, 2]]), [], "nothing newly acknowledged: no report");
    assert_eq!(scene.sack(7, &[[2, 3]]), []);
    assert_eq!(scene.sack(7, &[[2, 4]]), [8]);
    assert_eq!((scene.cwnd(), scene.flight()), ((cwnd / 2).max(4 * CHUNK), CHUNK));
    scene.sack(7, &[[2, 4]]);
    assert_eq!(scene.sent(), [], "once");
    scene.sack(11, &[]);
    assert_eq!((scene.flight(), scene.node.sctp.resource_usage().tx_units), (0, 0));
    assert_eq!(scene.node.read(Counter::SctpFastRecoveries), 1);
}

/// RFC 9260 s7.2.4, items 2 and 6: chunks lost in one recovery halve the window once, and a SACK
/// that advances counts all reports.
#[test]
fn a_recovery_reduces_the_window_once() {
    let mut scene = Scene::with(SctpConfig { burst_packets_max: 99, ..SctpConfig::default() });
    let mut last = 0;
    while scene.cwnd() < 8 * CHUNK {
        scene.send(99);
        last += 2;
        scene.sack(last, &[]);
    }
    scene.send(99);
    assert!(scene.flight() >= 8 * CHUNK);
    // The first and the third are lost.
    for n in [2, 4, 5] {
        let blocks: &[[u16; 2]] = if n == 2 { &[[2, 2]] } else { &[[2, 2], [4, n]] };
        scene.sack(last, blocks);
    }
    let cwnd = scene.cwnd();
    // The first arrives, and nothing new behind the third: its third report nevertheless.
    assert_eq!(scene.sack(last + 2, &[[2, 3]]), [last + 3]);
    assert_eq!((scene.cwnd(), scene.node.read(Counter::SctpFastRecoveries)), (cwnd, 1));
}

/// RFC 9260 s6.3.3 and s7.2.3: T3-rtx sends the first packet again and doubles; one packet is in
/// flight until an acknowledgement arrives.
#[test]
fn a_timeout_leaves_one_packet_in_flight() {
    let mut scene = Scene::new();
    scene.send(3);
    let mut wait = scene.rto();
    assert_eq!(wait, Nanos::from_millis(200));
    for _ in 0..3 {
        scene.node.pass(Nanos(wait.0 - 1_000_000));
        assert_eq!(scene.sent(), []);
        scene.node.pass(Nanos(1_100_000));
        assert_eq!(scene.sent(), [1]);
        assert_eq!((scene.cwnd(), scene.flight()), (CHUNK, CHUNK));
        wait = wait.times(2);
        assert_eq!(scene.rto(), wait);
    }
    assert_eq!(scene.send(1), (vec![], Blocked::Congestion));
    assert_eq!(scene.sack(1, &[]), [2, 3], "slow start: cwnd is two packets");
    scene.sack(3, &[]);
    assert_eq!(scene.rto(), wait, "Karn: no sample");
    scene.send(1);
    scene.node.pass(Nanos::from_micros(100));
    scene.sack(4, &[]);
    assert_eq!(scene.rto(), Nanos::from_millis(5), "a sample ends the backoff; RTO.Min");
}

/// RFC 9260 s6.3.3, rule E3: small chunks that were lost share a packet.
#[test]
fn lost_chunks_are_bundled() {
    let mut scene = Scene::new();
    let messages: Vec<&[u8]> = vec![&[1; 300]; 8];
    scene.node.transmit(scene.peer.id, UNORDERED, &messages);
    scene.sent();
    scene.node.pass(Nanos::from_millis(201));
    let sent = scene.node.sent();
    assert_eq!((sent.len(), SentData::tsns(&sent, scene.base)), (1, vec![1, 2, 3, 4]), "in order (s6.10)");
    assert_eq!(scene.node.read(Counter::SctpTxRetransmittedChunks), 4);
}

/// RFC 9260 s8.1: Association.Max.Retrans timeouts in a row end the association. A DATA chunk that
/// is acknowledged starts the count again.
#[test]
fn a_peer_that_acknowledges_nothing_is_given_up() {
    let config =
        SctpConfig { association_retries: 2, rto_max: Nanos::from_millis(200), ..SctpConfig::default() };
    let mut scene = Scene::with(config);
    scene.send(2);
    scene.node.pass(Nanos::from_millis(450));
    scene.sack(1, &[]);
    scene.node.pass(Nanos::from_millis(450));
    assert_eq!(scene.node.state(scene.peer.id), State::Established);
    scene.node.pass(Nanos::from_millis(201));
    assert_eq!(scene.node.take_events().last(), Some(&(scene.peer.id, Events::TIMED_OUT)));
    assert_eq!(scene.node.sctp.resource_usage().tx_units, 0);
}

/// RFC 9260 s6.2.1, rule D i; s3.3.4: old SACKs and SACKs with blocks out of order change nothing.
#[test]
fn old_or_confused_sacks_are_dropped() {
    let mut scene = Scene::new();
    scene.send(3);
    scene.sack(2, &[]);
    scene.node.take_events();
    assert_eq!(scene.sack_with(1, 0, &[]), []);
    for blocks in [&[[0u16, 0u16]][..], &[[1, 0]], &[[1, 1], [1, 1]], &[[2, 2], [1, 1]]] {
        assert_eq!(scene.sack(2, blocks), []);
    }
    assert_eq!((scene.flight(), scene.node.take_events()), (CHUNK, vec![]));
    assert_eq!(scene.node.read(Counter::SctpDropBadChunk), 4);
}

/// A SACK of what was never sent ends the association: Protocol Violation (RFC 9260 s3.3.10.13).
#[test]
fn a_sack_of_a_tsn_that_was_never_sent_aborts_the_association() {
    let far = &[[u16::MAX; 2]][..];
    for (cum, blocks) in
        [(4, &[][..]), (1 << 30, &[]), (2, &[[2u16, 2u16]]), (0, &[[1, u16::MAX]]), (i32::MAX as u32, far)]
    {
        let mut scene = Scene::new();
        scene.send(3);
        let chunk = sack(scene.base.wrapping_add(cum), RWND, blocks);
        let sent = scene.peer.send(&mut scene.node, &[chunk]);
        let value = scene.base.wrapping_add(cum).to_be_bytes();
        assert_eq!(sent[0].chunks, [(ABORT, 0, tlv(13, &value))]);
        assert_eq!(scene.node.take_events(), [(scene.peer.id, Events::RESET)]);
        assert_eq!(scene.node.sctp.resource_usage().tx_units, 0);
    }
}

/// RFC 9260 s6.2.1, rule D iii: a chunk that is in no block any more is missing again.
#[test]
fn a_peer_may_renege() {
    let mut scene = Scene::new();
    scene.send(3);
    scene.sack(0, &[[2, 3]]);
    assert_eq!(scene.flight(), CHUNK);
    scene.sack(0, &[[3, 3]]);
    assert_eq!((scene.flight(), scene.node.read(Counter::SctpRxPeerReneged)), (2 * CHUNK, 1));
    scene.sack(1, &[]);
    assert_eq!(scene.flight(), 2 * CHUNK);
    scene.node.pass(Nanos::from_millis(6));
    assert_eq!(scene.sent(), [2]);
    assert_eq!(scene.sack(2, &[]), [3]);
    scene.sack(3, &[]);
    assert_eq!(scene.node.sctp.resource_usage().tx_units, 0);
}

/// RFC 9260 s6.2.1, rule D iii: that it is missing again is the first of three reports.
#[test]
fn a_chunk_that_the_peer_dropped_is_lost_after_two_more_reports() {
    let mut scene = Scene::with(SctpConfig { burst_packets_max: 99, ..SctpConfig::default() });
    let mut last = 0;
    while scene.cwnd() < 16 * CHUNK {
        scene.send(99);
        last += 2;
        scene.sack(last, &[]);
    }
    scene.send(99);
    let flight = scene.flight();
    assert_eq!(scene.sack(last, &[[2, 2]]), []);
    assert_eq!(scene.sack(last, &[]), []);
    assert_eq!((scene.flight(), scene.node.read(Counter::SctpRxPeerReneged)), (flight, 1));
    assert_eq!(scene.sack(last, &[[3, 3]]), []);
    assert_eq!(scene.sack(last, &[[3, 4]]), [last + 1], "and the other one as soon as cwnd allows");
    assert!(scene.node.sctp.wants_transmit(scene.peer.id));
}

/// A peer that acknowledges the first chunk with a block only gets it again.
#[test]
fn a_first_chunk_in_a_block_is_sent_again() {
    let mut scene = Scene::new();
    scene.send(2);
    scene.sack(0, &[[1, 2]]);
    assert_eq!(scene.flight(), 0);
    scene.node.pass(Nanos::from_millis(201));
    assert_eq!(scene.sent(), [1]);
}

/// RFC 9260 s9.2: SHUTDOWN waits until all messages are acknowledged, and no more are taken.
#[test]
fn a_close_waits_for_outstanding_messages() {
    let mut scene = Scene::new();
    scene.send(2);
    assert_eq!(scene.node.close(scene.peer.id), Events::empty());
    assert_eq!(
        (scene.node.state(scene.peer.id), scene.send(1)),
        (State::ShutdownPending, (vec![], Blocked::None))
    );
    scene.node.pass(Nanos::from_millis(201));
    assert_eq!(scene.sent(), [1], "it goes on to send again");
    scene.sack(1, &[]);
    let sent = scene.peer.send(&mut scene.node, &[sack(scene.base.wrapping_add(2), RWND, &[])]);
    assert_eq!(sent[0].chunks, [(SHUTDOWN, 0, vec![0, 0, 0, 99])]);
    assert_eq!(scene.node.state(scene.peer.id), State::ShutdownSent);
}

/// RFC 9260 s9.2: a SHUTDOWN acknowledges; SHUTDOWN ACK waits for the rest. A close of our user
/// changes nothing then.
#[test]
fn a_shutdown_of_the_peer_waits_for_outstanding_messages() {
    let mut scene = Scene::new();
    scene.send(3);
    let shutdown = |scene: &mut Scene, cum: u32| {
        let cum = scene.base.wrapping_add(cum).to_be_bytes();
        scene.peer.send(&mut scene.node, &[chunk(SHUTDOWN, 0, &cum)])
    };
    assert_eq!(shutdown(&mut scene, 1), []);
    assert_eq!((scene.node.state(scene.peer.id), scene.flight()), (State::ShutdownReceived, 2 * CHUNK));
    assert_eq!((scene.node.close(scene.peer.id), scene.send(1).1), (Events::empty(), Blocked::None));
    assert_eq!(shutdown(&mut scene, 99), [], "a TSN that was never sent");
    scene.sack(2, &[]);
    assert_eq!(shutdown(&mut scene, 3)[0].kinds(), [SHUTDOWN_ACK]);
    let closed =
        scene.node.take_events().iter().filter(|(_, events)| events.contains(Events::PEER_CLOSED)).count();
    assert_eq!((scene.node.state(scene.peer.id), closed), (State::ShutdownAckSent, 1));
}

/// An association retains no more than its share, and says when a stream is free again.
#[test]
fn retained_chunks_are_limited() {
    let config = SctpConfig {
        retained_chunks_max: 4,
        retained_chunks_reserve: 1,
        retained_chunks_shared: 2,
        ..SctpConfig::default()
    };
    let mut scene = Scene::with(SctpConfig { retained_chunks_shared: 9, ..config.clone() });
    let small: Vec<&[u8]> = vec![b"x"; 9];
    assert_eq!(scene.node.transmit(scene.peer.id, UNORDERED, &small), (4, Blocked::Retained));
    let mut scene = Scene::with(config);
    assert_eq!(scene.node.transmit(scene.peer.id, UNORDERED, &small), (3, Blocked::Pool));
    assert!(
        !scene.node.sctp.is_all_acked(scene.peer.id, 0) && scene.node.sctp.is_all_acked(scene.peer.id, 1)
    );
    scene.sack(3, &[]);
    assert!(scene.node.sctp.is_all_acked(scene.peer.id, 0));
    assert_eq!(scene.node.transmit(scene.peer.id, UNORDERED, &small).0, 3);
}

/// RFC 9260 s6.10: short messages share a packet while it has room for one of 516 octets. Only the
/// last one asks for a SACK.
#[test]
fn short_messages_share_a_packet() {
    let mut scene = Scene::new();
    let short: Vec<&[u8]> = vec![&[1; 64]; 20];
    assert_eq!(scene.node.transmit(scene.peer.id, UNORDERED, &short), (20, Blocked::Source));
    let sent = scene.node.sent();
    let counts: Vec<_> = sent.iter().map(|packet| packet.chunks.len()).collect();
    assert_eq!((counts, SentData::tsns(&sent, scene.base)), (vec![12, 8], (1..=20).collect()));
    let asks: Vec<_> = SentData::all(&sent).iter().map(|data| data.flags & 8 != 0).collect();
    assert_eq!(asks.iter().position(|&asks| asks), Some(19));
    let ordered = MessageHeader { stream: 1, is_unordered: false, ..UNORDERED };
    scene.node.transmit(scene.peer.id, ordered, &short[..3]);
    let ssns: Vec<_> = SentData::all(&scene.node.sent()).iter().map(|data| data.ssn).collect();
    assert_eq!(ssns, [0, 1, 2]);
    scene.sack(22, &[]);
    assert_eq!((scene.flight(), &scene.node.upper.acked[..]), (80, &[(0, 20 * 64), (1, 2 * 64)][..]));
}

/// RFC 9260 s6.10: a packet with several messages fits the path MTU, also behind a SACK.
#[test]
fn messages_that_share_a_packet_fit_the_mtu() {
    for has_sack in [false, true] {
        let mut shared = 0;
        for bytes in (200..=500).step_by(7) {
            let mut scene = Scene::new();
            if has_sack {
                // Every second TSN, so that the SACK has many blocks. It waits.
                let chunks: Vec<_> = (0..40).map(|n| data(100 + 2 * n, b"a")).collect();
                scene
                    .node
                    .receive(&Route::v4(1, 2).packet(132, &packet([FROM, PORT], scene.peer.tag, &chunks)));
            }
            let message = vec![7; bytes];
            assert_eq!(scene.node.transmit(scene.peer.id, UNORDERED, &[&message[..]; 7]).0, 7);
            let frames = scene.node.frames();
            assert!(frames.iter().all(|frame| frame.len() <= 14 + 1_500), "{bytes} octets");
            let kinds: Vec<_> = frames.iter().map(|frame| Sent::read(frame).kinds()).collect();
            assert_eq!(kinds[0][0] == SACK, has_sack, "{kinds:?}");
            shared += kinds.iter().filter(|kinds| kinds[usize::from(has_sack)..].len() > 1).count();
        }
        assert!(shared > 40, "{shared} packets with several messages");
    }
}

/// What happens, a number, Gap Ack Blocks as gap and length, and a window.
type Step = (u8, u32, Vec<(u16, u16)>, u32);

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let blocks = prop_oneof![1 => Just(vec![]), 1 => prop::collection::vec((0u16..12, 0u16..4), 0..4)];
    let a_rwnd = prop_oneof![1 => Just(0u32), 7 => Just(RWND)];
    prop::collection::vec((0u8..16, 0u32..16, blocks, a_rwnd), 1..60)
}

/// What the SACKs of some steps did.
#[derive(Default)]
struct Coverage {
    /// They acknowledged chunks in sequence, with nothing lost before.
    in_sequence: u64,
    /// They began a fast recovery.
    recoveries: u64,
    /// They ended the association.
    aborts: u64,
}

impl Scene {
    fn outstanding(&self) -> u32 {
        self.node.sctp.resource_usage().tx_units as u32
    }

    /// Takes a step of this side or of the peer, which has acknowledged `acked`. Returns what is
    /// sent.
    fn take(&mut self, (kind, n, blocks, a_rwnd): &Step, acked: &mut u32) -> Vec<Sent> {
        let header = MessageHeader { stream: *n as u16 % 2, ..UNORDERED };
        let outstanding = self.outstanding();
        match kind {
            0..3 => _ = self.node.transmit(self.peer.id, UNORDERED, &vec![FULL; *n as usize]),
            3..6 => _ = self.node.transmit(self.peer.id, header, &vec![&[3; 200][..]; *n as usize]),
            6 => self.node.pass(Nanos::from_millis(u64::from(*n) * 50)),
            7 if *n == 0 => _ = self.node.close(self.peer.id),
            8 if *n == 0 => {
                let cum = self.base.wrapping_add(*acked);
                return self.peer.send(&mut self.node, &[chunk(SHUTDOWN, 0, &cum.to_be_bytes())]);
            }
            // One SACK of sixteen is of any numbers.
            9 if *n < 8 => {
                let ranges = blocks.iter().map(|&(first, len)| [first, first + len]);
                return self.acknowledge(*acked + 2 * n, *a_rwnd, &ranges.collect::<Vec<_>>());
            }
            _ => {
                let cum = n % (outstanding + 1).min(4);
                *acked += cum;
                let (mut end, last) = (0, (outstanding - cum) as u16);
                let ranges = blocks.iter().map(|&(gap, len)| {
                    let first = end + 2 + gap % 3;
                    end = first + len;
                    [first, end]
                });
                let fitting: Vec<_> = ranges.take_while(|&[_, end]| end <= last).collect();
                return self.acknowledge(*acked, *a_rwnd, &fitting);
            }
        }
        self.node.sent()
    }

    fn acknowledge(&mut self, cum: u32, a_rwnd: u32, blocks: &[[u16; 2]]) -> Vec<Sent> {
        self.peer.send(&mut self.node, &[sack(self.base.wrapping_add(cum), a_rwnd, blocks)])
    }
}

/// Runs a property for many lists of steps.
fn for_any_steps(property: impl Fn(Vec<Step>) -> Result<(), TestCaseError>) {
    let mut runner = TestRunner::new(ProptestConfig::with_cases(256));
    runner.run(&steps(), property).unwrap_or_else(|failure| panic!("{failure}"));
}

/// SACKs and SHUTDOWNs of any numbers near those sent, timeouts and transmissions in any order: the
/// invariants hold, and an association that lives can be completed.
#[test]
fn any_sacks_are_harmless() {
    let completed = Cell::new(0);
    for_any_steps(|steps| {
        let (mut scene, mut acked) = (Scene::new(), 0);
        steps.iter().for_each(|step| _ = scene.take(step, &mut acked));
        scene.sent();
        for _ in 0..200 {
            acked += scene.outstanding().min(1);
            scene.sack(acked, &[]);
            scene.node.pass(Nanos::from_millis(10));
        }
        let info = scene.node.sctp.association_info(scene.peer.id);
        if info.is_some_and(|info| info.state == State::Established) {
            prop_assert_eq!((scene.outstanding(), scene.flight()), (0, 0));
            completed.set(completed.get() + u64::from(acked > 0));
        }
        Ok(())
    });
    assert!(completed.get() >= 64, "{completed:?} associations completed");
}

/// What is sent, reported and retained is the same, whatever the peer acknowledges.
#[test]
fn the_fast_path_cannot_be_told_from_the_general_path() {
    let covered = RefCell::new(Coverage::default());
    for_any_steps(|steps| {
        let mut scenes = [true, false]
            .map(|fast_path| (Scene::with(SctpConfig { fast_path, ..SctpConfig::default() }), 0));
        let seen = |scene: &mut Scene| {
            let acked = std::mem::take(&mut scene.node.upper.acked);
            let of = |wanted| {
                acked.iter().filter(|&&(stream, _)| stream == wanted).map(|&(_, bytes)| bytes).sum::<u32>()
            };
            let sctp = &scene.node.sctp;
            let info = sctp.association_info(scene.peer.id);
            ([0, 1].map(of), info, sctp.next_deadline(), scene.outstanding(), scene.node.take_events())
        };
        for step in &steps {
            let before = scenes[0].1;
            let [fast, general] =
                scenes.each_mut().map(|(scene, acked)| (scene.take(step, acked), seen(scene)));
            prop_assert_eq!(fast, general);
            let is_lossless = [Counter::SctpTxRetransmittedChunks, Counter::SctpTimeouts]
                .iter()
                .all(|counter| scenes[0].0.node.read(*counter) == 0);
            let is_in_sequence = is_lossless && step.2.is_empty() && scenes[0].1 > before;
            covered.borrow_mut().in_sequence += u64::from(is_in_sequence);
        }
        let mut covered = covered.borrow_mut();
        covered.recoveries += scenes[0].0.node.read(Counter::SctpFastRecoveries);
        covered.aborts += scenes[0].0.node.read(Counter::SctpTxAborts);
        Ok(())
    });
    let Coverage { in_sequence, recoveries, aborts } = covered.into_inner();
    assert!(
        in_sequence >= 200 && recoveries >= 4 && aborts >= 16,
        "{in_sequence} SACKs in sequence, {recoveries} recoveries, {aborts} aborts"
    );
}

/// Without room in the device a call changes nothing and says so first, whatever the state is: the
/// sender keeps its place in the list of senders.
#[test]
fn a_device_without_room_comes_before_the_state() {
    for closes in [false, true] {
        let mut scene = Scene::new();
        if closes {
            scene.node.close(scene.peer.id);
        }
        scene.node.control.limit_tx_burst(0);
        let full = |scene: &mut Scene| {
            let heartbeat = packet([FROM, PORT], scene.peer.tag, &[chunk(HEARTBEAT, 0, &tlv(1, b"nonce"))]);
            (0..256).for_each(|_| drop(scene.node.answers(1, &heartbeat)));
            scene.node.read(Counter::SctpTxRingFull) > 0
        };
        assert!(full(&mut scene));
        assert_eq!(scene.send(1), (vec![], Blocked::Wire), "closes: {closes}");
        scene.node.control.limit_tx_burst(u64::MAX);
        scene.node.sent();
        assert_eq!(scene.send(1).0.len(), usize::from(!closes));
    }
}

/// A retransmission is lost, too, after three reports of chunks that were sent after it. Reports of
/// earlier ones do not count, and the window is not halved again.
#[test]
fn three_reports_of_later_chunks_retransmit_a_retransmission() {
    let mut scene = Scene::with(SctpConfig { burst_packets_max: 99, ..SctpConfig::default() });
    let mut last = 0;
    while scene.cwnd() < 16 * CHUNK {
        scene.send(99);
        last += 2;
        scene.sack(last, &[]);
    }
    scene.send(99);
    let end = scene.node.sctp.resource_usage().tx_units as u16;
    assert_eq!(scene.sack(last, &[[2, 2]]), []);
    assert_eq!(scene.sack(last, &[[2, 3]]), []);
    assert_eq!(scene.sack(last, &[[2, 4]]), [last + 1]);
    let cwnd = scene.cwnd();
    // The retransmission left now: what follows up to `end` was sent before it.
    for to in 5..=end {
        assert_eq!(scene.sack(last, &[[2, to]]), []);
    }
    let (sent, _) = scene.send(99);
    assert_eq!(sent.first(), Some(&(last + u32::from(end) + 1)), "the recovery goes on with new chunks");
    for to in [end + 1, end + 2] {
        assert_eq!(scene.sack(last, &[[2, to]]), []);
    }
    assert_eq!(scene.sack(last, &[[2, end + 3]]), [last + 1], "the third report of a later chunk");
    assert_eq!((scene.cwnd(), scene.node.read(Counter::SctpFastRecoveries)), (cwnd, 1));
}
