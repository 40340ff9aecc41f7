//! Sources of time and randomness. The core loop uses no others.
//!
//! In production these are a processor counter and the kernel's random numbers. In the simulator
//! they are a virtual clock and a seeded generator, so that a run can be replayed exactly.

use crate::Nanos;

/// A monotonic clock.
pub trait Clock {
    /// Returns the current time.
    fn now(&self) -> Nanos;
}

/// Any function without arguments that returns the time.
impl<F: Fn() -> Nanos> Clock for F {
    fn now(&self) -> Nanos {
        self()
    }
}

/// A source of random numbers.
pub trait Entropy {
    /// Returns 64 random bits.
    fn next_u64(&mut self) -> u64;
}
