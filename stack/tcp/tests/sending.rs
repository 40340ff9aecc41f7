//! Sending: units, windows and retransmissions.

use crate::common;

use common::pattern::Pattern;
use common::script::Script;
use ironwarp_stats::Counter;
use ironwarp_tcp::{Blocked, State, TcpConfig, TcpEvents, Transmitted, Transport};
use ironwarp_types::Nanos;

const RTO: Nanos = Nanos::from_millis(10);

fn config() -> TcpConfig {
    TcpConfig { rto_initial: RTO, rto_min: RTO, ..TcpConfig::default() }
}

/// docs/design-decisions.md, decision 3: a segment is one unit.
/// RFC 9293 (MUST-17); RFC 5044 s5.1.
#[test]
fn every_unit_is_a_segment_of_its_own() {
    let mut s = Script::accepted(config(), 64_000);
    let mut source = Pattern::new(2_020, 1_000);
    let done = s.transmit(&mut source, 32);
    assert_eq!(done, Transmitted { units: 3, bytes: 2_020, blocked: Blocked::Source });
    s.expect(&["P. 1:1001(1000) ack 1", "P. 1001:2001(1000) ack 1", "P. 2001:2021(20) ack 1"]);
    s.peer(". 1 ack 2021 win 64000");
    assert_eq!(s.events(), TcpEvents::ACKED);
    assert_eq!(s.node.tcp.acked_bytes(s.id()), 2_020);
    assert!(s.node.tcp.all_acked(s.id()));
}

#[test]
fn transmit_respects_the_segment_budget() {
    let mut s = Script::accepted(config(), 64_000);
    let done = s.transmit(&mut Pattern::new(10_000, 1_000), 2);
    assert_eq!(done, Transmitted { units: 2, bytes: 2_000, blocked: Blocked::None });
}

/// RFC 6928 s2, RFC 5681 s3.1.
/// RFC 5681 s2.
#[test]
fn the_initial_window_is_ten_segments_and_acks_open_it() {
    let mut s = Script::accepted(config(), 64_000);
    let mut source = Pattern::new(1 << 20, 1_460);
    let done = s.transmit(&mut source, 32);
    assert_eq!((done.units, done.blocked), (10, Blocked::Congestion));
    s.sent();
    s.peer(". 1 ack 2921 win 64000");
    assert_eq!(s.events(), TcpEvents::ACKED | TcpEvents::WRITABLE);
    assert_eq!(s.transmit(&mut source, 32).units, 4);
}

/// RFC 5681 s3.1: after a lost SYN the initial window is one segment.
#[test]
fn after_a_lost_syn_the_initial_window_is_one_segment() {
    let mut s = Script::new(config());
    s.connect();
    s.advance(Nanos::from_millis(11));
    s.sent();
    s.peer("S. 0 ack 1 win 64000 <mss 1460>");
    assert_eq!(s.transmit(&mut Pattern::new(1 << 20, 1_460), 32).units, 1);
}

/// RFC 6298 s5.7: after a lost SYN, data starts with a timeout of 3 s if that is set. Otherwise it
/// starts with that of the SYN, which the loss has doubled. A round-trip sample ends either.
#[test]
fn after_a_lost_syn_data_starts_with_the_timeout_that_is_set() {
    let three = Nanos::from_secs(3);
    for (set, first) in [(three, three), (Nanos::ZERO, RTO.times(2)), (RTO, RTO.times(2))] {
        let mut s = Script::new(TcpConfig { rto_after_syn_loss: set, ..config() });
        let mut source = Pattern::new(300, 100);
        s.connect();
        s.advance(Nanos::from_millis(11));
        s.sent();
        s.peer("S. 0 ack 1 win 64000 <mss 1460>");
        s.sent();
        s.transmit(&mut source, 1);
        s.expect(&["P. 1:101(100) ack 1"]);
        s.advance(Nanos(first.0 - 1_000_000));
        s.expect(&[]);
        s.advance(Nanos::from_millis(2));
        s.expect(&["P. 1:101(100) ack 1"]);
        s.peer(". 1 ack 101 win 64000");
        s.transmit(&mut source, 1);
        s.sent();
        s.advance(Nanos::from_millis(1));
        s.peer(". 1 ack 201 win 64000");
        s.transmit(&mut source, 1);
        s.sent();
        s.advance(RTO + Nanos::from_millis(1));
        s.expect(&["P. 201:301(100) ack 1"]);
    }
}

