//! Short runs of the program: one that passes, and some that must not. Each has four busy
//! processes, so one runs at a time.
#![forbid(unsafe_code)]

use std::process::{Child, Command, Output, Stdio};
use std::sync::{Mutex, PoisonError};
use std::thread::sleep;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;

const DEADLINE: Duration = Duration::from_secs(60);

static TURN: Mutex<()> = Mutex::new(());

fn soak(line: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_iwarp-soak"));
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

/// The target is killed first; how many failures follow depends on the machine.
#[test]
fn a_short_run_passes_and_reports_what_it_did() {
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("result.json");
    let line = format!("--minutes 0.3 --seed 3 --json {}", path.display());
    let output = soak(&line).output().expect("it starts");
    assert!(output.status.success(), "{}", stderr(&output));
    assert!(String::from_utf8_lossy(&output.stdout).contains("soak passed"));
    let text = std::fs::read_to_string(&path).expect("a result");
    let result: Value = serde_json::from_str(&text).expect("JSON");
    assert_eq!(result["seed"], 3);
    for operation in ["reads", "writes", "zeroes", "compares", "flushes"] {
        assert!(result["counts"][operation].as_u64() > Some(0), "{operation}: {text}");
    }
    assert!(result["failures"]["target killed"].as_u64() > Some(0), "{text}");
    // Three hosts connect at first, and again when their target was killed.
    assert!(result["counts"]["connects"].as_u64() >= Some(6), "{text}");
}

/// A block of the file that changes behind the back of its host.
#[test]
fn a_run_that_loses_a_write_fails() {
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let folder = tempfile::tempdir().expect("a folder");
    let mut run = soak("--minutes 1 --seed 3 --calm");
    let mut run = run.env("TMPDIR", folder.path()).spawn().expect("it starts");
    let start = Instant::now();
    let disk = loop {
        let entries = std::fs::read_dir(folder.path()).expect("a folder");
        let models = |path: &std::path::Path| std::fs::metadata(path.join("host-2.model")).is_ok();
        if let Some(found) = entries.map(|one| one.expect("an entry").path()).find(|path| models(path)) {
            break found.join("disk");
        }
        assert!(start.elapsed() < DEADLINE && run.try_wait().expect("a child").is_none());
        sleep(Duration::from_millis(20));
    };
    let bytes = std::fs::metadata(&disk).expect("a file").len();
    let file = std::fs::OpenOptions::new().write(true).open(&disk).expect("a file");
    std::os::unix::fs::FileExt::write_all_at(&file, &vec![0x11; bytes as usize], 0).expect("written");
    let output = run.wait_with_output().expect("it ends");
    assert_eq!(output.status.code(), Some(1));
    assert!(stderr(&output).contains("of namespace 1 is no version"), "{}", stderr(&output));
}

/// An end that dies although no failure of the run explains it.
#[test]
fn a_run_whose_end_dies_fails() {
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let mut run = soak("--minutes 1 --calm").spawn().expect("it starts");
    let start = Instant::now();
    // The target, then the hosts.
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
    let named = ["host 0 ended: signal: 9", "host 0 did not start: signal: 9"];
    assert!(named.iter().any(|words| text.contains(words)), "{text}");
}

#[test]
fn bad_arguments_are_named() {
    for (line, named) in
        [("--minutes 0", "--minutes"), ("--minutes many", "--minutes"), ("--seed x", "--seed")]
    {
        let output = soak(line).output().expect("it starts");
        assert_eq!(output.status.code(), Some(2), "{line}");
        assert!(stderr(&output).contains(named), "{line}: {}", stderr(&output));
    }
}
