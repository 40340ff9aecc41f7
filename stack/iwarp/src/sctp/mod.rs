//! DDP over SCTP (RFC 5043, RFC 6581 s7).
//!
//! A pair of SCTP streams with one number carries DDP stream sessions, one after the other. Each
//! DATA chunk is unordered, is not fragmented, and begins with its DDP-SSN: its number in the
//! session, from 0 in each direction. SCTP passes chunks on as they arrive.
//!
//! - [`chunk`]: what is in the chunks.
//! - [`setup`]: what the two sides say before segments flow, and what they agree on.
//! - [`session`]: the order of chunks, the legal sequences, the use of a stream for the next
//!   session, and the limit of requests.
//! - [`SegmentChunk`]: the framing of a [`Stream`](crate::Stream): a DDP-SSN in front of each
//!   segment.
//!
//! What arrives goes to [`Sessions::on_message`]. A segment that came early may be placed
//! ([`Stream::on_message_out_of_order`](crate::Stream::on_message_out_of_order)). Then
//! [`Session::front`] and [`Session::pop`] give the chunks in order: control messages to
//! [`Initiator`] and [`Request`], segments to [`Stream::on_message`](crate::Stream::on_message). A
//! side sends one control message, the units of its stream, and a Terminate.
//!
//! An association is used by DDP only if both sides sent [`ADAPTATION_INDICATION`]. The SCTP engine
//! compares it (RFC 5043 s11.1), and gives an association as many streams in as out (s8).

pub mod chunk;
mod framing;
mod order;
pub mod session;
pub mod setup;

pub use chunk::{
    CHUNK_BYTES_MIN, Chunk, ChunkFault, Control, ControlBytes, Function, PPID_CONTROL, PPID_SEGMENT,
};
pub use framing::SegmentChunk;
pub use order::{CHUNKS_IN_FLIGHT_MAX, SsnFault};
pub use session::{NotNow, Session, SessionFault, Sessions};
pub use setup::{Initiator, Reply, Request};

/// RFC 5043 s5.1: the adaptation layer indication of DDP in INIT and INIT ACK.
pub const ADAPTATION_INDICATION: u32 = 1;
