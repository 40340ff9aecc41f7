//! Timestamps: negotiation, presence in every segment, and protection against old segments.

use crate::common;

use common::node::addr;
use common::pattern::Pattern;
use common::script::Script;
use ironwarp_stats::Counter;
use ironwarp_tcp::{ConnectError, State, TcpConfig, TcpEvents, Transport};
use ironwarp_types::{Flow, Nanos};

fn config() -> TcpConfig {
    TcpConfig {
        sack: false,
        ecn: false,
        rto_min: Nanos::from_millis(10),
        rto_initial: Nanos::from_millis(10),
        ..TcpConfig::default()
    }
}

const SYN: &str = "S 0 win 65535 <mss 1460,TS val 0 ecr 0>";

fn script() -> Script {
    Script::accepted_with(config(), SYN, ". 1 ack 1 win 64000 <TS val 0 ecr 0>")
}

const TICK: Nanos = Nanos(1 << 20);

/// RFC 7323 s3.2: both SYNs carry timestamps, then every segment does. s4.3: the echo is the value
/// that updated TS.Recent.
#[test]
fn every_segment_carries_negotiated_timestamps() {
    let mut s = Script::with_options(config());
    s.connect();
    s.expect(&["S 0 <mss 1460,TS val 0 ecr 0,ws 4>"]);
    s.advance(TICK);
    s.peer("S. 0 ack 1 win 64000 <mss 1460,TS val 10 ecr 0>");
    s.expect(&[". 1 ack 1 <TS val 1 ecr 10>"]);
    assert_eq!(s.events(), TcpEvents::ESTABLISHED);
    s.transmit(&mut Pattern::new(100, 100), 1);
    s.expect(&["P. 1:101(100) ack 1 <TS val 1 ecr 10>"]);
    s.peer(". 1 ack 101 win 64000 <TS val 11 ecr 1>");
    s.close();
    s.expect(&["F. 101 ack 1 <TS val 1 ecr 11>"]);
    s.peer("F. 1 ack 102 win 64000 <TS val 12 ecr 1>");
    s.expect(&[". 102 ack 2 <TS val 1 ecr 12>"]);
}

/// RFC 7323 s2.2 and s3.2: timestamps are used only if both sides offer them. A setting turns them
/// off.
#[test]
fn timestamps_are_used_when_both_sides_offer_them() {
    let mut s = Script::with_options(config());
    s.node.tcp.listen(addr(1, 4_420)).expect("room");
    s.peer("S 0 win 65535 <mss 1460>");
    s.expect(&["S. 0 ack 1 win 65535 <mss 1460>"]);
    let mut s = Script::with_options(TcpConfig { timestamps: false, ..config() });
    s.node.tcp.listen(addr(1, 4_420)).expect("room");
    s.peer(SYN);
    s.expect(&["S. 0 ack 1 win 65535 <mss 1460>"]);
    // RFC 7323 s3.2: timestamps that were not negotiated are ignored.
    s.peer("P. 1:11(10) ack 1 win 64000 <TS val -500 ecr 0>");
    s.id = s.node.established();
    assert_eq!(s.read(), 10);
}

/// RFC 9293 s3.7.1, RFC 6691: the announced size excludes options, and options reduce the payload.
#[test]
fn timestamps_take_twelve_bytes_of_every_segment() {
    let mut s = script();
    assert_eq!(s.node.tcp.emss(s.id()), 1_448);
    s.transmit(&mut Pattern::new(2_000, 1_460), 2);
    s.expect(&["P. 1:1449(1448) ack 1", "P. 1449:2001(552) ack 1"]);
    s.advance(Nanos::from_millis(11));
    s.expect(&["P. 1:1449(1448) ack 1 <TS val 11 ecr 0>"]);
}

/// RFC 7323 s4.3: a delayed ACK echoes the first segment that it covers. A segment beyond a gap
/// does not update the echo. RFC 7323 s5.2.
#[test]
fn the_echo_is_of_the_earliest_unacknowledged_segment() {
    let mut s = script();
    s.peer("P. 1:11(10) ack 1 win 64000 <TS val 5 ecr 0>");
    s.peer("P. 11:21(10) ack 1 win 64000 <TS val 9 ecr 0>");
    s.sent();
    s.expect(&[". 1 ack 21 <TS val 0 ecr 5>"]);
    s.peer("P. 31:41(10) ack 1 win 64000 <TS val 20 ecr 0>");
    s.expect(&[". 1 ack 21 <TS val 0 ecr 5>"]);
    // The segment that fills the gap does.
    s.peer("P. 21:31(10) ack 1 win 64000 <TS val 15 ecr 0>");
    s.expect(&[". 1 ack 41 <TS val 0 ecr 15>"]);
}

