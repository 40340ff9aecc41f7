//! Short runs of storage: one that passes, and one that must not. Each has four busy processes, so
//! one runs at a time.
#![cfg(feature = "dpdk")]
#![forbid(unsafe_code)]

use std::process::{Command, Output, Stdio};
use std::sync::{Mutex, PoisonError};
use std::thread::sleep;
use std::time::{Duration, Instant};

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

/// Hosts and a target of storage. The target is killed first; how many failures follow depends on
/// the machine.
#[test]
fn a_short_run_of_storage_passes() {
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("result.json");
    let line = format!("--device storage --minutes 0.3 --seed 3 --json {}", path.display());
    let output = soak(&line).output().expect("it starts");
    assert!(output.status.success(), "{}", stderr(&output));
    let text = std::fs::read_to_string(&path).expect("a result");
    let result: Value = serde_json::from_str(&text).expect("JSON");
    let part = &result["parts"][0];
    for operation in ["reads", "writes", "zeroes", "compares", "flushes"] {
        assert!(part["counts"][operation].as_u64() > Some(0), "{operation}: {text}");
    }
    assert!(part["failures"]["target killed"].as_u64() > Some(0), "{text}");
    // Three hosts connect at first, and again when their target was killed.
    assert!(part["counts"]["connects"].as_u64() >= Some(6), "{text}");
}

/// A block of the file that changes behind the back of its host.
#[test]
fn a_run_of_storage_that_loses_a_write_fails() {
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let folder = tempfile::tempdir().expect("a folder");
    let mut run = soak("--device storage --minutes 1 --seed 3 --calm");
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