/// Without a lost SYN the setting has no effect: the handshake is the first round-trip sample.
#[test]
fn without_a_lost_syn_data_starts_with_the_measured_timeout() {
    let mut s = Script::connected(TcpConfig { rto_after_syn_loss: Nanos::from_secs(3), ..config() }, 64_000);
    s.transmit(&mut Pattern::new(100, 100), 1);
    s.sent();
    s.advance(RTO + Nanos::from_millis(1));
    s.expect(&["P. 1:101(100) ack 1"]);
}

/// RFC 9293 s3.8.6.2.1: a unit is pulled only when a whole one fits.
/// RFC 9293 (MUST-38).
#[test]
fn a_window_smaller_than_a_segment_stops_pulling_while_anything_is_in_flight() {
    let mut s = Script::accepted(config(), 2_000);
    let mut source = Pattern::new(3_000, 1_000);
    let done = s.transmit(&mut source, 32);
    assert_eq!((done.units, done.blocked), (1, Blocked::Window));
    s.expect(&["P. 1:1001(1000) ack 1"]);
    s.peer(". 1 ack 1001 win 2000");
    assert_eq!(s.events(), TcpEvents::ACKED | TcpEvents::WRITABLE);
    assert_eq!(s.transmit(&mut source, 32).units, 1);
}

/// RFC 9293 s3.8.6.1: the persist timer; docs/semantics.md, Units: the one-byte probe.
/// RFC 9293 (SHLD-29, SHLD-30).
#[test]
fn a_closed_window_is_probed_with_one_byte_until_it_opens() {
    let mut s = Script::accepted(config(), 0);
    let done = s.transmit(&mut Pattern::new(100, 100), 32);
    assert_eq!((done.units, done.blocked), (0, Blocked::Window));
    s.expect(&[]);
    for wait_ms in [10, 20, 40] {
        s.advance(Nanos::from_millis(wait_ms + 1));
        s.expect(&["P. 1:2(1) ack 1"]);
        s.peer(". 1 ack 1 win 0");
        assert_eq!(s.events(), TcpEvents::empty());
    }
    s.peer(". 1 ack 1 win 5000");
    s.expect(&["P. 1:101(100) ack 1"]);
    assert_eq!(s.node.read(Counter::TcpWindowProbes), 3);
}

/// RFC 9293 s3.8.6.1: a peer may accept the probe's byte and keep its window closed.
#[test]
fn an_accepted_probe_advances_the_stream() {
    let mut s = Script::accepted(config(), 0);
    s.transmit(&mut Pattern::new(100, 100), 32);
    s.advance(Nanos::from_millis(11));
    s.expect(&["P. 1:2(1) ack 1"]);
    s.peer(". 1 ack 2 win 0");
    s.transmit(&mut Pattern::new(0, 1), 1);
    s.advance(Nanos::from_millis(21));
    s.expect(&["P. 2:3(1) ack 1"]);
    s.peer(". 1 ack 3 win 1000");
    s.expect(&["P. 3:101(98) ack 1"]);
}

/// RFC 9293 s3.8.6.1: a window may stay closed while the peer answers probes.
#[test]
fn a_peer_that_answers_probes_is_not_aborted() {
    let mut s = Script::accepted(
        TcpConfig { user_timeout: Nanos::from_secs(1), rto_max: Nanos::from_millis(80), ..config() },
        0,
    );
    s.transmit(&mut Pattern::new(100, 100), 32);
    for _ in 0..50 {
        s.advance(Nanos::from_millis(81));
        assert_eq!(s.sent().len(), 1);
        s.peer(". 1 ack 1 win 0");
    }
    for _ in 0..20 {
        s.advance(Nanos::from_millis(81));
    }
    assert_eq!(s.events(), TcpEvents::TIMED_OUT);
}

