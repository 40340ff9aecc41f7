//! Receiving: order, windows and the timing of ACKs.

use crate::common;

use common::node::addr;
use common::pattern::Pattern;
use common::script::Script;
use ironwarp_stats::Counter;
use ironwarp_tcp::{ByteStream, TcpConfig, TcpEvents, Transport};
use ironwarp_types::Nanos;

fn script() -> Script {
    Script::accepted(TcpConfig::default(), 64_000)
}

/// docs/semantics.md, Loop order: a pending ACK waits one iteration for a reply to carry it.
/// RFC 9293 (SHLD-18); RFC 5681 s4.2.
#[test]
fn an_ack_is_held_for_one_iteration() {
    let mut s = script();
    s.peer("P. 1:101(100) ack 1 win 64000");
    assert_eq!(s.events(), TcpEvents::READABLE);
    s.expect(&[]);
    assert!(s.node.tcp.has_pending_acks());
    s.expect(&[". 1 ack 101"]);
    s.expect(&[]);
    assert!(!s.node.tcp.has_pending_acks());
}

#[test]
fn a_reply_carries_the_ack() {
    let mut s = script();
    s.peer("P. 1:101(100) ack 1 win 64000");
    s.transmit(&mut Pattern::new(10, 10), 1);
    s.expect(&["P. 1:11(10) ack 101"]);
    s.expect(&[]);
}

/// RFC 9293 s3.10.7.4, MUST-58: one ACK per burst.
/// RFC 9293 (MUST-59).
#[test]
fn a_burst_is_acknowledged_once() {
    let mut s = script();
    for at in 0..8 {
        s.peer(&format!("P. {}:{}(100) ack 1 win 64000", 1 + at * 100, 101 + at * 100));
    }
    s.expect(&[]);
    s.expect(&[". 1 ack 801"]);
    assert_eq!(s.read(), 800);
}

/// RFC 5681 s4.2: every out-of-order segment triggers a duplicate ACK at once, and so does the one
/// that fills the gap. RFC 9293 (SHLD-31, MAY-13); RFC 5044 sA.5.2.
#[test]
fn out_of_order_segments_are_held_and_each_acknowledged_at_once() {
    let mut s = script();
    for at in 1..4 {
        s.peer(&format!("P. {}:{}(1000) ack 1 win 64000", 1 + at * 1_000, 1_001 + at * 1_000));
    }
    s.expect(&[". 1 ack 1", ". 1 ack 1", ". 1 ack 1"]);
    assert_eq!((s.events(), s.read()), (TcpEvents::empty(), 0));
    s.peer("P. 1:1001(1000) ack 1 win 64000");
    s.expect(&[". 1 ack 4001"]);
    assert_eq!(s.events(), TcpEvents::READABLE);
    assert_eq!(s.read(), 4_000);
}

/// The peer counts duplicate ACKs, so a pending ACK of in-order bytes must not be one of them.
#[test]
fn a_pending_ack_precedes_duplicate_acks() {
    let mut s = script();
    s.peer("P. 1:101(100) ack 1 win 64000");
    s.peer("P. 201:301(100) ack 1 win 64000");
    s.expect(&[". 1 ack 101", ". 1 ack 101"]);
}

/// RFC 9293 s3.4: overlaps are trimmed on both sides.
#[test]
fn overlapping_segments_deliver_every_byte_once() {
    let mut s = script();
    s.peer("P. 1:101(100) ack 1 win 64000");
    s.peer("P. 51:151(100) ack 1 win 64000");
    s.peer("P. 301:401(100) ack 1 win 64000");
    s.peer("P. 251:351(100) ack 1 win 64000");
    s.peer("P. 351:451(100) ack 1 win 64000");
    s.peer("P. 101:451(350) ack 1 win 64000");
    assert_eq!(s.read(), 450);
}

/// RFC 9293 s3.10.7.4, first step: an old segment is answered with an ACK.
#[test]
fn a_repeated_segment_is_acknowledged_again_at_once() {
    let mut s = script();
    s.peer("P. 1:101(100) ack 1 win 64000");
    s.sent();
    s.sent();
    s.peer("P. 1:101(100) ack 1 win 64000");
    s.expect(&[". 1 ack 101"]);
    assert_eq!(s.read(), 100);
}

/// RFC 9293 s3.10.7.4, first step: bytes beyond the window are trimmed.
#[test]
fn bytes_beyond_the_window_are_ignored() {
    let mut s = Script::accepted(TcpConfig { rcv_window_bytes: 1_000, ..TcpConfig::default() }, 64_000);
    s.peer("P. 501:1901(1400) ack 1 win 64000");
    s.peer("P. 1:501(500) ack 1 win 64000");
    assert_eq!(s.read(), 1_000);
    s.peer("P. 9001:9002(1) ack 1 win 64000");
    assert_eq!(s.node.read(Counter::TcpDropOutsideWindow), 1);
}

