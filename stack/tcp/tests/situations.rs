//! Situations in which the TCP scripts of packetdrill put Linux, where an RFC decides the outcome
//! and no other test of this crate has the situation. `docs/packetdrill.md` has the table of all of
//! them.

use crate::common;

use common::script::Script;
use common::sender::{RTT, config, sacking, send};
use ironwarp_stats::Counter;
use ironwarp_types::Nanos;

/// A quarter of the round trip and one tick of the timer wheel (RFC 8985 s6.2, step 4).
const REORDERING_WINDOW: Nanos = Nanos::from_micros(270);

/// The number of the unit of 100 bytes that a sent segment carries.
fn unit_of(line: &str) -> u32 {
    let from = line.strip_prefix("P. ").and_then(|rest| rest.split(':').next());
    from.and_then(|from| from.parse::<u32>().ok()).unwrap_or_else(|| panic!("not a unit: {line}")) / 100
}

/// SACKs one of nine units after another. Asserts that no unit is resent after its SACK, and none
/// twice.
fn sack_one_by_one(order: &[u32]) -> (Script, Vec<u32>) {
    let mut s = sacking(config());
    send(&mut s, 100, 9);
    s.advance(RTT);
    let mut resent = Vec::new();
    for at in 0..=order.len() {
        match order.get(at) {
            Some(unit) => {
                let from = 100 * unit + 1;
                s.peer(&format!(". 1 ack 101 win 64000 <nop,nop,sack {from}:{}>", from + 100));
            }
            // What has been reordered gets its time.
            None => s.advance(REORDERING_WINDOW),
        }
        let sacked = &order[..(at + 1).min(order.len())];
        for unit in s.sent().iter().map(|line| unit_of(line)) {
            assert!(!sacked.contains(&unit), "unit {unit} was received");
            assert!(!resent.contains(&unit), "unit {unit} is resent twice");
            resent.push(unit);
        }
    }
    (s, resent)
}

/// RFC 6675 s5, RFC 8985 s6.2: blocks that arrive in any order are merged, and what lies between
/// them is resent once.
#[test]
fn sacks_in_any_order_leave_only_the_holes_to_resend() {
    for order in [&[2, 6, 8, 3, 9][..], &[7, 3, 4, 8, 9], &[7, 5, 6, 8, 9]] {
        let (mut s, resent) = sack_one_by_one(order);
        let holes: Vec<u32> = (1..9).filter(|unit| !order.contains(unit)).collect();
        assert!(holes.iter().all(|hole| resent.contains(hole)), "{resent:?} of {holes:?}");
        s.peer(". 1 ack 1001 win 64000");
        assert!(s.node.tcp.all_acked(s.id()), "{order:?}");
        assert_eq!(s.node.read(Counter::TcpTimeouts), 0, "{order:?}");
    }
}

/// RFC 9293 s3.10.7.4, fifth step: an acknowledgement below SND.UNA is ignored, in recovery too.
/// RFC 6675 s4.
#[test]
fn an_old_acknowledgement_in_recovery_sends_nothing() {
    let mut s = sacking(config());
    send(&mut s, 100, 4);
    s.advance(RTT);
    s.peer(". 1 ack 101 win 64000 <nop,nop,sack 201:501>");
    s.expect(&["P. 101:201(100) ack 1"]);
    s.peer(". 1 ack 1 win 64000");
    s.expect(&[]);
    s.peer(". 1 ack 501 win 64000");
    s.expect(&[]);
    assert!(s.node.tcp.all_acked(s.id()));
}
