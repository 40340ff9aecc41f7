//! The command line.

mod host;
mod publish;
mod report;

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use clap::{Parser, Subcommand};
use ironwarp_cli::{CliExit, on_interrupt_or_reload, parse_args, print_stdout, start_log};
use iwarp_nvmf::NvmfError;
use iwarp_nvmf::config::TargetConfig;
use iwarp_nvmf::namespaces::Namespaces;
use iwarp_nvmf::serve::Appliance;

use publish::Publisher;
use report::Report;

const PROGRAM: &str = "iwarp-nvmf";

const EXAMPLES: &str = "\
Examples:
  iwarp-nvmf check --config configs/nvmf/memif.toml
  iwarp-nvmf serve --config configs/nvmf/memif.toml --interval 1

  iwarp-nvmf host identify --config configs/memif-client.toml --connect 10.99.0.1:4420
  iwarp-nvmf host bench --config configs/memif-client.toml --connect 10.99.0.1:4420 --operation write --verify
  iwarp-nvmf host read --config configs/memif-client.toml --connect 10.99.0.1:4420 --blocks 8 > blocks

  On a Linux host with an RDMA device:
    nvme discover -t rdma -a 10.99.0.1 -s 4420
    nvme connect -t rdma -a 10.99.0.1 -s 4420 -n nqn.2014-08.org.example:disk

Exit codes: 0 success, 1 a run that failed, 2 bad arguments or configuration.";

/// An NVMe over Fabrics target over RDMA in user space, and a host that tests it.
#[derive(Parser, Debug)]
#[command(version, about, after_help = EXAMPLES)]
struct Args {
    #[command(subcommand)]
    command: Command,
    /// The log: error, warn, info, or a filter of tracing-subscriber
    #[arg(long, global = true, value_name = "LEVEL", default_value = "warn")]
    log: String,
}

#[derive(Subcommand, Debug)]
enum Command {
    /// Serve the namespaces of a configuration until Ctrl-C. SIGHUP reads it again and adds, changes and removes namespaces
    Serve {
        /// The configuration, a TOML file as configs/nvmf/memif.toml
        #[arg(long, value_name = "FILE")]
        config: PathBuf,
        /// Print a JSON line for each namespace every SECONDS: commands, bytes, errors, latencies of the target alone
        #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(1..=86_400))]
        interval: Option<u64>,
    },
    /// Check a configuration, and list what would be served
    Check {
        /// The configuration
        #[arg(long, value_name = "FILE")]
        config: PathBuf,
    },
    /// Drive a target as a host
    #[command(subcommand)]
    Host(host::HostCommand),
}

pub(crate) fn main() -> ExitCode {
    run().map_or_else(|exit| exit.report(PROGRAM), |()| ExitCode::SUCCESS)
}

fn run() -> Result<(), CliExit> {
    let args: Args = parse_args(std::env::args_os())?;
    let _log = start_log(&args.log)?;
    match &args.command {
        Command::Check { config } => check(config),
        Command::Host(command) => host::run(command),
        Command::Serve { config, interval } => {
            let (stop, reload) = on_interrupt_or_reload().map_err(CliExit::Failed)?;
            let outcome = serve(config, *interval, (&stop, &reload));
            #[cfg(feature = "dpdk")]
            ironwarp::cleanup_dpdk();
            outcome
        }
    }
}

fn check(config: &Path) -> Result<(), CliExit> {
    let config = TargetConfig::from_file(config).map_err(CliExit::bad_arguments)?;
    let mut text = String::new();
    for at in &config.listeners {
        text += &format!("listener {at}\n");
    }
    for subsystem in &config.subsystems {
        text += &format!("subsystem {}\n", subsystem.nqn);
        for namespace in &subsystem.namespaces {
            text += &format!("  namespace {}: {:?}\n", namespace.nsid, namespace.backend);
        }
    }
    print_stdout(text);
    Ok(())
}

fn serve(
    path: &Path,
    interval: Option<u64>,
    (stop, reload_now): (&AtomicBool, &AtomicBool),
) -> Result<(), CliExit> {
    let config = TargetConfig::from_file(path).map_err(CliExit::bad_arguments)?;
    let appliance = Appliance::open(&config, None).map_err(start_error)?;
    let ready = || {
        for at in &config.listeners {
            print_stdout(format!("listening on {at}\n"));
        }
    };
    let mut report = Report::default();
    let mut publisher = Publisher::new(config.stack.stats.page.as_deref());
    let interval = interval.map(Duration::from_secs);
    let mut next = interval.map(|interval| Instant::now() + interval);
    let control = |namespaces: &mut Namespaces| {
        if reload_now.swap(false, Ordering::Relaxed) {
            reload(namespaces, path);
        }
        publisher.publish(namespaces.target());
        if let Some((at, interval)) = next.as_mut().zip(interval)
            && Instant::now() >= *at
        {
            report.print(namespaces.target());
            *at += interval;
        }
    };
    appliance.run(stop, ready, control).map_err(start_error)
}

/// Reads the configuration again. A bad one changes nothing.
fn reload(namespaces: &mut Namespaces, path: &Path) {
    match TargetConfig::from_file(path) {
        Ok(config) => eprintln!("{PROGRAM}: reloaded: {}", namespaces.reload(&config)),
        Err(error) => eprintln!("{PROGRAM}: not reloaded: {error}"),
    }
}

fn start_error(error: NvmfError) -> CliExit {
    match error {
        NvmfError::Setup(ironwarp::SetupError::Config(error)) => CliExit::bad_arguments(error),
        error => CliExit::failed(error),
    }
}
