//! SYN cookies: connections that open while the queue of half-open connections is full.

use crate::common;

use common::node::addr;
use common::pattern::Pattern;
use common::script::Script;
use ironwarp_stats::Counter;
use ironwarp_tcp::{ByteStream, TcpConfig, TcpEvents, Transport};
use ironwarp_types::Nanos;

fn config() -> TcpConfig {
    TcpConfig { half_open_max: 2, connections_max: 64, ..TcpConfig::default() }
}

/// A listener whose queue two peers have filled. The script continues as a third peer.
fn flooded(config: TcpConfig) -> Script {
    let mut s = Script::with_options(config);
    s.node.tcp.listen(addr(1, 4_420)).expect("room");
    for port in [50_001, 50_002] {
        s.set_peer_port(port);
        s.peer("S 0 win 65535 <mss 1460>");
        assert_eq!(s.sent().len(), 1);
    }
    s.set_peer_port(50_003);
    s
}

/// RFC 4987 s3.6: the SYN-ACK leaves no state, and its ACK opens the connection.
#[test]
fn a_returned_cookie_opens_the_connection() {
    let mut s = flooded(config());
    s.peer("S 0 win 65535 <mss 1300>");
    s.expect(&["S. 0 ack 1 win 65535 <mss 1460>"]);
    assert_eq!(s.node.read(Counter::TcpSynCookiesSent), 1);
    s.peer("P. 1:101(100) ack 1 win 64000");
    s.id = s.node.established();
    assert_eq!(s.events(), TcpEvents::ESTABLISHED | TcpEvents::READABLE);
    assert_eq!((s.read(), s.node.read(Counter::TcpSynCookiesValid)), (100, 1));
    // The segment size is rounded down to a value of the table.
    assert_eq!(s.node.tcp.emss(s.id()), 1_220);
    s.transmit(&mut Pattern::new(10, 10), 1);
    s.expect(&["P. 1:11(10) ack 101"]);
    s.peer(". 101 ack 11 win 64000");
    assert_eq!(s.node.tcp.acked_bytes(s.id()), 10);
}

/// RFC 7323 s5.4: with timestamps all options of the offer are preserved.
#[test]
fn the_cookie_timestamp_preserves_the_offered_options() {
    let mut s = flooded(config());
    s.peer("SEW 0 win 65535 <mss 1460,sackOK,TS val 7 ecr 0,ws 3>");
    s.expect(&["S.E 0 ack 1 <mss 1460,sackOK,TS val 0 ecr 7,ws 4>"]);
    s.peer(". 1 ack 1 win 100 <TS val 8 ecr 0>");
    s.id = s.node.established();
    assert_eq!(s.events(), TcpEvents::ESTABLISHED);
    assert_eq!(s.node.tcp.emss(s.id()), 1_448);
    // 100 << 3: the first unit fits the window, the second waits.
    assert_eq!(s.transmit(&mut Pattern::new(1_448, 700), 9).bytes, 700);
    let sent = s.sent().join(" ");
    assert!(sent.starts_with("P. 1:701(700) ack 1 ") && sent.ends_with("[ect0]"), "{sent}");
    s.peer("P. 11:21(10) ack 1 win 100 <TS val 8 ecr 0>");
    s.expect(&[". 701 ack 1 <sack 11:21>"]);
    s.node.check();
}

/// A connection's timestamp clock never runs backwards from the value in its cookie.
#[test]
fn the_timestamp_clock_continues_from_the_cookie() {
    for wait in 0..70 {
        let mut s = flooded(config());
        s.advance(Nanos(wait << 20));
        s.peer("S 0 win 65535 <mss 1460,TS val 7 ecr 0>");
        s.sent();
        s.peer("P. 1:2(1) ack 1 win 100 <TS val 8 ecr 0>");
        s.sent();
        let ack = s.sent().pop().expect("an ACK");
        let lag: u32 =
            ack.split("val ").nth(1).and_then(|t| t.split(' ').next()).expect("a stamp").parse().expect("n");
        assert!(lag < 64, "{ack}");
    }
}

