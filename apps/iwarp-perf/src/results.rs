//! `iwarp-perf results`: writes `bench/RESULTS.md` from the JSON of runs.
//!
//! Exit codes: 0 success, 1 the page cannot be written, 2 bad arguments or an input that lacks something.

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Parser;
use ironwarp_bench::results::{QUESTIONS, Runs, markdown};

use crate::PROGRAM;

const EXAMPLES: &str = "\
Examples:
  iwarp-perf results                                                    print the page
  iwarp-perf results --from bench/results --write bench/RESULTS.md      what scripts/results.sh does last

Exit codes: 0 success, 1 the page cannot be written, 2 bad arguments or an input that lacks something.";

/// Generates the page of results, one table for each question, from the JSON of runs
#[derive(Debug, Parser)]
#[command(name = "iwarp-perf results", version, after_help = EXAMPLES)]
struct Args {
    /// The folder of JSON files
    #[arg(long, value_name = "DIR", default_value = "bench/results")]
    from: PathBuf,
    /// Where to write the page; without it, to standard output
    #[arg(long, value_name = "FILE")]
    write: Option<PathBuf>,
}

/// Whether these arguments ask for the page of results.
pub fn is_requested(arguments: &[OsString]) -> bool {
    arguments.get(1).is_some_and(|word| word == "results")
}

/// Generates the page. The arguments are the program's, its name first.
pub fn main(arguments: &[OsString]) -> ExitCode {
    let own = arguments.iter().take(1).chain(arguments.iter().skip(2)).cloned();
    let args: Args = match ironwarp_cli::parse_args(own) {
        Ok(args) => args,
        Err(exit) => return exit.report(PROGRAM),
    };
    let page = match markdown(QUESTIONS, &mut Runs::new(&args.from)) {
        Ok(page) => page,
        Err(error) => return ironwarp_cli::bad_arguments(PROGRAM, error),
    };
    match args.write.map(|path| (std::fs::write(&path, &page), path)) {
        Some((Err(error), path)) => ironwarp_cli::fail(PROGRAM, format_args!("{}: {error}", path.display())),
        Some((Ok(()), _)) => ExitCode::SUCCESS,
        None => {
            ironwarp_cli::print_stdout(page);
            ExitCode::SUCCESS
        }
    }
}
