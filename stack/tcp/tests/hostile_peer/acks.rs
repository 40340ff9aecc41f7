//! Acknowledgements that are valid and made to cost as much as they can.

use ironwarp_stats::Counter;
use ironwarp_tcp::{TcpConfig, Transport};
use ironwarp_types::Nanos;

use crate::common::pattern::Pattern;
use crate::common::script::Script;

const UNIT: u32 = 1_448;
const UNITS: u32 = 200;

/// A connection with `UNITS` full units in flight, whose peer has SACK and timestamps.
fn in_flight() -> Script {
    let config = TcpConfig { initial_window_segments: 255, ecn: false, ..TcpConfig::default() };
    let syn = "S 0 win 65535 <mss 1460,sackOK,TS val 0 ecr 0,ws 8>";
    let mut s = Script::accepted_with(config, syn, ". 1 ack 1 win 64000 <TS val 0 ecr 0>");
    let mut source = Pattern::new(u64::from(UNITS * UNIT), UNIT as usize);
    while source.left > 0 {
        assert!(s.transmit(&mut source, 32).units > 0);
    }
    assert_eq!(s.sent().len(), UNITS as usize);
    s
}

/// SACKs single bytes, three to an ACK, at every second byte of the first `bytes` bytes.
fn sack_every_second_byte(s: &mut Script, bytes: u32) {
    for at in (3..bytes).step_by(6) {
        let blocks: Vec<String> = (0..3).map(|n| format!("{}:{}", at + 2 * n, at + 2 * n + 1)).collect();
        s.peer(&format!(". 1 ack 1 win 64000 <TS val 1 ecr 0,sack {}>", blocks.join(" ")));
    }
}

/// CVE-2019-11478: each edge of a block inside a unit would add a node to a list that every later
/// ACK walks.
#[test]
fn blocks_of_single_bytes_do_not_cut_units_without_bound() {
    let mut s = in_flight();
    s.node.checks = false;
    sack_every_second_byte(&mut s, UNITS * UNIT);
    s.node.check();
    let units = s.node.tcp.resource_usage().tx_units as u32;
    assert!(units <= 2 * UNITS + 16, "{units} units retained of {UNITS} sent");
}

/// CVE-2019-11479: what a peer leaves between the blocks is resent in few segments, not a byte to a
/// segment.
#[test]
fn the_bytes_between_blocks_are_resent_in_few_segments() {
    let mut s = in_flight();
    s.node.checks = false;
    sack_every_second_byte(&mut s, 20 * UNIT);
    let resent = s.node.read(Counter::TcpTxRetransmits);
    assert!(resent <= u64::from(2 * UNITS + 16), "{resent} segments resent");
    s.node.check();
}

/// RFC 2018 s8: the parts of a unit that a block cut are lost together, so they leave together.
#[test]
fn lost_parts_of_a_unit_are_resent_as_one_segment() {
    let mut s = in_flight();
    s.advance(Nanos::from_millis(1));
    // The block cuts the first unit in three. Then the peer forgets it: SND.UNA stays at its start.
    s.peer(". 1 ack 1 win 64000 <TS val 1 ecr 0,sack 501:1001>");
    s.peer(". 1 ack 501 win 64000 <TS val 1 ecr 0>");
    s.sent();
    s.advance(Nanos::from_secs(1));
    s.expect(&["P. 501:1449(948) ack 1"]);
    assert_eq!(s.node.read(Counter::TcpSackReneging), 1);
}
