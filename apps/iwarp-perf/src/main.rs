//! `iwarp-perf`: RDMA tests against raw frames and kernel TCP.
//!
//! The process that the user starts is the parent. It parses the command line, makes a plan, starts a client process for
//! each session, shows progress, and prints and writes the results. It never opens a device, so a driver that crashes its
//! process ends one session and not the report.
//!
//! Exit codes: 0 success, 1 a run that failed, 2 bad arguments or configuration, 3 a suite during which raw frames were
//! never steady.
#![forbid(unsafe_code)]

mod child;
mod cli;
mod client;
mod compare;
mod control;
mod doctor;
mod parent;
mod plan;
mod rdma;
mod results;
mod scale;
mod server;

use std::process::ExitCode;

use child::Role;
use cli::{Args, TOOLS};

/// The name of the program in its messages.
const PROGRAM: &str = "iwarp-perf";

fn main() -> ExitCode {
    let arguments: Vec<_> = std::env::args_os().collect();
    match Role::of(&arguments) {
        Some(Role::Client) => return client::main(),
        Some(Role::Server) => return server::main(),
        None => {}
    }
    let word = arguments.get(1).and_then(|word| word.to_str());
    let outcome = match TOOLS.iter().find(|tool| word == Some(tool.word)) {
        // The options of a tool are its own.
        Some(tool) => (tool.run)([&arguments[..1], &arguments[2..]].concat()),
        None => Args::read(&arguments).and_then(|args| parent::run(&args)),
    };
    ironwarp_cli::exit_code(outcome.unwrap_or_else(|exit| exit.report(PROGRAM)))
}
