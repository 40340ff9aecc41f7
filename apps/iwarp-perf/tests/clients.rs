//! Clients of one server, as real processes: a memif for each, which needs no DPDK.

use std::io::{BufRead, BufReader, Read};
use std::process::{Child, ChildStderr, ChildStdout, Command, Output, Stdio};
use std::time::{Duration, Instant};

use ironwarp::{
    Access, AlignedBuf, Config, Context, Event, QpAttr, QueuePair, RecvWr, Region, SendWr, Stack, Worker,
};
use ironwarp_bench::{Case, PathKind, Test};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;
use tempfile::TempDir;

/// Seconds after which a process is killed, by `timeout`, and the test fails.
const DEADLINE: &str = "60";
/// The silence that the server allows, in seconds: more than a busy machine withholds a processor.
const TIMEOUT: u64 = 5;
/// The network of each client; the server is `.1`, the client `.2`.
const NETWORKS: [&str; 2] = ["10.99.0", "10.98.0"];

/// The folder of one test, with the configurations of a server and of a client on each of its
/// networks.
struct Lab(TempDir);

impl Lab {
    fn new() -> Self {
        let lab = Lab(TempDir::new().expect("a writable folder"));
        let [first, second] = [0, 1].map(|client| lab.device("server", client));
        let [one, two] = NETWORKS;
        let server = format!(
            "[port]\n{first}\n[net]\naddress = \"{one}.1/24\"\n[core]\nidle = \"sleep\"\n\
             [[fabrics]]\nport.{second}\nnet = {{ address = \"{two}.1/24\" }}\n"
        );
        std::fs::write(lab.file("server"), server).expect("a writable folder");
        for client in [0, 1] {
            std::fs::write(lab.file(&format!("client{client}")), lab.client_config(client))
                .expect("a writable folder");
        }
        lab
    }

    fn device(&self, role: &str, client: usize) -> String {
        let socket = self.file(&format!("m{client}.sock"));
        format!("device.memif = {{ role = \"{role}\", socket = {socket:?} }}")
    }

    fn client_config(&self, client: usize) -> String {
        let (device, network) = (self.device("client", client), NETWORKS[client]);
        format!("[port]\n{device}\n[net]\naddress = \"{network}.2/24\"\n[core]\nidle = \"sleep\"\n")
    }

    fn file(&self, name: &str) -> String {
        self.0.path().join(name).display().to_string()
    }

    fn command(&self, line: &str) -> Command {
        let mut command = Command::new("timeout");
        command.args(["--foreground", "--kill-after=1", DEADLINE, env!("CARGO_BIN_EXE_iwarp-perf")]);
        command.args(line.split(' ')).env("RUNTIME_DIRECTORY", self.0.path());
        command
    }

    fn client(&self, client: usize, line: &str) -> Command {
        let (config, network) = (self.file(&format!("client{client}")), NETWORKS[client]);
        self.command(&format!("{line} --config {config} --connect {network}.1"))
    }

    /// Runs a client to its end, which must be without errors.
    fn measure(&self, client: usize, line: &str) {
        let json = self.file(&format!("out{client}.json"));
        let output = self.client(client, &format!("{line} --json {json}")).output().expect("timeout starts");
        assert_eq!(output.status.code(), Some(0), "{line}: {}", stderr_of(&output));
        let text = std::fs::read_to_string(&json).expect("written");
        let report: Value = serde_json::from_str(&text).expect("JSON");
        assert_eq!(report["results"][0]["errors"], 0, "{line}");
    }
}

