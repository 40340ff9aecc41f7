//! The header's rules, and super-segments against a cutter that shares no code with what joins
//! them.

use ironwarp_arch::checksum::{fold, sum};
use proptest::prelude::*;

use super::super::LONG_BYTES;
use super::*;
use crate::pool::PoolFrame;
use crate::super_segment::{ACK, PSH};
use crate::{Frame, TxMeta, TxOffloads};

const MTU: u16 = 1500;
const TIMESTAMPS_BYTES: usize = 12;

/// A segment as TCP sends it.
#[derive(Clone, Copy, Debug)]
struct Segment {
    v6: bool,
    port: u16,
    seq: u32,
    ack: u32,
    flags: u8,
    tsval: Option<u32>,
    payload: usize,
}

const DATA: Segment =
    Segment { v6: false, port: 1, seq: 1000, ack: 5, flags: ACK | PSH, tsval: Some(9), payload: 100 };

fn byte_at(seq: u32) -> u8 {
    (seq.wrapping_mul(31) >> 3) as u8
}

impl Segment {
    /// The frame, with the sum of the pseudo-header in place of TCP's checksum.
    fn frame(&self) -> PoolSealed {
        let options = if self.tsval.is_some() { TIMESTAMPS_BYTES } else { 0 };
        let l4_bytes = 20 + options + self.payload;
        let mut bytes = vec![2; 12];
        if self.v6 {
            bytes.extend([0x86, 0xdd, 0x60, 0, 0, 0]);
            bytes.extend((l4_bytes as u16).to_be_bytes());
            bytes.extend([6, 64]);
            bytes.extend([0xfd; 32]);
        } else {
            bytes.extend([8, 0, 0x45, 0]);
            bytes.extend((l4_bytes as u16 + 20).to_be_bytes());
            bytes.extend((self.seq as u16).to_be_bytes());
            bytes.extend([0x40, 0, 64, 6, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]);
            let header = fold(sum(&bytes[14..34]));
            bytes[24..26].copy_from_slice(&(!header).to_be_bytes());
        }
        let l4 = bytes.len();
        bytes.extend(self.port.to_be_bytes());
        bytes.extend([0, 80]);
        bytes.extend(self.seq.to_be_bytes());
        bytes.extend(self.ack.to_be_bytes());
        bytes.extend([((20 + options) << 2) as u8, self.flags, 1, 2]);
        bytes.extend(pseudo_sum(&bytes[14..l4], l4_bytes).to_be_bytes());
        bytes.extend([0, 0]);
        if let Some(tsval) = self.tsval {
            bytes.extend([1, 1, 8, 10]);
            bytes.extend(tsval.to_be_bytes());
            bytes.extend([0; 4]);
        }
        let seqs = (0..self.payload as u32).map(|at| self.seq.wrapping_add(at));
        bytes.extend(seqs.map(byte_at));
        let offloads = if self.v6 { TxOffloads::TCP_CHECKSUM_IPV6 } else { TxOffloads::TCP_CHECKSUM };
        let (l3_bytes, l4_bytes) = (if self.v6 { 40 } else { 20 }, 20 + options as u8);
        PoolFrame::detached(&bytes, 0).seal(TxMeta { l2_bytes: 14, l3_bytes, l4_bytes, offloads })
    }
}

fn pseudo_sum(ip: &[u8], l4_bytes: usize) -> u16 {
    let addresses = if ip[0] >> 4 == 6 { &ip[8..40] } else { &ip[12..20] };
    fold(sum(addresses) + 6 + l4_bytes as u32)
}

/// The frames of a burst as they leave the host: each write is cut into segments and their
/// checksums are filled in, as a card with segmentation offload does (RFC 9293 s3.1 for the sum).
fn cut(frames: &[PoolSealed], joins: bool) -> (Vec<Vec<u8>>, usize) {
    let (mut left, mut all, mut writes) = (frames, Vec::new(), 0);
    while let Some(write) = Write::next(left, joins) {
        let bytes: Vec<u8> = write.slices(left).iter().flat_map(|slice| slice.iter().copied()).collect();
        let (header, frame) = bytes.split_first_chunk().expect("a header");
        all.extend(cut_frame(&Vnet::decode(header), frame));
        left = &left[write.frames..];
        writes += 1;
    }
    (all, writes)
}

