//! The modes of the program: `both` sides in one process over rings, or one side over the device
//! that a configuration names.

use core::net::SocketAddr;
use core::sync::atomic::{AtomicBool, Ordering};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::{Parser, Subcommand};
use embed_rust::{BlockCounts, Client, EmbedError, Server, ServerConfig};
use ironwarp::dpdk::{Eal, EalConfig, Memory};
use ironwarp::{Config, Stack, Worker};
use ironwarp_cli::{CliExit, exit_code, on_interrupt, parse_args};

const PROGRAM: &str = "embed-rust";
/// The limit for a run that hangs.
const RUN_TIMEOUT: Duration = Duration::from_secs(60);
/// The time within which a connection closes.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(5);

/// Serves blocks by RDMA, or checks such a server.
#[derive(Parser)]
#[command(version, after_help = EXAMPLES)]
struct Args {
    #[command(subcommand)]
    command: Command,
}

const EXAMPLES: &str = "Examples:
  embed-rust both --clients 8 --blocks 20000
  embed-rust server --config configs/memif-server.toml --at 10.99.0.1:4791
  embed-rust client --config configs/memif-client.toml --connect 10.99.0.1:4791 --blocks 100000";

#[derive(Subcommand)]
enum Command {
    /// A server and clients in this process, joined by DPDK's rings; needs no device and no huge
    /// pages
    Both {
        /// Clients, each with a part of the disk.
        #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u16).range(1..=64))]
        clients: u16,
        /// Blocks that each client writes and reads, at least
        #[arg(long, default_value_t = 2000)]
        blocks: u64,
    },
    /// A server until Ctrl-C.
    Server {
        /// The stack's configuration.
        #[arg(long)]
        config: PathBuf,
        /// Where it listens.
        #[arg(long)]
        at: SocketAddr,
    },
    /// One client.
    Client {
        /// The stack's configuration.
        #[arg(long)]
        config: PathBuf,
        /// The server.
        #[arg(long)]
        connect: SocketAddr,
        /// Blocks that it writes and reads, at least.
        #[arg(long, default_value_t = 2000)]
        blocks: u64,
    },
}

/// Blocks of the disk that belong to one client.
const BLOCKS_PER_CLIENT: usize = 256;
const CLIENTS_MAX: usize = 64;

pub(crate) fn main() -> ExitCode {
    exit_code(run().map_or_else(|exit| exit.report(PROGRAM), |()| ExitCode::SUCCESS))
}

fn run() -> Result<(), CliExit> {
    let args: Args = parse_args(std::env::args_os())?;
    let stop = on_interrupt().map_err(CliExit::Failed)?;
    let outcome = match args.command {
        Command::Both { clients, blocks } => both(clients.into(), blocks),
        Command::Server { config, at } => server(&config, at, &stop),
        Command::Client { config, connect, blocks } => client(&config, connect, blocks),
    };
    let BlockCounts { written, read, refused } = outcome.map_err(|error| match error {
        EmbedError::Config(error) => CliExit::bad_arguments(error),
        error => CliExit::failed(error),
    })?;
    println!(
        "{written} blocks written, {read} read and compared, {refused} requests refused as they should be"
    );
    Ok(())
}

fn both(clients: usize, blocks: u64) -> Result<BlockCounts, EmbedError> {
    // The program starts DPDK itself, with the arguments that it needs for other purposes.
    let started = Eal::start(&EalConfig::new().memory(Memory::Ordinary { mib: 256 }));
    let eal = started.map_err(ironwarp::SetupError::from)?;
    let [(client_stack, client_worker), (server_stack, server_worker)] =
        Stack::ring_pair(ring("10.99.3.1/24")?, ring("10.99.3.2/24")?, Some(eal))?;
    let at = SocketAddr::from(([10, 99, 3, 2], 4791));
    let config = ServerConfig { at, blocks: (clients * BLOCKS_PER_CLIENT) as u64, clients };
    let mut server = Server::open(&server_stack, config)?;
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        // One thread and one worker: each side has its own reactor.
        let serving = scope.spawn(|| serve(&mut server, server_worker, &stop));
        let outcome = run_clients(&client_stack, client_worker, at, clients, blocks);
        stop.store(true, Ordering::Release);
        let served = serving.join().map_err(|_| EmbedError::Failed("the server's thread panicked".into()))?;
        outcome.and_then(|counts| served.map(|()| counts))
    })
}