/// RFC 7323 s5.3, R1: an old duplicate whose sequence number is valid again is dropped and
/// acknowledged.
#[test]
fn a_segment_older_than_the_last_is_dropped_and_answered() {
    let mut s = script();
    s.peer("P. 1:11(10) ack 1 win 64000 <TS val 100 ecr 0>");
    s.sent();
    s.sent();
    s.peer("P. 11:21(10) ack 1 win 64000 <TS val 99 ecr 0>");
    s.expect(&[". 1 ack 11"]);
    assert_eq!((s.read(), s.node.read(Counter::TcpDropPaws)), (10, 1));
    // Values wrap like sequence numbers: the peer's clock passes zero between these.
    s.peer("P. 11:21(10) ack 1 win 64000 <TS val 101 ecr 0>");
    assert_eq!(s.read(), 20);
}

/// RFC 7323 s5.3: the timestamp of a reset is not checked.
/// RFC 7323 s5.2.
#[test]
fn the_timestamp_of_a_reset_is_not_checked() {
    let mut s = script();
    s.peer("R 1 win 0 <TS val -1000 ecr 0>");
    assert_eq!(s.events(), TcpEvents::RESET);
    let mut s = script();
    s.peer("R 1 win 0");
    assert_eq!(s.events(), TcpEvents::RESET);
}

/// RFC 7323 s5.2: nothing of a reset's timestamps is kept. This one is not at RCV.NXT, so the
/// connection goes on.
#[test]
fn the_timestamp_of_a_reset_does_not_update_the_echo() {
    let mut s = script();
    s.peer("R 2 win 0 <TS val 1000 ecr 0>");
    s.expect(&[". 1 ack 1 <TS val 0 ecr 0>"]);
    s.peer("P. 1:11(10) ack 1 win 64000 <TS val 5 ecr 0>");
    s.sent();
    s.expect(&[". 1 ack 11 <TS val 0 ecr 5>"]);
}

/// RFC 7323 s3.2: without an ACK the echoed value means nothing, also to the estimate of the round
/// trip.
#[test]
fn the_echo_in_a_segment_without_an_ack_is_ignored() {
    for echo in ["0", "7", "4294967295"] {
        let syn = format!("S 0 win 65535 <mss 1460,TS val 3 ecr {echo}>");
        let mut s = Script::accepted_with(config(), &syn, ". 1 ack 1 win 64000 <TS val 4 ecr 0>");
        s.transmit(&mut Pattern::new(100, 100), 1);
        s.expect(&["P. 1:101(100) ack 1 <TS val 0 ecr 4>"]);
    }
}

/// RFC 7323 s5.3: a timestamp is checked when its segment arrives, and not again when a gap before
/// it closes.
#[test]
fn the_timestamp_of_a_held_segment_is_not_checked_again() {
    let mut s = script();
    s.peer("P. 11:21(10) ack 1 win 64000 <TS val 5 ecr 0>");
    s.sent();
    // The gap closes with a segment that was sent later. By now the held one would be too old.
    s.peer("P. 1:11(10) ack 1 win 64000 <TS val 50 ecr 0>");
    assert_eq!((s.read(), s.node.read(Counter::TcpDropPaws)), (20, 0));
}

/// RFC 7323 s4.1 and s5.4: the clock runs with real time, and not so fast that it wraps within an
/// MSL of 255 s: a tick is longer than 59 ns. At a tick for each 2^20 ns, 2^31 bytes take a tick up
/// to 16 Tbit/s.
#[test]
fn the_clock_of_timestamps_runs_with_real_time() {
    let mut s = script();
    for (seq, (ticks, shown)) in [(1, 1), (9, 10), (990, 1_000)].into_iter().enumerate() {
        s.advance(Nanos(TICK.0 * ticks));
        let (start, end) = (seq + 1, seq + 2);
        s.peer(&format!("P. {start}:{end}(1) ack 1 win 64000 <TS val {shown} ecr 0>"));
        s.sent();
        s.expect(&[&format!(". 1 ack {end} <TS val {shown} ecr {shown}>")]);
    }
}

