//! The program itself: arguments, checks, and a target and a host as two processes over memif.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, Command, Output, Stdio};

use rustix::process::{Pid, Signal, kill_process};

fn program() -> Command {
    Command::new(env!("CARGO_BIN_EXE_iwarp-nvmf"))
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Kills the process if the test ends early.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn a_bad_configuration_is_one_line_and_exit_code_2() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("bad.toml");
    std::fs::write(&path, "listeners = []\n").expect("written");
    for arguments in [&["check", "--config"][..], &["serve", "--config"]] {
        let output = program().args(arguments).arg(&path).output().expect("it runs");
        let line = text(&output.stderr);
        assert_eq!((output.status.code(), line.lines().count()), (Some(2), 1), "{line}");
        assert!(line.contains("stack") || line.contains("missing"), "{line}");
    }
}

#[test]
fn the_sample_configuration_is_valid() {
    let sample = concat!(env!("CARGO_MANIFEST_DIR"), "/../../configs/nvmf/memif.toml");
    let output = program().args(["check", "--config", sample]).output().expect("it runs");
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert!(text(&output.stdout).contains("nqn.2014-08.org.example:disk"));
}

/// Two processes: a target on a file, and hosts that discover, write, read and measure. Then
/// Ctrl-C.
#[test]
fn a_target_serves_a_file_over_memif() {
    let folder = tempfile::tempdir().expect("a folder");
    let at = |name: &str| folder.path().join(name).display().to_string();
    std::fs::File::create(at("disk")).and_then(|file| file.set_len(8 << 20)).expect("a file");
    let device = |role: &str| {
        format!("device.memif = {{ role = \"{role}\", socket = \"{}\" }}\nmtu = 9000\n", at("memif.sock"))
    };
    let eal = |prefix: &str| {
        format!(
            "hugepages = \"never\"\nmemory_mib = 256\nfile_prefix = \"nvmf-{prefix}-{}\"\n",
            std::process::id()
        )
    };
    let target = format!(
        "listeners = [\"10.98.0.1:4420\"]\nstate_dir = \"{}\"\n[stack.stats]\npage = \"{}\"\n[stack.eal]\n{}[stack.core]\nidle = \"yield\"\n[stack.port]\n{}\
         [stack.net]\naddress = \"10.98.0.1/24\"\n[limits]\nbuffers = 16\ncapsules = 1024\n[[subsystem]]\n\
         nqn = \"nqn.2014-08.org.example:disk\"\nallow_any_host = true\n[[subsystem.namespace]]\nnsid = 1\n\
         backend.file = {{ path = \"{}\" }}\n[authentication]\nsecrets = \"{}\"\n",
        at("state"),
        at("page"),
        eal("target"),
        device("server"),
        at("disk"),
        at("secrets.toml")
    );
    let secrets = "[[host]]\nnqn = \"nqn.2014-08.org.ironwarp:host\"\n\
         dhchap_secret = \"DHHC-1:01:AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh+KfiaR:\"\n\
         dhchap_ctrl_secret = \"DHHC-1:01:gIGCg4SFhoeIiYqLjI2Oj5CRkpOUlZaXmJmam5ydnp9vmVbU:\"\n";
    std::fs::write(at("secrets.toml"), secrets).expect("written");
    let own = std::os::unix::fs::PermissionsExt::from_mode(0o600);
    std::fs::set_permissions(at("secrets.toml"), own).expect("set");
    let host = format!(
        "[eal]\n{}[core]\nidle = \"yield\"\n[port]\n{}[net]\naddress = \"10.98.0.2/24\"\n",
        eal("host"),
        device("client")
    );
    std::fs::write(at("target.toml"), target).expect("written");
    std::fs::write(at("host.toml"), host).expect("written");
    let mut child = program()
        .args(["serve", "--interval", "1", "--config", &at("target.toml")])
        .stdout(Stdio::piped())
        .stderr(Stdio::inherit())
        .spawn()
        .map(Running)
        .expect("it starts");
    let mut line = String::new();
    let mut lines = BufReader::new(child.0.stdout.take().expect("piped"));
    lines.read_line(&mut line).expect("a line");
    assert_eq!(line, "listening on 10.98.0.1:4420\n");

    let try_run = |arguments: &[&str], input: &[u8]| -> Output {
        let to = ["--config", &at("host.toml"), "--connect", "10.98.0.1:4420"];
        let mut child = program()
            .arg("host")
            .args(arguments)
            .args(to)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("it starts");
        child.stdin.take().expect("piped").write_all(input).expect("taken");
        child.wait_with_output().expect("it ends")
    };
    let run = |arguments: &[&str], input: &[u8]| -> Output {
        let output = try_run(&[arguments, &["--secrets", &at("secrets.toml")]].concat(), input);
        assert!(output.status.success(), "{arguments:?}: {}", text(&output.stderr));
        output
    };
    let refused = text(&try_run(&["identify"], b"").stderr);
    assert!(refused.contains("the host has no secret"), "{refused}");
    assert!(text(&run(&["discover"], b"").stdout).starts_with("10.98.0.1 4420 nqn.2014-08.org.example:disk"));
    assert!(text(&run(&["identify"], b"").stdout).contains("namespace 1: 16384 blocks of 512 bytes"));
    let blocks: Vec<u8> = (0..10 * 512u32).map(|at| (at % 253) as u8).collect();
    run(&["write", "--slba", "5", "--blocks", "10"], &blocks);
    assert!(run(&["read", "--slba", "5", "--blocks", "10"], b"").stdout == blocks);
    let bench = ["bench", "--commands", "2000", "--queues", "2", "--sequential", "--verify", "--json"];
    run(&[&bench[..], &["--operation", "write"]].concat(), b"");
    let report = text(&run(&bench, b"").stdout);
    assert!(report.contains("\"commands\":2000"), "{report}");

    // Lines that come every second; the sum of their writes is what the hosts wrote.
    let mut writes = 0;
    for _ in 0..120 {
        let mut line = String::new();
        assert!(lines.read_line(&mut line).expect("a line") > 0, "{writes} writes in all");
        let value: serde_json::Value = serde_json::from_str(&line).expect("JSON");
        writes += value["writes"].as_u64().expect("a number");
        if writes == 2002 {
            break;
        }
    }
    assert_eq!(writes, 2002);

    // SIGHUP, as `systemctl reload` sends it: a second namespace, without an end of the program.
    let more = "[[subsystem.namespace]]\nnsid = 2\nbackend.null = { mib = 1 }\n";
    let mut file = std::fs::OpenOptions::new().append(true).open(at("target.toml")).expect("a file");
    file.write_all(more.as_bytes()).expect("written");
    let id = Pid::from_child(&child.0);
    kill_process(id, Signal::HUP).expect("sent");
    let mut line = String::new();
    while !line.contains("\"nsid\":2") {
        line.clear();
        assert!(lines.read_line(&mut line).expect("a line") > 0, "the program ended");
    }
    assert!(text(&run(&["identify"], b"").stdout).contains("namespace 2: 2048 blocks of 512 bytes"));

    // What iwarp-top shows: the counts since the start, beside the page of counters, until the end.
    let published = at("page.namespaces");
    let counts = || -> serde_json::Value {
        serde_json::from_slice(&std::fs::read(&published).expect("it is there")).expect("JSON")
    };
    while counts()["namespaces"].as_array().map(Vec::len) != Some(2) {
        assert!(lines.read_line(&mut line).expect("a line") > 0, "the program ended");
    }
    let all = counts();
    let first = &all["namespaces"][0];
    assert_eq!((&first["nsid"], &first["writes"]), (&1.into(), &2002.into()));
    let pairs = first["latency_ns"].as_array().expect("pairs");
    assert!(pairs.iter().filter_map(|pair| pair[1].as_u64()).sum::<u64>() >= 4003, "{first}");
    kill_process(id, Signal::INT).expect("sent");
    assert!(child.0.wait().expect("it ends").success());
    assert!(!std::path::Path::new(&published).exists());
}