/// A reactor that serves until it is stopped and then closes all connections.
fn serve(server: &mut Server, mut worker: Worker, stop: &AtomicBool) -> Result<(), EmbedError> {
    while !stop.load(Ordering::Acquire) {
        poll_worker(&mut worker);
        server.poll()?;
    }
    let deadline = Instant::now() + DRAIN_TIMEOUT;
    while server.close(deadline)? > 0 {
        poll_worker(&mut worker);
        server.poll()?;
    }
    Ok(())
}

/// A reactor with clients. It ends when each has done its part and its connection is closed.
fn run_clients(
    stack: &Stack,
    mut worker: Worker,
    at: SocketAddr,
    count: usize,
    blocks: u64,
) -> Result<BlockCounts, EmbedError> {
    let blocks_of = |number: usize| ((number * BLOCKS_PER_CLIENT) as u64, BLOCKS_PER_CLIENT);
    let open = |number: usize| Client::open(stack, at, blocks_of(number), 0x5eed + number as u64);
    let mut clients = (0..count).map(open).collect::<Result<Vec<_>, _>>()?;
    let limit = Instant::now() + RUN_TIMEOUT;
    let is_done = |client: &Client| client.counts().written.min(client.counts().read) >= blocks;
    while !clients.iter().all(|client| is_done(client) && client.is_idle()) {
        poll_worker(&mut worker);
        clients.iter_mut().try_for_each(|client| client.poll(!is_done(client)))?;
        if Instant::now() > limit {
            return Err(EmbedError::Failed(format!("not done within {RUN_TIMEOUT:?}")));
        }
    }
    let deadline = Instant::now() + DRAIN_TIMEOUT;
    loop {
        let mut open = 0;
        for client in &mut clients {
            open += client.close(deadline)?;
        }
        if open == 0 {
            break;
        }
        poll_worker(&mut worker);
    }
    Ok(clients.iter().map(Client::counts).fold(BlockCounts::default(), |sum, one| BlockCounts {
        written: sum.written + one.written,
        read: sum.read + one.read,
        refused: sum.refused + one.refused,
    }))
}

fn server(config: &Path, at: SocketAddr, stop: &AtomicBool) -> Result<BlockCounts, EmbedError> {
    let (stack, worker) = Stack::builder(Config::from_file(config)?).build_one()?;
    let settings =
        ServerConfig { at, blocks: (CLIENTS_MAX * BLOCKS_PER_CLIENT) as u64, clients: CLIENTS_MAX };
    let mut server = Server::open(&stack, settings)?;
    serve(&mut server, worker, stop)?;
    Ok(BlockCounts::default())
}

fn client(config: &Path, at: SocketAddr, blocks: u64) -> Result<BlockCounts, EmbedError> {
    let (stack, worker) = Stack::builder(Config::from_file(config)?).build_one()?;
    run_clients(&stack, worker, at, 1, blocks)
}

fn poll_worker(worker: &mut Worker) {
    if worker.poll(4).work == 0 {
        // No work: on a machine with fewer processors than reactors the other one may run.
        std::thread::yield_now();
    }
}

fn ring(address: &str) -> Result<Config, EmbedError> {
    Ok(Config::from_toml(&format!(
        "[port]\ndevice.ring = {{}}\nring_size = 1024\nrx_frames = 8192\ntx_frames = 8192\n[net]\naddress = \"{address}\"\n\
         [limits]\nqueue_pairs = 128\nhalf_open = 128\ncontexts = 80\n"
    ))?)
}
