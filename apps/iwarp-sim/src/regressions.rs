//! Seeds that once failed. They run first.
//!
//! The list is `regressions.txt`: a scenario, a seed, and what was wrong, one a line. A seed leads to another run when the
//! way in which plans are drawn changes; it stays on the list all the same, as one more seed.

use crate::plan::Scenario;
use crate::trial::Trial;

/// Every seed of the list; a line that names none says so.
pub fn all() -> Result<Vec<Trial>, String> {
    let lines = include_str!("../regressions.txt").lines();
    let entries = lines.filter(|line| !line.trim().is_empty() && !line.starts_with('#'));
    entries
        .map(|line| trial(line).ok_or_else(|| format!("regressions.txt: {line:?} names no seed")))
        .collect()
}

fn trial(line: &str) -> Option<Trial> {
    let mut words = line.split_whitespace();
    let scenario = Scenario::from_name(words.next()?)?;
    let seed = words.next()?.parse().ok()?;
    Some(Trial { scenario, seed })
}
