//! The only routines that access registered bytes.
//!
//! A remote peer, another core and the application may access the same bytes at the same time. With a plain Rust
//! copy that is a data race, which is undefined. So the copy is done by machine code that is opaque to the compiler:
//! the C library's `memcpy`, or one that takes a CRC on the way, called through a function pointer that is read volatile. The compiler must assume that
//! the function does anything permitted, such as a copy by relaxed atomic bytes. A racing reader may see any mixture
//! of old and new bytes, and nothing worse. Under Miri the copies are relaxed atomic bytes.
//!
//! Cost: memcpy plus one load and one well-predicted indirect call.

use core::sync::atomic::{AtomicU8, Ordering};

use ironwarp_arch::one_pass::{CrcAndSum, Kernel};

/// Copies `src` to `dst`: all but the last byte in any order, then the last byte with release ordering.
///
/// A reader that loads the last byte with acquire ordering, and sees the new value, sees the other bytes too.
///
/// # Safety
/// `dst` must be valid for writes of `src.len()` bytes, which are accessed only through this module meanwhile.
#[inline]
pub(crate) unsafe fn copy_in(dst: *mut u8, src: &[u8]) {
    let Some((last, rest)) = src.split_last() else { return };
    // SAFETY: the caller vouches for `src.len()` bytes at `dst`, of which `rest` fills all but the last. They do not
    // overlap `src`: a reference to registered bytes cannot exist.
    unsafe {
        opaque::copy(dst, rest.as_ptr(), rest.len());
        AtomicU8::from_ptr(dst.add(rest.len())).store(*last, Ordering::Release);
    }
}

/// Copies from `src` until `dst` is full.
///
/// # Safety
/// `src` must be valid for reads of `dst.len()` bytes, which are accessed only through this module meanwhile.
#[inline]
pub(crate) unsafe fn copy_out(src: *const u8, dst: &mut [u8]) {
    // SAFETY: the caller vouches for the source; `dst` is exclusively borrowed, so it is no registered memory.
    unsafe { opaque::copy_out(dst.as_mut_ptr(), src, dst.len()) }
}

/// [`copy_out`] that also returns the CRC of the bytes of `crc` followed by the copied ones, and their sum.
///
/// # Safety
/// As for [`copy_out`].
#[inline]
pub(crate) unsafe fn copy_out_in_one_pass(
    src: *const u8,
    dst: &mut [u8],
    (kernel, crc): (Kernel, u32),
) -> CrcAndSum {
    // SAFETY: as in `copy_out`.
    unsafe { opaque::copy_in_one_pass(kernel, crc, src, dst.as_mut_ptr(), dst.len()) }
}

/// Sets `len` bytes at `dst` to `byte`.
///
/// # Safety
/// As for [`copy_in`], with `len` bytes.
#[inline]
pub(crate) unsafe fn fill(dst: *mut u8, byte: u8, len: usize) {
    // SAFETY: passed on to the caller.
    unsafe { opaque::fill(dst, byte, len) }
}

/// Loads one byte with acquire ordering.
///
/// # Safety
/// `src` must be valid for reads of one byte, accessed only through this module meanwhile.
#[inline]
pub(crate) unsafe fn load_u8(src: *mut u8) -> u8 {
    // SAFETY: passed on to the caller; a byte is always aligned.
    unsafe { AtomicU8::from_ptr(src).load(Ordering::Acquire) }
}

/// Loads an aligned word in one piece, with acquire ordering.
///
/// # Safety
/// `src` must be a multiple of 8 and valid for reads of 8 bytes, accessed only through this module meanwhile.
#[inline]
pub(crate) unsafe fn load_u64(src: *mut u8) -> u64 {
    // SAFETY: passed on to the caller.
    unsafe { opaque::load_u64(src) }
}

/// Stores an aligned word in one piece, with release ordering.
///
/// # Safety
/// As for [`load_u64`], and valid for writes.
#[inline]
pub(crate) unsafe fn store_u64(dst: *mut u8, value: u64) {
    // SAFETY: passed on to the caller.
    unsafe { opaque::store_u64(dst, value) }
}