/// A guess opens no connection and is answered with a reset. It is counted while cookies are valid.
#[test]
fn a_guessed_cookie_is_rejected() {
    let mut s = flooded(config());
    s.peer("S 0 win 65535 <mss 1460>");
    s.sent();
    for guess in ["2", "268435457", "2147483649"] {
        s.peer(&format!(". 1 ack {guess} win 100"));
        s.expect(&[&format!("R {guess}")]);
    }
    // A cookie is invalid for another ISN of the peer and for another port.
    for other in ["0", "65537"] {
        s.peer(&format!(". {other} ack 1 win 100"));
        s.expect(&["R 1"]);
    }
    let ours = s.our_numbers;
    s.set_peer_port(50_004);
    s.our_numbers = ours;
    s.peer(". 1 ack 1 win 100");
    s.expect(&["R 1"]);
    assert_eq!(s.node.read(Counter::TcpSynCookiesInvalid), 6);
    assert!(s.node.events.is_empty());
}

/// RFC 4987 s3.6, RFC 9293 s3.10.7.2: a reset would end the connection that the first segment opens
/// when it arrives.
#[test]
fn a_segment_that_overtakes_the_first_one_is_dropped_without_a_reset() {
    for (early, first) in [
        (". 33 ack 1 win 100", "P. 1:33(32) ack 1 win 100"),
        ("P. 65536:65546(10) ack 1 win 100", ". 1 ack 1 win 100"),
    ] {
        let mut s = flooded(config());
        s.peer("S 0 win 65535 <mss 1460>");
        s.sent();
        s.peer(early);
        s.expect(&[]);
        assert_eq!(
            (s.node.read(Counter::TcpSynCookiesEarly), s.node.read(Counter::TcpSynCookiesInvalid)),
            (1, 0)
        );
        assert!(s.node.established().is_none());
        s.peer(first);
        assert!(s.node.established().is_some());
        assert_eq!(s.node.read(Counter::TcpSynCookiesValid), 1);
    }
}

/// A cookie is valid for at least 34 and at most 69 seconds.
#[test]
fn a_cookie_expires() {
    for (wait, good) in [(30, true), (69, false)] {
        let mut s = flooded(config());
        s.peer("S 0 win 65535 <mss 1460>");
        s.sent();
        s.node.now += Nanos::from_secs(wait);
        s.peer(". 1 ack 1 win 100");
        assert_eq!(s.node.established().is_some(), good, "{wait} s");
    }
}

/// RFC 4987 s3.6: no cookie is accepted unless one was sent.
#[test]
fn cookies_are_accepted_only_while_one_is_valid() {
    let mut s = Script::with_options(config());
    s.node.tcp.listen(addr(1, 4_420)).expect("room");
    s.peer(". 1 ack 1 win 100");
    s.expect(&["R 1"]);
    assert_eq!(s.node.read(Counter::TcpSynCookiesInvalid), 0);
}

/// Memory does not grow, and open connections are not affected.
#[test]
fn a_syn_flood_takes_no_memory_and_does_not_affect_connections() {
    let mut s = flooded(config());
    s.open_to(40_000);
    let id = s.id();
    for n in 0..5_000u16 {
        s.set_peer_port(n.wrapping_mul(13) | 1);
        s.peer("S 0 win 65535 <mss 1460,sackOK,TS val 7 ecr 0,ws 3>");
        s.node.sent();
    }
    s.node.check();
    assert!(s.node.tx_frames_in_use() <= 1);
    assert!(s.node.read(Counter::TcpSynCookiesSent) > 4_900);
    assert_eq!(s.node.tcp.rx(id).available(), 0);
    s.set_peer_port(51_000);
    s.peer("S 0 win 65535 <mss 1460>");
    s.sent();
    s.peer(". 1 ack 1 win 100");
    assert!(s.node.established().is_some());
}

/// Without a free slot a cookie's ACK is dropped silently. The cookie works once a slot is free.
#[test]
fn a_cookie_without_a_free_slot_works_later() {
    let mut s = flooded(TcpConfig { connections_max: 3, ..config() });
    s.peer("S 0 win 65535 <mss 1460>");
    s.sent();
    s.our_port = 1_000;
    let ours = s.our_numbers;
    s.connect();
    s.node.sent();
    let taker = s.id();
    (s.our_port, s.our_numbers) = (4_420, ours);
    s.peer("P. 1:11(10) ack 1 win 100");
    s.expect(&[]);
    assert_eq!(s.node.read(Counter::TcpDropConnectionTableFull), 1);
    s.node.tcp.release(taker);
    s.peer("P. 1:11(10) ack 1 win 100");
    assert!(s.node.established().is_some());
}
