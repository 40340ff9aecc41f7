//! The host program: it starts DPDK, has one thread and one worker a side, and lets many clients write, read and compare.
//!
//! Exit status: 0 when every block was as written, 1 when not, 2 for arguments or a configuration that cannot be used.
#![forbid(unsafe_code)]

#[cfg(feature = "dpdk")]
mod host;

use std::process::ExitCode;

#[cfg(feature = "dpdk")]
fn main() -> ExitCode {
    host::main()
}

/// Without DPDK there is no device to serve blocks over; the library's tests run over memory.
#[cfg(not(feature = "dpdk"))]
fn main() -> ExitCode {
    eprintln!("embed-rust: not in this build, which has no DPDK");
    ExitCode::from(2)
}
