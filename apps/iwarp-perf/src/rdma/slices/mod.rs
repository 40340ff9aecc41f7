//! The slices of each kind of test.

mod atomic;
mod bandwidth;
mod latency;
mod ready_queue;
mod timer;

pub use atomic::{AtomicTest, sum_of};
pub use bandwidth::BandwidthTest;
pub use latency::{Reaped, latency_client, latency_server, poll_latency_server};
