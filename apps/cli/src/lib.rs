//! Functions that all programs share: arguments, the log, Ctrl-C and exit codes.
//!
//! Arguments are described with `clap`. The error for a bad argument is one line with the argument,
//! the value and the allowed values. Exit codes: 0 success, 1 a run that failed, 2 bad arguments or
//! configuration.
#![forbid(unsafe_code)]

mod docs;
mod panics;

pub use docs::generate_docs_if_asked;
pub use panics::{end_on_panic, exit_code};

use std::ffi::OsString;
use std::fmt::Display;
use std::io::{IsTerminal, Write};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use clap::Parser;
use clap::error::ErrorKind;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use tracing_appender::non_blocking::NonBlockingBuilder;
pub use tracing_appender::non_blocking::WorkerGuard as LogGuard;
use tracing_subscriber::EnvFilter;

/// The exit code for bad arguments or a bad configuration.
pub const EXIT_BAD_ARGUMENTS: u8 = 2;

/// The reason why a program ends before it runs.
#[derive(Debug, PartialEq, Eq)]
pub enum CliExit {
    /// The text of `--help` or `--version`.
    Help(String),
    /// One line that names the bad argument and the allowed values.
    BadArguments(String),
    /// One line that says why a run failed.
    Failed(String),
}

impl CliExit {
    /// Prints the text and returns the exit code.
    pub fn report(self, program: &str) -> ExitCode {
        match self {
            CliExit::Help(text) => {
                print_stdout(text);
                ExitCode::SUCCESS
            }
            CliExit::BadArguments(line) => bad_arguments(program, line),
            CliExit::Failed(line) => fail(program, line),
        }
    }
}

impl From<clap::Error> for CliExit {
    fn from(error: clap::Error) -> Self {
        let text = error.to_string();
        match error.kind() {
            ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => CliExit::Help(text),
            ErrorKind::MissingRequiredArgument | ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => {
                CliExit::BadArguments(format!("{}; --help lists them", one_line(&text)))
            }
            _ => CliExit::BadArguments(one_line(&text)),
        }
    }
}

impl CliExit {
    /// A run that failed.
    pub fn failed(why: impl Display) -> Self {
        CliExit::Failed(why.to_string())
    }

    /// Arguments or a configuration that cannot be used.
    pub fn bad_arguments(why: impl Display) -> Self {
        CliExit::BadArguments(why.to_string())
    }
}

impl From<String> for CliExit {
    fn from(line: String) -> Self {
        CliExit::BadArguments(line)
    }
}

/// Parses arguments. The first one is the name of the program. `--generate-docs FOLDER` writes
/// manual pages and shell completions instead.
pub fn parse_args<A: Parser>(arguments: impl IntoIterator<Item = OsString>) -> Result<A, CliExit> {
    let arguments: Vec<_> = arguments.into_iter().collect();
    generate_docs_if_asked(&arguments, A::command)?;
    Ok(A::try_parse_from(arguments)?)
}

/// Returns the message of the parser without its heading, usage and advice.
fn one_line(text: &str) -> String {
    let text = text.strip_prefix("error: ").unwrap_or(text);
    let message_lines =
        text.lines().take_while(|line| !line.starts_with("Usage:") && !line.starts_with("For more"));
    let words: Vec<&str> = message_lines.map(str::trim).filter(|line| !line.is_empty()).collect();
    words.join(" ")
}

/// Prints why arguments or a configuration cannot be used, and returns the exit code.
pub fn bad_arguments(program: &str, line: impl Display) -> ExitCode {
    eprintln!("{program}: {line}");
    ExitCode::from(EXIT_BAD_ARGUMENTS)
}

/// Prints why a run failed, and returns the exit code.
pub fn fail(program: &str, line: impl Display) -> ExitCode {
    eprintln!("{program}: {line}");
    ExitCode::FAILURE
}

/// Writes text to standard output and flushes it. Errors are ignored: the run continues if the
/// reader closes its end.
pub fn print_stdout(text: impl Display) {
    let mut out = std::io::stdout().lock();
    let _ = write!(out, "{text}").and_then(|()| out.flush());
}

/// Lines of the log that wait for standard error. Further ones are dropped.
const LOG_LINES_MAX: usize = 4096;

