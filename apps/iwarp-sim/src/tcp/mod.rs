//! Nodes of the network and TCP layers only, on simulated links.
//!
//! A [`TwoHostRun`] puts one connection between two hosts. It carries bytes in both directions and
//! checks every byte. [`curves`] runs it over a grid of links for the golden file. Everything
//! happens in virtual time and depends only on a seed. A wrong byte or a violated invariant of the
//! engine ends the run with an error.

pub mod curves;
mod ironwarp_node;
mod pattern;
mod progress;
mod shared_node;
mod two_hosts;

pub use ironwarp_node::{Connector, EndCounts, IronwarpNode, IronwarpSetup, RxFilter, address, link_address};
pub use progress::{EndAction, Task, TaskProgress};
pub use shared_node::SharedNode;
pub use two_hosts::{Outcome, TwoHostRun};
