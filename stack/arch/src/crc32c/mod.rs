//! CRC-32C (Castagnoli), the CRC of MPA's FPDUs (RFC 5044 s4.4; polynomial and vectors in
//! RFC 3720 s12.1 and B.4).
//!
//! Takes bytes and gives the finished CRC; stored little-endian it is the value on the wire. Cannot
//! fail.
//!
//! Short inputs (headers, small messages) use one lane of the `crc32` instruction. Longer ones use
//! `crc-fast`, which folds with carry-less multiplication. Cost, hot: 3 ns for 64 B, 31 ns for 1460
//! B, 131 ns for 8 KiB.

mod portable;
#[cfg(test)]
mod tests;
#[cfg(all(target_arch = "x86_64", not(miri)))]
pub(crate) mod x86;

use crc_fast::{CrcAlgorithm, Digest};

use crate::one_pass::Kernel;

/// Up to this length one lane of the instruction is faster than folding, which has a set-up and a
/// last reduction.
#[cfg(not(miri))]
const ONE_LANE_BYTES_MAX: usize = 256;

/// Returns the CRC-32C of `bytes`.
///
/// ```
/// assert_eq!(ironwarp_arch::crc32c(b"123456789"), 0xe306_9283);
/// ```
#[inline(always)]
pub fn crc32c(bytes: &[u8]) -> u32 {
    crc32c_append(0, bytes)
}

/// Returns the CRC-32C of the bytes of `crc` followed by `bytes`. Start with 0.
///
/// ```
/// use ironwarp_arch::{crc32c, crc32c_append};
/// assert_eq!(crc32c_append(crc32c(b"1234"), b"56789"), crc32c(b"123456789"));
/// ```
#[inline(always)]
pub fn crc32c_append(crc: u32, bytes: &[u8]) -> u32 {
    !advance(Means::available(), !crc, bytes)
}

/// The capabilities of the processor.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Means {
    /// The `crc32` instruction, and whatever `crc-fast` finds for long inputs.
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    Instruction(x86::Sse42),
    /// Tables for short inputs, `crc-fast` with its own choice for long ones.
    #[cfg(not(miri))]
    Folding,
    /// Tables.
    #[cfg(any(test, miri))]
    Tables,
    /// `crc-fast` as it continues a CRC where there is no [`Kernel`].
    #[cfg(all(test, not(miri)))]
    Digest,
}

impl Means {
    #[inline]
    fn available() -> Self {
        #[cfg(miri)]
        return Means::Tables;
        #[cfg(all(not(miri), target_arch = "x86_64"))]
        if let Some(sse42) = x86::Sse42::detect() {
            return Means::Instruction(sse42);
        }
        #[cfg(not(miri))]
        Means::Folding
    }
}

/// Advances the raw remainder `state` over `bytes`. A short input costs one call and no more.
#[inline(always)]
fn advance(means: Means, state: u32, bytes: &[u8]) -> u32 {
    match means {
        #[cfg(all(target_arch = "x86_64", not(miri)))]
        Means::Instruction(sse42) if bytes.len() <= ONE_LANE_BYTES_MAX => sse42.advance(state, bytes),
        _ => advance_otherwise(means, state, bytes),
    }
}

/// [`advance`] over a long input, or without the instruction.
#[inline(never)]
fn advance_otherwise(means: Means, state: u32, bytes: &[u8]) -> u32 {
    match means {
        #[cfg(any(test, miri))]
        Means::Tables => portable::advance(state, bytes),
        #[cfg(not(miri))]
        Means::Folding if bytes.len() <= ONE_LANE_BYTES_MAX => portable::advance(state, bytes),
        #[cfg(all(test, not(miri)))]
        Means::Digest => digest(state, bytes),
        #[allow(unreachable_patterns, reason = "which arms are left depends on the target")]
        _ => fold(state, bytes),
    }
}

#[inline]
fn fold(state: u32, bytes: &[u8]) -> u32 {
    // The start of a CRC. Tuning: a digest is a copy of some 300 bytes of parameters.
    if state == u32::MAX {
        return !crc_fast::crc32_iscsi(bytes);
    }
    match Kernel::detect() {
        Some(kernel) => !kernel.read(!state, bytes).crc,
        None => digest(state, bytes),
    }
}

fn digest(state: u32, bytes: &[u8]) -> u32 {
    let mut digest = Digest::new_with_init_state(CrcAlgorithm::Crc32Iscsi, u64::from(state));
    digest.update(bytes);
    // The digest ends with an inversion; undoing it gives the raw remainder.
    !(digest.finalize() as u32)
}
