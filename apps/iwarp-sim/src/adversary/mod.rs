//! Hostile hosts that keep no rule, and what their packets cost a node.
//!
//! [`RawConn`] is a connection whose segments are built one by one, with a [`Habit`] that abuses it. [`Visitors`] are
//! such connections on a simulated link. [`Adversary`] lists the kinds of hostile packets with the [`Bounds`] of their
//! cost, and `cost` sends them to a whole node. `docs/security.md` has the table.

mod bounds;
mod conn;
mod cost;
mod flood;
mod habit;
pub(crate) mod packets;
mod segment;
mod victim;

pub use bounds::{Adversary, Bounds};
pub use conn::{ConnState, RawConn};
pub use cost::{Cost, Run};
pub use flood::{Schedule, Visitors};
pub use habit::Habit;
pub use segment::{Arrived, Way};
