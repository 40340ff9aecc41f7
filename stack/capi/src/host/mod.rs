//! Objects of the whole program: stacks, and the workers that its threads poll.

mod capture;
mod counters;
mod stack;
mod worker;

pub use capture::*;
pub use counters::*;
pub use stack::*;
pub use worker::*;
