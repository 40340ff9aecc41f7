//! Identifiers, each with a type of its own.

use core::fmt;

/// A polled core: an index into the stack's list of workers, not a CPU number.
#[derive(
    Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, Default, serde::Serialize, serde::Deserialize,
)]
pub struct CoreId(pub u16);

/// The size of the unit that one core owns, as a shift: a cache line, so that no line moves between
/// cores.
const CACHE_LINE_SHIFT: u32 = 6;

/// A multiplier that mixes the bits: 2^64 divided by the golden ratio, odd.
const HASH_MULTIPLIER: u64 = 0x9e37_79b9_7f4a_7c15;

impl CoreId {
    /// Returns which of `cores` cores executes atomic operations on the word at `address`.
    ///
    /// The result depends on the cache line alone, so a line has one owner and never moves between
    /// cores. Lines are spread evenly for any stride: the line number is multiplied, folded and
    /// multiplied again. The upper half of the product is scaled to the number of cores, which
    /// needs no division. 0 cores count as 1.
    #[inline]
    pub const fn owner_of(address: u64, cores: u16) -> CoreId {
        let mixed = Self::line_product(address);
        let mixed = (mixed ^ (mixed >> 32)).wrapping_mul(HASH_MULTIPLIER);
        CoreId((((mixed >> 32) * cores as u64) >> 32) as u16)
    }

    /// Returns a hash of the cache line of an address, to group the lines of an owner.
    #[inline]
    pub const fn line_hash(address: u64) -> u32 {
        (Self::line_product(address) >> 32) as u32
    }

    #[inline]
    const fn line_product(address: u64) -> u64 {
        (address >> CACHE_LINE_SHIFT).wrapping_mul(HASH_MULTIPLIER)
    }
}

/// A queue pair number, unique in its process while the queue pair exists.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, Default)]
pub struct QpNum(pub u32);

/// A protection domain. A queue pair can access a region only in the same domain.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, Default)]
pub struct PdId(pub u32);

/// A steering tag: identifies a memory region locally and to the peer (RFC 5041 s4.2).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, serde::Serialize, serde::Deserialize)]
pub struct STag(pub u32);

impl fmt::Debug for STag {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#010x}", self.0)
    }
}

impl fmt::Display for STag {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#010x}", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shares(addresses: impl Iterator<Item = u64>, cores: u16) -> Vec<u32> {
        let mut shares = vec![0; cores.into()];
        addresses.for_each(|address| shares[usize::from(CoreId::owner_of(address, cores).0)] += 1);
        shares
    }

    /// Lines spread evenly for arrays of words, lines, pages and huge pages: no core has more than
    /// 1.25 times its share.
    #[test]
    fn lines_spread_evenly_over_the_cores_at_every_stride() {
        const LINES: u64 = if cfg!(miri) { 2_000 } else { 20_000 };
        const CORES: &[u16] = &[8, 1, 2, 3, 4, 7, 16];
        const STRIDES: &[u64] = &[4096, 64, 128, 192, 256, 320, 1024, 65_536, 1 << 21];
        // Miri takes minutes for all of them, and the arithmetic is the same.
        let (cores, strides) = if cfg!(miri) { (&CORES[..1], &STRIDES[..1]) } else { (CORES, STRIDES) };
        for &cores in cores {
            for &stride in strides {
                let base = 0x7f12_3456_0000;
                let shares = shares((0..LINES).map(|line| base + line * stride), cores);
                let even = (LINES / u64::from(cores)) as u32;
                let fair = |&share: &u32| share * 4 <= even * 5 && share * 5 >= even * 4;
                assert!(shares.iter().all(fair), "{cores} cores, stride {stride}: {shares:?}");
            }
        }
    }

    #[test]
    fn a_cache_line_has_one_owner() {
        let end = if cfg!(miri) { 1 << 14 } else { 1 << 20 };
        for line in (0..end).step_by(64) {
            let owner = CoreId::owner_of(line, 8);
            assert!((0..64).step_by(8).all(|word| CoreId::owner_of(line + word, 8) == owner));
        }
    }

    #[test]
    fn the_owner_is_always_a_valid_core() {
        for address in [0, 63, 64, u64::MAX, u64::MAX - 64, 1 << 63] {
            for cores in [1, 2, 5, u16::MAX] {
                assert!(CoreId::owner_of(address, cores).0 < cores);
            }
            assert_eq!(CoreId::owner_of(address, 0), CoreId(0));
        }
    }
}
