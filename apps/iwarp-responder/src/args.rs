//! The command line.

use core::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;

use clap::{Parser, ValueEnum};

/// The default port to listen on.
const PORT: u16 = 4791;

/// The limit of `--receives` times `--message-bytes` for each peer.
const RECEIVE_BYTES_MAX: u64 = 1 << 30;

const EXAMPLES: &str = "\
Examples:
  iwarp-responder --config configs/tap.toml
  iwarp-responder --config configs/memif-server.toml --listen 10.99.0.1:4791 --bytes 1048576
  iwarp-responder --config configs/tap.toml --once --pcap responder.pcapng --drop 20000
  iwarp-responder --config configs/tap.toml --connect 10.99.2.2:4791

Each connection's reply carries the memory's STag (4 bytes), tagged offset (8) and length (4), big-endian.
The peer may write it, read it, and end its STag by a Send with Invalidate.
Sends of every kind come back; one that asked for an event comes back asking for one.
With --connect the memory's place is in the request, and the program ends with its last connection.
Events are JSON lines on standard output: listening, connected, rejected, completion, terminate_sent,
terminate_received, disconnected, counters.

Exit codes: 0 a clean end, 1 the device or the stack failed, 2 bad arguments or configuration.";

/// Answers RDMA: registers memory, echoes Sends of every kind, serves Writes and Reads.
#[derive(Parser, Debug)]
#[command(version, about, after_help = EXAMPLES)]
pub(crate) struct Args {
    /// The configuration, a TOML file as under configs/
    #[arg(long, value_name = "FILE")]
    pub(crate) config: PathBuf,
    /// The address to listen on, over each transport of the stack; the address defaults to the
    /// configuration's, the port to 4791
    #[arg(long, value_name = "ADDR:PORT")]
    pub(crate) listen: Option<SocketAddr>,
    /// Connect to this address instead of listening, and respond to the peer that accepts
    #[arg(long, value_name = "ADDR:PORT", conflicts_with_all = ["listen", "once", "refuse"])]
    pub(crate) connect: Option<SocketAddr>,
    /// Connections to make
    #[arg(long, value_name = "N", default_value_t = 1, requires = "connect", value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub(crate) connections: u32,
    /// Request this operation of the peer once connected; a stack without RFC 7306 refuses it
    #[arg(long, value_enum, requires = "connect")]
    pub(crate) ask: Option<RequestOperation>,
    /// Refuse every peer, with the private data "refused"
    #[arg(long)]
    pub(crate) refuse: bool,
    /// Bytes of memory offered to each peer
    #[arg(long, value_name = "N", default_value_t = 65536, value_parser = clap::value_parser!(u32).range(1..=1 << 30))]
    pub(crate) bytes: u32,
    /// Longest Send that is echoed, in bytes
    #[arg(long, value_name = "N", default_value_t = 16384, value_parser = clap::value_parser!(u32).range(1..=1 << 24))]
    pub(crate) message_bytes: u32,
    /// Receives kept posted for each peer
    #[arg(long, value_name = "N", default_value_t = 32, value_parser = clap::value_parser!(u32).range(1..=4096))]
    pub(crate) receives: u32,
    /// End after the first connection has ended
    #[arg(long)]
    pub(crate) once: bool,
    /// Write every frame to a pcapng file
    #[arg(long, value_name = "FILE")]
    pub(crate) pcap: Option<PathBuf>,
    /// Drop this many frames of a million, in each direction
    #[arg(long, value_name = "PPM", default_value_t = 0, value_parser = clap::value_parser!(u32).range(0..=1_000_000))]
    pub(crate) drop: u32,
    /// The seed of the drops
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(crate) seed: u64,
    /// The log: error, warn, info, or a filter of tracing-subscriber
    #[arg(long, value_name = "LEVEL", default_value = "warn")]
    pub(crate) log: String,
}

/// An operation of RFC 7306.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub(crate) enum RequestOperation {
    /// Eight octets of Immediate Data
    Immediate,
    /// An atomic addition
    FetchAdd,
}

impl Args {
    /// The address to listen on, given our own address. Refuses any other, since no frame for it
    /// would arrive.
    pub(crate) fn local(&self, ours: &[IpAddr]) -> Result<SocketAddr, String> {
        let first = ours.first().copied().unwrap_or(IpAddr::V4(Ipv4Addr::UNSPECIFIED));
        let local = self.listen.unwrap_or(SocketAddr::new(first, PORT));
        let family = |addr: &IpAddr| addr.is_ipv4() == local.is_ipv4();
        let is_own = ours.contains(&local.ip()) || (local.ip().is_unspecified() && ours.iter().any(family));
        if is_own && local.port() != 0 {
            Ok(local)
        } else {
            Err(format!(
                "--listen {local}: net.address, which is {first}, or another of net.addresses, or 0.0.0.0 or [::] for all \
                 of a family, and a port from 1 to 65535"
            ))
        }
    }

    /// Bytes of all receives of one peer.
    pub(crate) fn receive_bytes(&self) -> Result<usize, String> {
        let bytes = u64::from(self.receives) * u64::from(self.message_bytes);
        let fits = usize::try_from(bytes).ok().filter(|_| bytes <= RECEIVE_BYTES_MAX);
        fits.ok_or_else(|| {
            format!(
                "--receives {} of --message-bytes {}: at most {RECEIVE_BYTES_MAX} bytes in all",
                self.receives, self.message_bytes
            )
        })
    }
}
