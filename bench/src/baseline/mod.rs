//! Baselines: raw frames and stock smoltcp on the same device, and Linux sockets.

pub mod frames;
pub mod namespaces;
pub mod smoltcp;
pub mod stream;
pub mod tcp;
