//! Identifiers, each a type of its own.

use core::fmt;

/// A polled core: an index into the stack's list of workers, not a processor number.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, Default)]
pub struct CoreId(pub u16);

/// Bytes of the unit that one core owns, as a shift: a cache line, so that no line moves between two owners.
const CACHE_LINE_SHIFT: u32 = 6;

/// An odd number without pattern: 2^64 divided by the golden ratio.
const HASH_MULTIPLIER: u64 = 0x9e37_79b9_7f4a_7c15;

impl CoreId {
    /// The core that runs the atomic operations on the word at `address`, of `cores` numbered from 0.
    ///
    /// It depends on the cache line alone, so every name of a word has one owner and a line never moves. Lines spread
    /// evenly whatever stride they are used with: the line's number is multiplied, folded and multiplied again, and
    /// the upper half of the result is scaled to the number of cores, which costs no division. 0 cores count as 1.
    #[inline]
    pub const fn owner_of(address: u64, cores: u16) -> CoreId {
        let line = address >> CACHE_LINE_SHIFT;
        let mixed = line.wrapping_mul(HASH_MULTIPLIER);
        let mixed = (mixed ^ (mixed >> 32)).wrapping_mul(HASH_MULTIPLIER);
        CoreId((((mixed >> 32) * cores as u64) >> 32) as u16)
    }
}

/// A queue pair, unique in its process for as long as it exists.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, Default)]
pub struct QpNum(pub u32);

/// A protection domain: a region and a queue pair must share one for access to be granted.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, Default)]
pub struct PdId(pub u32);

/// A steering tag: the name under which memory is reached, locally and from the peer (RFC 5041 s4.2).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
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

    /// Arrays of words, lines, pages and huge pages all spread: no core has more than 1.25 times its share.
    #[test]
    fn lines_spread_evenly_over_the_cores_at_every_stride() {
        const LINES: u64 = 20_000;
        const CORES: &[u16] = &[8, 1, 2, 3, 4, 7, 16];
        const STRIDES: &[u64] = &[4096, 64, 128, 192, 256, 320, 1024, 65_536, 1 << 21];
        // Miri takes minutes for all, and the sums are the same.
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
        for line in (0..1 << 20).step_by(64) {
            let owner = CoreId::owner_of(line, 8);
            assert!((0..64).step_by(8).all(|word| CoreId::owner_of(line + word, 8) == owner));
        }
    }

    #[test]
    fn an_owner_is_always_one_of_the_cores() {
        for address in [0, 63, 64, u64::MAX, u64::MAX - 64, 1 << 63] {
            for cores in [1, 2, 5, u16::MAX] {
                assert!(CoreId::owner_of(address, cores).0 < cores);
            }
            assert_eq!(CoreId::owner_of(address, 0), CoreId(0));
        }
    }
}
