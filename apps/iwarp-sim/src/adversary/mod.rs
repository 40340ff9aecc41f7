//! Hostile hosts that keep no rule, and what their packets cost a node and those that share it.
//!
//! [`RawConn`] is a connection whose segments are built one by one, with a [`Habit`] that abuses it. [`Adversary`] lists the
//! kinds of hostile packets with the [`Bounds`] of their cost. A [`Run`] sends them to a whole node and counts. [`Beside`]
//! has an honest client, a server and a hostile host, [`Visitors`], on a switch. `docs/security.md` has the table.

mod acceptor;
mod beside;
mod bounds;
mod conn;
mod cost;
mod habit;
pub(crate) mod packets;
mod segment;
mod stream;
mod victim;

pub use beside::{Beside, Kept, Schedule, Visitors, star};
pub use bounds::{Adversary, Bounds};
pub use conn::{ConnState, RawConn};
pub use cost::{Cost, Run};
pub use habit::Habit;
pub use segment::{Arrived, Way};
pub use stream::{Needs, Place};
