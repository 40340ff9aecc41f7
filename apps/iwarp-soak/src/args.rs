//! The command line.

use core::net::SocketAddr;
use std::path::PathBuf;

use clap::{Parser, Subcommand, ValueEnum};

const EXAMPLES: &str = "\
Examples:
  iwarp-soak --minutes 30
  iwarp-soak --minutes 5 --seed 7          the same commands and failures in the same order again
  iwarp-soak --minutes 10 --json result.json

It needs neither root nor a card: hosts and target are joined by the native memif.
Exit codes: 0 success, 1 a run that failed, 2 bad arguments.
Ctrl-C ends the run early with the checks of a complete one.";

/// NVMe over Fabrics hosts check every block of a target, while frames, links, disks and processes
/// fail
#[derive(Parser, Debug)]
#[command(name = "iwarp-soak", version, after_help = EXAMPLES)]
pub(crate) struct Args {
    /// The time of the run, in minutes
    #[arg(long, value_name = "N", default_value_t = 2.0, value_parser = minutes)]
    pub(crate) minutes: f64,
    /// The seed of commands and failures; by default a random one, which the run prints
    #[arg(long, value_name = "N")]
    pub(crate) seed: Option<u64>,
    /// Inject nothing: no lost frames, no stopped or killed processes
    #[arg(long)]
    pub(crate) calm: bool,
    /// Write the result to a file
    #[arg(long, value_name = "FILE")]
    pub(crate) json: Option<PathBuf>,
    /// The log on standard error: error, warn, info, or a filter of tracing-subscriber
    #[arg(long, value_name = "FILTER", default_value = "error", global = true)]
    pub(crate) log: String,
    #[command(subcommand)]
    pub(crate) end: Option<Command>,
}

#[derive(Subcommand, Debug)]
pub(crate) enum Command {
    /// One end of a run, which starts it: takes orders on standard input, reports on standard
    /// output
    #[command(hide = true)]
    End(EndArgs),
}

/// The arguments of an end.
#[derive(clap::Args, Debug)]
pub(crate) struct EndArgs {
    /// What it does
    #[arg(long, value_enum)]
    pub(crate) role: Role,
    /// Its configuration; a target has one for each reload
    #[arg(long, required = true)]
    pub(crate) config: Vec<PathBuf>,
    /// The address of the target
    #[arg(long)]
    pub(crate) at: SocketAddr,
    /// The seed of its commands
    #[arg(long)]
    pub(crate) seed: u64,
    /// Its number among the hosts
    #[arg(long)]
    pub(crate) number: u32,
    /// The folder of the run
    #[arg(long)]
    pub(crate) folder: PathBuf,
}

/// The role of an end.
#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Role {
    /// Serves namespaces
    Target,
    /// Reads and writes them
    Host,
}

fn minutes(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(minutes) if (0.1..=100_000.0).contains(&minutes) => Ok(minutes),
        _ => Err("must be a number of minutes from 0.1 to 100000".to_owned()),
    }
}
