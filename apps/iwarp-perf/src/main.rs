//! `iwarp-perf`: RDMA tests against raw frames and kernel TCP.
//!
//! The process that the user starts is the parent. It parses the command line, makes a plan, starts a client process for
//! each session, shows progress, and prints and writes the results. It never opens a device, so a driver that crashes its
//! process ends one session and not the report.
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

/// The name of the program in its messages.
const PROGRAM: &str = "iwarp-perf";

fn main() -> ExitCode {
    let mut arguments: Vec<_> = std::env::args_os().collect();
    match Role::of(&arguments) {
        Some(Role::Client) => return client::main(),
        Some(Role::Server) => return server::main(),
        None => {}
    }
    if doctor::is_requested(&arguments) {
        return doctor::main(&arguments);
    }
    if arguments.get(1).is_some_and(|word| word == "results") {
        arguments.remove(1);
        return results::main(arguments);
    }
    match Args::read(&arguments).and_then(|args| parent::run(&args)) {
        Ok(code) => code,
        Err(exit) => exit.report(PROGRAM),
    }
}
