//! The reports of a folder.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use clap::ValueEnum;
use serde::Deserialize;
use serde_json::Value;

use crate::host::{Build, Machine};
use crate::{InputError, Test, Transport, input};

/// Results of scripts that are no test of `iwarp-perf`.
const SCRIPT_TESTS: [&str; 2] = ["instructions", "segment-cost"];
/// Peers that only scripts measure.
const SCRIPT_TRANSPORTS: [&str; 3] = ["siw", "smoltcp", "libraries"];

/// One command's report. Figures remain JSON, since scripts have other figures than `iwarp-perf`.
#[derive(Debug, Deserialize)]
pub(super) struct Run {
    #[serde(skip)]
    file: PathBuf,
    pub command: String,
    /// Where the figures are from if not from the command itself.
    #[serde(default)]
    pub recorded: Option<String>,
    pub machine: Machine,
    pub build: Build,
    results: Vec<Value>,
}

/// The reports of a folder, read when first used.
#[derive(Debug)]
pub struct Runs {
    folder: PathBuf,
    read: BTreeMap<String, Run>,
}

impl Runs {
    /// The reports of `folder`.
    pub fn new(folder: &Path) -> Self {
        Runs { folder: folder.to_owned(), read: BTreeMap::new() }
    }

    /// The report in a file of the folder, named without `.json`.
    pub(super) fn run(&mut self, name: &str) -> Result<&Run, InputError> {
        if !self.read.contains_key(name) {
            let run = Run::read(self.folder.join(format!("{name}.json")))?;
            self.read.insert(name.to_owned(), run);
        }
        Ok(&self.read[name])
    }
}

impl Run {
    fn read(file: PathBuf) -> Result<Self, InputError> {
        let run = Run { file: file.clone(), ..input::read(&file)? };
        if run.build.commit.is_none() {
            return Err(run.error("build.commit", "missing: must be the commit that ran"));
        }
        for (index, result) in run.results.iter().enumerate() {
            let (test, transport) = (text(&result["test"]), text(&result["transport"]));
            if !is_known::<Test>(&result["test"]) && !SCRIPT_TESTS.contains(&test.as_str()) {
                let tests = Test::value_variants().iter().map(Test::to_string);
                let allowed: Vec<String> = tests.chain(SCRIPT_TESTS.map(str::to_owned)).collect();
                let problem = format!("{test}: must be one of {}", allowed.join(", "));
                return Err(run.error(&format!("results[{index}].test"), &problem));
            }
            let is_listed = SCRIPT_TRANSPORTS.contains(&transport.as_str());
            if !is_known::<Transport>(&result["transport"]) && !is_listed {
                let listed = SCRIPT_TRANSPORTS.join(", ");
                let problem = format!("{transport}: must be a transport of iwarp-perf, or one of {listed}");
                return Err(run.error(&format!("results[{index}].transport"), &problem));
            }
        }
        Ok(run)
    }

    /// The one result that has all keys of `select`.
    pub fn result(&self, select: &str) -> Result<&Value, InputError> {
        let wanted: Vec<(&str, &str)> =
            select.split_whitespace().filter_map(|word| word.split_once('=')).collect();
        let matches = |result: &&Value| wanted.iter().all(|(key, value)| text(&result[*key]) == *value);
        let mut found = self.results.iter().filter(matches);
        match (found.next(), found.next()) {
            (Some(result), None) => Ok(result),
            (first, _) => {
                let count = if first.is_none() { "no result" } else { "several results" };
                Err(self.error("results", &format!("{count} with {select}: must be one")))
            }
        }
    }

    pub fn error(&self, key: &str, problem: &str) -> InputError {
        InputError::new(&self.file, format_args!("{key}: {problem}"))
    }
}

fn is_known<T: for<'a> Deserialize<'a>>(value: &Value) -> bool {
    T::deserialize(value).is_ok()
}

/// A value as `select` writes it: strings without quotes.
fn text(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}
