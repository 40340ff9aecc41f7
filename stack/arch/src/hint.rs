//! Hints to the processor. They change timing only, never results.

#[cfg(all(target_arch = "x86_64", not(miri)))]
const CACHE_LINE_BYTES: usize = 64;

/// Prefetches the first cache line of `what` for reading.
///
/// Useful if the line is not in the second-level cache and other work is available meanwhile. No
/// effect on a processor other than x86-64.
#[inline(always)]
pub fn prefetch_read<T: ?Sized>(what: &T) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    {
        use core::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        // SAFETY: a prefetch of any address is allowed, and this one comes from a reference. SSE is
        // part of x86-64.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(core::ptr::from_ref(what).cast()) }
    }
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    let _ = what;
}

/// Prefetches the cache line at an address for reading, which may lie anywhere. For memory that
/// another process writes: there is no reference to it.
#[inline(always)]
pub fn prefetch_address(address: *const u8) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    {
        use core::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        // SAFETY: a prefetch of any address is allowed. SSE is part of x86-64.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(address.cast()) }
    }
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    let _ = address;
}

/// Prefetches every cache line of `what` for reading. Costs an instruction for each line.
#[inline(always)]
pub fn prefetch_read_all<T>(what: &T) {
    prefetch_read_first::<T, { usize::MAX }>(what);
}

/// [`prefetch_read_all`] of the first `BYTES` bytes, or of all if there are fewer.
#[inline(always)]
pub fn prefetch_read_first<T, const BYTES: usize>(what: &T) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    for line in (0..size_of::<T>().min(BYTES)).step_by(CACHE_LINE_BYTES) {
        use core::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        // SAFETY: a prefetch of any address is allowed, and this one lies in a value. SSE is part
        // of x86-64.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(core::ptr::from_ref(what).cast::<i8>().wrapping_add(line)) }
    }
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    let _ = what;
}

/// Prefetches the first cache line of `what` for writing: copies of other cores are invalidated
/// meanwhile.
///
/// Useful if another core has read the line and other work is available meanwhile. No effect on a
/// processor other than x86-64.
#[inline(always)]
pub fn prefetch_write<T: ?Sized>(what: &T) {
    prefetch_address_for_write(core::ptr::from_ref(what).cast());
}

/// [`prefetch_write`] of the cache line at an address, which may lie anywhere.
#[inline(always)]
pub fn prefetch_address_for_write(address: *const u8) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    // SAFETY: a prefetch of any address is allowed and changes no memory. A processor without this
    // one treats it as a no-op. The compiler would replace the intrinsic by a plain prefetch unless
    // the function enables the feature.
    unsafe {
        core::arch::asm!("prefetchw [{}]", in(reg) address, options(nostack, preserves_flags, readonly));
    }
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    let _ = address;
}

/// Moves the first cache line of `what`, which this core has just written, to the shared cache,
/// where another core finds it sooner.
///
/// Useful if another core waits for the line. No effect on a processor without the instruction, or
/// other than x86-64.
#[inline(always)]
pub fn demote_line<T: ?Sized>(what: &T) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    // SAFETY: a hint about an address that comes from a reference; it changes no memory. Its
    // encoding has been a no-op since before the processors of this family had it.
    unsafe {
        core::arch::asm!("cldemote [{}]", in(reg) core::ptr::from_ref(what).cast::<u8>(), options(nostack, preserves_flags, readonly));
    }
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    let _ = what;
}

/// Tells the processor that this thread spins: saves power and leaves resources to a sibling
/// thread.
#[inline(always)]
pub fn spin_hint() {
    core::hint::spin_loop();
}
