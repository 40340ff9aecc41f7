//! Byte patterns that differ for every message and every offset in it, so that a misplaced byte is
//! detected.

/// The bytes of one message.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Pattern {
    key: u64,
}

impl Pattern {
    /// The pattern of the `number`th thing of a kind that `key` names.
    pub fn new(key: u64, number: u64) -> Self {
        Pattern { key: mix(key ^ mix(number.wrapping_add(GOLDEN))) }
    }

    /// Writes the bytes of the message from `offset` on.
    pub fn fill(self, offset: usize, bytes: &mut [u8]) {
        let lead = bytes.len().min((8 - offset % 8) % 8);
        let (first, rest) = bytes.split_at_mut(lead);
        self.fill_slowly(offset, first);
        let (words, tail) = rest.as_chunks_mut::<8>();
        let from = (offset + lead) / 8;
        for (number, word) in words.iter_mut().enumerate() {
            *word = self.word(from + number).to_le_bytes();
        }
        self.fill_slowly(offset + lead + 8 * words.len(), tail);
    }

    fn fill_slowly(self, offset: usize, bytes: &mut [u8]) {
        for (at, byte) in bytes.iter_mut().enumerate() {
            let at = offset + at;
            *byte = self.word(at / 8).to_le_bytes()[at % 8];
        }
    }

    fn word(self, number: usize) -> u64 {
        let word = self.key.wrapping_add(number as u64).wrapping_mul(GOLDEN);
        word ^ word >> 29
    }
}

fn mix(word: u64) -> u64 {
    let mixed = (word ^ word >> 32).wrapping_mul(GOLDEN);
    mixed ^ mixed >> 29
}

/// The golden ratio in 64 bits, odd.
const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_piece_holds_the_bytes_of_its_place() {
        let pattern = Pattern::new(3, 4);
        let mut whole = [0; 100];
        pattern.fill(0, &mut whole);
        for (from, to) in [(0, 100), (1, 99), (7, 9), (8, 24), (13, 14), (50, 50)] {
            let mut piece = vec![0; to - from];
            pattern.fill(from, &mut piece);
            assert_eq!(piece, whole[from..to], "{from}..{to}");
        }
    }

    #[test]
    fn messages_differ() {
        let first = |key, number| {
            let mut bytes = [0; 8];
            Pattern::new(key, number).fill(0, &mut bytes);
            bytes
        };
        assert!(first(1, 1) != first(1, 2) && first(1, 1) != first(2, 1));
    }
}
