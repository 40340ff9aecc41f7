//! Linux sockets: the baseline of an application without RDMA.
//!
//! One stream without Nagle's algorithm, over a veth pair between two namespaces, or over loopback. Each end either retries
//! at once or blocks in the kernel.

mod stream;
mod transfer;

pub use transfer::{TcpConnection, accept, bandwidth, echo, latency, listen_in, sink};

#[cfg(test)]
mod tests;
