//! The look-up of a connection by its flow: a keyed hash, a table from hash to connection, and the
//! choice of a core.

mod hasher;
mod steering;
mod table;

pub use hasher::FlowHasher;
pub use steering::Steering;
pub use table::{FlowTable, TableFull};
