//! `iwarp-soak`: two ends exchange random operations for minutes or hours, and every byte is
//! checked, while frames are lost, links go down, processes are stopped and killed. Memory,
//! descriptors and resources must stay flat.
//!
//! | module | contents |
//! | --- | --- |
//! | `args` | the command line |
//! | `end` | one end: a client that posts and checks operations, a server that checks and answers messages |
//! | `storage` | the ends of storage: NVMe hosts that check every block, and their target |
//! | `run` | the run: starts the ends, injects failures, samples memory, decides |
//!
//! Exit codes: 0 success, 1 a run that failed, 2 bad arguments.
#![forbid(unsafe_code)]

mod args;
#[cfg(feature = "dpdk")]
mod end;
#[cfg(feature = "dpdk")]
mod run;
#[cfg(feature = "dpdk")]
mod storage;

use std::process::ExitCode;

use ironwarp_cli::{CliExit, exit_code, parse_args};

use crate::args::Args;

const PROGRAM: &str = "iwarp-soak";

fn main() -> ExitCode {
    let parsed = parse_args::<Args>(std::env::args_os());
    exit_code(parsed.and_then(start).map_or_else(|exit| exit.report(PROGRAM), |()| ExitCode::SUCCESS))
}

#[cfg(feature = "dpdk")]
fn start(args: Args) -> Result<(), CliExit> {
    let _log = ironwarp_cli::start_log(&args.log)?;
    match &args.end {
        Some(args::Command::End(end)) => {
            let outcome = end::run(end);
            ironwarp::cleanup_dpdk();
            outcome.map_err(CliExit::failed)
        }
        None => run::run(&args),
    }
}

#[cfg(not(feature = "dpdk"))]
fn start(_: Args) -> Result<(), CliExit> {
    Err(CliExit::failed("this build has no DPDK, and every device of a soak needs it"))
}
