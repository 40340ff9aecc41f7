//! DDP over SCTP (RFC 5043, RFC 6581 s7).
//!
//! A pair of SCTP streams with one number carries DDP stream sessions, one after the other. Each
//! DATA chunk is unordered, is not fragmented, and begins with its DDP-SSN: its number in the
//! session, from 0 in each direction.
//!
//! [`chunk`] encodes and decodes what is in the chunks.
//!
//! An association is used by DDP only if both sides sent [`ADAPTATION_INDICATION`]. The SCTP engine
//! compares it (RFC 5043 s11.1), and assigns the numbers of streams: as many in as out (s8).

pub mod chunk;

pub use chunk::{
    CHUNK_BYTES_MIN, Chunk, ChunkFault, Control, ControlBytes, Function, PPID_CONTROL, PPID_SEGMENT,
};

/// RFC 5043 s5.1: the adaptation layer indication of DDP in INIT and INIT ACK.
pub const ADAPTATION_INDICATION: u32 = 1;
