//! The program from outside: exit codes and messages.

use std::process::{Command, Output};

fn run(line: &str) -> Output {
    let words = line.split(' ').filter(|word| !word.is_empty());
    Command::new(env!("CARGO_BIN_EXE_iwarp-perf")).args(words).output().expect("the program starts")
}

fn error(line: &str) -> String {
    let output = run(line);
    assert_eq!(output.status.code(), Some(2), "{line}");
    assert!(output.stdout.is_empty(), "{line}: no output");
    let text = String::from_utf8(output.stderr).expect("text");
    assert_eq!(text.lines().count(), 1, "{text}");
    text.trim_end().to_owned()
}

#[test]
fn help_and_version_succeed() {
    let help = run("--help");
    assert_eq!(help.status.code(), Some(0));
    let text = String::from_utf8(help.stdout).expect("text");
    assert!(text.contains("Examples:") && text.contains("write-bw") && text.contains("--pair"));
    assert!(text.lines().any(|line| line.trim_start().starts_with("doctor")), "{text}");
    let help = String::from_utf8(run("doctor --help").stdout).expect("text");
    assert!(help.contains("Usage: iwarp-perf doctor ") && help.contains("Examples:"), "{help}");
    let version = run("--version");
    assert_eq!(version.status.code(), Some(0));
    assert!(String::from_utf8(version.stdout).expect("text").starts_with("iwarp-perf "));
}

#[test]
fn an_error_is_one_line_that_names_the_argument() {
    for (line, words) in [
        ("", ["TEST", "--help"]),
        ("rdma-lat", ["rdma-lat", "send-lat"]),
        ("doctro", ["did you mean doctor?", "doctro"]),
        ("send-lta", ["did you mean send-lat?", "doctor"]),
        ("send-lat --size 3x", ["--size", "1 to 1G"]),
        ("send-lat --qps 0", ["--qps", "1..=1024"]),
        ("tcp-lat --depth 4", ["--depth", "tcp-lat"]),
        ("send-lat --pair carrier-pigeon", ["--pair", "memif"]),
        ("send-lat --connect 10.0.0.300 --config x", ["--connect", "IPv4"]),
        ("tcp-lat --json /no/such/folder/o.json", ["--json", "folder that exists"]),
        ("send-lat --connect 10.0.0.1 --pair memif", ["--pair", "--connect"]),
        ("frame-lat --connect 10.0.0.1 --config x", ["--connect", "--pair"]),
        ("tcp-bw --connect 10.0.0.1 --config x", ["--connect", "--pair"]),
        ("suite --connect 10.0.0.1 --config x", ["--connect", "--pair"]),
        ("send-lat --config x", ["--config", "--connect"]),
        ("send-lat --connect 10.0.0.1 --config /no/such.toml", ["--config /no/such.toml", "No such file"]),
        ("server", ["server", "--config"]),
        ("server --config /no/such.toml", ["--config /no/such.toml", "No such file"]),
        ("server --config x --size 4", ["--size", "server"]),
        ("send-lat --port 4", ["--port", "send-lat"]),
        ("send-lat --pair veth-af_xdp --mtu 1501", ["--mtu 1501", "at most 1500 with --pair veth-af_xdp"]),
        ("send-lat --pair veth-af_xdp --cores 2", ["--cores 2", "at most 1 with --pair veth-af_xdp"]),
        ("scaling --pair veth-af_xdp", ["--pair veth-af_xdp", "ring or memory"]),
        ("cores --pair veth-af_packet", ["--pair veth-af_packet", "memif-native, ring or memory"]),
        ("cores --qps 2", ["--qps", "cores"]),
        ("send-lat --app-core 100000", ["--app-core 100000", "one of"]),
    ] {
        let text = error(line);
        assert!(words.iter().all(|word| text.contains(word)), "{line}: {text}");
    }
}

#[test]
fn a_user_cannot_start_the_client_process() {
    let output = run("__client 1 warn");
    assert!(String::from_utf8(output.stderr).expect("text").contains("started by iwarp-perf itself"));
    assert!(output.stdout.is_empty());
}
