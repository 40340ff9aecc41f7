//! Linux sockets: what an application without RDMA would use.
//!
//! One stream with Nagle's algorithm off, over a veth pair between two namespaces, or over loopback. An end that
//! spins asks the kernel again at once, the best case; one that blocks sleeps until woken, the usual case.

mod stream;
mod transfer;

pub use transfer::{TcpConnection, accept, bandwidth, echo, latency, listen_in, sink};

#[cfg(test)]
mod tests;
