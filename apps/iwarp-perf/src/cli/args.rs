//! Options, named after perftest's.

use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::LazyLock;

use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use clap::{Parser, ValueEnum, value_parser};
use ironwarp_bench::{AtomicKind, PathKind, Test, Wait, WordOwner};

use crate::plan::{PORT, PairKind};
use crate::{limits, values};

pub(super) const EXAMPLES: &str = "\
Examples:
  iwarp-perf suite --pair memif --html report/     all tests side by side, with a page of tables
  iwarp-perf suite --quick --json out.json         the same in half a minute
  iwarp-perf write-lat --pair memif --size 64      one test between two processes of this machine
  iwarp-perf send-bw --all-sizes --duration 1      every size from 2 B to 8 MiB, one second each
  iwarp-perf write-bw --all-sizes --format perftest    the columns of ib_write_bw, for scripts that parse them
  iwarp-perf write-bw --size 1M --mtu 9000 --qps 4 --depth 16 --validate
  iwarp-perf write-bw --duration 60 --interval 1       a line every second
  iwarp-perf send-lat --run-infinitely --interval 5    a line every five seconds, until Ctrl-C
  iwarp-perf send-bw --qps 8 --srq                 8 queue pairs take their receives from one shared queue
  iwarp-perf read-write-bw --size 64k              Reads and Writes alternately on each queue pair
  iwarp-perf send-lat --events                     both ends sleep until a completion wakes them
  iwarp-perf write-bw --markers --no-crc           the cost of markers and CRCs
  iwarp-perf atomic-bw --qps 4 --words 16 --depth 8       4 queue pairs on 16 words; their sum is checked
  iwarp-perf atomic-lat --operation cmp-swap --pair ring --atomics locked
  iwarp-perf send-bw --pair ring --cores 2 --qps 2        two polled cores at each end, a queue pair on each
  iwarp-perf scaling --pair ring --cores 2 --size 64      client and server on each core: two cores against one
  iwarp-perf cores --quick --json out.json                1, 2, 4 and 8 cores a side, as far as the processors go
  iwarp-perf atomics --pair ring                          latency and rate: owner cores against locked instructions
  iwarp-perf atomic-lat --pair ring --cores 2 --owner remote
  iwarp-perf atomic-bw --pair ring --cores 2 --qps 4 --words 16 --iterations 100000000    a long run with exact sums
  iwarp-perf conn-rate --duration 10 --depth 64   connections set up and closed a second, 64 at a time
  iwarp-perf conn-rate --size 64 --rate 5000      5000 connections a second, each carries a Send of 64 B
  sudo iwarp-perf write-lat --pair veth-af_packet  over a veth pair between two namespaces; also veth-af_xdp
  iwarp-perf tcp-lat --path lo --wait block        Linux sockets, for comparison
  iwarp-perf smoltcp-bw --pair memif               stock smoltcp on the same device and cores, for comparison
  iwarp-perf server --config configs/memif-server.toml    a server, and the client that connects to it:
  iwarp-perf read-lat --config configs/memif-client.toml --connect 10.99.0.1
  iwarp-perf server --config configs/two-fabrics.toml     the same at every address of two ports
  iwarp-perf doctor --config configs/tap.toml      checks this machine, and names what to change

Latency is printed as the full round trip, and half of it too for Sends and Writes.
CPU % and busy % are of client/server: processor time (100 is one processor), and polls that found work. A core that
polls uses all of its processor, so busy % says which end limits the rate. JSON: cpu_percent, busy_percent.
Exit codes: 0 success, 1 a run that failed, 2 bad arguments or configuration, 3 a suite during which raw frames were
never steady.";

/// The performance test of ironwarp: RDMA tests against raw frames and kernel TCP
#[derive(Clone, Debug, Parser)]
#[command(name = "iwarp-perf", version, after_help = EXAMPLES)]
pub struct Args {
    /// The test; or `suite`, `scaling`, `atomics` or `cores` for several of them, or `server`
    #[arg(value_enum, value_name = "TEST")]
    pub command: Command,

    /// Starts the server too, on another core of this machine
    #[arg(long, value_enum, conflicts_with_all = ["connect", "config"])]
    pub pair: Option<PairKind>,
    /// The address of the server, and its port if it is not 18515
    #[arg(long, value_name = "ADDR[:PORT]", value_parser = values::address, requires = "config")]
    pub connect: Option<SocketAddr>,
    /// The device and address of this end; configs/ has examples
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,

    /// The port that the server listens on
    #[arg(long, default_value_t = PORT, value_parser = value_parser!(u16).range(1..))]
    pub port: u16,
    /// Seconds after which the server drops a client that sends nothing, or requests nothing
    /// between two slices
    #[arg(long, value_name = "SECONDS", default_value_t = 20, value_parser = value_parser!(u64).range(2..=86_400))]
    pub client_timeout: u64,
    /// Seconds after which the server drops a client whose slice does not end. A slice of our
    /// clients takes a second, or an interval
    #[arg(long, value_name = "SECONDS", default_value_t = 600, value_parser = value_parser!(u64).range(2..=86_400))]
    pub slice_limit: u64,

