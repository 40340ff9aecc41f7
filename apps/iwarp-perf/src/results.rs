//! `iwarp-perf results`: writes `bench/RESULTS.md` from the JSON of runs.

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Parser;
use ironwarp_bench::results::{QUESTIONS, Runs, markdown};
use ironwarp_cli::{bad_arguments, fail, parse_args, print_stdout};

use crate::PROGRAM;

const EXAMPLES: &str = "\
Examples:
  iwarp-perf results                                                    prints the page
  iwarp-perf results --from bench/results --write bench/RESULTS.md      the last step of scripts/results.sh

Exit codes: 0 success, 1 the page cannot be written, 2 bad arguments or an incomplete input.";

/// Generates the page of results, one table for each question, from the JSON of runs
#[derive(Debug, Parser)]
#[command(name = "iwarp-perf results", version, after_help = EXAMPLES)]
struct Args {
    /// The folder of JSON files
    #[arg(long, value_name = "DIR", default_value = "bench/results")]
    from: PathBuf,
    /// The file of the page [default: standard output]
    #[arg(long, value_name = "FILE")]
    write: Option<PathBuf>,
}

/// Generates the page. `arguments` are those of the program without the word `results`.
pub fn main(arguments: Vec<OsString>) -> ExitCode {
    let args: Args = match parse_args(arguments) {
        Ok(args) => args,
        Err(exit) => return exit.report(PROGRAM),
    };
    let page = match markdown(QUESTIONS, &mut Runs::new(&args.from)) {
        Ok(page) => page,
        Err(error) => return bad_arguments(PROGRAM, error),
    };
    let Some(path) = args.write else {
        print_stdout(page);
        return ExitCode::SUCCESS;
    };
    match std::fs::write(&path, page) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => fail(PROGRAM, format_args!("{}: {error}", path.display())),
    }
}
