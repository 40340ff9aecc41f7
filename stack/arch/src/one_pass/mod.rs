//! CRC-32C and the Internet checksum of long pieces in one pass, with or without a copy.
//!
//! A receiver verifies TCP's checksum and the CRC of an FPDU over the same bytes, and a sender
//! copies the payload, then computes both. Each pass alone reads the bytes again from a cache that
//! they may have left. One pass needs a processor with AVX-512 and VPCLMULQDQ; [`Kernel::detect`]
//! returns `None` elsewhere, and the caller uses [`crc32c_append`] and [`checksum::sum`].

#[cfg(test)]
mod tests;
#[cfg(all(target_arch = "x86_64", not(miri)))]
mod x86;

use crate::checksum;
use crate::crc32c_append;

/// Shorter pieces take two passes.
pub const BYTES_MIN: usize = 256;

/// The CRC-32C and the sum of a piece.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CrcAndSum {
    /// As [`crc32c_append`] returns it.
    pub crc: u32,
    /// As [`checksum::sum`] returns it, at most 0xffff.
    pub sum: u32,
}

/// The CRC-32C of the first bytes of a piece, computed in the pass that verified its checksum.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct PrefixCrc {
    /// How many bytes; 0: the CRC was not computed.
    pub bytes: u32,
    /// The CRC, as [`crc32c`](crate::crc32c) returns it.
    pub crc: u32,
}

/// Returns the CRC-32C of a short piece of whole words, and the sum of `front`, the piece and that
/// CRC behind it, least significant byte first. It reads the piece once if the processor has the
/// `crc32` instruction.
///
/// ```
/// use ironwarp_arch::one_pass::seal_short;
/// use ironwarp_arch::{checksum, crc32c};
/// let both = seal_short(&[*b"FPDU"]);
/// assert_eq!(both.crc, crc32c(b"FPDU"));
/// let whole = [*b"FPDU", both.crc.to_le_bytes()];
/// assert_eq!(both.sum, u32::from(checksum::fold(checksum::sum(whole.as_flattened()))));
/// ```
#[inline(always)]
pub fn seal_short(piece: &[[u8; 4]]) -> CrcAndSum {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    if let Some(sse42) = crate::crc32c::x86::Sse42::detect() {
        return sse42.crc_and_sum::<0, true>(&[], piece, 0);
    }
    let crc = crc32c_append(0, piece.as_flattened());
    in_two_passes(&[], piece.as_flattened(), crc)
}

/// Returns the CRC-32C of a short piece of whole words, and the sum of `front`, the piece and the
/// four bytes `field` behind it. It reads the piece once if the processor has the `crc32`
/// instruction.
///
/// ```
/// use ironwarp_arch::one_pass::open_short;
/// use ironwarp_arch::{checksum, crc32c};
/// let both = open_short(&[*b"TCP."], &[*b"FPDU"], *b"CRC.");
/// assert_eq!(both.crc, crc32c(b"FPDU"));
/// assert_eq!(both.sum, u32::from(checksum::fold(checksum::sum(b"TCP.FPDUCRC."))));
/// ```
#[inline(always)]
pub fn open_short<const FRONT: usize>(
    front: &[[u8; 4]; FRONT],
    piece: &[[u8; 4]],
    field: [u8; 4],
) -> CrcAndSum {
    let field = u32::from_le_bytes(field);
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    if let Some(sse42) = crate::crc32c::x86::Sse42::detect() {
        return sse42.crc_and_sum::<FRONT, false>(front, piece, field);
    }
    in_two_passes(front.as_flattened(), piece.as_flattened(), field)
}

#[inline(never)]
fn in_two_passes(front: &[u8], bytes: &[u8], field: u32) -> CrcAndSum {
    let sum = checksum::sum(front) + checksum::sum(bytes) + checksum::sum(&field.to_le_bytes());
    CrcAndSum { crc: crc32c_append(0, bytes), sum: checksum::fold(sum).into() }
}

/// The processor's means for one pass.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Kernel {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    avx512: x86::Avx512,
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    none: core::convert::Infallible,
}

impl Kernel {
    /// Returns the kernel, if the processor has one.
    #[inline]
    pub fn detect() -> Option<Self> {
        #[cfg(all(target_arch = "x86_64", not(miri)))]
        return x86::Avx512::detect().map(|avx512| Kernel { avx512 });
        #[cfg(not(all(target_arch = "x86_64", not(miri))))]
        None
    }

    /// Returns the CRC of the bytes of `crc` followed by `bytes`, and the sum of `bytes`.
    #[inline]
    pub fn read(self, crc: u32, bytes: &[u8]) -> CrcAndSum {
        // SAFETY: the bytes are borrowed; nothing is written.
        unsafe { self.run::<false>(crc, bytes.as_ptr(), core::ptr::null_mut(), bytes.len()) }
    }

    /// Copies `bytes` bytes and returns the CRC of the bytes of `crc` followed by them, and their
    /// sum. Other threads may change the source meanwhile: the results are those of the bytes that
    /// were copied.
    ///
    /// # Safety
    /// `from` is valid for reads and `to` for writes of `bytes` bytes, and they do not overlap.
    #[inline]
    pub unsafe fn copy(self, crc: u32, from: *const u8, to: *mut u8, bytes: usize) -> CrcAndSum {
        // SAFETY: by the caller.
        unsafe { self.run::<true>(crc, from, to, bytes) }
    }

    /// # Safety
    /// The pointers are valid for `bytes` bytes; `to` is only used with `COPIES`.
    #[inline]
    unsafe fn run<const COPIES: bool>(
        self,
        crc: u32,
        from: *const u8,
        to: *mut u8,
        bytes: usize,
    ) -> CrcAndSum {
        #[cfg(all(target_arch = "x86_64", not(miri)))]
        {
            // SAFETY: by the caller.
            let (state, sum) = unsafe { self.avx512.run::<COPIES>(!crc, from, to, bytes) };
            CrcAndSum { crc: !state, sum: checksum::network_sum(sum) }
        }
        #[cfg(not(all(target_arch = "x86_64", not(miri))))]
        {
            let _ = (crc, from, to, bytes);
            match self.none {}
        }
    }
}