fn stderr_of(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// A running server and its standard output.
struct Server(Child, BufReader<ChildStdout>);

impl Server {
    fn start(lab: &Lab, options: &str) -> Self {
        let line = format!("server --config {} --client-timeout {TIMEOUT}{options}", lab.file("server"));
        let mut child = lab.command(&line).stdout(Stdio::piped()).spawn().expect("timeout starts");
        let out = BufReader::new(child.stdout.take().expect("piped"));
        let mut server = Server(child, out);
        assert!(server.line().contains("serving"));
        server
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        self.1.read_line(&mut line).expect("text");
        line
    }

    /// Sends Ctrl-C and returns what the server prints until it ends.
    fn stop(mut self) -> String {
        kill(Pid::from_raw(self.0.id() as i32), Signal::SIGINT).expect("it runs");
        let mut rest = String::new();
        self.1.read_to_string(&mut rest).expect("text");
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

/// A client that measures until it is ended.
struct Running(Child, BufReader<ChildStderr>);

impl Running {
    /// Starts a client, and returns when its first slice has begun.
    fn start(lab: &Lab, client: usize, test: &str) -> Self {
        let mut command = lab.client(client, &format!("{test} --run-infinitely --log info"));
        let mut child = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().expect("timeout starts");
        let (mut log, mut seen) = (BufReader::new(child.stderr.take().expect("piped")), String::new());
        while !seen.contains("a slice of ") {
            assert!(log.read_line(&mut seen).expect("text") > 0, "{seen}");
        }
        Running(child, log)
    }

    /// Sends a signal to the process that `timeout` runs. Returns the exit code and the rest of the
    /// log.
    fn end(mut self, signal: Signal) -> (Option<i32>, String) {
        let children = format!("/proc/{0}/task/{0}/children", self.0.id());
        let children = std::fs::read_to_string(children).expect("procfs");
        let parent = children.split_whitespace().next().and_then(|pid| pid.parse().ok()).expect("a child");
        kill(Pid::from_raw(parent), signal).expect("it runs");
        let mut rest = String::new();
        self.1.read_to_string(&mut rest).expect("text");
        (self.0.wait().expect("it ends").code(), rest)
    }
}

/// A client that is made of the library: its control connection is established, and it says what
/// the test says.
struct Hand {
    ctx: Context,
    worker: Worker,
    _stack: Stack,
    qp: QueuePair,
    _memory: Region,
}

impl Hand {
    fn connect(lab: &Lab, client: usize) -> Self {
        let config = Config::from_toml(&lab.client_config(client)).expect("valid");
        let (stack, mut workers) = Stack::builder(config).build().expect("a stack");
        let (mut ctx, pd) = (stack.context().expect("a context"), stack.alloc_pd());
        let cq = ctx.create_cq(256).expect("a queue");
        let attr = QpAttr { send_depth: 64, recv_depth: 32, inline_bytes: 256, ..QpAttr::new(cq) };
        let qp = ctx.create_qp(pd, &attr).expect("a queue pair");
        let memory = AlignedBuf::pages(32 * 256).expect("memory");
        let memory = ctx.register(pd, memory, Access::LOCAL_WRITE).expect("registered");
        for slot in 0..32 {
            let scatter = [memory.slice(slot * 256, 256).expect("in range")];
            ctx.post_recv(qp, &RecvWr::new(0, &scatter)).expect("room");
        }
        let mut hand =
            Hand { ctx, worker: workers.pop().expect("a worker"), _stack: stack, qp, _memory: memory };
        while !hand.worker.link_up() {
            hand.poll();
        }
        let server = format!("{}.1:18515", NETWORKS[client]).parse().expect("an address");
        hand.ctx.connect(qp, server, br#"{"control":2}"#).expect("it starts");
        hand.wait_for(|event| matches!(event, Event::Established { .. }));
        hand
    }

    /// Polls once, and sleeps if there was nothing to do.
    fn poll(&mut self) {
        if self.worker.poll(1).work == 0 {
            self.worker.idle(|| false);
        }
    }

    fn wait_for(&mut self, is_wanted: impl Fn(&Event) -> bool) {
        loop {
            self.poll();
            match self.ctx.poll_event() {
                Some(event) if is_wanted(&event) => return,
                Some(Event::ConnectFailed { reason, .. }) => panic!("{reason:?}"),
                Some(Event::Rejected { private_data, .. }) => panic!("{private_data:?}"),
                _ => {}
            }
        }
    }

    /// Sends heartbeats and nothing else until the server disconnects.
    fn send_heartbeats(&mut self) {
        let mut last = Instant::now();
        loop {
            self.poll();
            if let Some(Event::Disconnected { .. }) = self.ctx.poll_event() {
                return;
            }
            if last.elapsed() > Duration::from_millis(500) {
                last = Instant::now();
                let heartbeat = SendWr::send_inline(0, b"D\0\0\0").unsignaled();
                // The queue pair may be in the error state, which its event reports.
                let _ = self.ctx.post_send(self.qp, &heartbeat);
            }
        }
    }
}

impl Hand {
    /// Sends a message as the client of the library does, whatever credits it has.
    fn say(&mut self, message: &str) {
        let line = format!("{message}\n");
        for part in line.as_bytes().chunks(252) {
            let bytes = [b"D\0\0\0", part].concat();
            // The queue pair may be in the error state already.
            let _ = self.ctx.post_send(self.qp, &SendWr::send_inline(0, &bytes).unsignaled());
            for _ in 0..64 {
                self.worker.poll(1);
            }
        }
    }

    /// Says the same until the server disconnects.
    fn repeat(&mut self, message: &str) {
        while !matches!(self.ctx.poll_event(), Some(Event::Disconnected { .. })) {
            self.say(message);
            std::thread::yield_now();
        }
    }
}

/// The request for a group of one test.
fn prepare(test: Test, bytes: u64) -> String {
    let case = Case::new(test, bytes, 1500, PathKind::Memif);
    serde_json::json!({ "Prepare": { "cases": [case] } }).to_string()
}

#[test]
fn a_second_group_is_refused_and_the_first_one_is_freed() {
    let lab = Lab::new();
    let mut server = Server::start(&lab, "");
    let mut greedy = Hand::connect(&lab, 0);
    greedy.say(&prepare(Test::ConnRate, 0));
    greedy.say(&prepare(Test::ConnRate, 0));
    let line = server.line();
    assert!(line.contains("failed: Prepare of a second group: Release comes first"), "{line}");
    drop(greedy);
    lab.measure(1, "send-lat --iterations 10");
    assert!(server.line().contains("the client closed the session"));
    assert!(server.stop().contains("served 2 clients"));
}

#[test]
fn a_client_that_floods_requests_within_a_slice_is_dropped() {
    let lab = Lab::new();
    let mut server = Server::start(&lab, "");
    let mut flooding = Hand::connect(&lab, 0);
    flooding.say(&prepare(Test::ConnRate, 0));
    flooding.say(r#"{"Start":{"case":0}}"#);
    flooding.repeat(r#""Release""#);
    // It has sent more than it had credits for, or more than the server had receives for.
    let line = server.line();
    assert!(line.contains("the client was dropped: it"), "{line}");
    drop(flooding);
    lab.measure(1, "send-lat --iterations 10");
}

#[test]
fn a_client_whose_slice_never_ends_loses_its_place() {
    let lab = Lab::new();
    let mut server = Server::start(&lab, " --slice-limit 2");
    let mut endless = Hand::connect(&lab, 0);
    endless.say(&prepare(Test::ConnRate, 0));
    endless.say(r#"{"Start":{"case":0}}"#);
    endless.send_heartbeats();
    let line = server.line();
    assert!(line.contains("the client was dropped: a slice took longer than 2 s"), "{line}");
    drop(endless);
    lab.measure(1, "send-lat --iterations 10");
}

/// Its slice begins when it is gone already.
#[test]
fn a_client_that_leaves_behind_its_start_frees_its_place() {
    let lab = Lab::new();
    let mut server = Server::start(&lab, "");
    let mut leaving = Hand::connect(&lab, 0);
    leaving.say(&prepare(Test::ConnRate, 0));
    leaving.say(r#"{"Start":{"case":0}}"#);
    leaving.ctx.disconnect(leaving.qp).expect("it is connected");
    leaving.wait_for(|event| matches!(event, Event::Disconnected { .. }));
    assert!(server.line().contains("10.99.0.2"));
    drop(leaving);
    lab.measure(1, "send-lat --iterations 10");
}

#[test]
fn a_client_beside_another_is_rejected_at_once_as_busy() {
    let lab = Lab::new();
    let mut server = Server::start(&lab, "");
    let first = Running::start(&lab, 0, "write-bw");
    let output = lab.client(1, "send-lat --iterations 10").output().expect("timeout starts");
    assert_eq!(output.status.code(), Some(1));
    let expected = "10.98.0.1:18515: rejected: busy: serves another client";
    assert!(stderr_of(&output).contains(expected), "{}", stderr_of(&output));
    let (code, log) = first.end(Signal::SIGINT);
    assert_eq!(code, Some(0), "{log}");
    assert!(server.line().contains("the client closed the session"));
    lab.measure(1, "send-lat --iterations 10");
    assert!(server.stop().contains("served 2 clients, dropped 0 that were silent, rejected 1 while busy"));
}

#[test]
fn a_client_that_sends_nothing_is_dropped() {
    let lab = Lab::new();
    let mut server = Server::start(&lab, "");
    let mut silent = Hand::connect(&lab, 0);
    silent.wait_for(|event| matches!(event, Event::Disconnected { .. }));
    let line = server.line();
    // No request and no heartbeat: both have the same limit.
    let reasons = ["nothing was heard of it", "the client requested nothing"];
    let is_silent = |reason| line.contains(&format!("dropped; {reason} for {TIMEOUT} s"));
    assert!(reasons.into_iter().any(is_silent), "{line}");
    lab.measure(1, "send-lat --iterations 10");
    assert!(server.stop().contains("served 2 clients, dropped 1 that were silent"));
}

#[test]
fn a_client_that_only_sends_heartbeats_is_dropped() {
    let lab = Lab::new();
    let mut server = Server::start(&lab, "");
    Hand::connect(&lab, 0).send_heartbeats();
    let line = server.line();
    assert!(line.contains(&format!("dropped; the client requested nothing for {TIMEOUT} s")), "{line}");
    lab.measure(1, "send-lat --iterations 10");
    assert!(server.stop().contains("served 2 clients, dropped 1 that were silent"));
}

#[test]
fn a_client_that_is_killed_frees_its_place() {
    let lab = Lab::new();
    let mut server = Server::start(&lab, "");
    for test in ["send-lat", "write-bw --validate", "atomic-bw"] {
        let client = Running::start(&lab, 0, test);
        client.end(Signal::SIGKILL);
        let line = server.line();
        assert!(line.contains("dropped"), "{test}: {line}");
        lab.measure(0, "read-lat --iterations 10");
        assert!(server.line().contains("the client closed the session"), "{test}");
    }
    assert!(server.stop().contains("served 6 clients"));
}

#[test]
fn a_single_context_is_an_error_with_the_limit() {
    let lab = Lab::new();
    let config = lab.file("server");
    let text = std::fs::read_to_string(&config).expect("just written");
    std::fs::write(&config, format!("{text}[limits]\ncontexts = 1\n")).expect("a writable folder");
    let output = lab.command(&format!("server --config {config}")).output().expect("starts");
    assert_eq!(output.status.code(), Some(2));
    assert!(stderr_of(&output).contains("limits.contexts = 1: must be 2 or more"), "{}", stderr_of(&output));
}
