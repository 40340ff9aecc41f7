//! A server and its clients as separate processes over memif, as on two machines, and pairs over
//! DPDK devices.

use std::io::{BufRead, BufReader, Read, Write};
use std::path::PathBuf;
use std::process::{Child, ChildStderr, Command, Output, Stdio};
use std::sync::Mutex;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use rustix::process::geteuid;
use serde_json::Value;
use tempfile::TempDir;

/// One device at a time: the machine may have two processors.
static SERIAL: Mutex<()> = Mutex::new(());
/// Seconds after which a process is killed, by `timeout`, and the test fails.
const DEADLINE: &str = "30";

/// The folder of one test with the configurations of both ends.
struct Lab(TempDir);

impl Lab {
    fn new() -> Self {
        let lab = Lab(TempDir::new().expect("a writable folder"));
        for (role, address) in [("server", "10.99.0.1"), ("client", "10.99.0.2")] {
            let text = format!(
                "[eal]\nhugepages = \"never\"\nmemory_mib = 256\n\
                 [port]\ndevice.memif = {{ role = \"{role}\", socket = {:?} }}\n\
                 [net]\naddress = \"{address}/24\"\n[core]\nidle = \"yield\"\n",
                lab.file("m.sock")
            );
            std::fs::write(lab.file(role), text).expect("a writable folder");
        }
        lab
    }

    fn file(&self, name: &str) -> String {
        self.0.path().join(name).display().to_string()
    }

    fn command(&self, line: &str) -> Command {
        self.command_within(DEADLINE, line)
    }

    fn command_within(&self, deadline: &str, line: &str) -> Command {
        let mut command = Command::new("timeout");
        command
            .args(["--foreground", "--kill-after=1", deadline, env!("CARGO_BIN_EXE_iwarp-perf")])
            .args(line.split(' '));
        // DPDK never removes its files; they are removed with the folder.
        command.env("RUNTIME_DIRECTORY", self.0.path());
        command
    }

    fn run(&self, line: &str) -> Output {
        self.command(line).output().expect("timeout starts")
    }

    fn client(&self, line: &str) -> Output {
        self.run(&format!("{line} --config {} --connect 10.99.0.1", self.file("client")))
    }

    fn measured(&self, line: &str, connect: bool) -> Value {
        let file = self.file("out.json");
        let warmup = if line.contains("--warmup") { "" } else { " --warmup 5" };
        let whole = format!("{line}{warmup} --json {file}");
        let output = if connect { self.client(&whole) } else { self.run(&whole) };
        assert_eq!(output.status.code(), Some(0), "{line}: {}", String::from_utf8_lossy(&output.stderr));
        let text = std::fs::read_to_string(&file).expect("written");
        serde_json::from_str::<Value>(&text).expect("JSON")["results"][0].clone()
    }
}

/// A running server and its standard output.
struct Server(Child, BufReader<Box<dyn Read>>);

impl Server {
    fn start(lab: &Lab) -> Self {
        Self::start_with(lab, "")
    }

    fn start_with(lab: &Lab, options: &str) -> Self {
        let mut command = lab.command(&format!("server --config {}{options}", lab.file("server")));
        let mut child = command.stdout(Stdio::piped()).spawn().expect("timeout starts");
        let out: Box<dyn Read> = Box::new(child.stdout.take().expect("piped"));
        let mut server = Server(child, BufReader::new(out));
        assert!(server.line().contains("serving"));
        server
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        self.1.read_line(&mut line).expect("text");
        line
    }

    /// Sends Ctrl-C. In the foreground `timeout` forwards it once.
    fn stop(mut self) -> String {
        kill(Pid::from_raw(self.0.id() as i32), Signal::SIGINT).expect("it runs");
        let mut rest = String::new();
        self.1.read_to_string(&mut rest).expect("text");
        // `timeout` returns the exit code of the server.
        assert_eq!(self.0.wait().expect("it ends").code(), Some(0), "{rest}");
        rest
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = kill(Pid::from_raw(self.0.id() as i32), Signal::SIGTERM);
        let _ = self.0.wait();
    }
}

fn serial() -> std::sync::MutexGuard<'static, ()> {
    SERIAL.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

