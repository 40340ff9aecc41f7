//! What the fuzz targets share: a node in virtual time, a peer of it, and the reader of an input.
//!
//! An input is a sequence of steps of variable length. Every input is valid: missing bytes are
//! zeros, so that the fuzzer may cut and splice. `corpus/` has seeds, most of them written by
//! `examples/seeds.rs`.

pub mod input;
pub mod node;
pub mod peer;

pub use input::Input;
pub use node::Node;
pub use peer::Peer;
