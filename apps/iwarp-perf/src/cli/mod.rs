//! The command line.

mod args;
mod cases;
pub mod size;

use std::ffi::OsString;

use clap::parser::ValueSource;
use clap::{CommandFactory, FromArgMatches};

pub use args::{Args, AtomicsArg, Command, Format};
pub use cases::check_case;

pub use ironwarp_cli::CliExit;

impl Args {
    /// Parses the arguments. The first one is the name of the program.
    pub fn read(arguments: &[OsString]) -> Result<Self, CliExit> {
        let command = Args::command();
        let matches = command.clone().try_get_matches_from(arguments)?;
        let on_command_line =
            |arg: &&clap::Arg| matches.value_source(arg.get_id().as_str()) == Some(ValueSource::CommandLine);
        let given = command.get_arguments().filter(on_command_line).filter_map(clap::Arg::get_long);
        let given = given.map(str::to_owned).collect();
        Ok(Args { given, ..Args::from_arg_matches(&matches)? })
    }
}

#[cfg(test)]
mod tests;
