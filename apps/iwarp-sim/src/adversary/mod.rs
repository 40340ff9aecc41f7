//! Hostile hosts that keep no rule, and what their packets cost a node and those that share it.
//!
//! [`Peer`] is a connection whose segments are built one by one, with a [`Habit`] that abuses it.
//! [`Adversary`] lists the kinds of hostile packets with the [`Bounds`] of their cost. A [`Run`]
//! sends them to a whole node and counts. [`Beside`] has an honest client, a server and a hostile
//! host, [`Visitors`], on a switch. `docs/security.md` has the table.

mod beside;
mod bounds;
mod cost;
mod habit;
mod honest;
mod host;
mod packets;
mod peer;
mod raw_wire;

pub use beside::{Beside, Kept, Schedule, Visitors, star};
pub use bounds::{Adversary, Bounds, Needs};
pub use cost::{Cost, Run};
pub use habit::Habit;
pub use honest::PORT;
pub use peer::{Peer, Place};
pub(crate) use raw_wire::RawWire;
