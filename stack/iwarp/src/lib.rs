//! MPA, DDP and RDMAP: from the bytes of a TCP stream to registered memory, and back.
//!
//! - [`mpa`] frames: start-up frames, FPDUs and their CRC (RFC 5044, RFC 6581).
//! - [`ddp`] places: segment headers and the checks before placement (RFC 5041).
//! - [`rdmap`] means: operations, outstanding Reads, Terminate (RFC 5040).
//! - [`wr`] is what an application asks for, and [`completion`] what it gets back.
//! - [`stream`] assembles the three for one queue pair.
//!
//! Nothing here knows of sockets, time or threads. TCP's half of the boundary is in `ironwarp_tcp`.
#![forbid(unsafe_code)]
#![warn(clippy::indexing_slicing, clippy::unwrap_used)]
#![cfg_attr(test, allow(clippy::indexing_slicing, clippy::unwrap_used))]

pub mod completion;
pub mod ddp;
pub mod mpa;
pub mod rdmap;
pub mod stream;
pub mod terminate;
pub mod wr;

pub use completion::{Completion, CompletionFlags, CompletionOpcode, CompletionStatus};
pub use stream::{
    AtomicForwarder, CompletionSink, Io, NoCredit, Role, SharedReceives, SrqError, Stream, StreamCallbacks,
    StreamConfig, StreamError, StreamStart,
};
pub use terminate::Terminate;
pub use wr::{RecvWqe, SendFlags, SendOpcode, SendWqe};
