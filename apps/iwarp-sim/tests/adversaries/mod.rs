//! What hostile packets cost a node and those that share it with their sender.

mod beside;
mod costs;
mod flood;
mod star;
mod syn_flood;
mod throughput;
