//! The tests as one program: each program is compiled and linked with the whole stack.

mod circles;
mod clients;
mod command_line;
#[cfg(feature = "dpdk")]
mod doctor;
mod queues;
mod runs;
#[cfg(feature = "dpdk")]
mod server;
mod usage;
