//! A small seeded random number generator, for reproducible runs.
//!
//! Source: Vigna's `splitmix64`, which is Steele, Lea and Flood's SplitMix (OOPSLA 2014) with a
//! fixed increment. For fault injection and simulation only: the numbers are predictable.

use crate::Entropy;

/// A seeded generator. One number takes about a nanosecond.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SeededEntropy {
    state: u64,
}

impl SeededEntropy {
    /// Creates a generator. Equal seeds give equal numbers.
    pub const fn new(seed: u64) -> Self {
        SeededEntropy { state: seed }
    }

    /// Returns a number below `bound`, or zero when `bound` is zero. The bias is below
    /// `bound / 2^64`.
    pub fn below(&mut self, bound: u64) -> u64 {
        let wide = u128::from(self.next_u64()) * u128::from(bound);
        (wide >> 64) as u64
    }

    /// Returns `true` with a probability of `ppm` in a million.
    pub fn chance(&mut self, ppm: u32) -> bool {
        ppm != 0 && self.below(1_000_000) < u64::from(ppm)
    }

    /// Returns a second generator, whose numbers are independent of the following numbers of this
    /// one.
    #[must_use]
    pub fn split(&mut self) -> SeededEntropy {
        SeededEntropy::new(self.next_u64() ^ SPLIT_CONSTANT)
    }
}

impl Entropy for SeededEntropy {
    fn next_u64(&mut self) -> u64 {
        self.state = self.state.wrapping_add(GOLDEN);
        let mut mixed = self.state;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }
}

/// The golden ratio in 64 bits, odd: the state passes through every value.
const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;

/// Separates the state of a split generator from the outputs of its parent.
const SPLIT_CONSTANT: u64 = 0x6a09_e667_f3bc_c909;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_generator_matches_the_published_test_vector() {
        // Vigna's reference program, seeded with 1234567.
        let mut chance = SeededEntropy::new(1_234_567);
        let first: Vec<u64> = (0..3).map(|_| chance.next_u64()).collect();
        assert_eq!(first, [6_457_827_717_110_365_317, 3_203_168_211_198_807_973, 9_817_491_932_198_370_423]);
    }

    #[test]
    fn chance_matches_its_rate_in_parts_per_million() {
        let mut chance = SeededEntropy::new(7);
        let tries = if cfg!(miri) { 10_000 } else { 1_000_000 };
        let hits = (0..tries).filter(|_| chance.chance(20_000)).count();
        let slack = if cfg!(miri) { tries / 100 } else { tries / 1000 };
        assert!(hits.abs_diff(tries / 50) < slack, "{hits}");
    }

    #[test]
    fn chance_is_exact_for_never_and_always() {
        let mut chance = SeededEntropy::new(7);
        let draws = if cfg!(miri) { 1_000 } else { 10_000 };
        assert!((0..draws).all(|_| !chance.chance(0) && chance.chance(1_000_000)));
    }

    #[test]
    fn a_split_generator_gives_different_numbers() {
        let mut parent = SeededEntropy::new(3);
        let mut child = parent.split();
        assert!((0..100).all(|_| parent.next_u64() != child.next_u64()));
    }

    #[test]
    fn a_number_stays_below_its_bound() {
        let mut chance = SeededEntropy::new(11);
        let draws = if cfg!(miri) { 1_000 } else { 10_000 };
        assert!((0..draws).all(|_| chance.below(7) < 7));
        assert_eq!(chance.below(0), 0);
    }
}
