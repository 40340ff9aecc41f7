//! How steering tags are created and read.
//!
//! RFC 5040 s8.1.1 (8) and RFC 5042 s6.1.1: a tag is hard to predict, sparse over the whole range,
//! and not reused soon. A tag is a slot index and key bits under a secret permutation of the 32-bit
//! numbers. A slot starts with random key bits and uses all others in a secret order of its own. In
//! a table of 4096 regions a slot has 2^20 tags before one returns. A guess names one of N valid
//! regions with probability N / 2^32, and a wrong guess ends the connection.

use ironwarp_types::STag;
use siphasher::sip::SipHasher24;
use std::hash::Hasher;

/// The secret permutation between tags and (slot, key). Reading a tag costs one multiplication.
#[derive(Clone, Copy)]
pub(crate) struct StagCodec {
    mask: u32,
    /// Odd, so that multiplying by it is a permutation.
    factor: u32,
    /// The factor's inverse modulo 2^32.
    inverse: u32,
    /// 32 minus the bits of a slot index.
    key_bits: u32,
    /// Selects the order in which slots use their keys.
    order: [u64; 2],
}

impl StagCodec {
    /// Creates a permutation for `1 << index_bits` slots; `index_bits` is 1 to 31.
    pub(crate) fn new(index_bits: u32, rng: &mut TagRng) -> Self {
        debug_assert!((1..32).contains(&index_bits));
        let (mask, factor) = (rng.next_u32(), rng.next_u32() | 1);
        let mut word = || u64::from(rng.next_u32()) << 32 | u64::from(rng.next_u32());
        let order = [word(), word()];
        Self { mask, factor, inverse: inverse(factor), key_bits: 32 - index_bits, order }
    }

    /// Returns the only slot that can hold `stag`. Always below the number of slots.
    #[inline(always)]
    pub(crate) fn slot_of(&self, stag: STag) -> usize {
        // `key_bits` is 1 to 31.
        (stag.0 ^ self.mask).wrapping_mul(self.factor).wrapping_shr(self.key_bits) as usize
    }

    /// Returns a new tag for `slot`, never 0: a random one if `previous` is 0, and otherwise the
    /// next in the slot's order.
    pub(crate) fn new_stag(&self, slot: u32, previous: STag, rng: &mut TagRng) -> STag {
        let keys = self.keys();
        let mut index = match previous {
            STag(0) => rng.next_u32() & keys,
            _ => self.index_of(slot, self.key_of(previous)).wrapping_add(1) & keys,
        };
        loop {
            let stag = self.tag(slot, self.key_at(slot, index));
            if stag != STag(0) {
                return stag;
            }
            index = index.wrapping_add(1) & keys;
        }
    }

    /// Returns whether the slot of `earlier` uses `later` after it.
    pub(crate) fn follows(&self, later: STag, earlier: STag) -> bool {
        let slot = self.slot_of(earlier) as u32;
        let [later_at, earlier_at] = [later, earlier].map(|stag| self.index_of(slot, self.key_of(stag)));
        let ahead = later_at.wrapping_sub(earlier_at) & self.keys();
        // Half of the slot's keys come after each key, the other half before.
        ahead != 0 && ahead <= self.keys() / 2 + 1
    }

    fn keys(&self) -> u32 {
        (1 << self.key_bits) - 1
    }

    fn key_of(&self, stag: STag) -> u32 {
        (stag.0 ^ self.mask).wrapping_mul(self.factor) & self.keys()
    }

    /// Returns the key at a position of the slot's order: a Feistel network over the key's two
    /// parts, which may differ in length.
    fn key_at(&self, slot: u32, index: u32) -> u32 {
        (0..ROUNDS).fold(index, |key, round| self.round(slot, round, key))
    }

    /// Returns the position of a key: each round is its own inverse.
    fn index_of(&self, slot: u32, key: u32) -> u32 {
        (0..ROUNDS).rev().fold(key, |key, round| self.round(slot, round, key))
    }

