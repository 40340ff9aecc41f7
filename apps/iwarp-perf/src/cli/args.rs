//! Options, named after perftest's.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::{Parser, ValueEnum};
use ironwarp_bench::{AtomicKind, PathKind, Test, Wait, WordOwner};

use super::size;
use crate::plan::PairKind;

const EXAMPLES: &str = "\
Examples:
  iwarp-perf suite --pair memif --html report/     everything side by side, with a page of plots
  iwarp-perf suite --quick --json out.json         the same in half a minute
  iwarp-perf write-lat --pair memif --size 64      one test between two processes of this machine
  iwarp-perf send-bw --all-sizes --duration 1      every size from 2 B to 8 MiB, a second each
  iwarp-perf write-bw --size 1M --mtu 9000 --qps 4 --depth 16 --validate
  iwarp-perf send-lat --events                     both ends sleep until a completion wakes them
  iwarp-perf write-bw --markers --no-crc           what framing costs
  iwarp-perf atomic-bw --qps 4 --words 16 --depth 8       4 queue pairs on 16 words; their sum is checked
  iwarp-perf atomic-lat --operation cmp-swap --pair ring --atomics locked
  iwarp-perf send-bw --pair ring --cores 2 --qps 2        two polled cores an end, a queue pair on each
  iwarp-perf scaling --pair ring --cores 2 --size 64      both ends on each core: two cores beside one
  iwarp-perf atomics --pair ring                          round trips and rates: owner cores beside locked instructions
  iwarp-perf atomic-lat --pair ring --cores 2 --owner remote
  iwarp-perf atomic-bw --pair ring --cores 2 --qps 4 --words 16 --iterations 100000000    a long run; the sums are exact
  iwarp-perf tcp-lat --path lo --wait block        Linux sockets, for comparison
  iwarp-perf server --config configs/memif-server.toml    the far end by itself, and the near end that goes with it:
  iwarp-perf read-lat --config configs/memif-client.toml --connect 10.99.0.1
  iwarp-perf doctor --config configs/tap.toml      whether it works on this machine, and what to do where not
  iwarp-perf results --from bench/results          a page of results from the JSON of runs

Latency is printed as the full round trip; half of it stands beside it for Sends and Writes.
Exit codes: 0 success, 1 a run that failed, 2 bad arguments or configuration.";

/// The performance harness of ironwarp: RDMA tests beside raw frames and kernel TCP
#[derive(Clone, Debug, Parser)]
#[command(name = "iwarp-perf", version, after_help = EXAMPLES)]
pub struct Args {
    /// What to measure, or `server` to be the far end, or `suite` for a table of everything
    #[arg(value_enum, value_name = "TEST")]
    pub command: Command,

    /// Start the far end too, on another core of this machine
    #[arg(long, value_enum, conflicts_with_all = ["connect", "config"])]
    pub pair: Option<PairKind>,
    /// The far end's address, and port where it is not 18515
    #[arg(long, value_name = "ADDR[:PORT]", value_parser = size::address, requires = "config")]
    pub connect: Option<SocketAddr>,
    /// The device and address of this end, as the files under configs/
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,

    /// Where the server listens, unless at 18515
    #[arg(long, value_parser = clap::value_parser!(u16).range(1..))]
    pub port: Option<u16>,

    /// Bytes of a message; k, M and G are powers of 1024 [default: 64 for latency, 64k for bandwidth]
    #[arg(long, short = 's', value_parser = size::bytes, conflicts_with = "all_sizes")]
    pub size: Option<u64>,
    /// Every power of two from 2 B to 8 MiB
    #[arg(long, short = 'a')]
    pub all_sizes: bool,
    /// Messages to measure
    #[arg(long, short = 'n', value_parser = clap::value_parser!(u64).range(1..=1_000_000_000_000))]
    pub iterations: Option<u64>,
    /// Seconds to measure, for each size [default: 2, or 0.5 with --all-sizes]
    #[arg(long, short = 'D', value_name = "SECONDS", value_parser = size::seconds, conflicts_with = "iterations")]
    pub duration: Option<f64>,
    /// Messages before each slice that counts
    #[arg(long, default_value_t = 200, value_parser = clap::value_parser!(u64).range(0..=1_000_000_000))]
    pub warmup: u64,

