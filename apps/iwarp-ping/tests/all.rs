//! The tests as one program: each program is compiled and linked with the whole stack.
#![forbid(unsafe_code)]

mod memif_lab;

mod command_line;
mod native_memif;
#[cfg(feature = "dpdk")]
mod process_faults;
mod scripted_peers;
#[cfg(feature = "dpdk")]
mod two_processes;
