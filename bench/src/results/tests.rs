//! Small reports in, the page out; and `bench/RESULTS.md` beside what is generated.

use std::path::Path;

use serde_json::{Value, json};
use tempfile::TempDir;

use super::*;

const QUESTIONS: &str = r#"
results = { cost = "test=segment-cost" }
[figures]
"round trip" = "round_trip"
ratio = { against = { baseline = "frame-lat", key = "ratio_p50" } }
added = { against = { baseline = "frame-lat", key = "added_ns_p50" } }
instructions = { value = { key = "/instructions", scale = 1, unit = "instructions" } }
[[question]]
title = "How long?"
text = "Over memif."
"#;
const ROWS: &str = r#"
{ name = "Send", file = "lat", of = "test=send-lat", figure = "round trip" },
{ name = "Send to frame", file = "lat", of = "test=send-lat", figure = "ratio", goal = { at_most_or_added = [2, 350] } },
{ name = "Send to frame, strictly", file = "lat", of = "test=send-lat", figure = "ratio", goal = { at_most = 2 } },
{ name = "instructions", file = "cost", of = "cost", figure = "instructions", goal = { at_most = 1000 } },
"#;

/// The questions with these rows in the only one.
fn questions(rows: &str) -> Result<Questions, String> {
    Questions::parse(&format!("{QUESTIONS}rows = [{rows}]\n")).map_err(|error| error.to_string())
}

/// A folder of reports.
struct Folder(TempDir);

impl Folder {
    /// Both reports that `QUESTION` needs.
    fn new() -> Self {
        let folder = Folder(TempDir::new().expect("a writable folder"));
        folder.put("lat.json", &latency().to_string());
        folder.put("cost.json", &cost().to_string());
        folder
    }

    fn put(&self, name: &str, text: &str) {
        std::fs::write(self.0.path().join(name), text).expect("a writable folder");
    }

    fn page(&self) -> Result<String, String> {
        self.page_of(ROWS)
    }

    fn page_of(&self, rows: &str) -> Result<String, String> {
        markdown(&questions(rows)?, &mut Runs::new(self.0.path())).map_err(|error| error.to_string())
    }

    /// The error, without the folder.
    fn error(&self) -> String {
        let error = self.page().expect_err("an input that cannot be used");
        error.replace(&format!("{}/", self.0.path().display()), "")
    }
}

fn report(command: &str, results: Value) -> Value {
    json!({"schema": 1, "command": command, "machine": {"cpu": "AMD EPYC", "cores": 2},
           "build": {"commit": "0123abc"}, "results": results})
}

fn latency() -> Value {
    let round = |p50_ns: u64, dropped: bool| json!({"p50_ns": p50_ns, "dropped": dropped, "context_switches": p50_ns / 1000});
    let against = json!({"baseline": "frame-lat", "ratio_p50": {"median": 2.5, "min": 2.25, "max": 3.0},
                         "added_ns_p50": 300.0});
    report(
        "iwarp-perf suite",
        json!([{"test": "send-lat", "transport": "ironwarp", "against": [against],
                "round_log": [round(2000, false), round(2400, false), round(2200, false), round(9000, true)]}]),
    )
}

fn cost() -> Value {
    let result = json!({"test": "segment-cost", "transport": "ironwarp", "instructions": 1048});
    report("scripts/segment-cost.sh", json!([result]))
}

#[test]
fn a_question_is_a_section_with_its_origin_its_figures_and_its_goals() {
    let page = Folder::new().page().expect("both reports");
    let expected = "
1 of 3 goals are reached.

## How long?

Over memif.

- Machine: AMD EPYC, 2 processors
- Commit: `0123abc`
- Command: `iwarp-perf suite`
- Command: `scripts/segment-cost.sh`
- Load: the client had 3.75 context switches a round, mean of all rounds

| | figure | goal | |
| --- | --- | --- | --- |
| Send | 2.20 µs [2.00–2.40] |  |  |
| Send to frame | 2.50 × [2.25–3.00] | ≤ 2 × or ≤ 350 ns more (300 ns) | reached |
| Send to frame, strictly | 2.50 × [2.25–3.00] | ≤ 2 × | **not reached** |
| instructions | 1048 instructions | ≤ 1000 instructions | **not reached** |
";
    let (introduction, rest) = page.split_once("\n\n1 of").expect("a summary");
    assert!(introduction.starts_with("# Results\n\n"));
    assert_eq!(format!("\n1 of{rest}"), expected);
}

#[test]
fn figures_of_a_tree_with_changes_are_marked() {
    let folder = Folder::new();
    let mut report = cost();
    report["build"]["commit"] = json!("0123abc-dirty");
    folder.put("cost.json", &report.to_string());
    let page = folder.page().expect("both reports");
    assert!(page.contains("- Commit: `0123abc-dirty`; **with changes that were not committed"), "{page}");
    assert!(page.contains("- Commit: `0123abc`\n"), "{page}");
}

