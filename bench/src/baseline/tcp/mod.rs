//! Linux sockets: what an application without RDMA would use.
//!
//! One stream with Nagle's algorithm off, over a veth pair between two namespaces, or over loopback. An end that
//! spins asks the kernel again at once, the best case; one that blocks sleeps until woken, the usual case.

mod ends;
mod stream;

pub use ends::{Link, accept, bandwidth, echo, latency, listen_in, sink};

#[cfg(test)]
mod tests;