/// Adds to an aligned word with one locked instruction. Wraps. Returns the value before.
///
/// # Safety
/// As for [`store_u64`].
#[inline]
pub(crate) unsafe fn locked_add_u64(at: *mut u8, add: u64) -> u64 {
    // SAFETY: passed on to the caller.
    unsafe { opaque::locked_add_u64(at, add) }
}

/// Replaces an aligned word with one locked instruction. Returns the value before.
///
/// # Safety
/// As for [`store_u64`].
#[inline]
pub(crate) unsafe fn locked_swap_u64(at: *mut u8, value: u64) -> u64 {
    // SAFETY: passed on to the caller.
    unsafe { opaque::locked_swap_u64(at, value) }
}

/// Replaces an aligned word if it is `expected`, with one locked instruction. Returns the value before: `Ok` if it
/// was replaced.
///
/// # Safety
/// As for [`store_u64`].
#[inline]
pub(crate) unsafe fn locked_compare_exchange_u64(at: *mut u8, expected: u64, value: u64) -> Result<u64, u64> {
    // SAFETY: passed on to the caller.
    unsafe { opaque::locked_compare_exchange_u64(at, expected, value) }
}

#[cfg(not(miri))]
mod opaque {
    use super::{CrcAndSum, Kernel};
    use core::sync::atomic::{AtomicU64, Ordering};
    use libc::{c_int, c_void, size_t};

    type Copy = unsafe extern "C" fn(*mut c_void, *const c_void, size_t) -> *mut c_void;
    type Fill = unsafe extern "C" fn(*mut c_void, c_int, size_t) -> *mut c_void;

    static COPY: Copy = libc::memcpy;
    static FILL: Fill = libc::memset;

    #[inline]
    pub(super) unsafe fn copy(dst: *mut u8, src: *const u8, len: usize) {
        // SAFETY: the static is initialised; the rest is the caller's promise.
        unsafe {
            let copy = (&raw const COPY).read_volatile();
            copy(dst.cast(), src.cast(), len);
        }
    }

    pub(super) use copy as copy_out;

    type CopyInOnePass = unsafe fn(Kernel, u32, *const u8, *mut u8, usize) -> CrcAndSum;

    static COPY_IN_ONE_PASS: CopyInOnePass = Kernel::copy;

    pub(super) unsafe fn copy_in_one_pass(
        kernel: Kernel,
        crc: u32,
        src: *const u8,
        dst: *mut u8,
        len: usize,
    ) -> CrcAndSum {
        // SAFETY: the static is initialised; the rest is the caller's promise.
        unsafe { (&raw const COPY_IN_ONE_PASS).read_volatile()(kernel, crc, src, dst, len) }
    }

    #[inline]
    pub(super) unsafe fn fill(dst: *mut u8, byte: u8, len: usize) {
        // SAFETY: the static is initialised; the rest is the caller's promise.
        unsafe {
            let fill = (&raw const FILL).read_volatile();
            fill(dst.cast(), c_int::from(byte), len);
        }
    }

    #[inline]
    pub(super) unsafe fn load_u64(src: *mut u8) -> u64 {
        // SAFETY: the caller promises a valid and aligned word.
        unsafe { AtomicU64::from_ptr(src.cast()).load(Ordering::Acquire) }
    }

    #[inline]
    pub(super) unsafe fn store_u64(dst: *mut u8, value: u64) {
        // SAFETY: the caller promises a valid and aligned word.
        unsafe { AtomicU64::from_ptr(dst.cast()).store(value, Ordering::Release) }
    }

    #[inline]
    pub(super) unsafe fn locked_add_u64(at: *mut u8, add: u64) -> u64 {
        // SAFETY: the caller promises a valid and aligned word.
        unsafe { AtomicU64::from_ptr(at.cast()).fetch_add(add, Ordering::AcqRel) }
    }

    #[inline]
    pub(super) unsafe fn locked_swap_u64(at: *mut u8, value: u64) -> u64 {
        // SAFETY: the caller promises a valid and aligned word.
        unsafe { AtomicU64::from_ptr(at.cast()).swap(value, Ordering::AcqRel) }
    }

