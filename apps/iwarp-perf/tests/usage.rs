//! What the JSON says about both ends and about the settings of a run.

use std::process::Command;

use serde_json::{Value, json};
use tempfile::NamedTempFile;

/// Runs one case over memory, which must succeed, and returns its result.
fn over_memory(line: &str) -> Value {
    let json = NamedTempFile::new().expect("a writable folder");
    let output = Command::new(env!("CARGO_BIN_EXE_iwarp-perf"))
        .args(line.split_whitespace())
        .args(["--pair", "memory", "--warmup", "5", "--json"])
        .arg(json.path())
        .output()
        .expect("the program starts");
    assert!(output.status.success(), "{line}: {}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_reader::<_, Value>(json).expect("JSON")["results"][0].take()
}

fn is_percent(value: &Value) -> bool {
    value.as_f64().is_some_and(|percent| percent > 0.0 && percent <= 100.5)
}

#[test]
fn every_rdma_test_has_the_processor_time_and_the_busy_polls_of_each_end() {
    for test in [
        "send-lat",
        "send-inv-lat",
        "write-lat",
        "read-lat",
        "atomic-lat",
        "imm-lat",
        "write-imm-lat",
        "send-bw --size 5000",
        "write-bw --size 5000",
        "read-bw --size 5000",
        "atomic-bw",
        "write-imm-bw --size 5000",
        "conn-rate",
    ] {
        let result = over_memory(&format!("{test} --iterations 100"));
        for key in ["cpu_percent", "busy_percent"] {
            let both = &result[key];
            assert!(is_percent(&both["client"]) && is_percent(&both["server"]), "{test} {key}: {both}");
        }
    }
}

/// The polled threads of both ends are in one process, so its clock cannot tell them apart.
#[test]
fn threads_of_one_process_have_busy_polls_and_no_processor_time() {
    let result = over_memory("send-lat --iterations 100 --events");
    assert_eq!(result["cpu_percent"], Value::Null);
    assert_eq!(result["cpu_ns_per_message"], Value::Null);
    assert!(is_percent(&result["busy_percent"]["client"]), "{result}");
}

#[test]
fn a_baseline_polls_no_core_of_the_stack() {
    let result = over_memory("frame-bw --iterations 1000 --size 64");
    assert_eq!(result["busy_percent"], Value::Null);
    assert!(is_percent(&result["cpu_percent"]["client"]), "{result}");
}

#[test]
fn the_settings_of_a_run_are_in_its_result() {
    let line =
        "send-bw --size 32 --iterations 200 --inline 32 --signal-every 4 --bidirectional --rate 100000";
    let result = over_memory(line);
    let settings = ["inline", "signal_every", "bidirectional", "rate"].map(|key| &result[key]);
    assert_eq!(settings, [&json!(32), &json!(4), &json!(true), &json!(100_000.0)]);
    let closed = over_memory("send-bw --size 32 --iterations 200");
    let settings = ["inline", "signal_every", "bidirectional", "rate"].map(|key| &closed[key]);
    assert_eq!(settings, [&json!(0), &json!(1), &json!(false), &Value::Null]);
}
