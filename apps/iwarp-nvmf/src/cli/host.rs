//! The subcommands of `host`: drive a target as an initiator.

use core::net::SocketAddr;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::{Args, Subcommand, ValueEnum};
use ironwarp::{Config, Stack};
use ironwarp_cli::{CliExit, print_stdout};
use iwarp_nvmf::NvmfError;
use iwarp_nvmf::auth::HostSecrets;
use iwarp_nvmf::config::HostConfig;
use iwarp_nvmf::host::{BenchReport, BlockRange, Host, HostSettings, NamespaceSummary, Pattern, Workload};
use iwarp_nvmf::wire::fabrics::DISCOVERY_NQN;

/// How a host connects.
#[derive(Args, Debug)]
pub(crate) struct ConnectArgs {
    /// The RDMA stack's configuration, a TOML file as configs/memif-client.toml
    #[arg(long, value_name = "FILE")]
    config: PathBuf,
    /// The target's address
    #[arg(long, value_name = "ADDR:PORT")]
    connect: SocketAddr,
    /// The subsystem
    #[arg(long, default_value = "nqn.2014-08.org.example:disk")]
    nqn: String,
    /// The host's NQN
    #[arg(long, default_value = "nqn.2014-08.org.ironwarp:host")]
    hostnqn: String,
    /// Secrets for in-band authentication: a TOML file with a [[host]] table for the host's NQN, as
    /// authentication.secrets of the target
    #[arg(long, value_name = "FILE")]
    secrets: Option<PathBuf>,
    /// The keep-alive timeout in milliseconds; 0: none
    #[arg(long, value_name = "MS", default_value_t = 0)]
    kato: u32,
    /// Bind a tag for each command, and let the target invalidate it
    #[arg(long)]
    invalidate: bool,
    /// Send the data of short Writes by RDMA Read instead of in the capsule
    #[arg(long)]
    no_in_capsule: bool,
}

/// What a host does.
#[derive(Subcommand, Debug)]
pub(crate) enum HostCommand {
    /// List the subsystems that the discovery controller names
    Discover {
        #[command(flatten)]
        to: ConnectArgs,
    },
    /// Show the controller and its namespaces
    Identify {
        #[command(flatten)]
        to: ConnectArgs,
    },
    /// Read blocks to standard output
    Read {
        #[command(flatten)]
        to: ConnectArgs,
        #[command(flatten)]
        range: RangeArgs,
    },
    /// Write blocks from standard input
    Write {
        #[command(flatten)]
        to: ConnectArgs,
        #[command(flatten)]
        range: RangeArgs,
    },
    /// Measure commands at a depth
    Bench {
        #[command(flatten)]
        to: ConnectArgs,
        #[command(flatten)]
        bench: BenchArgs,
    },
}

/// Blocks of a namespace.
#[derive(Args, Debug)]
pub(crate) struct RangeArgs {
    /// The namespace
    #[arg(long, value_name = "N", default_value_t = 1)]
    nsid: u32,
    /// The first logical block
    #[arg(long, value_name = "LBA", default_value_t = 0)]
    slba: u64,
    /// Logical blocks
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1 << 20))]
    blocks: u32,
}

/// A workload.
#[derive(Args, Debug)]
pub(crate) struct BenchArgs {
    /// The namespace
    #[arg(long, value_name = "N", default_value_t = 1)]
    nsid: u32,
    /// What the commands do
    #[arg(long, value_enum, default_value = "read")]
    operation: Operation,
    /// Bytes of a command
    #[arg(long, value_name = "N", default_value_t = 4096, value_parser = clap::value_parser!(u32).range(512..=1 << 20))]
    bytes: u32,
    /// Commands outstanding on each queue
    #[arg(long, value_name = "N", default_value_t = 32, value_parser = clap::value_parser!(u16).range(1..=127))]
    depth: u16,
    /// I/O queues
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=64))]
    queues: u16,
    /// Commands in all
    #[arg(long, value_name = "N", default_value_t = 100_000, value_parser = clap::value_parser!(u64).range(1..))]
    commands: u64,
    /// Sequential blocks instead of random ones
    #[arg(long)]
    sequential: bool,
    /// The seed of random blocks
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Write contents that name their block, or check them
    #[arg(long)]
    verify: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
