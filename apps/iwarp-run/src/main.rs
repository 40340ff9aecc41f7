//! `iwarp-run`: runs an unmodified program of libibverbs or librdmacm over ironwarp.
//!
//! It finds the replacement libraries, takes or makes a configuration, checks it, sets
//! `LD_LIBRARY_PATH`, `IRONWARP_CONFIG` and `SYSFS_PATH`, and becomes the program. Exit codes are
//! the program's; 2 means that it was not started, and one line says why.
#![forbid(unsafe_code)]

mod args;
mod libraries;
mod link;

use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use ironwarp::Config;
use ironwarp_cli::{CliExit, parse_args};

use crate::args::Args;

const PROGRAM: &str = "iwarp-run";
const CONFIG_VARIABLE: &str = "IRONWARP_CONFIG";
const PATH_VARIABLE: &str = "LD_LIBRARY_PATH";
/// Where the libraries tell programs to look for the kernel's devices. Some give up if there are
/// none.
const SYSFS_VARIABLE: &str = "SYSFS_PATH";

fn main() -> ExitCode {
    match run() {
        Ok(never) => match never {},
        Err(exit) => exit.report(PROGRAM),
    }
}

fn run() -> Result<std::convert::Infallible, CliExit> {
    let args: Args = parse_args(std::env::args_os())?;
    let libraries = libraries::find(args.libraries.as_deref())?;
    let config = config_file(&args)?;
    check(&config)?;
    let [program, arguments @ ..] = &args.program[..] else {
        return Err(CliExit::bad_arguments("PROGRAM is missing"));
    };
    let mut search = libraries.into_os_string();
    if let Some(before) = std::env::var_os(PATH_VARIABLE).filter(|before| !before.is_empty()) {
        search.push(":");
        search.push(before);
    }
    let mut command = Command::new(program);
    command.args(arguments).env(PATH_VARIABLE, search).env(CONFIG_VARIABLE, &config);
    if std::env::var_os(SYSFS_VARIABLE).is_none() {
        // Most programs do without.
        command.envs(link::sysfs_folder().map(|folder| (SYSFS_VARIABLE, folder)));
    }
    // Returns only if the program cannot be started.
    let error = command.exec();
    Err(CliExit::bad_arguments(format!("{}: {error}", program.display())))
}

/// Returns the configuration file of the arguments, or of the environment. A link's is made.
fn config_file(args: &Args) -> Result<PathBuf, CliExit> {
    if let Some(config) = &args.config {
        return absolute(config);
    }
    if let Some(link) = args.link()? {
        return link.write_config(args.transport).map_err(CliExit::bad_arguments);
    }
    match std::env::var_os(CONFIG_VARIABLE) {
        Some(config) => absolute(Path::new(&config)),
        None => Err(CliExit::bad_arguments(format!(
            "no configuration: give --config FILE, --pair memif or --tap INTERFACE, or set {CONFIG_VARIABLE}"
        ))),
    }
}

/// The program may change its folder before it reads the file.
fn absolute(path: &Path) -> Result<PathBuf, CliExit> {
    std::path::absolute(path).map_err(|error| CliExit::bad_arguments(format!("{}: {error}", path.display())))
}

/// Checks what the library would refuse when the program first uses it.
fn check(path: &Path) -> Result<(), CliExit> {
    let in_file =
        |error: &dyn std::fmt::Display| CliExit::bad_arguments(format!("{}: {error}", path.display()));
    let config = Config::from_file(path).map_err(|error| in_file(&error))?;
    if config.core.count != 1 {
        return Err(in_file(&format!("core.count = {}: 1, the libraries use one core", config.core.count)));
    }
    Ok(())
}
