//! The slices of each kind of test.

mod atomic;
mod bandwidth;
mod conn_rate;
mod invalidate;
mod latency;
mod ready_queue;
mod timer;

use std::time::{Duration, Instant};

pub use atomic::{AtomicTest, sum_of};
pub use bandwidth::BandwidthTest;
pub use conn_rate::ConnRateTest;
pub use latency::LatencyTest;

use super::endpoint::Result;

/// Polls on for a millisecond, so that the last received data is acknowledged.
fn linger(mut poll: impl FnMut() -> Result<()>) -> Result<()> {
    let start = Instant::now();
    while start.elapsed() < Duration::from_millis(1) {
        poll()?;
    }
    Ok(())
}
