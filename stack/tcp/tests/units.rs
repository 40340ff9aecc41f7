//! Splitting of units (docs/semantics.md, Units): by the path MTU, by an ACK or SACK edge, by a
//! small window, by the one-byte probe. In each case the rest of the unit is sent alone, and the
//! next unit is whole.

use crate::common;

use common::pattern::Pattern;
use common::script::Script;
use common::sender::{RTO, RTT, config, plain, sacking};
use ironwarp_net::{IcmpError, IcmpErrorKind};
use ironwarp_stats::Counter;
use ironwarp_tcp::{Blocked, TcpConfig, Transport};
use ironwarp_types::{Nanos, Seq};

/// An ICMP error reports the segment numbered `seq` as too big.
fn too_big(s: &mut Script, seq: u32, mtu_bytes: u16) {
    let flow = s.node.tcp.flow(s.id()).expect("a connection");
    let seq = Seq(s.our_numbers.iss.expect("a SYN")).plus(seq);
    let hash = s.node.net.hasher().hash(&flow);
    let error =
        IcmpError { flow, hash, protocol: 6, quoted: seq.0, kind: IcmpErrorKind::TooBig { mtu_bytes } };
    let event = s.node.tcp.on_icmp_error(s.node.now, &error, &mut s.node.wires);
    s.node.events.extend(event);
    s.node.check();
}

/// RFC 1191: an oversized segment is retransmitted in pieces at once. The congestion window stays,
/// and later units are smaller. RFC 5041 s3; RFC 5044 s4.5; RFC 8201 s4, s5.2 and s5.4;
/// RFC 1191 s3. RFC 1191 s6.5.
#[test]
fn a_smaller_path_mtu_splits_units_in_flight() {
    let mut s = Script::with_options(config());
    s.connect();
    s.sent();
    s.peer("S. 0 ack 1 win 64000 <mss 1460,sackOK>");
    s.sent();
    let mut source = Pattern::new(1 << 20, 1_460);
    s.transmit(&mut source, 2);
    s.expect(&["P. 1:1461(1460) ack 1", "P. 1461:2921(1460) ack 1"]);
    too_big(&mut s, 1, 1_040);
    s.expect(&[
        "P. 1:1001(1000) ack 1",
        "P. 1001:1461(460) ack 1",
        "P. 1461:2461(1000) ack 1",
        "P. 2461:2921(460) ack 1",
    ]);
    s.transmit(&mut source, 1);
    s.expect(&["P. 2921:3921(1000) ack 1"]);
    s.peer(". 1 ack 3921 win 64000");
    assert!(s.node.tcp.all_acked(s.id()));
    assert_eq!(s.node.read(Counter::TcpTimeouts), 0);
}

/// RFC 1191 s6.4: each oversized segment of a flight draws a report, and the flight is
/// retransmitted once.
#[test]
fn reports_about_one_flight_retransmit_it_once() {
    let mut s = Script::with_options(config());
    s.connect();
    s.sent();
    s.peer("S. 0 ack 1 win 64000 <mss 1460,sackOK>");
    s.sent();
    s.transmit(&mut Pattern::new(1 << 20, 1_460), 2);
    s.sent();
    too_big(&mut s, 1, 1_040);
    assert_eq!(s.sent().len(), 4);
    for seq in [1_461, 1] {
        too_big(&mut s, seq, 1_040);
        s.expect(&[]);
    }
    assert_eq!(s.node.read(Counter::TcpPathMtuLowered), 1);
}

/// A lost piece of a split unit is detected like any unit, and retransmitted alone.
#[test]
fn a_lost_piece_is_retransmitted_alone() {
    let mut s = sacking(config());
    let mut source = Pattern { next: 100, ..Pattern::new(1_460, 1_460) };
    s.transmit(&mut source, 1);
    s.sent();
    s.advance(RTT);
    s.peer(". 1 ack 101 win 64000 <nop,nop,sack 501:901>");
    s.advance(RTT);
    s.expect(&["P. 101:501(400) ack 1"]);
    s.advance(RTT);
    // Data sent after the last piece has arrived, so that piece is lost too.
    s.peer(". 1 ack 901 win 64000");
    s.expect(&["P. 901:1561(660) ack 1"]);
    s.peer(". 1 ack 1561 win 64000");
    let mut next = Pattern { next: 1_560, ..Pattern::new(1_460, 1_460) };
    s.transmit(&mut next, 1);
    s.expect(&["P. 1561:3021(1460) ack 1"]);
}

/// docs/semantics.md, Units: a SACK edge inside a unit. Only the missing part is retransmitted.
#[test]
fn only_the_unsacked_part_of_a_unit_is_retransmitted() {
    let mut s = sacking(config());
    let mut source = Pattern { next: 100, ..Pattern::new(4 * 1_000, 1_000) };
    s.transmit(&mut source, 4);
    s.sent();
    s.advance(RTT);
    s.peer(". 1 ack 101 win 64000 <nop,nop,sack 1501:4101>");
    s.expect(&["P. 101:1101(1000) ack 1", "P. 1101:1501(400) ack 1"]);
    s.peer(". 1 ack 4101 win 64000");
    let mut next = Pattern { next: 4_100, ..Pattern::new(1_000, 1_000) };
    s.transmit(&mut next, 1);
    s.expect(&["P. 4101:5101(1000) ack 1"]);
}

