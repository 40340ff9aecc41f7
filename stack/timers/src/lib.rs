//! The timers of a transport: a wheel with one deadline per connection, and the estimator of its
//! retransmission timeout.
#![forbid(unsafe_code)]
#![warn(clippy::indexing_slicing, clippy::unwrap_used)]
#![cfg_attr(test, allow(clippy::indexing_slicing, clippy::unwrap_used))]

pub mod rtt;
pub mod wheel;

pub use rtt::Rtt;
pub use wheel::Wheel;

use ironwarp_types::Nanos;

/// A tick of the wheel is 2^14 ns, 16.4 microseconds: shorter than every timeout of a transport. An
/// idle second has 61 thousand ticks.
const TICK_SHIFT: u32 = 14;

/// One tick of the wheel: the clock granularity G of RFC 6298 s2.
pub const GRANULARITY: Nanos = Nanos(1 << TICK_SHIFT);
