//! `iwarp-perf qp-memory`: the resident memory of an idle queue pair.
//!
//! Two stacks of this process, joined by in-memory ports, create queue pairs and connect them. After each step the growth of
//! the process's anonymous resident memory is divided by the queue pairs of both ends. Memory that was allocated and never
//! written is not resident and is not counted. Completion queues, regions and the buffers of the device are not included:
//! queue pairs share them, or the application sizes them.
//!
//! Exit codes: 0 success, 1 the memory could not be measured, 2 bad arguments.

use std::ffi::OsString;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::{Parser, value_parser};
use ironwarp::memory::{MemoryConfig, pair};
use ironwarp::{Config, Context, Event, QpAttr, QueuePair, Stack, Worker};
use ironwarp_bench::host::{Build, Machine};
use ironwarp_bench::report::SCHEMA;
use ironwarp_cli::{CliExit, parse_args, print_stdout};
use serde::Serialize;

const EXAMPLES: &str = "\
Examples:
  iwarp-perf qp-memory                                      2000 queue pairs at each end, depth 128
  iwarp-perf qp-memory --qps 30000 --send-depth 16 --recv-depth 16 --json out.json

Exit codes: 0 success, 1 the memory could not be measured, 2 bad arguments.";

/// Measures the resident memory of an idle queue pair, in bytes
#[derive(Debug, Parser)]
#[command(name = "iwarp-perf qp-memory", version, after_help = EXAMPLES)]
struct Args {
    /// Queue pairs at each end
    #[arg(long, short = 'q', default_value_t = 2000, value_parser = value_parser!(u32).range(100..=30_000))]
    qps: u32,
    /// Outstanding sends of a queue pair
    #[arg(long, default_value_t = 128, value_parser = value_parser!(u32).range(1..=65_536))]
    send_depth: u32,
    /// Outstanding receives of a queue pair
    #[arg(long, default_value_t = 128, value_parser = value_parser!(u32).range(1..=65_536))]
    recv_depth: u32,
    /// Writes the figures as JSON
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

/// Resident bytes of one queue pair.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
struct Figures {
    /// An entry of the stack's tables, which `limits.queue_pairs` sizes. It is there from the start, used or not.
    tables: f64,
    /// Its queues and state, after it was created.
    queues: f64,
    /// Its connection, after it was connected.
    connection: f64,
    /// All of them.
    total: f64,
}

/// The JSON of a run.
#[derive(Serialize)]
struct Report {
    schema: u32,
    machine: Machine,
    build: Build,
    queue_pairs: u32,
    send_depth: u32,
    recv_depth: u32,
    resident_bytes_per_qp: Figures,
}

/// Connections in set-up at a time: below the default of `limits.half_open`.
const CONNECTING_MAX: usize = 64;
/// Connecting takes microseconds each.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(60);
const CLIENT: &str = "10.0.0.1/24";
const SERVER: &str = "10.0.0.2/24";
const SERVER_ADDR: &str = "10.0.0.2:18515";

/// Measures and prints. `arguments` are those of the program without the word `qp-memory`.
pub fn run(arguments: Vec<OsString>) -> Result<ExitCode, CliExit> {
    let args: Args = parse_args(arguments)?;
    let figures = measure(&args).map_err(CliExit::failed)?;
    let Args { qps, send_depth, recv_depth, .. } = args;
    print_stdout(format_args!(
        "{qps} idle queue pairs at each end, send depth {send_depth}, receive depth {recv_depth}\n\
         resident bytes of one queue pair:\n\
         {:>12.0}  tables, for each of limits.queue_pairs\n\
         {:>12.0}  queues, when it is created\n\
         {:>12.0}  connection, when it is connected\n\
         {:>12.0}  total\n",
        figures.tables, figures.queues, figures.connection, figures.total
    ));
    args.json.as_deref().map_or(Ok(()), |path| write_json(&args, figures, path))?;
    Ok(ExitCode::SUCCESS)
}

fn write_json(args: &Args, figures: Figures, path: &Path) -> Result<(), CliExit> {
    let report = Report {
        schema: SCHEMA,
        machine: Machine::local(),
        build: Build::current(crate::parent::FEATURES),
        queue_pairs: args.qps,
        send_depth: args.send_depth,
        recv_depth: args.recv_depth,
        resident_bytes_per_qp: figures,
    };
    let failed = |error: &dyn std::fmt::Display| CliExit::failed(format_args!("{}: {error}", path.display()));
    let text = serde_json::to_string_pretty(&report).map_err(|error| failed(&error))?;
    std::fs::write(path, text + "\n").map_err(|error| failed(&error))
}

type AnyError = Box<dyn std::error::Error>;

fn measure(args: &Args) -> Result<Figures, AnyError> {
    let both_ends = f64::from(args.qps) * 2.0;
    // The first stacks also allocate what a process has once.
    let _first = Ends::open(1)?;
    let (_smallest, fixed_bytes) = growth(|| Ends::open(1))?;
    let (mut ends, all_bytes) = growth(|| Ends::open(args.qps))?;
    let attr_of = |cq| QpAttr { send_depth: args.send_depth, recv_depth: args.recv_depth, ..QpAttr::new(cq) };
    let (qps, created_bytes) = growth(|| {
        let client = ends.client.create_qps(args.qps, attr_of)?;
        Ok((client, ends.server.create_qps(args.qps, attr_of)?))
    })?;
    let ((), connected_bytes) = growth(|| ends.connect(&qps.0, &qps.1))?;
    let tables = (all_bytes - fixed_bytes) / both_ends;
    let (queues, connection) = (created_bytes / both_ends, connected_bytes / both_ends);
    Ok(Figures { tables, queues, connection, total: tables + queues + connection })
}

/// Runs `step`. Returns its result and the growth of resident memory, in bytes.
fn growth<T>(step: impl FnOnce() -> Result<T, AnyError>) -> Result<(T, f64), AnyError> {
    let before = resident_bytes()?;
    let value = step()?;
    Ok((value, resident_bytes()? - before))
}

/// Returns the anonymous resident memory of this process, in bytes.
fn resident_bytes() -> Result<f64, AnyError> {
    const FILE: &str = "/proc/self/status";
    let text = std::fs::read_to_string(FILE).map_err(|error| format!("{FILE}: {error}"))?;
    resident_of(&text).ok_or_else(|| format!("{FILE} has no RssAnon").into())
}

/// Returns the bytes of the line `RssAnon`, which has KiB.
fn resident_of(status: &str) -> Option<f64> {
    let rest = status.lines().find_map(|line| line.strip_prefix("RssAnon:"))?;
    let kib: f64 = rest.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kib * 1024.0)
}

