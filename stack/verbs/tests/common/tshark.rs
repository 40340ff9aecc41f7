//! Wireshark's own reading of a capture.

use std::io::Write;
use std::path::Path;
use std::process::Command;

/// iWARP is looked for on every port. What is turned off guesses from a message's first octets that it is its own.
const OPTIONS: [&str; 9] = [
    "-n",
    "-o",
    "tcp.try_heuristic_first:TRUE",
    "-o",
    "tcp.check_checksum:TRUE",
    "--disable-protocol",
    "rpcordma",
    "--disable-protocol",
    "smb_direct",
];

/// Runs tshark over a capture; `None`, said on the terminal, where there is none.
#[track_caller]
pub fn read(capture: &Path, arguments: &[&str]) -> Option<String> {
    let Ok(output) = Command::new("tshark").args(OPTIONS).arg("-r").arg(capture).args(arguments).output()
    else {
        writeln!(std::io::stderr(), "\nSKIPPED: tshark is not installed").expect("a terminal");
        return None;
    };
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && !said.contains("Lua"), "{said}");
    Some(String::from_utf8_lossy(&output.stdout).into_owned())
}
