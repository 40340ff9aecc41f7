//! Fast frames: what [`Net::fast_frame`] and [`Net::accepts_fast`] accept, [`Net::on_frame`]
//! returns with the same fields. RFC 9293 s3.1, RFC 7323 s3.2.
//!
//! [`Net::fast_frame`]: crate::Net::fast_frame
//! [`Net::accepts_fast`]: crate::Net::accepts_fast
//! [`Net::on_frame`]: crate::Net::on_frame

use ironwarp_port::memory::MemoryFrame;
use ironwarp_port::{Checksum, Frame, RxMeta};
use ironwarp_types::{Ecn, FlowKeyV4, MacAddr, Seq};
use proptest::prelude::*;

use crate::net::Net;
use crate::rx::fast::FastFrame;
use crate::tcp_header::Timestamps;
use crate::testing::{Bench, tcp_frame, with_ip};

/// Replaces the header's length and flags, and puts `options` before the payload. Both checksums
/// are correct.
fn frame(control: [u8; 2], options: &[u8], payload: &[u8]) -> Vec<u8> {
    let mut frame = tcp_frame(&[options, payload].concat());
    frame[46..48].copy_from_slice(&control);
    with_correct_checksums(frame)
}

fn with_correct_checksums(mut frame: Vec<u8>) -> Vec<u8> {
    let total = usize::from(u16::from_be_bytes([frame[16], frame[17]]));
    let end = (14 + total).clamp(54, frame.len());
    frame[50..52].fill(0);
    let pseudo = crate::checksum::sum(&frame[26..34]) + 6 + (end - 34) as u32;
    let sum = !crate::checksum::fold(pseudo + crate::checksum::sum(&frame[34..end]));
    frame[50..52].copy_from_slice(&sum.to_be_bytes());
    with_ip(frame, 14, &[])
}

fn timestamps() -> [u8; 12] {
    [1, 1, 8, 10, 0, 0, 1, 2, 0, 0, 3, 4]
}

/// [`Net::accepts_fast`](crate::Net::accepts_fast) for a connection of the frame's addresses.
fn accepts(net: &Net, fast: &FastFrame<'_>, sum: impl FnOnce(&[u8], usize) -> u32) -> bool {
    let (remote, local) = fast.addresses();
    let path = net.path_over(local.into(), remote.into(), MacAddr([2; 6]));
    let (segment, header_bytes) = fast.segment();
    net.accepts_fast(fast, RxMeta::default()) == Checksum::Unknown
        && fast.is_sum_correct(&path, sum(segment, header_bytes))
}

fn is_fast(bytes: &[u8]) -> bool {
    Bench::new().net.fast_frame(&MemoryFrame::detached(bytes, 2_048)).is_some()
}

#[test]
fn the_fields_of_a_fast_frame_are_those_of_its_header() {
    let bytes = frame([0x80, 0x18], &timestamps(), b"payload");
    let bytes = with_ip(bytes, 15, &[2]);
    let mut bench = Bench::new();
    let segment = bench.receive(&bytes).expect("a segment");
    let arrived = MemoryFrame::detached(&bytes, 2_048);
    let fast = bench.net.fast_frame(&arrived).expect("a fast frame");
    assert!(accepts(&bench.net, &fast, |segment, header_bytes| {
        assert_eq!((header_bytes, &segment[header_bytes..]), (32, &b"payload"[..]));
        crate::checksum::sum(segment)
    }));
    assert_eq!(fast.key(), FlowKeyV4::from(&segment.flow));
    assert_eq!(bench.net.hash_of(fast.key()), segment.hash);
    let word = |at: usize| u32::from_be_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
    assert_eq!((fast.seq(), fast.ack()), (Seq(word(38)), Seq(word(42))));
    assert_eq!(fast.window(), u16::from_be_bytes([bytes[48], bytes[49]]));
    assert_eq!(fast.timestamps(), Some(Timestamps { tsval: 0x0102, tsecr: 0x0304 }));
    assert_eq!((fast.ecn(), segment.ecn), (Ecn::Ect0, Ecn::Ect0));
    assert_eq!((fast.start(), fast.end()), (66, segment.l4_end));
    assert_eq!(&arrived.bytes()[66..], b"payload");
}

