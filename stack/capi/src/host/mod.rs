//! What belongs to the host program as a whole: stacks, and the workers that its threads poll.

mod counters;
mod stack;
mod worker;

pub(crate) use stack::iw_stack;