/// RFC 7323 s3.2: a segment without timestamps on a connection with them is dropped silently.
#[test]
fn a_segment_without_timestamps_is_dropped() {
    let mut s = script();
    s.peer("P. 1:11(10) ack 1 win 64000");
    s.expect(&[]);
    assert_eq!((s.read(), s.node.read(Counter::TcpDropNoTimestamps)), (0, 1));
    // RFC 5961 s4: a SYN triggers its challenge ACK with any options.
    s.peer("S 700 win 500");
    s.expect(&[". 1 ack 1"]);
}

/// RFC 7323 s5.5: after 24 days TS.Recent is invalid.
#[test]
fn ts_recent_expires_after_24_days() {
    let mut s = script();
    s.advance(Nanos::from_secs(23 * 86_400));
    s.peer("P. 1:11(10) ack 1 win 64000 <TS val -1 ecr 0>");
    assert_eq!(s.read(), 0);
    s.advance(Nanos::from_secs(2 * 86_400));
    s.peer("P. 1:11(10) ack 1 win 64000 <TS val -1 ecr 0>");
    assert_eq!(s.read(), 10);
    s.expect(&[". 1 ack 11"]);
}

/// RFC 7323 s5.3, R1: a reordered pure ACK is dropped too, and the answers are rate-limited.
#[test]
fn answers_to_old_acks_are_limited() {
    let limits = TcpConfig { replies_per_ms: 2, ..config() };
    let mut s = Script::accepted_with(limits, SYN, ". 1 ack 1 win 64000 <TS val 0 ecr 0>");
    let mut answers = 0;
    for _ in 0..20 {
        s.peer(". 1 ack 1 win 64000 <TS val -5 ecr 0>");
        answers += s.sent().len();
    }
    assert!((1..=2).contains(&answers), "{answers}");
}

/// RFC 7323 s3.2 in TIME-WAIT: replies carry timestamps, and segments without them are not
/// answered.
#[test]
fn time_wait_continues_with_timestamps() {
    let mut s = script();
    s.close();
    s.peer("F. 1 ack 2 win 64000 <TS val 3 ecr 0>");
    s.sent();
    s.node.tcp.release(s.id());
    s.advance(TICK);
    s.peer("F. 1 ack 2 win 64000 <TS val 4 ecr 0>");
    s.expect(&[". 2 ack 2 <TS val 1 ecr 3>"]);
    s.peer("F. 1 ack 2 win 64000");
    s.expect(&[]);
}

/// RFC 6191 s2: a SYN with a later timestamp opens a new connection for any sequence number; an
/// earlier one does not. RFC 9293 (SHLD-4).
#[test]
fn a_later_timestamp_reuses_a_flow_in_time_wait() {
    for (syn, anew) in [
        ("S -5000 win 500 <TS val 4 ecr 0>", true),
        ("S 900 win 500 <TS val 2 ecr 0>", false),
        ("S 900 win 500 <TS val 3 ecr 0>", true),
        ("S -5000 win 500 <TS val 3 ecr 0>", false),
        ("S 900 win 500", true),
        ("S -5000 win 500", false),
    ] {
        let mut s = script();
        s.close();
        s.peer("F. 1 ack 2 win 64000 <TS val 3 ecr 0>");
        s.sent();
        s.node.tcp.release(s.id());
        s.peer(syn);
        let answer = s.sent().join(" ");
        assert_eq!(answer.starts_with("S."), anew, "{syn}: {answer}");
        s.node.check();
    }
}

/// RFC 9293 s3.1, MUST-5 and MUST-64: options are valid in any order and at any octet.
#[test]
fn timestamps_are_parsed_at_any_position() {
    let mut s = script();
    // End of list after it; an unknown option before it; value 7 and echo 0.
    let seven = 7u32.wrapping_sub(51).to_be_bytes().map(|octet| format!("{octet:02x}")).concat();
    s.peer(&format!("P. 1:11(10) ack 1 win 64000 <raw 080a{seven}000000000000>"));
    s.peer(&format!("P. 11:21(10) ack 1 win 64000 <raw fd0308010101080a{seven}00000000>"));
    assert_eq!(s.read(), 20);
}

