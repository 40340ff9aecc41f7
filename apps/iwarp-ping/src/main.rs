//! `iwarp-ping`: the program around the library.
//!
//! Exit codes: 0 success, 1 a run that failed, 2 bad arguments or configuration.
#![forbid(unsafe_code)]

mod args;

use core::net::SocketAddr;
use core::sync::atomic::AtomicBool;
use std::process::ExitCode;

use ironwarp::{Config, SetupError};
use ironwarp_cli::{CliExit, exit_code, on_interrupt, parse_args, print_stdout, start_log};
use iwarp_ping::{Client, Endpoint, PingError, Server};
use serde_json::{Value, json};

use crate::args::Args;

const PROGRAM: &str = "iwarp-ping";

fn main() -> ExitCode {
    exit_code(run().unwrap_or_else(|exit| exit.report(PROGRAM)))
}

fn run() -> Result<ExitCode, CliExit> {
    let args: Args = parse_args(std::env::args_os())?;
    args.check()?;
    let _log = start_log(&args.log)?;
    let config = Config::from_file(&args.config).map_err(CliExit::bad_arguments)?;
    let stop = on_interrupt().map_err(CliExit::Failed)?;
    let outcome =
        if args.server { run_server(&args, config, &stop) } else { run_client(&args, config, &stop) };
    #[cfg(feature = "dpdk")]
    ironwarp::cleanup_dpdk();
    match outcome {
        Ok(()) => Ok(ExitCode::SUCCESS),
        Err(PingError::Argument(line)) => Err(CliExit::BadArguments(line)),
        Err(PingError::Setup(SetupError::Config(error))) => Err(CliExit::bad_arguments(error)),
        // The error was printed when that client was abandoned.
        Err(PingError::Peer(_)) if args.server => Ok(ExitCode::FAILURE),
        Err(error) => Err(CliExit::failed(error)),
    }
}

fn run_server(args: &Args, config: Config, stop: &AtomicBool) -> Result<(), PingError> {
    let server_config = args.server_config(&addresses(&config)?).map_err(PingError::Argument)?;
    let local = server_config.local;
    let mut server = Server::new(open(args, config)?, server_config, Box::new(report_error))?;
    print_output(
        args,
        || format!("listening at {local}\n"),
        || json!({"event": "listening", "local": local.to_string()}),
    );
    let outcome = server.run(stop);
    let stats = server.stats();
    print_output(args, || stats.to_string(), || stats.json());
    outcome
}

fn run_client(args: &Args, config: Config, stop: &AtomicBool) -> Result<(), PingError> {
    let client_config = args.client_config(&addresses(&config)?).map_err(PingError::Argument)?;
    let server = client_config.server;
    let mut client = Client::new(open(args, config)?, client_config)?;
    let outcome = client.run(stop).map_err(|error| match error {
        PingError::Peer(fault) => PingError::Server { server, fault },
        other => other,
    });
    let stats = client.stats();
    print_output(args, || stats.to_string(), || stats.json(&server.to_string()));
    outcome
}

fn open(args: &Args, config: Config) -> Result<Endpoint, PingError> {
    let mut endpoint = Endpoint::open(config)?;
    match &args.pcap {
        Some(path) => endpoint.capture(path).map(|()| endpoint),
        None => Ok(endpoint),
    }
}

fn addresses(config: &Config) -> Result<Vec<core::net::IpAddr>, PingError> {
    Ok(config.addresses().map_err(SetupError::from)?)
}

fn print_output(args: &Args, text: impl FnOnce() -> String, line: impl FnOnce() -> Value) {
    if args.json {
        print_stdout(format_args!("{}\n", line()));
    } else if !args.quiet {
        print_stdout(text());
    }
}

fn report_error(client: SocketAddr, error: &PingError) {
    eprintln!("{PROGRAM}: {client}: {error}");
}
