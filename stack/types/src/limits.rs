//! Limits that more than one layer leans on, each with its reason.

/// Frames moved in one receive or transmit burst. 32 amortises a driver call to a few nanoseconds a frame and
/// still fits the frame headers of a burst in half of a first-level cache.
pub const BURST_FRAMES: usize = 32;

/// The largest ULPDU: the MPA length field has 16 bits (RFC 5044 s4.1).
pub const ULPDU_BYTES_MAX: usize = 65_535;

/// The largest FPDU without markers: length field, ULPDU, up to 3 bytes of pad, CRC (RFC 5044 s4).
pub const FPDU_BYTES_MAX: usize = 2 + ULPDU_BYTES_MAX + 3 + 4;

/// The same with the most markers that fall into it: four octets for every 508 (RFC 5044 s4.3).
pub const FPDU_MARKED_BYTES_MAX: usize = FPDU_BYTES_MAX + 4 * FPDU_BYTES_MAX.div_ceil(508);

/// The smallest MULPDU that MPA may be left with (RFC 5044 s4.5).
pub const MULPDU_BYTES_MIN: usize = 128;

/// Private data accepted in an MPA start-up frame (RFC 5044 s7.1.1).
pub const PRIVATE_DATA_BYTES_MAX: usize = 512;

/// Scatter or gather elements in one work request: storage targets ask for 16.
pub const SGE_MAX: usize = 16;

/// Inline bytes in one work request: the space that its gather list would take.
pub const INLINE_BYTES_MAX: usize = SGE_MAX * 16;

/// The largest RDMA message: the tagged length of a Read is 32 bits (RFC 5040 s4.4), and 2^31 keeps sums signed.
pub const MESSAGE_BYTES_MAX: u32 = 1 << 31;
