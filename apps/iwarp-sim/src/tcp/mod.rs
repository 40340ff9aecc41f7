//! Nodes of the network and TCP layers alone, ours and stock smoltcp's, on simulated links.
//!
//! A [`Dual`] puts one connection between two hosts, each with our engine or with smoltcp's, and carries bytes both
//! ways, every one of them checked. [`curves`] runs it over a grid of links for the golden file, and [`lab`] has what a
//! network of more than two hosts needs. Everything happens in virtual time and follows from a seed; a byte that is
//! wrong, or an invariant of the engine that does not hold, ends the run as an error.

pub mod curves;
mod dual;
mod held;
pub mod lab;
mod ours;
mod pattern;
mod stock;
mod work;

pub use dual::{Dual, Host, Outcome, Stack, device, tcp_config};
pub use held::Held;
pub use ours::{Dialler, Ends, Finished, OurNode, OurSetup, RxFilter, address, link_address};
pub use stock::{StockCongestion, StockDevice, StockNode, StockSetup};
pub use work::{End, Pace, Task, Work};
