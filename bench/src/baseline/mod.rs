//! Baselines: raw frames on the same device, and Linux sockets.

pub mod frames;
pub mod namespaces;
pub mod tcp;
