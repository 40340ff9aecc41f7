//! Selective acknowledgements sent by the receiver.

use crate::common;

use common::node::addr;
use common::pattern::Pattern;
use common::script::Script;
use ironwarp_stats::Counter;
use ironwarp_tcp::{TcpConfig, Transport};

fn config() -> TcpConfig {
    TcpConfig { timestamps: false, ecn: false, ..TcpConfig::default() }
}

fn script() -> Script {
    Script::accepted_with(config(), "S 0 win 65535 <mss 1460,sackOK>", ". 1 ack 1 win 64000")
}

fn stamped() -> Script {
    Script::accepted_with(
        TcpConfig { timestamps: true, ..config() },
        "S 0 win 65535 <mss 1460,sackOK,TS val 0 ecr 0>",
        ". 1 ack 1 win 64000 <TS val 0 ecr 0>",
    )
}

/// RFC 2018 s2: SACK is used only if both SYNs permit it.
/// RFC 2018 s4; RFC 8985 s5.1.
#[test]
fn sack_is_negotiated_by_both_syns() {
    let mut s = Script::with_options(config());
    s.connect();
    s.expect(&["S 0 <mss 1460,sackOK,ws 4>"]);
    let mut s = Script::with_options(config());
    s.node.tcp.listen(addr(1, 4_420)).expect("room");
    s.peer("S 0 win 65535 <mss 1460>");
    s.expect(&["S. 0 ack 1 <mss 1460>"]);
    s.peer(". 1 ack 1 win 64000");
    s.peer("P. 11:21(10) ack 1 win 64000");
    s.expect(&[". 1 ack 1"]);
}

/// RFC 2018 s4: the first block contains the segment that triggered the ACK; the others are the
/// most recent ones, repeated.
#[test]
fn the_most_recent_block_is_first_and_the_others_are_repeated() {
    let mut s = script();
    s.peer("P. 11:21(10) ack 1 win 64000");
    s.expect(&[". 1 ack 1 <sack 11:21>"]);
    s.peer("P. 41:51(10) ack 1 win 64000");
    s.expect(&[". 1 ack 1 <sack 41:51 11:21>"]);
    s.peer("P. 61:71(10) ack 1 win 64000");
    s.expect(&[". 1 ack 1 <sack 61:71 41:51 11:21>"]);
    s.peer("P. 81:91(10) ack 1 win 64000");
    s.expect(&[". 1 ack 1 <sack 81:91 61:71 41:51 11:21>"]);
    s.peer("P. 101:111(10) ack 1 win 64000");
    s.expect(&[". 1 ack 1 <sack 101:111 81:91 61:71 41:51>"]);
    s.peer("P. 21:31(10) ack 1 win 64000");
    // 11:21 is no longer in the list; a block that touches it is reported as far as the list knows.
    s.expect(&[". 1 ack 1 <sack 21:31 101:111 81:91 61:71>"]);
    // The gap is filled: everything before 31 is acknowledged.
    s.peer("P. 1:11(10) ack 1 win 64000");
    s.expect(&[". 1 ack 31 <sack 101:111 81:91 61:71>"]);
}

/// RFC 2018 s4: also in a burst, every ACK reports the segment that triggered it.
#[test]
fn each_out_of_order_segment_of_a_burst_is_reported_in_its_own_ack() {
    let mut s = script();
    for at in [11, 31, 51, 71, 91] {
        s.peer(&format!("P. {at}:{}(10) ack 1 win 64000", at + 10));
    }
    let first = |line: &String| line.split("sack ").nth(1)?.split([' ', '>']).next().map(str::to_string);
    let firsts: Vec<String> = s.sent().iter().filter_map(first).collect();
    assert_eq!(firsts, ["11:21", "31:41", "51:61", "71:81", "91:101"]);
}

