//! Measurements of many queue pairs in one process, as a user runs them.

use std::process::{Command, Output};

use serde_json::Value;

fn run(arguments: &str) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_iwarp-perf"));
    command.args(arguments.split_whitespace()).output().expect("the program starts")
}

fn stdout(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn qp_scale_measures_each_number_of_queue_pairs() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("out.json");
    let output =
        run(&format!("qp-scale --qps 1,7,300 --iterations 500 --rounds 3 --json {}", path.display()));
    assert!(output.status.success(), "{}", stderr(&output));
    assert!(stdout(&output).contains("queue pairs"), "{}", stdout(&output));
    let report: Value = serde_json::from_slice(&std::fs::read(&path).expect("the file")).expect("valid JSON");
    let results = report["results"].as_array().expect("a list");
    let qps: Vec<_> = results.iter().map(|result| result["queue_pairs"].as_u64()).collect();
    assert_eq!(qps, [Some(1), Some(7), Some(300)]);
    assert_eq!(results[0]["ratio"], 1.0);
    assert!(results.iter().all(|result| result["ns_per_message"].as_f64().is_some_and(|ns| ns > 0.0)));
    assert_eq!((&report["window"], &report["bytes"]), (&Value::from(16), &Value::from(64)));
}

#[test]
fn qp_scale_rejects_what_it_cannot_measure() {
    for (arguments, allowed) in [
        ("qp-scale --qps 0", "1..=131072"),
        ("qp-scale --qps 1,131073", "1..=131072"),
        ("qp-scale --window 65", "1..=64"),
        ("qp-scale --size 257", "1..=256"),
        ("qp-scale --rounds 0", "1..=1000"),
    ] {
        let output = run(arguments);
        assert_eq!(output.status.code(), Some(2), "{arguments}");
        assert!(stderr(&output).contains(allowed), "{arguments}: {}", stderr(&output));
    }
}

/// More queue pairs than one listening port has client ports for.
#[test]
fn many_queue_pairs_share_several_listening_ports() {
    let output = run("qp-memory --qps 20000 --send-depth 1 --recv-depth 1");
    assert!(output.status.success(), "{}", stderr(&output));
    assert!(stdout(&output).contains("20000 idle queue pairs at each end"), "{}", stdout(&output));
}
