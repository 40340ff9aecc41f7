//! Bytes that can be checked anywhere in a stream without its beginning.
//!
//! The byte at offset `o` of message `m` depends on both, so a byte that is lost, doubled, moved or
//! left over from the message before is seen. Both ends compute it; nothing but the seed travels.

/// The bytes of one message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Pattern {
    seed: u64,
}

impl Pattern {
    /// The pattern of message number `message` in a run with this `seed`.
    pub fn new(seed: u64, message: u64) -> Self {
        Pattern { seed: mix(seed ^ mix(message)) }
    }

    /// Writes the bytes that belong at `offset` and after it.
    pub fn fill(self, into: &mut [u8], offset: u64) {
        for (at, byte) in into.iter_mut().enumerate() {
            *byte = self.byte(offset.wrapping_add(at as u64));
        }
    }

    /// The offset of the first byte that is wrong, counted in the message.
    pub fn first_mismatch(self, bytes: &[u8], offset: u64) -> Option<u64> {
        (offset..).zip(bytes).find(|&(at, &byte)| byte != self.byte(at)).map(|(at, _)| at)
    }

    pub fn byte(self, offset: u64) -> u8 {
        // Eight bytes share one mix, which keeps validation faster than the link.
        let word = self.seed.wrapping_add((offset >> 3).wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let word = (word ^ (word >> 29)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        (word >> (8 * (offset & 7))) as u8
    }
}

/// Spreads the bits of a number over the whole word (the finaliser of splitmix64).
fn mix(value: u64) -> u64 {
    let value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ (value >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(number: u64, len: usize) -> Vec<u8> {
        let mut bytes = vec![0; len];
        Pattern::new(7, number).fill(&mut bytes, 0);
        bytes
    }

    #[test]
    fn a_part_of_a_message_is_checked_without_the_rest() {
        let bytes = message(3, 4096);
        for (start, end) in [(0, 1), (1, 9), (13, 4096), (4095, 4096)] {
            assert_eq!(Pattern::new(7, 3).first_mismatch(&bytes[start..end], start as u64), None);
        }
    }

    #[test]
    fn one_flipped_bit_is_found_where_it_is() {
        let mut bytes = message(3, 1000);
        bytes[517] ^= 0x10;
        assert_eq!(Pattern::new(7, 3).first_mismatch(&bytes, 0), Some(517));
    }

    #[test]
    fn the_message_before_does_not_pass_for_this_one() {
        assert!(Pattern::new(7, 4).first_mismatch(&message(3, 64), 0).is_some());
    }

    #[test]
    fn bytes_moved_by_one_do_not_pass() {
        let bytes = message(1, 65);
        assert!(Pattern::new(7, 1).first_mismatch(&bytes[1..], 0).is_some());
    }
}
