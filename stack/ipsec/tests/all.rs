//! The tests of the crate, as one program.

mod adversary;
mod common;
mod headers;
mod lifetimes;
mod packets;
mod policies;
mod port;
