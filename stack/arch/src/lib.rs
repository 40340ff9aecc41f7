//! The few processor instructions the stack uses, each with a portable fallback.
//!
//! CRC-32C and internet checksums, the time-stamp counter, prefetch, and memory shared with other processes. What a
//! processor lacks is found out at run time and answered by portable code with the same result; under Miri only the
//! portable code runs. Nothing here knows a packet, a connection or a type of the stack: bytes, `u64` nanoseconds.
//!
//! One of the six rooms that may hold `unsafe`: processor intrinsics and one memory mapping.

pub mod checksum;
pub mod clock;
mod crc32c;
mod hint;
pub mod shared;

pub use crc32c::{crc32c, crc32c_append};
pub use hint::{demote_line, prefetch_read, prefetch_write, spin_hint};
