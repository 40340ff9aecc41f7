//! `iwarp-ping`: the program around the library.
//!
//! Exit codes: 0 success, 1 a run that failed, 2 bad arguments or configuration.
#![forbid(unsafe_code)]

mod args;

use core::net::SocketAddr;
use core::sync::atomic::AtomicBool;
use std::process::ExitCode;

use ironwarp::{Config, SetupError};
use ironwarp_cli::{fail, read, refuse, say, start_log};
use iwarp_ping::{Client, End, PingError, Server};
use serde_json::{Value, json};

use crate::args::Args;

const PROGRAM: &str = "iwarp-ping";

fn main() -> ExitCode {
    let args: Args = match read(std::env::args_os()) {
        Ok(args) => args,
        Err(refusal) => return refusal.end(PROGRAM),
    };
    if let Err(line) = args.check().and_then(|()| start_log(&args.log)) {
        return refuse(PROGRAM, line);
    }
    let config = match Config::from_file(&args.config) {
        Ok(config) => config,
        Err(error) => return refuse(PROGRAM, error),
    };
    let stop = match ironwarp_cli::on_interrupt() {
        Ok(stop) => stop,
        Err(line) => return fail(PROGRAM, line),
    };
    let outcome = if args.server { serve(&args, config, &stop) } else { call(&args, config, &stop) };
    #[cfg(feature = "dpdk")]
    ironwarp::cleanup_dpdk();
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(PingError::Argument(line)) => refuse(PROGRAM, line),
        Err(PingError::Setup(SetupError::Config(error))) => refuse(PROGRAM, error),
        // It was told when that client was given up.
        Err(PingError::Far(_)) if args.server => ExitCode::FAILURE,
        Err(error) => fail(PROGRAM, error),
    }
}

fn serve(args: &Args, config: Config, stop: &AtomicBool) -> Result<(), PingError> {
    let offer = args.offer(&addresses(&config)?).map_err(PingError::Argument)?;
    let local = offer.local;
    let mut server = Server::new(open(args, config)?, offer, Box::new(tell))?;
    tell_user(
        args,
        || format!("listening at {local}\n"),
        || json!({"event": "listening", "local": local.to_string()}),
    );
    let outcome = server.run(stop);
    let tally = server.tally();
    tell_user(args, || tally.to_string(), || tally.json());
    outcome
}

fn call(args: &Args, config: Config, stop: &AtomicBool) -> Result<(), PingError> {
    let call = args.call(&addresses(&config)?).map_err(PingError::Argument)?;
    let server = call.server;
    let mut client = Client::new(open(args, config)?, call)?;
    let outcome = client.run(stop).map_err(|error| match error {
        PingError::Far(fault) => PingError::Server { server, fault },
        other => other,
    });
    let tally = client.tally();
    tell_user(args, || tally.to_string(), || tally.json(&server.to_string()));
    outcome
}

fn open(args: &Args, config: Config) -> Result<End, PingError> {
    let mut end = End::open(config)?;
    match &args.pcap {
        Some(path) => end.capture(path).map(|()| end),
        None => Ok(end),
    }
}

fn addresses(config: &Config) -> Result<Vec<core::net::IpAddr>, PingError> {
    Ok(config.addresses().map_err(SetupError::from)?)
}

fn tell_user(args: &Args, text: impl FnOnce() -> String, line: impl FnOnce() -> Value) {
    if args.json {
        say(format_args!("{}\n", line()));
    } else if !args.quiet {
        say(text());
    }
}

/// A client that was given up.
fn tell(client: SocketAddr, error: &PingError) {
    eprintln!("{PROGRAM}: {client}: {error}");
}
