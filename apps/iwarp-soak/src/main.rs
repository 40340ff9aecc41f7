//! `iwarp-soak`: a target of NVMe over Fabrics and its hosts, for minutes or hours. Every block is
//! checked, while frames are lost, links are cut, disks fail, processes are stopped and killed.
//! Memory, descriptors and resources must stay flat.
//!
//! | module | contents |
//! | --- | --- |
//! | `args` | the command line |
//! | `end` | one end: a host that checks every block, or the target |
//! | `run` | the run: starts the ends, injects failures, samples memory, decides |
//!
//! Exit codes: 0 success, 1 a run that failed, 2 bad arguments.
#![forbid(unsafe_code)]

mod args;
mod end;
mod run;

use std::process::ExitCode;

use ironwarp_cli::{CliExit, exit_code, parse_args};

use crate::args::{Args, Command};

const PROGRAM: &str = "iwarp-soak";

fn main() -> ExitCode {
    let parsed = parse_args::<Args>(std::env::args_os());
    exit_code(parsed.and_then(start).map_or_else(|exit| exit.report(PROGRAM), |()| ExitCode::SUCCESS))
}

fn start(args: Args) -> Result<(), CliExit> {
    let _log = ironwarp_cli::start_log(&args.log)?;
    match &args.end {
        Some(Command::End(end)) => end::run(end).map_err(CliExit::failed),
        None => run::run(&args),
    }
}
