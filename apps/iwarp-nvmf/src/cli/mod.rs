//! The command line.

mod host;
mod publish;
mod reload;
mod report;
mod service;
mod state;

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use clap::{Parser, Subcommand};
use ironwarp_cli::{CliExit, exit_code, on_interrupt_or_reload, parse_args, print_stdout, start_log};
use iwarp_nvmf::NvmfError;
use iwarp_nvmf::backend::Inherited;
use iwarp_nvmf::config::{BackendConfig, HostConfig, TargetConfig};
use iwarp_nvmf::identities::IdentityError;
use iwarp_nvmf::open::{self, Finding};
use iwarp_nvmf::serve::{Appliance, Control, Surroundings};

use publish::Publisher;
use reload::Reloads;
use report::Report;
use service::Service;

const PROGRAM: &str = "iwarp-nvmf";

const EXAMPLES: &str = "\
Examples:
  iwarp-nvmf check --config configs/nvmf/memif.toml
  iwarp-nvmf serve --config configs/nvmf/memif.toml --interval 1

  iwarp-nvmf host identify --config configs/memif-client.toml --connect 10.99.0.1:4420
  iwarp-nvmf host bench --config configs/memif-client.toml --connect 10.99.0.1:4420 --operation write --verify
  iwarp-nvmf host read --config configs/memif-client.toml --connect 10.99.0.1:4420 --blocks 8 > blocks

  iwarp-nvmf host identify --config configs/memif-client.toml --connect 10.99.0.1:4420 --secrets hosts.toml

  On a Linux host with an RDMA device:
    nvme discover -t rdma -a 10.99.0.1 -s 4420
    nvme connect -t rdma -a 10.99.0.1 -s 4420 -n nqn.2014-08.org.example:disk

  A secret for in-band authentication: nvme gen-dhchap-key

SIGHUP, or iwarp-nvmf reload, reads the configuration again. docs/storage.md: what a reload changes, and the files of
state_dir. With systemd's NOTIFY_SOCKET and WATCHDOG_USEC, serve reports that it listens and that every core runs.

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
    /// Serve the namespaces of a configuration until Ctrl-C. SIGHUP reads it again and adds,
    /// changes and removes namespaces
    Serve {
        /// The configuration, a TOML file as configs/nvmf/memif.toml
        #[arg(long, value_name = "FILE")]
        config: PathBuf,
        /// Print a JSON line for each namespace every SECONDS: commands, bytes, errors, latencies
        /// of the target alone
        #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(1..=86_400))]
        interval: Option<u64>,
    },
    /// Check a configuration, open what would be served, and list it. A target that runs is not
    /// disturbed
    Check {
        /// The configuration
        #[arg(long, value_name = "FILE")]
        config: PathBuf,
    },
    /// Let the target that runs with a configuration read it again, and print what it has changed.
    /// Fails if something was not done
    Reload {
        /// The configuration
        #[arg(long, value_name = "FILE")]
        config: PathBuf,
    },
    /// Drive a target as a host
    #[command(subcommand)]
    Host(host::HostCommand),
}

pub(crate) fn main() -> ExitCode {
    exit_code(run().map_or_else(|exit| exit.report(PROGRAM), |()| ExitCode::SUCCESS))
}

fn run() -> Result<(), CliExit> {
    let args: Args = parse_args(std::env::args_os())?;
    let _log = start_log(&args.log)?;
    match &args.command {
        Command::Check { config } => check(config),
        Command::Reload { config } => reload::order(&load(config)?),
        Command::Host(command) => host::run(command),
        Command::Serve { config, interval } => {
            let inherited = Inherited::take().map_err(CliExit::failed)?;
            let (stop, reload) = on_interrupt_or_reload().map_err(CliExit::Failed)?;
            let outcome = serve(config, *interval, (&stop, &reload), inherited);
            #[cfg(feature = "dpdk")]
            ironwarp::cleanup_dpdk();
            outcome
        }
    }
}

/// Reads a configuration, and completes what has a default outside of it.
fn load(path: &Path) -> Result<TargetConfig, CliExit> {
    let mut config = TargetConfig::from_file(path).map_err(CliExit::bad_arguments)?;
    config.state_dir = config.state_dir.take().or_else(|| state::default_folder(path));
    Ok(config)
}

