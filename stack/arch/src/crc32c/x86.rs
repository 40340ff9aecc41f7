//! CRC-32C by the `crc32` instruction of SSE4.2, one lane: eight bytes every three cycles.

use core::arch::asm;
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

    /// Returns the CRC of `words` and the sum of `front`, `words` and the CRC behind them, all read
    /// once. That CRC is `field`, or with `OWN` the one returned.
    #[inline(always)]
    pub(crate) fn crc_and_sum<const FRONT: usize, const OWN: bool>(
        self,
        front: &[[u8; 4]; FRONT],
        words: &[[u8; 4]],
        field: u32,
    ) -> CrcAndSum {
        // SAFETY: as above.
        unsafe { crc_and_sum::<FRONT, OWN>(front, words, field) }
    }
}

/// Takes two instructions for eight bytes. What is left after blocks takes no loop.
#[target_feature(enable = "sse4.2")]
fn crc_and_sum<const FRONT: usize, const OWN: bool>(
    front: &[[u8; 4]; FRONT],
    words: &[[u8; 4]],
    field: u32,
) -> CrcAndSum {
    let (mut state, mut sum) = (u64::from(u32::MAX), WideSum::default());
    let (blocks, rest) = front.as_chunks::<8>();
    blocks.iter().for_each(|block| sum.add(block.as_flattened()));
    rest.iter().for_each(|word| sum.add_word(u32::from_le_bytes(*word)));
    let (blocks, rest) = words.as_chunks::<8>();
    for block in blocks {
        // SAFETY: the feature is enabled here.
        unsafe { add_block(block, &mut state, &mut sum) };
    }
    let (halves, rest) = rest.as_chunks::<4>();
    if let [half] = halves {
        // SAFETY: as above.
        unsafe { add_half_block(half, &mut state, &mut sum) };
    }
    let (pairs, last) = rest.as_chunks::<2>();
    if let [pair] = pairs {
        let word = u64::from_le_bytes(*pair.as_flattened().first_chunk().unwrap_or(&[0; 8]));
        state = _mm_crc32_u64(state, word);
        sum.add_word(word as u32);
        sum.add_word((word >> 32) as u32);
    }
    let mut state = state as u32;
    if let [last] = last {
        let word = u32::from_le_bytes(*last);
        state = _mm_crc32_u32(state, word);
        sum.add_word(word);
    }
    let crc = !state;
    sum.add_word(if OWN { crc } else { field });
    CrcAndSum { crc, sum: sum.in_network_order() }
}

/// Advances the CRC and the sum by 32 bytes. Written out, since a compiler loads each word into a
/// register for its two uses. The `crc32` instruction leaves the carry alone.
///
/// # Safety
/// The processor has SSE4.2.
#[inline(always)]
unsafe fn add_block(block: &[[u8; 4]; 8], state: &mut u64, sum: &mut WideSum) {
    // SAFETY: `block` is 32 readable bytes. The processor has SSE4.2, as the caller guarantees.
    unsafe {
        asm!(
            "add {sum}, [{at}]",
            "crc32 {state}, qword ptr [{at}]",
            "adc {sum}, [{at} + 8]",
            "crc32 {state}, qword ptr [{at} + 8]",
            "adc {sum}, [{at} + 16]",
            "crc32 {state}, qword ptr [{at} + 16]",
            "adc {sum}, [{at} + 24]",
            "crc32 {state}, qword ptr [{at} + 24]",
            "adc {more}, 0",
            at = in(reg) block.as_ptr(),
            state = inout(reg) *state,
            sum = inout(reg) sum.sum,
            more = inout(reg) sum.more,
            options(pure, readonly, nostack)
        );
    }
}

/// [`add_block`] of 16 bytes.
///
/// # Safety
/// As for [`add_block`].
#[inline(always)]
unsafe fn add_half_block(half: &[[u8; 4]; 4], state: &mut u64, sum: &mut WideSum) {
    // SAFETY: as above, with 16 bytes.
    unsafe {
        asm!(
            "add {sum}, [{at}]",
            "crc32 {state}, qword ptr [{at}]",
            "adc {sum}, [{at} + 8]",
            "crc32 {state}, qword ptr [{at} + 8]",
            "adc {more}, 0",
            at = in(reg) half.as_ptr(),
            state = inout(reg) *state,
            sum = inout(reg) sum.sum,
            more = inout(reg) sum.more,
            options(pure, readonly, nostack)
        );
    }
}

/// A sum of words of 64 bits, and beside it the carries and words of 32 bits: fewer than 2^32, so
/// their sum never wraps.
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
        self.more = self.more.wrapping_add(u64::from(carry));
    }

    #[inline(always)]
    fn add_word(&mut self, word: u32) {
        self.more = self.more.wrapping_add(u64::from(word));
    }

    #[inline(always)]
    fn in_network_order(self) -> u32 {
        let (sum, carry) = self.sum.overflowing_add(self.more);
        // A sum that carried is below the largest value.
        network_sum(sum.wrapping_add(u64::from(carry)))
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
