//! Server and client as two processes over memif, as on two machines.

use std::io::{BufRead, BufReader, Read};
use std::path::PathBuf;
use std::process::{Child, ChildStdout, Command, Output, Stdio};
use std::time::{Duration, Instant};

use crate::memif_lab::{self, Side};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketType, accept, bind, listen, socket};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

const START_TIMEOUT: Duration = Duration::from_secs(60);

/// The addresses of both sides, for both families.
const SERVER: &str = "10.99.0.1";
const SERVER6: &str = "fd00:99::1";

/// Both sides, with addresses of both families.
struct Lab(memif_lab::Lab);

impl Lab {
    fn new() -> Self {
        Lab(memif_lab::Lab::new(|role, socket| {
            let host = if role == "server" { 1 } else { 2 };
            let net = format!(
                "address = \"10.99.0.{host}/24\"\naddresses = [\"fd00:99::{host}/64\"]\ndad_probes_ipv6 = 0\n"
            );
            let device = format!("memif = {{ role = \"{role}\", socket = {socket:?} }}");
            Side { device, port: "", net }
        }))
    }

    fn file(&self, name: &str) -> PathBuf {
        self.0.file(name)
    }

    fn command(&self, role: &str, line: &str) -> Command {
        self.0.command(role, line)
    }

    fn client(&self, line: &str) -> Output {
        self.command("client", line).output().expect("timeout starts")
    }

    /// The summary of a client that succeeds.
    #[track_caller]
    fn pinged(&self, line: &str) -> Value {
        let output = self.client(&format!("{line} --json"));
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(0), "{line}: {said}");
        serde_json::from_slice(&output.stdout).expect("one line of JSON")
    }
}

/// A process that runs in the background.
struct Running {
    child: Child,
    out: BufReader<ChildStdout>,
}

/// The end of a process: its status, its output from here on, and its own error lines. DPDK adds
/// others.
struct Ended(Option<i32>, String, String);

impl Running {
    fn start(lab: &Lab, role: &str, line: &str) -> Self {
        let mut command = lab.command(role, line);
        let mut child =
            command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("timeout starts");
        let out = BufReader::new(child.stdout.take().expect("piped"));
        Running { child, out }
    }

    /// A server that listens.
    fn server(lab: &Lab, line: &str) -> Self {
        let mut server = Self::start(lab, "server", line);
        let first = server.line();
        assert!(first.contains("listening"), "{first}{:?}", server.ended().2);
        server
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        self.out.read_line(&mut line).expect("text");
        line
    }

    /// Ctrl-C, which `timeout` passes on.
    fn interrupt(self) -> Ended {
        kill_process(Pid::from_child(&self.child), Signal::INT).expect("it runs");
        self.ended()
    }