#[test]
fn a_server_serves_one_client_after_another_until_ctrl_c() {
    let (_serial, lab) = (serial(), Lab::new());
    let mut server = Server::start(&lab);
    for test in ["send-lat", "write-bw"] {
        let result = lab.measured(&format!("{test} --iterations 50 --validate"), true);
        assert_eq!((&result["errors"], &result["path"]), (&0.into(), &"memif".into()), "{test}");
        assert!(server.line().contains("the client closed the session"));
    }
    assert!(server.stop().contains("served 2 clients"));
}

#[test]
fn a_server_accepts_connections_for_their_rate() {
    let (_serial, lab) = (serial(), Lab::new());
    let server = Server::start(&lab);
    for options in ["--depth 4", "--size 300 --depth 100"] {
        let result = lab.measured(&format!("conn-rate --iterations 300 {options}"), true);
        assert_eq!((&result["errors"], &result["path"]), (&0.into(), &"memif".into()), "{options}");
        assert!(result["setups_per_s"].as_f64() > Some(0.0), "{options}: {result}");
    }
    assert!(server.stop().contains("served 2 clients"));
}

#[test]
fn a_server_writes_a_capture() {
    let (_serial, lab) = (serial(), Lab::new());
    let file = lab.file("server.pcapng");
    let mut server = Server::start_with(&lab, &format!(" --pcap {file}"));
    lab.measured("send-lat --size 777 --iterations 10 --warmup 0", true);
    assert!(server.line().contains("the client closed the session"));
    server.stop();
    let octets = std::fs::read(&file).expect("a capture");
    // The first block of pcapng, and ten messages in each direction.
    assert_eq!(octets.get(..4), Some(&[0x0a, 0x0d, 0x0d, 0x0a][..]));
    assert!(octets.len() > 20 * 777, "{} bytes", octets.len());
}

#[test]
fn an_error_names_the_socket_of_a_missing_memif_server() {
    let (_serial, lab) = (serial(), Lab::new());
    let output = lab.client("send-lat --iterations 1");
    assert_eq!(output.status.code(), Some(1));
    let stderr = String::from_utf8_lossy(&output.stderr);
    let last = stderr.lines().last().unwrap_or_default();
    let socket = lab.file("m.sock");
    assert!(
        ["the server is not at the memif", &socket, "start the server first"]
            .iter()
            .all(|word| last.contains(word)),
        "{stderr}"
    );
}

#[test]
fn a_server_continues_after_its_output_is_closed() {
    let (_serial, lab) = (serial(), Lab::new());
    let mut server = Server::start(&lab);
    server.1 = BufReader::new(Box::new(std::io::empty()));
    for _ in 0..2 {
        let result = lab.measured("send-lat --iterations 20", true);
        assert_eq!(result["errors"], 0);
    }
    server.stop();
}

#[test]
fn an_error_names_a_port_without_a_listener() {
    let (_serial, lab) = (serial(), Lab::new());
    let _server = Server::start(&lab);
    let output = lab.run(&format!("send-lat --config {} --connect 10.99.0.1:9", lab.file("client")));
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(1), "{stderr}");
    assert!(stderr.contains("10.99.0.1:9: refused"), "{stderr}");
}

#[test]
fn pairs_over_dpdk_devices_check_every_byte() {
    let (_serial, lab) = (serial(), Lab::new());
    for pair in ["memif", "ring"] {
        for options in [
            "send-bw --validate",
            "atomic-bw --qps 2 --cores 2 --words 4",
            "imm-lat",
            "send-inv-lat --qps 2 --validate",
            "conn-rate",
            "smoltcp-lat",
            "smoltcp-bw --validate",
        ] {
            let result = lab.measured(&format!("{options} --pair {pair} --iterations 50"), false);
            assert_eq!((&result["errors"], &result["path"]), (&0.into(), &pair.into()), "{options}");
        }
    }
}

