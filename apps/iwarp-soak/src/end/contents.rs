//! Contents that a seed determines.

use ironwarp_types::{Entropy, SeededEntropy};

/// Fills `bytes` with the contents of a seed.
pub(super) fn fill(seed: u64, bytes: &mut [u8]) {
    let mut entropy = SeededEntropy::new(seed);
    for chunk in bytes.chunks_mut(8) {
        let word = entropy.next_u64().to_le_bytes();
        chunk.copy_from_slice(&word[..chunk.len()]);
    }
}

/// Returns the first offset at which two texts of one length differ, with both bytes.
pub(super) fn difference(found: &[u8], wanted: &[u8]) -> Option<String> {
    let at = found.iter().zip(wanted).position(|(found, wanted)| found != wanted)?;
    let (found, wanted) = (found.get(at)?, wanted.get(at)?);
    Some(format!("byte {at} is {found:#04x} instead of {wanted:#04x}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn contents_depend_on_the_seed_and_a_difference_is_found() {
        let (mut one, mut same, mut other) = ([0; 37], [0; 37], [0; 37]);
        fill(1, &mut one);
        fill(1, &mut same);
        fill(2, &mut other);
        assert_eq!((one == same, one == other), (true, false));
        assert_eq!(difference(&one, &same), None);
        same[36] ^= 1;
        assert!(difference(&one, &same).is_some_and(|text| text.starts_with("byte 36 is")));
    }
}
