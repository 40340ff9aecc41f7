//! What an end does in a slice, kind by kind of test.

mod atomic;
mod latency;
mod stream;
mod timer;

pub use atomic::Atomics;
pub use latency::{latency_far, latency_near};
pub use stream::Stream;