/// The server and the client, each in a network namespace of its own.
#[test]
fn pairs_over_veth_check_every_byte() {
    if !may_create_namespaces() {
        return;
    }
    let (_serial, lab) = (serial(), Lab::new());
    for (pair, device) in [("veth-af_packet", "af_packet"), ("veth-af_xdp", "net_af_xdp0")] {
        for test in ["send-bw --validate", "write-lat --validate", "frame-lat", "conn-rate"] {
            let result = lab.measured(&format!("{test} --pair {pair} --iterations 50"), false);
            assert_eq!(result["errors"], 0, "{test} over {pair}");
            assert_eq!((&result["path"], &result["device"]), (&"veth".into(), &device.into()), "{test}");
        }
    }
    let result = lab.measured("send-bw --pair veth-af_packet --mtu 9000 --validate --iterations 20", false);
    assert_eq!((&result["errors"], &result["mtu"]), (&0.into(), &9000.into()));
    let line = "read-bw --pair veth-af_packet --cores 2 --qps 4 --validate --iterations 50";
    assert_eq!(lab.measured(line, false)["errors"], 0);
}

/// The stack and Linux sockets in one session: loopback sockets too, although the ends are in
/// different namespaces.
#[test]
fn the_suite_runs_over_veth() {
    if !may_create_namespaces() {
        return;
    }
    let (_serial, lab) = (serial(), Lab::new());
    let file = lab.file("suite.json");
    let mut command =
        lab.command_within("300", &format!("suite --quick --iterations 20 --pair veth-af_xdp --json {file}"));
    let output = command.output().expect("timeout starts");
    let text = std::fs::read_to_string(&file).expect("written");
    let json: Value = serde_json::from_str(&text).expect("JSON");
    let results = json["results"].as_array().expect("a list");
    // Raw frames may be lost; nothing else may. A machine with other work says so.
    let stderr = String::from_utf8_lossy(&output.stderr);
    let is_disturbed = output.status.code() == Some(3) && stderr.contains("moved by more than 20 %");
    assert!(output.status.code() == Some(0) || is_disturbed, "{stderr}");
    assert!(results.iter().any(|result| result["test"] == "tcp-bw" && result["path"] == "lo"));
    assert!(results.iter().all(|result| result["mtu"] == 1500), "XDP sockets carry no jumbo frames");
}

/// Neither Ctrl-C nor a killed parent leaves an interface or a namespace behind.
#[test]
fn the_namespaces_of_a_pair_end_with_the_run() {
    if !may_create_namespaces() {
        return;
    }
    let (_serial, lab) = (serial(), Lab::new());
    for signal in [Signal::SIGINT, Signal::SIGKILL] {
        let (mut child, mut log, mut seen) =
            started(&lab, "send-lat --pair veth-af_packet --duration 600 --log info");
        let namespaces = namespaces_of_children(child.id());
        assert!(namespaces.len() >= 3, "ours, the client's and the server's: {namespaces:?}");
        let parent = children(child.id())[0];
        kill(Pid::from_raw(parent as i32), signal).expect("it runs");
        child.wait().expect("it ends");
        // The client and the server have the other end of this pipe, which closes with the last of
        // them.
        log.read_to_string(&mut seen).expect("text");
        let left: Vec<_> = all_namespaces().into_iter().filter(|one| namespaces[1..].contains(one)).collect();
        assert_eq!(left, Vec::<PathBuf>::new(), "{signal}");
    }
}

#[test]
fn a_pair_over_veth_needs_root() {
    if !may_create_namespaces() {
        return;
    }
    let lab = Lab::new();
    let output = Command::new("setpriv")
        .args(["--bounding-set=-sys_admin", "--inh-caps=-sys_admin", env!("CARGO_BIN_EXE_iwarp-perf")])
        .args(["send-lat", "--pair", "veth-af_packet"])
        .env("RUNTIME_DIRECTORY", lab.0.path())
        .output()
        .expect("setpriv, of util-linux");
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!((output.status.code(), stderr.lines().count()), (Some(1), 1), "{stderr}");
    assert!(stderr.contains("no veth pair: a network namespace needs root"), "{stderr}");
}

/// Not a connection that failed, which is only the consequence.
#[test]
fn an_error_names_a_server_that_was_killed_while_connections_are_set_up() {
    if !may_create_namespaces() {
        return;
    }
    let (_serial, lab) = (serial(), Lab::new());
    let (mut child, mut log, mut seen) =
        started(&lab, "conn-rate --pair veth-af_packet --duration 600 --log info");
    let (_, rest) = seen.split_once("the server is process ").expect("the client logs it");
    let server = rest.lines().next().and_then(|pid| pid.trim().parse().ok()).expect("a number");
    kill(Pid::from_raw(server), Signal::SIGKILL).expect("it runs");
    log.read_to_string(&mut seen).expect("text");
    assert_eq!(child.wait().expect("it ends").code(), Some(1));
    let last = seen.lines().last().unwrap_or_default();
    assert!(last.contains("the server was killed by SIGKILL"), "{seen}");
}

