//! Opening a connection, as the peer sees it on the wire.

use crate::common;

use common::node::addr;
use common::pattern::Pattern;
use common::script::Script;
use ironwarp_stats::Counter;
use ironwarp_tcp::{ConnectError, State, TcpConfig, TcpEvents, Transport};
use ironwarp_types::Nanos;

fn config() -> TcpConfig {
    TcpConfig { rto_initial: Nanos::from_millis(100), ..TcpConfig::default() }
}

/// RFC 9293 s3.5, figure 6, active open. RFC 7323 s2.2: the window of a SYN is not scaled.
#[test]
fn an_active_open_sends_a_syn_and_acknowledges_the_answer() {
    let mut s = Script::new(config());
    s.connect();
    s.expect(&["S 0 win 65535 <mss 1460,ws 4>"]);
    assert_eq!(s.node.tcp.state(s.id()), State::SynSent);
    s.peer("S. 0 ack 1 win 64000 <mss 1460,ws 7>");
    assert_eq!(s.events(), TcpEvents::ESTABLISHED);
    s.expect(&[". 1 ack 1 win 32768"]);
    assert_eq!(s.node.tcp.state(s.id()), State::Established);
}

/// RFC 9293 s3.5, figure 6, passive open.
#[test]
fn a_passive_open_answers_a_syn_and_reports_established() {
    let mut s = Script::new(config());
    let listener = s.node.tcp.listen(addr(1, 4_420)).expect("room");
    s.peer("S 0 win 65535 <mss 1460,ws 7>");
    s.expect(&["S. 0 ack 1 win 65535 <mss 1460,ws 4>"]);
    assert!(s.node.events.is_empty());
    s.peer(". 1 ack 1 win 500");
    s.id = s.node.established();
    assert_eq!(s.events(), TcpEvents::ESTABLISHED);
    assert_eq!(s.node.tcp.listener(s.id()), Some(listener));
    s.expect(&[]);
}

/// RFC 7323 s2.2: without the peer's offer, window scaling is neither offered nor used.
#[test]
fn a_peer_that_does_not_scale_gets_a_window_of_64_kib() {
    let mut s = Script::new(config());
    s.node.tcp.listen(addr(1, 4_420)).expect("room");
    s.peer("S 0 win 65535 <mss 1460>");
    s.expect(&["S. 0 ack 1 win 65535 <mss 1460>"]);
}

/// RFC 9293 s3.10.7.4: the ACK that completes the handshake may carry data.
#[test]
fn payload_with_the_last_ack_of_the_handshake_is_readable() {
    let mut s = Script::new(config());
    s.node.tcp.listen(addr(1, 4_420)).expect("room");
    s.peer("S 0 win 65535 <mss 1460>");
    s.sent();
    s.peer("P. 1:101(100) ack 1 win 65535");
    s.id = s.node.established();
    assert_eq!(s.events(), TcpEvents::ESTABLISHED | TcpEvents::READABLE);
    assert_eq!(s.read(), 100);
}

/// RFC 9293 s3.5, figure 7.
#[test]
fn a_simultaneous_open_ends_established_on_syn_ack_or_on_ack() {
    for last in ["S. 0 ack 1 win 500", ". 1 ack 1 win 500"] {
        let mut s = Script::new(config());
        s.connect();
        s.sent();
        s.peer("S 0 win 500 <mss 1460,ws 0>");
        s.expect(&["S. 0 ack 1 <mss 1460,ws 4>"]);
        assert_eq!(s.node.tcp.state(s.id()), State::SynReceived);
        s.peer(last);
        assert_eq!(s.events(), TcpEvents::ESTABLISHED, "{last}");
        assert_eq!(s.node.tcp.state(s.id()), State::Established);
    }
}

/// RFC 7323 s2.2: the window of a SYN-ACK is not scaled, including the second one of a simultaneous
/// open.
#[test]
fn the_window_of_a_crossing_syn_ack_is_not_scaled() {
    let mut s = Script::new(config());
    s.connect();
    s.sent();
    s.peer("S 0 win 500 <mss 1460,ws 7>");
    s.sent();
    s.peer("S. 0 ack 1 win 500 <mss 1460,ws 7>");
    assert_eq!(s.events(), TcpEvents::ESTABLISHED);
    assert!(s.transmit(&mut Pattern::new(10_000, 100), 32).bytes <= 500);
}