fn cut_frame(vnet: &Vnet, frame: &[u8]) -> Vec<Vec<u8>> {
    assert_eq!(vnet.flags, NEEDS_CSUM);
    let l4 = usize::from(vnet.csum_start);
    let headers = l4 + usize::from(frame[l4 + 12] >> 4) * 4;
    let (headers, payload) = frame.split_at(headers);
    let is_v6 = headers[14] >> 4 == 6;
    assert_eq!(headers[l4 + 16..l4 + 18], pseudo_sum(&headers[14..l4], frame.len() - l4).to_be_bytes());
    assert!(is_v6 || fold(sum(&headers[14..l4])) == 0xffff, "the checksum of the IP header");
    let size = if vnet.gso_type == GSO_NONE { payload.len().max(1) } else { vnet.gso_size.into() };
    if vnet.gso_type != GSO_NONE {
        assert_eq!(usize::from(vnet.hdr_len), headers.len());
        assert_eq!(vnet.gso_type, if is_v6 { GSO_TCPV6 } else { GSO_TCPV4 });
    }
    let count = payload.len().div_ceil(size).max(1);
    let segment = |number: usize| {
        let data = payload.chunks(size).nth(number).unwrap_or_default();
        let mut bytes = [headers, data].concat();
        let (l4_bytes, length_at) = (bytes.len() - l4, if is_v6 { 18 } else { 16 });
        let length = if is_v6 { l4_bytes } else { l4_bytes + 20 };
        bytes[length_at..length_at + 2].copy_from_slice(&(length as u16).to_be_bytes());
        let seq = u32::from_be_bytes(bytes[l4 + 4..l4 + 8].try_into().unwrap());
        bytes[l4 + 4..l4 + 8].copy_from_slice(&seq.wrapping_add((number * size) as u32).to_be_bytes());
        if number + 1 < count {
            bytes[l4 + 13] &= !PSH;
        }
        let pseudo = pseudo_sum(&bytes[14..l4], l4_bytes);
        bytes[l4 + 16..l4 + 18].copy_from_slice(&pseudo.to_be_bytes());
        let checksum = !fold(sum(&bytes[l4..]));
        bytes[l4 + 16..l4 + 18].copy_from_slice(&checksum.to_be_bytes());
        comparable(bytes, l4)
    };
    (0..count).map(segment).collect()
}

/// Without what may differ: IP's identification and the checksum over it, PSH with TCP's checksum
/// over it.
fn comparable(mut bytes: Vec<u8>, l4: usize) -> Vec<u8> {
    let psh = u32::from(bytes[l4 + 13] & PSH);
    let checksum = u16::from_be_bytes([bytes[l4 + 16], bytes[l4 + 17]]);
    let without = fold(u32::from(checksum) + psh);
    bytes[l4 + 16..l4 + 18].copy_from_slice(&without.to_be_bytes());
    bytes[l4 + 13] &= !PSH;
    if bytes[14] >> 4 == 4 {
        bytes[18..20].fill(0);
        bytes[24..26].fill(0);
    }
    bytes
}

fn frames_of(segments: &[Segment]) -> Vec<PoolSealed> {
    segments.iter().map(Segment::frame).collect()
}

/// Segments of one flow with these payloads.
fn flow(first: Segment, payloads: &[usize]) -> Vec<Segment> {
    let next = |seq: &mut u32, payload: &usize| {
        let segment = Segment { seq: *seq, payload: *payload, ..first };
        *seq = seq.wrapping_add(*payload as u32);
        Some(segment)
    };
    payloads.iter().scan(first.seq, next).collect()
}

#[test]
fn the_header_is_that_of_virtio() {
    let vnet =
        Vnet { flags: 1, gso_type: 4, hdr_len: 0x102, gso_size: 1448, csum_start: 34, csum_offset: 16 };
    let bytes = vnet.encode();
    assert_eq!(Vnet::decode(&bytes), vnet);
    assert_eq!((bytes[0], bytes[1], u16::from_ne_bytes([bytes[4], bytes[5]])), (1, 4, 1448));
    assert_eq!(Vnet::of(TxMeta::default()), Vnet::default());
}

#[test]
fn consecutive_segments_of_a_flow_leave_in_one_write() {
    for (first, what) in [
        (DATA, "IPv4"),
        (Segment { v6: true, ..DATA }, "IPv6"),
        (Segment { tsval: None, seq: u32::MAX - 150, ..DATA }, "without timestamps, over the wrap"),
    ] {
        let frames = frames_of(&flow(first, &[100, 100, 100, 40, 100]));
        let (joined, writes) = cut(&frames, true);
        assert_eq!(writes, 2, "{what}: a shorter segment is the last one");
        assert_eq!(joined, cut(&frames, false).0, "{what}");
    }
}

#[test]
fn what_differs_in_more_than_its_place_is_not_joined() {
    let next = Segment { seq: DATA.seq + 100, ..DATA };
    for (other, what) in [
        (Segment { port: 2, ..next }, "another flow"),
        (Segment { seq: next.seq + 1, ..next }, "a gap"),
        (Segment { seq: DATA.seq, ..next }, "the same bytes again"),
        (Segment { ack: 6, ..next }, "another acknowledgement"),
        (Segment { tsval: Some(10), ..next }, "another timestamp"),
        (Segment { tsval: None, ..next }, "other options"),
        (Segment { flags: ACK | 0x80, ..next }, "CWR"),
        (Segment { flags: ACK | 1, ..next }, "FIN"),
        (Segment { payload: 101, ..next }, "a longer segment"),
        (Segment { payload: 0, ..next }, "no payload"),
        (Segment { v6: true, ..next }, "another family"),
    ] {
        let frames = frames_of(&[DATA, other]);
        assert_eq!(Write::next(&frames, true).map(|write| write.frames), Some(1), "{what}");
    }
    for flags in [ACK | 1, ACK | 0x80, ACK | 0x40, 2] {
        let frames = frames_of(&flow(Segment { flags, ..DATA }, &[100, 100]));
        assert_eq!(Write::next(&frames, true).map(|write| write.frames), Some(1), "flags {flags:#x}");
    }
    assert!(Write::next(&[], true).is_none());
}