/// RFC 6429 s3: the application may set a limit. Accepted bytes are progress.
#[test]
fn a_window_that_stays_closed_ends_the_connection_after_its_timeout() {
    let zero_window_timeout = Nanos::from_secs(10);
    let mut s =
        Script::accepted(TcpConfig { zero_window_timeout, rto_max: Nanos::from_millis(80), ..config() }, 0);
    s.transmit(&mut Pattern::new(100, 100), 32);
    let answer = |s: &mut Script, accepted: u32, ms: u64| {
        for _ in 0..ms / 80 {
            s.advance(Nanos::from_millis(80));
            s.sent();
            s.peer(&format!(". 1 ack {} win 0", 1 + accepted));
        }
        s.events() & TcpEvents::TIMED_OUT
    };
    assert_eq!(answer(&mut s, 0, 9_500), TcpEvents::empty());
    assert_eq!(answer(&mut s, 1, 9_500), TcpEvents::empty());
    assert_eq!(s.node.read(Counter::TcpZeroWindowAborts), 0);
    assert_eq!(answer(&mut s, 1, 1_000), TcpEvents::TIMED_OUT);
    assert_eq!(s.node.read(Counter::TcpZeroWindowAborts), 1);
}

/// RFC 6298 s5: the first unacknowledged unit is retransmitted, with backoff.
/// RFC 9293 (MUST-19); RFC 5044 sA.1.
#[test]
fn a_lost_unit_is_retransmitted_when_the_timer_expires() {
    let mut s = Script::accepted(config(), 64_000);
    s.transmit(&mut Pattern::new(300, 100), 32);
    s.expect(&["P. 1:101(100) ack 1", "P. 101:201(100) ack 1", "P. 201:301(100) ack 1"]);
    s.advance(Nanos::from_millis(9));
    s.expect(&[]);
    s.advance(Nanos::from_millis(2));
    // The congestion window is one full segment, which fits three small units.
    s.expect(&["P. 1:101(100) ack 1", "P. 101:201(100) ack 1", "P. 201:301(100) ack 1"]);
    s.peer(". 1 ack 301 win 64000");
    assert!(s.events().contains(TcpEvents::ACKED));
    assert_eq!(s.node.read(Counter::TcpTimeouts), 1);
    assert_eq!(s.node.tcp.next_deadline().map(|_| s.advance(Nanos::from_secs(5))), Some(()));
    s.expect(&[]);
}

/// RFC 5681 s3.1 and RFC 6582 s4: after a timeout all data is retransmitted in slow start, except
/// what the peer acknowledges.
#[test]
fn after_a_timeout_sending_continues_from_the_acknowledged_data() {
    let mut s = Script::accepted(config(), 64_000);
    s.transmit(&mut Pattern::new(5 * 1_460, 1_460), 32);
    assert_eq!(s.sent().len(), 5);
    s.advance(Nanos::from_millis(11));
    s.expect(&["P. 1:1461(1460) ack 1"]);
    s.peer(". 1 ack 1461 win 64000");
    s.expect(&["P. 1461:2921(1460) ack 1", "P. 2921:4381(1460) ack 1"]);
    // The fourth unit had arrived: only the fifth is left.
    s.peer(". 1 ack 5841 win 64000");
    s.expect(&["P. 5841:7301(1460) ack 1"]);
}

/// RFC 5681 s3.2, RFC 3042, RFC 6582 s3.2.
#[test]
fn the_third_duplicate_ack_retransmits_a_unit_and_partial_acks_the_next() {
    let mut s = Script::accepted(config(), 64_000);
    let mut source = Pattern::new(1 << 20, 1_460);
    s.transmit(&mut source, 32);
    assert_eq!(s.sent().len(), 10);
    for n in 1..=2 {
        s.peer(". 1 ack 1 win 64000");
        assert_eq!(s.events(), TcpEvents::WRITABLE, "duplicate {n}");
        // RFC 3042: one new segment for each of the first two.
        assert_eq!(s.transmit(&mut source, 32).units, 1);
        assert_eq!(s.sent().len(), 1);
    }
    s.peer(". 1 ack 1 win 64000");
    s.expect(&["P. 1:1461(1460) ack 1"]);
    // The third unit is lost too: a partial ACK retransmits it at once.
    s.peer(". 1 ack 2921 win 64000");
    assert_eq!(s.sent()[0], "P. 2921:4381(1460) ack 1 win 32768".replace("32768", "65535"));
    s.peer(". 1 ack 17521 win 64000");
    assert!(s.events().contains(TcpEvents::ACKED | TcpEvents::WRITABLE));
    assert_eq!(s.node.read(Counter::TcpTimeouts), 0);
    assert_eq!(s.node.read(Counter::TcpFastRetransmits), 1);
}