    /// Queue pairs, used in turn [default: 1]
    #[arg(long, short = 'q', value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub qps: Option<u32>,
    /// Messages on their way, per queue pair; bandwidth tests [default: as many as make 4 MiB, 2 to 64]
    #[arg(long, short = 't', value_parser = clap::value_parser!(u32).range(1..=4096))]
    pub depth: Option<u32>,
    /// Work requests posted together; bandwidth tests [default: 1]
    #[arg(long, short = 'l', value_parser = clap::value_parser!(u32).range(1..=64))]
    pub post_list: Option<u32>,
    /// Post messages up to this many bytes inline; Sends and Writes [default: 0]
    #[arg(long, short = 'I', value_name = "BYTES", value_parser = clap::value_parser!(u32).range(0..=256))]
    pub inline: Option<u32>,
    /// Ask for a completion every so many work requests [default: 1]
    #[arg(long, short = 'Q', value_name = "N", value_parser = clap::value_parser!(u32).range(1..=64))]
    pub signal_every: Option<u32>,
    /// Both ends send; bandwidth tests
    #[arg(long, short = 'b')]
    pub bidirectional: bool,
    /// Messages a second in open loop: latency counts from the intended start
    #[arg(long, value_name = "PER_SECOND", value_parser = size::rate)]
    pub rate: Option<f64>,
    /// Sleep until the completion queue raises an event, at both ends, instead of polling it: the stack is polled on a
    /// thread of its own. With --connect this end alone sleeps. A Write of write-lat is announced by an empty Send
    #[arg(long, short = 'e', conflicts_with = "rate")]
    pub events: bool,
    /// Check every byte where it arrives
    #[arg(long)]
    pub validate: bool,
    /// The largest network-layer packet, in bytes; with --config it is the file's
    #[arg(long, conflicts_with = "config", value_parser = clap::value_parser!(u16).range(576..=9600))]
    pub mtu: Option<u16>,
    /// Ask for markers both ways; with --config it is the file's
    #[arg(long, conflicts_with = "config")]
    pub markers: bool,
    /// Ask for no CRCs at either end; with --config it is the file's
    #[arg(long, conflicts_with = "config")]
    pub no_crc: bool,
    /// What atomic-lat and atomic-bw do to a word [default: fetch-add]
    #[arg(long, value_enum)]
    pub operation: Option<OperationArg>,
    /// Words that the queue pairs of atomic-lat and atomic-bw share, each in its own cache line [default: 1]
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=65_536))]
    pub words: Option<u32>,
    /// Who changes the words, at both ends; with --config it is the file's [default: owner]
    #[arg(long, value_enum, conflicts_with = "config")]
    pub atomics: Option<AtomicsArg>,
    /// Which of the far end's cores own the words [default: spread]
    #[arg(long, value_enum, conflicts_with = "config")]
    pub owner: Option<OwnerArg>,
    /// Polled cores an end, each with a queue of the device and a thread; queue pairs are dealt out to them. Several with
    /// --pair alone [default: 1]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=64))]
    pub cores: Option<u16>,
    /// How the ends of tcp-lat and tcp-bw wait [default: spin]
    #[arg(long, value_enum)]
    pub wait: Option<WaitArg>,
    /// What tcp-lat and tcp-bw run over [default: veth]
    #[arg(long, value_enum)]
    pub path: Option<PathArg>,

    /// Run the application part of the near end on this processor, apart from the polled core
    #[arg(long, value_name = "PROCESSOR")]
    pub app_core: Option<usize>,
    /// The suite in half a minute
    #[arg(long)]
    pub quick: bool,

    /// Write the results as JSON
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
    /// Write every latency's histogram as an HdrHistogram log
    #[arg(long, value_name = "FILE")]
    pub hdr: Option<PathBuf>,
    /// Write a page with tables and plots
    #[arg(long, value_name = "DIR")]
    pub html: Option<PathBuf>,
    /// Write this end's frames as pcapng: the near end's of a test, or a server's
    #[arg(long, value_name = "FILE")]
    pub pcap: Option<PathBuf>,
    /// Publish the near end's counters in this file while it runs, for iwarp-top; with --config it is the file's
    #[arg(long, value_name = "FILE", conflicts_with = "config")]
    pub stats_page: Option<PathBuf>,
    /// What the two ends say about themselves
    #[arg(long, value_enum, value_name = "LEVEL")]
    pub log: Option<LogLevel>,
}