/// Starts a run, and returns its standard error, read up to the first slice.
fn started(lab: &Lab, line: &str) -> (Child, BufReader<ChildStderr>, String) {
    let mut command = lab.command(line);
    let mut child = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().expect("timeout starts");
    let mut log = BufReader::new(child.stderr.take().expect("piped"));
    let mut seen = String::new();
    while !seen.contains("a slice of ") {
        assert!(log.read_line(&mut seen).expect("text") > 0, "{seen}");
    }
    (child, log, seen)
}

/// Returns whether this process may create network namespaces, and prints a line if not.
fn may_create_namespaces() -> bool {
    if !geteuid().is_root() {
        writeln!(std::io::stderr(), "\nSKIPPED: pairs over veth need root for network namespaces")
            .expect("a terminal");
    }
    geteuid().is_root()
}

fn children(parent: u32) -> Vec<u32> {
    let text = std::fs::read_to_string(format!("/proc/{parent}/task/{parent}/children")).unwrap_or_default();
    text.split_whitespace().filter_map(|pid| pid.parse().ok()).collect()
}

/// Returns the network namespaces of this process and of all descendants of `root`, this one's
/// first.
fn namespaces_of_children(root: u32) -> Vec<PathBuf> {
    let mut pids = vec![root];
    let mut next = 0;
    while next < pids.len() {
        pids.extend(children(pids[next]));
        next += 1;
    }
    let mut found = vec![namespace(std::process::id()).expect("this process exists")];
    for one in pids.into_iter().filter_map(namespace) {
        if !found.contains(&one) {
            found.push(one);
        }
    }
    found
}

fn namespace(pid: u32) -> Option<PathBuf> {
    std::fs::read_link(format!("/proc/{pid}/ns/net")).ok()
}

/// Returns the network namespaces of all processes.
fn all_namespaces() -> Vec<PathBuf> {
    let entries = std::fs::read_dir("/proc").expect("procfs").flatten();
    entries.filter_map(|entry| namespace(entry.file_name().to_str()?.parse().ok()?)).collect()
}

/// In a pair both ends sleep; with a standalone server only the client does.
#[test]
fn ends_that_sleep_until_events_receive_every_byte() {
    let (_serial, lab) = (serial(), Lab::new());
    for test in ["write-lat", "send-bw"] {
        let line = format!("{test} --pair memif --events --iterations 20 --warmup 5 --validate");
        let result = lab.measured(&line, false);
        assert_eq!((&result["errors"], &result["wait"]), (&0.into(), &"block".into()), "{test}");
    }
    let _server = Server::start(&lab);
    for test in ["send-lat", "write-lat", "read-bw"] {
        let line = format!("{test} --events --iterations 20 --warmup 5 --validate");
        assert_eq!(lab.measured(&line, true)["errors"], 0, "{test}");
    }
}

/// RFC 5044 s7.1.1: a CRC is in use when either end asks, markers are sent to the end that asks.
/// The report states the result of two configurations that ask for different things.
#[test]
fn the_report_has_the_negotiated_framing() {
    let (_serial, lab) = (serial(), Lab::new());
    let asked = std::fs::read_to_string(lab.file("client")).expect("a configuration");
    std::fs::write(lab.file("client"), asked + "[mpa]\ncrc = false\nmarkers = true\n")
        .expect("a writable folder");
    let _server = Server::start(&lab);
    let result = lab.measured("write-bw --iterations 20 --validate", true);
    assert_eq!((&result["crc"], &result["markers"]), (&true.into(), &false.into()));
    let notes = result["notes"].as_array().expect("a list");
    assert!(notes.iter().any(|note| note == "markers one way only"), "{notes:?}");
}

#[test]
fn an_application_on_its_own_processor_receives_every_byte() {
    let (_serial, lab) = (serial(), Lab::new());
    let result = lab.measured("send-lat --pair ring --iterations 20 --validate --app-core 0", false);
    assert_eq!(result["errors"], 0);
}
