//! The command line.

mod args;
mod cases;
pub mod size;
mod tools;

use std::ffi::OsString;

use clap::parser::ValueSource;
use clap::{CommandFactory, FromArgMatches};
use ironwarp_cli::generate_docs_if_asked;

pub use args::{Args, AtomicsArg, Command, Format};
pub use cases::check_case;

pub use ironwarp_cli::CliExit;

pub use tools::TOOLS;

impl Args {
    /// Parses the arguments. The first one is the name of the program.
    pub fn read(arguments: &[OsString]) -> Result<Self, CliExit> {
        generate_docs_if_asked(arguments, documented)?;
        let command = described();
        let matches = command.clone().try_get_matches_from(arguments);
        let matches =
            matches.map_err(|error| match (CliExit::from(error), tools::unknown_word(arguments)) {
                (CliExit::BadArguments(line), Some(more)) => CliExit::BadArguments(line + &more),
                (exit, _) => exit,
            })?;
        let on_command_line =
            |arg: &&clap::Arg| matches.value_source(arg.get_id().as_str()) == Some(ValueSource::CommandLine);
        let given = command.get_arguments().filter(on_command_line).filter_map(clap::Arg::get_long);
        let given = given.map(str::to_owned).collect();
        Ok(Args { given, ..Args::from_arg_matches(&matches)? })
    }
}

/// The command line of tests, with the tools in its help.
fn described() -> clap::Command {
    Args::command().after_help(format!("{}\n{}", tools::help(), args::EXAMPLES))
}

/// The whole command line, for manual pages and completions: the tools as subcommands.
fn documented() -> clap::Command {
    Args::command().subcommands(TOOLS.map(|tool| (tool.command)().name(tool.word)))
}

#[cfg(test)]
mod tests;
