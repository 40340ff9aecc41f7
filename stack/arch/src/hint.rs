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

/// Tells the processor that this thread waits in a loop: saves power and leaves a sibling thread the core.
#[inline(always)]
pub fn spin_hint() {
    core::hint::spin_loop();
}
