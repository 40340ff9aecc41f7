//! The C face of the stack: what `include/ironwarp.h` declares.
//!
//! Each function is a thin skin over one call of the crate `ironwarp`: it checks its pointers, finds the object behind
//! its handle, converts, calls, and turns what went wrong into a number. `docs/embedding.md` is the page for users.
//!
//! Takes: pointers that are null or good for what the header says, handles that this library gave out, numbers of any
//! value. Gives: 0 or a count, or a negative `IW_E_*`; nothing unwinds into the caller. Cost: one compare-and-swap and a
//! few compares a call over the Rust one; posting converts 32 requests at a time on the stack, and allocates nothing.
#![allow(non_camel_case_types, reason = "the names are C's")]
#![allow(unsafe_code)]

#[cfg(panic = "abort")]
compile_error!("panics must unwind, so that they can be stopped at the boundary");

#[macro_use]
mod boundary;
mod host;
mod objects;

/// What this header describes: the upper 16 bits change with a release that programs must be compiled again for, the lower
/// ones with a release that only adds something.
pub const IW_ABI_VERSION: u32 = 1 << 16;

/// The `IW_ABI_VERSION` of the library that runs. A program goes on if the upper 16 bits are those of its header and the
/// lower ones no less. Any thread.
#[unsafe(no_mangle)]
pub extern "C" fn iw_abi_version() -> u32 {
    IW_ABI_VERSION
}

/// The library's version as text, for people. Any thread; never freed.
#[unsafe(no_mangle)]
pub extern "C" fn iw_version() -> *const core::ffi::c_char {
    const TEXT: &core::ffi::CStr =
        match core::ffi::CStr::from_bytes_with_nul(concat!(env!("CARGO_PKG_VERSION"), "\0").as_bytes()) {
            Ok(text) => text,
            Err(_) => c"",
        };
    TEXT.as_ptr()
}

/// Nanoseconds of the system's monotonic clock (`CLOCK_MONOTONIC`), which deadlines are given in. Any thread.
#[unsafe(no_mangle)]
pub extern "C" fn iw_now_ns() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    (now.tv_sec as u64).wrapping_mul(1_000_000_000).wrapping_add(now.tv_nsec as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_version_is_text_and_the_clock_goes_on() {
        // SAFETY: the function answers a NUL-terminated text that is never freed.
        let text = unsafe { core::ffi::CStr::from_ptr(iw_version()) };
        assert_eq!(text.to_str(), Ok(env!("CARGO_PKG_VERSION")));
        assert_eq!(iw_abi_version() >> 16, 1);
        let before = iw_now_ns();
        assert!(before > 0 && iw_now_ns() >= before);
    }
}