    /// Changes one part of a key depending on the other.
    fn round(&self, slot: u32, round: u32, key: u32) -> u32 {
        let low = (1 << (self.key_bits / 2)) - 1;
        let (changed, input) =
            if round.is_multiple_of(2) { (self.keys() & !low, low) } else { (low, self.keys() & !low) };
        let [k0, k1] = self.order;
        let mut hash = SipHasher24::new_with_keys(k0, k1);
        hash.write_u64(u64::from(slot) << 32 | u64::from(key & input));
        hash.write_u32(round);
        // The other part is unchanged, so a round is its own inverse.
        key ^ (hash.finish() as u32 & changed)
    }

    fn tag(&self, slot: u32, key: u32) -> STag {
        STag(((slot << self.key_bits) | key).wrapping_mul(self.inverse) ^ self.mask)
    }
}

/// Four rounds give an order that cannot be distinguished from a random one (Luby and Rackoff).
const ROUNDS: u32 = 4;

/// Returns the inverse of an odd number modulo 2^32. Each step of Newton's iteration doubles the
/// number of correct bits; `odd` itself is correct in the lowest three.
fn inverse(odd: u32) -> u32 {
    let step = |guess: u32| guess.wrapping_mul(2u32.wrapping_sub(odd.wrapping_mul(guess)));
    (0..4).fold(odd, |guess, _| step(guess))
}

/// Unpredictable numbers from a 128-bit secret: SipHash of a counter.
///
/// One secret at the start and no system call later, so that a simulated node replays exactly from
/// its seed.
pub(crate) struct TagRng {
    secret: [u64; 2],
    counter: u64,
}

impl TagRng {
    pub(crate) fn new(secret: [u64; 2]) -> Self {
        Self { secret, counter: 0 }
    }

    pub(crate) fn next_u32(&mut self) -> u32 {
        let [k0, k1] = self.secret;
        let mut hash = SipHasher24::new_with_keys(k0, k1);
        hash.write_u64(self.counter);
        self.counter = self.counter.wrapping_add(1);
        hash.finish() as u32
    }

    /// Returns a generator whose secret is drawn from this one.
    pub(crate) fn fork(&mut self) -> TagRng {
        let mut word = || u64::from(self.next_u32()) << 32 | u64::from(self.next_u32());
        TagRng::new([word(), word()])
    }

