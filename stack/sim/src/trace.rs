//! A hash of a whole run: two runs that differ in one byte or one nanosecond have different hashes.

use ironwarp_types::Nanos;

/// A running hash. Not secure against an adversary.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TraceHash {
    state: u64,
}

impl TraceHash {
    /// Returns the initial hash.
    pub const fn new() -> Self {
        TraceHash { state: 0xcbf2_9ce4_8422_2325 }
    }

    /// Adds an event of kind `what` at time `at` and location `place` with `bytes`.
    pub fn add(&mut self, what: u8, at: Nanos, place: usize, bytes: &[u8]) {
        for word in [u64::from(what), at.0, place as u64, bytes.len() as u64] {
            self.mix(word);
        }
        let (words, rest) = bytes.as_chunks::<8>();
        for word in words {
            self.mix(u64::from_le_bytes(*word));
        }
        for byte in rest {
            self.mix(u64::from(*byte));
        }
    }

    /// Returns the hash so far.
    pub const fn value(&self) -> u64 {
        self.state
    }

    /// A bijection of the state for each word, so that no difference is lost. The shift moves high
    /// bits down, which multiplication does not.
    fn mix(&mut self, word: u64) {
        let mixed = (self.state ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        self.state = mixed ^ mixed >> 32;
    }
}

impl Default for TraceHash {
    fn default() -> Self {
        TraceHash::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hash(what: u8, at: u64, place: usize, bytes: &[u8]) -> u64 {
        let mut hash = TraceHash::new();
        hash.add(what, Nanos(at), place, bytes);
        hash.value()
    }

    #[test]
    fn every_part_of_an_event_counts() {
        let base = hash(1, 2, 3, b"eleven byte");
        assert_eq!(base, hash(1, 2, 3, b"eleven byte"));
        let others = [
            hash(0, 2, 3, b"eleven byte"),
            hash(1, 0, 3, b"eleven byte"),
            hash(1, 2, 0, b"eleven byte"),
            hash(1, 2, 3, b"Eleven byte"),
            hash(1, 2, 3, b"eleven byt"),
            hash(1, 2, 3, b"eleven bytf"),
        ];
        assert!(!others.contains(&base));
    }
}