/// docs/semantics.md, Units: an ACK edge inside a unit.
#[test]
fn only_the_unacknowledged_part_of_a_unit_is_retransmitted() {
    let mut s = plain(config());
    let mut source = Pattern { next: 100, ..Pattern::new(2_000, 1_000) };
    s.transmit(&mut source, 1);
    s.sent();
    s.advance(RTT);
    s.peer(". 1 ack 501 win 64000");
    assert_eq!(s.node.tcp.acked_bytes(s.id()), 500);
    s.advance(RTO + RTT);
    s.expect(&["P. 501:1101(600) ack 1"]);
    s.peer(". 1 ack 1101 win 64000");
    s.transmit(&mut source, 1);
    s.expect(&["P. 1101:2101(1000) ack 1"]);
}

/// The peer accepts only the front of a retransmission: the rest follows at once, without another
/// timeout.
#[test]
fn the_rest_of_a_partly_accepted_retransmission_follows_at_once() {
    let mut s = plain(config());
    let mut source = Pattern { next: 100, ..Pattern::new(1_000, 1_000) };
    s.transmit(&mut source, 1);
    s.sent();
    s.advance(RTO + RTT);
    s.expect(&["P. 101:1101(1000) ack 1"]);
    s.peer(". 1 ack 601 win 64000");
    s.expect(&["P. 601:1101(500) ack 1"]);
}

/// docs/semantics.md, Units: a receive window smaller than a unit. RFC 9293 s3.8.6.2.1: a part is
/// sent, since waiting would block the connection. RFC 7323 s2.4.
#[test]
fn a_unit_larger_than_the_window_is_sent_in_parts() {
    for sack in [false, true] {
        let mut s = if sack { sacking(config()) } else { plain(config()) };
        s.peer("P. 1:2(1) ack 101 win 600");
        s.read();
        s.sent();
        let mut source = Pattern { next: 100, ..Pattern::new(2_460, 1_460) };
        s.transmit(&mut source, 32);
        s.expect(&["P. 101:701(600) ack 2"]);
        s.peer(". 2 ack 701 win 600");
        s.expect(&["P. 701:1301(600) ack 2"]);
        // The part is lost, and detected as lost alone.
        s.advance(RTO + RTT);
        s.expect(&["P. 701:1301(600) ack 2"]);
        s.peer(". 2 ack 1301 win 5000");
        s.expect(&["P. 1301:1561(260) ack 2"]);
        s.transmit(&mut source, 32);
        s.expect(&["P. 1561:2561(1000) ack 2"]);
    }
}

/// RFC 9293 s3.8.6.1; docs/semantics.md, Units: the one-byte probe.
#[test]
fn a_closed_window_is_probed_with_one_byte_and_the_unit_is_sent_whole_later() {
    let mut s = sacking(config());
    s.peer("P. 1:2(1) ack 101 win 0");
    s.read();
    s.sent();
    let mut source = Pattern { next: 100, ..Pattern::new(2_000, 1_000) };
    assert_eq!(s.transmit(&mut source, 32).blocked, Blocked::Window);
    for wait in [1, 2, 4] {
        s.advance(RTO.times(wait) + RTT);
        s.expect(&["P. 101:102(1) ack 2"]);
        s.peer(". 2 ack 101 win 0");
    }
    s.peer(". 2 ack 101 win 5000");
    s.expect(&["P. 101:1101(1000) ack 2"]);
    s.transmit(&mut source, 32);
    s.expect(&["P. 1101:2101(1000) ack 2"]);
    assert_eq!((s.node.read(Counter::TcpWindowProbes), s.node.read(Counter::TcpTimeouts)), (3, 0));
}

/// The peer accepts the byte: the rest of the unit follows, and the next unit is whole.
#[test]
fn after_an_accepted_probe_the_rest_of_its_unit_is_sent() {
    let mut s = sacking(config());
    s.peer("P. 1:2(1) ack 101 win 0");
    s.read();
    s.sent();
    let mut source = Pattern { next: 100, ..Pattern::new(2_000, 1_000) };
    s.transmit(&mut source, 32);
    s.advance(RTO + RTT);
    s.expect(&["P. 101:102(1) ack 2"]);
    s.peer(". 2 ack 102 win 5000");
    s.expect(&["P. 102:1101(999) ack 2"]);
    s.transmit(&mut source, 32);
    s.expect(&["P. 1101:2101(1000) ack 2"]);
}

