//! ICMP errors about segments of ours: RFC 792, RFC 1122 s3.2.2 and s4.2.3.9, RFC 1191.

use ironwarp_port::RxMeta;
use ironwarp_port::memory::MemoryConfig;
use ironwarp_stats::Counter;
use ironwarp_types::Nanos;

use super::{assert_dropped, pass_to_next_deadline};
use crate::testing::{Bench, OURS, PEER, icmp_error_frame, quoted_packet};
use crate::{IcmpError, IcmpErrorKind, Received};

/// The report of a new net for an error about `quoted`.
fn reported(kind: u8, code: u8, word: u32, quoted: &[u8]) -> Option<IcmpError> {
    report(&mut Bench::new(), &icmp_error_frame(kind, code, word, quoted))
}

fn report(bench: &mut Bench, frame: &[u8]) -> Option<IcmpError> {
    match bench.receive_any(frame, RxMeta::default()) {
        Some(Received::IcmpError(error)) => Some(error),
        _ => None,
    }
}

#[test]
fn a_report_has_the_flow_and_the_sequence_number_of_the_quote() {
    let mut bench = Bench::new();
    let error = report(&mut bench, &icmp_error_frame(3, 1, 0, &quoted_packet())).expect("a report");
    assert_eq!(
        (error.flow.local, error.flow.remote),
        ((OURS.addr, 4_420).into(), (PEER.addr, 50_000).into())
    );
    assert_eq!((error.quoted, error.hash), (77, bench.net.hasher().hash(&error.flow)));
    assert!(bench.counted().is_empty(), "TCP counts reports");
}

/// RFC 1122 s4.2.3.9: which codes are soft, and which are hard.
/// RFC 1122 s3.2.2.1, s3.2.2.4 and s3.2.2.5.
#[test]
fn each_code_is_soft_or_hard() {
    for code in [0, 1, 5, 6, 7, 8, 11, 12, 14, 15] {
        assert_eq!(reported(3, code, 0, &quoted_packet()).map(|error| error.kind), Some(IcmpErrorKind::Soft));
    }
    for code in [2, 3, 9, 10, 13] {
        assert_eq!(reported(3, code, 0, &quoted_packet()).map(|error| error.kind), Some(IcmpErrorKind::Hard));
    }
    for (kind, code) in [(11, 0), (11, 1), (12, 0), (12, 1), (12, 2)] {
        assert_eq!(
            reported(kind, code, 0, &quoted_packet()).map(|error| error.kind),
            Some(IcmpErrorKind::Soft)
        );
    }
}

/// RFC 1191 s4: the MTU of the next hop; RFC 1191 s5 and s7.1: the next plateau if the router
/// leaves it zero. RFC 1191 s3.
#[test]
fn a_packet_too_big_reports_the_mtu_or_the_next_plateau() {
    for (word, limit) in [(1_400, 1_400), (0, 1_492), (68, 576)] {
        let error = reported(3, 4, word, &quoted_packet()).expect("a report");
        assert_eq!(error.kind, IcmpErrorKind::TooBig { mtu_bytes: limit });
    }
}

/// RFC 5927 s7.2: the quoted packet had 1500 bytes.
/// RFC 5044 s9.1.
#[test]
fn a_report_about_a_packet_that_fits_is_dropped() {
    assert_dropped(&icmp_error_frame(3, 4, 1_500, &quoted_packet()), Counter::NetDropIcmpMtu);
    assert_dropped(&icmp_error_frame(3, 4, 9_000, &quoted_packet()), Counter::NetDropIcmpMtu);
}

/// RFC 9293 (MUST-55).
#[test]
fn unknown_codes_and_source_quench_are_dropped() {
    // RFC 6633 s3: a source quench is ignored.
    for (kind, code) in [(3, 16), (11, 2), (12, 3), (4, 0), (5, 0)] {
        assert_dropped(&icmp_error_frame(kind, code, 0, &quoted_packet()), Counter::NetDropIcmpOther);
    }
}

#[test]
fn a_quote_that_is_no_segment_of_ours_is_dropped() {
    // Version, header length, fragment offset, more fragments, protocol, source.
    for (at, byte) in [(0, 0x65), (0, 0x44), (7, 1), (6, 0x60), (9, 17), (15, 9)] {
        let mut quoted = quoted_packet();
        quoted[at] = byte;
        assert_dropped(&icmp_error_frame(3, 1, 0, &quoted), Counter::NetDropIcmpQuote);
    }
}

/// RFC 792: the header and 64 bits of the original datagram.
#[test]
fn a_quote_of_fewer_than_eight_bytes_of_the_segment_is_dropped() {
    let quoted = quoted_packet();
    for bytes in [0, 19, 20, 27] {
        assert_dropped(&icmp_error_frame(3, 1, 0, &quoted[..bytes]), Counter::NetDropIcmpQuote);
    }
}

#[test]
fn a_quote_with_ip_options_is_parsed() {
    let mut quoted = quoted_packet();
    quoted[0] = 0x46;
    quoted.splice(20..20, [1, 1, 1, 0]);
    assert_eq!(reported(3, 1, 0, &quoted).map(|error| error.quoted), Some(77));
}

#[test]
fn a_corrupt_error_is_dropped() {
    let mut frame = icmp_error_frame(3, 1, 0, &quoted_packet());
    frame[60] ^= 1;
    assert_dropped(&frame, Counter::NetDropIcmpChecksum);
}

#[test]
fn errors_above_the_rate_are_dropped() {
    let mut bench = Bench::with(MemoryConfig::default(), |cfg| cfg.icmp_errors_per_second = 100);
    let frame = icmp_error_frame(3, 1, 0, &quoted_packet());
    let read = (0..300).filter(|_| report(&mut bench, &frame).is_some()).count();
    assert_eq!((read, bench.counted()), (256, vec![(Counter::NetDropIcmpRateLimited, 44)]));
    bench.pass(Nanos::from_millis(10));
    assert!(report(&mut bench, &frame).is_some());
}

/// RFC 1191 s6.3, RFC 8201 s5.2.
/// RFC 4821 s5.2; RFC 8201 s4; RFC 1191 s3; RFC 1122 s3.3.3.
#[test]
fn a_path_mtu_applies_to_new_paths_until_it_expires() {
    let mut bench = Bench::new();
    let mtu = |bench: &Bench| bench.net.path_over(OURS.addr, PEER.addr, PEER.mac).mtu_bytes();
    bench.net.lower_path_mtu(bench.now, PEER.addr, 1_400);
    assert_eq!(mtu(&bench), 1_400);
    bench.pass(Nanos::from_secs(599));
    assert_eq!(mtu(&bench), 1_400);
    pass_to_next_deadline(&mut bench);
    assert_eq!(mtu(&bench), 1_500);
}