fn check(path: &Path) -> Result<(), CliExit> {
    let config = load(path)?;
    let findings = open::check(&config).map_err(start_error)?;
    let mut text = String::new();
    for at in &config.listeners {
        text += &format!("listener {at}\n");
    }
    for host in &config.hosts {
        let both = if host.dhchap_ctrl_secret.is_some() { ", and the target can prove itself" } else { "" };
        text += &format!("host {}: has to prove itself{both}\n", host.nqn);
    }
    text += &shared_secrets(&config.hosts);
    let policy = config.auth_policy();
    let mut bad = Vec::new();
    for subsystem in &config.subsystems {
        text += &format!("subsystem {}\n", subsystem.nqn);
        let without = if policy.is_required { "refused: no secret" } else { "admitted without a proof" };
        if subsystem.allow_any_host && !policy.is_required {
            text += "  any host that has no secret: admitted without a proof\n";
        }
        for host in subsystem.hosts.iter().filter(|host| !policy.hosts.contains_key(*host)) {
            text += &format!("  host {host}: {without}\n");
        }
        for namespace in &subsystem.namespaces {
            let is_this = |one: &&(String, u32, Finding)| one.0 == subsystem.nqn && one.1 == namespace.nsid;
            let state = match findings.iter().find(is_this).map(|one| &one.2) {
                Some(Finding::Good(Some(bytes))) => format!(", {bytes} bytes"),
                Some(Finding::Served(bytes)) => format!(", {bytes} bytes, served by the running target"),
                Some(Finding::Bad(why)) => {
                    bad.push(format!("namespace {} of {}: {why}", namespace.nsid, subsystem.nqn));
                    ", cannot be served".to_owned()
                }
                Some(Finding::Good(None)) | None => String::new(),
            };
            text += &format!("  namespace {}: {}{state}\n", namespace.nsid, backend(&namespace.backend));
        }
    }
    print_stdout(text);
    if bad.is_empty() { Ok(()) } else { Err(CliExit::Failed(bad.join("; "))) }
}

/// Hosts that know each other's proof of the target.
fn shared_secrets(hosts: &[HostConfig]) -> String {
    let ctrl = |host: &HostConfig| host.dhchap_ctrl_secret.clone();
    let shares = |one: &HostConfig, other: &HostConfig| {
        ctrl(one).zip(ctrl(other)).is_some_and(|(one, other)| one.has_key_of(&other))
    };
    let mut text = String::new();
    for (at, host) in hosts.iter().enumerate() {
        if let Some(other) = hosts.iter().take(at).find(|other| shares(host, other)) {
            let (one, other) = (&other.nqn, &host.nqn);
            text += &format!(
                "warning: {one} and {other} have one dhchap_ctrl_secret: each can pose as the target to the other\n"
            );
        }
    }
    text
}

fn backend(backend: &BackendConfig) -> String {
    match backend {
        BackendConfig::Memory { mib } => format!("{mib} MiB of memory"),
        BackendConfig::Null { mib } => format!("{mib} MiB of nothing"),
        BackendConfig::File { path, .. } => path.display().to_string(),
    }
}

fn serve(
    path: &Path,
    interval: Option<u64>,
    (stop, reload_now): (&AtomicBool, &AtomicBool),
    inherited: Vec<Inherited>,
) -> Result<(), CliExit> {
    let config = load(path)?;
    let mut service = Service::new(&inherited);
    let surroundings = Surroundings { inherited, ..Surroundings::default() };
    let appliance = Appliance::open_in(&config, surroundings).map_err(start_error)?;
    let (listens, listening) = std::sync::mpsc::channel();
    let ready = || {
        for at in &config.listeners {
            print_stdout(format!("listening on {at}\n"));
        }
        // The control thread, which takes it, lives as long as the cores.
        let _ = listens.send(());
    };
    let mut report = Report::default();
    let mut publisher = Publisher::new(config.stack.stats.page.as_deref());
    let mut reloads = Reloads::new(config.state_dir.as_deref());
    let interval = interval.map(Duration::from_secs);
    let mut next = interval.map(|interval| Instant::now() + interval);
    let control = |control: &mut Control<'_>| {
        if listening.try_recv().is_ok() {
            service.on_ready(control.namespaces);
        }
        if reload_now.swap(false, Ordering::Relaxed) {
            service.on_reload();
            reloads.reload(control.namespaces, load(path));
            service.on_ready(control.namespaces);
        }
        service.on_turn(control.all_cores_run);
        publisher.publish(control.namespaces.target());
        if let Some((at, interval)) = next.as_mut().zip(interval)
            && Instant::now() >= *at
        {
            report.print(control.namespaces.target());
            *at += interval;
        }
    };
    appliance.run(stop, ready, control).map_err(start_error)
}

/// A configuration that cannot be used is not tried again by a service manager; a device or a file
/// may come.
fn start_error(error: NvmfError) -> CliExit {
    match error {
        NvmfError::Setup(ironwarp::SetupError::Config(error)) => CliExit::bad_arguments(error),
        NvmfError::Identity(IdentityError::NoState { .. }) => CliExit::bad_arguments(error),
        error => CliExit::failed(error),
    }
}
