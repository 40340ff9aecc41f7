//! `iwarp-sim`: whole nodes on bad links, one seed a run.
#![forbid(unsafe_code)]

use std::process::ExitCode;

fn main() -> ExitCode {
    ExitCode::SUCCESS
}
