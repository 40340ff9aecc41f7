//! Markers against the examples of the RFC and against an independent decoder that walks the
//! stream.

use proptest::prelude::*;

use super::*;
use crate::mpa::fpdu::{MULPDU_BYTES_MAX, fpdu_bytes, mulpdu};

/// A sender `phase` octets after a marker.
fn at(phase: usize) -> MarkerState {
    MarkerState { since_marker: phase as u16 }
}

fn encoded(marker_state: &mut MarkerState, ulpdu: &[u8], crc: bool) -> Vec<u8> {
    let mut room = vec![0xee; fpdu_bytes(ulpdu.len()) * 2 + 8];
    room[2..2 + ulpdu.len()].copy_from_slice(ulpdu);
    let bytes = marker_state.encode(&mut room, ulpdu.len(), crc);
    assert!(bytes > 0);
    assert!(room[bytes.max(2 + ulpdu.len())..].iter().all(|&beyond| beyond == 0xee));
    room.truncate(bytes);
    room
}

fn decoded(marker_state: &mut MarkerState, framed: &[u8], crc: bool) -> Result<Vec<u8>, MpaFault> {
    let mut gathered = framed.to_vec();
    let second = { *marker_state }.decode_gathered(&mut gathered, crc).map(<[u8]>::to_vec);
    let mut scratch = vec![0x77; framed.len()];
    let first = marker_state.decode(framed, &mut scratch, crc).map(<[u8]>::to_vec);
    assert_eq!(first, second, "both decoders agree");
    first
}

fn pattern(bytes: usize) -> Vec<u8> {
    (0..bytes).map(|i| (i % 251) as u8 + 1).collect()
}

/// CRC-32C, bit by bit.
fn slow_crc(bytes: &[u8]) -> u32 {
    !bytes.iter().fold(!0, |crc, &byte| {
        (0..8).fold(crc ^ u32::from(byte), |crc, _| (crc >> 1) ^ (0x82f6_3b78 & (crc & 1).wrapping_neg()))
    })
}

/// An independent decoder of a stream with markers. Returns the ULPDUs. Every marker must point to
/// its FPDU, every pad must be zero, and every CRC must be correct.
fn decode(stream: &[u8]) -> Vec<Vec<u8>> {
    let (mut at, mut found) = (0, Vec::new());
    while at < stream.len() {
        let begin = at;
        let mut header = None;
        let mut content = Vec::new();
        let mut length = usize::MAX;
        while content.len() < length {
            if at % 512 == 0 {
                let pointer = u16::from_be_bytes([stream[at + 2], stream[at + 3]]);
                assert_eq!(stream[at..at + 2], [0, 0], "the reserved field at {at}");
                assert_eq!(usize::from(pointer), header.map_or(0, |header| at - header), "marker at {at}");
                at += 4;
                continue;
            }
            header.get_or_insert(at);
            content.push(stream[at]);
            at += 1;
            if content.len() == 2 {
                length = (2 + usize::from(u16::from_be_bytes([content[0], content[1]]))).div_ceil(4) * 4 + 4;
            }
        }
        let ulpdu_bytes = usize::from(u16::from_be_bytes([content[0], content[1]]));
        assert_eq!(stream[at - 4..at], slow_crc(&stream[begin..at - 4]).to_le_bytes());
        assert!(content[2 + ulpdu_bytes..length - 4].iter().all(|&pad| pad == 0));
        found.push(content[2..2 + ulpdu_bytes].to_vec());
    }
    found
}

/// The DDP segment of both examples: a Send of 24 zero octets, message `msn`.
fn example(msn: u8) -> Vec<u8> {
    [&[0x41, 0x43, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, msn, 0, 0, 0, 0][..], &[0; 24]].concat()
}

/// RFC 5044 s4.4, figure 5: the first FPDU of a stream begins with a marker of value 0.
#[test]
fn the_first_fpdu_is_that_of_figure_5() {
    let mut marker_state = MarkerState::new();
    let framed = encoded(&mut marker_state, &example(1), true);
    let mut want = vec![0, 0, 0, 0, 0x00, 0x2a];
    want.extend(example(1));
    want.extend([0x52, 0x23, 0x99, 0x83]);
    assert_eq!(framed, want);
    assert_eq!(marker_state, at(0x34));
    assert_eq!(decoded(&mut MarkerState::new(), &framed, true), Ok(example(1)));
}

