//! Tail loss probes (RFC 8985 s7).

use crate::common;

use common::pattern::Pattern;
use common::script::Script;
use common::sender::{RTO, RTT, config, sacking, send};
use ironwarp_stats::Counter;
use ironwarp_tcp::{Blocked, TcpConfig};
use ironwarp_types::Nanos;

/// Two round trips and two ticks of the timer wheel.
const PROBE: Nanos = Nanos::from_micros(2_040);

/// RFC 8985 s7.3 and s7.4.1: the probe is the last unit, and its SACK reveals the other losses. The
/// repair takes two round trips and the probe timer, without a timeout.
#[test]
fn a_lost_tail_is_repaired_by_a_probe() {
    let mut s = sacking(config());
    send(&mut s, 100, 3);
    s.advance(RTT);
    s.peer(". 1 ack 201 win 64000");
    s.advance(Nanos::from_micros(1_990));
    s.expect(&[]);
    s.advance(PROBE - Nanos::from_micros(1_990));
    s.expect(&["P. 301:401(100) ack 1"]);
    s.advance(RTT);
    s.peer(". 1 ack 201 win 64000 <nop,nop,sack 301:401>");
    s.expect(&["P. 201:301(100) ack 1"]);
    s.peer(". 1 ack 401 win 64000");
    assert_eq!((s.node.read(Counter::TcpTimeouts), s.node.read(Counter::TcpTailLossProbes)), (0, 1));
}

/// RFC 8985 s7.2: the peer may delay the acknowledgement of a single unit.
#[test]
fn a_probe_of_a_single_unit_waits_for_the_peers_ack_delay() {
    let mut s = sacking(TcpConfig { ack_delay_max: Nanos::from_millis(3), ..config() });
    send(&mut s, 100, 1);
    s.advance(PROBE);
    s.expect(&[]);
    s.advance(Nanos::from_millis(3));
    s.expect(&["P. 101:201(100) ack 1"]);
}

/// RFC 8985 s7.2: a probe is never later than the retransmission timeout.
#[test]
fn a_probe_is_not_later_than_the_timeout() {
    let mut s = sacking(TcpConfig { ack_delay_max: Nanos::from_secs(1), ..config() });
    send(&mut s, 100, 1);
    s.advance(RTO + Nanos::from_micros(40));
    s.expect(&["P. 101:201(100) ack 1"]);
}

/// RFC 8985 s7.3: one probe, then the timeout.
#[test]
fn an_unanswered_probe_is_followed_by_the_timeout() {
    let mut s = sacking(config());
    send(&mut s, 100, 2);
    s.advance(PROBE);
    s.expect(&["P. 201:301(100) ack 1"]);
    s.advance(RTO - RTT);
    s.expect(&[]);
    s.advance(RTT + Nanos::from_micros(40));
    assert_eq!(s.sent()[0], "P. 101:201(100) ack 1 win 65535");
    assert_eq!((s.node.read(Counter::TcpTimeouts), s.node.read(Counter::TcpTailLossProbes)), (1, 1));
}

/// The number of full units in the window after the answers to a probe.
fn window_after(answers: &[&str]) -> usize {
    let mut s = sacking(config());
    let mut source = Pattern { next: 100, ..Pattern::new(14_600, 1_460) };
    s.transmit(&mut source, 32);
    let end = source.next + 1;
    s.sent();
    s.advance(RTT);
    s.peer(&format!(". 1 ack {} win 64000", end - 1_460));
    s.advance(RTT + RTT + RTT + RTT);
    assert_eq!(s.sent().len(), 1, "a probe");
    for answer in answers {
        s.peer(&format!(". 1 ack {end} win 64000{answer}"));
    }
    let mut more = Pattern { next: end - 1, ..Pattern::new(1 << 20, 1_460) };
    // The ACK of new payload after the probe shows what the probe repaired.
    s.transmit(&mut more, 1);
    s.sent();
    s.advance(RTT);
    s.peer(&format!(". 1 ack {} win 64000", more.next + 1));
    s.advance(RTT);
    s.peer(&format!(". 1 ack {} win 64000", more.next + 1));
    let done = s.transmit(&mut more, 64);
    assert_eq!(done.blocked, Blocked::Congestion);
    done.units
}

/// RFC 8985 s7.4.2: a loss that the probe repaired reduces the window like any loss; a spurious
/// probe does not.
#[test]
fn a_loss_that_the_probe_repaired_reduces_the_window() {
    let repaired = window_after(&[""]);
    let for_nothing = window_after(&["", " <nop,nop,sack 13241:14701>"]);
    assert!(repaired < for_nothing, "{repaired} of {for_nothing}");
    // A peer without duplicate SACKs answers the probe by repeating its last acknowledgement.
    assert_eq!(window_after(&["", ""]), for_nothing);
}

/// RFC 8985 s7.1: without SACK the answer to a probe carries no information.
#[test]
fn a_peer_without_sack_is_not_probed() {
    let mut s = Script::accepted(config(), 64_000);
    send(&mut s, 0, 1);
    s.advance(RTT);
    s.peer(". 1 ack 101 win 64000");
    send(&mut s, 100, 2);
    s.advance(RTO - RTT);
    s.expect(&[]);
    assert_eq!(s.node.read(Counter::TcpTailLossProbes), 0);
}

/// A FIN can be the end of a flight too.
#[test]
fn a_lost_fin_is_found_by_a_probe() {
    let mut s = sacking(config());
    send(&mut s, 100, 2);
    s.close();
    s.expect(&["F. 301 ack 1"]);
    s.advance(RTT);
    s.peer(". 1 ack 301 win 64000");
    s.advance(PROBE + Nanos::from_millis(1));
    s.expect(&["F. 301 ack 1"]);
    assert_eq!(s.node.read(Counter::TcpTimeouts), 0);
}

/// RFC 6298 s5.7: the first new acknowledgement ends the backoff. After an outage, data flows
/// within one backed-off timeout.
#[test]
fn after_an_outage_the_backoff_ends() {
    let mut s = sacking(config());
    send(&mut s, 100, 2);
    let mut waited = Nanos::ZERO;
    let mut gaps = Vec::new();
    let mut last = Nanos::ZERO;
    while waited < Nanos::from_millis(400) {
        s.advance(Nanos::from_micros(100));
        waited += Nanos::from_micros(100);
        if !s.sent().is_empty() {
            gaps.push((waited - last).0 / 1_000_000);
            last = waited;
        }
    }
    // The probe, then timeouts that double. Each waits at most for the sum of the previous ones and
    // one timeout.
    assert_eq!(gaps, [2, 10, 20, 40, 80, 160]);
    s.peer(". 1 ack 201 win 64000");
    s.sent();
    s.advance(RTO + Nanos::from_micros(40));
    assert!(!s.sent().is_empty(), "one timeout, not a backed-off one");
}
