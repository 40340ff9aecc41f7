//! A network namespace for each test, with a responder in it and Linux at the other end of the tap.
//!
//! The responder is the first process of a new namespace, and the client runs in the same one. The
//! namespace has no name, so it ends with its last process, and the tap with the responder, which
//! the kernel kills when the test dies. Only a folder among the build's temporary files remains.
//! One test runs at a time on the machine, because the responder and the test use two processors.
//! Every wait has a deadline.

use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, geteuid, kill_process};

use crate::events::Events;

/// The responder's address. The kernel's end has `LINUX`.
pub const RESPONDER: &str = "10.99.2.1";
const PORT: &str = "4791";
const LINUX: &str = "10.99.2.2/24";
/// The interface of `configs/tap.toml`.
const INTERFACE: &str = "iwtap0";

/// The limit for anything that hangs. The slowest step takes a few seconds on a busy machine.
const DEADLINE: Duration = Duration::from_secs(60);
const DEADLINE_S: &str = "60";
/// The interval of polling for what sends no event.
const POLL_INTERVAL: Duration = Duration::from_millis(10);

/// A configuration like `configs/tap.toml`, with a short start-up timeout.
const SHORT_TIMEOUTS: &str = r#"
[eal]
hugepages = "never"
memory_mib = 128
[port]
device.tap = { interface = "iwtap0" }
ring_size = 256
rx_frames = 2048
tx_frames = 2048
[net]
address = "10.99.2.1/24"
[core]
idle = "yield"
[mpa]
startup_timeout_ms = 2000
"#;

/// The limits of a responder with few slots.
const FEW_SLOTS: &str = "[limits]\nhalf_open = 8\nqueue_pairs = 2\n";

/// A responder that listens on a tap, and its output.
pub struct Lab {
    child: Child,
    pub events: Events,
    dir: Option<TestDir>,
}

/// A responder that has ended.
pub struct Ended {
    pub status: ExitStatus,
    pub events: Events,
    /// Its standard error.
    pub log: String,
    _dir: Option<TestDir>,
}

/// The lock of all tests with devices, and a folder that is removed with it.
struct TestDir {
    folder: PathBuf,
    _lock: File,
}

impl Lab {
    /// Starts a responder under the configuration that the project ships. Returns `None`, and
    /// prints why, if there can be no network namespace.
    pub fn with_shipped_config(options: &[&str]) -> Option<Lab> {
        let config = concat!(env!("CARGO_MANIFEST_DIR"), "/../../configs/tap.toml");
        Self::start(&fs::read_to_string(config).expect("the shipped configuration"), options)
    }

    /// Starts a responder with a start-up timeout of two seconds.
    pub fn with_short_timeouts(options: &[&str]) -> Option<Lab> {
        Self::start(SHORT_TIMEOUTS, options)
    }

    /// The same with room for eight half-open peers and two connected ones.
    pub fn few_slots() -> Option<Lab> {
        Self::start(&format!("{SHORT_TIMEOUTS}{FEW_SLOTS}"), &[])
    }

    fn start(config: &str, options: &[&str]) -> Option<Lab> {
        let dir = TestDir::lock();
        fs::write(Lab::path("tap.toml"), config).expect("a configuration");
        let mut child = responder(options).spawn().expect("unshare and setpriv, of util-linux");
        let events = Events::of(child.stdout.take().expect("a pipe"), DEADLINE);
        let mut lab = Lab { child, events, dir: Some(dir) };
        if lab.events.wait_for("listening").is_none() {
            return lab.skip_or_fail();
        }
        lab.configure_kernel_interface();
        Some(lab)
    }

    /// A responder that does not start fails the test, unless this machine cannot run one.
    fn skip_or_fail(&mut self) -> Option<Lab> {
        let status = self.wait();
        let log = self.log();
        let refused = log.lines().find(|line| line.starts_with("unshare: unshare failed"));
        skipped(refused.unwrap_or_else(|| panic!("the responder ended with {status} before it listened")));
        None
    }

    /// The tap exists once the responder listens, but `ip` may not see its name yet.
    fn configure_kernel_interface(&self) {
        let up = format!("ip addr add {LINUX} dev {INTERFACE} && ip link set {INTERFACE} up");
        let deadline = Instant::now() + DEADLINE;
        loop {
            let output = self.inside("sh", &["-c", &up]);
            if output.status.success() {
                return;
            }
            assert!(Instant::now() < deadline, "{up}: {}", output_text(&output));
            thread::sleep(POLL_INTERVAL);
        }
    }

