//! 802.1Q: a port in a VLAN receives and sends only frames of this VLAN.

use ironwarp_port::memory::MemoryConfig;
use ironwarp_stats::Counter;
use smoltcp::wire::ArpOperation;

use crate::VlanTag;
use crate::testing::{
    Bench, PEER, arp_frame, dual, echo_frame, icmpv6, icmpv6_frame, mac, tcp_frame, tcp6_frame, v4, v6,
    with_tag,
};

/// A dual-stack net in VLAN 42.
fn in_vlan() -> Bench {
    Bench::with(MemoryConfig::default(), |cfg| {
        dual(cfg);
        cfg.vlan = Some(VlanTag { id: 42, priority: 3 });
    })
}

#[test]
fn segments_of_our_vlan_are_received_with_any_priority() {
    for control in [42, 0xe000 | 42, 0x1000 | 42] {
        let mut bench = in_vlan();
        let segment = bench.receive(&with_tag(tcp_frame(b"four"), control)).expect("a segment");
        assert_eq!((segment.l4_offset, &segment.l4()[20..]), (38, &b"four"[..]));
        let segment = bench.receive(&with_tag(tcp6_frame(b"six"), control)).expect("a segment");
        assert_eq!((segment.l4_offset, &segment.l4()[20..]), (58, &b"six"[..]));
    }
}

#[test]
fn untagged_frames_and_other_vlans_are_dropped_under_their_counters() {
    let dropped = |frame: Vec<u8>| {
        let mut bench = in_vlan();
        assert!(bench.receive(&frame).is_none());
        bench.counted()
    };
    assert_eq!(dropped(with_tag(tcp_frame(b""), 43)), [(Counter::NetDropVlan, 1)]);
    assert_eq!(dropped(tcp_frame(b"")), [(Counter::NetDropUntagged, 1)]);
    // 802.1Q s6.9: VLAN 0 is no VLAN.
    assert_eq!(dropped(with_tag(tcp_frame(b""), 0x6000)), [(Counter::NetDropUntagged, 1)]);
    let twice = with_tag(with_tag(tcp_frame(b""), 7), 42);
    assert_eq!(dropped(twice), [(Counter::NetDropVlan, 1)]);
}

/// 802.1Q s6.9: a tag of VLAN 0 contains only a priority.
#[test]
fn a_port_without_a_vlan_accepts_only_priority_tags() {
    let mut bench = Bench::dual();
    assert!(bench.receive(&with_tag(tcp_frame(b""), 0xa000)).is_some());
    assert!(bench.receive(&with_tag(tcp6_frame(b""), 0xa000)).is_some());
    assert!(bench.receive(&with_tag(tcp_frame(b""), 42)).is_none());
    bench.receive(&with_tag(echo_frame(b"1"), 0));
    assert_eq!(bench.sent()[0][12..14], [0x08, 0x00], "the reply has no tag");
}

#[test]
fn all_sent_frames_have_the_tag() {
    let mut bench = in_vlan();
    bench.receive(&with_tag(arp_frame(ArpOperation::Request, PEER, v4(1)), 42));
    bench.receive(&with_tag(echo_frame(b"1"), 42));
    bench.receive(&with_tag(icmpv6_frame(mac(1), (v6(2), v6(1)), 64, &icmpv6(128, 0, 0, b"1")), 42));
    bench.net.route(bench.now, v6(2).into(), &mut bench.wire);
    bench.net.route(bench.now, v4(9).into(), &mut bench.wire);
    let sent = bench.sent();
    let types: Vec<&[u8]> = sent.iter().map(|frame| &frame[12..18]).collect();
    let tagged = |a, b| [0x81, 0x00, 0x60, 42, a, b];
    let expected = [tagged(8, 6), tagged(8, 0), tagged(0x86, 0xdd), tagged(0x86, 0xdd), tagged(8, 6)];
    assert_eq!(types, expected.iter().map(|tag| &tag[..]).collect::<Vec<_>>());
}
