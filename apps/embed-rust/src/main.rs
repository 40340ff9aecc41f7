//! The host program: it starts DPDK, uses one thread and one worker for each side, and lets many
//! clients write, read and compare.
//!
//! Exit status: 0 if every block was as written, 1 if not, 2 for arguments or a configuration that
//! cannot be used.
#![forbid(unsafe_code)]

#[cfg(feature = "dpdk")]
mod host;

use std::process::ExitCode;

#[cfg(feature = "dpdk")]
fn main() -> ExitCode {
    host::main()
}

/// Without DPDK there is no device; the library's tests run over memory ports.
#[cfg(not(feature = "dpdk"))]
fn main() -> ExitCode {
    eprintln!("embed-rust: not in this build, which has no DPDK");
    ExitCode::from(2)
}
