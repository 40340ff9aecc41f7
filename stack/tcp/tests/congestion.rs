//! Congestion windows on the wire: growth, unused windows, idle periods, marks (RFC 5681, 3168,
//! 8257).

use crate::common;

use common::pattern::Pattern;
use common::script::Script;
use common::sender::{RTO, RTT, config, plain, sacking, send};
use ironwarp_stats::Counter;
use ironwarp_tcp::{Congestion, TcpConfig};
use ironwarp_types::Nanos;

const ALL: [Congestion; 3] = [Congestion::NewReno, Congestion::Cubic, Congestion::Dctcp];

fn bulk(sent: u64) -> Pattern {
    Pattern { next: sent, ..Pattern::new(1 << 20, 1_000) }
}

/// Sends until a window stops the transmission, acknowledges everything one round trip later, and
/// returns the number of units.
fn round(s: &mut Script, source: &mut Pattern) -> usize {
    let units = s.transmit(source, 64).units;
    s.sent();
    s.advance(RTT);
    s.peer(&format!(". 1 ack {} win 64000", source.next + 1));
    s.sent();
    units
}

/// In the spirit of RFC 7661: the window does not grow while the application does not fill it.
#[test]
fn an_application_limited_window_does_not_grow() {
    for congestion in ALL {
        let mut s = sacking(TcpConfig { congestion, initial_window_segments: 4, ..config() });
        let mut sent = 100;
        for _ in 0..20 {
            send(&mut s, sent, 2);
            sent += 200;
            s.advance(RTT);
            s.peer(&format!(". 1 ack {} win 64000", sent + 1));
        }
        let mut source = Pattern { next: sent, ..Pattern::new(1 << 20, 1_460) };
        assert_eq!(s.transmit(&mut source, 64).units, 4, "{congestion:?}");
    }
}

/// RFC 5681 s4.1: after an idle time longer than the timeout, the connection restarts from the
/// initial window.
#[test]
fn after_an_idle_period_sending_restarts_from_the_initial_window() {
    for (slow_start_after_idle, expected) in [(true, 4), (false, 8)] {
        let config = TcpConfig { slow_start_after_idle, initial_window_segments: 4, ..config() };
        let mut s = sacking(config);
        let mut source = Pattern { next: 100, ..Pattern::new(1 << 20, 1_460) };
        for _ in 0..2 {
            round(&mut s, &mut source);
        }
        s.advance(RTO + RTO);
        assert_eq!(s.transmit(&mut source, 64).units, expected, "restart {slow_start_after_idle}");
    }
}

/// RFC 3168 s6.1.2: an echo reduces the window at most once per round trip. The next new payload
/// carries CWR. RFC 3168 s5 and s6.1.1.
#[test]
fn an_echo_reduces_the_window_once_per_round_trip() {
    let mut s = sacking(TcpConfig { ecn: true, congestion: Congestion::NewReno, ..config() });
    let mut source = bulk(100);
    s.transmit(&mut source, 10);
    assert_eq!(s.sent().len(), 10);
    s.advance(RTT);
    s.peer(".E 1 ack 1101 win 64000");
    s.peer(".E 1 ack 2101 win 64000");
    s.peer(".E 1 ack 3101 win 64000");
    assert_eq!(s.node.read(Counter::TcpEcnReductions), 1);
    s.transmit(&mut source, 1);
    assert!(s.sent()[0].starts_with("P.W 10101:"), "the payload carries CWR");
    s.transmit(&mut source, 1);
    s.peer(&format!(".E 1 ack {} win 64000", source.next + 1));
    assert_eq!(s.node.read(Counter::TcpEcnReductions), 2, "one more reduction after a round trip");
}

/// RFC 3168 s6.1.5: only payload that is sent for the first time is ECN-capable.
#[test]
fn sack_retransmissions_are_not_ecn_capable() {
    let mut s = sacking(TcpConfig { ecn: true, ..config() });
    s.transmit(&mut Pattern { next: 100, ..Pattern::new(400, 100) }, 4);
    let sent = s.sent();
    assert!(sent.len() == 4 && sent.iter().all(|line| line.ends_with("[ect0]")), "{sent:?}");
    s.advance(RTT);
    s.peer(". 1 ack 101 win 64000 <nop,nop,sack 201:501>");
    s.expect(&["P. 101:201(100) ack 1"]);
}

/// RFC 8257 s3.3: if a tenth of the window is marked, the window shrinks by a twentieth in the long
/// run. If all of it is marked, the window halves.
#[test]
fn dctcp_reduces_the_window_in_proportion_to_the_marks() {
    let mut after = Vec::new();
    for marked in [false, true] {
        let mut s = sacking(TcpConfig { ecn: true, congestion: Congestion::Dctcp, ..config() });
        let mut source = bulk(100);
        // Alpha decays from 1 by a sixteenth per window, or stays at 1.
        for _ in 0..40 {
            s.transmit(&mut source, 8);
            s.sent();
            s.advance(RTT);
            let echo = if marked { "E" } else { "" };
            s.peer(&format!(".{echo} 1 ack {} win 64000", source.next + 1));
            s.sent();
        }
        let before = round(&mut s, &mut source);
        s.transmit(&mut source, 8);
        s.sent();
        s.advance(RTT);
        s.peer(&format!(".E 1 ack {} win 64000", source.next + 1));
        s.sent();
        s.transmit(&mut source, 1);
        s.sent();
        s.advance(RTT);
        s.peer(&format!(". 1 ack {} win 64000", source.next + 1));
        after.push((before, round(&mut s, &mut source)));
    }
    let [(rare_before, rare), (_, all)] = after[..] else { panic!("two runs") };
    assert!(rare * 10 >= rare_before * 9, "{rare} of {rare_before}");
    assert!(all <= 8, "{all}");
}

