//! Two ends of a veth pair in a network namespace of its own, and processes on them that a test may
//! kill and stop.
//!
//! The namespace belongs to a process that ends with the test, so nothing is left behind. A raw
//! socket on an interface outlives its process's end by nothing: the other end notices only
//! silence. Every wait has a deadline. One test runs at a time on the machine, since two polled
//! loops use two processors.

use std::fs::File;
use std::io::{BufRead, BufReader, Read, Write};
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, geteuid, kill_process};
use tempfile::TempDir;

/// The limit for anything that hangs. The slowest step takes a few seconds on a busy machine.
const DEADLINE: Duration = Duration::from_secs(60);

/// The interval of polling for the end of a process.
const POLL_INTERVAL: Duration = Duration::from_millis(5);

/// The server's address.
pub const SERVER: &str = "10.99.4.1";

/// The namespace.
pub struct Lab {
    folder: TempDir,
    holder: Child,
    _lock: File,
}

impl Lab {
    /// A namespace with two ends of a cable. Returns `None`, and prints why, where there can be
    /// none.
    pub fn new() -> Option<Self> {
        let path = std::env::temp_dir().join("ironwarp-vdev.lock");
        // Another user may own it.
        let lock = File::open(&path).or_else(|_| File::create(&path)).expect("a lock file");
        lock.lock().expect("the lock");
        let mut command = Command::new("unshare");
        command.arg("--net");
        if !geteuid().is_root() {
            command.args(["--user", "--map-root-user"]);
        }
        let cable = "ip link add iwv0 type veth peer name iwv1 && ip link set iwv0 up && ip link set iwv1 up \
                     && echo ready && exec cat";
        command.args(["--", "setpriv", "--pdeathsig", "KILL", "--", "sh", "-c", cable]);
        let mut holder =
            command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("unshare, of util-linux");
        let mut ready = String::new();
        let out = holder.stdout.as_mut().expect("piped");
        BufReader::new(out).read_line(&mut ready).expect("text");
        if ready != "ready\n" {
            let _ = holder.wait();
            writeln!(std::io::stderr(), "\nSKIPPED: no network namespace with a veth pair")
                .expect("a terminal");
            return None;
        }
        let lab = Lab { folder: TempDir::new().expect("a writable folder"), holder, _lock: lock };
        for (role, host) in [("server", 1), ("client", 2)] {
            let device = format!("af_packet = {{ interface = \"iwv{}\" }}", host - 1);
            lab.configure(role, &device, host, "");
        }
        Some(lab)
    }

    /// Writes a configuration.
    pub fn configure(&self, name: &str, device: &str, host: u8, more: &str) {
        let text = format!(
            "[eal]\nhugepages = \"never\"\nmemory_mib = 128\n\
             [port]\ndevice.{device}\nring_size = 256\nrx_frames = 2048\ntx_frames = 2048\n\
             [net]\naddress = \"10.99.4.{host}/24\"\n[core]\nidle = \"yield\"\n\
             [tcp]\nuser_timeout_ms = 3000\nkeep_alive = {{ idle_s = 1, interval_s = 1, probes = 2 }}\n{more}"
        );
        std::fs::write(self.file(name), text).expect("a writable folder");
    }

    /// A file of this test.
    pub fn file(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Starts iwarp-ping in the namespace, with a configuration of this test.
    pub fn start(&self, role: &str, config: &str, line: &str) -> Process {
        let pid = self.holder.id().to_string();
        let mut command = Command::new("nsenter");
        command.args(["--target", &pid, "--net"]);
        if !geteuid().is_root() {
            command.args(["--user", "--preserve-credentials"]);
        }
        // Each step replaces the process, so signals reach the program itself.
        command.args(["--", "setpriv", "--pdeathsig", "KILL", "--", env!("CARGO_BIN_EXE_iwarp-ping")]);
        command.arg(format!("--{role}")).arg("--config").arg(self.file(config));
        command.args(line.split(' ').filter(|word| !word.is_empty()));
        command.env("RUNTIME_DIRECTORY", self.folder.path()).stdin(Stdio::null());
        let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
        Process::of(child.expect("nsenter, of util-linux"))
    }

    /// Starts a server, and waits until it listens.
    pub fn server(&self, line: &str) -> Process {
        let mut server = self.start("server", "server", line);
        server.line_with("listening");
        server
    }

    /// Runs a client that must succeed.
    #[track_caller]
    pub fn pinged(&self, line: &str) {
        let ended = self.start("client", "client", &format!("-a {SERVER} {line}")).ended();
        assert!(ended.status.success(), "{line}: {ended:?}");
    }
}

impl Drop for Lab {
    fn drop(&mut self) {
        let _ = self.holder.kill();
        let _ = self.holder.wait();
    }
}

/// A process of the namespace.
pub struct Process {
    child: Child,
    lines: Receiver<String>,
    errors: Receiver<String>,
}

/// A process that has ended, and the rest of what it printed.
#[derive(Debug)]
pub struct Ended {
    pub status: ExitStatus,
    pub out: String,
    pub errors: String,
}

impl Process {
    fn of(mut child: Child) -> Self {
        let lines = lines_of(child.stdout.take().expect("piped"));
        let errors = lines_of(child.stderr.take().expect("piped"));
        Process { child, lines, errors }
    }

    /// Waits for a line with these words.
    #[track_caller]
    pub fn line_with(&mut self, words: &str) -> String {
        let mut seen = Vec::new();
        loop {
            match self.lines.recv_timeout(DEADLINE) {
                Ok(line) if line.contains(words) => return line,
                Ok(line) => seen.push(line),
                Err(_) => {
                    panic!("no line with {words}: {seen:?} {:?}", self.errors.try_iter().collect::<Vec<_>>())
                }
            }
        }
    }

    /// Sends a signal.
    pub fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).expect("a running process");
    }

    /// Kills it, as the kernel does when memory is short, and waits until it is gone.
    pub fn kill(self) {
        self.signal(Signal::KILL);
        assert_eq!(self.ended().status.code(), None, "it ended by itself");
    }

    /// Waits until it has ended.
    #[track_caller]
    pub fn ended(mut self) -> Ended {
        let deadline = Instant::now() + DEADLINE;
        let status = loop {
            if let Some(status) = self.child.try_wait().expect("its status") {
                break status;
            }
            assert!(Instant::now() < deadline, "it hangs");
            std::thread::sleep(POLL_INTERVAL);
        };
        let text = |lines: &Receiver<String>| lines.iter().collect::<Vec<_>>().join("\n");
        Ended { status, out: text(&self.lines), errors: text(&self.errors) }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The lines of a pipe, read by a thread so that waiting for them has a deadline.
fn lines_of(pipe: impl Read + Send + 'static) -> Receiver<String> {
    let (send, receive) = channel();
    std::thread::spawn(move || {
        for line in BufReader::new(pipe).lines().map_while(Result::ok) {
            if send.send(line).is_err() {
                return;
            }
        }
    });
    receive
}
