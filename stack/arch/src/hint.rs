//! Hints to the processor. They change when something happens, never what.

/// Asks for the first cache line of `what`, which will be read soon.
///
/// Pays when the line lies beyond the second-level cache and other work is there to be done meanwhile. Does nothing
/// on a processor other than x86-64.
#[inline(always)]
pub fn prefetch_read<T: ?Sized>(what: &T) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    {
        use core::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        // SAFETY: a prefetch of any address is allowed, and this one comes from a reference. SSE is part of x86-64.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(core::ptr::from_ref(what).cast()) }
    }
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    let _ = what;
}

/// Asks for the first cache line of `what`, which this core will write soon: the copies that others have are given up meanwhile.
///
/// Pays when another core has read the line since and other work is there to be done meanwhile. Does nothing on a processor
/// other than x86-64.
#[inline(always)]
pub fn prefetch_write<T: ?Sized>(what: &T) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    // SAFETY: a prefetch of any address is allowed and changes no memory. A processor of this family without it takes it for a
    // no-op. The compiler would make a plain prefetch of the intrinsic, unless told that every processor has this one.
    unsafe {
        core::arch::asm!("prefetchw [{}]", in(reg) core::ptr::from_ref(what).cast::<u8>(), options(nostack, preserves_flags, readonly));
    }
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    let _ = what;
}

/// Hands the first cache line of `what`, which this core has just written, to the cache that all cores share: another core, which
/// reads it next, finds it there sooner.
///
/// Pays when somebody waits for the line. Does nothing on a processor that does not know it, or other than x86-64.
#[inline(always)]
pub fn demote_line<T: ?Sized>(what: &T) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    // SAFETY: a hint about an address that comes from a reference; it changes no memory. Its encoding has been a no-op since before
    // the processors of this family had it.
    unsafe {
        core::arch::asm!("cldemote [{}]", in(reg) core::ptr::from_ref(what).cast::<u8>(), options(nostack, preserves_flags, readonly));
    }
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    let _ = what;
}

/// Tells the processor that this thread waits in a loop: saves power and leaves a sibling thread the core.
#[inline(always)]
pub fn spin_hint() {
    core::hint::spin_loop();
}