enum Operation {
    Read,
    Write,
}

/// Bytes of a single Read or Write of `read` and `write`.
const PIECE_BYTES: u32 = 4096;

pub(crate) fn run(command: &HostCommand) -> Result<(), CliExit> {
    match command {
        HostCommand::Discover { to } => with_host(to, (DISCOVERY_NQN, PIECE_BYTES), discover),
        HostCommand::Identify { to } => with_host(to, (&to.nqn, PIECE_BYTES), identify),
        HostCommand::Read { to, range } => with_host(to, (&to.nqn, PIECE_BYTES), |host| read(host, range)),
        HostCommand::Write { to, range } => with_host(to, (&to.nqn, PIECE_BYTES), |host| write(host, range)),
        HostCommand::Bench { to, bench } => {
            with_host(to, (&to.nqn, bench.bytes), |host| measure(host, bench))
        }
    }
}

/// Opens the stack, connects, and closes again.
fn with_host(
    to: &ConnectArgs,
    (subnqn, bytes): (&str, u32),
    act: impl FnOnce(&mut Host) -> Result<(), NvmfError>,
) -> Result<(), CliExit> {
    let config = Config::from_file(&to.config).map_err(CliExit::bad_arguments)?;
    let secrets = to.secrets.as_deref().map(|path| secrets(path, &to.hostnqn)).transpose()?;
    let (stack, workers) = Stack::builder(config).build().map_err(CliExit::failed)?;
    let settings = HostSettings {
        hostnqn: to.hostnqn.clone(),
        secrets,
        kato_ms: to.kato,
        invalidate: to.invalidate,
        in_capsule: !to.no_in_capsule,
        buffer_bytes: bytes.max(8192),
        timeout: Duration::from_secs(20),
        ..HostSettings::new(to.connect, subnqn)
    };
    let mut host = Host::new(&stack, workers, settings).map_err(CliExit::failed)?;
    let outcome = act(&mut host);
    let closed = host.close(&mut || {});
    drop(host);
    #[cfg(feature = "dpdk")]
    ironwarp::cleanup_dpdk();
    outcome.and(closed).map_err(CliExit::failed)
}

fn secrets(path: &Path, hostnqn: &str) -> Result<HostSecrets, CliExit> {
    let all = HostConfig::from_file(path).map_err(CliExit::bad_arguments)?;
    let own = all.iter().find(|one| one.nqn == hostnqn).map(HostConfig::secrets);
    own.ok_or_else(|| CliExit::bad_arguments(format!("{}: no [[host]] with nqn = {hostnqn}", path.display())))
}

fn discover(host: &mut Host) -> Result<(), NvmfError> {
    host.connect(&mut || {})?;
    for record in host.discover(&mut || {})? {
        print_stdout(format!("{} {} {}\n", record.address, record.service, record.subnqn));
    }
    Ok(())
}

fn identify(host: &mut Host) -> Result<(), NvmfError> {
    let one = host.connect(&mut || {})?;
    let mut text = format!(
        "controller {}: model {}, serial {}, firmware {}, transfers of {} bytes, capsules with {} bytes\n",
        one.cntlid, one.model, one.serial, one.firmware, one.transfer_bytes, one.capsule_bytes
    );
    for NamespaceSummary { nsid, blocks, block_bytes, nguid } in host.namespaces(&mut || {})? {
        let nguid = u128::from_be_bytes(nguid);
        text += &format!("namespace {nsid}: {blocks} blocks of {block_bytes} bytes, NGUID {nguid:032x}\n");
    }
    print_stdout(text);
    Ok(())
}

