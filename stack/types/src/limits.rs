//! Limits that several layers share, each with its reason.

/// Frames per receive or transmit burst. With 32, a driver call costs a few nanoseconds per frame,
/// and the headers of a burst fit half of a first-level cache.
pub const BURST_FRAMES: usize = 32;

/// The largest ULPDU: the MPA length field has 16 bits (RFC 5044 s4.1).
pub const ULPDU_BYTES_MAX: usize = 65_535;

/// The largest FPDU without markers: length field, ULPDU, up to 3 bytes of pad, CRC (RFC 5044 s4).
pub const FPDU_BYTES_MAX: usize = 2 + ULPDU_BYTES_MAX + 3 + 4;

/// The largest FPDU with markers: four octets for every 508 (RFC 5044 s4.3).
pub const FPDU_MARKED_BYTES_MAX: usize = FPDU_BYTES_MAX + 4 * FPDU_BYTES_MAX.div_ceil(508);

/// The smallest permitted MULPDU (RFC 5044 s4.5).
pub const MULPDU_BYTES_MIN: usize = 128;

/// The largest private data of an MPA start-up frame (RFC 5044 s7.1.1).
pub const PRIVATE_DATA_BYTES_MAX: usize = 512;

/// Scatter or gather elements per work request. Storage targets need 16.
pub const SGE_MAX: usize = 16;

/// Inline bytes per work request: the size of the gather list that they replace.
pub const INLINE_BYTES_MAX: usize = SGE_MAX * 16;

/// The largest RDMA message. The length field of a Read has 32 bits (RFC 5040 s4.4), and 2^31 keeps
/// sums within signed range.
pub const MESSAGE_BYTES_MAX: u32 = 1 << 31;
