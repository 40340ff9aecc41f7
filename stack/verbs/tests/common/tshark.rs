//! Wireshark's reading of a capture.

use std::io::Write;
use std::path::Path;
use std::process::Command;

/// tshark looks for iWARP on every port. The disabled protocols use heuristics that claim messages
/// by their first octets.
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

/// Runs tshark over a capture. If tshark is not installed, prints a message and returns `None`.
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