    #[inline]
    pub(super) unsafe fn locked_compare_exchange_u64(
        at: *mut u8,
        expected: u64,
        value: u64,
    ) -> Result<u64, u64> {
        // SAFETY: the caller promises a valid and aligned word.
        let word = unsafe { AtomicU64::from_ptr(at.cast()) };
        word.compare_exchange(expected, value, Ordering::AcqRel, Ordering::Acquire)
    }
}

/// The same with atomic bytes. Words are split too, since Miri reports a race between atomics of two sizes. The byte
/// that a placement publishes last is loaded first and stored last. Locked instructions take a lock that other
/// accesses do not take: they are atomic among themselves, as on the machine.
#[cfg(miri)]
mod opaque {
    use core::sync::atomic::{AtomicU8, Ordering};

    pub(super) unsafe fn copy(dst: *mut u8, src: *const u8, len: usize) {
        for at in 0..len {
            // SAFETY: `at` is below `len`, for which the caller vouches on both sides.
            unsafe { AtomicU8::from_ptr(dst.add(at)).store(src.add(at).read(), Ordering::Relaxed) }
        }
    }

    pub(super) unsafe fn copy_out(dst: *mut u8, src: *const u8, len: usize) {
        for at in 0..len {
            // SAFETY: `at` is below `len`, for which the caller vouches on both sides.
            unsafe { dst.add(at).write(AtomicU8::from_ptr(src.add(at).cast_mut()).load(Ordering::Relaxed)) }
        }
    }

    pub(super) unsafe fn copy_in_one_pass(
        kernel: super::Kernel,
        crc: u32,
        src: *const u8,
        dst: *mut u8,
        len: usize,
    ) -> super::CrcAndSum {
        // SAFETY: the caller's promise.
        unsafe { kernel.copy(crc, src, dst, len) }
    }

    pub(super) unsafe fn fill(dst: *mut u8, byte: u8, len: usize) {
        for at in 0..len {
            // SAFETY: `at` is below `len`, for which the caller vouches.
            unsafe { AtomicU8::from_ptr(dst.add(at)).store(byte, Ordering::Relaxed) }
        }
    }

    pub(super) unsafe fn load_u64(src: *mut u8) -> u64 {
        let mut bytes = [0; 8];
        for (at, byte) in bytes.iter_mut().enumerate().rev() {
            // SAFETY: the caller vouches for 8 bytes.
            *byte = unsafe { AtomicU8::from_ptr(src.add(at)).load(Ordering::Acquire) };
        }
        u64::from_ne_bytes(bytes)
    }

    pub(super) unsafe fn store_u64(dst: *mut u8, value: u64) {
        for (at, byte) in value.to_ne_bytes().into_iter().enumerate() {
            // SAFETY: the caller vouches for 8 bytes.
            unsafe { AtomicU8::from_ptr(dst.add(at)).store(byte, Ordering::Release) }
        }
    }

    static LOCKED: std::sync::Mutex<()> = std::sync::Mutex::new(());

    unsafe fn locked(at: *mut u8, next: impl FnOnce(u64) -> Option<u64>) -> (u64, bool) {
        let _lock = LOCKED.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        // SAFETY: passed on to the caller.
        let original = unsafe { load_u64(at) };
        let next = next(original);
        if let Some(next) = next {
            // SAFETY: passed on to the caller.
            unsafe { store_u64(at, next) }
        }
        (original, next.is_some())
    }

    pub(super) unsafe fn locked_add_u64(at: *mut u8, add: u64) -> u64 {
        // SAFETY: passed on to the caller.
        unsafe { locked(at, |word| Some(word.wrapping_add(add))) }.0
    }

    pub(super) unsafe fn locked_swap_u64(at: *mut u8, value: u64) -> u64 {
        // SAFETY: passed on to the caller.
        unsafe { locked(at, |_| Some(value)) }.0
    }

    pub(super) unsafe fn locked_compare_exchange_u64(
        at: *mut u8,
        expected: u64,
        value: u64,
    ) -> Result<u64, u64> {
        // SAFETY: passed on to the caller.
        match unsafe { locked(at, |word| (word == expected).then_some(value)) } {
            (original, true) => Ok(original),
            (original, false) => Err(original),
        }
    }
}
