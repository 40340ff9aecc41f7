//! Silent peers and ICMP errors: keep-alive, user timeout, path MTU.

use crate::common;

use common::pattern::Pattern;
use common::script::Script;

use std::time::Duration;

use ironwarp_net::{IcmpError, IcmpErrorKind};
use ironwarp_stats::Counter;
use ironwarp_tcp::{KeepAlive, State, TcpConfig, TcpEvents, TcpTimeouts, Transport};
use ironwarp_types::{Nanos, Seq};

fn config() -> TcpConfig {
    TcpConfig { rto_min: Nanos::from_millis(10), rto_initial: Nanos::from_millis(10), ..TcpConfig::default() }
}

const KEEP_ALIVE: KeepAlive =
    KeepAlive { idle: Duration::from_secs(10), interval: Duration::from_secs(2), probes: 3 };

fn with_keep_alive() -> Script {
    let s = Script::accepted(config(), 64_000);
    with_timeouts(s, Nanos::from_secs(30), Some(KEEP_ALIVE))
}

fn with_timeouts(mut s: Script, user_timeout: Nanos, keep_alive: Option<KeepAlive>) -> Script {
    let id = s.id();
    s.node.tcp.set_timeouts(
        id,
        TcpTimeouts { user_timeout, zero_window_timeout: Nanos::from_secs(300), keep_alive },
    );
    s
}

/// A little more than a second, since a timer may fire up to one tick late.
const SECOND: Nanos = Nanos::from_millis(1_001);

fn seconds(s: &mut Script, n: u64) {
    for _ in 0..n {
        s.advance(SECOND);
    }
}

/// RFC 9293 s3.8.4, MUST-24, MUST-25 and MUST-28: keep-alive is off by default. Its default idle
/// time is two hours.
#[test]
fn keep_alive_is_off_by_default() {
    let mut s = Script::accepted(config(), 64_000);
    s.advance(Nanos::from_secs(100_000));
    s.expect(&[]);
    let mut s = with_timeouts(s, Nanos::MAX, Some(KeepAlive::default()));
    s.peer("P. 1:2(1) ack 1 win 64000");
    s.sent();
    s.sent();
    s.advance(Nanos::from_secs(7_199));
    s.expect(&[]);
    s.advance(Nanos::from_secs(2));
    s.expect(&[". 0 ack 2"]);
}

/// RFC 9293 s3.8.4, MUST-27: the probe has an old number, so that the peer must answer. An answer
/// restarts the idle time. RFC 9293 (SHLD-12, MAY-5).
#[test]
fn an_idle_peer_is_probed_and_its_answer_restarts_the_idle_time() {
    let mut s = with_keep_alive();
    seconds(&mut s, 9);
    s.expect(&[]);
    seconds(&mut s, 2);
    s.expect(&[". 0 ack 1"]);
    s.peer(". 1 ack 1 win 64000");
    seconds(&mut s, 9);
    s.expect(&[]);
    seconds(&mut s, 2);
    s.expect(&[". 0 ack 1"]);
    assert_eq!(s.node.read(Counter::TcpKeepAliveProbes), 2);
}

/// Payload answers a probe as well as an ACK does, on the fast path too: the next probe is due
/// after the idle time, not after the interval of probes, which is longer here.
#[test]
fn payload_in_answer_to_a_probe_restarts_the_idle_time() {
    let keep_alive = KeepAlive { idle: Duration::from_secs(4), interval: Duration::from_secs(20), probes: 3 };
    for fast_path in [true, false] {
        let s = Script::accepted(TcpConfig { fast_path, ..config() }, 64_000);
        let mut s = with_timeouts(s, Nanos::from_secs(30), Some(keep_alive));
        seconds(&mut s, 5);
        s.expect(&[". 0 ack 1"]);
        s.peer("P. 1:2(1) ack 1 win 64000");
        s.sent();
        s.sent();
        seconds(&mut s, 3);
        s.expect(&[]);
        seconds(&mut s, 2);
        s.expect(&[". 0 ack 2"]);
    }
}

