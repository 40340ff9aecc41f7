//! The only routines that access registered bytes.
//!
//! A remote peer, another core and the application may access the same bytes at the same time. With
//! a plain Rust copy that is a data race, which is undefined. So every access is done by machine
//! code that is opaque to the compiler: a few instructions in assembler, or the C library's
//! `memcpy` behind them. The compiler must assume that it does anything permitted, such as a copy
//! by relaxed atomic bytes. A racing reader may see any mixture of old and new bytes, and nothing
//! worse. Under Miri the copies are relaxed atomic bytes.
//!
//! The memory may also be gone, if its owner is a program that made a mistake. On x86-64 the fault
//! of an access is [`Faulted`] if the process catches it ([`guard`](crate::guard)): some of the
//! bytes were copied then. Elsewhere, and without the guard, the system ends the process.
//!
//! Cost: a call of some 15 instructions up to 128 bytes; beyond that, memcpy and some 20
//! instructions.

#[cfg(miri)]
#[path = "miri.rs"]
mod machine;
#[cfg(all(not(miri), not(all(target_arch = "x86_64", target_os = "linux"))))]
#[path = "portable.rs"]
mod machine;
#[cfg(all(not(miri), target_arch = "x86_64", target_os = "linux"))]
#[path = "x86_64.rs"]
mod machine;

use ironwarp_arch::one_pass::{CrcAndSum, Kernel};

#[cfg(all(not(miri), target_arch = "x86_64", target_os = "linux"))]
pub(crate) use machine::{Interrupted, abandon, thread_mark};

/// The memory of an access is not there, or not with the right. A part of the access may have taken
/// place.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Faulted;

/// Copies `src` to `dst`: all but the last byte in any order, then the last byte with release
/// ordering.
///
/// A reader that loads the last byte with acquire ordering, and sees the new value, sees the other
/// bytes too.
///
/// # Safety
/// `dst` must be valid for writes of `src.len()` bytes, which are accessed only through this module
/// meanwhile.
#[inline]
pub(crate) unsafe fn copy_in(dst: *mut u8, src: &[u8]) -> Result<(), Faulted> {
    // SAFETY: the caller vouches for `src.len()` bytes at `dst`. They do not overlap `src`: a
    // reference to registered bytes cannot exist.
    unsafe { machine::copy_in(dst, src) }
}

/// Copies from `src` until `dst` is full.
///
/// # Safety
/// `src` must be valid for reads of `dst.len()` bytes, which are accessed only through this module
/// meanwhile.
#[inline]
pub(crate) unsafe fn copy_out(src: *const u8, dst: &mut [u8]) -> Result<(), Faulted> {
    // SAFETY: the caller vouches for the source; `dst` is exclusively borrowed, so it is no
    // registered memory.
    unsafe { machine::copy_out(dst.as_mut_ptr(), src, dst.len()) }
}

/// [`copy_out`] that also returns the CRC of the bytes of `crc` followed by the copied ones, and
/// their sum.
///
/// # Safety
/// As for [`copy_out`].
#[inline]
pub(crate) unsafe fn copy_out_in_one_pass(
    src: *const u8,
    dst: &mut [u8],
    (kernel, crc): (Kernel, u32),
) -> Result<CrcAndSum, Faulted> {
    // SAFETY: as in `copy_out`.
    unsafe { machine::copy_in_one_pass(kernel, crc, src, dst.as_mut_ptr(), dst.len()) }
}

/// Sets `len` bytes at `dst` to `byte`.
///
/// # Safety
/// As for [`copy_in`], with `len` bytes.
#[inline]
pub(crate) unsafe fn fill(dst: *mut u8, byte: u8, len: usize) -> Result<(), Faulted> {
    // SAFETY: passed on to the caller.
    unsafe { machine::fill(dst, byte, len) }
}

/// Loads one byte with acquire ordering.
///
/// # Safety
/// `src` must be valid for reads of one byte, accessed only through this module meanwhile.
#[inline]
pub(crate) unsafe fn load_u8(src: *mut u8) -> Result<u8, Faulted> {
    // SAFETY: passed on to the caller; a byte is always aligned.
    unsafe { machine::load_u8(src) }
}

/// Loads an aligned word in one piece, with acquire ordering.
///
/// # Safety
/// `src` must be a multiple of 8 and valid for reads of 8 bytes, accessed only through this module
/// meanwhile.
#[inline]
pub(crate) unsafe fn load_u64(src: *mut u8) -> Result<u64, Faulted> {
    // SAFETY: passed on to the caller.
    unsafe { machine::load_u64(src) }
}

/// Stores an aligned word in one piece, with release ordering.
///
/// # Safety
/// As for [`load_u64`], and valid for writes.
#[inline]
pub(crate) unsafe fn store_u64(dst: *mut u8, value: u64) -> Result<(), Faulted> {
    // SAFETY: passed on to the caller.
    unsafe { machine::store_u64(dst, value) }
}

/// Adds to an aligned word with one locked instruction. Wraps. Returns the value before.
///
/// # Safety
/// As for [`store_u64`].
#[inline]
pub(crate) unsafe fn locked_add_u64(at: *mut u8, add: u64) -> Result<u64, Faulted> {
    // SAFETY: passed on to the caller.
    unsafe { machine::locked_add_u64(at, add) }
}

/// Replaces an aligned word with one locked instruction. Returns the value before.
///
/// # Safety
/// As for [`store_u64`].
#[inline]
pub(crate) unsafe fn locked_swap_u64(at: *mut u8, value: u64) -> Result<u64, Faulted> {
    // SAFETY: passed on to the caller.
    unsafe { machine::locked_swap_u64(at, value) }
}

/// Replaces an aligned word if it is `expected`, with one locked instruction. Returns the value
/// before, which is `expected` if it was replaced.
///
/// # Safety
/// As for [`store_u64`].
#[inline]
pub(crate) unsafe fn locked_compare_exchange_u64(
    at: *mut u8,
    expected: u64,
    value: u64,
) -> Result<u64, Faulted> {
    // SAFETY: passed on to the caller.
    unsafe { machine::locked_compare_exchange_u64(at, expected, value) }
}
