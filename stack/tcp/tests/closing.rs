//! Closing a connection: by us, by the peer, and by both.

use crate::common;

use common::node::addr;
use common::pattern::Pattern;
use common::script::Script;
use ironwarp_stats::Counter;
use ironwarp_tcp::{State, TcpConfig, TcpEvents, Transport};
use ironwarp_types::Nanos;

fn config() -> TcpConfig {
    TcpConfig { rto_min: Nanos::from_millis(10), rto_initial: Nanos::from_millis(10), ..TcpConfig::default() }
}

fn script() -> Script {
    Script::connected(config(), 64_000)
}

fn state(s: &Script) -> State {
    s.node.tcp.state(s.id())
}

/// RFC 9293 s3.6, case 1, figure 12.
/// RFC 9293 (MUST-12).
#[test]
fn our_close_goes_through_fin_wait_to_time_wait() {
    let mut s = script();
    s.close();
    s.expect(&["F. 1 ack 1"]);
    assert_eq!(state(&s), State::FinWait1);
    s.peer(". 1 ack 2 win 64000");
    assert_eq!((state(&s), s.events()), (State::FinWait2, TcpEvents::empty()));
    s.peer("F. 1 ack 2 win 64000");
    assert_eq!(s.events(), TcpEvents::PEER_CLOSED | TcpEvents::CLOSED);
    s.expect(&[". 2 ack 2"]);
    assert_eq!(state(&s), State::Closed);
}

/// RFC 9293 s3.6, case 2.
#[test]
fn the_peers_close_goes_through_close_wait_to_closed() {
    let mut s = script();
    s.peer("F. 1 ack 1 win 64000");
    assert_eq!((state(&s), s.events()), (State::CloseWait, TcpEvents::PEER_CLOSED));
    s.expect(&[". 1 ack 2"]);
    // RFC 9293 s3.6: our direction stays open.
    s.transmit(&mut Pattern::new(10, 10), 1);
    s.expect(&["P. 1:11(10) ack 2"]);
    s.close();
    s.expect(&["F. 11 ack 2"]);
    assert_eq!(state(&s), State::LastAck);
    s.peer(". 2 ack 12 win 64000");
    assert_eq!((state(&s), s.events()), (State::Closed, TcpEvents::ACKED | TcpEvents::CLOSED));
    s.peer(". 2 ack 12 win 64000");
    s.expect(&["R 12"]);
}

/// RFC 9293 s3.6, case 3, figure 13.
#[test]
fn a_simultaneous_close_goes_through_closing() {
    let mut s = script();
    s.close();
    s.expect(&["F. 1 ack 1"]);
    s.peer("F. 1 ack 1 win 64000");
    assert_eq!((state(&s), s.events()), (State::Closing, TcpEvents::PEER_CLOSED));
    s.expect(&[". 2 ack 2"]);
    s.peer(". 2 ack 2 win 64000");
    assert_eq!(s.events(), TcpEvents::CLOSED);
    s.peer("F. 1 ack 2 win 64000");
    s.expect(&[". 2 ack 2"]);
}

/// RFC 9293 s3.10.7.4, eighth step in FIN-WAIT-1 with our FIN acknowledged in the same segment.
#[test]
fn a_fin_that_acknowledges_ours_enters_time_wait_at_once() {
    let mut s = script();
    s.close();
    s.sent();
    s.peer("F. 1 ack 2 win 64000");
    assert_eq!(s.events(), TcpEvents::PEER_CLOSED | TcpEvents::CLOSED);
    s.expect(&[". 2 ack 2"]);
}

/// RFC 9293 s3.10.7.4, eighth step: a FIN is processed once all bytes before it have arrived.
#[test]
fn an_out_of_order_fin_waits_for_the_bytes_before_it() {
    let mut s = script();
    s.peer("F. 101:201(100) ack 1 win 64000");
    assert_eq!((s.events(), state(&s)), (TcpEvents::empty(), State::Established));
    s.peer("P. 1:101(100) ack 1 win 64000");
    assert_eq!(s.events(), TcpEvents::READABLE | TcpEvents::PEER_CLOSED);
    // One ACK, for the out-of-order segment; it now also covers the second one.
    s.expect(&[". 1 ack 202"]);
    assert_eq!(s.read(), 200);
}

/// docs/semantics.md, Terminate: bytes that arrive after our FIN are acknowledged and readable.
#[test]
fn bytes_after_our_fin_are_received_until_the_peers_fin() {
    let mut s = script();
    s.close();
    s.peer("P. 1:101(100) ack 2 win 64000");
    assert_eq!(s.events(), TcpEvents::READABLE);
    s.peer("FP. 101:201(100) ack 2 win 64000");
    assert_eq!(s.events(), TcpEvents::READABLE | TcpEvents::PEER_CLOSED | TcpEvents::CLOSED);
    assert_eq!(s.read(), 200);
}

