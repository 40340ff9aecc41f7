//! What all programs do alike: refuse bad arguments in one line, log, stop at Ctrl-C, and end with the same codes.
//!
//! Takes a program's arguments as `clap` describes them. A refusal is one line that names the argument, the value and
//! what is allowed. Exit codes: 0 success, 1 a run that failed, 2 bad arguments or configuration.
#![forbid(unsafe_code)]

use std::ffi::OsString;
use std::fmt::Display;
use std::io::{IsTerminal, Write};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use clap::Parser;
use clap::error::ErrorKind;
use tracing_subscriber::EnvFilter;

/// Bad arguments or configuration.
pub const EXIT_BAD_ARGUMENTS: u8 = 2;

/// Why there is nothing to run.
#[derive(Debug, PartialEq, Eq)]
pub enum CliExit {
    /// Help or version was asked for: here it is.
    Help(String),
    /// The arguments cannot be used: one line that says which, and what is allowed.
    BadArguments(String),
}

impl CliExit {
    /// Says it, and gives the code to end with. `program` is the program's name.
    pub fn report(self, program: &str) -> ExitCode {
        match self {
            CliExit::Help(text) => {
                print_stdout(text);
                ExitCode::SUCCESS
            }
            CliExit::BadArguments(line) => bad_arguments(program, line),
        }
    }
}

/// Reads arguments, the program's name first.
pub fn parse_args<A: Parser>(arguments: impl IntoIterator<Item = OsString>) -> Result<A, CliExit> {
    A::try_parse_from(arguments).map_err(|error| match error.kind() {
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => CliExit::Help(error.to_string()),
        ErrorKind::MissingRequiredArgument | ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => {
            CliExit::BadArguments(format!("{}; --help lists them", one_line(&error.to_string())))
        }
        _ => CliExit::BadArguments(one_line(&error.to_string())),
    })
}

/// What the parser says, without its heading, its usage and its advice.
fn one_line(text: &str) -> String {
    let text = text.strip_prefix("error: ").unwrap_or(text);
    let message_lines =
        text.lines().take_while(|line| !line.starts_with("Usage:") && !line.starts_with("For more"));
    let words: Vec<&str> = message_lines.map(str::trim).filter(|line| !line.is_empty()).collect();
    words.join(" ")
}

/// Says why arguments or a configuration cannot be used, and gives the code to end with.
pub fn bad_arguments(program: &str, line: impl Display) -> ExitCode {
    eprintln!("{program}: {line}");
    ExitCode::from(EXIT_BAD_ARGUMENTS)
}

/// Says why a run failed, and gives the code to end with.
pub fn fail(program: &str, line: impl Display) -> ExitCode {
    eprintln!("{program}: {line}");
    ExitCode::FAILURE
}

/// Writes text to standard output at once. A reader that closed its end hears nothing more; the run goes on, since what
/// it does never depends on who listens.
pub fn print_stdout(text: impl Display) {
    let mut out = std::io::stdout().lock();
    let _ = write!(out, "{text}").and_then(|()| out.flush());
}

/// Sends the log to standard error, so that standard output holds results alone. `filter` is a level, or a filter as
/// of tracing-subscriber.
pub fn start_log(filter: &str) -> Result<(), String> {
    let wanted = EnvFilter::try_new(filter).map_err(|error| {
        format!("--log {filter}: {error}: error, warn, info, or a filter as of tracing-subscriber")
    })?;
    tracing_subscriber::fmt()
        .with_env_filter(wanted)
        .with_writer(std::io::stderr)
        .with_ansi(std::io::stderr().is_terminal())
        .init();
    Ok(())
}

/// One Ctrl-C reaches a program twice where `timeout` or a shell hands it on too. A user's second one comes later.
const DOUBLE_SIGNAL_WINDOW: Duration = Duration::from_millis(300);

/// A flag that Ctrl-C raises. The second Ctrl-C does not wait.
pub fn on_interrupt() -> Result<Arc<AtomicBool>, String> {
    let stop = Arc::new(AtomicBool::new(false));
    let (seen, mut first) = (stop.clone(), None);
    let handler = move || {
        seen.store(true, Ordering::Relaxed);
        if first.get_or_insert_with(Instant::now).elapsed() > DOUBLE_SIGNAL_WINDOW {
            std::process::exit(1);
        }
    };
    ctrlc::set_handler(handler).map_err(|error| format!("no handler for Ctrl-C: {error}"))?;
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

    fn of(line: &str) -> Result<Args, CliExit> {
        parse_args(line.split(' ').map(OsString::from))
    }

    #[test]
    fn what_can_be_used_is_read() {
        assert_eq!(of("p --bytes 3"), Ok(Args { bytes: 3 }));
    }

    #[test]
    fn a_refusal_is_one_line_with_the_argument_the_value_and_what_is_allowed() {
        for (line, words) in [
            ("p --bytes 0", &["--bytes", "'0'", "1..=9"][..]),
            ("p --bites 3", &["--bites", "--bytes"]),
            ("p", &["--bytes", "--help"]),
        ] {
            let Err(CliExit::BadArguments(text)) = of(line) else { panic!("{line} was not refused") };
            assert!(!text.contains('\n') && !text.contains("Usage"), "{text}");
            assert!(words.iter().all(|word| text.contains(word)), "{line}: {text}");
        }
    }

    #[test]
    fn help_and_version_are_no_failure() {
        for line in ["p --help", "p --version"] {
            assert!(matches!(of(line), Err(CliExit::Help(text)) if text.contains('p')), "{line}");
        }
    }

    #[test]
    fn a_filter_that_is_none_is_named() {
        let line = start_log("=loud=").expect_err("no filter");
        assert!(line.contains("--log =loud=") && line.contains("info") && !line.contains('\n'), "{line}");
    }
}
