//! Measurements of many queue pairs in one process and one thread: two stacks that are joined by in-memory ports.

mod ends;
pub mod memory;
pub mod spread;

use std::path::Path;

use ironwarp_cli::CliExit;
use serde::Serialize;

type AnyError = Box<dyn std::error::Error>;

/// Writes a report as JSON.
fn write_json(report: &impl Serialize, path: &Path) -> Result<(), CliExit> {
    let failed = |error: &dyn std::fmt::Display| CliExit::failed(format_args!("{}: {error}", path.display()));
    let text = serde_json::to_string_pretty(report).map_err(|error| failed(&error))?;
    std::fs::write(path, text + "\n").map_err(|error| failed(&error))
}
