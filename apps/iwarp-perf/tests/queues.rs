//! Runs over memory with several queue pairs: shared receive queues, Reads and Writes alternately,
//! windows, the share of each.

use std::process::{Command, Output};

use serde_json::Value;
use tempfile::NamedTempFile;

fn run(line: &str) -> Output {
    Command::new(env!("CARGO_BIN_EXE_iwarp-perf"))
        .args(line.split_whitespace())
        .output()
        .expect("the program starts")
}

/// Runs one case over memory, which must succeed, and returns its result.
fn result_of(line: &str) -> Value {
    let json = NamedTempFile::new().expect("a writable folder");
    let warmup = if line.contains("--warmup") { "" } else { " --warmup 5" };
    let output = run(&format!("{line}{warmup} --pair memory --json {}", json.path().display()));
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{line}: {stderr}");
    let mut report: Value = serde_json::from_reader(json).expect("JSON");
    report["results"][0].take()
}

fn by_qp(result: &Value) -> Vec<u64> {
    let all = result["messages_by_qp"].as_array().expect("an array");
    all.iter().map(|messages| messages.as_u64().expect("a number")).collect()
}

#[test]
fn messages_keep_their_queue_pair_in_receives_of_a_shared_queue() {
    for test in ["send-lat", "send-inv-lat", "send-bw", "write-imm-bw", "write-imm-lat"] {
        let result =
            result_of(&format!("{test} --srq --qps 3 --size 3000 --iterations 90 --warmup 9 --validate"));
        assert_eq!((&result["errors"], &result["srq"]), (&0.into(), &true.into()), "{test}");
        assert!(result["verified_bytes"].as_u64() >= Some(3000), "{test}: {result}");
    }
}

/// RFC 5040 s5.3: each reply invalidates the STag of the window that its request advertised, which
/// the client checks.
#[test]
fn a_reply_invalidates_the_window_of_its_request() {
    for (options, bytes) in [
        ("--qps 3 --validate", 64),
        ("--size 4", 4),
        ("--size 20000 --validate", 20_000),
        ("--events --validate", 64),
        ("--qps 2 --cores 2 --validate", 64),
    ] {
        let line = format!("send-inv-lat --iterations 20 --warmup 2 {options}");
        let result = result_of(&line);
        assert_eq!((&result["errors"], &result["bytes"]), (&0.into(), &bytes.into()), "{line}");
        assert!(result["rtt_ns"]["p50"].is_u64(), "{line}");
    }
}

/// Atomic operations are posted in turn, so no queue pair is left out.
#[test]
fn the_operations_of_each_queue_pair_are_reported() {
    let result = result_of("atomic-bw --qps 4 --depth 8 --iterations 2000");
    let counts = by_qp(&result);
    assert_eq!(counts.len(), 4);
    assert!(counts.iter().all(|&operations| operations > 0), "{counts:?}");
    assert!(Some(counts.iter().sum()) >= result["iterations"].as_u64(), "{result}");
}

#[test]
fn both_ends_take_their_receives_from_shared_queues() {
    let result = result_of("send-bw --srq --qps 4 --size 64 --depth 8 --bidirectional --iterations 2000");
    assert_eq!((&result["errors"], &result["qps"]), (&0.into(), &4.into()));
    assert!(result["iterations"].as_u64() > Some(0));
}

#[test]
fn a_test_without_receives_says_nothing_of_shared_queues() {
    let result = result_of("write-bw --iterations 20");
    assert_eq!((&result["srq"], &result["messages_by_qp"]), (&Value::Null, &Value::Null));
    assert_eq!(result_of("send-bw --iterations 20")["srq"], false);
}

#[test]
fn reads_and_writes_alternately_are_counted_for_each_queue_pair() {
    let result = result_of("read-write-bw --qps 4 --size 20000 --depth 4 --iterations 400 --warmup 0");
    assert_eq!((&result["test"], &result["errors"]), (&"read-write-bw".into(), &0.into()));
    let counts = by_qp(&result);
    assert_eq!(counts.len(), 4);
    assert!(counts.iter().all(|&messages| messages > 0), "{counts:?}");
    assert!(Some(counts.iter().sum()) >= result["iterations"].as_u64(), "{result}");
}

#[test]
fn the_share_of_each_queue_pair_is_printed() {
    let output = run("write-bw --pair memory --qps 4 --iterations 400");
    let text = String::from_utf8(output.stdout).expect("text");
    let line =
        text.lines().find(|line| line.contains("4 queue pairs carried")).unwrap_or_else(|| panic!("{text}"));
    assert!(line.contains("% of the messages each; fairness index "), "{line}");
    let rows: Vec<_> = text.lines().filter(|line| line.starts_with(['┌', '│', '└'])).collect();
    assert!(rows.len() > 3 && rows.iter().all(|row| row.chars().count() <= 100), "{text}");
}
