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
use cli::Args;

/// The name of the program in its messages.
const PROGRAM: &str = "iwarp-perf";

fn main() -> ExitCode {
    let arguments: Vec<_> = std::env::args_os().collect();
    match Role::of(&arguments) {
        Some(Role::Client) => return client::main(),
        Some(Role::Server) => return server::main(),
        None => {}
    }
    // The options of these are their own.
    let own = || [&arguments[..1], &arguments[2..]].concat();
    let outcome = match arguments.get(1).and_then(|word| word.to_str()) {
        Some("compare") => compare::run(own()),
        Some("doctor") => doctor::run(own()),
        Some("results") => results::run(own()),
        Some("qp-memory") => scale::memory::run(own()),
        Some("incast") => scale::incast::run(own()),
        Some("qp-fairness") => scale::fairness::run(own()),
        Some("qp-scale") => scale::spread::run(own()),
        _ => Args::read(&arguments).and_then(|args| parent::run(&args)),
    };
    ironwarp_cli::exit_code(outcome.unwrap_or_else(|exit| exit.report(PROGRAM)))
}
