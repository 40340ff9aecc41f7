//! `iwarp-top`: live counters of a running process.
//!
//! Reads the page of counters that the process publishes (`stats.page` of its configuration) as a
//! file; it never maps or writes it. A page of another build is shown with the counter names that
//! the page itself contains. On a terminal it shows views that keys choose ([`interactive`]);
//! elsewhere, or if an option asks for it, it prints plain text ([`plain`]) or a line of JSON for
//! each snapshot. With `--listen` it serves the page to Prometheus instead ([`listen`]).
//!
//! A process that can write the page chooses its text: it is escaped before it reaches a terminal
//! ([`printable`]).
//!
//! Exit codes: 0 success, also when the process has ended; 1 the page could not be read or the
//! address not be bound; 2 bad arguments.
#![forbid(unsafe_code)]

mod args;
mod interactive;
mod listen;
mod metrics;
mod namespaces;
mod plain;
mod printable;
mod snapshot;
mod table;
mod views;

use std::io::IsTerminal;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use ironwarp_cli::{CliExit, exit_code, on_interrupt, parse_args, print_stdout, start_log};
use ironwarp_stats::ReadError;

use crate::args::Args;
use crate::interactive::{End, WatchError};
use crate::printable::ascii_json;
use crate::snapshot::{ObservedProcess, Snapshot};

const PROGRAM: &str = "iwarp-top";
/// The interval between two checks for Ctrl-C.
const STEP: Duration = Duration::from_millis(20);

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
    let failed = |error: WatchError| CliExit::failed(format_args!("{}: {error}", args.page.display()));
    let mut process = ObservedProcess::open(&args.page).map_err(|error| failed(error.into()))?;
    if std::io::stdout().is_terminal() && !args.is_plain() {
        show(&mut process, &args, &stop).map_err(failed)
    } else {
        print(&mut process, &args, &stop).map_err(|error| failed(error.into()))
    }
}

/// Shows views on the terminal. What was shown last stays, unless the user ends the program.
fn show(process: &mut ObservedProcess, args: &Args, stop: &AtomicBool) -> Result<(), WatchError> {
    match interactive::run(process, args, stop)? {
        End::Quit => {}
        End::Counted(snapshot) => print_plain(&snapshot),
        End::ProcessEnded(snapshot) => {
            print_plain(&snapshot);
            report_end(&snapshot);
        }
    }
    Ok(())
}

/// Prints each snapshot.
fn print(process: &mut ObservedProcess, args: &Args, stop: &AtomicBool) -> Result<(), ReadError> {
    let mut shown = 0;
    while args.snapshot_limit().is_none_or(|most| shown < most) {
        if shown > 0 && !sleep_unless_stopped(args.interval, stop) {
            return Ok(());
        }
        let ended = process.has_ended();
        let snapshot = process.snapshot()?;
        if args.json {
            print_stdout(format_args!("{}\n", ascii_json(&snapshot.json())));
        } else {
            print_plain(&snapshot);
        }
        if ended {
            report_end(&snapshot);
            return Ok(());
        }
        shown += 1;
    }
    Ok(())
}

fn print_plain(snapshot: &Snapshot) {
    let size = ratatui::crossterm::terminal::size().ok().filter(|_| std::io::stdout().is_terminal());
    print_stdout(plain::text(snapshot, size.map(|(columns, _)| columns.into())));
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
