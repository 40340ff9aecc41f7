//! The masked arithmetic of RFC 7306 s5.1, as pure functions.
//!
//! Takes the word's value and the operands as numbers in the machine's order, and gives the word's
//! next value. Cannot fail. Takes a few instructions: the sum of any number of fields costs two
//! additions.

/// An operation on one 64-bit word, with its operands.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum AtomicOp {
    /// Addition field by field (RFC 7306 s5.1.1).
    FetchAdd {
        /// The addend.
        add: u64,
        /// A bit at the top of each field; 0 for one field of 64 bits.
        mask: u64,
    },
    /// Replacement of some bits if others have the expected values (RFC 7306 s5.1.2).
    CmpSwap {
        /// The value that the word is compared with.
        compare: u64,
        /// The bits that are compared.
        compare_mask: u64,
        /// The new value.
        swap: u64,
        /// The bits that are replaced.
        swap_mask: u64,
    },
    /// Replacement of the word. Only earlier drafts of the RFC have it on the wire.
    Swap {
        /// The new value.
        swap: u64,
    },
}

impl AtomicOp {
    /// Creates a plain 64-bit addition.
    pub const fn add(add: u64) -> Self {
        AtomicOp::FetchAdd { add, mask: 0 }
    }

    /// Creates a plain 64-bit compare and swap.
    pub const fn compare_and_swap(compare: u64, swap: u64) -> Self {
        AtomicOp::CmpSwap { compare, compare_mask: u64::MAX, swap, swap_mask: u64::MAX }
    }

    /// Returns the word's next value.
    #[inline]
    pub const fn apply(&self, original: u64) -> u64 {
        match *self {
            AtomicOp::FetchAdd { add, mask } => fetch_add(original, add, mask),
            AtomicOp::CmpSwap { compare, compare_mask, swap, swap_mask } => {
                cmp_swap(original, Compare { data: compare, mask: compare_mask }, swap, swap_mask)
            }
            AtomicOp::Swap { swap } => swap,
        }
    }
}

/// Adds field by field. Each set bit of `mask` is the top bit of a field, whose carry is lost. One
/// more field lies above the highest such bit and ends with the word.
#[inline]
pub const fn fetch_add(original: u64, add: u64, mask: u64) -> u64 {
    // RFC 7306 s5.1.1: no carry leaves a field. Without their top bits two fields sum to less than
    // the field holds, so one addition handles all fields. The top bits are then added without
    // carry by an exclusive or.
    let below = (original & !mask).wrapping_add(add & !mask);
    below ^ ((original ^ add) & mask)
}

/// One side of a comparison.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Compare {
    /// The expected value.
    pub data: u64,
    /// The bits that are compared.
    pub mask: u64,
}

