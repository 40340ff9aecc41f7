//! The accesses under Miri: atomic bytes. Words are split too, since Miri reports a race between
//! atomics of two sizes. The byte that a placement publishes last is loaded first and stored last.
//! Locked instructions take a lock that other accesses do not take: they are atomic among
//! themselves, as on the machine.

use core::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Mutex, PoisonError};

use ironwarp_arch::one_pass::{CrcAndSum, Kernel};

use super::Faulted;

pub(super) unsafe fn copy_in(dst: *mut u8, src: &[u8]) -> Result<(), Faulted> {
    let Some((last, rest)) = src.split_last() else { return Ok(()) };
    for (at, byte) in rest.iter().enumerate() {
        // SAFETY: `at` is below the length, for which the caller vouches.
        unsafe { AtomicU8::from_ptr(dst.add(at)).store(*byte, Ordering::Relaxed) }
    }
    // SAFETY: as above.
    unsafe { AtomicU8::from_ptr(dst.add(rest.len())).store(*last, Ordering::Release) };
    Ok(())
}

pub(super) unsafe fn copy_out(dst: *mut u8, src: *const u8, len: usize) -> Result<(), Faulted> {
    for at in 0..len {
        // SAFETY: `at` is below `len`, for which the caller vouches on both sides.
        unsafe { dst.add(at).write(AtomicU8::from_ptr(src.add(at).cast_mut()).load(Ordering::Relaxed)) }
    }
    Ok(())
}

pub(super) unsafe fn copy_in_one_pass(
    kernel: Kernel,
    crc: u32,
    src: *const u8,
    dst: *mut u8,
    len: usize,
) -> Result<CrcAndSum, Faulted> {
    // SAFETY: the caller's promise.
    Ok(unsafe { kernel.copy(crc, src, dst, len) })
}

pub(super) unsafe fn fill(dst: *mut u8, byte: u8, len: usize) -> Result<(), Faulted> {
    for at in 0..len {
        // SAFETY: `at` is below `len`, for which the caller vouches.
        unsafe { AtomicU8::from_ptr(dst.add(at)).store(byte, Ordering::Relaxed) }
    }
    Ok(())
}

pub(super) unsafe fn load_u8(src: *mut u8) -> Result<u8, Faulted> {
    // SAFETY: passed on to the caller.
    Ok(unsafe { AtomicU8::from_ptr(src).load(Ordering::Acquire) })
}

pub(super) unsafe fn load_u64(src: *mut u8) -> Result<u64, Faulted> {
    let mut bytes = [0; 8];
    for (at, byte) in bytes.iter_mut().enumerate().rev() {
        // SAFETY: the caller vouches for 8 bytes.
        *byte = unsafe { AtomicU8::from_ptr(src.add(at)).load(Ordering::Acquire) };
    }
    Ok(u64::from_ne_bytes(bytes))
}

pub(super) unsafe fn store_u64(dst: *mut u8, value: u64) -> Result<(), Faulted> {
    for (at, byte) in value.to_ne_bytes().into_iter().enumerate() {
        // SAFETY: the caller vouches for 8 bytes.
        unsafe { AtomicU8::from_ptr(dst.add(at)).store(byte, Ordering::Release) }
    }
    Ok(())
}

static LOCKED: Mutex<()> = Mutex::new(());

unsafe fn locked(at: *mut u8, next: impl FnOnce(u64) -> Option<u64>) -> Result<u64, Faulted> {
    let _lock = LOCKED.lock().unwrap_or_else(PoisonError::into_inner);
    // SAFETY: passed on to the caller.
    let original = unsafe { load_u64(at) }?;
    if let Some(next) = next(original) {
        // SAFETY: passed on to the caller.
        unsafe { store_u64(at, next) }?;
    }
    Ok(original)
}

pub(super) unsafe fn locked_add_u64(at: *mut u8, add: u64) -> Result<u64, Faulted> {
    // SAFETY: passed on to the caller.
    unsafe { locked(at, |word| Some(word.wrapping_add(add))) }
}

pub(super) unsafe fn locked_swap_u64(at: *mut u8, value: u64) -> Result<u64, Faulted> {
    // SAFETY: passed on to the caller.
    unsafe { locked(at, |_| Some(value)) }
}

pub(super) unsafe fn locked_compare_exchange_u64(
    at: *mut u8,
    expected: u64,
    value: u64,
) -> Result<u64, Faulted> {
    // SAFETY: passed on to the caller.
    unsafe { locked(at, |word| (word == expected).then_some(value)) }
}