/// RFC 9293 s3.8.4, MUST-29: one or two unanswered probes do not end a connection; the configured
/// number does.
#[test]
fn a_peer_that_answers_no_probe_is_aborted() {
    let mut s = with_keep_alive();
    seconds(&mut s, 15);
    assert_eq!(s.sent().len(), 3);
    assert_eq!(s.events(), TcpEvents::empty());
    seconds(&mut s, 3);
    assert_eq!(s.events(), TcpEvents::TIMED_OUT);
    s.expect(&["R. 1 ack 1"]);
}

/// RFC 9293 s3.8.4, MUST-26: probes are sent on idle connections only; payload in flight has its
/// own timer.
#[test]
fn a_connection_with_traffic_is_not_probed() {
    let mut s = with_keep_alive();
    for at in 1..30 {
        seconds(&mut s, 1);
        s.peer(&format!("P. {at}:{}(1) ack 1 win 64000", at + 1));
        s.sent();
        s.sent();
    }
    assert_eq!(s.node.read(Counter::TcpKeepAliveProbes), 0);
}

/// RFC 9293 s3.8.3, MUST-20 and MUST-21: R2 is set per connection.
#[test]
fn each_connection_has_its_own_user_timeout() {
    let mut s = Script::accepted(config(), 64_000);
    let default = s.id();
    s.open_to(50_001);
    let mut s = with_timeouts(s, Nanos::from_millis(100), None);
    s.transmit(&mut Pattern::new(10, 10), 1);
    let short = s.id();
    s.node.transmit(default, &mut Pattern::new(10, 10), 1);
    for _ in 0..12 {
        s.advance(Nanos::from_millis(10));
    }
    assert_eq!(s.node.take_events(short), TcpEvents::TIMED_OUT);
    assert_eq!(s.node.take_events(default), TcpEvents::empty());
    assert_eq!(s.node.tcp.state(default), State::Established);
}

fn icmp(s: &mut Script, seq: u32, kind: IcmpErrorKind) {
    let flow = s.node.tcp.flow(s.id()).expect("a connection");
    let seq = Seq(s.our_numbers.iss.expect("a SYN").wrapping_add(seq));
    let error = IcmpError { flow, hash: s.node.net.hasher().hash(&flow), protocol: 6, quoted: seq.0, kind };
    let event = s.node.tcp.on_icmp_error(s.node.now, &error, &mut s.node.wires);
    s.node.events.extend(event);
    s.node.check();
}

/// RFC 5927 s4.1: an error that quotes data not in flight is forged.
/// RFC 9293 (MUST-54).
#[test]
fn an_icmp_error_must_quote_what_is_in_flight() {
    let mut s = Script::accepted(config(), 64_000);
    s.transmit(&mut Pattern::new(1_000, 1_000), 1);
    s.sent();
    for seq in [0, 1_001, 5_000, u32::MAX] {
        icmp(&mut s, seq, IcmpErrorKind::TooBig { mtu_bytes: 600 });
        icmp(&mut s, seq, IcmpErrorKind::Hard);
    }
    assert_eq!((s.node.read(Counter::TcpDropIcmp), s.node.read(Counter::TcpRxIcmp)), (8, 0));
    assert_eq!((s.node.tcp.emss(s.id()), s.events()), (1_460, TcpEvents::empty()));
}

/// RFC 5927 s5.2, RFC 9293 s3.9.2.2: no ICMP error ends an open connection. It is reported when the
/// connection fails. RFC 9293 (MUST-56); RFC 1122 s3.2.2.1.
#[test]
fn unreachable_is_reported_when_an_open_connection_times_out() {
    for kind in [IcmpErrorKind::Soft, IcmpErrorKind::Hard] {
        let mut s = Script::accepted(TcpConfig { user_timeout: Nanos::from_millis(50), ..config() }, 64_000);
        s.transmit(&mut Pattern::new(10, 10), 1);
        s.sent();
        icmp(&mut s, 1, kind);
        assert_eq!((s.events(), s.node.tcp.state(s.id())), (TcpEvents::empty(), State::Established));
        for _ in 0..6 {
            s.advance(Nanos::from_millis(10));
        }
        assert_eq!(s.events(), TcpEvents::TIMED_OUT | TcpEvents::UNREACHABLE);
    }
}