/// RFC 5044 s4.4, figure 6: at octet 492 of the stream, so a marker follows the DDP header.
#[test]
fn the_second_example_is_that_of_figure_6() {
    let mut marker_state = at(492);
    let framed = encoded(&mut marker_state, &example(2), true);
    let (header, data) = (example(2)[..18].to_vec(), [0; 24]);
    let want = [&[0x00, 0x2a][..], &header, &[0, 0, 0, 0x14], &data, &[0x84, 0x92, 0x58, 0x98]].concat();
    assert_eq!(framed, want);
    assert_eq!(decoded(&mut at(492), &framed, true), Ok(example(2)));
}

/// RFC 5044 s4.3, figure 4: a ULPDU of 16 octets, with a marker 12 octets after the length field.
/// RFC 5044 s4.2.
#[test]
fn a_marker_points_back_to_the_length_field_as_in_figure_4() {
    let framed = encoded(&mut at(500), &pattern(16), true);
    assert_eq!(framed[..2], [0, 16]);
    assert_eq!(framed[12..16], [0, 0, 0, 12]);
    assert_eq!(framed[16..22], pattern(16)[10..]);
    assert_eq!(framed[22..24], [0, 0], "two octets of pad");
    assert_eq!(framed.len(), 28);
}

/// RFC 5044 s4.4: the CRC of an FPDU covers a marker directly after its pad.
#[test]
fn a_marker_between_pad_and_crc_belongs_to_the_fpdu() {
    let mut marker_state = at(512 - 8);
    let framed = encoded(&mut marker_state, &pattern(5), true);
    assert_eq!((framed.len(), &framed[8..12]), (16, &[0, 0, 0, 8][..]));
    assert_eq!(framed[12..], slow_crc(&framed[..12]).to_le_bytes());
    assert_eq!(decoded(&mut at(512 - 8), &framed, true), Ok(pattern(5)));
}

/// RFC 5044 s4.3: a marker directly after the CRC belongs to the next FPDU, and its value is 0.
#[test]
fn a_marker_after_the_crc_belongs_to_the_next_fpdu() {
    let mut marker_state = at(512 - 12);
    let first = encoded(&mut marker_state, &pattern(6), true);
    assert_eq!((first.len(), marker_state), (12, at(0)));
    let second = encoded(&mut marker_state, &pattern(6), true);
    assert_eq!((second.len(), &second[..6]), (16, &[0, 0, 0, 0, 0, 6][..]));
    assert_eq!(second[12..], slow_crc(&second[..12]).to_le_bytes());
}

/// RFC 5044 s4.3: every marker in a large FPDU points to the same octet.
#[test]
fn all_markers_of_one_fpdu_point_to_its_length_field() {
    let framed = encoded(&mut at(0), &pattern(2000), true);
    for marker in [512, 1024, 1536] {
        assert_eq!(framed[marker..marker + 4], [0, 0, ((marker - 4) >> 8) as u8, (marker - 4) as u8]);
    }
}

/// RFC 5044 s4.5: MULPDU = EMSS - (6 + 4 * ceiling(EMSS / 512) + EMSS mod 4), and an FPDU of MULPDU
/// always fits.
#[test]
fn mulpdu_with_markers_matches_the_formula_and_fits_at_every_phase() {
    for emss in 140..3000_usize {
        let most = mulpdu(bytes_beside_markers(emss));
        assert_eq!(most, emss - (6 + 4 * emss.div_ceil(512) + emss % 4));
        for phase in (0..512).step_by(4) {
            assert!(at(phase).layout(fpdu_bytes(most)).framed_bytes() <= emss, "{emss} at {phase}");
        }
    }
    assert_eq!([mulpdu(bytes_beside_markers(1460)), mulpdu(bytes_beside_markers(8948))], [1442, 8870]);
    assert_eq!(mulpdu(bytes_beside_markers(70_000)), MULPDU_BYTES_MAX);
}

