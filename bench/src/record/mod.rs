//! Recording round trips, and writing them down so that other programs read them.

mod hdr_log;
mod latency;

pub use hdr_log::{LogEntry, write_hdr_log};
pub use latency::{Latency, RttNs};
