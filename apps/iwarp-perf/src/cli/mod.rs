//! The command line: a test with its options, or a tool as a subcommand.

mod args;
mod cases;

use std::ffi::OsString;

use clap::parser::ValueSource;
use clap::{CommandFactory, FromArgMatches, Subcommand, ValueEnum};
use ironwarp_cli::generate_docs_if_asked;

pub use args::{Args, AtomicsArg, Command, Format, TransportArg};
pub use ironwarp_cli::CliExit;

use crate::doctor;

/// What the user asks for.
#[derive(Debug)]
pub enum CommandLine {
    Test(Box<Args>),
    Tool(Tool),
}

// A doc comment would be the help text.
#[derive(Debug, Subcommand)]
pub enum Tool {
    Doctor(doctor::Args),
}

/// How alike two words are for one to be suggested for the other, from 0 to 1.
const SIMILAR: f64 = 0.8;

impl CommandLine {
    /// Parses the arguments. The first one is the name of the program.
    pub fn read(arguments: &[OsString]) -> Result<Self, CliExit> {
        generate_docs_if_asked(arguments, command)?;
        let command = command();
        let matches = command.clone().try_get_matches_from(arguments);
        let matches = matches.map_err(|error| match (CliExit::from(error), unknown_word(arguments)) {
            (CliExit::BadArguments(line), Some(more)) => CliExit::BadArguments(line + &more),
            (exit, _) => exit,
        })?;
        if matches.subcommand_name().is_some() {
            return Ok(CommandLine::Tool(Tool::from_arg_matches(&matches)?));
        }
        let on_command_line =
            |arg: &&clap::Arg| matches.value_source(arg.get_id().as_str()) == Some(ValueSource::CommandLine);
        let given = command.get_arguments().filter(on_command_line).filter_map(clap::Arg::get_long);
        let given = given.map(str::to_owned).collect();
        Ok(CommandLine::Test(Box::new(Args { given, ..Args::from_arg_matches(&matches)? })))
    }
}

fn command() -> clap::Command {
    Tool::augment_subcommands(Args::command())
        .args_conflicts_with_subcommands(true)
        .subcommand_negates_reqs(true)
        .disable_help_subcommand(true)
        .propagate_version(true)
        .subcommand_value_name("TOOL")
        .subcommand_help_heading("Tools, in place of TEST, each with a --help of its own")
}

/// Returns what to say of a first word that is neither a test nor a tool: the tools, and the word
/// that it resembles. `None` for a test, a tool or an option.
fn unknown_word(arguments: &[OsString]) -> Option<String> {
    let word = arguments.get(1)?.to_str().filter(|word| !word.starts_with('-'))?;
    let command = command();
    let tools: Vec<String> = command.get_subcommands().map(|tool| tool.get_name().to_owned()).collect();
    let words = Command::value_variants().iter().map(ToString::to_string).chain(tools.iter().cloned());
    let words: Vec<String> = words.collect();
    if words.iter().any(|known| known == word) {
        return None;
    }
    let alike = |known: &&String| strsim::jaro_winkler(known, word);
    let nearest = words.iter().max_by(|one, other| alike(one).total_cmp(&alike(other)));
    let hint = nearest.filter(|known| alike(known) > SIMILAR);
    let hint = hint.map(|known| format!("; did you mean {known}?")).unwrap_or_default();
    Some(format!("; or a tool: {}{hint}", tools.join(", ")))
}

#[cfg(test)]
mod tests;
