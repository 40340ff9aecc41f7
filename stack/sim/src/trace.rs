//! One number for a whole run: two runs that differ in one byte or one nanosecond differ in it.

use ironwarp_types::Nanos;

/// A running hash of what happened. Not for use against an adversary.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TraceHash {
    state: u64,
}

impl TraceHash {
    /// The hash of nothing.
    pub const fn new() -> Self {
        TraceHash { state: 0xcbf2_9ce4_8422_2325 }
    }

    /// Adds that something of kind `what` happened at `at`, in place `place`, to `bytes`.
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

    /// The hash until now.
    pub const fn value(&self) -> u64 {
        self.state
    }

    /// A bijection of the state for each word, so no difference is ever lost by itself; the shift carries high bits
    /// down, which multiplication never does.
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
