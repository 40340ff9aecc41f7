//! `iwarp-perf`: RDMA tests against raw frames and kernel TCP.
//!
//! The process that the user starts is the parent. It parses the command line, makes a plan, starts
//! a client process for each session, shows progress, and prints and writes the results. It never
//! opens a device, so a driver that crashes its process ends one session and not the report.
//!
//! Exit codes: 0 success, 1 a run that failed, 2 bad arguments or configuration, 3 a suite during
//! which raw frames were never steady.
#![forbid(unsafe_code)]

mod about;
mod child;
mod cli;
mod client;
mod control;
mod doctor;
mod error;
mod limits;
mod parent;
mod plan;
mod rdma;
mod server;
mod values;

use std::process::ExitCode;

use about::PROGRAM;
use child::{Role, init_process};
use cli::{CommandLine, Tool};

fn main() -> ExitCode {
    let arguments: Vec<_> = std::env::args_os().collect();
    if let Some(role) = Role::of(&arguments) {
        let served = init_process().and_then(|(socket, _log)| match role {
            Role::Client => client::serve(socket),
            Role::Server => server::serve(socket, None),
        });
        if let Err(error) = served {
            eprintln!("{role:?}: {error}");
        }
        return ExitCode::SUCCESS;
    }
    let outcome = CommandLine::read(&arguments).and_then(|line| match line {
        CommandLine::Test(args) => parent::run(&args),
        CommandLine::Tool(Tool::Doctor(args)) => doctor::run(&args),
    });
    ironwarp_cli::exit_code(outcome.unwrap_or_else(|exit| exit.report(PROGRAM)))
}
