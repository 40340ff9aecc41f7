//! Window reductions: their number and size. The timer runs while data is left to send.

use crate::common;

use common::pattern::Pattern;
use common::script::Script;
use common::sender::{RTO, RTT, config, sacking, send};
use ironwarp_stats::Counter;
use ironwarp_tcp::{Blocked, Congestion, TcpConfig, TcpEvents};
use ironwarp_types::Nanos;

fn marking() -> TcpConfig {
    TcpConfig { ecn: true, ..config() }
}

/// RFC 3168 s6.1.2: a peer echoes until it receives CWR, which needs new payload. A peer that sends
/// while we have no payload repeats one mark in each of its segments. The window is reduced once.
#[test]
fn a_mark_echoed_by_every_segment_reduces_the_window_once() {
    let mut s = sacking(marking());
    send(&mut s, 100, 4);
    s.advance(RTT);
    s.peer(".E 1 ack 501 win 64000");
    for n in 0..8 {
        s.peer(&format!("P.E {}:{}(10) ack 501 win 64000", 1 + 10 * n, 11 + 10 * n));
        s.sent();
    }
    assert_eq!(s.node.read(Counter::TcpEcnReductions), 1);
    s.transmit(&mut Pattern { next: 500, ..Pattern::new(200, 100) }, 2);
    s.expect(&["P.W 501:601(100) ack 81 [ect0]", "P. 601:701(100) ack 81 [ect0]"]);
}

/// RFC 3168 s6.1.2: the ACK of the end of the marked window was sent before CWR could arrive.
#[test]
fn the_echo_of_the_last_segment_before_cwr_does_not_reduce_again() {
    let mut s = sacking(marking());
    send(&mut s, 100, 4);
    s.advance(RTT);
    s.peer(".E 1 ack 301 win 64000");
    s.transmit(&mut Pattern { next: 500, ..Pattern::new(100, 100) }, 1);
    s.expect(&["P.W 501:601(100) ack 1 [ect0]"]);
    s.peer(".E 1 ack 501 win 64000");
    assert_eq!(s.node.read(Counter::TcpEcnReductions), 1);
    s.peer(".E 1 ack 601 win 64000");
    assert_eq!(s.node.read(Counter::TcpEcnReductions), 2);
}

/// RFC 3168 s6.1.2: CWR reports every reduction, whatever its reason.
#[test]
fn a_loss_is_reported_with_cwr() {
    let mut s = sacking(marking());
    send(&mut s, 100, 5);
    s.advance(RTT);
    s.peer(". 1 ack 101 win 64000 <nop,nop,sack 201:601>");
    assert_eq!(s.sent(), ["P. 101:201(100) ack 1 win 65535"]);
    s.transmit(&mut Pattern { next: 600, ..Pattern::new(100, 100) }, 1);
    s.expect(&["P.W 601:701(100) ack 1 [ect0]"]);
}

/// RFC 3168 s6.1.2: a mark reduces the window by a share of the data in flight before the ACK with
/// the echo.
#[test]
fn a_mark_echoed_by_the_last_ack_of_a_flight_reduces_the_window() {
    let mut s = sacking(TcpConfig { congestion: Congestion::NewReno, ..marking() });
    let mut source = Pattern { next: 100, ..Pattern::new(1 << 20, 1_460) };
    assert_eq!(s.transmit(&mut source, 8).units, 8);
    s.sent();
    s.advance(RTT);
    s.peer(&format!(".E 1 ack {} win 64000", source.next + 1));
    let done = s.transmit(&mut source, 32);
    assert_eq!((done.units, done.blocked), (4, Blocked::Congestion));
}