/// RFC 9293 s3.8.6.1: units in flight when the window closed are sent whole when it opens. Their
/// loss is not congestion. RFC 7323 s2.4.
#[test]
fn units_dropped_by_a_closing_window_are_retransmitted_when_it_opens() {
    let mut s = sacking(config());
    let mut source = Pattern { next: 100, ..Pattern::new(3_000, 1_000) };
    s.transmit(&mut source, 3);
    s.sent();
    s.advance(RTT);
    s.peer(". 1 ack 1101 win 0");
    s.advance(RTO + RTT);
    s.expect(&["P. 1101:1102(1) ack 1"]);
    s.peer(". 1 ack 1101 win 8000");
    s.expect(&["P. 1101:2101(1000) ack 1", "P. 2101:3101(1000) ack 1"]);
    assert_eq!(s.node.read(Counter::TcpTimeouts), 0);
}

/// RFC 4821 s7.7: full segments are lost repeatedly, and no ICMP message explains it. The segment
/// size is halved: the unit is sent in pieces, and later units are small. RFC 7323 s5.7;
/// RFC 4821 s4, s7.1 and s7.8.
#[test]
fn a_black_hole_lowers_the_segment_size() {
    let mut s = plain(config());
    let mut source = Pattern { next: 100, ..Pattern::new(1 << 20, 1_460) };
    s.transmit(&mut source, 1);
    s.sent();
    for wait in [1, 2] {
        s.advance(RTO.times(wait) + RTT);
        s.expect(&["P. 101:1561(1460) ack 1"]);
    }
    s.advance(RTO.times(4) + RTT);
    s.expect(&["P. 101:811(710) ack 1"]);
    s.peer(". 1 ack 811 win 64000");
    s.expect(&["P. 811:1521(710) ack 1", "P. 1521:1561(40) ack 1"]);
    s.peer(". 1 ack 1561 win 64000");
    s.transmit(&mut source, 1);
    s.expect(&["P. 1561:2271(710) ack 1"]);
    assert_eq!(s.node.read(Counter::TcpPmtuBlackHoles), 1);
    // One second later the old size is tried again, in case it was an outage.
    s.peer(". 1 ack 2271 win 64000");
    s.advance(Nanos::from_millis(1_100));
    s.transmit(&mut source, 1);
    s.expect(&["P. 2271:3731(1460) ack 1"]);
    // It was not an outage. While the old size is on trial, one timeout is enough.
    s.advance(RTO + RTT);
    s.expect(&["P. 2271:3731(1460) ack 1"]);
    s.advance(RTO.times(2) + RTT);
    s.expect(&["P. 2271:2981(710) ack 1"]);
}

/// RFC 4821 s7.7: each further timeout halves the size, but not below what every path takes.
#[test]
fn a_black_hole_lowers_the_size_down_to_a_minimum() {
    let mut s = plain(TcpConfig { user_timeout: Nanos::from_secs(3_600), ..config() });
    s.transmit(&mut Pattern { next: 100, ..Pattern::new(1_460, 1_460) }, 1);
    s.sent();
    let mut sizes = vec![s.node.tcp.emss(s.id())];
    for wait in 0..8 {
        s.advance(RTO.times(1 << wait) + RTT);
        s.sent();
        sizes.push(s.node.tcp.emss(s.id()));
    }
    sizes.dedup();
    assert_eq!(sizes[..2], [1_460, 710]);
    assert_eq!(sizes.iter().min(), Some(&536), "576 octets less the headers");
}

/// RFC 4821 s7.7: losses of small units do not indicate a black hole.
#[test]
fn losses_of_small_units_do_not_indicate_a_black_hole() {
    let mut s = plain(config());
    s.transmit(&mut Pattern { next: 100, ..Pattern::new(300, 300) }, 1);
    s.sent();
    for wait in [1, 2, 4, 8] {
        s.advance(RTO.times(wait) + RTT);
        s.expect(&["P. 101:401(300) ack 1"]);
    }
    assert_eq!(s.node.tcp.emss(s.id()), 1_460);
}

/// Without a free node for the rest of a unit, its front is sent like a window probe, so that the
/// connection makes progress.
#[test]
fn a_unit_that_cannot_be_split_makes_progress() {
    let scarce = TcpConfig { retained_units_reserve: 0, retained_units_shared: 1, ..config() };
    let mut s = plain(scarce);
    s.peer("P. 1:2(1) ack 101 win 600");
    s.read();
    s.sent();
    let mut source = Pattern { next: 100, ..Pattern::new(1_460, 1_460) };
    s.transmit(&mut source, 1);
    s.expect(&["P. 101:701(600) ack 2"]);
    s.peer(". 2 ack 701 win 600");
    s.expect(&["P. 701:1301(600) ack 2"]);
    s.advance(RTO + RTT);
    s.expect(&["P. 701:1301(600) ack 2"]);
    s.peer(". 2 ack 1301 win 600");
    s.expect(&["P. 1301:1561(260) ack 2"]);
    s.peer(". 2 ack 1561 win 600");
    assert!(s.node.tcp.all_acked(s.id()));
    s.advance(Nanos::from_secs(1));
    s.expect(&[]);
}
