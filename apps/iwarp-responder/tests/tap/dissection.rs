//! A capture as Wireshark's dissectors read it.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::{Command, Output};

use crate::lab::output_text;

/// Dissects iWARP wherever its start-up frames appear. The last protocol is a heuristic that would
/// claim short Sends.
const OPTIONS: [&str; 4] = ["-o", "tcp.try_heuristic_first:TRUE", "--disable-protocol", "rpcordma"];

/// Returns whether tshark is installed.
pub fn is_installed() -> bool {
    Command::new("tshark").arg("--version").output().is_ok_and(|output| output.status.success())
}

/// The whole dissection as text.
pub fn text(capture: &Path) -> String {
    let output = tshark(capture, &["-V", "-O", "iwarp_mpa,iwarp_ddp_rdmap,tcp"]);
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// The number of occurrences of each value of a field.
pub fn count_by_value(capture: &Path, field: &str) -> BTreeMap<String, usize> {
    let output = tshark(capture, &["-T", "fields", "-E", "aggregator= ", "-e", field]);
    let mut count_by_value = BTreeMap::new();
    for value in String::from_utf8_lossy(&output.stdout).split_whitespace() {
        *count_by_value.entry(value.to_owned()).or_default() += 1;
    }
    count_by_value
}

/// The number of frames that match a display filter.
pub fn matching(capture: &Path, filter: &str) -> usize {
    String::from_utf8_lossy(&tshark(capture, &["-Y", filter]).stdout).lines().count()
}

fn tshark(capture: &Path, arguments: &[&str]) -> Output {
    let mut command = Command::new("tshark");
    let output =
        command.arg("-n").arg("-r").arg(capture).args(OPTIONS).args(arguments).output().expect("tshark");
    assert!(output.status.success(), "{command:?}: {}", output_text(&output));
    output
}