#[test]
fn figures_that_a_person_recorded_are_marked() {
    let folder = Folder::new();
    let mut report = cost();
    report["recorded"] = json!("from the run's printed table");
    folder.put("cost.json", &report.to_string());
    assert!(folder.page().expect("both").contains("\n- Figures: from the run's printed table\n"));
}

#[test]
fn a_missing_file_is_named() {
    let folder = Folder::new();
    std::fs::remove_file(folder.0.path().join("cost.json")).expect("just written");
    assert_eq!(folder.error(), "cost.json: No such file or directory (os error 2)");
}

#[test]
fn malformed_json_is_named_with_its_place() {
    let folder = Folder::new();
    folder.put("lat.json", "{\"schema\": 1,");
    assert!(folder.error().starts_with("lat.json: not JSON: EOF while parsing"), "{}", folder.error());
}

#[test]
fn a_missing_key_of_the_report_is_named() {
    for (key, error) in [
        ("command", "lat.json: missing field `command`"),
        ("build", "lat.json: missing field `build`"),
        ("machine", "lat.json: missing field `machine`"),
    ] {
        let folder = Folder::new();
        let mut report = latency();
        report.as_object_mut().expect("an object").remove(key);
        folder.put("lat.json", &report.to_string());
        assert!(folder.error().starts_with(error), "{}", folder.error());
    }
}

#[test]
fn a_value_that_is_not_allowed_is_named_with_its_key() {
    let edits: [(&str, Value, &str); 7] = [
        ("/schema", json!(2), "lat.json: schema: 2: must be 1"),
        ("/build/commit", Value::Null, "lat.json: build.commit: missing: must be the commit that ran"),
        (
            "/results/0/test",
            json!("send-lag"),
            "lat.json: results[0].test: send-lag: must be one of send-lat, ",
        ),
        ("/results/0/transport", json!("x"), "lat.json: results[0].transport: x: must be a transport"),
        (
            "/results/0/test",
            json!("read-lat"),
            "lat.json: results: no result with test=send-lat: must be one",
        ),
        ("/results/0/round_log", Value::Null, "lat.json: round_log[].p50_ns (test=send-lat): missing"),
        (
            "/results/0/against",
            Value::Null,
            "lat.json: against (test=send-lat): no comparison with frame-lat",
        ),
    ];
    for (pointer, value, error) in edits {
        let folder = Folder::new();
        let mut report = latency();
        *report.pointer_mut(pointer).expect("a key") = value;
        folder.put("lat.json", &report.to_string());
        assert!(folder.error().starts_with(error), "{}", folder.error());
    }
}

#[test]
fn two_hops_are_those_of_the_run() {
    const DIFFERENCE: &str = r#"{ name = "difference", file = "lat", of = "test=send-lat", figure = "added", goal = { two_hops_and = 100 } }"#;
    for (hop_ns, expected) in [
        (100.0, "| difference | 300 ns | ≤ two hops + 100 ns = 300 ns | reached |"),
        (99.0, "| difference | 300 ns | ≤ two hops + 100 ns = 298 ns | **not reached** |"),
    ] {
        let folder = Folder::new();
        let mut report = latency();
        report["results"][0]["hop_ns"] = json!(hop_ns);
        folder.put("lat.json", &report.to_string());
        let page = folder.page_of(DIFFERENCE).expect("a report");
        assert!(page.contains(expected), "{page}");
    }
}

#[test]
fn the_page_in_the_repository_is_what_is_generated() {
    let bench = Path::new(env!("CARGO_MANIFEST_DIR"));
    let questions = Questions::built_in().expect("questions");
    let generated = markdown(&questions, &mut Runs::new(&bench.join("results"))).expect("bench/results");
    let written = std::fs::read_to_string(bench.join("RESULTS.md")).expect("bench/RESULTS.md");
    assert!(generated == written, "run `iwarp-perf results --from bench/results --write bench/RESULTS.md`");
}

#[test]
fn an_error_in_the_questions_is_named() {
    let folder = Folder::new();
    for (row, error) in [
        (
            r#"{ name = "x", file = "lat", of = "test=send-lat", figure = "none" }"#,
            "figures.\"none\": missing",
        ),
        (r#"{ name = "x", file = "lat", of = "cost" }"#, "missing field `figure`"),
        (r#"{ name = "x", file = "lat", of = "cost", figure = "ratio", gaol = 1 }"#, "unknown field `gaol`"),
    ] {
        let text = folder.page_of(row).expect_err("an error");
        assert!(text.starts_with("bench/questions.toml: ") && text.contains(error), "{text}");
    }
}
