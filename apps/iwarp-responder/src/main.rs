//! A conformance responder: registers memory with every right, advertises it to each peer, echoes
//! Sends of every kind and serves Writes and Reads. It listens or connects. Prints one JSON line
//! per event.
//!
//! Exit status: 0 after a clean end, 1 when the device or the stack fails, 2 for arguments or a
//! configuration that cannot be used.
#![forbid(unsafe_code)]

mod args;
mod connection;
mod report;
mod responder;

use std::process::ExitCode;
use std::sync::atomic::AtomicBool;

use ironwarp::{Config, SetupError};
use ironwarp_cli::{CliExit, exit_code, on_interrupt, parse_args, start_log};

use crate::args::Args;
use crate::responder::Responder;

const PROGRAM: &str = "iwarp-responder";

fn main() -> ExitCode {
    exit_code(run().map_or_else(|exit| exit.report(PROGRAM), |()| ExitCode::SUCCESS))
}

fn run() -> Result<(), CliExit> {
    let args: Args = parse_args(std::env::args_os())?;
    let _log = start_log(&args.log)?;
    let config = Config::from_file(&args.config).map_err(CliExit::bad_arguments)?;
    let stop = on_interrupt().map_err(CliExit::Failed)?;
    let outcome = respond(&args, config, &stop);
    #[cfg(feature = "dpdk")]
    ironwarp::cleanup_dpdk();
    outcome
}

fn respond(args: &Args, config: Config, stop: &AtomicBool) -> Result<(), CliExit> {
    let mut responder = Responder::start(args, config).map_err(|error| match error {
        StartError::Argument(line) => CliExit::BadArguments(line),
        StartError::Setup(SetupError::Config(error)) => CliExit::bad_arguments(error),
        error => CliExit::failed(error),
    })?;
    responder.run(stop).map_err(CliExit::failed)
}

/// Why the responder did not start.
#[derive(Debug, thiserror::Error)]
pub(crate) enum StartError {
    /// An argument contradicts another one or the configuration.
    #[error("{0}")]
    Argument(String),
    #[error(transparent)]
    Setup(#[from] SetupError),
    /// A call of the stack failed.
    #[error(transparent)]
    Verbs(#[from] ironwarp::VerbsError),
    #[error("--pcap {path}: {source}")]
    Capture { path: String, source: std::io::Error },
}
