//! A conformance responder: registers memory with every right, advertises it to each peer, echoes Sends of every kind
//! and serves Writes and Reads. It listens or connects. Prints one JSON line per event.
//!
//! Exit status: 0 after a clean end, 1 when the device or the stack fails, 2 for arguments or a configuration that
//! cannot be used.
#![forbid(unsafe_code)]

mod args;
mod connection;
mod report;
mod responder;

use std::process::ExitCode;
use std::sync::atomic::AtomicBool;

use ironwarp::{Config, SetupError};
use ironwarp_cli::{bad_arguments, fail, parse_args};

use crate::args::Args;
use crate::responder::Responder;

const PROGRAM: &str = "iwarp-responder";

fn main() -> ExitCode {
    let args: Args = match parse_args(std::env::args_os()) {
        Ok(args) => args,
        Err(exit) => return exit.report(PROGRAM),
    };
    if let Err(line) = ironwarp_cli::start_log(&args.log) {
        return bad_arguments(PROGRAM, line);
    }
    let config = match Config::from_file(&args.config) {
        Ok(config) => config,
        Err(error) => return bad_arguments(PROGRAM, error),
    };
    let stop = match ironwarp_cli::on_interrupt() {
        Ok(stop) => stop,
        Err(line) => return fail(PROGRAM, line),
    };
    let code = run(&args, config, &stop);
    #[cfg(feature = "dpdk")]
    ironwarp::cleanup_dpdk();
    code
}

fn run(args: &Args, config: Config, stop: &AtomicBool) -> ExitCode {
    match Responder::start(args, config) {
        Ok(mut responder) => outcome(responder.run(stop)),
        Err(StartError::Argument(line)) => bad_arguments(PROGRAM, line),
        Err(StartError::Setup(SetupError::Config(error))) => bad_arguments(PROGRAM, error),
        Err(error) => fail(PROGRAM, error),
    }
}

/// Why the responder did not come up.
#[derive(Debug, thiserror::Error)]
pub(crate) enum StartError {
    /// An argument that does not go with the others, or with the configuration.
    #[error("{0}")]
    Argument(String),
    /// The stack.
    #[error(transparent)]
    Setup(#[from] SetupError),
    /// An object of it.
    #[error(transparent)]
    Verbs(#[from] ironwarp::VerbsError),
    /// The capture file.
    #[error("--pcap {path}: {source}")]
    Capture { path: String, source: std::io::Error },
}

fn outcome(result: Result<(), ironwarp::VerbsError>) -> ExitCode {
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => fail(PROGRAM, error),
    }
}
