//! The command line.

mod args;
mod cases;
mod size;

pub use args::{Args, Log, What};
pub use cases::check_case;

use clap::Parser;
use clap::error::ErrorKind;

/// Why there is nothing to run.
#[derive(Debug, PartialEq, Eq)]
pub enum Refusal {
    /// Help or version was asked for: here it is.
    Shown(String),
    /// The arguments cannot be used: one line that says which, and what is allowed.
    Refused(String),
}

impl Args {
    /// Reads the arguments, the program's name first.
    pub fn read(arguments: &[std::ffi::OsString]) -> Result<Self, Refusal> {
        Args::try_parse_from(arguments).map_err(|error| match error.kind() {
            ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => Refusal::Shown(error.to_string()),
            ErrorKind::MissingRequiredArgument | ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => {
                Refusal::Refused(format!("{}; --help lists them", one_line(&error.to_string())))
            }
            _ => Refusal::Refused(one_line(&error.to_string())),
        })
    }
}

/// What the parser says, without its heading, its usage and its advice.
fn one_line(text: &str) -> String {
    let text = text.strip_prefix("error: ").unwrap_or(text);
    let said = text.lines().take_while(|line| !line.starts_with("Usage:") && !line.starts_with("For more"));
    let words: Vec<&str> = said.map(str::trim).filter(|line| !line.is_empty()).collect();
    words.join(" ")
}

#[cfg(test)]
mod tests;
