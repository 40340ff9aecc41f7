//! Measurements of queue pairs within one process: stacks that are joined by in-memory ports.

mod ends;
pub mod fairness;
pub mod incast;
pub mod memory;
pub mod spread;
mod switch;

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

/// Returns the upper median, 0 of nothing.
fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_is_a_value_of_the_list() {
        assert_eq!(median(vec![3.0, 1.0, 2.0]), 2.0);
        assert_eq!(median(vec![]), 0.0);
    }
}