/// RFC 5044 s3, s4.3: the longest, the empty and the shortest ULPDU at every phase. The pointer
/// fits in 16 bits.
#[test]
fn the_shortest_and_longest_ulpdus_round_trip_at_every_phase() {
    for phase in (0..512).step_by(4) {
        for ulpdu in [0, 1, 2, 3, 498, 506, 507, MULPDU_BYTES_MAX] {
            let (mut tx, mut rx) = (at(phase), at(phase));
            let framed = encoded(&mut tx, &pattern(ulpdu), true);
            assert!(framed.len() <= ironwarp_types::limits::FPDU_MARKED_BYTES_MAX);
            assert_eq!(decoded(&mut rx, &framed, true), Ok(pattern(ulpdu)));
            assert_eq!(tx, rx);
        }
    }
}

/// RFC 5044 s4.1: the length field can exceed the 64 768 octets that may be sent; the pointer
/// cannot.
#[test]
fn a_ulpdu_beyond_the_limit_is_not_encoded() {
    let mut room = vec![0; 70_000];
    assert_eq!(at(0).encode(&mut room, 65_535, true), 0);
    assert_eq!(at(4).encode(&mut room, 65_536, true), 0);
}

/// RFC 5044 s8, code 3: the CRC is correct and a marker points elsewhere.
#[test]
fn a_wrong_marker_is_reported_only_with_a_correct_crc() {
    for marker in [0, 512, 1024] {
        let mut framed = encoded(&mut at(0), &pattern(1500), true);
        framed[marker + 3] ^= 4;
        assert_eq!(decoded(&mut at(0), &framed, true), Err(MpaFault::Crc), "the CRC covers the marker");
        assert_eq!(decoded(&mut at(0), &framed, false), Err(MpaFault::Marker), "unless CRCs are off");
        fpdu::set_crc(&mut framed);
        assert_eq!(decoded(&mut at(0), &framed, true), Err(MpaFault::Marker));
    }
}

/// RFC 5044 s4.2: the reserved field is ignored, and the two low bits of the pointer count as
/// zeros. The CRC covers both. RFC 5044 s4.3.
#[test]
fn reserved_bits_of_a_marker_are_ignored() {
    let mut framed = encoded(&mut at(0), &pattern(600), true);
    for (octet, value) in [(0, 0xff), (1, 0xa5), (3, 3), (512, 0x80), (515, framed[515] | 3)] {
        framed[octet] = value;
    }
    fpdu::set_crc(&mut framed);
    assert_eq!(decoded(&mut at(0), &framed, true), Ok(pattern(600)));
}

#[test]
fn a_buffer_that_is_too_short_leaves_the_state_unchanged() {
    let mut marker_state = at(504);
    let mut room = [9; 15];
    assert_eq!((marker_state.encode(&mut room, 5, true), marker_state), (0, at(504)));
    assert_eq!(room, [9; 15]);
}

proptest! {
    /// RFC 5044 s4.3: any FPDUs from any phase on, decoded by the independent decoder and by
    /// [`MarkerState`]. RFC 5044 s4.2.
    #[test]
    fn fpdus_of_every_size_keep_the_marker_positions(
        sizes in proptest::collection::vec(prop_oneof![0..40usize, 0..1500usize, 0..9000usize], 1..12),
    ) {
        let (mut tx, mut rx) = (MarkerState::new(), MarkerState::new());
        let ulpdus: Vec<Vec<u8>> = sizes.iter().map(|&bytes| pattern(bytes)).collect();
        let fpdus: Vec<Vec<u8>> = ulpdus.iter().map(|ulpdu| encoded(&mut tx, ulpdu, true)).collect();
        prop_assert_eq!(&decode(&fpdus.concat()), &ulpdus);
        for (framed, ulpdu) in fpdus.iter().zip(&ulpdus) {
            prop_assert_eq!(&decoded(&mut rx, framed, true), &Ok(ulpdu.clone()));
        }
    }

    /// Whatever arrives: what is taken for an FPDU lies within the octets, and has the length that
    /// its field says.
    #[test]
    fn hostile_octets_give_an_error_or_what_they_hold(
        octets in proptest::collection::vec(any::<u8>(), 0..2000),
        phase in (0..128usize).prop_map(|words| words * 4),
        crc: bool,
    ) {
        if let Ok(ulpdu) = decoded(&mut at(phase), &octets, crc) {
            prop_assert!(fpdu_bytes(ulpdu.len()) <= octets.len());
            let field = if phase == 0 { 4 } else { 0 };
            prop_assert_eq!(octets[field..field + 2].to_vec(), (ulpdu.len() as u16).to_be_bytes());
        }
    }
}
