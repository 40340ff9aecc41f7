//! The command line.

mod args;
mod cases;
mod size;

pub use args::{Args, AtomicsArg, Log, OwnerArg, What};
pub use cases::check_case;

pub use ironwarp_cli::Refusal;

impl Args {
    /// Reads the arguments, the program's name first.
    pub fn read(arguments: &[std::ffi::OsString]) -> Result<Self, Refusal> {
        ironwarp_cli::read(arguments.iter().cloned())
    }
}

#[cfg(test)]
mod tests;
