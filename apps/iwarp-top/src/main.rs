//! `iwarp-top`: live counters of a running process.
//!
//! Reads the page of counters that the process publishes (`stats.page` of its configuration) as a
//! file; it never maps or writes it. A page of another build is shown with the counter names that
//! the page itself contains. It prints text ([`plain`]) or a line of JSON for each snapshot; on a
//! terminal a snapshot takes the place of the one before. With `--listen` it serves the page to
//! Prometheus instead ([`listen`]).
//!
//! A process that can write the page chooses its text: it is escaped before it reaches a terminal
//! ([`printable`]).
//!
//! Exit codes: 0 success, also when the process has ended; 1 the page could not be read or the
//! address not be bound; 2 bad arguments.
#![forbid(unsafe_code)]

mod args;
mod listen;
mod metrics;
mod namespaces;
mod plain;
mod printable;
mod snapshot;
mod table;

use std::io::IsTerminal;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use ironwarp_cli::{CliExit, exit_code, on_interrupt, parse_args, print_stdout, start_log};
use ironwarp_stats::ReadError;
use rustix::termios::tcgetwinsize;

use crate::args::Args;
use crate::printable::ascii_json;
use crate::snapshot::{ObservedProcess, Snapshot};

const PROGRAM: &str = "iwarp-top";
/// The interval between two checks for Ctrl-C.
const STEP: Duration = Duration::from_millis(20);
/// The lines of a terminal that does not say how many it has.
const LINES: usize = 24;

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
    let failed = |error: ReadError| CliExit::failed(format_args!("{}: {error}", args.page.display()));
    let mut process = ObservedProcess::open(&args.page).map_err(failed)?;
    print(&mut process, &args, &stop).map_err(failed)
}

/// Prints each snapshot. The last one of a process that has ended is whole.
fn print(process: &mut ObservedProcess, args: &Args, stop: &AtomicBool) -> Result<(), ReadError> {
    let has_screen = std::io::stdout().is_terminal() && !args.is_plain();
    let mut shown = 0;
    while args.snapshot_limit().is_none_or(|most| shown < most) {
        if shown > 0 && !sleep_unless_stopped(args.interval, stop) {
            return Ok(());
        }
        let ended = process.has_ended();
        let snapshot = process.snapshot()?;
        if args.json {
            print_stdout(format_args!("{}\n", ascii_json(&snapshot.json())));
        } else if has_screen && !ended {
            let lines = tcgetwinsize(std::io::stdout()).map_or(LINES, |size| size.ws_row.into());
            print_stdout(plain::screen(&plain::text(&snapshot), lines));
        } else {
            print_stdout(plain::text(&snapshot));
        }
        if ended {
            report_end(&snapshot);
            return Ok(());
        }
        shown += 1;
    }
    Ok(())
}

fn report_end(snapshot: &Snapshot) {
    eprintln!("{PROGRAM}: process {} has ended; this is what it counted last", snapshot.pid);
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
