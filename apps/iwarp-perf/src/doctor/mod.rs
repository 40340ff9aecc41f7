//! `iwarp-perf doctor`: whether a configuration works on this machine, and what to do where it does
//! not.
//!
//! First it reads what the kernel reports (`ironwarp::host`), which changes nothing. Without a
//! fault it opens the device and checks its link, address conflicts, and with `--connect` whether
//! the peer accepts iWARP. It prints one line per finding. Every step has a time limit, and a
//! watchdog ends the program if a driver hangs.
//!
//! Exit codes: 0 nothing is wrong, 1 something is, 2 bad arguments or configuration.

mod live;
mod report;

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use ironwarp::Config;
use ironwarp::host::{Finding, Host, Severity};
use ironwarp_cli::{CliExit, start_log};
use iwarp_nvmf::config::TargetConfig;

use report::Report;

const EXAMPLES: &str = "\
Examples:
  iwarp-perf doctor --config configs/af_packet.toml
  iwarp-perf doctor --config configs/e1000e.toml --connect 10.99.7.2
  iwarp-perf doctor --config configs/tap.toml --dry --json
  iwarp-perf doctor --config configs/nvmf/memif.toml          the stack of a target of iwarp-nvmf

Exit codes: 0 nothing is wrong, 1 something is, 2 bad arguments or configuration.";

/// Says whether a configuration works on this machine, and what to do where it does not
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// The configuration of any of the programs, a TOML file as under configs/
    #[arg(long, value_name = "FILE")]
    config: PathBuf,
    /// A far end to reach; its port is 18515 unless named
    #[arg(long, value_name = "ADDR[:PORT]", value_parser = crate::values::address)]
    connect: Option<SocketAddr>,
    /// Look at the machine only, and leave the device alone
    #[arg(long, conflicts_with = "connect")]
    dry: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
    /// What to log: error, warn, info, or a filter as of tracing-subscriber
    #[arg(long, value_name = "LEVEL", default_value = "error")]
    log: String,
}

/// Longer than the limits of all steps together.
const TOTAL_TIMEOUT: Duration = Duration::from_secs(60);

pub fn run(args: &Args) -> Result<ExitCode, CliExit> {
    let _log = start_log(&args.log)?;
    let config = read_config(&args.config)?;
    let report = Report::new(&args.config, args.json);
    report.start_watchdog(TOTAL_TIMEOUT);
    Host::local().examine(&config).into_iter().for_each(|finding| report.add(finding));
    if report.worst() == Severity::Fault {
        report.add(Finding::warning("device", "not opened", "put right what is wrong above, and ask again"));
    } else if args.dry {
        report.add(Finding::good("device", "not opened: --dry"));
    } else {
        live::examine(config, args.connect, &report);
    }
    Ok(report.end())
}

/// Reads the configuration of a stack, or that of a target of `iwarp-nvmf`, which has one as its
/// table `stack`. A stack has a table of that name, too, without a device.
fn read_config(path: &Path) -> Result<Config, CliExit> {
    let has_device = |stack: &toml::Value| stack.get("port").is_some();
    let is_target = |text: &String| {
        toml::from_str::<toml::Table>(text).is_ok_and(|table| table.get("stack").is_some_and(has_device))
    };
    // A file that cannot be read has its error below.
    if std::fs::read_to_string(path).ok().as_ref().is_some_and(is_target) {
        return TargetConfig::from_file(path).map(|target| target.stack).map_err(CliExit::bad_arguments);
    }
    Config::from_file(path).map_err(CliExit::bad_arguments)
}
