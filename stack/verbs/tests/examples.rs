//! The examples of the documentation run, each in its own process, as for a user.

use std::path::PathBuf;
use std::process::Command;

/// Runs an example, which cargo has built, and returns what it printed.
fn run(example: &str) -> String {
    let test = std::env::current_exe().expect("this test's own path");
    let folder: PathBuf = test.ancestors().nth(2).expect("target/PROFILE").join("examples");
    let output =
        Command::new("timeout").arg("60").arg(folder.join(example)).output().expect("the example starts");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{example} failed with {}: {errors}", output.status);
    String::from_utf8_lossy(&output.stdout).into_owned()
}

#[test]
fn the_first_program_places_its_text() {
    assert_eq!(run("first"), "placed by RDMA\n");
}

#[test]
fn a_pinned_worker_wakes_a_sleeping_application() {
    assert_eq!(run("pinned"), "1 completion: Receive 7 bytes, Success\n");
}

#[test]
fn three_threads_share_a_connection() {
    assert_eq!(run("threads"), "1000 messages\n");
}

/// The application owns `main` and DPDK.
#[cfg(feature = "dpdk")]
#[test]
fn a_reactor_polls_two_stacks_over_dpdk() {
    assert!(run("reactor").starts_with("from a reactor after "));
}
