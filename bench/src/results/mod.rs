//! `bench/RESULTS.md`: one table for each question, generated from the JSON of runs.
//!
//! Input is a folder of JSON files, one for each command. A file has the command, the commit, the
//! machine and the results. `bench/questions.toml` lists which results and which figures answer a
//! question, and the goal. Output is Markdown. Whether a goal is reached is computed here. An input
//! that lacks something is an error that names the file and the key.

mod figure;
mod markdown;
mod run;

use std::collections::BTreeMap;
use std::path::Path;

use serde::Deserialize;

pub use markdown::markdown;
pub use run::Runs;

use crate::InputError;
use figure::{Figure, Goal};

/// The questions of a page.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Questions {
    /// The keys of results, by name.
    results: BTreeMap<String, String>,
    /// Figures, by name.
    figures: BTreeMap<String, Figure>,
    question: Vec<Question>,
}

/// A question that figures answer.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Question {
    title: String,
    /// What is measured, and how to read the table.
    text: String,
    rows: Vec<Row>,
}

/// One figure.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Row {
    /// What the figure is of.
    name: String,
    /// The file, relative to the folder, without `.json`.
    file: String,
    /// A name in [`Questions::results`], or the keys themselves.
    of: String,
    /// A name in [`Questions::figures`].
    figure: String,
    /// What the figure should be.
    goal: Option<Goal>,
}

/// The file of [`Questions::built_in`], for errors.
const FILE: &str = "bench/questions.toml";

impl Questions {
    /// The questions of `bench/RESULTS.md`.
    pub fn built_in() -> Result<Self, InputError> {
        Self::parse(include_str!("../../questions.toml"))
    }

    fn parse(text: &str) -> Result<Self, InputError> {
        toml::from_str(text).map_err(|error| InputError::new(Path::new(FILE), error.message()))
    }

    /// The keys that the result of a row has: `key=value`, separated by spaces.
    fn select<'a>(&'a self, row: &'a Row) -> &'a str {
        self.results.get(&row.of).unwrap_or(&row.of)
    }

    fn figure(&self, row: &Row) -> Result<&Figure, InputError> {
        let missing = || InputError::new(Path::new(FILE), format_args!("figures.{:?}: missing", row.figure));
        self.figures.get(&row.figure).ok_or_else(missing)
    }
}

#[cfg(test)]
mod tests;