/// RFC 1122 s4.2.3.9, RFC 5927 s5.2: a hard error ends an open attempt, a soft one does not.
#[test]
fn a_hard_error_refuses_an_attempt() {
    let mut s = Script::new(config());
    s.connect();
    s.sent();
    icmp(&mut s, 0, IcmpErrorKind::Soft);
    assert_eq!((s.events(), s.node.tcp.state(s.id())), (TcpEvents::empty(), State::SynSent));
    icmp(&mut s, 0, IcmpErrorKind::Hard);
    assert_eq!((s.events(), s.node.tcp.state(s.id())), (TcpEvents::REFUSED, State::Closed));
}

/// RFC 1191 s6.3; docs/semantics.md, Units: an oversized segment is retransmitted in pieces, and
/// later units are smaller.
#[test]
fn an_oversized_first_flight_is_split() {
    let mut s = Script::accepted(config(), 64_000);
    let mut source = Pattern::new(3_000, 1_460);
    s.transmit(&mut source, 1);
    s.expect(&["P. 1:1461(1460) ack 1"]);
    icmp(&mut s, 1, IcmpErrorKind::TooBig { mtu_bytes: 1_040 });
    assert_eq!(s.node.tcp.emss(s.id()), 1_000);
    s.advance(Nanos(1 << 15));
    assert_eq!(s.sent()[0], "P. 1:1001(1000) ack 1 win 65535");
    s.peer(". 1 ack 1001 win 64000");
    s.peer(". 1 ack 1461 win 64000");
    s.sent();
    s.transmit(&mut source, 1);
    s.expect(&["P. 1461:2461(1000) ack 1"]);
}

/// RFC 5927 s7.2: once data was acknowledged, a claim takes effect only after a timeout confirms
/// it; progress disproves it.
#[test]
fn an_mtu_claim_about_a_working_path_waits_for_a_timeout() {
    let mut s = Script::accepted(config(), 64_000);
    let mut source = Pattern::new(1 << 20, 1_460);
    s.transmit(&mut source, 1);
    s.sent();
    s.peer(". 1 ack 1461 win 64000");
    s.transmit(&mut source, 1);
    s.sent();
    icmp(&mut s, 1_461, IcmpErrorKind::TooBig { mtu_bytes: 1_040 });
    assert_eq!(s.node.tcp.emss(s.id()), 1_460);
    s.peer(". 1 ack 2921 win 64000");
    s.transmit(&mut source, 1);
    s.advance(Nanos::from_millis(40));
    assert_eq!(s.node.tcp.emss(s.id()), 1_460, "progress disproves the claim");
    icmp(&mut s, 2_921, IcmpErrorKind::TooBig { mtu_bytes: 1_040 });
    s.advance(Nanos::from_millis(100));
    assert_eq!(s.node.tcp.emss(s.id()), 1_000);
    assert_eq!(s.node.read(Counter::TcpPathMtuLowered), 1);
}

/// RFC 5927 s7, RFC 5044 s4.5: a claim cannot reduce segments below a minimum.
/// RFC 8201 s4; RFC 1191 s3.
#[test]
fn a_claimed_mtu_has_a_minimum() {
    for mtu_bytes in [0, 68, 575] {
        let mut s = Script::accepted(config(), 64_000);
        s.transmit(&mut Pattern::new(1_460, 1_460), 1);
        s.sent();
        icmp(&mut s, 1, IcmpErrorKind::TooBig { mtu_bytes });
        assert_eq!(s.node.tcp.emss(s.id()), 536, "{mtu_bytes}");
    }
    let mut s = Script::accepted(config(), 64_000);
    s.transmit(&mut Pattern::new(1_460, 1_460), 1);
    icmp(&mut s, 1, IcmpErrorKind::TooBig { mtu_bytes: 9_000 });
    assert_eq!(s.node.tcp.emss(s.id()), 1_460, "a claim never raises it");
}
