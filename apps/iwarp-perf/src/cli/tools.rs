//! The tools: words in the place of a test, each with options and a `--help` of its own.
//!
//! One table serves the dispatch, the help text, the manual pages and completions, and the message for an unknown word.

use std::ffi::OsString;
use std::process::ExitCode;

use clap::{CommandFactory, ValueEnum};
use ironwarp_cli::CliExit;

use super::Command;

/// A tool.
pub struct Tool {
    /// The word on the command line.
    pub word: &'static str,
    /// Its options.
    pub command: fn() -> clap::Command,
    /// Runs it with the arguments of the program, without the word.
    pub run: fn(Vec<OsString>) -> Result<ExitCode, CliExit>,
}

/// Every tool.
pub const TOOLS: [Tool; 7] = [
    Tool { word: "compare", command: crate::compare::Args::command, run: crate::compare::run },
    Tool { word: "doctor", command: crate::doctor::Args::command, run: crate::doctor::run },
    Tool { word: "incast", command: crate::scale::incast::Args::command, run: crate::scale::incast::run },
    Tool {
        word: "qp-fairness",
        command: crate::scale::fairness::Args::command,
        run: crate::scale::fairness::run,
    },
    Tool { word: "qp-memory", command: crate::scale::memory::Args::command, run: crate::scale::memory::run },
    Tool { word: "qp-scale", command: crate::scale::spread::Args::command, run: crate::scale::spread::run },
    Tool { word: "results", command: crate::results::Args::command, run: crate::results::run },
];

/// How alike two words are for one to be suggested for the other, from 0 to 1.
const SIMILAR: f64 = 0.8;

/// The tools as lines of the help text.
pub fn help() -> String {
    let line = |tool: &Tool| {
        let about = (tool.command)().get_about().map(ToString::to_string).unwrap_or_default();
        format!("  {:<12} {about}\n", tool.word)
    };
    let lines: String = TOOLS.iter().map(line).collect();
    format!("Tools, in the place of TEST; `iwarp-perf TOOL --help` has the options of each:\n{lines}")
}

/// Returns what to say of a first word that is neither a test nor a tool: the tools, and the word that it resembles.
/// `None` for a test, a tool or an option.
pub fn unknown_word(arguments: &[OsString]) -> Option<String> {
    let word = arguments.get(1)?.to_str().filter(|word| !word.starts_with('-'))?;
    let tests = Command::value_variants().iter().map(ToString::to_string);
    let words: Vec<String> = tests.chain(TOOLS.iter().map(|tool| tool.word.to_owned())).collect();
    if words.iter().any(|known| known == word) {
        return None;
    }
    let alike = |known: &&String| strsim::jaro_winkler(known, word);
    let nearest = words.iter().max_by(|one, other| alike(one).total_cmp(&alike(other)));
    let hint = nearest.filter(|known| alike(known) > SIMILAR);
    let hint = hint.map(|known| format!("; did you mean {known}?")).unwrap_or_default();
    let tools = TOOLS.map(|tool| tool.word).join(", ");
    Some(format!("; or a tool: {tools}{hint}"))
}
