//! Reads the JSON of runs: `iwarp-perf --json`, and what the scripts write in the same schema.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use clap::ValueEnum;
use serde::Deserialize;
use serde_json::Value;

use crate::host::{Build, Machine};
use crate::report::SCHEMA;
use crate::{Test, Transport};

/// Results of scripts that are no test of `iwarp-perf`.
const SCRIPT_TESTS: [&str; 2] = ["instructions", "segment-cost"];
/// Peers that only scripts measure.
const SCRIPT_TRANSPORTS: [&str; 3] = ["siw", "smoltcp", "libraries"];

/// Why there are no results. Each names the file and, where there is one, the key.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The file cannot be read.
    #[error("{}: {error}", file.display())]
    File {
        /// The file.
        file: PathBuf,
        /// What the system reports.
        error: std::io::Error,
    },
    /// The file is no report.
    #[error("{}: not a report: {error}", file.display())]
    Json {
        /// The file.
        file: PathBuf,
        /// What the parser reports: the key, or the line and the column.
        error: serde_json::Error,
    },
    /// A key is missing, or has a value that is not allowed.
    #[error("{}: {key}: {problem}", file.display())]
    Key {
        /// The file.
        file: PathBuf,
        /// The key.
        key: String,
        /// Its value, and what is allowed.
        problem: String,
    },
}

/// One command's report. Figures remain JSON, since scripts have other figures than `iwarp-perf`.
#[derive(Debug, Deserialize)]
pub(super) struct Run {
    #[serde(skip)]
    pub file: PathBuf,
    schema: u32,
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
    read: BTreeMap<&'static str, Run>,
}

impl Runs {
    /// The reports of `folder`.
    pub fn new(folder: &Path) -> Self {
        Runs { folder: folder.to_owned(), read: BTreeMap::new() }
    }

    /// The report in a file of the folder.
    pub(super) fn run(&mut self, name: &'static str) -> Result<&Run, Error> {
        if !self.read.contains_key(name) {
            self.read.insert(name, Run::read(self.folder.join(name))?);
        }
        Ok(&self.read[name])
    }
}

impl Run {
    fn read(file: PathBuf) -> Result<Self, Error> {
        let text = match std::fs::read_to_string(&file) {
            Ok(text) => text,
            Err(error) => return Err(Error::File { file, error }),
        };
        let run = match serde_json::from_str::<Run>(&text) {
            Ok(run) => Run { file, ..run },
            Err(error) => return Err(Error::Json { file, error }),
        };
        run.check()?;
        Ok(run)
    }

    fn check(&self) -> Result<(), Error> {
        if self.schema != SCHEMA {
            return Err(self.error("schema", format!("{}: must be {SCHEMA}", self.schema)));
        }
        if self.build.commit.is_none() {
            return Err(self.error("build.commit", "missing: must be the commit that ran".into()));
        }
        for (index, result) in self.results.iter().enumerate() {
            let test = text(&result["test"]);
            if !is_known::<Test>(&result["test"]) && !SCRIPT_TESTS.contains(&test.as_str()) {
                let tests: Vec<_> = Test::value_variants().iter().map(Test::to_string).collect();
                let allowed = tests.join(", ");
                let problem = format!("{test}: must be one of {allowed}, {}", SCRIPT_TESTS.join(", "));
                return Err(self.error(&format!("results[{index}].test"), problem));
            }
            let transport = text(&result["transport"]);
            let listed = SCRIPT_TRANSPORTS.contains(&transport.as_str());
            if !is_known::<Transport>(&result["transport"]) && !listed {
                let problem =
                    format!("{transport}: must be a transport of iwarp-perf, siw, smoltcp or libraries");
                return Err(self.error(&format!("results[{index}].transport"), problem));
            }
        }
        Ok(())
    }

    /// The one result that has all keys of `select`.
    pub fn result(&self, select: &str) -> Result<&Value, Error> {
        let wanted: Vec<(&str, &str)> =
            select.split_whitespace().filter_map(|word| word.split_once('=')).collect();
        let matches = |result: &&Value| wanted.iter().all(|(key, value)| text(&result[*key]) == *value);
        let mut found = self.results.iter().filter(matches);
        match (found.next(), found.next()) {
            (Some(result), None) => Ok(result),
            (first, _) => {
                let count = if first.is_none() { "no result" } else { "several results" };
                Err(self.error("results", format!("{count} with {select}: must be one")))
            }
        }
    }

    pub fn error(&self, key: &str, problem: String) -> Error {
        Error::Key { file: self.file.clone(), key: key.to_owned(), problem }
    }
}

fn is_known<T: for<'a> Deserialize<'a>>(value: &Value) -> bool {
    T::deserialize(value).is_ok()
}

/// A value as `select` writes it: strings without quotes.
fn text(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}
