//! Explicit congestion notification, from the receiver's side.

use crate::common;

use common::node::addr;
use common::pattern::Pattern;
use common::script::Script;
use ironwarp_stats::Counter;
use ironwarp_tcp::{TcpConfig, Transport};
use ironwarp_types::Nanos;

fn config() -> TcpConfig {
    TcpConfig {
        timestamps: false,
        sack: false,
        rto_min: Nanos::from_millis(10),
        rto_initial: Nanos::from_millis(10),
        ..TcpConfig::default()
    }
}

fn script() -> Script {
    Script::accepted_with(config(), "SEW 0 win 65535 <mss 1460>", ". 1 ack 1 win 64000")
}

/// RFC 3168 s6.1.1: a SYN offers ECN with ECE and CWR, a SYN-ACK accepts with ECE. s6.1.5, s6.1.4:
/// only payload is ECN-capable. RFC 9293 (SHLD-8); RFC 3168 s5.2.
#[test]
fn ecn_is_negotiated_and_payload_is_ecn_capable() {
    let mut s = Script::with_options(config());
    s.connect();
    s.expect(&["SEW 0 <mss 1460,ws 4>"]);
    s.peer("S.E 0 ack 1 win 64000 <mss 1460>");
    s.expect(&[". 1 ack 1"]);
    s.transmit(&mut Pattern::new(10, 10), 1);
    s.expect(&["P. 1:11(10) ack 1 [ect0]"]);

    let mut s = Script::with_options(config());
    s.node.tcp.listen(addr(1, 4_420)).expect("room");
    s.peer("SEW 0 win 65535 <mss 1460>");
    s.expect(&["S.E 0 ack 1 <mss 1460>"]);
}

/// RFC 3168 s6.1.1: any other combination of bits declines ECN.
#[test]
fn other_bits_in_a_syn_decline_ecn() {
    for answer in ["S.", "S.W", "S.EW"] {
        let mut s = Script::with_options(config());
        s.connect();
        s.sent();
        s.peer(&format!("{answer} 0 ack 1 win 64000 <mss 1460>"));
        s.sent();
        s.transmit(&mut Pattern::new(10, 10), 1);
        s.expect(&["P. 1:11(10) ack 1"]);
    }
    for (syn, ecn) in [("S", true), ("SE", true), ("SW", true), ("SEW", false)] {
        let mut s = Script::with_options(TcpConfig { ecn, ..config() });
        s.node.tcp.listen(addr(1, 4_420)).expect("room");
        s.peer(&format!("{syn} 0 win 65535 <mss 1460>"));
        s.expect(&["S. 0 ack 1 <mss 1460>"]);
    }
}

/// RFC 3168 s6.1.1.1: a SYN may have been dropped because it asks for ECN, so its retransmission
/// does not.
#[test]
fn a_repeated_syn_does_not_offer_ecn() {
    let mut s = Script::with_options(config());
    s.connect();
    s.sent();
    s.advance(Nanos::from_millis(11));
    s.expect(&["S 0 <mss 1460,ws 4>"]);
    s.peer("S.E 0 ack 1 win 64000 <mss 1460>");
    s.sent();
    s.transmit(&mut Pattern::new(10, 10), 1);
    s.expect(&["P. 1:11(10) ack 1"]);
}

/// RFC 3168 s6.1.5: retransmissions are not ECN-capable.
#[test]
fn retransmissions_are_not_ecn_capable() {
    let mut s = script();
    s.transmit(&mut Pattern::new(10, 10), 1);
    s.expect(&["P. 1:11(10) ack 1 [ect0]"]);
    s.advance(Nanos::from_millis(11));
    s.expect(&["P. 1:11(10) ack 1"]);
}

/// RFC 3168 s6.1.6: a probe of a closed window is not ECN-capable and has no CWR, although a
/// reduction is to be reported.
#[test]
fn window_probes_are_not_ecn_capable() {
    let mut s = script();
    s.transmit(&mut Pattern::new(10, 10), 1);
    s.expect(&["P. 1:11(10) ack 1 [ect0]"]);
    // The peer echoes a mark, and closes its window.
    s.peer(".E 1 ack 11 win 0");
    s.transmit(&mut Pattern { next: 10, ..Pattern::new(10, 10) }, 1);
    s.expect(&[]);
    s.advance(Nanos::from_millis(11));
    s.expect(&["P. 11:12(1) ack 1"]);
    s.peer(". 1 ack 11 win 5000");
    s.expect(&["P.W 11:21(10) ack 1 [ect0]"]);
}

/// RFC 3168 s6.1.3: a mark is echoed in every ACK until the peer sends CWR.
/// RFC 3168 s6.1.1.
#[test]
fn a_mark_is_echoed_until_the_peer_sends_cwr() {
    let mut s = script();
    s.peer("P. 1:11(10) ack 1 win 64000 [ce]");
    s.sent();
    s.expect(&[".E 1 ack 11"]);
    s.peer("P. 11:21(10) ack 1 win 64000 [ect0]");
    s.sent();
    s.expect(&[".E 1 ack 21"]);
    s.transmit(&mut Pattern::new(10, 10), 1);
    s.expect(&["P.E 1:11(10) ack 21 [ect0]"]);
    s.peer("P.W 21:31(10) ack 11 win 64000 [ect0]");
    s.sent();
    s.expect(&[". 11 ack 31"]);
    // The segment with CWR may be marked itself.
    s.peer("P.W 31:41(10) ack 11 win 64000 [ce]");
    s.sent();
    s.expect(&[".E 11 ack 41"]);
    assert_eq!(s.node.read(Counter::TcpRxCeMarked), 2);
}

/// RFC 3168 s6.1.5 and s6.1.6: marks on segments without payload in the window, and on connections
/// without ECN, are ignored.
#[test]
fn marks_outside_payload_in_the_window_are_ignored() {
    let mut s = script();
    s.peer(". 1 ack 1 win 64000 [ce]");
    s.peer("P. 900000:900010(10) ack 1 win 64000 [ce]");
    s.sent();
    s.peer("P. 1:11(10) ack 1 win 64000 [ect0]");
    s.sent();
    s.expect(&[". 1 ack 11"]);
    let mut s = Script::accepted_with(config(), "S 0 win 65535 <mss 1460>", ". 1 ack 1 win 64000");
    s.peer("P. 1:11(10) ack 1 win 64000 [ce]");
    s.sent();
    s.expect(&[". 1 ack 11"]);
}
