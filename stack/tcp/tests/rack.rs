//! Time-based loss detection: RACK (RFC 8985 s6), SACK at the sender (RFC 2018, 6675), duplicate
//! SACK (RFC 2883).

use crate::common;

use common::pattern::Pattern;
use common::script::Script;
use common::sender::{RTO, RTT, config, sacking, send};
use ironwarp_stats::Counter;
use ironwarp_tcp::{Blocked, Congestion, TcpConfig};
use ironwarp_types::Nanos;

/// A quarter of the round trip and one tick of the timer wheel.
const WINDOW: Nanos = Nanos::from_micros(270);

/// RFC 8985 s6.2: one SACKed unit suffices, after a quarter of the smallest round trip.
/// RFC 6675 s4; RFC 4821 s4.
#[test]
fn a_unit_sent_before_a_sacked_one_is_lost_after_the_reordering_window() {
    let mut s = sacking(config());
    send(&mut s, 100, 3);
    s.advance(RTT);
    s.peer(". 1 ack 101 win 64000 <nop,nop,sack 301:401>");
    s.expect(&[]);
    s.advance(WINDOW);
    s.expect(&["P. 101:201(100) ack 1", "P. 201:301(100) ack 1"]);
    s.peer(". 1 ack 401 win 64000");
    assert_eq!((s.node.read(Counter::TcpTimeouts), s.node.read(Counter::TcpFastRetransmits)), (0, 1));
}

/// RFC 8985 s6.2, step 4: while no reordering was seen, three SACKed units suffice at once.
#[test]
fn three_sacked_units_mark_a_loss_at_once() {
    let mut s = sacking(config());
    send(&mut s, 100, 4);
    s.advance(RTT);
    s.peer(". 1 ack 101 win 64000 <nop,nop,sack 201:301>");
    s.peer(". 1 ack 101 win 64000 <nop,nop,sack 201:401>");
    s.expect(&[]);
    s.peer(". 1 ack 101 win 64000 <nop,nop,sack 201:501>");
    s.expect(&["P. 101:201(100) ack 1"]);
}

/// RFC 8985 s6.2, steps 3 and 4: once reordering was seen, the reordering window applies.
#[test]
fn after_reordering_was_seen_even_three_sacked_units_wait() {
    let mut s = sacking(config());
    send(&mut s, 100, 2);
    s.advance(RTT);
    s.peer(". 1 ack 101 win 64000 <nop,nop,sack 201:301>");
    s.peer(". 1 ack 301 win 64000");
    send(&mut s, 300, 5);
    s.advance(RTT);
    s.peer(". 1 ack 301 win 64000 <nop,nop,sack 401:801>");
    s.expect(&[]);
    s.peer(". 1 ack 801 win 64000");
    s.advance(WINDOW);
    s.expect(&[]);
    assert_eq!(s.node.read(Counter::TcpTxRetransmits), 0);
}

/// RFC 8985 s9.1, example 2: a later retransmission reveals the loss of an earlier one, without a
/// timeout. RFC 8985 s9.3.
#[test]
fn a_lost_retransmission_is_sent_again_without_a_timeout() {
    let mut s = sacking(config());
    send(&mut s, 100, 5);
    s.advance(RTT);
    s.peer(". 1 ack 101 win 64000 <nop,nop,sack 301:601>");
    s.expect(&["P. 101:201(100) ack 1", "P. 201:301(100) ack 1"]);
    s.advance(RTT);
    // The second retransmission arrives, the first does not.
    s.peer(". 1 ack 101 win 64000 <nop,nop,sack 201:601>");
    s.expect(&["P. 101:201(100) ack 1"]);
    assert_eq!(s.node.read(Counter::TcpTimeouts), 0);
}

/// RFC 8985 s6.2: units sent after the delivered unit are not candidates.
#[test]
fn units_sent_after_the_delivered_one_are_not_lost() {
    let mut s = sacking(config());
    send(&mut s, 100, 4);
    s.advance(Nanos::from_micros(500));
    send(&mut s, 500, 2);
    s.advance(Nanos::from_micros(500));
    s.peer(". 1 ack 101 win 64000 <nop,nop,sack 201:501>");
    s.expect(&["P. 101:201(100) ack 1"]);
}

/// RFC 8985 s6 in a data centre: a quarter of ten microseconds, not a tick of the peer's clock.
/// RFC 8985 s5.1.
#[test]
fn a_round_trip_of_ten_microseconds_is_measured() {
    let rtt = Nanos::from_micros(10);
    let mut s = Script::accepted_with(config(), "S 0 win 65535 <mss 1460,sackOK>", ". 1 ack 1 win 64000");
    send(&mut s, 0, 1);
    s.advance(rtt);
    s.peer(". 1 ack 101 win 64000");
    send(&mut s, 100, 3);
    s.advance(rtt);
    s.peer(". 1 ack 101 win 64000 <nop,nop,sack 301:401>");
    s.expect(&[]);
    // The window is 2.5 us; the wheel ticks every 16.4 us.
    s.advance(Nanos::from_micros(20));
    s.expect(&["P. 101:201(100) ack 1", "P. 201:301(100) ack 1"]);
}