/// RFC 9293 s3.10.7.4, seventh step: bytes after a FIN are ignored.
#[test]
fn bytes_after_the_peers_fin_are_ignored() {
    let mut s = script();
    s.peer("FP. 1:11(10) ack 1 win 64000");
    s.peer("P. 12:22(10) ack 1 win 64000");
    assert_eq!(s.read(), 10);
}

/// RFC 9293 s3.10.7.4, TIME-WAIT: a repeated FIN is acknowledged. RFC 1337: a reset is ignored.
#[test]
fn time_wait_acknowledges_repeated_fins_and_ignores_resets() {
    let mut s = script();
    s.close();
    s.peer("F. 1 ack 2 win 64000");
    s.sent();
    s.node.tcp.release(s.id());
    s.peer("F. 1 ack 2 win 64000");
    s.expect(&[". 2 ack 2"]);
    s.peer("R 2 win 0");
    s.expect(&[]);
    s.peer("S 900 win 500");
    s.expect(&[". 2 ack 2"]);
    s.peer(". 2 ack 2 win 64000");
    s.expect(&[]);
    assert_eq!(
        s.node.tcp.ephemeral_port(s.node.now, addr(1, 0).ip(), addr(2, 50_000)).map(|port| port == 4_420),
        Some(false)
    );
    s.advance(Nanos::from_secs(61));
    s.peer("P. 2:3(1) ack 2 win 64000");
    s.expect(&["R 2"]);
    s.node.check();
}

/// RFC 6191 s2: a SYN beyond all numbers of the old connection opens a new one. RFC 9293 s3.10.7.4:
/// any other SYN is acknowledged. RFC 9293 (MAY-2).
#[test]
fn a_syn_beyond_the_last_byte_reuses_a_flow_in_time_wait() {
    let mut s = Script::accepted(config(), 64_000);
    s.close();
    s.peer("F. 1 ack 2 win 64000");
    s.sent();
    s.node.tcp.release(s.id());
    s.peer("S 1 win 500");
    s.expect(&[". 2 ack 2"]);
    s.peer("S 900 win 500");
    let answer = s.sent().join(" ");
    assert!(answer.starts_with("S. ") && answer.contains("ack 901"), "{answer}");
    // RFC 9293 s3.6.1: our ISN is beyond the numbers of the old connection, although no time has
    // passed.
    let number: u32 = answer.split(' ').nth(1).and_then(|text| text.parse().ok()).expect("a number");
    assert!((3..1 << 31).contains(&number), "{answer}");
    s.node.check();
}

/// RFC 9293 s3.10.7.4: only the peer's FIN restarts the wait.
#[test]
fn a_repeated_fin_restarts_time_wait() {
    let mut s = script();
    s.close();
    s.peer("F. 1 ack 2 win 64000");
    s.sent();
    s.advance(Nanos::from_secs(40));
    s.peer("F. 1 ack 2 win 64000");
    s.sent();
    s.advance(Nanos::from_secs(40));
    s.peer("F. 1 ack 2 win 64000");
    s.expect(&[". 2 ack 2"]);
}

/// docs/semantics.md, TIME-WAIT: the table is bounded, and a new entry replaces the oldest.
#[test]
fn a_full_time_wait_table_evicts_the_oldest_flow() {
    let mut s = Script::new(TcpConfig { time_wait_max: 2, ..config() });
    for port in [50_000, 50_001, 50_002] {
        s.open_to(port);
        s.close();
        s.peer("F. 1 ack 2 win 64000");
        assert_eq!(s.events(), TcpEvents::PEER_CLOSED | TcpEvents::CLOSED);
        s.sent();
        s.node.tcp.release(s.id());
    }
    assert_eq!(s.node.read(Counter::TcpTimeWaitEvicted), 1);
    s.node.check();
}

/// FIN-WAIT-2 has a limit for peers that never send a FIN.
#[test]
fn fin_wait_2_has_a_time_limit() {
    let mut s = Script::connected(TcpConfig { fin_wait_2: Nanos::from_secs(5), ..config() }, 64_000);
    s.close();
    s.peer(". 1 ack 2 win 64000");
    s.sent();
    s.advance(Nanos::from_secs(4));
    assert_eq!(s.events(), TcpEvents::empty());
    s.advance(Nanos::from_millis(1_001));
    assert_eq!(s.events(), TcpEvents::TIMED_OUT);
}

/// RFC 9293 s3.10.5.
#[test]
fn an_abort_resets_the_peer_and_frees_everything() {
    let mut s = script();
    s.peer("P. 201:301(100) ack 1 win 64000");
    s.transmit(&mut Pattern::new(1_000, 100), 32);
    s.sent();
    let id = s.id();
    s.node.tcp.abort(s.node.now, id, &mut s.node.wires);
    s.expect(&["R. 1001 ack 1"]);
    assert_eq!(state(&s), State::Closed);
    s.node.tcp.release(id);
    s.node.check();
    assert_eq!(s.node.tx_frames_in_use(), 0);
    s.peer("P. 1:2(1) ack 1001 win 500");
    s.expect(&["R 1001"]);
}

