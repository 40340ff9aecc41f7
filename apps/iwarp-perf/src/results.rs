//! `iwarp-perf results`: writes `bench/RESULTS.md` from the JSON of runs.

use std::path::PathBuf;
use std::process::ExitCode;

use ironwarp_bench::results::{Questions, Runs, markdown};
use ironwarp_cli::{CliExit, print_stdout};

const EXAMPLES: &str = "\
Examples:
  iwarp-perf results                                                    prints the page
  iwarp-perf results --from bench/results --write bench/RESULTS.md      the last step of scripts/results.sh

Exit codes: 0 success, 1 the page cannot be written, 2 bad arguments or an incomplete input.";

/// Generates the page of results, one table for each question, from the JSON of runs
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// The folder of JSON files
    #[arg(long, value_name = "DIR", default_value = "bench/results")]
    from: PathBuf,
    /// The file of the page [default: standard output]
    #[arg(long, value_name = "FILE")]
    write: Option<PathBuf>,
}

/// Generates the page.
pub fn run(args: &Args) -> Result<ExitCode, CliExit> {
    let questions = Questions::built_in().map_err(CliExit::bad_arguments)?;
    let page = markdown(&questions, &mut Runs::new(&args.from)).map_err(CliExit::bad_arguments)?;
    match &args.write {
        Some(path) => std::fs::write(path, page)
            .map_err(|error| CliExit::failed(format_args!("{}: {error}", path.display())))?,
        None => print_stdout(page),
    }
    Ok(ExitCode::SUCCESS)
}