/// RFC 9293 s3.8.3, RFC 6298 s5: SYN retransmissions back off, and the attempt ends after the
/// limit.
#[test]
fn an_unanswered_syn_is_retransmitted_with_backoff_and_then_aborted() {
    let mut s = Script::new(TcpConfig { syn_retries: 2, ..config() });
    s.connect();
    s.expect(&["S 0 <mss 1460,ws 4>"]);
    for wait_ms in [100, 200] {
        s.advance(Nanos::from_millis(wait_ms - 1));
        s.expect(&[]);
        s.advance(Nanos::from_millis(2));
        s.expect(&["S 0 <mss 1460,ws 4>"]);
    }
    s.advance(Nanos::from_millis(401));
    assert_eq!(s.events(), TcpEvents::TIMED_OUT);
    s.expect(&[]);
    assert_eq!(s.node.tcp.state(s.id()), State::Closed);
}

#[test]
fn a_half_open_connection_retransmits_its_syn_ack_and_ends_without_an_event() {
    let mut s = Script::new(TcpConfig { syn_retries: 1, ..config() });
    s.node.tcp.listen(addr(1, 4_420)).expect("room");
    s.peer("S 0 win 65535 <mss 1460>");
    s.expect(&["S. 0 ack 1 <mss 1460>"]);
    s.peer("S 0 win 65535 <mss 1460>");
    s.expect(&["S. 0 ack 1 <mss 1460>"]);
    s.advance(Nanos::from_millis(101));
    s.expect(&["S. 0 ack 1 <mss 1460>"]);
    s.advance(Nanos::from_millis(201));
    s.expect(&[]);
    assert!(s.node.events.is_empty());
    s.peer(". 1 ack 1 win 100");
    s.expect(&["R 1"]);
}

#[test]
fn syns_beyond_the_half_open_limit_are_dropped_and_counted() {
    let mut s = Script::new(TcpConfig { half_open_max: 2, syn_cookies: false, ..config() });
    s.node.tcp.listen(addr(1, 4_420)).expect("room");
    for port in 0..5 {
        s.peer_port = 50_000 + port;
        s.peer("S 0 win 65535 <mss 1460>");
    }
    assert_eq!(s.node.sent().len(), 2);
    assert_eq!(s.node.read(Counter::TcpDropHalfOpenFull), 3);
}

#[test]
fn active_and_passive_opens_beyond_the_limit_are_refused() {
    let mut s = Script::new(TcpConfig { connections_max: 1, ..config() });
    s.node.tcp.listen(addr(1, 4_420)).expect("room");
    s.our_port = 1_000;
    s.connect();
    s.sent();
    let path = s.node.path_to(2);
    let flow = ironwarp_types::Flow { local: addr(1, 1_001), remote: addr(2, 80) };
    assert_eq!(s.node.tcp.connect(s.node.now, flow, path, &mut s.node.wires), Err(ConnectError::Full));
    s.our_port = 4_420;
    s.peer("S 0 win 65535 <mss 1460>");
    s.expect(&[]);
    assert_eq!(s.node.read(Counter::TcpDropConnectionTableFull), 1);
}

#[test]
fn two_connections_cannot_have_the_same_endpoints() {
    let mut s = Script::new(config());
    s.connect();
    let (path, flow) = (s.node.path_to(2), s.node.tcp.flow(s.id()).expect("a flow"));
    assert_eq!(s.node.tcp.connect(s.node.now, flow, path, &mut s.node.wires), Err(ConnectError::InUse));
}

/// RFC 9293 s3.10.7.3: a reset that acknowledges our SYN refuses the connection.
/// RFC 5961 s3.2.
#[test]
fn a_reset_in_answer_to_our_syn_reports_refused() {
    let mut s = Script::new(config());
    s.connect();
    s.sent();
    s.peer("R 0 win 0");
    assert_eq!(s.events(), TcpEvents::empty());
    s.peer("R. 0 ack 1 win 0");
    assert_eq!(s.events(), TcpEvents::REFUSED);
    s.node.tcp.release(s.id());
    s.node.check();
}

/// A setting: the SYN is sent again, since the server may be about to listen.
#[test]
fn a_refused_open_is_tried_again_as_often_as_configured() {
    let mut s = Script::new(TcpConfig { refused_retries: 1, ..config() });
    s.connect();
    s.sent();
    s.peer("R. 0 ack 1 win 0");
    assert_eq!((s.events(), s.node.tcp.state(s.id())), (TcpEvents::empty(), State::SynSent));
    s.advance(Nanos::from_millis(101));
    s.expect(&["S 0 <mss 1460,ws 4>"]);
    s.peer("R. 0 ack 1 win 0");
    assert_eq!(s.events(), TcpEvents::REFUSED);
}

/// RFC 9293 s3.5.1, figure 8: an old SYN-ACK is answered with a reset that it accepts.
#[test]
fn a_syn_ack_of_another_incarnation_is_reset() {
    let mut s = Script::new(config());
    s.connect();
    s.sent();
    s.peer("S. 7 ack 300 win 500");
    s.expect(&["R 300"]);
    assert_eq!(s.node.tcp.state(s.id()), State::SynSent);
}