/// RFC 5681 s2: an ACK with payload, or with another window, is not a duplicate.
#[test]
fn window_updates_and_payload_are_not_duplicates() {
    let mut s = Script::accepted(config(), 64_000);
    s.transmit(&mut Pattern::new(14_600, 1_460), 32);
    s.sent();
    for at in 0..4 {
        s.peer(&format!(". 1 ack 1 win {}", 64_001 + at));
        s.peer(&format!("P. {}:{}(10) ack 1 win {}", 1 + 10 * at, 11 + 10 * at, 64_001 + at));
    }
    assert_eq!(s.node.read(Counter::TcpRxDuplicateAcks), 0);
}

/// RFC 5961 s5 and RFC 9293 s3.10.7.4, fifth step.
#[test]
fn an_ack_of_unsent_data_is_answered_and_dropped() {
    let mut s = Script::accepted(config(), 64_000);
    s.transmit(&mut Pattern::new(100, 100), 32);
    s.sent();
    s.peer("P. 1:11(10) ack 102 win 64000");
    s.expect(&[". 101 ack 1"]);
    assert_eq!((s.events(), s.read()), (TcpEvents::empty(), 0));
}

/// RFC 9293 s3.10.8; docs/semantics.md, Vanished peers.
#[test]
fn a_silent_peer_is_aborted_after_the_user_timeout() {
    let mut s = Script::accepted(TcpConfig { user_timeout: Nanos::from_millis(100), ..config() }, 64_000);
    s.transmit(&mut Pattern::new(100, 100), 32);
    s.sent();
    for _ in 0..9 {
        s.advance(Nanos::from_millis(10));
    }
    assert_eq!(s.events(), TcpEvents::empty());
    s.sent();
    s.advance(Nanos::from_millis(11));
    assert_eq!(s.events(), TcpEvents::TIMED_OUT);
    s.expect(&["R. 101 ack 1"]);
    s.node.tcp.release(s.id());
    assert_eq!(s.node.tx_frames_in_use(), 0);
}

/// RFC 9293 s3.8.3: the user timeout counts from retransmissions. A core that stood still for
/// longer has made none: it retransmits first, and the peer has the user timeout from then on.
#[test]
fn a_pause_of_the_core_is_not_the_silence_of_the_peer() {
    for user_timeout in [Nanos::from_millis(200), Nanos::from_secs(30)] {
        let mut s = Script::accepted(TcpConfig { user_timeout, ..config() }, 64_000);
        let mut source = Pattern::new(200, 100);
        s.transmit(&mut source, 1);
        s.sent();
        s.advance(user_timeout.times(20));
        assert_eq!(s.events(), TcpEvents::empty());
        s.expect(&["P. 1:101(100) ack 1"]);
        s.peer(". 1 ack 101 win 64000");
        assert_eq!(s.events(), TcpEvents::ACKED);
        s.transmit(&mut source, 1);
        s.sent();
        s.advance(user_timeout.times(20));
        s.expect(&["P. 101:201(100) ack 1"]);
        let mut waited = 0;
        while s.events() != TcpEvents::TIMED_OUT {
            s.advance(Nanos(user_timeout.0 / 50));
            waited += 1;
        }
        assert!((45..=60).contains(&waited), "{waited} fiftieths of {user_timeout:?}");
    }
}

/// docs/semantics.md, Pools: retained bytes are limited.
#[test]
fn retained_data_is_limited_per_connection_and_in_total() {
    let limits = TcpConfig { retained_units_max: 4, initial_window_segments: 40, ..config() };
    let mut s = Script::accepted(limits, 64_000);
    let done = s.transmit(&mut Pattern::new(1_000, 100), 32);
    assert_eq!((done.units, done.blocked), (4, Blocked::Retained));
    s.sent();
    s.peer(". 1 ack 101 win 64000");
    assert!(s.events().contains(TcpEvents::WRITABLE));

    let shared = TcpConfig { retained_units_reserve: 2, retained_units_shared: 1, ..config() };
    let mut s = Script::accepted(shared, 64_000);
    let done = s.transmit(&mut Pattern::new(1_000, 100), 32);
    assert_eq!((done.units, done.blocked), (3, Blocked::Pool));
}