#[test]
fn a_fast_frame_has_no_option_but_timestamps() {
    assert!(is_fast(&frame([0x50, 0x10], &[], b"twelve bytes")));
    assert!(is_fast(&frame([0x80, 0x10], &timestamps(), b"")));
    assert!(!is_fast(&frame([0x60, 0x10], &[1; 4], b"eight or more")));
    assert!(!is_fast(&frame([0x80, 0x10], &[1, 1, 5, 10, 0, 0, 0, 0, 0, 0, 0, 1], b"")));
    assert!(!is_fast(&frame([0x90, 0x10], &[timestamps().as_slice(), &[1; 4]].concat(), b"")));
}

#[test]
fn a_fast_frame_has_no_flag_but_ack_and_push() {
    for flags in 0..=255u8 {
        let bytes = frame([0x80, flags], &timestamps(), b"payload");
        assert_eq!(is_fast(&bytes), flags & !8 == 0x10, "{flags:#x}");
    }
}

#[test]
fn a_frame_shorter_than_the_headers_is_not_fast() {
    let bytes = frame([0x80, 0x10], &timestamps(), b"");
    assert!(is_fast(&bytes));
    assert!(!is_fast(&bytes[..65]));
    let cut = with_correct_checksums(with_ip(bytes.clone(), 16, &[0, 51]));
    assert!(!is_fast(&cut), "the IP packet ends within the option");
    let long = with_correct_checksums(with_ip(bytes, 16, &[0, 53]));
    assert!(!is_fast(&long), "the IP packet ends behind the frame");
}

#[test]
fn a_fast_frame_in_a_vlan_does_not_exist() {
    let tagged = Bench::with(Default::default(), |cfg| {
        cfg.vlan = Some(crate::VlanTag { id: 5, priority: 0 });
    });
    let arrived = MemoryFrame::detached(&frame([0x80, 0x10], &timestamps(), b""), 2_048);
    assert!(tagged.net.fast_frame(&arrived).is_none());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    /// Whatever is changed in a frame, a frame that is accepted as fast is a segment for the
    /// general path, with the same flow and payload.
    #[test]
    fn what_is_accepted_as_fast_is_a_segment(
        has_timestamps in any::<bool>(),
        payload in prop_oneof![Just(24), 250..800usize].prop_map(|bytes| vec![7; bytes]),
        changes in prop::collection::vec((prop_oneof![0..90usize, 0..800usize], any::<u8>()), 0..4),
        repaired in any::<bool>(),
        padding in 0..4usize,
    ) {
        let mut bytes = match has_timestamps {
            true => frame([0x80, 0x10], &timestamps(), &payload),
            false => frame([0x50, 0x10], &[], &payload),
        };
        for (at, value) in changes {
            let at = at % bytes.len();
            bytes[at] = value;
        }
        if repaired {
            bytes = with_correct_checksums(bytes);
        }
        bytes.resize(bytes.len() + padding, 0xee);
        let mut bench = Bench::new();
        let arrived = MemoryFrame::detached(&bytes, 2_048);
        let fast = bench.net.fast_frame(&arrived);
        let sum = |segment: &[u8], _| crate::checksum::sum(segment);
        if let Some(fast) = fast.filter(|fast| accepts(&bench.net, fast, sum)) {
            let (key, hash) = (fast.key(), bench.net.hash_of(fast.key()));
            // The flow of a connection has a unicast remote address: others are refused by the
            // general path.
            if let Some(segment) = bench.receive(&bytes) {
                prop_assert_eq!((key, hash), (FlowKeyV4::from(&segment.flow), segment.hash));
                prop_assert_eq!((fast.end(), fast.ecn()), (segment.l4_end, segment.ecn));
                prop_assert_eq!(fast.start(), 34 + u16::from(bytes[46] >> 4) * 4);
            } else {
                let remote = std::net::Ipv4Addr::from([bytes[26], bytes[27], bytes[28], bytes[29]]);
                let broadcast = std::net::Ipv4Addr::new(10, 0, 0, 255);
                let network = std::net::Ipv4Addr::new(10, 0, 0, 0);
                let refused = remote.is_multicast() || remote.is_loopback() || remote.octets()[0] == 0
                    || remote.octets()[0] >= 240 || remote == broadcast || remote == network;
                prop_assert!(refused, "{remote}");
            }
        }
    }
}