/// RFC 9293 s3.2, MUST-7: timestamps after an invalid option length are ignored.
#[test]
fn timestamps_after_an_invalid_option_length_are_ignored() {
    let mut s = script();
    for broken in ["0000", "0100", "fd00", "fd01", "fd28", "0808", "08ff", "01010803", "050b0101"] {
        s.peer(&format!("P. 1:11(10) ack 1 win 64000 <raw {broken}080affffffff00000000>"));
        s.expect(&[]);
    }
    assert_eq!((s.read(), s.node.read(Counter::TcpDropNoTimestamps)), (0, 9));
    assert_eq!(s.node.tcp.state(s.id()), State::Established);
}

/// RFC 5961 s5, RFC 7323 s5.3: a segment with an invalid acknowledgement must not update TS.Recent.
/// Otherwise all later segments would be too old.
#[test]
fn a_segment_with_an_invalid_acknowledgement_does_not_update_the_echo() {
    let mut s = script();
    for ack in [900_000, 2_000_000_000u32] {
        s.peer(&format!("P. 1:11(10) ack {ack} win 64000 <TS val 1000000 ecr 0>"));
        s.peer(&format!(". 1 ack {ack} win 64000 <TS val 1000000 ecr 0>"));
    }
    s.sent();
    s.peer("P. 1:11(10) ack 1 win 64000 <TS val 5 ecr 0>");
    assert_eq!((s.read(), s.node.read(Counter::TcpDropPaws)), (10, 0));
    s.sent();
    s.expect(&[". 1 ack 11 <TS val 0 ecr 5>"]);
}

/// RFC 6191 s2 for an active open, RFC 9293 s3.6.1: endpoints in TIME-WAIT are reconnected once our
/// timestamp clock has ticked. Timestamps reject old segments, and the ISN is beyond the numbers of
/// the old connection.
#[test]
fn an_active_open_reuses_a_flow_in_time_wait_with_timestamps() {
    let plain = TcpConfig { timestamps: false, ..config() };
    for (config, wait_ms, again) in
        [(config(), 0, false), (config(), 900, false), (config(), 1_100, true), (plain, 1_100, false)]
    {
        let mut s = Script::with_options(config);
        s.our_port = 40_000;
        s.connect();
        s.sent();
        s.peer("S. 0 ack 1 win 64000 <mss 1460,TS val 0 ecr 0>");
        s.sent();
        s.close();
        s.peer("F. 1 ack 2 win 64000 <TS val 3 ecr 0>");
        s.sent();
        s.node.tcp.release(s.id());
        s.advance(Nanos::from_millis(wait_ms));
        let flow = Flow { local: addr(1, s.our_port), remote: addr(2, s.peer_port) };
        assert_eq!(offers_port(&mut s), again, "{wait_ms} ms");
        let path = s.node.path_to(2);
        let id = s.node.tcp.connect(s.node.now, flow, path, &mut s.node.wires);
        assert_eq!(id.err(), (!again).then_some(ConnectError::InUse), "{wait_ms} ms");
        s.node.check();
        let sent = s.sent();
        let Some(syn) = sent.first() else { continue };
        let number: u32 = syn.split(' ').nth(1).and_then(|text| text.parse().ok()).expect("a number");
        assert!(syn.starts_with("S ") && (3..1 << 31).contains(&number), "{syn}");
        s.id = id.ok();
        // A segment of the old connection is acknowledged and dropped.
        s.peer("F. 1 ack 2 win 64000 <TS val 3 ecr 0>");
        s.expect(&["R 2"]);
        s.peer(&format!("S. 900 ack {} win 64000 <mss 1460,TS val 4 ecr 0>", number + 1));
        assert_eq!(s.events(), TcpEvents::ESTABLISHED);
        s.node.check();
    }
}

/// Returns whether the script's port is offered for another connection, after all others once.
fn offers_port(s: &mut Script) -> bool {
    let (now, wanted) = (s.node.now, s.our_port);
    let mut port = || s.node.tcp.ephemeral_port(now, addr(1, 0).ip(), addr(2, s.peer_port));
    (0..1 << 15).any(|_| port() == Some(wanted))
}
