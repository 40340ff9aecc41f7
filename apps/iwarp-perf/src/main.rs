//! `iwarp-perf`: RDMA tests beside raw frames and kernel TCP.
//!
//! The process that a user starts is the parent: it reads the command line, makes a plan, starts a near end for each
//! session, shows progress, prints and writes the results. It never touches a device itself, so that a driver
//! that takes its process down takes one session down and not the report.
//!
//! Exit codes: 0 success, 1 a run that failed, 2 bad arguments or configuration.
#![forbid(unsafe_code)]

mod child;
mod cli;
mod client;
mod control;
mod doctor;
mod parent;
mod plan;
mod rdma;
mod results;
mod server;

use std::process::ExitCode;

use child::Role;
use cli::Args;

/// The program in what it says of itself.
const PROGRAM: &str = "iwarp-perf";

fn main() -> ExitCode {
    let arguments: Vec<_> = std::env::args_os().collect();
    match Role::of(&arguments) {
        Some(Role::Client) => return client::main(),
        Some(Role::Server) => return server::main(),
        None => {}
    }
    if doctor::is_requested(&arguments) {
        return doctor::main(&arguments);
    }
    if results::is_requested(&arguments) {
        return results::main(&arguments);
    }
    match Args::read(&arguments) {
        Ok(args) => parent::main(&args),
        Err(exit) => exit.report(PROGRAM),
    }
}
