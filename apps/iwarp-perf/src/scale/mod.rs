//! Measurements of queue pairs within one process: stacks that are joined by in-memory ports.
//!
//! Each is a subcommand: a struct with its options, which measures, prints, and writes JSON. Exit
//! codes: 0 success, 1 the run failed, 2 bad arguments.

mod ends;
pub mod memory;
pub mod spread;

use std::path::PathBuf;
use std::process::ExitCode;

use ironwarp_bench::host::{Build, Machine};
use ironwarp_bench::output::write_json;
use ironwarp_bench::report::SCHEMA;
use ironwarp_cli::{CliExit, print_stdout};
use serde::Serialize;

use crate::about;

type AnyError = Box<dyn std::error::Error>;

/// The options of a measurement. Those that the JSON has serialize under its keys.
pub trait Measurement: Serialize {
    /// What it measures, with the keys of the JSON.
    type Measured: Serialize;

    fn measure(&self) -> Result<Self::Measured, AnyError>;

    fn text(&self, measured: &Self::Measured) -> String;
}

// A measurement as a subcommand. A doc comment would be the help text.
#[derive(Debug, clap::Args)]
pub struct Run<M: clap::Args> {
    #[command(flatten)]
    options: M,
    /// Writes the figures as JSON
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

/// The JSON of a run.
#[derive(Serialize)]
struct Report<'a, M: Measurement> {
    schema: u32,
    machine: Machine,
    build: Build,
    #[serde(flatten)]
    options: &'a M,
    #[serde(flatten)]
    measured: &'a M::Measured,
}

/// Figures under the key `results`.
#[derive(Serialize)]
pub struct Results<T> {
    results: T,
}

impl<M: Measurement + clap::Args> Run<M> {
    /// Measures, prints and writes.
    pub fn run(&self) -> Result<ExitCode, CliExit> {
        let Run { options, json } = self;
        let measured = &options.measure().map_err(CliExit::failed)?;
        print_stdout(options.text(measured));
        if let Some(path) = json {
            let (machine, build) = (Machine::local(), about::build());
            let report = Report { schema: SCHEMA, machine, build, options, measured };
            write_json(path, &report)
                .map_err(|error| CliExit::failed(format_args!("{}: {error}", path.display())))?;
        }
        Ok(ExitCode::SUCCESS)
    }
}

/// Returns the upper median, 0 of nothing.
fn median(values: impl IntoIterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.into_iter().collect();
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_is_a_value_of_the_list() {
        assert_eq!(median([3.0, 1.0, 2.0]), 2.0);
        assert_eq!(median([]), 0.0);
    }

    /// The options of a measurement from a command line.
    pub fn options<M: clap::Args>(line: &str) -> M {
        let command = M::augment_args(clap::Command::new("x").no_binary_name(true));
        let matches = command.try_get_matches_from(line.split(' ')).expect("valid options");
        M::from_arg_matches(&matches).expect("valid options")
    }
}