/// RFC 2018 s4: adjacent blocks are merged.
#[test]
fn adjacent_blocks_are_merged() {
    let mut s = script();
    s.peer("P. 11:21(10) ack 1 win 64000");
    s.peer("P. 31:41(10) ack 1 win 64000");
    s.sent();
    s.peer("P. 21:31(10) ack 1 win 64000");
    s.expect(&[". 1 ack 1 <sack 11:41>"]);
}

/// RFC 7323 s3.2 and RFC 2018 s3: timestamps leave room for three blocks.
/// RFC 2018 s4.
#[test]
fn timestamps_leave_room_for_three_blocks() {
    let mut s = stamped();
    for at in 1..=4 {
        s.peer(&format!("P. {}:{}(10) ack 1 win 64000 <TS val 1 ecr 0>", at * 20 + 1, at * 20 + 11));
    }
    let last = s.sent().pop().expect("an ACK");
    assert!(last.ends_with("<TS val 0 ecr 0,sack 81:91 61:71 41:51>"), "{last}");
}

/// docs/semantics.md, Units: SACK blocks never reduce the payload.
#[test]
fn payload_keeps_its_size_while_blocks_are_pending() {
    let mut s = stamped();
    s.peer("P. 11:21(10) ack 1 win 64000 <TS val 1 ecr 0>");
    s.transmit(&mut Pattern::new(1_448, 1_448), 1);
    s.expect(&[". 1 ack 1 <sack 11:21>", "P. 1:1449(1448) ack 1"]);
}

/// RFC 2883 s4.1: a segment of old bytes is reported as a duplicate, once.
/// RFC 2883 s4.
#[test]
fn a_duplicate_below_the_acknowledgement_is_reported_once() {
    let mut s = script();
    s.peer("P. 1:101(100) ack 1 win 64000");
    s.sent();
    s.sent();
    s.peer("P. 1:101(100) ack 1 win 64000");
    s.expect(&[". 1 ack 101 <sack 1:101>"]);
    s.peer("P. 201:301(100) ack 1 win 64000");
    s.expect(&[". 1 ack 101 <sack 201:301>"]);
}

/// RFC 2883 s4.1.2 and s4.2: a duplicate beyond a gap precedes the block that contains it; a
/// partial duplicate is reported as such. RFC 2883 s4.
#[test]
fn a_duplicate_beyond_a_gap_precedes_its_block() {
    let mut s = script();
    s.peer("P. 101:301(200) ack 1 win 64000");
    s.sent();
    s.peer("P. 201:301(100) ack 1 win 64000");
    s.expect(&[". 1 ack 1 <sack 201:301 101:301>"]);
    s.peer("P. 251:401(150) ack 1 win 64000");
    s.expect(&[". 1 ack 1 <sack 251:301 101:401>"]);
    s.peer("P. 1:51(50) ack 1 win 64000");
    s.sent();
    s.sent();
    s.peer("P. 1:61(60) ack 1 win 64000");
    s.expect(&[". 1 ack 61 <sack 1:51 101:401>"]);
}

/// docs/semantics.md, Window: a byte that was reported as held is never dropped, however short
/// memory becomes.
#[test]
fn bytes_reported_as_held_stay_held() {
    let limits = TcpConfig { rx_frames_reserve: 1, rx_frames_shared: 4, connections_max: 2, ..config() };
    let mut s = Script::accepted_with(limits, "S 0 win 65535 <mss 1460,sackOK>", ". 1 ack 1 win 64000");
    for at in [2_001, 4_001, 6_001, 8_001] {
        s.peer(&format!("P. {at}:{}(1000) ack 1 win 64000", at + 1_000));
    }
    assert_eq!(s.node.read(Counter::TcpDropOutOfOrderFull), 2);
    s.sent();
    // In-order bytes are accepted, and the reported bytes follow them.
    s.peer("P. 1:1001(1000) ack 1 win 64000");
    s.peer("P. 1001:2001(1000) ack 1 win 64000");
    s.sent();
    assert_eq!(s.read(), 3_000);
    s.peer("P. 3001:4001(1000) ack 1 win 64000");
    assert_eq!(s.read(), 5_000);
}