    /// Bytes of a message; k, M and G are powers of 1024 [default: 64 for latency, 64k for
    /// bandwidth; conn-rate sends one message on each connection if given]
    #[arg(long, short = 's', value_parser = values::bytes, conflicts_with = "all_sizes")]
    pub size: Option<u64>,
    /// Every power of two from 2 B to 8 MiB
    #[arg(long, short = 'a')]
    pub all_sizes: bool,
    /// Messages to measure; in the suite, of each slice in place of a time
    #[arg(long, short = 'n', value_parser = value_parser!(u64).range(1..=1_000_000_000_000))]
    pub iterations: Option<u64>,
    /// Seconds to measure, for each size [default: 2, or 0.5 with --all-sizes; for cores: of each
    /// figure, 4, or 0.6 with --quick]
    #[arg(long, short = 'D', value_name = "SECONDS", value_parser = values::seconds, conflicts_with = "iterations")]
    pub duration: Option<f64>,
    /// Prints a line for each interval of this many measured seconds; --duration is rounded up to
    /// whole intervals
    #[arg(long, value_name = "SECONDS", value_parser = values::interval, conflicts_with = "iterations")]
    pub interval: Option<f64>,
    /// Runs until Ctrl-C, then prints the results of the whole run; a line for each --interval
    /// [default: 5 seconds]
    #[arg(long, alias = "run_infinitely", conflicts_with_all = ["iterations", "duration", "all_sizes"])]
    pub run_infinitely: bool,
    /// Messages before each slice that do not count
    #[arg(long, default_value_t = 200, value_parser = value_parser!(u64).range(0..=1_000_000_000))]
    pub warmup: u64,

    /// Queue pairs, used round robin
    #[arg(long, short = 'q', default_value_t = 1, value_parser = value_parser!(u32).range(limits::QPS))]
    pub qps: u32,
    /// Outstanding messages for each queue pair; bandwidth tests [default: 4 MiB of messages, 2 to
    /// 64]. For conn-rate: connections at a time, from connect until closed, at most 256 [default:
    /// 16]
    #[arg(long, short = 't', value_parser = value_parser!(u32).range(limits::DEPTH))]
    pub depth: Option<u32>,
    /// Work requests posted together; bandwidth tests
    #[arg(long, short = 'l', default_value_t = 1, value_parser = value_parser!(u32).range(limits::POST_LIST))]
    pub post_list: u32,
    /// Posts messages up to this many bytes inline; Sends and Writes
    #[arg(long, short = 'I', value_name = "BYTES", default_value_t = 0, value_parser = value_parser!(u32).range(limits::INLINE))]
    pub inline: u32,
    /// Signals one work request in N
    #[arg(long, short = 'Q', value_name = "N", default_value_t = 1, value_parser = value_parser!(u32).range(limits::SIGNAL_EVERY))]
    pub signal_every: u32,
    /// Both ends send; bandwidth tests
    #[arg(long, short = 'b')]
    pub bidirectional: bool,
    /// Messages a second in open loop: latency counts from the intended start
    #[arg(long, value_name = "PER_SECOND", value_parser = values::rate)]
    pub rate: Option<f64>,
    /// Both ends sleep until the completion queue raises an event, instead of polling it; a thread
    /// of its own polls the stack. With --connect only the client sleeps. An empty Send follows
    /// each Write of write-lat
    #[arg(long, short = 'e', conflicts_with = "rate")]
    pub events: bool,
    /// The receiver checks every byte
    #[arg(long)]
    pub validate: bool,
    /// The receives of all queue pairs of an end come from one shared receive queue; tests of Sends
    /// and Immediate Data
    #[arg(long, alias = "use-srq")]
    pub srq: bool,
    /// The largest network-layer packet, in bytes; with --config the file sets it
    #[arg(long, default_value_t = 1500, conflicts_with = "config", value_parser = value_parser!(u16).range(576..=65400))]
    pub mtu: u16,
    /// The transport below RDMA, without MPA over SCTP; with --config the file sets it
    #[arg(long, value_enum, default_value = "tcp", conflicts_with = "config")]
    pub transport: TransportArg,
    /// Asks for markers in both directions; with --config the file sets it
    #[arg(long, conflicts_with = "config")]
    pub markers: bool,
    /// Asks for no CRCs at both ends; with --config the file sets it
    #[arg(long, conflicts_with = "config")]
    pub no_crc: bool,
    /// The operation of atomic-lat and atomic-bw
    #[arg(long, value_enum, default_value = "fetch-add")]
    pub operation: AtomicKind,
    /// Words that the queue pairs of atomic-lat and atomic-bw share, each in its own cache line
    #[arg(long, default_value_t = 1, value_parser = value_parser!(u32).range(limits::WORDS))]
    pub words: u32,
    /// The core that changes a word, at both ends; with --config the file sets it
    #[arg(long, value_enum, default_value = "owner", conflicts_with = "config")]
    pub atomics: AtomicsArg,
    /// The server core that owns the words
    #[arg(long, value_enum, default_value = "spread", conflicts_with = "config")]
    pub owner: WordOwner,
    /// Polled cores at each end, each with a queue of the device and a thread; queue pairs are
    /// assigned to them round robin. More than 1 needs --pair [default: 1, or 2 for scaling and
    /// atomics]. For cores: the most cores a side [default: 8]
    #[arg(long, value_name = "N", value_parser = value_parser!(u16).range(1..=64))]
    pub cores: Option<u16>,
    /// How both ends of tcp-lat and tcp-bw wait
    #[arg(long, value_enum, default_value = "spin")]
    pub wait: Wait,
    /// The interfaces of tcp-lat and tcp-bw: a veth pair between two network namespaces, or
    /// loopback
    #[arg(long, default_value = "veth", value_parser = socket_path())]
    pub path: PathKind,

