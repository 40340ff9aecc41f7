//! The IPv4 header, check by check: RFC 791 s3.1, RFC 1122 s3.2.1.

use ironwarp_port::{Checksum, RxMeta};
use ironwarp_stats::Counter;

use super::{assert_dropped, changed};
use crate::testing::{Bench, tcp_frame, with_ip, with_options};

fn tcp_with(at: usize, bytes: &[u8]) -> Vec<u8> {
    with_ip(tcp_frame(b"data"), at, bytes)
}

#[test]
fn another_version_is_dropped_whatever_else_is_wrong() {
    // RFC 1122 s3.2.1.1.
    assert_dropped(&changed(14, &[0x65]), Counter::NetDropIpVersion);
    assert_dropped(&changed(14, &[0x01]), Counter::NetDropIpVersion);
}

#[test]
fn impossible_header_lengths_are_dropped() {
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

#[test]
fn a_wrong_header_checksum_is_dropped() {
    // RFC 1122 s3.2.1.2.
    assert_dropped(&changed(24, &[0x12, 0x34]), Counter::NetDropIpChecksum);
}

#[test]
fn the_devices_verdict_on_the_header_stands_where_there_is_one() {
    let (mut bench, wrong) = (Bench::new(), changed(24, &[0x12, 0x34]));
    let says = |ip_checksum| RxMeta { ip_checksum, ..RxMeta::default() };
    assert!(bench.receive_with(&wrong, says(Checksum::Good)).is_some());
    assert!(bench.receive_with(&wrong, says(Checksum::Unknown)).is_none());
    assert!(bench.receive_with(&tcp_frame(b""), says(Checksum::Bad)).is_none());
    assert_eq!(bench.counted(), [(Counter::NetDropIpChecksum, 2)]);
}

#[test]
fn a_packet_for_another_address_is_dropped_broadcasts_too() {
    assert_dropped(&tcp_with(30, &[10, 0, 0, 7]), Counter::NetDropIpNotOurs);
    assert_dropped(&tcp_with(30, &[10, 0, 0, 255]), Counter::NetDropIpNotOurs);
    assert_dropped(&tcp_with(30, &[224, 0, 0, 1]), Counter::NetDropIpNotOurs);
}

#[test]
fn a_packet_for_us_in_a_broadcast_frame_is_dropped() {
    // RFC 1122 s3.3.6.
    assert_dropped(&changed(0, &[0xff; 6]), Counter::NetDropIpBroadcastFrame);
}

#[test]
fn an_address_that_cannot_send_is_no_source() {
    // RFC 1122 s3.2.1.3: this network, loopback, multicast, broadcast in every form; and ours.
    let impossible: [[u8; 4]; 8] = [
        [0, 0, 0, 0],
        [0, 1, 2, 3],
        [127, 0, 0, 1],
        [224, 0, 0, 5],
        [255, 255, 255, 255],
        [10, 0, 0, 255],
        [10, 0, 0, 0],
        [10, 0, 0, 1],
    ];
    for source in impossible {
        assert_dropped(&tcp_with(26, &source), Counter::NetDropIpSource);
    }
}

#[test]
fn fragments_are_dropped_first_middle_and_last() {
    assert_dropped(&tcp_with(20, &[0x20, 0x00]), Counter::NetDropIpFragment);
    assert_dropped(&tcp_with(20, &[0x20, 0x10]), Counter::NetDropIpFragment);
    assert_dropped(&tcp_with(20, &[0x00, 0x10]), Counter::NetDropIpFragment);
}

#[test]
fn an_expired_time_to_live_is_no_reason_to_drop_what_has_arrived() {
    // RFC 1122 s3.2.1.7.
    for ttl in [0, 1, 255] {
        assert!(Bench::new().receive(&tcp_with(22, &[ttl])).is_some());
    }
}

#[test]
fn another_protocol_is_dropped() {
    assert_dropped(&tcp_with(23, &[17]), Counter::NetDropIpProtocol);
}

#[test]
fn unknown_options_are_skipped_and_the_segment_behind_them_found() {
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
