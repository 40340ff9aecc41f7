//! The C interface of the stack: what `include/ironwarp.h` declares.
//!
//! Each function wraps one call of the crate `ironwarp`: it checks its pointers, finds the object
//! of its handle, converts, calls, and converts errors to numbers. `docs/embedding.md` is the guide
//! for users.
//!
//! Takes pointers that are null or valid as the header states, handles of this library, and numbers
//! of any value. Gives 0 or a count, or a negative `IW_E_*`; no panic unwinds into the caller.
//! Cost: one compare-and-swap and a few comparisons more than the Rust call; posting converts some
//! requests at a time on the stack and allocates nothing.
//!
//! # Safety
//!
//! What every call relies on, and the library cannot check: a pointer that is not null is valid for
//! the call. A handle is one of this library, open or closed. A text ends with a NUL. A list has as
//! many elements as its count states, and a struct that begins with its size, or whose size is
//! passed, has as many bytes. Another thread does not change them during the call. Calls that rely
//! on more say so under this heading.
#![allow(non_camel_case_types, reason = "the names are C's")]
#![allow(unsafe_code)]
#![allow(clippy::missing_safety_doc, reason = "what all calls rely on is said once, above")]

#[cfg(panic = "abort")]
compile_error!("panics must unwind, so that they can be stopped at the boundary");

#[macro_use]
mod boundary;
mod host;
mod objects;

// For the fuzz target and for tests in Rust, which call what C programs call.
pub use boundary::*;
pub use host::*;
pub use objects::*;

/// The version of this header. The upper 16 bits change with a release that requires recompilation,
/// the lower ones with a release that only adds something.
pub const IW_ABI_VERSION: u32 = 1 << 16;

/// Returns the `IW_ABI_VERSION` of the loaded library. A program is compatible if the upper 16 bits
/// equal those of its header and the lower ones are not less. Any thread.
#[unsafe(no_mangle)]
pub extern "C" fn iw_abi_version() -> u32 {
    IW_ABI_VERSION
}

/// Returns the library's version as text. Any thread; never freed.
#[unsafe(no_mangle)]
pub extern "C" fn iw_version() -> *const core::ffi::c_char {
    const TEXT: &core::ffi::CStr =
        match core::ffi::CStr::from_bytes_with_nul(concat!(env!("CARGO_PKG_VERSION"), "\0").as_bytes()) {
            Ok(text) => text,
            Err(_) => c"",
        };
    TEXT.as_ptr()
}

/// Returns the nanoseconds of the system's monotonic clock (`CLOCK_MONOTONIC`), the clock of
/// deadlines. Any thread.
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
        // SAFETY: the function returns a NUL-terminated text that is never freed.
        let text = unsafe { core::ffi::CStr::from_ptr(iw_version()) };
        assert_eq!(text.to_str(), Ok(env!("CARGO_PKG_VERSION")));
        assert_eq!(iw_abi_version() >> 16, 1);
        let before = iw_now_ns();
        assert!(before > 0 && iw_now_ns() >= before);
    }
}
