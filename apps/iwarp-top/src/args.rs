//! The command line.

use std::path::PathBuf;
use std::time::Duration;

use clap::Parser;

const EXAMPLES: &str = "\
Examples:
  iwarp-top /run/ironwarp.page                 a screen a second, until Ctrl-C or the process ends
  iwarp-top /run/ironwarp.page --interval 0.2
  iwarp-top /run/ironwarp.page --once --json   every counter of every core, once

A process publishes its counters where its configuration says: [stats] page = \"/run/ironwarp.page\".
They are read and never written, and reading them costs the process nothing.
Exit codes: 0 success, 1 the page could not be read, 2 bad arguments.";

/// The shortest interval: a page is a few kilobytes.
const INTERVAL_MIN: f64 = 0.01;
const INTERVAL_MAX: f64 = 3600.0;

/// Live counters of a running process: per core, and drops by reason
#[derive(Parser, Debug)]
#[command(name = "iwarp-top", version, after_help = EXAMPLES)]
pub(crate) struct Args {
    /// The process's page of counters, as `stats.page` of its configuration names it
    #[arg(value_name = "PAGE")]
    pub(crate) page: PathBuf,
    /// Seconds from one look to the next
    #[arg(long, short = 'i', value_name = "SECONDS", default_value = "1", value_parser = interval)]
    pub(crate) interval: Duration,
    /// Looks to take; until Ctrl-C, or the process ends, unless given
    #[arg(long, short = 'n', value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) count: Option<u64>,
    /// One look, without rates
    #[arg(long, conflicts_with_all = ["count", "interval"])]
    pub(crate) once: bool,
    /// Print every counter, a line of JSON a look
    #[arg(long)]
    pub(crate) json: bool,
    /// What to log: error, warn, info, or a filter as of tracing-subscriber
    #[arg(long, value_name = "LEVEL", default_value = "warn")]
    pub(crate) log: String,
}

impl Args {
    /// Looks to take, where they are counted.
    pub(crate) fn snapshot_limit(&self) -> Option<u64> {
        if self.once { Some(1) } else { self.count }
    }
}

fn interval(text: &str) -> Result<Duration, String> {
    let seconds = text.parse::<f64>().ok().filter(|seconds| (INTERVAL_MIN..=INTERVAL_MAX).contains(seconds));
    seconds.map(Duration::from_secs_f64).ok_or_else(|| format!("{INTERVAL_MIN} to {INTERVAL_MAX} seconds"))
}
