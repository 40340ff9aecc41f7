//! `iwarp-perf compare`: what changed between two JSON files of runs.

use std::path::PathBuf;
use std::process::ExitCode;

use ironwarp_bench::compare::{ReportComparison, comparison_text, read_report};
use ironwarp_bench::output::{terminal_width, write_json};
use ironwarp_cli::{CliExit, print_stdout};

/// The columns of the output if standard output is no terminal.
const DEFAULT_WIDTH: u16 = 100;

const EXAMPLES: &str = "\
Examples:
  iwarp-perf suite --json old.json                              before a change
  iwarp-perf suite --json new.json                              after it
  iwarp-perf compare old.json new.json                          the figures that changed beyond noise
  iwarp-perf compare old.json new.json --threshold 5 --all --json changes.json

A figure changed if it differs by more than the threshold and the ranges of its rounds (minimum to maximum) in the two
files do not overlap. A figure without rounds in one file is judged by the threshold alone. Lost or wrong messages count
without a threshold.

Exit codes: 0 no regression, 1 a regression, 2 bad arguments, a file that is not a report, or two files without a common
figure.";

/// Compares two JSON files of iwarp-perf: p50, p99.9, Gbit/s, messages per second, and ratios to
/// baselines
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// The JSON file before the change
    old: PathBuf,
    /// The JSON file after the change
    new: PathBuf,
    /// Smaller differences are noise, in percent of the old figure
    #[arg(long, value_name = "PERCENT", default_value_t = 10.0, allow_negative_numbers = true, value_parser = percent)]
    threshold: f64,
    /// Prints the unchanged figures too
    #[arg(long)]
    all: bool,
    /// Writes every compared figure as JSON
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

/// Compares two files.
pub fn run(args: &Args) -> Result<ExitCode, CliExit> {
    let old = read_report(&args.old).map_err(CliExit::bad_arguments)?;
    let new = read_report(&args.new).map_err(CliExit::bad_arguments)?;
    let comparison = ReportComparison::new(&old, &new, args.threshold);
    if comparison.figures.is_empty() {
        let (old, new) = (args.old.display(), args.new.display());
        return Err(CliExit::bad_arguments(format_args!(
            "{old} and {new} have no figure in common: nothing was compared; name two files of the same tests and settings"
        )));
    }
    if let Some(path) = &args.json {
        write_json(path, &comparison)
            .map_err(|error| CliExit::bad_arguments(format_args!("--json {}: {error}", path.display())))?;
    }
    print_stdout(comparison_text(&comparison, args.all, terminal_width().unwrap_or(DEFAULT_WIDTH)));
    Ok(if comparison.regressions == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn percent(text: &str) -> Result<f64, String> {
    let value = text.parse::<f64>().ok().filter(|value| (0.0..=1000.0).contains(value));
    value.ok_or_else(|| "0 to 1000 percent".to_owned())
}
