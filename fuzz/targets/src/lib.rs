//! The fuzz targets: each module has a function `run`, which takes any bytes and panics if the
//! stack breaks a rule. What they share: a node in virtual time, a peer of it, and the reader of an
//! input.
//!
//! An input is a sequence of steps of variable length. Every input is valid: missing bytes are
//! zeros, so that a fuzzer may cut and splice. `../seeds` has seeds, most of them written by
//! `examples/seeds.rs`; `tests/seeds.rs` runs them, and random changes of them, without a fuzzer.

pub mod capi;
pub mod esp;
pub mod fpdu;
pub mod frames;
pub mod input;
#[cfg(fuzzing)]
pub mod memif;
#[cfg(fuzzing)]
pub mod memif_rings;
pub mod neighbours;
pub mod network;
pub mod node;
pub mod nvmf;
pub mod peer;
pub mod rdmap;
pub mod sctp;
pub mod sctp_sessions;
pub mod startup;
pub mod tcp;
pub mod toml;
pub mod verbs;
#[cfg(fuzzing)]
pub mod virtio_net;

pub use input::Input;
pub use node::Node;
pub use peer::Peer;
