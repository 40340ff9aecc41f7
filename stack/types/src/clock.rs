//! Where time and chance come from: the core loop asks here, and nowhere else.
//!
//! A real stack has a counter of the processor and the kernel's randomness behind these; the simulator has a virtual
//! clock and a seed, so that a run replays exactly.

use crate::Nanos;

/// A source of time. It never goes back.
pub trait Clock {
    /// The time now.
    fn now(&self) -> Nanos;
}

/// Any function of no arguments that tells the time.
impl<F: Fn() -> Nanos> Clock for F {
    fn now(&self) -> Nanos {
        self()
    }
}

/// A source of random numbers.
pub trait Entropy {
    /// 64 random bits.
    fn next_u64(&mut self) -> u64;
}
