//! Checks of the IPv4 header: RFC 791 s3.1, RFC 1122 s3.2.1.

use ironwarp_port::{Checksum, RxMeta};
use ironwarp_stats::Counter;

use super::{assert_dropped, changed};
use crate::testing::{Bench, tcp_frame, with_ip, with_options};

fn tcp_with(at: usize, bytes: &[u8]) -> Vec<u8> {
    with_ip(tcp_frame(b"data"), at, bytes)
}

/// RFC 1122 s3.2.1.1.
#[test]
fn another_version_is_dropped_before_other_checks() {
    // RFC 1122 s3.2.1.1.
    assert_dropped(&changed(14, &[0x65]), Counter::NetDropIpVersion);
    assert_dropped(&changed(14, &[0x01]), Counter::NetDropIpVersion);
}

#[test]
fn invalid_header_lengths_are_dropped() {
    assert_dropped(&changed(14, &[0x44]), Counter::NetDropIpHeader);
    let cut = &changed(14, &[0x4f])[..14 + 24];
    assert_dropped(cut, Counter::NetDropIpHeader);
    assert_dropped(&tcp_frame(b"")[..14 + 19], Counter::NetDropShort);
}

#[test]
fn a_total_length_beyond_the_frame_or_within_the_header_is_dropped() {
    assert_dropped(&tcp_with(16, &[0xff, 0xff]), Counter::NetDropIpLength);
    assert_dropped(&tcp_with(16, &[0, 45]), Counter::NetDropIpLength);
    assert_dropped(&tcp_with(16, &[0, 19]), Counter::NetDropIpLength);
}

/// RFC 1122 s3.2.1.2.
#[test]
fn a_wrong_header_checksum_is_dropped() {
    // RFC 1122 s3.2.1.2.
    assert_dropped(&changed(24, &[0x12, 0x34]), Counter::NetDropIpChecksum);
}

#[test]
fn the_verdict_of_the_device_on_the_header_checksum_is_used() {
    let (mut bench, wrong) = (Bench::new(), changed(24, &[0x12, 0x34]));
    let verdict = |ip_checksum| RxMeta { ip_checksum, ..RxMeta::default() };
    assert!(bench.receive_with(&wrong, verdict(Checksum::Good)).is_some());
    assert!(bench.receive_with(&wrong, verdict(Checksum::Unknown)).is_none());
    assert!(bench.receive_with(&tcp_frame(b""), verdict(Checksum::Bad)).is_none());
    assert_eq!(bench.counted(), [(Counter::NetDropIpChecksum, 2)]);
}

/// RFC 9293 (MUST-57); RFC 1122 s3.2.1.3 and s3.3.6.
#[test]
fn a_packet_to_another_address_or_a_broadcast_is_dropped() {
    assert_dropped(&tcp_with(30, &[10, 0, 0, 7]), Counter::NetDropIpNotOurs);
    assert_dropped(&tcp_with(30, &[10, 0, 0, 255]), Counter::NetDropIpNotOurs);
    assert_dropped(&tcp_with(30, &[224, 0, 0, 1]), Counter::NetDropIpNotOurs);
}

/// RFC 1122 s2.4 and s3.3.6.
#[test]
fn a_unicast_packet_in_a_broadcast_frame_is_dropped() {
    // RFC 1122 s3.3.6.
    assert_dropped(&changed(0, &[0xff; 6]), Counter::NetDropIpBroadcastFrame);
}

/// RFC 9293 (MUST-63).
#[test]
fn a_packet_from_an_invalid_source_is_dropped() {
    // RFC 1122 s3.2.1.3: this network, loopback, multicast, all forms of broadcast, and a local
    // address.
    let invalid: [[u8; 4]; 8] = [
        [0, 0, 0, 0],
        [0, 1, 2, 3],
        [127, 0, 0, 1],
        [224, 0, 0, 5],
        [255, 255, 255, 255],
        [10, 0, 0, 255],
        [10, 0, 0, 0],
        [10, 0, 0, 1],
    ];
    for source in invalid {
        assert_dropped(&tcp_with(26, &source), Counter::NetDropIpSource);
    }
}

#[test]
fn first_middle_and_last_fragments_are_dropped() {
    assert_dropped(&tcp_with(20, &[0x20, 0x00]), Counter::NetDropIpFragment);
    assert_dropped(&tcp_with(20, &[0x20, 0x10]), Counter::NetDropIpFragment);
    assert_dropped(&tcp_with(20, &[0x00, 0x10]), Counter::NetDropIpFragment);
}

/// RFC 1122 s3.2.1.7.
#[test]
fn the_time_to_live_of_a_received_packet_is_not_checked() {
    // RFC 1122 s3.2.1.7.
    for ttl in [0, 1, 255] {
        assert!(Bench::new().receive(&tcp_with(22, &[ttl])).is_some());
    }
}

#[test]
fn another_protocol_is_dropped() {
    assert_dropped(&tcp_with(23, &[17]), Counter::NetDropIpProtocol);
}

/// RFC 9293 (MUST-50); RFC 1122 s3.2.1.8.
#[test]
fn unknown_options_are_skipped() {
    // RFC 1122 s3.2.1.8.
    let frame = with_options(tcp_frame(b"data"), &[1, 0x94, 4, 0, 0, 0x44, 8, 5, 0, 1, 2, 3, 4]);
    let segment = Bench::new().receive(&frame).expect("a segment");
    assert_eq!((segment.l4_offset, segment.l4_end), (50, 74));
    assert_eq!(&segment.l4()[20..], b"data");
}

#[test]
fn source_routes_and_malformed_options_are_dropped() {
    // RFC 7126 s4.3, s4.4.
    for options in
        [&[131u8, 7, 4, 1, 2, 3, 4][..], &[137, 3, 4], &[0x94, 1, 0, 0], &[0x94, 60, 0, 0], &[1, 1, 1, 0x94]]
    {
        assert_dropped(&with_options(tcp_frame(b""), options), Counter::NetDropIpOptions);
    }
}