/// RFC 2883 s4 and RFC 8985 s6.2: a duplicate arrival shows that no data was lost. The congestion
/// window is restored, and the reordering window grows.
#[test]
fn an_unnecessary_reduction_is_undone() {
    let mut s = sacking(TcpConfig { congestion: Congestion::NewReno, ..config() });
    let mut source = Pattern { next: 100, ..Pattern::new(1 << 20, 1_460) };
    let before = s.transmit(&mut source, 32).units;
    s.sent();
    s.advance(RTT);
    s.peer(". 1 ack 101 win 64000 <nop,nop,sack 1561:5941>");
    assert_eq!(s.sent()[0], "P. 101:1561(1460) ack 1 win 65535");
    s.peer(". 1 ack 5941 win 64000");
    s.peer(". 1 ack 5941 win 64000 <nop,nop,sack 101:1561>");
    assert_eq!(s.node.read(Counter::TcpDsackUndos), 1);
    // Four units are acknowledged, and the window is restored.
    s.transmit(&mut source, 32);
    let in_flight = (source.next + 1 - 5_941) / 1_460;
    assert!(in_flight >= before as u64, "{in_flight} units of {before}");
}

/// RFC 2883 s5: the first block of an ACK that arrives late lies below SND.UNA and above that ACK,
/// so it is no duplicate.
#[test]
fn a_duplicate_report_in_a_late_ack_is_compared_with_that_ack() {
    let mut s = sacking(TcpConfig { congestion: Congestion::NewReno, ..config() });
    s.transmit(&mut Pattern { next: 100, ..Pattern::new(1 << 20, 1_460) }, 32);
    s.sent();
    s.advance(RTT);
    s.peer(". 1 ack 101 win 64000 <nop,nop,sack 1561:5941>");
    assert_eq!(s.sent()[0], "P. 101:1561(1460) ack 1 win 65535");
    s.peer(". 1 ack 5941 win 64000");
    // The network exchanged this one with the last.
    s.peer(". 1 ack 101 win 64000 <nop,nop,sack 1561:4481>");
    assert_eq!(s.node.read(Counter::TcpDsackUndos), 0);
    s.peer(". 1 ack 5941 win 64000 <nop,nop,sack 101:1561>");
    assert_eq!(s.node.read(Counter::TcpDsackUndos), 1);
}

/// RFC 2018 s8: the peer discards SACKed data. At the timeout the first unit is SACKed but not
/// acknowledged. RFC 2018 s5.
#[test]
fn data_is_retransmitted_after_sack_reneging() {
    let mut s = sacking(config());
    send(&mut s, 100, 3);
    s.advance(RTT);
    s.peer(". 1 ack 101 win 64000 <nop,nop,sack 201:401>");
    s.advance(WINDOW);
    s.expect(&["P. 101:201(100) ack 1"]);
    s.peer(". 1 ack 201 win 64000");
    s.advance(RTO + WINDOW);
    s.expect(&["P. 201:301(100) ack 1", "P. 301:401(100) ack 1"]);
    assert_eq!(s.node.read(Counter::TcpSackReneging), 1);
}

/// RFC 6675 s5.1 and RFC 8985 s6.3: SACKs remain valid after a timeout.
#[test]
fn after_a_timeout_sacked_data_is_not_retransmitted() {
    let mut s = sacking(config());
    send(&mut s, 100, 4);
    s.advance(RTT);
    s.peer(". 1 ack 101 win 64000 <nop,nop,sack 201:301>");
    s.advance(WINDOW);
    s.expect(&["P. 101:201(100) ack 1"]);
    s.advance(RTO + RTO);
    s.expect(&["P. 101:201(100) ack 1", "P. 301:401(100) ack 1", "P. 401:501(100) ack 1"]);
}

/// RFC 3042 with SACK: each of the first SACKed units permits a new one.
/// RFC 5681 s3.2; RFC 6675 s4 and s5.
#[test]
fn sacked_units_permit_new_ones() {
    let mut s = sacking(config());
    let mut source = Pattern { next: 100, ..Pattern::new(1 << 20, 1_460) };
    let done = s.transmit(&mut source, 32);
    assert_eq!(done.blocked, Blocked::Congestion);
    s.sent();
    s.advance(RTT);
    s.peer(". 1 ack 101 win 64000 <nop,nop,sack 1561:3021>");
    assert_eq!(s.transmit(&mut source, 32).units, 1);
}

/// RFC 6937: in recovery about one segment is sent for every second delivered one, without a burst.
/// RFC 5681 s4.3; RFC 8985 s9.3; RFC 6675 s5.
#[test]
fn the_window_is_reduced_without_a_pause_or_a_burst() {
    let mut s =
        sacking(TcpConfig { congestion: Congestion::NewReno, initial_window_segments: 20, ..config() });
    let mut source = Pattern { next: 100, ..Pattern::new(1 << 20, 1_460) };
    assert_eq!(s.transmit(&mut source, 32).units, 20);
    s.sent();
    s.advance(RTT);
    let mut left = Vec::new();
    for n in 2..=20 {
        s.peer(&format!(". 1 ack 101 win 64000 <nop,nop,sack 1561:{}>", 101 + 1_460 * n));
        s.transmit(&mut source, 32);
        left.push(s.sent().len());
    }
    assert!(left.iter().all(|&segments| segments <= 2), "{left:?}");
    let total: usize = left.iter().sum();
    assert!((10..=13).contains(&total), "{left:?}");
    assert!(left.windows(4).all(|four| four.iter().sum::<usize>() > 0), "{left:?}");
}

/// RFC 2018 s4: invalid SACK blocks are ignored.
#[test]
fn sack_blocks_of_unsent_data_are_ignored() {
    let mut s = sacking(config());
    send(&mut s, 100, 3);
    s.advance(RTT);
    for lie in ["401:501", "301:501", "50:90", "901:1001 1101:1201 1301:1401", "4000000000:4000000100"] {
        s.peer(&format!(". 1 ack 101 win 64000 <nop,nop,sack {lie}>"));
    }
    s.advance(WINDOW);
    s.expect(&[]);
    s.peer(". 1 ack 401 win 64000");
    assert!(s.node.tcp.all_acked(s.id()));
}
