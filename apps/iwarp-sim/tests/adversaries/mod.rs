//! What hostile packets cost a node and those that share it with their sender.

mod beside;
mod costs;
mod flood;
pub mod star;
mod syn_flood;
mod throughput;
