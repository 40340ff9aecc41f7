//! The command line.

use core::net::SocketAddr;
use std::path::PathBuf;

use clap::{Parser, Subcommand, ValueEnum};

const EXAMPLES: &str = "\
Examples:
  iwarp-soak --minutes 30                               ten minutes each over memif, ring and tap
  iwarp-soak --device memif-native --minutes 10         shared memory whose ends are killed
  iwarp-soak --device storage --minutes 30              NVMe hosts and a target, which are killed too
  iwarp-soak --device memif --minutes 2 --queue-pairs 16
  iwarp-soak --device tap --minutes 5 --seed 7          the same failures in the same order again
  iwarp-soak --minutes 10 --json result.json

tap needs root: the run makes a network namespace of its own, in which Linux routes between two taps.
Exit codes: 0 success, 1 a run that failed, 2 bad arguments.
Ctrl-C ends the run early with the checks of a complete one.";

/// Random operations, checked byte for byte, while frames, links and processes fail
#[derive(Parser, Debug)]
#[command(name = "iwarp-soak", version, after_help = EXAMPLES)]
pub(crate) struct Args {
    /// The devices, one after the other; each gets an equal part of the time
    #[arg(long = "device", value_name = "DEVICE", value_enum, default_values = ["memif", "ring", "tap"])]
    pub(crate) devices: Vec<Device>,
    /// The time of the whole run, in minutes
    #[arg(long, value_name = "N", default_value_t = 2.0, value_parser = minutes)]
    pub(crate) minutes: f64,
    /// Queue pairs at each end
    #[arg(long, value_name = "N", default_value_t = 64, value_parser = clap::value_parser!(u32).range(1..=256))]
    pub(crate) queue_pairs: u32,
    /// The seed of operations and failures; by default a random one, which the run prints
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
    /// Its configuration; both ends have two, a target has one for each reload
    #[arg(long, required = true)]
    pub(crate) config: Vec<PathBuf>,
    /// The address of the server
    #[arg(long)]
    pub(crate) at: SocketAddr,
    /// Queue pairs of the client
    #[arg(long)]
    pub(crate) queue_pairs: u32,
    /// The seed of its operations
    #[arg(long)]
    pub(crate) seed: u64,
    /// Its number among the hosts of storage
    #[arg(long, default_value_t = 0)]
    pub(crate) number: u32,
    /// The folder of the run, for storage
    #[arg(long)]
    pub(crate) folder: Option<PathBuf>,
}

/// A device between the two ends.
#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Device {
    /// Two processes over shared memory, with DPDK's driver
    Memif,
    /// The same with this library's driver; processes are killed
    MemifNative,
    /// Two threads of one process over DPDK rings
    Ring,
    /// Two processes with a tap each, between which Linux routes; processes are killed and links go
    /// down
    Tap,
    /// An NVMe over Fabrics target and three hosts, four processes over the native memif; hosts,
    /// then the target, are killed, links are cut, namespaces reloaded
    Storage,
}

/// The role of an end.
#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Role {
    /// Accepts, checks and answers messages
    Server,
    /// Connects, posts operations and checks their results
    Client,
    /// Both, joined by rings
    Both,
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
