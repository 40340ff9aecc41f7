//! One pass with 512-bit vectors: CRC-32C by folding with carry-less multiplication, and the sum of
//! 16-bit words.
//!
//! Folding ("Fast CRC Computation for Generic Polynomials Using PCLMULQDQ", Gopal et al., 2009): a
//! remainder of 128 bits is carried over `d` bits of message by multiplying its halves by x^(d+63)
//! and x^(d-1) modulo the polynomial, since a product of two reflected words has one more factor x.
//! Four vectors of four remainders each run side by side; at the end they are folded into one,
//! which the `crc32` instruction reduces.

use core::arch::x86_64::{
    __m128i, __m512i, _mm_clmulepi64_si128, _mm_crc32_u8, _mm_crc32_u32, _mm_crc32_u64, _mm_cvtsi32_si128,
    _mm_cvtsi128_si64, _mm_extract_epi64, _mm_set_epi64x, _mm_xor_si128, _mm512_clmulepi64_epi128,
    _mm512_dpwssd_epi32, _mm512_extracti32x4_epi32, _mm512_loadu_si512, _mm512_mask_storeu_epi8,
    _mm512_maskz_loadu_epi8, _mm512_reduce_add_epi32, _mm512_set_epi64, _mm512_set1_epi16,
    _mm512_setzero_si512, _mm512_storeu_si512, _mm512_ternarylogic_epi64, _mm512_xor_si512,
    _mm512_zextsi128_si512,
};

/// Bytes of a vector.
pub(super) const VECTOR_BYTES: usize = 64;

/// Vectors that are folded side by side.
const LANES: usize = 4;

/// What a signed 16-bit word lacks to the unsigned one with an inverted highest bit.
const BIAS: i64 = 1 << 15;

/// The polynomial, reflected: bit i is the coefficient of x^(31-i).
const POLYNOMIAL: u32 = 0x82f6_3b78;

/// Shows that the processor has the vectors. Only [`Avx512::detect`] makes one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Avx512(());

impl Avx512 {
    #[inline]
    pub(super) fn detect() -> Option<Self> {
        let has_all = is_x86_feature_detected!("avx512f")
            && is_x86_feature_detected!("avx512bw")
            && is_x86_feature_detected!("avx512vnni")
            && is_x86_feature_detected!("vpclmulqdq")
            && is_x86_feature_detected!("pclmulqdq")
            && is_x86_feature_detected!("sse4.2");
        has_all.then_some(Avx512(()))
    }

    /// Returns the raw remainder `state` advanced over `bytes` bytes at `from`, and the sum of
    /// their 16-bit words in host order, an odd last byte with a zero behind it; with `COPIES`,
    /// also copies them to `to`.
    ///
    /// # Safety
    /// `from` is valid for reads and, with `COPIES`, `to` for writes of as many bytes.
    #[inline]
    pub(super) unsafe fn run<const COPIES: bool>(
        self,
        state: u32,
        from: *const u8,
        to: *mut u8,
        bytes: usize,
    ) -> (u32, u64) {
        // SAFETY: `self` exists only where `detect` found the instructions; the pointers by the
        // caller.
        unsafe { run::<COPIES>(state, from, to, bytes) }
    }
}

/// Returns x^`power` modulo the polynomial as the upper half of a reflected 64-bit word.
const fn power_of_x(power: u32) -> i64 {
    // x^0.
    let mut remainder = 1u32 << 31;
    let mut left = power;
    while left > 0 {
        remainder = (remainder >> 1) ^ if remainder & 1 == 1 { POLYNOMIAL } else { 0 };
        left -= 1;
    }
    (remainder as i64) << 32
}

/// The factors of the low and of the high word that carry a remainder over `bits` of message.
const fn factors(bits: u32) -> [i64; 2] {
    [power_of_x(bits + 63), power_of_x(bits - 1)]
}

const OVER_FOUR_VECTORS: [i64; 2] = factors(2048);
const OVER_A_VECTOR: [i64; 2] = factors(512);
const OVER_128_BITS: [i64; 2] = factors(128);

/// Both factors in each 128 bits.
#[target_feature(enable = "avx512f")]
#[inline]
fn broadcast([low, high]: [i64; 2]) -> __m512i {
    _mm512_set_epi64(high, low, high, low, high, low, high, low)
}

/// Carries the remainders over the bits of `factors` and adds `next`.
#[target_feature(enable = "avx512f,vpclmulqdq")]
#[inline]
fn fold(remainders: __m512i, factors: __m512i, next: __m512i) -> __m512i {
    let low = _mm512_clmulepi64_epi128::<0x00>(remainders, factors);
    let high = _mm512_clmulepi64_epi128::<0x11>(remainders, factors);
    // Exclusive or of all three.
    _mm512_ternarylogic_epi64::<0x96>(low, high, next)
}

/// Adds the 16-bit words of a vector, each less [`BIAS`], to sums of 32 bits. The instruction
/// multiplies signed words, so the bias makes them signed.
#[target_feature(enable = "avx512f,avx512vnni")]
#[inline]
fn add_words(sums: __m512i, vector: __m512i) -> __m512i {
    let signed = _mm512_xor_si512(vector, _mm512_set1_epi16(i16::MIN));
    _mm512_dpwssd_epi32(sums, signed, _mm512_set1_epi16(1))
}

