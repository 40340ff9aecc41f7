//! `iwarp-perf results`: writes `bench/RESULTS.md` from the JSON of runs.

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Parser;
use ironwarp_bench::results::{QUESTIONS, Runs, markdown};
use ironwarp_cli::{CliExit, parse_args, print_stdout};

const EXAMPLES: &str = "\
Examples:
  iwarp-perf results                                                    prints the page
  iwarp-perf results --from bench/results --write bench/RESULTS.md      the last step of scripts/results.sh

Exit codes: 0 success, 1 the page cannot be written, 2 bad arguments or an incomplete input.";

/// Generates the page of results, one table for each question, from the JSON of runs
#[derive(Debug, Parser)]
#[command(name = "iwarp-perf results", bin_name = "iwarp-perf results", version, after_help = EXAMPLES)]
pub(crate) struct Args {
    /// The folder of JSON files
    #[arg(long, value_name = "DIR", default_value = "bench/results")]
    from: PathBuf,
    /// The file of the page [default: standard output]
    #[arg(long, value_name = "FILE")]
    write: Option<PathBuf>,
}

/// Generates the page. `arguments` are those of the program without the word `results`.
pub fn run(arguments: Vec<OsString>) -> Result<ExitCode, CliExit> {
    let args: Args = parse_args(arguments)?;
    let page = markdown(QUESTIONS, &mut Runs::new(&args.from)).map_err(CliExit::bad_arguments)?;
    match args.write {
        Some(path) => std::fs::write(&path, page)
            .map_err(|error| CliExit::failed(format_args!("{}: {error}", path.display())))?,
        None => print_stdout(page),
    }
    Ok(ExitCode::SUCCESS)
}
