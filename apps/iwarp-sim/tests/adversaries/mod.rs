//! What hostile packets cost a node and those that share it with their sender.

mod costs;
mod throughput;