/// RFC 5681 s3.1 and draft-ietf-tcpm-rfc8312bis s4.6: the window after a loss.
/// RFC 2018 s5.1.
#[test]
fn a_loss_reduces_the_window_to_half_or_seven_tenths() {
    for (congestion, expected) in ALL.into_iter().zip([10..=11, 14..=15, 10..=11]) {
        let mut s = sacking(TcpConfig { congestion, initial_window_segments: 20, ..config() });
        let mut source = Pattern { next: 100, ..Pattern::new(1 << 20, 1_460) };
        assert_eq!(s.transmit(&mut source, 64).units, 20);
        s.sent();
        s.advance(RTT);
        let end = source.next + 1;
        s.peer(&format!(". 1 ack 101 win 64000 <nop,nop,sack 1561:{end}>"));
        assert_eq!(s.sent()[0], "P. 101:1561(1460) ack 1 win 65535");
        s.advance(RTT);
        s.peer(&format!(". 1 ack {end} win 64000"));
        let units = s.transmit(&mut source, 64).units;
        assert!(expected.contains(&units), "{congestion:?}: {units}");
    }
}

/// RFC 5681 s3.2 and RFC 6675 s5 (4.2): the two units of limited transmit are not part of what is
/// reduced, and the ACK that ends the recovery does not open the window (RFC 5681 s3.2, step 6).
#[test]
fn after_a_loss_the_window_is_ssthresh_without_what_limited_transmit_sent() {
    for (congestion, expected) in ALL.into_iter().zip([10, 14, 10]) {
        for sack in [true, false] {
            let config = TcpConfig { congestion, initial_window_segments: 20, ..config() };
            let mut s = if sack { sacking(config) } else { plain(config) };
            let mut source = Pattern { next: 100, ..Pattern::new(1 << 20, 1_460) };
            assert_eq!(s.transmit(&mut source, 64).units, 20);
            s.sent();
            s.advance(RTT);
            for delivered in 1..=3 {
                let block = format!(" <nop,nop,sack 1561:{}>", 1_561 + 1_460 * delivered);
                s.peer(&format!(". 1 ack 101 win 64000{}", if sack { &block } else { "" }));
                let limited = s.transmit(&mut source, 64).units;
                assert_eq!(limited, usize::from(delivered < 3), "{congestion:?}, SACK {sack}");
            }
            s.advance(RTT);
            s.peer(&format!(". 1 ack {} win 64000", source.next + 1));
            s.sent();
            let units = s.transmit(&mut source, 64).units;
            assert_eq!(units, expected, "{congestion:?}, SACK {sack}");
        }
    }
}

/// RFC 5681 s3.2, RFC 6582 s3.2 and RFC 6937 s3: without SACK the window is reduced in the same
/// way.
#[test]
fn without_sack_duplicate_acks_drive_the_window() {
    let mut s = plain(TcpConfig { congestion: Congestion::NewReno, initial_window_segments: 20, ..config() });
    let mut source = Pattern { next: 100, ..Pattern::new(1 << 20, 1_460) };
    assert_eq!(s.transmit(&mut source, 64).units, 20);
    s.sent();
    s.advance(RTT);
    let mut left = Vec::new();
    for _ in 0..19 {
        s.peer(". 1 ack 101 win 64000");
        s.transmit(&mut source, 64);
        left.push(s.sent().len());
    }
    // One for each of the first two duplicates, the lost unit, and then one for about every second
    // duplicate.
    assert_eq!(left[..3], [1, 1, 1]);
    assert!((10..=13).contains(&left.iter().sum::<usize>()), "{left:?}");
    s.peer(&format!(". 1 ack {} win 64000", source.next + 1));
    assert_eq!(s.node.read(Counter::TcpTimeouts), 0);
    let units = s.transmit(&mut source, 64).units;
    assert!((9..=12).contains(&units), "{units}");
}

/// RFC 6582 s3.2: a partial acknowledgement indicates the next loss.
#[test]
fn without_sack_each_partial_acknowledgement_sends_the_next_missing_unit() {
    let mut s = plain(config());
    send(&mut s, 100, 8);
    s.advance(RTT);
    (0..3).for_each(|_| s.peer(". 1 ack 101 win 64000"));
    s.expect(&["P. 101:201(100) ack 1"]);
    s.advance(RTT);
    s.peer(". 1 ack 401 win 64000");
    s.expect(&["P. 401:501(100) ack 1"]);
    s.advance(RTT);
    s.peer(". 1 ack 901 win 64000");
    assert_eq!((s.node.read(Counter::TcpTimeouts), s.node.read(Counter::TcpFastRetransmits)), (0, 1));
}

/// RFC 6582 s4: duplicate ACKs after a timeout are caused by retransmissions and start no recovery.
/// RFC 6675 s5.1.
#[test]
fn duplicate_acks_after_a_timeout_start_no_recovery() {
    let mut s = plain(config());
    send(&mut s, 100, 4);
    s.advance(RTO + RTT);
    assert!(!s.sent().is_empty());
    (0..5).for_each(|_| s.peer(". 1 ack 101 win 64000"));
    assert_eq!(s.node.read(Counter::TcpFastRetransmits), 0);
    s.advance(Nanos::from_micros(1));
    s.peer(". 1 ack 501 win 64000");
    assert!(s.node.tcp.all_acked(s.id()));
}
