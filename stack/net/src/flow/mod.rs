//! Finding a connection by its two ends: a keyed hash, and a table from hash to connection.

mod hasher;
mod steering;
mod table;

pub use hasher::FlowHasher;
pub use steering::Steering;
pub use table::{FlowTable, TableFull};
