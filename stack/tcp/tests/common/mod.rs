//! Shared parts of the engine's tests: a port over queues, a node of net and tcp, and a scripted
//! peer.
#![allow(dead_code)]

pub mod link;
pub mod node;
pub mod pattern;
pub mod raw;
pub mod script;
pub mod sender;
pub mod trace;
