//! Stock smoltcp over a [`Port`](ironwarp_port::Port): the baseline of another TCP in user space on the same device.
//!
//! One stream without Nagle's algorithm; everything else is smoltcp's default. A slice has nodes and a connection of its
//! own, so it includes neither end's earlier state. The addresses differ from those of the stack, which drops frames of a
//! slice that are still in a ring. smoltcp computes every checksum in software.

mod device;
mod node;
mod transfer;

pub use transfer::{bandwidth, echo, latency, sink};

#[cfg(test)]
mod tests;
