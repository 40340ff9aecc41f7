//! Reads a report. An error names the file, and the key if one is wrong.

use std::path::Path;

use serde::Deserialize;
use serde_json::Value;

use crate::host::{Build, Machine};
use crate::report::{Report, SCHEMA, TestResult};

/// Why a file cannot be compared: the file, the key if there is one, and the problem.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct InputError(String);

/// Reads a report that `iwarp-perf --json` wrote.
pub fn read_report(file: &Path) -> Result<Report, InputError> {
    let in_file = |problem: String| InputError(format!("{}: {problem}", file.display()));
    let text = std::fs::read_to_string(file).map_err(|error| in_file(error.to_string()))?;
    parse(&text).map_err(in_file)
}

/// Parses a report. The error begins with the key, or is that of the JSON parser with line and column.
fn parse(text: &str) -> Result<Report, String> {
    let json: Value = serde_json::from_str(text).map_err(|error| format!("not JSON: {error}"))?;
    match json.get("schema") {
        Some(schema) if schema.as_u64() == Some(SCHEMA.into()) => {}
        Some(other) => return Err(format!("schema: {other}: must be {SCHEMA}")),
        None => return Err(format!("schema: missing: must be {SCHEMA}, as iwarp-perf --json writes it")),
    }
    let results = json.get("results").and_then(Value::as_array).ok_or("results: must be a list")?;
    let results = results.iter().enumerate().map(|(index, result)| {
        let at = |problem| format!("results[{index}].{problem}");
        parse_result(result).map_err(at)
    });
    Ok(Report {
        schema: SCHEMA,
        command: json.get("command").and_then(Value::as_str).map(str::to_owned),
        machine: part::<Machine>(&json, "machine")?,
        build: part::<Build>(&json, "build")?,
        results: results.collect::<Result<_, _>>()?,
    })
}

/// Parses an object of the report. A report without it has the default.
fn part<T: for<'a> Deserialize<'a> + Default>(json: &Value, key: &str) -> Result<T, String> {
    let parsed = json.get(key).map(T::deserialize).transpose();
    parsed.map(Option::unwrap_or_default).map_err(|error| format!("{key}: {error}"))
}

fn parse_result(json: &Value) -> Result<TestResult, String> {
    TestResult::deserialize(json).map_err(|error| match wrong_key(json) {
        Some(key) => format!("{key}: {error}"),
        None => format!(" {error}"),
    })
}

/// Finds the key whose value is not allowed: the first one that spoils a valid result. `None` if a key is missing.
fn wrong_key(json: &Value) -> Option<&str> {
    let valid = serde_json::to_value(TestResult::default()).ok()?;
    let spoils = |key: &str, value: &Value| {
        let mut result = valid.clone();
        result[key] = value.clone();
        TestResult::deserialize(result).is_err()
    };
    json.as_object()?.iter().find(|(key, value)| spoils(key, value)).map(|(key, _)| key.as_str())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn error_of(change: impl FnOnce(&mut Value)) -> String {
        let result = serde_json::to_value(TestResult::default()).expect("plain data");
        let mut json = json!({"schema": 1, "machine": {}, "build": {}, "results": [result]});
        change(&mut json);
        parse(&json.to_string()).expect_err("not a valid report")
    }

    #[test]
    fn an_error_names_the_key() {
        for (error, expected) in [
            (error_of(|json| json["schema"] = json!(7)), "schema: 7: must be 1"),
            (error_of(|json| json["results"] = json!({})), "results: must be a list"),
            (
                error_of(|json| json["machine"]["cores"] = json!("two")),
                "machine: invalid type: string \"two\"",
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
            (error_of(|json| json["results"][0] = json!({"test": "send-lat"})), "missing field `transport`"),
            (error_of(|json| json["results"][0] = json!(3)), "results[0]. invalid type: integer `3`"),
            (error_of(|json| *json = json!([1])), "schema: missing"),
        ] {
            assert!(error.contains(expected), "{error}");
        }
    }

    #[test]
    fn text_that_is_not_json_is_an_error_with_line_and_column() {
        for text in ["", "{", "{\"schema\": 1,}", "\u{0}", "[[[[", "1e999"] {
            let error = parse(text).expect_err("not JSON");
            assert!(error.starts_with("not JSON: ") && error.contains("line 1"), "{text}: {error}");
        }
    }

    #[test]
    fn reports_of_the_repository_are_read() {
        for name in ["suite.json", "scaling.json", "atomics.json", "rate-send.json"] {
            let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("results").join(name);
            let report = read_report(&file).unwrap_or_else(|error| panic!("{error}"));
            assert!(!report.results.is_empty(), "{name}");
        }
    }
}