/// What to do.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum Command {
    /// Send there, Send back
    SendLat,
    /// RDMA Write there, RDMA Write back; both ends poll the last byte
    WriteLat,
    /// RDMA Read
    ReadLat,
    /// Sends one way
    SendBw,
    /// RDMA Writes one way
    WriteBw,
    /// RDMA Reads one way
    ReadBw,
    /// An atomic operation on a word of the far end's
    AtomicLat,
    /// Atomic operations, many on their way; their sum is checked
    AtomicBw,
    /// RDMA Writes with Immediate one way
    WriteImmBw,
    /// Immediate Data there, Immediate Data back
    ImmLat,
    /// RDMA Write with Immediate there, the same back
    WriteImmLat,
    /// Raw frames there and back
    FrameLat,
    /// Raw frames one way
    FrameBw,
    /// Linux sockets there and back
    TcpLat,
    /// Linux sockets one way
    TcpBw,
    /// All of it side by side, in alternating rounds
    Suite,
    /// What more cores bring: each plays both ends over its own queues, one core beside all of them
    Scaling,
    /// Who should change a word: its owner, at hand or on another core, beside locked instructions
    Atomics,
    /// The far end, for near ends that connect
    Server,
}

/// How an end of a Linux socket waits.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum WaitArg {
    /// It asks again at once
    Spin,
    /// It sleeps until woken
    Block,
}

/// What an atomic operation does.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum OperationArg {
    /// Adds 1
    FetchAdd,
    /// Replaces the value that it expects by one more
    CmpSwap,
}

/// Who changes a word.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum AtomicsArg {
    /// The core that owns it, without locked instructions
    Owner,
    /// The core that the request arrives at, with locked instructions
    Locked,
}

/// Which core owns a word.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum OwnerArg {
    /// Whichever its address says
    Spread,
    /// The core that the request arrives at: each core has words of its own
    Local,
    /// The next core after the one that the request arrives at
    Remote,
}

/// What a Linux socket runs over.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum PathArg {
    /// A veth pair between two network namespaces
    Veth,
    /// Loopback
    Lo,
}

/// How much is said.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum LogLevel {
    /// What ends a run
    Error,
    /// What a user should know
    Warn,
    /// What happens
    Info,
}

impl Command {
    /// The test, unless it is `suite` or `server`.
    pub fn test(self) -> Option<Test> {
        Some(match self {
            Command::SendLat => Test::SendLat,
            Command::WriteLat => Test::WriteLat,
            Command::ReadLat => Test::ReadLat,
            Command::SendBw => Test::SendBw,
            Command::WriteBw => Test::WriteBw,
            Command::ReadBw => Test::ReadBw,
            Command::AtomicLat => Test::AtomicLat,
            Command::AtomicBw => Test::AtomicBw,
            Command::WriteImmBw => Test::WriteImmBw,
            Command::ImmLat => Test::ImmLat,
            Command::WriteImmLat => Test::WriteImmLat,
            Command::FrameLat => Test::FrameLat,
            Command::FrameBw => Test::FrameBw,
            Command::TcpLat => Test::TcpLat,
            Command::TcpBw => Test::TcpBw,
            Command::Suite | Command::Scaling | Command::Atomics | Command::Server => return None,
        })
    }
}

impl From<WaitArg> for Wait {
    fn from(wait: WaitArg) -> Self {
        match wait {
            WaitArg::Spin => Wait::Spin,
            WaitArg::Block => Wait::Block,
        }
    }
}

impl From<OperationArg> for AtomicKind {
    fn from(operation: OperationArg) -> Self {
        match operation {
            OperationArg::FetchAdd => AtomicKind::FetchAdd,
            OperationArg::CmpSwap => AtomicKind::CmpSwap,
        }
    }
}

impl From<OwnerArg> for WordOwner {
    fn from(owner: OwnerArg) -> Self {
        match owner {
            OwnerArg::Spread => WordOwner::Spread,
            OwnerArg::Local => WordOwner::Local,
            OwnerArg::Remote => WordOwner::Remote,
        }
    }
}

impl From<PathArg> for PathKind {
    fn from(path: PathArg) -> Self {
        match path {
            PathArg::Veth => PathKind::Veth,
            PathArg::Lo => PathKind::Lo,
        }
    }
}

impl LogLevel {
    /// The level's name.
    pub fn name(self) -> &'static str {
        match self {
            LogLevel::Error => "error",
            LogLevel::Warn => "warn",
            LogLevel::Info => "info",
        }
    }
}
