//! The accesses on other processors: a fault ends the process. Routines are called through pointers
//! that are read volatile, so that the compiler knows nothing of them.

use core::sync::atomic::{AtomicU8, AtomicU64, Ordering};

use ironwarp_arch::one_pass::{CrcAndSum, Kernel};
use libc::{c_int, c_void, size_t};

use super::Faulted;

type Copy = unsafe extern "C" fn(*mut c_void, *const c_void, size_t) -> *mut c_void;
type Fill = unsafe extern "C" fn(*mut c_void, c_int, size_t) -> *mut c_void;
type CopyInOnePass = unsafe fn(Kernel, u32, *const u8, *mut u8, usize) -> CrcAndSum;

static COPY: Copy = libc::memcpy;
static FILL: Fill = libc::memset;
static COPY_IN_ONE_PASS: CopyInOnePass = Kernel::copy;

#[inline]
pub(super) unsafe fn copy_in(dst: *mut u8, src: &[u8]) -> Result<(), Faulted> {
    let Some((last, rest)) = src.split_last() else { return Ok(()) };
    // SAFETY: the caller vouches for `src.len()` bytes at `dst`, of which `rest` fills all but the
    // last.
    unsafe {
        copy_out(dst, rest.as_ptr(), rest.len())?;
        AtomicU8::from_ptr(dst.add(rest.len())).store(*last, Ordering::Release);
    }
    Ok(())
}

#[inline]
pub(super) unsafe fn copy_out(dst: *mut u8, src: *const u8, len: usize) -> Result<(), Faulted> {
    // SAFETY: the static is initialised; the rest is the caller's promise.
    unsafe { (&raw const COPY).read_volatile()(dst.cast(), src.cast(), len) };
    Ok(())
}

pub(super) unsafe fn copy_in_one_pass(
    kernel: Kernel,
    crc: u32,
    src: *const u8,
    dst: *mut u8,
    len: usize,
) -> Result<CrcAndSum, Faulted> {
    // SAFETY: the static is initialised; the rest is the caller's promise.
    Ok(unsafe { (&raw const COPY_IN_ONE_PASS).read_volatile()(kernel, crc, src, dst, len) })
}

pub(super) unsafe fn fill(dst: *mut u8, byte: u8, len: usize) -> Result<(), Faulted> {
    // SAFETY: the static is initialised; the rest is the caller's promise.
    unsafe { (&raw const FILL).read_volatile()(dst.cast(), c_int::from(byte), len) };
    Ok(())
}

#[inline]
pub(super) unsafe fn load_u8(src: *mut u8) -> Result<u8, Faulted> {
    // SAFETY: passed on to the caller; a byte is always aligned.
    Ok(unsafe { AtomicU8::from_ptr(src).load(Ordering::Acquire) })
}

#[inline]
pub(super) unsafe fn load_u64(src: *mut u8) -> Result<u64, Faulted> {
    // SAFETY: the caller promises a valid and aligned word.
    Ok(unsafe { AtomicU64::from_ptr(src.cast()).load(Ordering::Acquire) })
}

#[inline]
pub(super) unsafe fn store_u64(dst: *mut u8, value: u64) -> Result<(), Faulted> {
    // SAFETY: the caller promises a valid and aligned word.
    unsafe { AtomicU64::from_ptr(dst.cast()).store(value, Ordering::Release) };
    Ok(())
}

#[inline]
pub(super) unsafe fn locked_add_u64(at: *mut u8, add: u64) -> Result<u64, Faulted> {
    // SAFETY: the caller promises a valid and aligned word.
    Ok(unsafe { AtomicU64::from_ptr(at.cast()).fetch_add(add, Ordering::AcqRel) })
}

#[inline]
pub(super) unsafe fn locked_swap_u64(at: *mut u8, value: u64) -> Result<u64, Faulted> {
    // SAFETY: the caller promises a valid and aligned word.
    Ok(unsafe { AtomicU64::from_ptr(at.cast()).swap(value, Ordering::AcqRel) })
}

#[inline]
pub(super) unsafe fn locked_compare_exchange_u64(
    at: *mut u8,
    expected: u64,
    value: u64,
) -> Result<u64, Faulted> {
    // SAFETY: the caller promises a valid and aligned word.
    let word = unsafe { AtomicU64::from_ptr(at.cast()) };
    let done = word.compare_exchange(expected, value, Ordering::AcqRel, Ordering::Acquire);
    Ok(done.unwrap_or_else(|found| found))
}