/// docs/semantics.md, Window: bytes of a partial FPDU never shrink it.
/// RFC 5041 sA.
#[test]
fn unread_bytes_up_to_an_fpdu_do_not_shrink_the_window() {
    let mut s = script();
    for at in 0..40 {
        s.peer(&format!("P. {}:{}(1460) ack 1 win 64000", 1 + at * 1_460, 1_461 + at * 1_460));
    }
    s.sent();
    s.expect(&[". 1 ack 58401 win 65535"]);
}

/// RFC 9293 s3.8.6: a reader that does not read closes the window. A window update reports that it
/// opens. RFC 9293 (MUST-39).
#[test]
fn a_closed_window_sends_an_update_when_it_opens() {
    let mut s = script();
    let mut at = 1;
    while s.node.tcp.rx(s.id()).available() < 120_000 {
        s.peer(&format!("P. {at}:{}(1000) ack 1 win 64000", at + 1_000));
        at += 1_000;
        s.sent();
    }
    s.sent();
    assert_eq!(s.read(), 120_000);
    s.expect(&[". 1 ack 120001 win 65535"]);
}

/// RFC 9293 s3.10.7.4: with a closed window, the ACK of a segment is still processed.
/// RFC 9293 (MAY-8).
#[test]
fn a_closed_window_accepts_acks() {
    let mut s = Script::accepted(TcpConfig { rcv_window_bytes: 1_000, ..TcpConfig::default() }, 64_000);
    let id = s.id();
    s.transmit(&mut Pattern::new(100, 100), 1);
    let mut at = 1;
    while at < 66_560 {
        let len = (66_560 - at).min(1_000);
        s.peer(&format!("P. {at}:{}({len}) ack 1 win 64000", at + len));
        at += len;
        s.sent();
        s.sent();
    }
    let unread = s.node.tcp.rx(id).available() as u32;
    assert!(unread > 66_000 && s.events() == TcpEvents::READABLE);
    s.peer(&format!("P. {}:{}(1) ack 101 win 64000", unread + 1, unread + 2));
    assert!(s.events().contains(TcpEvents::ACKED));
    assert_eq!(s.node.tcp.rx(id).available() as u32, unread);
}

/// A peer that sends single bytes cannot make us hold a buffer for each.
#[test]
fn single_byte_segments_share_buffers() {
    let config = TcpConfig { rx_frames_reserve: 0, rx_frames_shared: 4, ..TcpConfig::default() };
    let mut s = Script::accepted(config, 64_000);
    for at in 1..5_001 {
        s.peer(&format!("P. {at}:{}(1) ack 1 win 64000", at + 1));
    }
    assert_eq!(s.node.read(Counter::TcpDropRxBufferFull), 0);
    assert_eq!(s.read(), 5_000);
}

/// docs/semantics.md, Window: when memory is short, in-order data has priority over out-of-order
/// data.
#[test]
fn in_order_bytes_are_accepted_when_out_of_order_ones_hold_all_frames() {
    let config = TcpConfig { rx_frames_reserve: 0, rx_frames_shared: 4, ..TcpConfig::default() };
    let mut s = Script::accepted(config, 64_000);
    for at in 1..8 {
        s.peer(&format!("P. {}:{}(1000) ack 1 win 64000", at * 2_000, at * 2_000 + 1_000));
    }
    assert_eq!(s.node.read(Counter::TcpDropOutOfOrderFull), 5);
    s.peer("P. 1:1001(1000) ack 1 win 64000");
    assert_eq!(s.read(), 1_000);
}

#[test]
fn out_of_order_frames_are_limited_per_connection() {
    let mut s = Script::accepted(TcpConfig { ooo_frames_max: 3, ..TcpConfig::default() }, 64_000);
    for at in 1..8 {
        s.peer(&format!("P. {}:{}(1000) ack 1 win 64000", at * 2_000, at * 2_000 + 1_000));
    }
    assert_eq!(s.node.read(Counter::TcpRxOutOfOrder), 3);
    assert_eq!(s.node.read(Counter::TcpDropOutOfOrderFull), 4);
}

/// RFC 5961 s3.
/// RFC 5961 s3.2 and s4.2.
#[test]
fn a_reset_is_accepted_only_with_the_exact_number() {
    let mut s = script();
    s.peer("R 2 win 0");
    s.expect(&[". 1 ack 1"]);
    s.peer("R 100000 win 0");
    s.expect(&[]);
    assert_eq!(s.events(), TcpEvents::empty());
    s.peer("R 1 win 0");
    assert_eq!(s.events(), TcpEvents::RESET);
    s.peer("P. 1:11(10) ack 1 win 500");
    s.expect(&["R 1"]);
}