#[test]
fn without_transmit_frames_no_unit_is_pulled() {
    let mut s = Script::accepted(config(), 64_000);
    let mut source = Pattern::new(1_000, 100);
    s.node.allow_allocations(false);
    assert_eq!(s.transmit(&mut source, 32).blocked, Blocked::Pool);
    assert_eq!(source.left, 1_000);
    s.node.allow_allocations(true);
    assert_eq!(s.transmit(&mut source, 32).units, 10);
}

/// docs/semantics.md, Pools: a full transmit ring stops data before it stops ACKs.
#[test]
fn a_full_device_stops_data_before_acks() {
    let mut s = Script::accepted(config(), 64_000);
    s.node.allow_sending(false);
    let done = s.transmit(&mut Pattern::new(100_000, 100), 100);
    assert_eq!(done.blocked, Blocked::Wire);
    s.peer("P. 1:11(10) ack 1 win 64000");
    s.node.flush();
    s.node.flush();
    s.node.allow_sending(true);
    let sent = s.sent();
    assert_eq!(sent.len(), done.units + 1);
    assert!(sent.last().is_some_and(|last| last.starts_with(". ") && last.contains("ack 11")));
}

/// The timer finds the loss of a FIN, after all payload.
#[test]
fn payload_and_fin_are_retransmitted_in_order() {
    let mut s = Script::accepted(config(), 64_000);
    s.transmit(&mut Pattern::new(100, 100), 32);
    s.close();
    s.expect(&["P. 1:101(100) ack 1", "F. 101 ack 1"]);
    s.advance(Nanos::from_millis(11));
    s.expect(&["P. 1:101(100) ack 1", "F. 101 ack 1"]);
    s.peer(". 1 ack 101 win 64000");
    s.advance(Nanos::from_millis(21));
    s.expect(&["F. 101 ack 1"]);
    s.peer(". 1 ack 102 win 64000");
    assert_eq!(s.node.tcp.state(s.id()), State::FinWait2);
    assert_eq!(s.node.tcp.acked_bytes(s.id()), 100);
}

/// RFC 7323 s2.3: the window of every segment but a SYN is scaled.
/// RFC 9293 (REC-1).
#[test]
fn the_window_of_a_scaling_peer_is_scaled() {
    let mut s = Script::new(TcpConfig { initial_window_segments: 100, ..config() });
    s.connect();
    s.sent();
    s.peer("S. 0 ack 1 win 65535 <mss 1460,ws 4>");
    s.peer(". 1 ack 1 win 1000");
    let done = s.transmit(&mut Pattern::new(1 << 20, 1_460), 100);
    assert_eq!((done.units, done.blocked), (10, Blocked::Window));
}

/// RFC 7323 s2.2: a window scale in a segment without SYN is ignored, whether or not scaling is in
/// use.
#[test]
fn a_window_scale_without_a_syn_is_ignored() {
    for (ws, units) in [("", 1), (",ws 4", 10)] {
        let mut s = Script::new(TcpConfig { initial_window_segments: 100, ..config() });
        s.connect();
        s.sent();
        s.peer(&format!("S. 0 ack 1 win 1460 <mss 1460{ws}>"));
        let win = if ws.is_empty() { 1_460 } else { 1_000 };
        s.peer(&format!(". 1 ack 1 win {win} <ws 7>"));
        let done = s.transmit(&mut Pattern::new(1 << 20, 1_460), 100);
        assert_eq!((done.units, done.blocked), (units, Blocked::Window), "{ws}");
    }
}

/// RFC 9293 s3.10.7.4, fifth step: an old segment does not restore an old window.
#[test]
fn an_old_segment_does_not_change_the_window() {
    let mut s = Script::accepted(config(), 5_000);
    s.transmit(&mut Pattern::new(100, 100), 32);
    s.peer("P. 11:21(10) ack 101 win 6000");
    s.peer("P. 1:11(10) ack 1 win 10");
    let done = s.transmit(&mut Pattern::new(1 << 20, 1_460), 100);
    assert_eq!(done.units, 4);
}
