//! Pings over RDMA, as librdmacm's `rping` does and in either role beside it.
//!
//! A ping moves a text from the client's memory to the server and back into another piece of the
//! client's memory:
//!
//! ```text
//! client                                            server
//!    ── Send: where the text is ──────────────────▸
//!    ◂─ RDMA Read of it ──────────────────────────
//!    ◂─ Send: it was read ────────────────────────
//!    ── Send: where it is wanted ─────────────────▸
//!    ◂─ RDMA Write of it ─────────────────────────
//!    ◂─ Send: it was written ─────────────────────
//! ```
//!
//! Every Send has 16 bytes ([`message`]); those of the server have no contents. There is no private
//! data and no version: the protocol is what `rping` shows on the wire. A message that does not
//! conform ends its connection with a [`Fault`] that names the error, and does not affect other
//! connections.
#![forbid(unsafe_code)]
#![allow(missing_docs, reason = "a tool, whose names say what most items are")]

mod client;
mod endpoint;
pub mod message;
mod server;
mod session;
mod stats;

pub use client::{Client, ClientConfig};
pub use endpoint::{Endpoint, PingError};
pub use message::Fault;
pub use server::{Server, ServerConfig};
pub use stats::{ClientStats, ServerStats};

/// The port that `rping` listens on.
pub const PORT: u16 = 7174;

/// The longest text, as in `rping`.
pub const TEXT_BYTES_MAX: u32 = 65_536;