/// One stack, polled by the calling thread.
struct End {
    context: Context,
    worker: Worker,
    _stack: Stack,
}

impl End {
    fn create_qps(
        &mut self,
        count: u32,
        attr_of: impl Fn(ironwarp::CompletionQueue) -> QpAttr,
    ) -> Result<Vec<QueuePair>, AnyError> {
        let (pd, cq) = (self.context.alloc_pd(), self.context.create_cq(1)?);
        let attr = attr_of(cq);
        (0..count).map(|_| Ok(self.context.create_qp(pd, &attr)?)).collect()
    }
}

/// Both ends.
struct Ends {
    client: End,
    server: End,
}

impl Ends {
    /// Opens two stacks with tables for `qps` queue pairs each.
    fn open(qps: u32) -> Result<Self, AnyError> {
        let (client, server) = pair(&MemoryConfig::default(), &MemoryConfig::default());
        let open = |address, port| -> Result<End, AnyError> {
            let mut config = Config::in_memory(address)?;
            config.limits.queue_pairs = qps;
            let (stack, worker) = Stack::builder(config).memory_port(port).build_one()?;
            Ok(End { context: stack.context()?, worker, _stack: stack })
        };
        Ok(Ends { client: open(CLIENT, client)?, server: open(SERVER, server)? })
    }

    /// Connects each queue pair of `client` to one of `server`.
    fn connect(&mut self, client: &[QueuePair], server: &[QueuePair]) -> Result<(), AnyError> {
        let address: SocketAddr = SERVER_ADDR.parse()?;
        self.server.context.listen(address)?;
        self.server.worker.poll(0);
        let (mut started, mut established, mut accepted) = (0, 0, 0);
        let start = Instant::now();
        while established < client.len() + server.len() {
            while started < client.len().min(accepted + CONNECTING_MAX) {
                self.client.context.connect(client[started], address, b"")?;
                started += 1;
            }
            self.client.worker.poll(1);
            self.server.worker.poll(1);
            while let Some(event) = self.client.context.poll_event() {
                established += usize::from(is_established(event)?);
            }
            while let Some(event) = self.server.context.poll_event() {
                match event {
                    Event::ConnectRequest { request, .. } => {
                        self.server.context.accept(request, server[accepted], b"")?;
                        accepted += 1;
                    }
                    event => established += usize::from(is_established(event)?),
                }
            }
            if start.elapsed() > CONNECT_TIMEOUT {
                return Err(format!("connecting {} queue pairs took too long", client.len()).into());
            }
        }
        Ok(())
    }
}

fn is_established(event: Event) -> Result<bool, AnyError> {
    match event {
        Event::Established { .. } => Ok(true),
        Event::ConnectFailed { reason, .. } => Err(format!("a connection failed: {reason:?}").into()),
        Event::Disconnected { reason, .. } => Err(format!("a connection ended: {reason:?}").into()),
        _ => Ok(false),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn resident_memory_is_that_of_the_kernel_in_bytes() {
        let status = "VmRSS:\t    4096 kB\nRssAnon:\t     120 kB\nRssFile:\t    3976 kB\n";
        assert_eq!(resident_of(status), Some(120.0 * 1024.0));
        assert_eq!(resident_of("VmRSS:\t 4096 kB\n"), None);
        assert_eq!(resident_of("RssAnon:\t many kB\n"), None);
    }
}
