//! The command line: `rping`'s letters, each with a long name.

use core::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use clap::{ArgAction, ArgGroup, Parser};
use iwarp_ping::{ClientConfig, PORT, ServerConfig, TEXT_BYTES_MAX};

const EXAMPLES: &str = "\
Examples:
  iwarp-ping --server --config configs/memif-server.toml
  iwarp-ping --client --config configs/memif-client.toml --address 10.99.0.1 --count 1000 --verify
  iwarp-ping -s -P -v --config configs/tap.toml          serves every client, prints what they send
  iwarp-ping -c -a fd00::1 -C 10 -S 65536 -V --json --config dut.toml
  iwarp-ping -c -a 10.0.0.7 --hold-off 5000 --config dut.toml     a server of rping over Linux siw

Both roles speak with librdmacm's rping: rping -c -a ADDR -V against --server, rping -s against --client.
The round trip is a whole ping: advertisement, RDMA Read, Send, advertisement, RDMA Write, Send.
Exit codes: 0 success, 1 a run that failed, 2 bad arguments or configuration.
Ctrl-C ends a server, and a client without --count, with 0.";

/// The default length of a text in bytes, as in `rping`.
const TEXT_BYTES: u32 = 100;

/// Pings over RDMA as librdmacm's rping does, in both roles: a text is read from the client, and
/// written back to it
#[derive(Parser, Debug)]
// In `rping` -V is another option.
#[command(name = "iwarp-ping", version, disable_version_flag = true, after_help = EXAMPLES)]
#[command(group(ArgGroup::new("role").required(true).args(["server", "client"])))]
pub(crate) struct Args {
    /// Be the server
    #[arg(long, short = 's')]
    pub(crate) server: bool,
    /// Be the client
    #[arg(long, short = 'c')]
    pub(crate) client: bool,
    /// The configuration, a TOML file as under configs/
    #[arg(long, value_name = "FILE")]
    pub(crate) config: PathBuf,
    /// The server's address. The server listens on the configuration's address by default; 0.0.0.0
    /// or :: for all of a family
    #[arg(long, short = 'a', value_name = "ADDR")]
    address: Option<IpAddr>,
    /// The server's port
    #[arg(long, short = 'p', default_value_t = PORT, value_parser = clap::value_parser!(u16).range(1..))]
    port: u16,
    /// Pings to make; by default until Ctrl-C. A server expects this number from each client
    #[arg(long, short = 'C', value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    count: Option<u64>,
    /// Bytes of the text [default: 100]; for a server the longest that it accepts [default: 65536]
    #[arg(long, short = 'S', value_name = "BYTES", value_parser = clap::value_parser!(u32).range(1..=i64::from(TEXT_BYTES_MAX)))]
    size: Option<u32>,
    /// Compare every byte: the client with what it sent, the server with what rping sends
    #[arg(long, short = 'V')]
    verify: bool,
    /// Print every text
    #[arg(long, short = 'v')]
    verbose: bool,
    /// Serve until Ctrl-C, several clients at once
    #[arg(long, short = 'P')]
    persistent: bool,
    /// Print errors only
    #[arg(long, conflicts_with_all = ["verbose", "json"])]
    pub(crate) quiet: bool,
    /// Print the summary as one line of JSON
    #[arg(long, conflicts_with = "verbose")]
    pub(crate) json: bool,
    /// The time after which a silent peer is given up
    #[arg(long, value_name = "SECONDS", default_value_t = 30, value_parser = clap::value_parser!(u32).range(1..=86_400))]
    timeout: u32,
    /// Client: the delay before the first message, which servers over Linux siw need: 5000 is
    /// enough [default: the configuration's mpa.first_fpdu_holdoff_us]
    #[arg(long, value_name = "MICROSECONDS", value_parser = clap::value_parser!(u32).range(0..=1_000_000))]
    hold_off: Option<u32>,
    /// Write every frame of this side to a pcapng file, at most 1 GB
    #[arg(long, value_name = "FILE")]
    pub(crate) pcap: Option<PathBuf>,
    /// The log: error, warn, info, or a filter of tracing-subscriber
    #[arg(long, value_name = "LEVEL", default_value = "warn")]
    pub(crate) log: String,
    /// Print the version
    #[arg(long, action = ArgAction::Version)]
    version: Option<bool>,
}

impl Args {
    /// Refuses options that the role does not use.
    pub(crate) fn check(&self) -> Result<(), String> {
        match self {
            Args { client: true, persistent: true, .. } => {
                Err("--persistent: a client makes one connection".into())
            }
            Args { server: true, hold_off: Some(wait), .. } => {
                Err(format!("--hold-off {wait}: a server waits for its client's first message anyway"))
            }
            Args { client: true, address: None, .. } => {
                Err("--client needs --address ADDR, the server's, as 10.0.0.1 or fd00::1".into())
            }
            _ => Ok(()),
        }
    }

    /// The parameters of a client, given its own addresses.
    pub(crate) fn client_config(&self, ours: &[IpAddr]) -> Result<ClientConfig, String> {
        let server = self.address.unwrap_or(IpAddr::V4(Ipv4Addr::UNSPECIFIED));
        if server.is_unspecified()
            || server.is_multicast()
            || !ours.iter().any(|own| same_family(*own, server))
        {
            let allowed = "the address of one server, of a family that net.address or net.addresses has";
            return Err(format!("--address {server}: {allowed}"));
        }
        Ok(ClientConfig {
            server: SocketAddr::new(server, self.port),
            count: self.count,
            bytes: self.size.unwrap_or(TEXT_BYTES),
            verify: self.verify,
            verbose: self.verbose,
            timeout: self.timeout(),
            hold_off: self.hold_off.map(|wait| Duration::from_micros(wait.into())),
        })
    }

    /// The parameters of a server, given its own addresses. It refuses any other address, since no
    /// frame for it would arrive.
    pub(crate) fn server_config(&self, ours: &[IpAddr]) -> Result<ServerConfig, String> {
        let first = ours.first().copied().unwrap_or(IpAddr::V4(Ipv4Addr::UNSPECIFIED));
        let local = self.address.unwrap_or(first);
        let all = local.is_unspecified() && ours.iter().any(|own| same_family(*own, local));
        if !(ours.contains(&local) || all) {
            let allowed = "or another of net.addresses, or 0.0.0.0 or :: for all of a family";
            return Err(format!("--address {local}: net.address, which is {first}, {allowed}"));
        }
        Ok(ServerConfig {
            local: SocketAddr::new(local, self.port),
            bytes_max: self.size.unwrap_or(TEXT_BYTES_MAX),
            count: self.count,
            verify: self.verify,
            verbose: self.verbose,
            persistent: self.persistent,
            timeout: self.timeout(),
        })
    }

    fn timeout(&self) -> Duration {
        Duration::from_secs(self.timeout.into())
    }
}

fn same_family(one: IpAddr, other: IpAddr) -> bool {
    one.is_ipv4() == other.is_ipv4()
}
