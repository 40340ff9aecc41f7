//! The TCP engine: RFC 9293, with payload pulled from the layer above as FPDU-aligned units that
//! are retained until acknowledged.
//!
//! Takes received segments, the time, and a [`UnitSource`] to pull payload from. Gives in-order
//! bytes, events and frames. Each core has one [`Tcp`]. The engine is sans-IO: the wire and the
//! clock are arguments, so the same code runs over DPDK, in the simulator and under Miri. It
//! allocates nothing after [`Tcp::new`].
//!
//! Source: RFC 9293 (order of processing, s3.10.7), RFC 5681, RFC 6582 and RFC 3042 (congestion and
//! recovery), RFC 6298 (timeout), RFC 7323 (window scale, timestamps), RFC 2018 and RFC 2883
//! (selective acknowledgements), RFC 3168 and RFC 8257 (congestion marks), RFC 5961 and RFC 5927
//! (blind attacks), RFC 4987 (SYN floods), RFC 6528 (initial sequence numbers), RFC 6056 (ephemeral
//! ports), RFC 1337 and RFC 6191 (TIME-WAIT).
//!
//! What can fail: an unacceptable segment is dropped and counted by exactly one counter. A
//! connection ends with exactly one of the events CLOSED, RESET, REFUSED and TIMED_OUT, and does
//! not affect other connections.
//!
//! The folders, in the order a segment passes them: `header` (octets to values), `engine`
//! (demultiplexing, listeners, TIME-WAIT, timers), `input` (one function per step of s3.10.7),
//! `conn` (a connection's state), `queue` (held frames), `congestion` (windows), `recovery`
//! (losses), `output` (everything that is sent).
#![forbid(unsafe_code)]
#![warn(clippy::indexing_slicing, clippy::unwrap_used)]
#![cfg_attr(test, allow(clippy::indexing_slicing, clippy::unwrap_used))]

mod config;
mod congestion;
mod conn;
mod engine;
mod header;
mod input;
mod output;
mod queue;
mod recovery;
mod saved;

pub use config::{Congestion, TcpConfig, TcpConfigError};
pub use conn::State;
pub use engine::{LentBytes, RxStream, Tcp};
pub use ironwarp_llp::{
    Arrival, Blocked, ByteStream, ConnId, ConnectError, Events as TcpEvents, KeepAlive, LatestArrival, Lent,
    ListenError, ListenerId, OutOfOrderBytes, ResourceUsage, RestoreError, SaveError,
    Timeouts as TcpTimeouts, Transmitted, Transport, UnitSource,
};
