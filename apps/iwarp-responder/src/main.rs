//! A conformance responder: registers memory with every right, tells each peer where it is, echoes its Sends and
//! answers its Writes and Reads. Prints one JSON line an event.
//!
//! Exit status: 0 after a clean end, 1 when the device or the stack fails, 2 for arguments or a configuration that
//! cannot be used.
#![forbid(unsafe_code)]

mod args;
mod connection;
mod report;
mod responder;

use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use clap::Parser;
use ironwarp::{Config, SetupError};

use crate::args::Args;
use crate::responder::Responder;

fn main() -> ExitCode {
    let args = Args::parse();
    if let Err(line) = args.start_log() {
        return refuse(&line);
    }
    let config = match Config::from_file(&args.config) {
        Ok(config) => config,
        Err(error) => return refuse(&error.to_string()),
    };
    let stop = Arc::new(AtomicBool::new(false));
    let seen = stop.clone();
    if let Err(error) = ctrlc::set_handler(move || seen.store(true, Ordering::Relaxed)) {
        return fail(&format!("no handler for Ctrl-C: {error}"));
    }
    let code = run(&args, config, &stop);
    #[cfg(feature = "dpdk")]
    ironwarp::end_dpdk();
    code
}

fn run(args: &Args, config: Config, stop: &AtomicBool) -> ExitCode {
    match Responder::start(args, config) {
        Ok(mut responder) => outcome(responder.run(stop)),
        Err(StartError::Argument(line)) => refuse(&line),
        Err(StartError::Setup(SetupError::Config(error))) => refuse(&error.to_string()),
        Err(error) => fail(&error.to_string()),
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
        Err(error) => fail(&error.to_string()),
    }
}

fn refuse(line: &str) -> ExitCode {
    eprintln!("iwarp-responder: {line}");
    ExitCode::from(2)
}

fn fail(line: &str) -> ExitCode {
    eprintln!("iwarp-responder: {line}");
    ExitCode::from(1)
}
