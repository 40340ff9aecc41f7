//! What an end does in a slice, kind by kind of test.

mod atomic;
mod latency;
mod rota;
mod stream;
mod timer;

pub use atomic::{Atomics, sum_of};
pub use latency::{Reaped, latency_far, latency_near, latency_turn};
pub use stream::Stream;