/// RFC 9293 s3.10.7.1: no connection, no listener.
#[test]
fn unknown_segments_are_reset_and_unknown_resets_ignored() {
    let mut s = Script::new(config());
    s.peer("S 0 win 500");
    s.expect(&["R. 0 ack 1"]);
    s.peer("P. 5:15(10) ack 77 win 500");
    s.expect(&["R 77"]);
    s.peer("R 5 win 0");
    s.expect(&[]);
}

/// RFC 9293 s3.10.7.4, RFC 5961 s3.2: a challenge ACK has SND.NXT, the number after our SYN,
/// although no window is known yet.
#[test]
fn a_challenge_ack_during_the_handshake_has_snd_nxt() {
    let mut s = Script::new(config());
    s.node.tcp.listen(addr(1, 4_420)).expect("room");
    s.peer("S 0 win 65535 <mss 1460>");
    s.sent();
    s.peer("R 9");
    s.expect(&[". 1 ack 1"]);
    assert_eq!(s.node.read(Counter::TcpChallengeAcks), 1);
}

/// RFC 5961 s7, RFC 9293 s3.10.7.1: resets for unknown segments are rate-limited.
#[test]
fn resets_for_unknown_segments_are_limited_per_millisecond() {
    let mut s = Script::new(TcpConfig { replies_per_ms: 3, ..config() });
    for _ in 0..10 {
        s.peer("S 0 win 500");
    }
    let answers = s.sent().len();
    assert!((2..=3).contains(&answers), "{answers}");
    s.advance(Nanos::from_millis(3));
    s.peer("S 0 win 500");
    assert_eq!(s.sent().len(), 1);
}

/// RFC 9293 s3.10.7.2: a listener resets an ACK; a SYN with RST is a reset.
#[test]
fn a_listener_opens_connections_for_syns_only() {
    let mut s = Script::new(config());
    s.node.tcp.listen(addr(1, 4_420)).expect("room");
    s.peer(". 1 ack 9 win 500");
    s.expect(&["R 9"]);
    s.peer("SR 0 win 500");
    s.expect(&[]);
}

/// RFC 9293 s3.10.7.4, second and fifth step in SYN-RECEIVED.
#[test]
fn a_half_open_connection_ends_on_reset_and_refuses_a_wrong_ack() {
    let mut s = Script::new(config());
    s.node.tcp.listen(addr(1, 4_420)).expect("room");
    s.peer("S 0 win 65535 <mss 1460>");
    s.sent();
    s.peer(". 1 ack 500 win 100");
    s.expect(&["R 500"]);
    s.peer("R 1 win 0");
    s.expect(&[]);
    s.peer("S 0 win 65535 <mss 1460>");
    assert_eq!(s.sent().len(), 1);
    assert!(s.node.events.is_empty());
}

/// Closing during the handshake: SYN-SENT ends at once; after a simultaneous open the FIN waits.
#[test]
fn a_close_during_the_handshake_sends_the_fin_later() {
    let mut s = Script::new(config());
    s.connect();
    s.sent();
    assert_eq!(s.close(), TcpEvents::CLOSED);
    s.peer("S. 0 ack 1 win 500");
    s.expect(&["R 1"]);

    let mut s = Script::new(config());
    s.connect();
    s.sent();
    s.peer("S 0 win 500 <mss 1460>");
    s.sent();
    assert_eq!(s.close(), TcpEvents::empty());
    s.expect(&[]);
    s.peer(". 1 ack 1 win 500");
    assert!(s.events().contains(TcpEvents::ESTABLISHED));
    s.expect(&["F. 1 ack 1"]);
    assert_eq!(s.node.tcp.state(s.id()), State::FinWait1);
}

/// RFC 5044 s4.5 and RFC 9293 s3.7.1.
#[test]
fn the_segment_size_follows_the_peer_but_not_below_144() {
    for (mss, emss) in [(1_000, 1_000), (8_960, 1_460), (1, 144)] {
        let mut s = Script::new(config());
        s.connect();
        s.sent();
        s.peer(&format!("S. 0 ack 1 win 500 <mss {mss}>"));
        assert_eq!(s.node.tcp.emss(s.id()), emss);
    }
}

#[test]
fn a_removed_listener_accepts_no_syns() {
    let mut s = Script::new(config());
    let listener = s.node.tcp.listen(addr(1, 4_420)).expect("room");
    s.node.tcp.unlisten(listener);
    s.peer("S 0 win 500");
    s.expect(&["R. 0 ack 1"]);
}

#[test]
fn a_syn_without_a_frame_is_sent_by_its_timer() {
    let mut s = Script::new(config());
    s.node.allow_allocations(false);
    s.connect();
    s.expect(&[]);
    s.node.allow_allocations(true);
    s.advance(Nanos::from_millis(101));
    s.expect(&["S 0 <mss 1460,ws 4>"]);
}
