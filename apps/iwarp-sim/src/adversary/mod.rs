//! Hostile hosts that keep no rule, and what their packets cost a node.
//!
//! [`Peer`] is a connection whose segments are built one by one, with a [`Habit`] that abuses it.
//! [`Adversary`] lists the kinds of hostile packets with the [`Bounds`] of their cost. A [`Run`]
//! sends them to a whole node and counts. `docs/security.md` has the table.

mod bounds;
mod cost;
mod habit;
mod honest;
mod host;
pub mod packets;
mod peer;
mod raw_wire;

pub use bounds::{Adversary, Bounds, Needs};
pub use cost::{Cost, Run};
pub use habit::Habit;
pub use honest::{Honest, PORT};
pub use host::Host;
pub use peer::{Peer, Place};
pub use raw_wire::RawWire;
