//! `iwarp-sim`: runs whole nodes on faulty links, one run per seed.
//!
//! Exit codes: 0 every seed passed, 1 a seed failed or the run was stopped, 2 bad arguments.
#![forbid(unsafe_code)]

mod cli;

use std::io::{self, Write};
use std::path::Path;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use ironwarp_cli::{bad_arguments, fail, parse_args};
use iwarp_sim::campaign::{self, Summary};
use iwarp_sim::plan::{Plan, Scenario};
use iwarp_sim::tcp::curves::{CONTROLS, Point};
use iwarp_sim::trial::{Failure, FastPath, Outcome, Trial};

use cli::{Args, Command};

const PROGRAM: &str = "iwarp-sim";

fn main() -> ExitCode {
    let args: Args = match parse_args(std::env::args_os()) {
        Ok(args) => args,
        Err(exit) => return exit.report(PROGRAM),
    };
    match &args.command {
        Some(Command::Curves { write }) => return curves(write.as_deref()),
        Some(Command::Goodput(point)) => return goodput(*point),
        None => {}
    }
    if args.list {
        for scenario in Scenario::ALL {
            println!("{:10} {}", scenario.name(), scenario.help());
        }
        return ExitCode::SUCCESS;
    }
    let trials = match args.trials() {
        Ok(trials) => trials,
        Err(fault) => return bad_arguments(PROGRAM, fault),
    };
    if trials.is_empty() {
        return bad_arguments(PROGRAM, "no seed to run: name some with --seeds A..B or --seed N");
    }
    match (args.trace, trials.last()) {
        (true, Some(trial)) => trace(*trial, &args),
        _ => run(&trials, &args),
    }
}

/// Prints what each congestion control carries over one link.
fn goodput(point: Point) -> ExitCode {
    let Point { loss_ppm, rtt_us, gbit_s, window_bytes, mtu_bytes } = point;
    println!(
        "{gbit_s} Gbit/s, round trip {rtt_us} us, windows of {} KiB, MTU {mtu_bytes}, {loss_ppm} frames lost in a million",
        window_bytes >> 10
    );
    for (name, congestion) in CONTROLS {
        match point.goodput_kbit_s(congestion) {
            Ok(kbit_s) => println!("{name:<14} {:>6} Mbit/s", kbit_s / 1_000),
            Err(fault) => return fail(PROGRAM, format_args!("{name}: {fault}")),
        }
    }
    ExitCode::SUCCESS
}

/// Writes the table of goodput to a file or to the standard output.
fn curves(file: Option<&Path>) -> ExitCode {
    let bar = progress(iwarp_sim::tcp::curves::points().len() as u64);
    let table = iwarp_sim::tcp::curves::table(|| bar.inc(1)).map_err(|fault| fault.to_string());
    bar.finish_and_clear();
    let written = table.and_then(|table| match file {
        Some(file) => std::fs::write(file, table).map_err(|fault| format!("{}: {fault}", file.display())),
        None => io::stdout().write_all(table.as_bytes()).map_err(|fault| fault.to_string()),
    });
    match written {
        Ok(()) => ExitCode::SUCCESS,
        Err(fault) => fail(PROGRAM, fault),
    }
}

/// Describes one seed and writes its frames.
fn trace(trial: Trial, args: &Args) -> ExitCode {
    let plan = Plan::new(trial.seed, trial.scenario);
    println!("{}", plan.describe());
    let path = trial.trace_path(&args.traces);
    let outcome = trial.trace(&path, FastPath::On);
    println!("frames: {}", path.display());
    let general = trial.general_trace_path(&args.traces);
    let _ = trial.trace(&general, FastPath::Off);
    println!("frames of the general path: {}", general.display());
    match outcome.and_then(|_| trial.run()) {
        Ok(outcome) => {
            println!("{}", describe(&outcome));
            println!("1 passed, 0 failed");
            ExitCode::SUCCESS
        }
        Err(failure) => {
            println!("FAILED: {}", failure.fault);
            println!("0 passed, 1 failed");
            ExitCode::FAILURE
        }
    }
}

fn run(trials: &[Trial], args: &Args) -> ExitCode {
    // Without this handler, Ctrl-C ends the program at once, which is the default.
    let stop = ironwarp_cli::on_interrupt().unwrap_or_default();
    let jobs = args.jobs.map(usize::from).unwrap_or_else(processors);
    let bar = progress(trials.len() as u64);
    // A seed that panics is reported as failed. The default panic message would garble the progress
    // bar.
    std::panic::set_hook(Box::new(|_| {}));
    let start = Instant::now();
    let limit = args.seconds.map_or(Duration::MAX, Duration::from_secs);
    let is_over = AtomicBool::new(false);
    let summary = campaign::run(trials, jobs, &stop, &|outcome| {
        if let Err(failure) = outcome {
            bar.suspend(|| report(failure, args));
        }
        bar.inc(1);
        if start.elapsed() >= limit && !stop.swap(true, Ordering::Relaxed) {
            is_over.store(true, Ordering::Relaxed);
        }
    });
    bar.finish_and_clear();
    let left = trials.len() as u64 - summary.passed - summary.failures.len() as u64;
    let all = left == 0 || is_over.into_inner();
    print_summary(&summary, start.elapsed().as_secs_f64());
    if left > 0 {
        println!("stopped{}: {left} seeds were not run", if all { " after the time" } else { "" });
    }
    println!("{} passed, {} failed", summary.passed, summary.failures.len());
    if all && summary.failures.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Prints the fault and the command that repeats it, and writes the frames.
fn report(failure: &Failure, args: &Args) {
    let trial = failure.trial;
    println!("FAILED {} {}: {}", trial.scenario.name(), trial.seed, failure.fault);
    println!("  again:  {}", trial.command());
    let path = trial.trace_path(&args.traces);
    let general = trial.general_trace_path(&args.traces);
    // The result is known; only the frames are needed.
    let _ = trial.trace(&path, FastPath::On);
    let _ = trial.trace(&general, FastPath::Off);
    println!("  frames: {}, of the general path: {}", path.display(), general.display());
}

fn print_summary(summary: &Summary, seconds: f64) {
    let totals = &summary.totals;
    println!(
        "{} connections, {} requests done, {} flushed, {} tags bound, {} messages in shared receives, {} wake-ups",
        totals.established, totals.succeeded, totals.flushed, totals.bound, totals.shared, totals.woken,
    );
    if totals.atomics > 0 {
        println!(
            "{} atomic operations and Reads of words completed, {} messages; hardest history: {} states",
            totals.atomics, totals.messages, totals.states
        );
    }
    println!(
        "{} queues resized, {} attacks, {} streams terminated, {:.1} MB checked, {} frames in {seconds:.1} s",
        totals.resized,
        totals.attacks,
        totals.terminated,
        totals.bytes as f64 / 1e6,
        summary.frames,
    );
}

fn describe(outcome: &Outcome) -> String {
    let totals = &outcome.totals;
    format!(
        "hash {:016x}, {:?} of virtual time, {} frames, {} connections, {} requests done, {} flushed, {} terminated",
        outcome.hash,
        outcome.took.as_duration(),
        outcome.frames,
        totals.established,
        totals.succeeded,
        totals.flushed,
        totals.terminated
    )
}

/// A progress bar on a terminal, nothing elsewhere.
fn progress(seeds: u64) -> ProgressBar {
    let bar = ProgressBar::with_draw_target(Some(seeds), ProgressDrawTarget::stderr());
    let style = ProgressStyle::with_template("{bar:40} {pos}/{len} seeds, {eta} left");
    bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
    bar
}

fn processors() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}
