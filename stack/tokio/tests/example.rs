//! The example runs as for a user.

use std::path::PathBuf;
use std::process::Command;

#[test]
fn the_echo_returns_every_message() {
    let test = std::env::current_exe().expect("this test's own path");
    let folder: PathBuf = test.ancestors().nth(2).expect("target/PROFILE").join("examples");
    let output =
        Command::new("timeout").arg("60").arg(folder.join("echo")).output().expect("the example starts");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(String::from_utf8_lossy(&output.stdout), "echo 0\necho 1\necho 2\n");
}
