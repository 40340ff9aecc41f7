//! Reads the JSON of runs: `iwarp-perf --json`, and what the scripts write in the same schema.

use std::fmt::Display;
use std::path::{Path, PathBuf};

use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::report::SCHEMA;

/// Why a file cannot be used: the file, the key if there is one, and the problem.
#[derive(Debug, thiserror::Error)]
#[error("{}: {problem}", file.display())]
pub struct InputError {
    file: PathBuf,
    problem: String,
}

impl InputError {
    pub(crate) fn new(file: &Path, problem: impl Display) -> Self {
        InputError { file: file.to_owned(), problem: problem.to_string() }
    }
}

/// Reads a report.
pub(crate) fn read<T: DeserializeOwned>(file: &Path) -> Result<T, InputError> {
    let text = std::fs::read_to_string(file).map_err(|error| InputError::new(file, error))?;
    parse(&text).map_err(|problem| InputError::new(file, problem))
}

/// Parses a report. The error begins with the key, or is that of the JSON parser with line and
/// column.
pub(crate) fn parse<T: DeserializeOwned>(text: &str) -> Result<T, String> {
    let json: Value = serde_json::from_str(text).map_err(|error| format!("not JSON: {error}"))?;
    match json.get("schema") {
        Some(schema) if schema.as_u64() == Some(SCHEMA.into()) => {}
        Some(other) => return Err(format!("schema: {other}: must be {SCHEMA}")),
        None => return Err(format!("schema: missing: must be {SCHEMA}, as iwarp-perf --json writes it")),
    }
    serde_path_to_error::deserialize(json).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::report::{Report, TestResult};

    fn error_of(change: impl FnOnce(&mut Value)) -> String {
        let result = serde_json::to_value(TestResult::default()).expect("plain data");
        let mut json = json!({"schema": 1, "machine": {}, "build": {}, "results": [result]});
        change(&mut json);
        parse::<Report>(&json.to_string()).expect_err("not a valid report")
    }

    #[test]
    fn an_error_names_the_key() {
        for (error, expected) in [
            (error_of(|json| json["schema"] = json!(7)), "schema: 7: must be 1"),
            (error_of(|json| json["results"] = json!({})), "results: invalid type: map"),
            (
                error_of(|json| json["machine"]["cores"] = json!("two")),
                "machine.cores: invalid type: string \"two\"",
            ),
            (error_of(|json| json["results"][0]["bytes"] = json!(-1)), "results[0].bytes: invalid value"),
            (
                error_of(|json| json["results"][0]["test"] = json!("x")),
                "results[0].test: unknown variant `x`",
            ),
            (
                error_of(|json| json["results"][0]["rtt_ns"] = json!({})),
                "results[0].rtt_ns: missing field `min`",
            ),
            (
                error_of(|json| json["results"][0] = json!({"test": "send-lat"})),
                "results[0]: missing field `transport`",
            ),
            (error_of(|json| json["results"][0] = json!(3)), "results[0]: invalid type: integer `3`"),
            (error_of(|json| *json = json!([1])), "schema: missing"),
        ] {
            assert!(error.starts_with(expected), "{error}");
        }
    }

    #[test]
    fn text_that_is_not_json_is_an_error_with_line_and_column() {
        for text in ["", "{", "{\"schema\": 1,}", "\u{0}", "[[[[", "1e999"] {
            let error = parse::<Report>(text).expect_err("not JSON");
            assert!(error.starts_with("not JSON: ") && error.contains("line 1"), "{text}: {error}");
        }
    }

    #[test]
    fn reports_of_the_repository_are_read() {
        for name in ["suite.json", "scaling.json", "atomics.json", "rate-send.json"] {
            let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("results").join(name);
            let report: Report = read(&file).unwrap_or_else(|error| panic!("{error}"));
            assert!(!report.results.is_empty(), "{name}");
        }
    }
}