/// Connects with one I/O queue, and returns the pieces that a range is moved in.
fn pieces(host: &mut Host, range: &RangeArgs) -> Result<(u32, Vec<BlockRange>), NvmfError> {
    host.connect(&mut || {})?;
    host.connect_io_queues(1, &mut || {})?;
    let block_bytes = host.namespace(range.nsid, &mut || {})?.block_bytes;
    let step = (PIECE_BYTES / block_bytes.max(1)).max(1);
    let piece = |first: u32| BlockRange {
        nsid: range.nsid,
        slba: range.slba.saturating_add(first.into()),
        blocks: step.min(range.blocks - first),
    };
    Ok((block_bytes, (0..range.blocks).step_by(step as usize).map(piece).collect()))
}

fn read(host: &mut Host, range: &RangeArgs) -> Result<(), NvmfError> {
    let (block_bytes, pieces) = pieces(host, range)?;
    let mut out = std::io::stdout().lock();
    for piece in pieces {
        let mut data = vec![0; (piece.blocks * block_bytes) as usize];
        host.read(piece, &mut data, &mut || {})?;
        out.write_all(&data)
            .map_err(|source| NvmfError::System { what: "standard output".into(), source })?;
    }
    Ok(())
}

fn write(host: &mut Host, range: &RangeArgs) -> Result<(), NvmfError> {
    let (block_bytes, pieces) = pieces(host, range)?;
    let mut input = std::io::stdin().lock();
    for piece in pieces {
        let mut data = vec![0; (piece.blocks * block_bytes) as usize];
        let what = "standard input, which has to be as long as the blocks";
        input.read_exact(&mut data).map_err(|source| NvmfError::System { what: what.into(), source })?;
        host.write(piece, &mut data, &mut || {})?;
    }
    host.flush(range.nsid, &mut || {})
}

fn measure(host: &mut Host, bench: &BenchArgs) -> Result<(), NvmfError> {
    host.connect(&mut || {})?;
    host.connect_io_queues(bench.queues, &mut || {})?;
    let namespace = host.namespace(bench.nsid, &mut || {})?;
    let workload = Workload {
        writes: bench.operation == Operation::Write,
        bytes: bench.bytes,
        depth: bench.depth,
        commands: bench.commands,
        pattern: if bench.sequential { Pattern::Sequential } else { Pattern::Random(bench.seed) },
        verify: bench.verify,
    };
    let report = host.bench(namespace, workload, &mut || {})?;
    print_stdout(if bench.json { json(bench, &report) } else { table(&report) });
    Ok(())
}

/// Percentiles of the latency.
const PERCENTILES: [f64; 5] = [50.0, 90.0, 99.0, 99.9, 100.0];

fn rates(report: &BenchReport) -> (f64, f64) {
    let seconds = report.elapsed_ns.max(1) as f64 / 1e9;
    (report.commands as f64 / seconds, report.bytes as f64 / seconds / 1e6)
}

fn table(report: &BenchReport) -> String {
    let (per_second, megabytes) = rates(report);
    let mut text = format!("{} commands, {per_second:.0} per second, {megabytes:.1} MB/s\n", report.commands);
    for percentile in PERCENTILES {
        let us = report.latency_ns.value_at_percentile(percentile) as f64 / 1e3;
        text += &format!("latency {percentile:>5} %: {us:.1} us\n");
    }
    text
}

fn json(bench: &BenchArgs, report: &BenchReport) -> String {
    let (per_second, megabytes) = rates(report);
    let latency: serde_json::Map<_, _> = PERCENTILES
        .iter()
        .map(|&one| (format!("p{one}"), report.latency_ns.value_at_percentile(one).into()))
        .collect();
    let value = serde_json::json!({
        "operation": format!("{:?}", bench.operation).to_lowercase(),
        "bytes": bench.bytes, "depth": bench.depth, "queues": bench.queues,
        "commands": report.commands, "commands_per_second": per_second, "megabytes_per_second": megabytes,
        "latency_ns": latency,
    });
    format!("{value}\n")
}