    /// Runs the application thread of the client on this processor, apart from the polled core
    #[arg(long, value_name = "PROCESSOR")]
    pub app_core: Option<usize>,
    /// Runs the suite in half a minute, or cores in one
    #[arg(long)]
    pub quick: bool,
    /// Runs cores also where several share a processor
    #[arg(long)]
    pub oversubscribe: bool,

    /// The results on standard output: a table, or the columns of perftest's tools. perftest prints
    /// half of the round trip for Sends and Writes; `BW peak` is the fastest round here, the
    /// fastest message there
    #[arg(long, value_enum, default_value = "table")]
    pub format: Format,
    /// Writes the results as JSON
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
    /// Writes the histogram of each latency as an HdrHistogram log
    #[arg(long, value_name = "FILE")]
    pub hdr: Option<PathBuf>,
    /// Writes a page of tables, with a bar for each figure
    #[arg(long, value_name = "DIR")]
    pub html: Option<PathBuf>,
    /// Writes the frames of the client, or of `server`, as pcapng
    #[arg(long, value_name = "FILE")]
    pub pcap: Option<PathBuf>,
    /// Publishes the counters of the client in this file, for iwarp-top; with --config the file
    /// sets it
    #[arg(long, value_name = "FILE", conflicts_with = "config")]
    pub stats_page: Option<PathBuf>,
    /// Prints the log of both ends, from this level on
    #[arg(long, value_name = "LEVEL", value_parser = ["error", "warn", "info"])]
    pub log: Option<String>,

    /// The options on the command line, without dashes, in the order above.
    #[arg(skip)]
    pub given: Vec<String>,
}

/// What to run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Command {
    Test(Test),
    Suite,
    Scaling,
    Atomics,
    Cores,
    Server,
}

/// The form of the results on standard output.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum Format {
    /// A table for people
    Table,
    /// The columns of perftest, for scripts that parse its output
    Perftest,
}

/// The core that changes a word.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum AtomicsArg {
    /// The core that owns the word, without locked instructions
    Owner,
    /// The core that the request arrives at, with locked instructions
    Locked,
}

/// The transport below RDMA.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum TransportArg {
    /// MPA over TCP (RFC 5044)
    Tcp,
    /// SCTP (RFC 5043)
    Sctp,
}

impl Command {
    /// Returns the test, if this is a single one.
    pub fn test(self) -> Option<Test> {
        if let Command::Test(test) = self { Some(test) } else { None }
    }
}

impl ValueEnum for Command {
    fn value_variants<'a>() -> &'a [Self] {
        static ALL: LazyLock<Vec<Command>> = LazyLock::new(|| {
            let tests = Test::value_variants().iter().copied().map(Command::Test);
            tests
                .chain([Command::Suite, Command::Scaling, Command::Atomics, Command::Cores, Command::Server])
                .collect()
        });
        &ALL
    }

    fn to_possible_value(&self) -> Option<PossibleValue> {
        let (name, help) = match self {
            Command::Test(test) => return test.to_possible_value(),
            Command::Suite => ("suite", "RDMA, raw frames and TCP side by side, in alternating rounds"),
            Command::Scaling => ("scaling", "One core against several; each runs a client and a server"),
            Command::Atomics => ("atomics", "Words changed by their owner core against locked instructions"),
            Command::Cores => {
                ("cores", "1, 2, 4 and 8 cores a side, each end of a core on a processor of its own")
            }
            Command::Server => ("server", "The server for clients that use --connect"),
        };
        Some(PossibleValue::new(name).help(help))
    }
}

impl fmt::Display for Command {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.to_possible_value().as_ref().map_or("", PossibleValue::get_name))
    }
}

fn socket_path() -> impl TypedValueParser<Value = PathKind> {
    PossibleValuesParser::new(["veth", "lo"])
        .map(|name| if name == "lo" { PathKind::Lo } else { PathKind::Veth })
}
