//! One pass against two, for every length.

use std::io::Write as _;

use proptest::prelude::*;

use super::*;
use crate::checksum::fold;

fn separate(crc: u32, bytes: &[u8]) -> CrcAndSum {
    CrcAndSum { crc: crc32c_append(crc, bytes), sum: fold(checksum::sum(bytes)).into() }
}

fn folded(result: CrcAndSum) -> CrcAndSum {
    CrcAndSum { sum: fold(result.sum).into(), ..result }
}

/// Compares both forms with the separate functions.
fn check(crc: u32, bytes: &[u8], to_offset: usize) {
    let Some(kernel) = Kernel::detect() else { return };
    let want = separate(crc, bytes);
    assert_eq!(folded(kernel.read(crc, bytes)), want, "{} bytes", bytes.len());
    let mut copied = vec![0xee; to_offset + bytes.len() + 1];
    // SAFETY: `copied` has room behind the offset, and is another allocation.
    let result = unsafe { kernel.copy(crc, bytes.as_ptr(), copied.as_mut_ptr().add(to_offset), bytes.len()) };
    assert_eq!(folded(result), want, "copy of {} bytes", bytes.len());
    assert_eq!(&copied[to_offset..][..bytes.len()], bytes);
    assert!(copied[..to_offset].iter().chain(copied.last()).all(|byte| *byte == 0xee), "beyond the copy");
}

#[test]
fn every_length_and_alignment_agrees_with_two_passes() {
    if Kernel::detect().is_none() {
        // Miri has none on any machine.
        if cfg!(not(miri)) {
            writeln!(std::io::stderr(), "\nSKIPPED: one pass: the processor has no kernel for it")
                .expect("a terminal");
        }
        return;
    }
    let bytes: Vec<u8> = (0..9100u32).map(|i| ((i * 77) >> 2) as u8 | 0x80).collect();
    for start in 0..3 {
        for len in (0..1100).chain([1428, 1448, 8192, 8928, 9000]) {
            check((len as u32).wrapping_mul(0x0101_0101), &bytes[start..start + len], start);
        }
    }
}

#[test]
fn the_largest_words_do_not_overflow() {
    check(0, &[0xff; 65_536], 1);
    check(0, &[0x7f; 65_536], 1);
    check(0, &[0; 65_536], 1);
}

/// A jumbo frame and a little. Miri has no kernel to compare.
const BYTES_MAX: usize = if cfg!(miri) { 2 } else { 9100 };

proptest! {
    #![proptest_config(ProptestConfig { cases: if cfg!(miri) { 1 } else { 256 }, ..Default::default() })]

    #[test]
    fn random_bytes_agree_with_two_passes(
        bytes in proptest::collection::vec(any::<u8>(), 0..BYTES_MAX),
        crc in any::<u32>(),
        to_offset in 0usize..64,
    ) {
        check(crc, &bytes, to_offset);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: if cfg!(miri) { 2 } else { 256 }, ..Default::default() })]

    #[test]
    fn a_short_piece_agrees_with_two_passes(
        front in any::<[[u8; 4]; 8]>(),
        words in proptest::collection::vec(any::<[u8; 4]>(), 0..80),
        field in any::<[u8; 4]>(),
    ) {
        let piece = words.as_flattened();
        let crc = crc32c_append(0, piece);
        let sums = [front.as_flattened(), piece, &field, &crc.to_le_bytes()].map(checksum::sum);
        let opened = open_short(&front, &words, field);
        prop_assert_eq!((opened.crc, fold(opened.sum)), (crc, fold(sums[0] + sums[1] + sums[2])));
        prop_assert_eq!(opened, in_two_passes(front.as_flattened(), piece, u32::from_le_bytes(field)));
        let bare = front.first_chunk::<5>().unwrap();
        prop_assert_eq!(open_short(bare, &words, field), in_two_passes(bare.as_flattened(), piece, u32::from_le_bytes(field)));
        let sealed = seal_short(&words);
        prop_assert_eq!((sealed.crc, fold(sealed.sum)), (crc, fold(sums[1] + sums[3])));
    }
}

#[test]
fn the_largest_words_of_a_short_piece_do_not_overflow() {
    let words = [[0xff; 4]; 64];
    assert_eq!(open_short(&words, &words, [0xff; 4]).sum, 0xffff);
}
