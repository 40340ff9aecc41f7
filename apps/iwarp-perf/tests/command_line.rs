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
    for tool in ["doctor", "qp-memory", "qp-scale"] {
        assert!(text.lines().any(|line| line.trim_start().starts_with(tool)), "{tool}: {text}");
        let help = String::from_utf8(run(&format!("{tool} --help")).stdout).expect("text");
        let usage = format!("Usage: iwarp-perf {tool} ");
        assert!(help.contains(&usage) && help.contains("Examples:"), "{help}");
    }
    let version = run("--version");
    assert_eq!(version.status.code(), Some(0));
    assert!(String::from_utf8(version.stdout).expect("text").starts_with("iwarp-perf "));
}

#[test]
fn an_error_is_one_line_that_names_the_argument() {
    for (line, words) in [
        ("", ["TEST", "--help"]),
        ("rdma-lat", ["rdma-lat", "send-lat"]),
        ("doctro", ["did you mean doctor?", "qp-scale"]),
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
        ("send-lat --app-core 100000", ["--app-core 100000", "one of"]),
    ] {
        let text = error(line);
        assert!(words.iter().all(|word| text.contains(word)), "{line}: {text}");
    }
}

#[test]
fn the_memory_of_a_queue_pair_grows_with_its_depth() {
    let total = |depth: u32| {
        let json = tempfile::NamedTempFile::new().expect("a writable folder");
        let path = json.path().display();
        let output =
            run(&format!("qp-memory --qps 1000 --send-depth {depth} --recv-depth {depth} --json {path}"));
        let text = String::from_utf8_lossy(&output.stdout);
        assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
        assert!(text.contains("1000 idle queue pairs") && text.contains("total"), "{text}");
        let json: serde_json::Value = serde_json::from_reader(json).expect("JSON");
        assert_eq!((&json["schema"], &json["queue_pairs"]), (&1.into(), &1000.into()));
        let figures = ["tables", "queues", "connection"].map(|key| {
            let bytes = json["resident_bytes_per_qp"][key].as_f64().expect("a number");
            assert!(bytes.abs() < 1e6, "{key}: {json}");
            bytes
        });
        assert!(figures[1] > 500.0, "a queue pair has queues: {json}");
        let total = json["resident_bytes_per_qp"]["total"].as_f64().expect("a number");
        assert!((figures.iter().sum::<f64>() - total).abs() < 1.0, "{json}");
        total
    };
    // Each entry of a ring holds at least a sequence number.
    assert!(total(1024) > total(1) + 2.0 * 1024.0 * 8.0);
}

#[test]
fn qp_memory_rejects_what_it_cannot_measure() {
    for (line, words) in [
        ("qp-memory --qps 99", ["--qps", "100..=131072"]),
        ("qp-memory --qps 131073", ["--qps", "100..=131072"]),
        ("qp-memory --send-depth 0", ["--send-depth", "1..=65536"]),
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
