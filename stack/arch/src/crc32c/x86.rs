//! CRC-32C by the `crc32` instruction of SSE4.2, one lane: eight bytes every three cycles.

use core::arch::x86_64::{_mm_crc32_u8, _mm_crc32_u32, _mm_crc32_u64};

/// Shows that the processor has SSE4.2. Only [`Sse42::detect`] makes one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Sse42(());

impl Sse42 {
    #[inline]
    pub(super) fn detect() -> Option<Self> {
        is_x86_feature_detected!("sse4.2").then_some(Sse42(()))
    }

    #[inline]
    pub(super) fn advance(self, state: u32, bytes: &[u8]) -> u32 {
        // SAFETY: `self` exists only where `detect` found SSE4.2.
        unsafe { advance(state, bytes) }
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
