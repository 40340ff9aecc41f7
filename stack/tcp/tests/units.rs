//! Units and what cuts them (semantics.md, Units): a path's MTU, an ACK and a SACK edge inside a unit, a window smaller
//! than a unit, the probe of one byte. Each time what is left goes by itself, and the next unit is whole again.

mod common;

use common::pattern::Pattern;
use common::script::Script;
use common::sender::{RTO, RTT, config, plain, sacking};
use ironwarp_net::{IcmpError, IcmpErrorKind};
use ironwarp_stats::Counter;
use ironwarp_tcp::{Blocked, TcpConfig};
use ironwarp_types::{Nanos, Seq};

/// A router says that the segment numbered `seq` was too big.
fn too_big(s: &mut Script, seq: u32, mtu_bytes: u16) {
    let flow = s.node.tcp.flow(s.id()).expect("a connection");
    let seq = Seq(s.our_numbers.iss.expect("a SYN")).plus(seq);
    let hash = s.node.net.hasher().hash(&flow);
    let error = IcmpError { flow, hash, seq, kind: IcmpErrorKind::TooBig { mtu_bytes } };
    let event = s.node.tcp.on_icmp_error(s.node.now, &error, &mut s.node.wire);
    s.node.events.extend(event);
    s.node.check();
}

/// RFC 1191: what was too big goes again in pieces, at once, and the congestion window stays. Later units are smaller.
#[test]
fn a_path_mtu_cuts_what_is_on_its_way() {
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

/// A piece of a cut unit that is lost is found lost like any unit, and sent alone.
#[test]
fn a_lost_piece_is_sent_again_alone() {
    let mut s = sacking(config());
    let mut source = Pattern { next: 100, ..Pattern::new(1_460, 1_460) };
    s.transmit(&mut source, 1);
    s.sent();
    s.advance(RTT);
    s.peer(". 1 ack 101 win 64000 <nop,nop,sack 501:901>");
    s.advance(RTT);
    s.expect(&["P. 101:501(400) ack 1"]);
    s.advance(RTT);
    // What was sent after the last piece has arrived, so that one is lost too.
    s.peer(". 1 ack 901 win 64000");
    s.expect(&["P. 901:1561(660) ack 1"]);
    s.peer(". 1 ack 1561 win 64000");
    let mut next = Pattern { next: 1_560, ..Pattern::new(1_460, 1_460) };
    s.transmit(&mut next, 1);
    s.expect(&["P. 1561:3021(1460) ack 1"]);
}

/// semantics.md, Units: a SACK edge inside a unit. Only what the peer lacks goes again.
#[test]
fn a_sack_edge_inside_a_unit_leaves_its_rest() {
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

/// semantics.md, Units: an ACK edge inside a unit.
#[test]
fn an_ack_inside_a_unit_sends_only_its_rest_again() {
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

/// A retransmission of which the peer takes only the front: the rest follows at once, without another timeout.
#[test]
fn the_rest_of_a_retransmission_follows_what_was_taken() {
    let mut s = plain(config());
    let mut source = Pattern { next: 100, ..Pattern::new(1_000, 1_000) };
    s.transmit(&mut source, 1);
    s.sent();
    s.advance(RTO + RTT);
    s.expect(&["P. 101:1101(1000) ack 1"]);
    s.peer(". 1 ack 601 win 64000");
    s.expect(&["P. 601:1101(500) ack 1"]);
}

/// semantics.md, Units: a receive window smaller than a unit. RFC 9293 s3.8.6.2.1: a part goes because nothing else
/// would ever move.
#[test]
fn a_unit_larger_than_the_window_goes_in_parts() {
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
        // The part is lost, and found lost by itself.
        s.advance(RTO + RTT);
        s.expect(&["P. 701:1301(600) ack 2"]);
        s.peer(". 2 ack 1301 win 5000");
        s.expect(&["P. 1301:1561(260) ack 2"]);
        s.transmit(&mut source, 32);
        s.expect(&["P. 1561:2561(1000) ack 2"]);
    }
}

/// RFC 9293 s3.8.6.1, semantics.md, Units: the probe of one byte.
#[test]
fn a_closed_window_is_probed_with_one_byte_and_the_unit_goes_whole_when_it_opens() {
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

/// The same when the peer takes the byte: what is left of the unit goes, and the next is whole.
#[test]
fn a_probe_that_is_taken_leaves_the_rest_of_its_unit() {
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

/// RFC 9293 s3.8.6.1: units that were on their way when the window closed go out whole when it opens; that they did not
/// arrive is no congestion.
#[test]
fn what_a_closing_window_turned_away_goes_again_when_it_opens() {
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

/// RFC 4821 s7.7: full segments that vanish again and again while nothing says why. Half as much is tried, in pieces of
/// the same unit, and later units are as small.
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
    // Was it an outage? A second later the old size is tried again.
    s.peer(". 1 ack 2271 win 64000");
    s.advance(Nanos::from_millis(1_100));
    s.transmit(&mut source, 1);
    s.expect(&["P. 2271:3731(1460) ack 1"]);
    // It was none. What is on trial needs no third timeout.
    s.advance(RTO + RTT);
    s.expect(&["P. 2271:3731(1460) ack 1"]);
    s.advance(RTO.times(2) + RTT);
    s.expect(&["P. 2271:2981(710) ack 1"]);
}

/// RFC 4821 s7.7: small units that vanish say nothing of the path's size.
#[test]
fn small_units_that_vanish_are_no_black_hole() {
    let mut s = plain(config());
    s.transmit(&mut Pattern { next: 100, ..Pattern::new(300, 300) }, 1);
    s.sent();
    for wait in [1, 2, 4, 8] {
        s.advance(RTO.times(wait) + RTT);
        s.expect(&["P. 101:401(300) ack 1"]);
    }
    assert_eq!(s.node.tcp.emss(s.id()), 1_460);
}

/// Without a node for the rest of a unit its front goes as a probe would, so that nothing stands still.
#[test]
fn a_unit_that_cannot_be_cut_moves_all_the_same() {
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
