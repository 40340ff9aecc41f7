//! Errors that the program reports before it connects: one line each, exit status 2.

use std::process::{Command, Output};

use tempfile::NamedTempFile;

/// A configuration that is valid except for the device.
const MEMORY: &str = "[port]\ndevice.memory = {}\n[net]\naddress = \"10.99.2.1/24\"\n";

/// A file that is removed after the test.
fn config_of(text: &str) -> NamedTempFile {
    let file = NamedTempFile::new().expect("a writable folder");
    std::fs::write(&file, text).expect("a writable file");
    file
}

fn run(line: &str, config: Option<&NamedTempFile>) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_iwarp-ping"));
    command.args(line.split(' ').filter(|word| !word.is_empty()));
    if let Some(config) = config {
        command.arg("--config").arg(config.path());
    }
    command.output().expect("the program starts")
}

/// The error line for arguments or a configuration.
#[track_caller]
fn refusal(line: &str, config: Option<&NamedTempFile>) -> String {
    let output = run(line, config);
    let said = String::from_utf8(output.stderr).expect("text");
    assert_eq!(output.status.code(), Some(2), "{line}: {said}");
    assert!(output.stdout.is_empty(), "{line}");
    assert_eq!(said.lines().count(), 1, "{line}: {said}");
    let line = said.trim_end().strip_prefix("iwarp-ping: ");
    line.unwrap_or_else(|| panic!("not the program's own line: {said}")).to_owned()
}

#[track_caller]
fn assert_names(line: &str, words: &[&str]) {
    assert!(words.iter().all(|word| line.contains(word)), "{words:?} are not all in: {line}");
}

#[test]
fn help_has_examples_and_version_is_printed() {
    let help = run("--help", None);
    assert_eq!(help.status.code(), Some(0));
    let text = String::from_utf8(help.stdout).expect("text");
    assert_names(&text, &["Examples:", "--persistent", "--verify", "--hold-off", "Exit codes:", "rping"]);
    let version = run("--version", None);
    assert_eq!(version.status.code(), Some(0));
    assert!(String::from_utf8(version.stdout).expect("text").starts_with("iwarp-ping "));
}

#[test]
fn an_argument_that_cannot_be_used_is_named_with_what_is_allowed() {
    let config = config_of(MEMORY);
    for (line, words) in [
        ("", &["--server|--client"][..]),
        ("-s -c", &["--server", "--client"]),
        ("-s --size 0", &["--size", "'0'", "1..=65536"]),
        ("-c -a 10.0.0.1 -S 65537", &["--size", "65537", "1..=65536"]),
        ("-c -a 10.0.0.1 -C 0", &["--count", "'0'"]),
        ("-c -a ten", &["--address", "'ten'"]),
        ("-s -p 0", &["--port", "'0'"]),
        ("-s --timeout 0", &["--timeout", "1..=86400"]),
        ("-s --verbose --quiet", &["--verbose", "--quiet"]),
        ("-s --persistant", &["--persistant", "--persistent"]),
        ("-c", &["--client", "--address", "10.0.0.1"]),
        ("-c -P -a 10.0.0.1", &["--persistent", "client"]),
        ("-s --hold-off 5", &["--hold-off 5", "server"]),
        ("-s --log =loud=", &["--log", "=loud="]),
        ("-c -a 0.0.0.0", &["--address 0.0.0.0", "net.address"]),
        ("-c -a ::1", &["--address ::1", "family"]),
        ("-s -a 10.99.2.7", &["--address 10.99.2.7", "10.99.2.1", "0.0.0.0"]),
        ("-s -a ::", &["--address ::", "10.99.2.1"]),
    ] {
        assert_names(&refusal(line, Some(&config)), words);
    }
}

#[test]
fn a_configuration_that_cannot_be_used_is_named() {
    assert_names(&refusal("-s", None), &["--config"]);
    assert_names(&refusal("-s --config /no/such.toml", None), &["/no/such.toml", "No such file"]);
    let wrong = config_of(&MEMORY.replace("[net]", "ring_size = 100\n[net]"));
    assert_eq!(refusal("-s", Some(&wrong)), "port.ring_size = 100: a power of two from 64 to 16384");
    let misspelt = config_of(&MEMORY.replace("[net]", "rings = 128\n[net]"));
    assert_names(&refusal("-s", Some(&misspelt)), &["line 3", "`rings`", "`ring_size`"]);
}

/// A missing device is no fault of the arguments.
#[test]
fn a_device_that_cannot_be_had_ends_with_one() {
    let config = config_of(MEMORY);
    let output = run("-s", Some(&config));
    assert_eq!(output.status.code(), Some(1));
    assert_names(&String::from_utf8_lossy(&output.stderr), &["iwarp-ping: port.device = memory"]);
}