    /// A file of the running test.
    pub fn path(name: &str) -> PathBuf {
        TestDir::folder().join(name)
    }

    /// Runs a client script against the responder; returns the JSON object that it prints.
    pub fn client(&self, script: &str, arguments: &[&str]) -> serde_json::Value {
        let script = client_script(script);
        // Python writes no compiled modules beside the scripts.
        let arguments = [&["-B", &script, RESPONDER, PORT], arguments].concat();
        let output = self.inside("python3", &arguments);
        assert!(output.status.success(), "{arguments:?}:\n{}", output_text(&output));
        serde_json::from_slice(&output.stdout)
            .unwrap_or_else(|error| panic!("{error}: {}", output_text(&output)))
    }

    fn inside(&self, program: &str, arguments: &[&str]) -> Output {
        let pid = self.child.id().to_string();
        let mut command = Command::new("setpriv");
        command.args(["--pdeathsig", "KILL", "--", "timeout", "-s", "KILL", DEADLINE_S]);
        command.args(["nsenter", "--target", &pid, "--net"]);
        if !geteuid().is_root() {
            command.args(["--user", "--preserve-credentials"]);
        }
        command.args(["--", "setpriv", "--pdeathsig", "KILL", "--", program]).args(arguments);
        command.stdin(Stdio::null()).output().expect("setpriv, of util-linux")
    }

    /// Waits until the responder has ended by itself.
    pub fn ended(mut self) -> Ended {
        let status = self.wait();
        let log = self.log();
        let events = std::mem::take(&mut self.events).read_to_end();
        Ended { status, events, log, _dir: self.dir.take() }
    }

    /// Presses Ctrl-C and waits.
    pub fn interrupt(self) -> Ended {
        kill_process(Pid::from_child(&self.child), Signal::INT).expect("a running responder");
        self.ended()
    }

    fn wait(&mut self) -> ExitStatus {
        let deadline = Instant::now() + DEADLINE;
        while Instant::now() < deadline {
            if let Some(status) = self.child.try_wait().expect("the responder's status") {
                return status;
            }
            thread::sleep(POLL_INTERVAL);
        }
        panic!("the responder does not end");
    }

    fn log(&self) -> String {
        fs::read_to_string(Lab::path("log")).unwrap_or_default()
    }
}

impl Drop for Lab {
    fn drop(&mut self) {
        if thread::panicking() {
            eprintln!("the responder's log:\n{}\nits events:\n{:#?}", self.log(), self.events);
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl TestDir {
    /// Waits until no other test of any binary has devices of its own.
    fn lock() -> Self {
        let path = std::env::temp_dir().join("ironwarp-vdev.lock");
        // Another user may own it.
        let lock = File::open(&path).or_else(|_| File::create(&path)).expect("a lock file");
        lock.lock().expect("the lock");
        let folder = Self::folder();
        // Left over from a test that was killed.
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir_all(&folder).expect("a folder of its own");
        TestDir { folder, _lock: lock }
    }

    /// The same for all tests, since one runs at a time.
    fn folder() -> PathBuf {
        Path::new(env!("CARGO_TARGET_TMPDIR")).join("responder")
    }
}

impl Drop for TestDir {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.folder);
    }
}

/// The responder as the first process of a network namespace. Users other than root also get a user
/// namespace.
fn responder(options: &[&str]) -> Command {
    let mut command = Command::new("unshare");
    command.arg("--net");
    if !geteuid().is_root() {
        command.args(["--user", "--map-root-user"]);
    }
    command.args(["--", "setpriv", "--pdeathsig", "KILL", "--", env!("CARGO_BIN_EXE_iwarp-responder")]);
    command.arg("--config").arg(Lab::path("tap.toml")).args(options);
    // DPDK's own files.
    command.env("RUNTIME_DIRECTORY", TestDir::folder()).env("XDG_RUNTIME_DIR", TestDir::folder());
    let log = File::create(Lab::path("log")).expect("a log");
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(log);
    command
}

/// The path of a client script.
pub fn client_script(name: &str) -> String {
    format!("{}/tests/client/{name}", env!("CARGO_MANIFEST_DIR"))
}

/// Writes to the terminal, bypassing the test harness's capture.
pub fn skipped(reason: &str) {
    writeln!(std::io::stderr(), "\nSKIPPED: {reason}").expect("a terminal");
}

/// Both outputs of a process.
pub fn output_text(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}
