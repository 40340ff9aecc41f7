//! Every path against the definition, and against the vectors of RFC 3720 B.4.

use proptest::prelude::*;

use super::*;

/// The definition: one bit at a time.
fn bitwise(state: u32, bytes: &[u8]) -> u32 {
    bytes.iter().fold(state, |state, byte| {
        (0..8).fold(state ^ u32::from(*byte), |state, _| {
            if state & 1 == 1 { (state >> 1) ^ 0x82f6_3b78 } else { state >> 1 }
        })
    })
}

fn every_means() -> Vec<Means> {
    vec![
        Means::Tables,
        #[cfg(not(miri))]
        Means::Folding,
        #[cfg(not(miri))]
        Means::Digest,
        Means::available(),
    ]
}

fn crc(means: Means, bytes: &[u8]) -> u32 {
    !advance(means, !0, bytes)
}

#[test]
fn rfc_3720_b4_vectors_hold_on_every_path() {
    let up: Vec<u8> = (0..32).collect();
    let down: Vec<u8> = (0..32).rev().collect();
    // RFC 3720 B.4 prints the CRC as the four bytes that are sent, least significant first.
    let vectors: [(&[u8], [u8; 4]); 5] = [
        (&[0; 32], [0xaa, 0x36, 0x91, 0x8a]),
        (&[0xff; 32], [0x43, 0xab, 0xa8, 0x62]),
        (&up, [0x4e, 0x79, 0xdd, 0x46]),
        (&down, [0x5c, 0xdb, 0x3f, 0x11]),
        (&ISCSI_READ, [0x56, 0x3a, 0x96, 0xd9]),
    ];
    for means in every_means() {
        for (bytes, sent) in vectors {
            assert_eq!(crc(means, bytes).to_le_bytes(), sent, "{means:?}");
        }
    }
}

#[test]
fn nothing_has_the_crc_zero_and_appending_nothing_changes_nothing() {
    assert_eq!(crc32c(&[]), 0);
    assert_eq!(crc32c_append(0x1234_5678, &[]), 0x1234_5678);
}

#[test]
fn every_length_around_the_path_boundaries_agrees_with_the_definition() {
    let bytes: Vec<u8> = (0..600u32).map(|i| (i * 167 + 13) as u8).collect();
    let lengths = if cfg!(miri) { 61..69 } else { 0..600 };
    for length in lengths {
        let defined = !bitwise(!0, &bytes[..length]);
        for means in every_means() {
            assert_eq!(crc(means, &bytes[..length]), defined, "{length} {means:?}");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: if cfg!(miri) { 2 } else { 128 }, ..Default::default() })]

    #[test]
    fn a_crc_appended_in_pieces_is_the_crc_of_the_whole(
        bytes in proptest::collection::vec(any::<u8>(), 0..BYTES_MAX),
        cut in any::<proptest::sample::Index>(),
    ) {
        let (front, back) = bytes.split_at(cut.index(bytes.len() + 1));
        prop_assert_eq!(crc32c_append(crc32c(front), back), !bitwise(!0, &bytes));
        for means in every_means() {
            prop_assert_eq!(!advance(means, advance(means, !0, front), back), crc32c(&bytes));
        }
    }
}

/// Beyond the longest FPDU payload that fits a jumbo frame; Miri takes a second for a kilobyte.
const BYTES_MAX: usize = if cfg!(miri) { 100 } else { 10_000 };

/// RFC 3720 B.4: an iSCSI SCSI Read command PDU.
const ISCSI_READ: [u8; 48] = [
    0x01, 0xc0, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x14,
    0x00, 0x00, 0x00, 0x00, 0x00, 0x04, 0x00, 0x00, 0x00, 0x00, 0x14, 0x00, 0x00, 0x00, 0x18, 0x28, 0x00,
    0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x02, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00,
];
