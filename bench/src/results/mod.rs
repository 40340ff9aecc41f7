//! `bench/RESULTS.md`: one table for each question, generated from the JSON of runs.
//!
//! Input is a folder of JSON files, one for each command. A file has the command, the commit, the machine and the results.
//! [`QUESTIONS`] lists which results and which figures answer a question, and the goal. Output is Markdown. Whether a
//! goal is reached is computed here. An input that lacks something is an error that names the file and the key.

mod figure;
mod input;
mod markdown;
mod questions;

pub use figure::{Figure, Goal};
pub use input::{Error, Runs};
pub use markdown::markdown;
pub use questions::QUESTIONS;

/// A question that figures answer.
#[derive(Clone, Copy, Debug)]
pub struct Question {
    /// The heading.
    pub title: &'static str,
    /// What is measured, and how to read the table.
    pub text: &'static str,
    /// The rows of the table.
    pub rows: &'static [Row],
}

/// One figure.
#[derive(Clone, Copy, Debug)]
pub struct Row {
    /// What the figure is of.
    pub name: &'static str,
    /// The file, relative to the folder.
    pub file: &'static str,
    /// The keys that exactly one result of the file has: `key=value`, separated by spaces.
    pub select: &'static str,
    /// The figure of that result.
    pub figure: Figure,
    /// What it should be.
    pub goal: Goal,
}

const fn row(
    name: &'static str,
    file: &'static str,
    select: &'static str,
    figure: Figure,
    goal: Goal,
) -> Row {
    Row { name, file, select, figure, goal }
}

#[cfg(test)]
mod tests;