/// Writes the log to standard error, so that standard output has only results. `filter` is a level
/// or a filter of tracing-subscriber.
///
/// A thread writes the lines: a terminal or a pipe that nobody reads does not stop a core. The
/// lines that wait are written when the guard is dropped.
pub fn start_log(filter: &str) -> Result<LogGuard, String> {
    let env_filter = EnvFilter::try_new(filter).map_err(|error| {
        format!("--log {filter}: {error}: must be error, warn, info or a filter of tracing-subscriber")
    })?;
    let (writer, guard) = NonBlockingBuilder::default()
        .buffered_lines_limit(LOG_LINES_MAX)
        .thread_name("log")
        .finish(std::io::stderr());
    tracing_subscriber::fmt()
        .with_env_filter(env_filter)
        .with_writer(writer)
        .with_ansi(std::io::stderr().is_terminal())
        .init();
    Ok(guard)
}

/// `timeout` and shells may deliver one Ctrl-C twice. A second Ctrl-C of the user comes later than
/// this.
const DOUBLE_SIGNAL_WINDOW: Duration = Duration::from_millis(300);

/// Returns a flag that Ctrl-C, SIGTERM, SIGHUP and a panic of any thread set. The second signal
/// ends the process at once with exit code 1.
pub fn on_interrupt() -> Result<Arc<AtomicBool>, String> {
    watch_signals(None)
}

/// Returns a flag that Ctrl-C, SIGTERM and panics set, as [`on_interrupt`], and one that SIGHUP
/// sets: the request of a service manager to read the configuration again. The program clears the
/// second one.
pub fn on_interrupt_or_reload() -> Result<(Arc<AtomicBool>, Arc<AtomicBool>), String> {
    let reload = Arc::new(AtomicBool::new(false));
    Ok((watch_signals(Some(reload.clone()))?, reload))
}

/// Starts the thread that waits for signals. SIGHUP sets `reload` if there is one, else it is as
/// Ctrl-C.
fn watch_signals(reload: Option<Arc<AtomicBool>>) -> Result<Arc<AtomicBool>, String> {
    let stop = Arc::new(AtomicBool::new(false));
    end_on_panic(stop.clone());
    let failed = |error| format!("no handler for Ctrl-C: {error}");
    let mut signals = Signals::new([SIGINT, SIGTERM, SIGHUP]).map_err(failed)?;
    let (flag, mut first) = (stop.clone(), None);
    let watch = move || {
        for signal in signals.forever() {
            match &reload {
                Some(reload) if signal == SIGHUP => reload.store(true, Ordering::Relaxed),
                _ => {
                    flag.store(true, Ordering::Relaxed);
                    if first.get_or_insert_with(Instant::now).elapsed() > DOUBLE_SIGNAL_WINDOW {
                        std::process::exit(1);
                    }
                }
            }
        }
    };
    std::thread::Builder::new().name("signals".into()).spawn(watch).map_err(failed)?;
    Ok(stop)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A program
    #[derive(Parser, Debug, PartialEq)]
    #[command(name = "p", version)]
    struct Args {
        /// Bytes
        #[arg(long, value_parser = clap::value_parser!(u8).range(1..=9))]
        bytes: u8,
    }

    fn parse(line: &str) -> Result<Args, CliExit> {
        parse_args(line.split(' ').map(OsString::from))
    }

    #[test]
    fn valid_arguments_are_parsed() {
        assert_eq!(parse("p --bytes 3"), Ok(Args { bytes: 3 }));
    }

    #[test]
    fn an_error_is_one_line_with_the_argument_the_value_and_the_allowed_values() {
        for (line, words) in [
            ("p --bytes 0", &["--bytes", "'0'", "1..=9"][..]),
            ("p --bites 3", &["--bites", "--bytes"]),
            ("p", &["--bytes", "--help"]),
        ] {
            let Err(CliExit::BadArguments(text)) = parse(line) else { panic!("{line} was not rejected") };
            assert!(!text.contains('\n') && !text.contains("Usage"), "{text}");
            assert!(words.iter().all(|word| text.contains(word)), "{line}: {text}");
        }
    }

    #[test]
    fn help_and_version_are_not_errors() {
        for line in ["p --help", "p --version"] {
            assert!(matches!(parse(line), Err(CliExit::Help(text)) if text.contains('p')), "{line}");
        }
    }

    #[test]
    fn an_error_names_the_bad_filter() {
        let line = start_log("=loud=").expect_err("not a filter");
        assert!(line.contains("--log =loud=") && line.contains("info") && !line.contains('\n'), "{line}");
    }
}
