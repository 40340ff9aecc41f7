//! Byte streams in which every byte depends on its offset, so that a misplaced byte is detected.
//!
//! The period is a prime number of bytes, which does not divide any segment, window or buffer size.
//! Writing and checking copy and compare slices, so a simulated gigabyte costs no more than its
//! copies.

use std::sync::LazyLock;

/// Writes the bytes of the pattern from `offset` on.
pub(super) fn write(offset: u64, mut room: &mut [u8]) {
    let mut at = offset;
    while !room.is_empty() {
        let run = run_from(at, room.len());
        let (now, later) = room.split_at_mut(run.len());
        now.copy_from_slice(run);
        at += run.len() as u64;
        room = later;
    }
}

/// Returns whether these are the bytes of the pattern from `offset` on.
pub(super) fn matches(offset: u64, mut bytes: &[u8]) -> bool {
    let mut at = offset;
    while !bytes.is_empty() {
        let run = run_from(at, bytes.len());
        let (now, later) = bytes.split_at(run.len());
        if now != run {
            return false;
        }
        at += run.len() as u64;
        bytes = later;
    }
    true
}

/// The longest contiguous run of the pattern from `offset` on: at least one byte and at most `len`.
fn run_from(offset: u64, len: usize) -> &'static [u8] {
    let start = (offset % PERIOD_BYTES as u64) as usize;
    let rest = &TABLE[start..];
    &rest[..rest.len().min(len)]
}

/// A prime, so that it shares no factor with any size that matters.
const PERIOD_BYTES: usize = 65_521;

static TABLE: LazyLock<Box<[u8]>> = LazyLock::new(|| {
    let byte = |at: u64| (at.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as u8;
    (0..PERIOD_BYTES as u64).map(byte).collect()
});

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_pattern_matches_only_at_its_own_offset() {
        let mut bytes = vec![0; 200_000];
        write(12_345, &mut bytes);
        assert!(matches(12_345, &bytes));
        assert!(matches(12_345 + 70_000, &bytes[70_000..]));
        assert!(!matches(12_346, &bytes));
        bytes[150_000] ^= 1;
        assert!(!matches(12_345, &bytes));
    }
}