#[test]
fn a_super_segment_is_an_ip_packet_of_64_kib_at_most() {
    let frames = frames_of(&flow(DATA, &[8948; 9]));
    assert_eq!(Write::next(&frames, true).map(|write| write.frames), Some(7));
    assert_eq!(cut(&frames, true).0, cut(&frames, false).0);
}

#[test]
fn a_header_that_cannot_be_true_is_a_counted_drop() {
    let good = Vnet {
        flags: NEEDS_CSUM,
        gso_type: GSO_TCPV4,
        hdr_len: 66,
        gso_size: 1448,
        csum_start: 34,
        csum_offset: 16,
    };
    let verdict = |vnet: Vnet| vnet.verdict(4000, MTU).map(|rx| rx.l4_checksum);
    let bad = Err(Counter::PortRxBadOffload);
    assert_eq!(verdict(good), Ok(Checksum::Good));
    assert_eq!(verdict(Vnet { gso_type: GSO_TCPV6 | GSO_ECN, ..good }), Ok(Checksum::Good));
    assert_eq!(verdict(Vnet { gso_size: 0, ..good }), bad);
    assert_eq!(verdict(Vnet { gso_size: MTU + 1, ..good }), bad, "segments longer than the link's");
    assert_eq!(verdict(Vnet { hdr_len: 4001, ..good }), bad);
    assert_eq!(verdict(Vnet { csum_start: 3983, ..good }), bad);
    assert_eq!(verdict(Vnet { csum_start: u16::MAX, csum_offset: u16::MAX, ..good }), bad);
    for gso_type in [2, 3, 5, GSO_ECN, 0x41] {
        assert_eq!(verdict(Vnet { gso_type, ..good }), bad, "type {gso_type:#x}");
    }
    assert_eq!(verdict(Vnet::default()), Err(Counter::PortRxTooLong));
    let short = |vnet: Vnet| vnet.verdict(1518, MTU).map(|rx| rx.l4_checksum);
    assert_eq!(short(Vnet::default()), Ok(Checksum::Unknown));
    assert_eq!(short(Vnet { flags: DATA_VALID, ..Vnet::default() }), Ok(Checksum::Good));
    let udp = Vnet { flags: NEEDS_CSUM, csum_start: 34, csum_offset: 6, ..Vnet::default() };
    assert_eq!(short(udp), Ok(Checksum::Unknown), "not TCP's checksum");
}

prop_compose! {
    /// Mostly the next segment of a flow.
    fn step()(kind in 0..12_u8, payload in prop_oneof![4 => Just(100_usize), 1 => 0..130_usize]) -> (u8, usize) {
        (kind, payload)
    }
}

proptest! {
    /// Whatever a burst holds, the frames that leave the host are those of sending each alone, in
    /// their order. RFC 5044 s5.1: so each segment still begins with an FPDU.
    #[test]
    fn joining_changes_nothing_that_leaves_the_host(
        v6: bool, seq: u32, steps in proptest::collection::vec(step(), 1..32)
    ) {
        let mut next = Segment { v6, seq, ..DATA };
        let segments: Vec<_> = steps.into_iter().map(|(kind, payload)| {
            match kind {
                0 => next.port ^= 1,
                1 => next.ack = next.ack.wrapping_add(1),
                2 => next.tsval = next.tsval.map(|at| at.wrapping_add(1)),
                3 => next.flags ^= PSH,
                4 => next.seq = next.seq.wrapping_add(1),
                _ => {}
            }
            let segment = Segment { payload, ..next };
            next.seq = next.seq.wrapping_add(payload as u32);
            segment
        }).collect();
        let frames = frames_of(&segments);
        let (joined, writes) = cut(&frames, true);
        prop_assert_eq!(joined, cut(&frames, false).0);
        prop_assert!(writes <= frames.len());
    }

    /// Any header and any length give a verdict.
    #[test]
    fn any_header_has_a_verdict(header: [u8; HEADER_BYTES], bytes in 0..LONG_BYTES, mtu: u16) {
        if let Ok(rx) = Vnet::decode(&header).verdict(bytes, mtu) {
            prop_assert!(rx.l4_checksum != Checksum::Bad && rx.ip_checksum == Checksum::Unknown);
        }
    }
}
