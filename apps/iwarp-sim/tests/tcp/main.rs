//! Connections of our engine and of stock smoltcp on simulated links: peers under faults, throughput, recovery, curves.

mod peers;
mod throughput;