    /// Returns a number below `bound`, uniform enough to shuffle a list.
    pub(crate) fn below(&mut self, bound: u32) -> u32 {
        ((u64::from(self.next_u32()) * u64::from(bound)) >> 32) as u32
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::HashSet;

    /// Tags of one slot that are compared.
    const MANY: u32 = if cfg!(miri) { 30 } else { 200 };

    const CASES: u32 = if cfg!(miri) { 4 } else { 256 };

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(CASES))]

        #[test]
        fn a_tag_leads_back_to_its_slot(secret: [u64; 2], bits in 1u32..=20, slot: u32, key: u32) {
            let space = StagCodec::new(bits, &mut TagRng::new(secret));
            let slot = slot % (1 << bits);
            let stag = space.tag(slot, key % (1 << space.key_bits));
            prop_assert_eq!(space.slot_of(stag), slot as usize);
        }

        #[test]
        fn every_tag_leads_to_some_slot(secret: [u64; 2], bits in 1u32..=20, stag: u32) {
            let space = StagCodec::new(bits, &mut TagRng::new(secret));
            prop_assert!(space.slot_of(STag(stag)) < 1 << bits);
        }

        #[test]
        fn an_inverse_undoes_its_number(number: u32) {
            prop_assert_eq!((number | 1).wrapping_mul(inverse(number | 1)), 1);
        }
    }

    // RFC 5042 s6.1.1: the next tag should be hard to predict and reused at a low rate.
    #[test]
    fn one_slot_takes_many_different_tags_and_never_zero() {
        let mut rng = TagRng::new([1, 2]);
        let space = StagCodec::new(4, &mut rng);
        let tags: HashSet<u32> = (0..MANY).map(|_| space.new_stag(3, STag(0), &mut rng).0).collect();
        assert!(tags.len() > MANY as usize - 5 && !tags.contains(&0));
    }

    // RFC 5042 s6.1.1: with all other slots in use one slot serves every registration, and no tag
    // returns before all have been used.
    #[test]
    fn a_tag_comes_back_when_its_slot_has_had_all_others() {
        // Under Miri with fewer keys.
        let bits = if cfg!(miri) { 5 } else { 0 };
        for (index_bits, slot) in [(24, 5), (23, 77), (25, 1)].map(|(all, slot)| (all + bits, slot)) {
            let mut rng = TagRng::new([1, 2]);
            let space = StagCodec::new(index_bits, &mut rng);
            // No slot uses the tag 0.
            let keys = (1usize << space.key_bits) - usize::from(space.slot_of(STag(0)) == slot as usize);
            let first = space.new_stag(slot, STag(0), &mut rng);
            let mut last = first;
            let mut seen = HashSet::from([first]);
            for _ in 1..keys {
                last = space.new_stag(slot, last, &mut rng);
                assert_eq!(space.slot_of(last), slot as usize);
                assert!(seen.insert(last), "back after {} others", seen.len());
            }
            assert_eq!(space.new_stag(slot, last, &mut rng), first);
        }
    }

    // RFC 5042 s6.1.1: the earlier tags of a slot do not reveal the next, and two slots have
    // different orders.
    #[test]
    fn the_order_of_keys_is_a_slots_own_and_no_progression() {
        let mut rng = TagRng::new([3, 4]);
        let space = StagCodec::new(12, &mut rng);
        let steps = |slot: u32| -> HashSet<u32> {
            let keys: Vec<u32> = (0..MANY).map(|index| space.key_at(slot, index)).collect();
            keys.windows(2).map(|two| two[1].wrapping_sub(two[0])).collect()
        };
        assert!(steps(0).len() > MANY as usize - 5);
        let alike = (0..MANY).filter(|index| space.key_at(0, *index) == space.key_at(1, *index)).count();
        assert!(alike < 3, "{alike} of {MANY} alike");
    }

    #[test]
    fn a_fresh_tag_is_never_the_previous_one() {
        let mut rng = TagRng::new([1, 2]);
        // Two tags for each slot: with the previous one excluded, they must alternate.
        let space = StagCodec::new(31, &mut rng);
        let slot = space.slot_of(STag(7)) as u32;
        let other = space.new_stag(slot, STag(7), &mut rng);
        assert_ne!(other, STag(7));
        assert_eq!(space.new_stag(slot, other, &mut rng), STag(7));
    }

    #[test]
    fn a_tag_follows_those_that_its_slot_had_before_and_no_other() {
        let mut rng = TagRng::new([5, 6]);
        let space = StagCodec::new(12, &mut rng);
        let mut tags = vec![space.new_stag(9, STag(0), &mut rng)];
        for number in 0..if cfg!(miri) { 5 } else { 50 } {
            tags.push(space.new_stag(9, tags[number], &mut rng));
        }
        for (earlier, tag) in tags.iter().enumerate() {
            for (later, other) in tags.iter().enumerate() {
                assert_eq!(space.follows(*other, *tag), later > earlier, "{later} after {earlier}");
            }
        }
    }

    #[test]
    fn two_secrets_make_two_sequences() {
        let first = |secret| {
            let mut rng = TagRng::new(secret);
            let space = StagCodec::new(8, &mut rng);
            space.new_stag(0, STag(0), &mut rng)
        };
        assert_ne!(first([1, 2]), first([1, 3]));
        assert_eq!(first([1, 2]), first([1, 2]));
    }
}
