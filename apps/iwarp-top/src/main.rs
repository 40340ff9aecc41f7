//! `iwarp-top`: live counters of a running process.
//!
//! Reads the page of counters that the process publishes (`stats.page` of its configuration) as a file; it never
//! maps or writes it. Prints one screen or one line of JSON per snapshot. A page of another build is shown with the
//! counter names that the page itself contains. With `--listen` it serves the page to Prometheus instead.
//!
//! Exit codes: 0 success, also when the process has ended; 1 the page could not be read or the address not be bound; 2 bad arguments.
#![forbid(unsafe_code)]

mod args;
mod listen;
mod metrics;
mod namespaces;
mod screen;
mod snapshot;

use std::io::IsTerminal;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use ironwarp_cli::{CliExit, exit_code, on_interrupt, parse_args, print_stdout, start_log};
use ironwarp_stats::ReadError;

use crate::args::Args;
use crate::snapshot::ObservedProcess;

const PROGRAM: &str = "iwarp-top";
/// The interval between two checks for Ctrl-C.
const STEP: Duration = Duration::from_millis(20);
/// Clears a terminal.
const CLEAR: &str = "\x1b[H\x1b[2J";

fn main() -> ExitCode {
    exit_code(run().map_or_else(|exit| exit.report(PROGRAM), |()| ExitCode::SUCCESS))
}

fn run() -> Result<(), CliExit> {
    let args: Args = parse_args(std::env::args_os())?;
    let _log = start_log(&args.log)?;
    let stop = on_interrupt().map_err(CliExit::Failed)?;
    if let Some(address) = args.listen {
        let served = listen::serve(address, &args.page, &stop);
        return served.map_err(|error| CliExit::failed(format_args!("--listen {address}: {error}")));
    }
    watch(&args, &stop).map_err(|error| CliExit::failed(format_args!("{}: {error}", args.page.display())))
}

fn watch(args: &Args, stop: &AtomicBool) -> Result<(), ReadError> {
    let mut process = ObservedProcess::open(&args.page)?;
    let clear = if std::io::stdout().is_terminal() && !args.once { CLEAR } else { "" };
    let mut shown = 0;
    while args.snapshot_limit().is_none_or(|most| shown < most) {
        if shown > 0 && !sleep_unless_stopped(args.interval, stop) {
            return Ok(());
        }
        let ended = process.has_ended();
        let snapshot = process.snapshot()?;
        if args.json {
            print_stdout(format_args!("{}\n", snapshot.json()));
        } else {
            print_stdout(format_args!("{clear}{}", screen::screen(&snapshot)));
        }
        if ended {
            eprintln!("{PROGRAM}: process {} has ended; this is what it counted last", snapshot.pid);
            return Ok(());
        }
        shown += 1;
    }
    Ok(())
}

/// Waits for the next snapshot. Returns false when `stop` is set first.
fn sleep_unless_stopped(interval: Duration, stop: &AtomicBool) -> bool {
    let start = Instant::now();
    while !stop.load(Ordering::Relaxed) {
        match interval.checked_sub(start.elapsed()) {
            Some(left) if !left.is_zero() => std::thread::sleep(left.min(STEP)),
            _ => return true,
        }
    }
    false
}
