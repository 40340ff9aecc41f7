//! The command line.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{Parser, ValueEnum};
use ironwarp_cli::CliExit;

use crate::link::{Link, Role, Transport};

/// Run an unmodified RDMA program (libibverbs, librdmacm) over ironwarp: any DPDK device becomes
/// the RDMA device ironwarp0.
#[derive(Parser, Debug)]
#[command(name = "iwarp-run", version, after_help = EXAMPLES)]
pub(crate) struct Args {
    /// Configuration file (TOML, see configs/). Default: the file that IRONWARP_CONFIG names
    #[arg(long, value_name = "FILE", conflicts_with_all = ["pair", "tap"])]
    pub(crate) config: Option<PathBuf>,
    /// Make a configuration for one of two programs of this host
    #[arg(long, value_name = "DEVICE", conflicts_with = "tap")]
    pair: Option<Pair>,
    /// The end of the pair: the server has address 10.99.0.1, the client 10.99.0.2
    #[arg(long, requires = "pair")]
    role: Option<RoleArg>,
    /// The name of the pair, if a host has several: letters, digits, '-' and '_'
    #[arg(long, value_name = "NAME", requires = "pair", value_parser = parse_name)]
    name: Option<String>,
    /// Make a configuration for a new tap interface. Linux is the peer: give the interface an
    /// address of its own
    #[arg(long, value_name = "INTERFACE", requires = "address")]
    tap: Option<String>,
    /// The address and prefix length of the program's end of the tap interface, such as
    /// 10.98.0.2/24
    #[arg(long, value_name = "ADDRESS", requires = "tap")]
    address: Option<String>,
    /// The transport below RDMA in a configuration that is made
    #[arg(long, value_enum, default_value = "tcp", conflicts_with = "config")]
    pub(crate) transport: Transport,
    /// The folder of libibverbs.so.1 and librdmacm.so.1. Default: lib beside this program
    #[arg(long, value_name = "FOLDER")]
    pub(crate) libraries: Option<PathBuf>,
    /// The program and its arguments
    #[arg(value_name = "PROGRAM", required = true, trailing_var_arg = true, allow_hyphen_values = true)]
    pub(crate) program: Vec<OsString>,
}

const EXAMPLES: &str = "\
Examples:
  Two programs of this host:
    iwarp-run --pair memif --role server rping -s -a 10.99.0.1 -v -C 10
    iwarp-run --pair memif --role client rping -c -a 10.99.0.1 -v -C 10
  The same over SCTP: --transport sctp at both ends.
  A device of a configuration file:
    iwarp-run --config configs/af_xdp.toml ib_send_lat -R 10.10.0.1
  What the library offers:
    iwarp-run --pair memif --role server ibv_devinfo -v";

#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
enum Pair {
    /// Shared memory between two processes
    Memif,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
enum RoleArg {
    Server,
    Client,
}

fn parse_name(text: &str) -> Result<String, String> {
    let is_part = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
    if !text.is_empty() && text.len() <= 32 && text.chars().all(is_part) {
        Ok(text.to_owned())
    } else {
        Err("1 to 32 letters, digits, '-' and '_'".into())
    }
}

impl Args {
    /// Returns the link that the program shall get a configuration for.
    pub(crate) fn link(&self) -> Result<Option<Link>, CliExit> {
        if let Some(Pair::Memif) = self.pair {
            let role = match self.role {
                Some(RoleArg::Client) => Role::Client,
                Some(RoleArg::Server) => Role::Server,
                None => {
                    return Err(CliExit::bad_arguments(
                        "--pair memif: --role server or --role client is missing",
                    ));
                }
            };
            return Ok(Some(Link::Memif {
                role,
                name: self.name.clone().unwrap_or_else(|| "default".into()),
            }));
        }
        Ok(self.tap.as_ref().map(|interface| Link::Tap {
            interface: interface.clone(),
            address: self.address.clone().unwrap_or_default(),
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ironwarp_cli::parse_args;

    fn parse(line: &str) -> Result<Args, CliExit> {
        parse_args(line.split(' ').map(OsString::from))
    }

    #[test]
    fn the_programs_own_options_are_left_alone() {
        let args = parse("iwarp-run --pair memif --role client rping -c -a 10.99.0.1 --config").unwrap();
        assert_eq!(args.program, ["rping", "-c", "-a", "10.99.0.1", "--config"]);
        assert_eq!(args.link(), Ok(Some(Link::Memif { role: Role::Client, name: "default".into() })));
    }

    #[test]
    fn arguments_that_do_not_go_together_are_one_line() {
        for (line, words) in [
            ("iwarp-run", &["PROGRAM"][..]),
            ("iwarp-run --config x --pair memif rping", &["--config", "--pair"]),
            ("iwarp-run --config x --transport sctp rping", &["--config", "--transport"]),
            ("iwarp-run --pair ring rping", &["ring", "memif"]),
            ("iwarp-run --role server rping", &["--pair"]),
            ("iwarp-run --pair memif --role server --name a/b rping", &["a/b", "letters"]),
            ("iwarp-run --tap iwtap0 rping", &["--address"]),
        ] {
            let Err(CliExit::BadArguments(text)) = parse(line) else { panic!("{line} was not refused") };
            assert!(!text.contains('\n') && words.iter().all(|word| text.contains(word)), "{line}: {text}");
        }
        let without_role = parse("iwarp-run --pair memif rping").unwrap();
        assert!(matches!(without_role.link(), Err(CliExit::BadArguments(text)) if text.contains("--role")));
    }
}