/// The ACK that waited for a reply leaves before the reset, which repeats it: the peer must not
/// take what arrived as lost.
#[test]
fn an_abort_acknowledges_what_arrived_in_order() {
    for fast_path in [true, false] {
        let mut s = Script::connected(TcpConfig { fast_path, ..config() }, 64_000);
        s.peer("P. 1:101(100) ack 1 win 64000");
        let id = s.id();
        s.node.tcp.abort(s.node.now, id, &mut s.node.wires);
        s.expect(&[". 1 ack 101", "R. 1 ack 101"]);
        s.node.tcp.release(id);
        s.node.check();
    }
}

/// A peer of which nothing was delivered gets one frame: it cannot make a node send more than it
/// sent itself.
#[test]
fn a_refused_connection_is_reset_with_one_frame() {
    let mut s = Script::connected(config(), 64_000);
    s.peer("P. 1:101(100) ack 1 win 64000");
    let id = s.id();
    s.node.tcp.refuse(s.node.now, id, &mut s.node.wires);
    s.expect(&["R. 1 ack 101"]);
    assert_eq!(state(&s), State::Closed);
    s.node.tcp.release(id);
    s.node.check();
}

/// RFC 5961 s3.2 and s5.2: a reset at RCV.NXT ends the connection after its ACK, if that is of sent
/// data.
#[test]
fn a_reset_acknowledges_data_before_it_ends_the_connection() {
    for (reset, acked) in [
        ("R. 1 ack 101 win 0", 100),
        ("R. 1 ack 201 win 0", 200),
        // An old one, one of nothing new, one of data that was never sent, and none.
        ("R. 1 ack -50 win 0", 0),
        ("R. 1 ack 1 win 0", 0),
        ("R. 1 ack 202 win 0", 0),
        ("R 1 win 0", 0),
    ] {
        let mut s = script();
        s.transmit(&mut Pattern::new(200, 100), 2);
        s.sent();
        s.peer(reset);
        let expected = if acked > 0 { TcpEvents::ACKED | TcpEvents::RESET } else { TcpEvents::RESET };
        let id = s.id();
        assert_eq!((s.events(), s.node.tcp.acked_bytes(id)), (expected, acked), "{reset}");
        s.node.tcp.release(id);
        s.node.check();
        assert_eq!(s.node.tx_frames_in_use(), 0);
    }
}

/// RFC 5961 s3.2: a reset elsewhere in the window only draws a challenge ACK. Its own ACK is not
/// taken.
#[test]
fn a_reset_that_is_not_accepted_acknowledges_nothing() {
    let mut s = script();
    s.transmit(&mut Pattern::new(100, 100), 32);
    s.sent();
    s.peer("R. 2 ack 101 win 0");
    s.expect(&[". 101 ack 1"]);
    assert_eq!((s.events(), s.node.tcp.acked_bytes(s.id())), (TcpEvents::empty(), 0));
}

/// RFC 9293 s3.10.7.4, second step in LAST-ACK, with data that the reset acknowledges.
#[test]
fn a_reset_that_acknowledges_all_data_in_last_ack_is_a_close() {
    let mut s = script();
    s.peer("F. 1 ack 1 win 64000");
    s.transmit(&mut Pattern::new(100, 100), 1);
    s.close();
    s.sent();
    s.events();
    s.peer("R. 2 ack 101 win 0");
    assert_eq!(s.events(), TcpEvents::ACKED | TcpEvents::CLOSED);
}

#[test]
fn a_stale_id_does_nothing() {
    let mut s = script();
    let id = s.id();
    s.node.tcp.abort(s.node.now, id, &mut s.node.wires);
    s.node.tcp.release(id);
    s.sent();
    s.connect();
    s.sent();
    assert_ne!(s.id(), id);
    assert_eq!(s.node.tcp.close(s.node.now, id, &mut s.node.wires), TcpEvents::empty());
    s.node.tcp.abort(s.node.now, id, &mut s.node.wires);
    s.node.tcp.release(id);
    assert_eq!((s.node.tcp.emss(id), s.node.tcp.acked_bytes(id)), (0, 0));
    s.expect(&[]);
    assert_eq!(state(&s), State::SynSent);
}

/// RFC 9293 s3.10.7.4, second step in LAST-ACK and CLOSING: all data is transferred, so a reset
/// counts as a close.
#[test]
fn a_reset_in_last_ack_is_a_close() {
    let mut s = script();
    s.peer("F. 1 ack 1 win 64000");
    s.close();
    s.sent();
    s.events();
    s.peer("R 2 win 0");
    assert_eq!(s.events(), TcpEvents::CLOSED);
}
