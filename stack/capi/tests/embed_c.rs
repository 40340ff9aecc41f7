//! `apps/embed-c`, which owns DPDK: over rings inside one process, and over memif between two.
#![forbid(unsafe_code)]

mod built;

use std::fs;
use std::io::Write;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::OnceLock;

use tempfile::NamedTempFile;

use built::{compile, has_dpdk, here, pkg_config, printed};

/// No huge pages, no cards, no files that others could see.
const EAL: &[&str] =
    &["--no-huge", "-m", "192", "--no-pci", "--no-telemetry", "--no-shconf", "--log-level=warning"];

const DONE: &str = "8 rounds of 1048576 bytes written, checked, read and echoed\n";

fn program() -> &'static PathBuf {
    static PROGRAM: OnceLock<PathBuf> = OnceLock::new();
    PROGRAM.get_or_init(|| {
        let folder = here().join("../../apps/embed-c");
        let sources = ["main.c", "server.c", "client.c", "pool.c"].map(|name| folder.join(name));
        let flags = pkg_config("--cflags");
        let mut flags: Vec<&str> = flags.iter().map(String::as_str).collect();
        flags.extend(["-std=gnu11", "-DOWNS_EAL"]);
        compile("embed-c", &sources, &flags)
    })
}

/// A configuration, in a file that goes with the test.
fn config(device: &str, address: &str, cores: u16) -> NamedTempFile {
    let text = format!(
        "[port]\ndevice.{device}\nring_size = 256\nrx_frames = 2048\ntx_frames = 2048\n[core]\ncount = {cores}\n\
         [net]\naddress = \"{address}/24\"\n[limits]\nqueue_pairs = 32\nhalf_open = 32\n"
    );
    let file = NamedTempFile::new().expect("a writable folder");
    fs::write(&file, text).expect("a writable file");
    file
}

fn text(file: &NamedTempFile) -> &str {
    file.path().to_str().expect("text")
}

fn arguments<'a>(lcores: &'a str, prefix: &'a str, rest: &[&'a str]) -> Vec<&'a str> {
    [&["--lcores", lcores, "--file-prefix", prefix][..], EAL, rest].concat()
}

/// Another processor than the first, where there is one.
fn second_processor() -> usize {
    usize::from(std::thread::available_parallelism().is_ok_and(|count| count.get() > 1))
}

/// Returns whether DPDK is installed, and prints a line past the capture of a test's output if not.
fn dpdk_is_here() -> bool {
    if !has_dpdk() {
        writeln!(std::io::stderr(), "\nSKIPPED: embed-c: no DPDK").expect("a terminal");
    }
    has_dpdk()
}

/// Two lcores, each with a worker of both stacks.
#[test]
fn a_program_that_owns_dpdk_serves_and_checks_over_rings() {
    if !dpdk_is_here() {
        return;
    }
    let (far, near) = (config("ring = {}", "10.99.4.2", 2), config("ring = {}", "10.99.4.1", 2));
    let prefix = format!("embed-c-{}", std::process::id());
    let lcores = format!("0@0,1@{}", second_processor());
    let rest = ["--", "both", text(&far), text(&near), "10.99.4.2:4791", "8"];
    assert_eq!(printed(program(), &arguments(&lcores, &prefix, &rest)), DONE);
}

/// The ports are the program's own, made by its EAL arguments; the stack gets their names.
#[test]
fn two_programs_that_own_their_ports_talk_over_memif() {
    if !dpdk_is_here() {
        return;
    }
    let device = "dpdk = { name = \"net_memif0\" }";
    let (server, client) = (config(device, "10.99.5.1", 1), config(device, "10.99.5.2", 1));
    let id = std::process::id();
    let socket = std::env::temp_dir().join(format!("embed-c-{id}.sock"));
    let vdev = |role| format!("--vdev=net_memif0,role={role},socket={},socket-abstract=no", socket.display());
    let prefixes = [format!("embed-c-{id}-server"), format!("embed-c-{id}-client")];
    let (vdev, other) = (vdev("server"), vdev("client"));
    let rest = [vdev.as_str(), "--", "server", text(&server), "10.99.5.1:4791", "1"];
    let mut serving = Command::new("timeout")
        .arg("100")
        .arg(program())
        .args(arguments("0@0", &prefixes[0], &rest))
        .stdout(Stdio::piped())
        .spawn()
        .expect("the server starts");
    let mut said = String::new();
    let mut lines = std::io::BufReader::new(serving.stdout.take().expect("its output"));
    std::io::BufRead::read_line(&mut lines, &mut said).expect("a line");
    assert_eq!(said, "serving\n");
    let rest = [other.as_str(), "--", "client", text(&client), "10.99.5.1:4791", "8"];
    let done = printed(program(), &arguments(&format!("0@{}", second_processor()), &prefixes[1], &rest));
    assert_eq!(done, DONE);
    assert!(serving.wait().expect("the server ends").success());
    let _ = fs::remove_file(socket);
}

/// One clear line and status 2 or 1, for what a user gets wrong.
#[test]
fn what_cannot_be_used_is_named() {
    if !dpdk_is_here() {
        return;
    }
    let prefix = format!("embed-c-{}-wrong", std::process::id());
    let said = |rest: &[&str]| {
        let output = built::run(program(), &arguments("0@0", &prefix, rest));
        (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
    };
    let (code, line) = said(&["--", "client", "/no/such.toml", "ten"]);
    assert!(code == Some(2) && line.contains("ADDRESS:PORT"), "{line}");
    let (code, line) = said(&["--", "client", "/no/such.toml", "10.0.0.1:1"]);
    assert!(code == Some(1) && line.contains("/no/such.toml"), "{line}");
    let missing = config("dpdk = { name = \"net_nobody9\" }", "10.99.6.1", 1);
    let (code, line) = said(&["--", "client", text(&missing), "10.0.0.1:1"]);
    assert!(code == Some(1) && line.contains("net_nobody9"), "{line}");
    let many = config("tap = { interface = \"embedc0\" }", "10.99.6.1", 1);
    let (code, line) = said(&["--", "server", text(&many), "10.0.0.1"]);
    assert!(code == Some(2) && line.contains("ADDRESS:PORT"), "{line}");
}
