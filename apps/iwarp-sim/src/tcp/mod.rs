//! Nodes of the network and TCP layers alone, ours and stock smoltcp's, on simulated links.
//!
//! A [`TwoHostRun`] puts one connection between two hosts, each with our engine or with smoltcp's, and carries bytes both
//! ways, every one of them checked. [`curves`] runs it over a grid of links for the golden file, and [`network`] has what a
//! network of more than two hosts needs. Everything happens in virtual time and follows from a seed; a byte that is
//! wrong, or an invariant of the engine that does not hold, ends the run as an error.

pub mod curves;
mod ironwarp_node;
pub mod network;
mod pattern;
mod progress;
mod shared_node;
mod smoltcp_node;
mod two_hosts;

pub use ironwarp_node::{
    Connector, EndCounts, Finished, IronwarpNode, IronwarpSetup, RxFilter, address, link_address,
};
pub use progress::{EndAction, ReadRate, Task, TaskProgress};
pub use shared_node::SharedNode;
pub use smoltcp_node::{SmoltcpCongestion, SmoltcpDevice, SmoltcpNode, SmoltcpSetup};
pub use two_hosts::{Host, Outcome, Stack, TwoHostRun, device, tcp_config};