/// Replaces the bits in `swap_mask` by those of `swap` if all compared bits have the expected
/// values.
#[inline]
pub const fn cmp_swap(original: u64, compare: Compare, swap: u64, swap_mask: u64) -> u64 {
    // RFC 7306 s5.1.2: without bits to compare, every word matches.
    if (compare.data ^ original) & compare.mask == 0 {
        (original & !swap_mask) | (swap & swap_mask)
    } else {
        original
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn bit(word: u64, at: u32) -> u64 {
        (word >> at) & 1
    }

    /// Adds bit by bit, as RFC 7306 s5.1.1 describes it: a full adder whose carry stops at a
    /// field's top bit.
    fn added_bit_by_bit(original: u64, add: u64, mask: u64) -> u64 {
        let (mut sum, mut carry) = (0, 0);
        for at in 0..64 {
            let total = carry + bit(original, at) + bit(add, at);
            sum |= (total & 1) << at;
            carry = if bit(mask, at) == 1 { 0 } else { total >> 1 };
        }
        sum
    }

    /// Compares and replaces bit by bit, as RFC 7306 s5.1.2 describes it.
    fn swapped_bit_by_bit(original: u64, compare: Compare, swap: u64, swap_mask: u64) -> u64 {
        let differs = |at| bit(compare.mask, at) == 1 && bit(compare.data, at) != bit(original, at);
        if (0..64).any(differs) {
            return original;
        }
        (0..64).fold(0, |word, at| {
            let source = if bit(swap_mask, at) == 1 { swap } else { original };
            word | bit(source, at) << at
        })
    }

    const EDGES: [u64; 12] = [
        0,
        1,
        2,
        u64::MAX,
        u64::MAX - 1,
        1 << 63,
        (1 << 63) - 1,
        3 << 62,
        0x8000_0000_8000_0000,
        0x8080_8080_8080_8080,
        0x5555_5555_5555_5555,
        0xaaaa_aaaa_aaaa_aaaa,
    ];

    /// RFC7306-5.1.1-06 at every pairing of the words and masks where a carry could go wrong.
    #[test]
    fn fields_are_added_as_the_bit_by_bit_description_does_at_the_edges() {
        // Safe arithmetic, of which Miri takes minutes for all.
        let edges = if cfg!(miri) { &EDGES[3..5] } else { &EDGES[..] };
        for &original in edges {
            for &add in edges {
                for &mask in edges {
                    let expected = added_bit_by_bit(original, add, mask);
                    assert_eq!(fetch_add(original, add, mask), expected, "{original:x} {add:x} {mask:x}");
                }
            }
        }
    }

    /// RFC7306-5.1.1-06: an add mask of 0 is a plain addition of 64 bits.
    #[test]
    fn without_a_mask_it_is_an_addition_that_wraps() {
        assert_eq!(fetch_add(u64::MAX, 1, 0), 0);
        assert_eq!(fetch_add(0xffff_ffff, 1, 0), 0x1_0000_0000);
        assert_eq!(AtomicOp::add(5).apply(37), 42);
    }

    /// RFC7306-5.1.1-06: a field that overflows does not change its neighbour.
    #[test]
    fn a_carry_out_of_a_field_is_lost() {
        let two_halves = 1 << 31;
        assert_eq!(
            fetch_add(0x0000_0001_ffff_ffff, 0x0000_0002_0000_0001, two_halves),
            0x0000_0003_0000_0000
        );
        let bits_alone = u64::MAX;
        assert_eq!(fetch_add(0b1100, 0b1010, bits_alone), 0b0110);
        // Above the highest top bit lies a field that ends with the word.
        assert_eq!(fetch_add(0xffff_ffff_0000_0001, 0x0000_0001_0000_0001, two_halves), 2);
    }

    /// RFC7306-5.1.2-01: an empty compare mask always matches; a bit outside the compare mask has
    /// no effect.
    #[test]
    fn only_masked_bits_are_compared_and_only_masked_bits_are_replaced() {
        let all = u64::MAX;
        assert_eq!(cmp_swap(7, Compare { data: 9, mask: 0 }, 1, all), 1);
        assert_eq!(cmp_swap(0xab, Compare { data: 0xfb, mask: 0x0f }, 0, 0xf0), 0x0b);
        assert_eq!(cmp_swap(0xab, Compare { data: 0xfb, mask: 0xf0 }, 0, all), 0xab);
        assert_eq!(cmp_swap(7, Compare { data: 7, mask: all }, 1, 0), 7);
    }

    #[test]
    fn a_swap_looks_at_nothing() {
        assert_eq!(AtomicOp::Swap { swap: 9 }.apply(u64::MAX), 9);
        assert_eq!(AtomicOp::compare_and_swap(1, 9).apply(1), 9);
        assert_eq!(AtomicOp::compare_and_swap(1, 9).apply(2), 2);
    }

    fn words() -> impl Strategy<Value = u64> {
        // Few set bits, many set bits, edges, anything.
        prop_oneof![
            any::<u64>(),
            proptest::sample::select(EDGES.to_vec()),
            (0..64u32, 0..64u32).prop_map(|(a, b)| 1 << a | 1 << b),
            (any::<u64>(), any::<u64>(), any::<u64>()).prop_map(|(a, b, c)| a & b & c),
            (any::<u64>(), any::<u64>(), any::<u64>()).prop_map(|(a, b, c)| a | b | c),
        ]
    }

    fn config() -> ProptestConfig {
        let cases = if cfg!(miri) { 4 } else { 4096 };
        ProptestConfig { cases, ..Default::default() }
    }

    proptest! {
        #![proptest_config(config())]

        /// RFC7306-5.1.1-06.
        #[test]
        fn fields_are_added_as_the_bit_by_bit_description_does(original in words(), add in words(), mask in words()) {
            prop_assert_eq!(fetch_add(original, add, mask), added_bit_by_bit(original, add, mask));
            let operation = AtomicOp::FetchAdd { add, mask };
            prop_assert_eq!(operation.apply(original), added_bit_by_bit(original, add, mask));
        }

        /// RFC7306-5.1.2-01 and RFC7306-5.1.2-03; half of the words are made to match.
        #[test]
        fn bits_are_compared_and_replaced_as_the_bit_by_bit_description_does(
            original in words(), data in words(), mask in words(), swap in words(), swap_mask in words(),
            matches: bool,
        ) {
            let data = if matches { (original & mask) | (data & !mask) } else { data };
            let expected = swapped_bit_by_bit(original, Compare { data, mask }, swap, swap_mask);
            prop_assert_eq!(cmp_swap(original, Compare { data, mask }, swap, swap_mask), expected);
            let operation = AtomicOp::CmpSwap { compare: data, compare_mask: mask, swap, swap_mask };
            prop_assert_eq!(operation.apply(original), expected);
            if matches {
                prop_assert_eq!(expected & swap_mask, swap & swap_mask);
            }
        }
    }
}