/// RFC 3168 s6.1.2: the window of one segment stays, and the next segment leaves when the
/// retransmission timer expires, which the echo starts again. That is so for every segment whose
/// ACK has an echo; the first without one opens the window.
#[test]
fn an_echo_at_a_window_of_one_segment_holds_the_next_back_until_the_timer_expires() {
    for congestion in [Congestion::NewReno, Congestion::Cubic, Congestion::Dctcp] {
        let mut s = sacking(TcpConfig { initial_window_segments: 1, congestion, ..marking() });
        let mut source = Pattern { next: 100, ..Pattern::new(1 << 20, 1_460) };
        assert_eq!(s.transmit(&mut source, 8).units, 1);
        s.sent();
        for reductions in 1..=3 {
            s.advance(RTT);
            s.peer(&format!(".E 1 ack {} win 64000", source.next + 1));
            assert_eq!(s.node.read(Counter::TcpEcnReductions), reductions, "{congestion:?}");
            s.events();
            for _ in 0..9 {
                let done = s.transmit(&mut source, 8);
                assert_eq!((done.units, done.blocked), (0, Blocked::Congestion), "{congestion:?}");
                s.advance(RTT);
                assert_eq!(s.events(), TcpEvents::empty(), "{congestion:?}");
            }
            s.advance(RTT + RTT);
            assert_eq!(s.events(), TcpEvents::WRITABLE, "{congestion:?}");
            assert_eq!(s.transmit(&mut source, 8).units, 1, "{congestion:?}");
            let sent = s.sent();
            assert!(sent.len() == 1 && sent[0].starts_with("P.W "), "{congestion:?}: {sent:?}");
            s.node.check();
        }
        s.advance(RTT);
        s.peer(&format!(". 1 ack {} win 64000", source.next + 1));
        assert_eq!(s.transmit(&mut source, 8).units, 2, "{congestion:?}");
        assert_eq!(s.node.read(Counter::TcpTimeouts), 0, "nothing was lost");
    }
}

/// RFC 3168 s6.1.2: what is outstanding when the echo arrives has the whole timeout again, which no
/// probe shortens. A retransmission is not held.
#[test]
fn data_that_is_outstanding_at_a_hold_is_retransmitted_when_the_timer_expires() {
    let mut s = sacking(TcpConfig { initial_window_segments: 1, ..marking() });
    send(&mut s, 100, 1);
    s.advance(RTT);
    s.peer(".E 1 ack 101 win 64000");
    s.advance(Nanos(RTO.0 - RTT.0 / 2));
    s.expect(&[]);
    s.advance(RTT + RTT);
    s.expect(&["P. 101:201(100) ack 1"]);
    s.node.check();
}

/// RFC 9293 s3.8.3: the user timeout is for data that the peer does not acknowledge. While a hold
/// lasts there is none.
#[test]
fn a_hold_that_is_longer_than_the_user_timeout_ends_no_connection() {
    let user_timeout = Nanos(RTO.0 / 2);
    let mut s = sacking(TcpConfig { initial_window_segments: 1, user_timeout, ..marking() });
    let mut source = Pattern { next: 100, ..Pattern::new(1 << 20, 1_460) };
    s.transmit(&mut source, 8);
    s.advance(RTT);
    s.peer(&format!(".E 1 ack {} win 64000", source.next + 1));
    s.transmit(&mut source, 8);
    s.events();
    (0..12).for_each(|_| s.advance(RTT));
    assert_eq!(s.events(), TcpEvents::WRITABLE);
    assert_eq!(s.transmit(&mut source, 8).units, 1);
}

/// RFC 6582 s3.2: a window reduction for a mark does not suppress the third duplicate ACK.
#[test]
fn without_sack_duplicate_acks_find_a_loss_after_a_mark() {
    let options = TcpConfig { sack: false, ..marking() };
    let mut s = Script::accepted_with(options, "SEW 0 win 65535 <mss 1460>", ". 1 ack 1 win 64000");
    send(&mut s, 0, 8);
    s.advance(RTT);
    s.peer(".E 1 ack 101 win 64000");
    s.sent();
    (0..3).for_each(|_| s.peer(".E 1 ack 101 win 64000"));
    assert_eq!(s.sent(), ["P. 101:201(100) ack 1 win 65535"]);
}

/// RFC 9293 s3.8.6.1: the ACK of a unit's front closes the window, and the rest waits. The persist
/// timer runs although transmit is not called.
#[test]
fn the_rest_of_a_unit_behind_a_closed_window_is_probed() {
    let mut s = Script::accepted(config(), 1_000);
    s.transmit(&mut Pattern::new(1_460, 1_460), 1);
    s.expect(&["P. 1:1001(1000) ack 1"]);
    s.advance(RTT);
    s.peer(". 1 ack 1001 win 0");
    s.expect(&[]);
    s.advance(RTO + RTO);
    s.expect(&["P. 1001:1002(1) ack 1"]);
}

/// The peer accepts the byte of a window probe and keeps the window closed. The timer runs again
/// for the rest.
#[test]
fn an_accepted_probe_is_followed_by_another() {
    let mut s = Script::accepted(config(), 0);
    s.transmit(&mut Pattern::new(100, 100), 1);
    s.advance(RTO + Nanos::from_micros(40));
    s.expect(&["P. 1:2(1) ack 1"]);
    s.peer(". 1 ack 2 win 0");
    s.advance(RTO + RTO + RTO);
    s.expect(&["P. 2:3(1) ack 1"]);
}