    fn ended(mut self) -> Ended {
        let (mut said, mut errors) = (String::new(), String::new());
        self.out.read_to_string(&mut said).expect("text");
        self.child.stderr.take().expect("piped").read_to_string(&mut errors).expect("text");
        let own =
            errors.lines().filter(|line| line.starts_with("iwarp-ping: ")).collect::<Vec<_>>().join("\n");
        Ended(self.child.wait().expect("its status").code(), said, own)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn texts_of_every_size_come_back_whole_to_one_client_after_another() {
    let lab = Lab::new();
    let server = Running::server(&lab, "--persistent --verify --json");
    let sizes = [(1, 200), (64, 200), (100, 200), (65_536, 50)];
    for (bytes, count) in sizes {
        let summary = lab.pinged(&format!("-a {SERVER} -S {bytes} -C {count} --verify"));
        assert_eq!((&summary["pings"], &summary["bytes"]), (&count.into(), &bytes.into()), "{summary}");
        assert_eq!(summary["verified"], true);
        assert!(summary["rtt_ns"]["p50"].as_u64() <= summary["rtt_ns"]["max"].as_u64(), "{summary}");
    }
    let Ended(status, said, errors) = server.interrupt();
    assert_eq!((status, errors.as_str()), (Some(0), ""));
    let summary: Value = serde_json::from_str(&said).expect("one line of JSON");
    let bytes: i64 = sizes.iter().map(|(bytes, count)| bytes * count).sum();
    assert_eq!((&summary["served"], &summary["failed"]), (&4.into(), &0.into()), "{summary}");
    assert_eq!((&summary["pings"], &summary["bytes"]), (&650.into(), &bytes.into()), "{summary}");
}

#[test]
fn a_server_that_is_not_persistent_serves_one_client_and_ends_with_it() {
    let lab = Lab::new();
    let server = Running::server(&lab, "-C 3 -V -S 100");
    let output = lab.client(&format!("-a {SERVER} -C 3 -V"));
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
    for words in ["3 pings of 100 bytes", "every byte checked", "p99.9"] {
        assert!(said.contains(words), "{words} is not in: {said}");
    }
    let Ended(status, said, _) = server.ended();
    assert_eq!((status, said.as_str()), (Some(0), "1 clients served, 0 failed; 3 pings, 300 bytes\n"));
}

#[test]
fn both_ends_speak_ipv6() {
    let lab = Lab::new();
    let server = Running::server(&lab, "-a :: -p 4242");
    let summary = lab.pinged(&format!("-a {SERVER6} -p 4242 -C 20 -V -S 5000"));
    assert_eq!((&summary["pings"], &summary["server"]), (&20.into(), &"[fd00:99::1]:4242".into()));
    assert_eq!(server.ended().0, Some(0));
}

/// The same texts as `rping` shows.
#[test]
fn both_ends_print_the_texts_when_asked_and_nothing_when_told_to_be_quiet() {
    let lab = Lab::new();
    let mut server = Running::start(&lab, "server", "-v");
    assert!(server.line().contains("listening at 10.99.0.1:7174"));
    let output = lab.client(&format!("-a {SERVER} -C 2 -S 24 -v"));
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(
        said.starts_with("ping data: rdma-ping-0: ABCDEFGHIJ\nping data: rdma-ping-1: BCDEFGHIJK\n"),
        "{said}"
    );
    let Ended(status, said, _) = server.ended();
    assert_eq!(status, Some(0));
    assert!(
        said.starts_with("server ping data: rdma-ping-0: ABCDEFGHIJ\nserver ping data: rdma-ping-1: B"),
        "{said}"
    );
    drop(lab);
    let lab = Lab::new();
    let server = Running::server(&lab, "-P");
    let output = lab.client(&format!("-a {SERVER} -C 2 --quiet"));
    assert_eq!((output.status.code(), output.stdout.as_slice()), (Some(0), &b""[..]));
    assert_eq!(server.interrupt().0, Some(0));
    let quiet = Running::start(&lab, "server", "--quiet");
    let start = Instant::now();
    // It prints nothing; its socket shows that it has started.
    while !lab.file("m.sock").exists() {
        assert!(start.elapsed() < START_TIMEOUT, "the server does not start");
        std::thread::yield_now();
    }
    let Ended(status, said, errors) = quiet.interrupt();
    assert_eq!((status, said.as_str(), errors.as_str()), (Some(0), "", ""));
}

/// Unlimited pings end with Ctrl-C. The connection closes in order and the server reports no fault.
#[test]
fn ctrl_c_prints_what_was_done_and_leaves_in_order() {
    let lab = Lab::new();
    let server = Running::server(&lab, "");
    let mut client = Running::start(&lab, "client", &format!("-a {SERVER} -v -S 20"));
    assert!(client.line().contains("rdma-ping-0"));
    let Ended(status, said, errors) = client.interrupt();
    assert_eq!(status, Some(0), "{errors}");
    let summary: Vec<&str> = said.lines().rev().take(2).collect();
    assert!(summary[1].contains("pings of 20 bytes") && summary[0].contains("p99.9"), "{summary:?}");
    let Ended(status, said, errors) = server.ended();
    assert_eq!(status, Some(0), "{errors}");
    assert!(said.starts_with("1 clients served, 0 failed"), "{said}");
}

/// A process listens on the socket and sends nothing: the client waits for the link until Ctrl-C.
#[test]
fn ctrl_c_ends_the_wait_for_a_link() {
    for (options, status, words) in [("", 0, ""), ("-C 5", 1, "stopped after 0 of 5 pings")] {
        let lab = Lab::new();
        let mute = socket(AddressFamily::UNIX, SocketType::SEQPACKET, None).expect("a socket");
        bind(&mute, &SocketAddrUnix::new(lab.file("m.sock")).expect("a short path")).expect("a new file");
        listen(&mute, 1).expect("bound");
        let client = Running::start(&lab, "client", &format!("-a {SERVER} -V {options}"));
        let _connected = accept(&mute).expect("the client's device");
        let Ended(ended, said, errors) = client.interrupt();
        assert_eq!((ended, errors.contains("no link")), (Some(status), false), "{errors}");
        assert!(errors.contains(words) && said.starts_with("0 pings of 100 bytes"), "{errors}{said}");
        assert!(!said.contains("checked"), "{said}");
    }
}

#[test]
fn a_number_of_pings_cut_short_is_a_failure_at_both_ends() {
    let lab = Lab::new();
    let server = Running::server(&lab, "-C 1000000000");
    let mut client = Running::start(&lab, "client", &format!("-a {SERVER} -v -S 20 -C 1000000000"));
    assert!(client.line().contains("rdma-ping-0"));
    let Ended(status, said, errors) = client.interrupt();
    assert_eq!(status, Some(1));
    assert!(errors.contains("stopped after") && errors.contains("of 1000000000 pings"), "{errors}");
    assert!(said.contains("pings of 20 bytes"), "{said}");
    let Ended(status, _, errors) = server.ended();
    assert_eq!(status, Some(1));
    assert!(errors.contains("10.99.0.2:") && errors.contains("where 1000000000 were to come"), "{errors}");
}

/// A text that is longer than the server's buffer: each side reports it, and a persistent server
/// continues.
#[test]
fn a_client_that_wants_too_much_is_given_up_and_the_next_one_served() {
    let lab = Lab::new();
    let server = Running::server(&lab, "-P -S 100");
    let output = lab.client(&format!("-a {SERVER} -S 101 -C 1"));
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("10.99.0.1:7174: the connection ended in ping 0: the peer reset it"), "{said}");
    assert_eq!(lab.pinged(&format!("-a {SERVER} -S 100 -C 5"))["pings"], 5);
    let Ended(status, said, errors) = server.interrupt();
    assert_eq!((status, said.as_str()), (Some(0), "1 clients served, 1 failed; 5 pings, 500 bytes\n"));
    assert!(errors.contains("an advertisement of 101 bytes, where 1 to 100 are taken"), "{errors}");
}

#[test]
fn a_server_that_is_not_there_is_named() {
    let lab = Lab::new();
    let server = Running::server(&lab, "-P");
    let output = lab.client(&format!("-a {SERVER} -p 9 -C 1"));
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("10.99.0.1:9: refused: is a server there?"), "{said}");
    assert_eq!(server.interrupt().0, Some(0));
}
