//! What the tests of the engine share: a port over queues, a node of net and tcp, and a peer that speaks in traces.
#![allow(dead_code)]

pub mod link;
pub mod node;
pub mod pattern;
pub mod port;
pub mod raw;
pub mod script;
pub mod sender;
pub mod trace;
