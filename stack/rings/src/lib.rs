//! Lock-free rings with one producer and one consumer, and the signals beside them.
//!
//! - [`spsc`] moves values: control messages, completions, notices, frames between cores.
//! - [`slots`] is a work queue written and read in place: a slot stays the consumer's until it is released.
//! - [`doorbell`] says which queues have new work, each at most once.
//! - [`mailbox`] carries calls from one core to another, each with a place for its reply and no index: a place says itself that it
//!   is filled.
//! - [`notify`] is the armed flag behind an event descriptor.
//!
//! Indices are 32 bits and wrap; capacities are powers of two. Each side keeps a copy of the other's index and looks
//! at the shared one only when the copy says full or empty, so that a stream of operations costs a nanosecond or two
//! each, and one line travels between two processors for many of them. Nothing blocks, and nothing allocates after
//! construction. Either end may be dropped at any time; the other can tell, and keeps working with what is there.
//!
//! One of the six rooms that may hold `unsafe`: slots change hands without a lock. Every module has its model in
//! `tests/loom`, run with `RUSTFLAGS="--cfg loom" cargo test -p ironwarp-rings --release --test loom`.

pub mod doorbell;
mod end_state;
pub mod mailbox;
pub mod notify;
pub mod slots;
pub mod spsc;
mod sync;
