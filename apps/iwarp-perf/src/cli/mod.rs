//! The command line.

mod args;
mod cases;
pub mod size;

use std::ffi::OsString;

use clap::parser::ValueSource;
use clap::{CommandFactory, FromArgMatches};
use ironwarp_cli::generate_docs_if_asked;

pub use args::{Args, AtomicsArg, Command, Format};
pub use cases::check_case;

pub use ironwarp_cli::CliExit;

impl Args {
    /// Parses the arguments. The first one is the name of the program.
    pub fn read(arguments: &[OsString]) -> Result<Self, CliExit> {
        generate_docs_if_asked(arguments, documented)?;
        let command = Args::command();
        let matches = command.clone().try_get_matches_from(arguments)?;
        let on_command_line =
            |arg: &&clap::Arg| matches.value_source(arg.get_id().as_str()) == Some(ValueSource::CommandLine);
        let given = command.get_arguments().filter(on_command_line).filter_map(clap::Arg::get_long);
        let given = given.map(str::to_owned).collect();
        Ok(Args { given, ..Args::from_arg_matches(&matches)? })
    }
}

/// The whole command line, for manual pages and completions: the words with options of their own as subcommands.
fn documented() -> clap::Command {
    let others: [(&str, clap::Command); 7] = [
        ("compare", crate::compare::Args::command()),
        ("doctor", crate::doctor::Args::command()),
        ("results", crate::results::Args::command()),
        ("qp-memory", crate::scale::memory::Args::command()),
        ("incast", crate::scale::incast::Args::command()),
        ("qp-fairness", crate::scale::fairness::Args::command()),
        ("qp-scale", crate::scale::spread::Args::command()),
    ];
    Args::command().subcommands(others.map(|(word, command)| command.name(word)))
}

#[cfg(test)]
mod tests;
