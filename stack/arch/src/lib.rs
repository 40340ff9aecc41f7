//! The processor instructions that the stack uses, each with a portable fallback.
//!
//! CRC-32C and Internet checksums, apart or in one pass, the time-stamp counter, prefetch, and
//! memory shared with other processes. Missing instructions are detected at run time and replaced
//! by portable code with the same result. Under Miri only the portable code runs. This crate uses
//! bytes and `u64` nanoseconds only, no type of the stack.
//!
//! The crate uses `unsafe` for processor intrinsics and one memory mapping.

pub mod checksum;
pub mod clock;
mod crc32c;
mod hint;
pub mod one_pass;
pub mod shared;

pub use crc32c::{crc32c, crc32c_append};
pub use hint::{
    demote_line, prefetch_address, prefetch_address_for_write, prefetch_read, prefetch_read_all,
    prefetch_read_first, prefetch_write, spin_hint,
};
