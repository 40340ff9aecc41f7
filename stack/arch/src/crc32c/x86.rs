//! CRC-32C by the `crc32` instruction of SSE4.2, one lane: eight bytes every three cycles.

use core::arch::x86_64::{_mm_crc32_u8, _mm_crc32_u32, _mm_crc32_u64};

use crate::checksum::network_sum;
use crate::one_pass::CrcAndSum;

/// Shows that the processor has SSE4.2. Only [`Sse42::detect`] makes one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Sse42(());

impl Sse42 {
    #[inline]
    pub(crate) fn detect() -> Option<Self> {
        is_x86_feature_detected!("sse4.2").then_some(Sse42(()))
    }

    #[inline]
    pub(super) fn advance(self, state: u32, bytes: &[u8]) -> u32 {
        // SAFETY: `self` exists only where `detect` found SSE4.2.
        unsafe { advance(state, bytes) }
    }

    /// Returns the CRC of `words` and the sum of `front` and `words`, which are read once.
    #[inline(always)]
    pub(crate) fn crc_and_sum(self, front: &[[u8; 4]], words: &[[u8; 4]]) -> CrcAndSum {
        // SAFETY: as above.
        unsafe { crc_and_sum(front, words) }
    }
}

/// Takes four instructions for eight bytes. The `crc32` instruction leaves the carry alone, so the sum is added with it.
/// What is left after blocks takes no loop.
#[target_feature(enable = "sse4.2")]
fn crc_and_sum(front: &[[u8; 4]], words: &[[u8; 4]]) -> CrcAndSum {
    let (mut state, mut sum) = (u64::from(u32::MAX), WideSum::default());
    let (blocks, rest) = front.as_chunks::<8>();
    blocks.iter().for_each(|block| sum.add(block.as_flattened()));
    rest.iter().for_each(|word| sum.add_word(*word));
    let (blocks, rest) = words.as_chunks::<8>();
    for block in blocks {
        state = advance_by(state, block.as_flattened());
        sum.add(block.as_flattened());
    }
    let (halves, rest) = rest.as_chunks::<4>();
    if let [half] = halves {
        state = advance_by(state, half.as_flattened());
        sum.add(half.as_flattened());
    }
    let (pairs, last) = rest.as_chunks::<2>();
    if let [pair] = pairs {
        state = advance_by(state, pair.as_flattened());
        sum.add(pair.as_flattened());
    }
    let mut state = state as u32;
    if let [last] = last {
        state = _mm_crc32_u32(state, u32::from_le_bytes(*last));
        sum.add_word(*last);
    }
    CrcAndSum { crc: !state, sum: sum.in_network_order() }
}

#[inline]
#[target_feature(enable = "sse4.2")]
fn advance_by(mut state: u64, bytes: &[u8]) -> u64 {
    for word in bytes.as_chunks::<8>().0 {
        state = _mm_crc32_u64(state, u64::from_le_bytes(*word));
    }
    state
}

/// A sum of words of 64 bits, and beside it the carries and words of 32 bits: fewer than 2^32.
#[derive(Default)]
struct WideSum {
    sum: u64,
    more: u64,
}

impl WideSum {
    #[inline(always)]
    fn add(&mut self, bytes: &[u8]) {
        let mut carry = false;
        for word in bytes.as_chunks::<8>().0 {
            (self.sum, carry) = self.sum.carrying_add(u64::from_ne_bytes(*word), carry);
        }
        self.more += u64::from(carry);
    }

    #[inline(always)]
    fn add_word(&mut self, word: [u8; 4]) {
        self.more += u64::from(u32::from_ne_bytes(word));
    }

    #[inline(always)]
    fn in_network_order(self) -> u32 {
        network_sum((self.sum >> 32) + (self.sum & 0xffff_ffff) + self.more)
    }
}

#[target_feature(enable = "sse4.2")]
fn advance(state: u32, bytes: &[u8]) -> u32 {
    let mut state = u64::from(state);
    let (blocks, rest) = bytes.as_chunks::<32>();
    for block in blocks {
        for word in block.as_chunks::<8>().0 {
            state = _mm_crc32_u64(state, u64::from_le_bytes(*word));
        }
    }
    let (pairs, rest) = rest.as_chunks::<16>();
    if let [pair] = pairs {
        for word in pair.as_chunks::<8>().0 {
            state = _mm_crc32_u64(state, u64::from_le_bytes(*word));
        }
    }
    let (words, rest) = rest.as_chunks::<8>();
    if let [word] = words {
        state = _mm_crc32_u64(state, u64::from_le_bytes(*word));
    }
    let mut state = state as u32;
    let (halves, rest) = rest.as_chunks::<4>();
    if let [half] = halves {
        state = _mm_crc32_u32(state, u32::from_le_bytes(*half));
    }
    for byte in rest {
        state = _mm_crc32_u8(state, *byte);
    }
    state
}
