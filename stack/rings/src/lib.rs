//! Lock-free rings with one producer and one consumer, and the signals that go with them.
//!
//! - [`spsc`] moves values: control messages, completions, notifications, frames between cores.
//! - [`slots`] is a work queue written and read in place: a slot belongs to the consumer until it
//!   is released.
//! - [`doorbell`] lists the queues that have new work, each at most once.
//! - [`reservations`] counts the entries of a completion queue that several threads reserve.
//! - [`mailbox`] carries calls from one core to another. Each call has a slot for its reply. There
//!   is no shared index: a mark in the slot shows that it is filled.
//! - [`notify`] is the armed flag behind an event descriptor.
//! - [`state`] is the state of a connection, which ends while requests are posted.
//! - [`arrivals`] hands values to a core now and then.
//! - [`block`] is the memory of a ring: on the heap, or where two processes map it.
//!
//! Indices are 32 bits and wrap; capacities are powers of two. Each side caches the other's index
//! and reads the shared one only when the cached copy shows a full or empty ring. A stream of
//! operations therefore costs a nanosecond or two each, and one cache line moves between processors
//! for many operations. Nothing blocks, and nothing allocates after construction. Either end may be
//! dropped at any time; the other end can detect that and still use the ring.
//!
//! What two ends share is one block of memory without pointers ([`block`]): on the heap, or in
//! memory that two processes map, each at its own address. An index that another process writes
//! leads nowhere outside the block. The values are trusted to be values of their type.
//!
//! This crate contains `unsafe`: slots change owners without a lock. Every module has a loom model
//! in `tests/loom`; run it with
//! `RUSTFLAGS="--cfg loom" cargo test -p ironwarp-rings --release --test loom`.

pub mod arrivals;
pub mod block;
pub mod doorbell;
mod end_state;
pub mod mailbox;
pub mod notify;
pub mod reservations;
pub mod slots;
pub mod spsc;
pub mod state;
mod sync;