/// Copies are stores alone: nothing is read back from the target, whose cache lines may still be on
/// their way from another core.
#[target_feature(enable = "avx512f,avx512bw,avx512vnni,vpclmulqdq,pclmulqdq,sse4.2")]
unsafe fn run<const COPIES: bool>(state: u32, from: *const u8, to: *mut u8, bytes: usize) -> (u32, u64) {
    let zero = _mm512_setzero_si512();
    let mut sums = [zero; 2];
    let vectors = bytes / VECTOR_BYTES;
    let (mut state, mut at) = (state, 0);
    if vectors >= LANES {
        let mut take = |at: usize, parity: usize| {
            // SAFETY: the caller's pointers have more vectors than `at`.
            let vector = unsafe { _mm512_loadu_si512(from.add(at * VECTOR_BYTES).cast()) };
            if COPIES {
                // SAFETY: as above.
                unsafe { _mm512_storeu_si512(to.add(at * VECTOR_BYTES).cast(), vector) };
            }
            sums[parity] = add_words(sums[parity], vector);
            vector
        };
        let mut remainders = [zero; LANES];
        for (lane, remainder) in remainders.iter_mut().enumerate() {
            *remainder = take(lane, lane & 1);
        }
        let first = _mm512_zextsi128_si512(_mm_cvtsi32_si128(state as i32));
        remainders[0] = _mm512_xor_si512(remainders[0], first);
        at = LANES;
        let over_all = broadcast(OVER_FOUR_VECTORS);
        while at + LANES <= vectors {
            for (lane, remainder) in remainders.iter_mut().enumerate() {
                *remainder = fold(*remainder, over_all, take(at + lane, lane & 1));
            }
            at += LANES;
        }
        let over_one = broadcast(OVER_A_VECTOR);
        let [first, second, third, fourth] = remainders;
        let mut one = fold(first, over_one, second);
        one = fold(one, over_one, third);
        one = fold(one, over_one, fourth);
        while at < vectors {
            one = fold(one, over_one, take(at, 0));
            at += 1;
        }
        state = reduce(one);
    }
    let mut done = at * VECTOR_BYTES;
    while done < bytes {
        let len = VECTOR_BYTES.min(bytes - done);
        // SAFETY: the caller's pointers have as many bytes.
        let vector = unsafe { take_part::<COPIES>(from.add(done), to.wrapping_add(done), len) };
        sums[0] = add_words(sums[0], vector);
        state = advance(state, vector, len);
        done += len;
    }
    (state, total(sums, bytes.div_ceil(VECTOR_BYTES)))
}

/// Loads, and with `COPIES` copies, the first `len` bytes of a vector, at least one. The others are
/// zero, and not accessed.
///
/// # Safety
/// As for [`run`].
#[target_feature(enable = "avx512f,avx512bw")]
#[inline]
unsafe fn take_part<const COPIES: bool>(from: *const u8, to: *mut u8, len: usize) -> __m512i {
    let mask = u64::MAX >> (VECTOR_BYTES - len);
    // SAFETY: the caller's pointers have the bytes of the mask.
    unsafe {
        let vector = _mm512_maskz_loadu_epi8(mask, from.cast());
        if COPIES {
            _mm512_mask_storeu_epi8(to.cast(), mask, vector);
        }
        vector
    }
}

/// Advances a raw remainder over the first `len` bytes of a vector.
#[target_feature(enable = "avx512f,sse4.2")]
#[inline]
fn advance(state: u32, vector: __m512i, len: usize) -> u32 {
    let mut bytes = [0; VECTOR_BYTES];
    // SAFETY: the array has the size of a vector. One store, from which each load below is taken.
    unsafe { _mm512_storeu_si512(bytes.as_mut_ptr().cast(), vector) };
    let (words, rest) = bytes.get(..len).unwrap_or_default().as_chunks::<8>();
    let mut state = u64::from(state);
    for word in words {
        state = _mm_crc32_u64(state, u64::from_le_bytes(*word));
    }
    let mut state = state as u32;
    let (halves, rest) = rest.as_chunks::<4>();
    if let [half] = halves {
        state = _mm_crc32_u32(state, u32::from_le_bytes(*half));
    }
    rest.iter().fold(state, |state, byte| _mm_crc32_u8(state, *byte))
}

/// Folds the four remainders of a vector into one and returns its 32-bit remainder.
#[target_feature(enable = "avx512f,pclmulqdq,sse4.2")]
#[inline]
fn reduce(remainders: __m512i) -> u32 {
    let quarters = [
        _mm512_extracti32x4_epi32::<0>(remainders),
        _mm512_extracti32x4_epi32::<1>(remainders),
        _mm512_extracti32x4_epi32::<2>(remainders),
        _mm512_extracti32x4_epi32::<3>(remainders),
    ];
    let [low, high] = OVER_128_BITS;
    let factors = _mm_set_epi64x(high, low);
    let mut one = quarters[0];
    for next in &quarters[1..] {
        one = fold_128(one, factors, *next);
    }
    let state = _mm_crc32_u64(0, _mm_cvtsi128_si64(one) as u64);
    _mm_crc32_u64(state, _mm_extract_epi64::<1>(one) as u64) as u32
}

#[target_feature(enable = "pclmulqdq")]
#[inline]
fn fold_128(remainder: __m128i, factors: __m128i, next: __m128i) -> __m128i {
    let low = _mm_clmulepi64_si128::<0x00>(remainder, factors);
    let high = _mm_clmulepi64_si128::<0x11>(remainder, factors);
    _mm_xor_si128(_mm_xor_si128(low, high), next)
}

/// Adds the lanes of the sums of so many vectors, and takes off their bias.
#[target_feature(enable = "avx512f")]
#[inline]
fn total([even, odd]: [__m512i; 2], vectors: usize) -> u64 {
    let signed = i64::from(_mm512_reduce_add_epi32(even)) + i64::from(_mm512_reduce_add_epi32(odd));
    let words = (vectors * VECTOR_BYTES / 2) as i64;
    (signed + words * BIAS) as u64
}
