//! Seeds that failed in the past. They run first.
//!
//! The list is `regressions.txt`: one line per seed, with the scenario, the seed and the cause of
//! the failure. A seed gives another run when the drawing of plans changes; it stays on the list
//! anyway.

use crate::plan::Scenario;
use crate::trial::Trial;

/// Returns every seed of the list, or an error for a line without a seed.
pub fn all() -> Result<Vec<Trial>, String> {
    let lines = include_str!("../regressions.txt").lines();
    let entries = lines.filter(|line| !line.trim().is_empty() && !line.starts_with('#'));
    entries
        .map(|line| {
            trial(line).ok_or_else(|| format!("regressions.txt: {line:?} has no valid scenario and seed"))
        })
        .collect()
}

fn trial(line: &str) -> Option<Trial> {
    let mut words = line.split_whitespace();
    let scenario = Scenario::from_name(words.next()?)?;
    let seed = words.next()?.parse().ok()?;
    Some(Trial { scenario, seed })
}
