//! The command line.

mod args;
mod cases;
mod size;

pub use args::{Args, AtomicsArg, Command, LogLevel, OwnerArg};
pub use cases::check_case;

pub use ironwarp_cli::CliExit;

impl Args {
    /// Reads the arguments, the program's name first.
    pub fn read(arguments: &[std::ffi::OsString]) -> Result<Self, CliExit> {
        ironwarp_cli::parse_args(arguments.iter().cloned())
    }
}

#[cfg(test)]
mod tests;
