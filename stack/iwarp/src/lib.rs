//! MPA, DDP and RDMAP: from the bytes of a TCP stream to registered memory, and back.
//!
//! - [`setup`]: what two sides agree on before full operation (RFC 6581 s9).
//! - [`mpa`]: start-up frames, FPDUs, CRC and markers (RFC 5044, RFC 6581).
//! - [`sctp`]: DDP over SCTP (RFC 5043, RFC 6581 s7).
//! - [`framing`]: what a stream asks of the frames around its segments; MPA's FPDUs are one
//!   implementation.
//! - [`ddp`]: segment headers and the checks before placement (RFC 5041).
//! - [`rdmap`]: operations, outstanding requests, the Terminate message (RFC 5040, RFC 7306).
//! - [`terminate`]: the error codes that all three layers report.
//! - [`wr`] and [`completion`]: the entries of work queues and of completion queues.
//! - [`stream`]: the three layers assembled for one queue pair.
//!
//! This crate uses no sockets, clocks or threads. [`ironwarp_llp`] has the traits of the layer
//! below, so it needs no TCP to be used or tested.
#![forbid(unsafe_code)]
#![warn(clippy::indexing_slicing, clippy::unwrap_used)]
#![cfg_attr(test, allow(clippy::indexing_slicing, clippy::unwrap_used))]

pub mod completion;
pub mod ddp;
pub mod framing;
pub mod mpa;
pub mod rdmap;
pub mod sctp;
pub mod setup;
pub mod stream;
pub mod terminate;
pub mod wr;

pub use completion::{Completion, CompletionFlags, CompletionOpcode, CompletionStatus};
pub use framing::Framing;
pub use stream::{
    AtomicForwarder, CompletionSink, Io, NoCredit, Role, SharedReceives, SrqError, Stream, StreamCallbacks,
    StreamConfig, StreamError, StreamStart,
};
pub use terminate::Terminate;
pub use wr::{RecvWqe, SendFlags, SendOpcode, SendWqe};
