//! Short runs of the program: some that pass, and some that must not.
#![cfg(feature = "dpdk")]
#![forbid(unsafe_code)]

use std::process::{Child, Command, Output, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;

const PROGRAM: &str = env!("CARGO_BIN_EXE_iwarp-soak");
const DEADLINE: Duration = Duration::from_secs(60);

fn soak(line: &str) -> Command {
    let mut command = Command::new(PROGRAM);
    command.args(line.split(' ')).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// The ends that a run has started.
fn ends(run: &Child) -> Vec<Pid> {
    let path = format!("/proc/{0}/task/{0}/children", run.id());
    let text = std::fs::read_to_string(path).unwrap_or_default();
    text.split_whitespace().filter_map(|pid| pid.parse().ok()).map(Pid::from_raw).collect()
}

#[test]
fn a_short_run_passes_and_reports_what_it_did() {
    passes("ring");
}

/// The ends of the native memif may be killed, so they are.
#[test]
fn a_short_run_over_the_native_memif_passes() {
    passes("memif-native");
}

#[track_caller]
fn passes(device: &str) {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("result.json");
    let line = format!("--device {device} --minutes 0.15 --queue-pairs 4 --seed 3 --json {}", path.display());
    let output = soak(&line).output().expect("it starts");
    assert!(output.status.success(), "{}", stderr(&output));
    assert!(String::from_utf8_lossy(&output.stdout).contains("soak passed"));
    let text = std::fs::read_to_string(&path).expect("a result");
    let result: Value = serde_json::from_str(&text).expect("JSON");
    let part = &result["parts"][0];
    assert_eq!((&result["seed"], &part["device"]), (&3.into(), &device.into()));
    for operation in ["writes", "reads", "atomics", "sends", "immediates", "answers", "connects"] {
        assert!(part["counts"][operation].as_u64() > Some(0), "{operation}: {text}");
    }
}

/// An end that dies although no failure of the run explains it.
#[test]
fn a_run_whose_end_dies_fails() {
    let mut run = soak("--device memif --minutes 1 --queue-pairs 2 --calm").spawn().expect("it starts");
    let start = Instant::now();
    // The server, then the client, which exits at its end.
    while ends(&run).len() < 2 {
        assert!(start.elapsed() < DEADLINE && run.try_wait().expect("a child").is_none());
        sleep(Duration::from_millis(20));
    }
    sleep(Duration::from_secs(1));
    kill(ends(&run)[1], Signal::SIGKILL).expect("it runs");
    let output = run.wait_with_output().expect("it ends");
    assert_eq!(output.status.code(), Some(1));
    // On a busy machine it may not have said yet that it is ready.
    let text = stderr(&output);
    let named = ["client ended: signal: 9", "client did not start: signal: 9"];
    assert!(named.iter().any(|words| text.contains(words)), "{text}");
}

#[test]
fn bad_arguments_are_named() {
    for (line, named) in [
        ("--minutes 0", "--minutes"),
        ("--minutes many", "--minutes"),
        ("--device floppy", "--device"),
        ("--queue-pairs 0", "--queue-pairs"),
    ] {
        let output = soak(line).output().expect("it starts");
        assert_eq!(output.status.code(), Some(2), "{line}");
        assert!(stderr(&output).contains(named), "{line}: {}", stderr(&output));
    }
}
