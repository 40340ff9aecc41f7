//! The program: serves the namespaces of a configuration, and drives a target as a host.
#![forbid(unsafe_code)]

mod cli;

fn main() -> std::process::ExitCode {
    cli::main()
}
