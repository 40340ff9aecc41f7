//! The command line.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::Parser;

const EXAMPLES: &str = "\
Examples:
  iwarp-top /tmp/ironwarp-server.stats                 a screen, until Ctrl-C or the process ends
  iwarp-top /tmp/ironwarp-server.stats --interval 0.2
  iwarp-top /tmp/ironwarp-server.stats --plain --count 10 > counters.txt
  iwarp-top /tmp/ironwarp-server.stats --once --json   every counter of every core, once
  iwarp-top /tmp/ironwarp-server.stats --listen 127.0.0.1:9464    a page for Prometheus: http://127.0.0.1:9464/metrics

Counters by core and by port, losses by reason, connections (of each core the 64 that moved the most bytes) and NVMe
namespaces. A terminal shows what it has room for, anew at each snapshot. Where standard output is no terminal, and with
--plain, --once or --json, snapshots follow each other.

A process publishes its counters in the file that its configuration names, for example
[stats] page = \"/tmp/ironwarp-server.stats\". Without stats.page the counters are private to the process.
iwarp-top only reads the file; reading costs the process nothing.
Exit codes: 0 success, 1 the page could not be read, 2 bad arguments.";

/// The shortest interval: a page is a few kilobytes.
const INTERVAL_MIN: f64 = 0.01;
const INTERVAL_MAX: f64 = 3600.0;

/// Live counters of a running process: by core, port and connection, losses by reason, and the NVMe
/// namespaces of iwarp-nvmf
#[derive(Parser, Debug)]
#[command(name = "iwarp-top", version, after_help = EXAMPLES)]
pub(crate) struct Args {
    /// The counter file, as named by `stats.page` in the configuration of the process
    #[arg(value_name = "PAGE")]
    pub(crate) page: PathBuf,
    /// Seconds between two snapshots
    #[arg(long, short = 'i', value_name = "SECONDS", default_value = "1", value_parser = interval)]
    pub(crate) interval: Duration,
    /// Snapshots to take; without it until Ctrl-C or until the process ends
    #[arg(long, short = 'n', value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) count: Option<u64>,
    /// Take one snapshot, without rates
    #[arg(long, conflicts_with_all = ["count", "interval"])]
    pub(crate) once: bool,
    /// Print on a terminal too one whole snapshot after the other
    #[arg(long, conflicts_with = "json")]
    pub(crate) plain: bool,
    /// Print every counter, as one line of JSON per snapshot
    #[arg(long)]
    pub(crate) json: bool,
    /// Serve the counters to Prometheus at this address, as /metrics, until Ctrl-C. The process
    /// that counts may start later, end and start again
    #[arg(long, value_name = "ADDR:PORT", conflicts_with_all = ["interval", "count", "once", "json", "plain"])]
    pub(crate) listen: Option<SocketAddr>,
    /// What to log: error, warn, info, or a tracing-subscriber filter
    #[arg(long, value_name = "LEVEL", default_value = "warn")]
    pub(crate) log: String,
}

impl Args {
    /// Whether an option asks for snapshots that follow each other.
    pub(crate) fn is_plain(&self) -> bool {
        self.plain || self.once || self.json
    }

    /// The number of snapshots to take, or `None` for no limit.
    pub(crate) fn snapshot_limit(&self) -> Option<u64> {
        if self.once { Some(1) } else { self.count }
    }
}

fn interval(text: &str) -> Result<Duration, String> {
    let seconds = text.parse::<f64>().ok().filter(|seconds| (INTERVAL_MIN..=INTERVAL_MAX).contains(seconds));
    seconds.map(Duration::from_secs_f64).ok_or_else(|| format!("{INTERVAL_MIN} to {INTERVAL_MAX} seconds"))
}