/// RFC 5961 s4.
/// RFC 5961 s4.2.
#[test]
fn a_syn_in_an_open_connection_triggers_a_challenge_ack() {
    let mut s = script();
    for syn in ["S 1 win 500", "S 9000 win 500", "S 0 win 500"] {
        s.peer(syn);
        s.expect(&[". 1 ack 1"]);
    }
    assert_eq!(s.events(), TcpEvents::empty());
}

/// RFC 9293 s3.10.7.4, fifth step.
#[test]
fn a_segment_without_an_ack_is_dropped() {
    let mut s = script();
    s.peer("P 1:11(10) win 500");
    assert_eq!(s.node.read(Counter::TcpDropNoAck), 1);
    assert_eq!(s.read(), 0);
}

/// RFC 5961 s7: the limit prevents endless exchanges of zero-length segments outside the window.
#[test]
fn answers_to_misplaced_acks_are_limited() {
    let mut s = Script::accepted(TcpConfig { replies_per_ms: 2, ..TcpConfig::default() }, 64_000);
    let mut answers = 0;
    for _ in 0..10 {
        s.peer(". 900000 ack 1 win 64000");
        answers += s.sent().len();
    }
    // The limit per millisecond lies between half of the setting and all of it.
    assert!((1..=2).contains(&answers), "{answers}");
}

#[test]
fn bytes_can_be_peeked_across_frames_and_consumed_in_any_size() {
    let mut s = script();
    let id = s.id();
    for at in 0..3 {
        s.peer(&format!("P. {}:{}(1000) ack 1 win 64000", 1 + at * 1_000, 1_001 + at * 1_000));
    }
    let expected = common::pattern::bytes_at(0, 3_000);
    let mut stream = s.node.tcp.rx(id);
    let mut out = vec![0; 2_500];
    assert!(stream.peek(&mut out));
    assert_eq!(out, expected[..2_500]);
    assert!(!stream.peek(&mut vec![0; 3_001]));
    stream.consume(1_500);
    assert_eq!(stream.available(), 1_500);
    assert_eq!(stream.front(), &expected[1_500..2_000]);
    stream.consume(10_000);
    assert_eq!((stream.available(), stream.front().len()), (0, 0));
}

#[test]
fn connections_are_independent() {
    let mut s = script();
    let first = s.id();
    s.peer("P. 1:101(100) ack 1 win 64000");
    s.peer_port = 50_001;
    s.peer("S 0 win 65535 <mss 1460>");
    let second_port = s.peer_port;
    s.peer_port = 50_000;
    s.peer("R 1 win 0");
    assert_eq!(s.events(), TcpEvents::READABLE);
    s.peer("R 101 win 0");
    assert_eq!(s.events(), TcpEvents::RESET);
    assert_eq!(s.node.tcp.flow(first).map(|flow| flow.remote), Some(addr(2, 50_000)));
    assert_eq!(s.read(), 100);
    s.node.tcp.release(first);
    assert_eq!(s.node.tcp.flow(first), None);
    assert_eq!(second_port, 50_001);
    s.advance(Nanos::from_millis(201));
    s.node.check();
}

/// RFC 9293 s3.8.5, RFC 6093: urgent bytes are ordinary bytes for every pointer, in order and
/// beyond a gap. No event is reported and no byte removed.
#[test]
fn urgent_payload_is_ordinary_payload() {
    let mut s = script();
    let (mut at, mut answers) = (1u32, 0);
    for urgent in [0, 1, 50, 100, 101, u16::MAX] {
        for flags in ["PU.", "U."] {
            let text = format!("{flags} {at}:{}(100) ack 1 win 64000", at + 100);
            s.peer_with_urgent(&text, urgent);
            assert_eq!(s.events(), TcpEvents::READABLE, "{text}, pointer {urgent}");
            s.sent();
            answers += s.sent().len();
            at += 100;
        }
    }
    assert_eq!((s.read(), answers), (1_200, 12));
    s.peer_with_urgent("PU. 1301:1401(100) ack 1 win 64000", 7);
    s.expect(&[". 1 ack 1201"]);
    s.peer_with_urgent("U. 1201:1301(100) ack 1 win 64000", 100);
    assert_eq!(s.events(), TcpEvents::READABLE);
    s.peer_with_urgent("FU. 1401 ack 1 win 64000", 1);
    assert_eq!(s.events(), TcpEvents::PEER_CLOSED);
    // A segment with a pointer and no payload is an ACK.
    s.peer_with_urgent("U. 1402 ack 1 win 64000", 1_000);
    assert_eq!((s.read(), s.events()), (1_400, TcpEvents::empty()));
}
