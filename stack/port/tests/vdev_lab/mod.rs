//! A separate process and folder for each test that starts DPDK.
//!
//! The EAL starts once in a process, so a test runs again in a child process. The child has its own
//! folder for sockets and DPDK's files, its own file prefix and, on request, its own network
//! namespace. After a deadline it and everything it started are killed. One child runs at a time,
//! since two polled loops use two processors. The namespace ends with its last process, and the
//! folder is removed here.
#![allow(dead_code, reason = "each test binary uses its part")]

use std::fs::File;
use std::io::Write;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::mpsc;
use std::time::Duration;

use ironwarp_port::dpdk::{DpdkPort, Eal, EalConfig, MbufFrame, SealedMbuf, Vdev};
use ironwarp_port::{Burst, Frame, Port, TxMeta};
use rustix::process::{Pid, Signal, geteuid, kill_process_group, set_parent_process_death_signal};

/// The test that this child process runs, and its role.
const CHILD: &str = "IRONWARP_VDEV_CHILD";
const ROLE: &str = "IRONWARP_VDEV_ROLE";
const FOLDER: &str = "IRONWARP_VDEV_FOLDER";

/// The prefix of the tests' folders; the runner's process number follows.
const FOLDERS: &str = "ironwarp-vdev-";

/// Ends a test that hangs. The slowest takes two seconds on a busy machine.
const DEADLINE: Duration = Duration::from_secs(90);

/// What a test needs apart from a process.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Needs {
    Nothing,
    /// A network namespace, which needs root.
    Namespace,
}

/// In the child: the folder for its files.
pub struct Lab {
    test: String,
    folder: PathBuf,
}

/// Runs `body` in a child process, as `test`, which is the name of the calling test.
pub fn alone(test: &str, needs: Needs, body: impl FnOnce(&Lab)) {
    if std::env::var(CHILD).is_ok_and(|name| name == test) {
        // This process ends with the test runner.
        set_parent_process_death_signal(Some(Signal::KILL)).expect("a death signal");
        let folder = std::env::var_os(FOLDER).expect("a folder").into();
        return body(&Lab { test: test.into(), folder });
    }
    if needs == Needs::Namespace && !geteuid().is_root() {
        return skipped(test, "needs root for a network namespace");
    }
    let _one_at_a_time = turn();
    sweep();
    let folder = std::env::temp_dir().join(format!("{FOLDERS}{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("a folder of its own");
    let output = run_to_deadline(child_command(test, needs, &folder, "first"));
    std::fs::remove_dir_all(&folder).expect("to remove the folder");
    judge(test, &output);
}

/// Prints it on the terminal, past the capture of a test's output.
pub fn skipped(test: &str, reason: &str) {
    writeln!(std::io::stderr(), "SKIPPED: {test}: {reason}").expect("a terminal");
}

/// Waits until no other test of any binary is running its child.
fn turn() -> File {
    let path = std::env::temp_dir().join("ironwarp-vdev.lock");
    let file = File::options().create(true).append(true).open(path).expect("a lock file");
    file.lock().expect("the lock");
    file
}

/// Removes the folder of a test runner that was itself killed. Only the test that holds the lock
/// has a folder.
fn sweep() {
    let entries = std::fs::read_dir(std::env::temp_dir()).expect("the folder for temporary files");
    let folders = entries.flatten().filter(|entry| entry.file_name().to_string_lossy().starts_with(FOLDERS));
    for folder in folders {
        std::fs::remove_dir_all(folder.path()).expect("to remove a folder that a killed test left behind");
    }
}

fn child_command(test: &str, needs: Needs, folder: &Path, role: &str) -> Command {
    let exe = std::env::current_exe().expect("this program");
    let mut command = match needs {
        Needs::Nothing => Command::new(&exe),
        Needs::Namespace => {
            let mut command = Command::new("unshare");
            command.args(["--net", "--"]).arg(&exe);
            command
        }
    };
    command.args([test, "--exact", "--nocapture", "--test-threads=1"]);
    command.env(CHILD, test).env(ROLE, role).env(FOLDER, folder).env("RUNTIME_DIRECTORY", folder);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// Waits for the child and everything it wrote; kills its whole group at the deadline.
fn run_to_deadline(mut command: Command) -> Output {
    let child = command.process_group(0).spawn().expect("a child process");
    let group = Pid::from_child(&child);
    let (done, waiting) = mpsc::channel();
    let waiter = std::thread::spawn(move || {
        let output = child.wait_with_output().expect("the child's output");
        let _ = done.send(());
        output
    });
    if waiting.recv_timeout(DEADLINE).is_err() {
        kill_process_group(group, Signal::KILL).expect("to kill what hangs");
    }
    waiter.join().expect("the waiting thread")
}

fn judge(test: &str, output: &Output) {
    let said =
        format!("{}\n{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{test} ended with {}:\n{said}", output.status);
    assert!(said.contains("1 passed"), "{test} did not run:\n{said}");
    if let Some(reason) = said.lines().find_map(|line| line.strip_prefix(SKIP)) {
        skipped(test, reason);
    }
}

/// The prefix of the reason that a child prints when it tests nothing.
const SKIP: &str = "cannot be tested here: ";

impl Lab {
    /// Reports why this machine cannot test the rule.
    pub fn skip(&self, reason: &str) {
        println!("\n{SKIP}{reason}");
    }

    /// The role of this process: `first`, or the name given to [`Lab::peer`].
    pub fn role(&self) -> String {
        std::env::var(ROLE).expect("a role")
    }

    /// A file in the test's own folder.
    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    /// Starts the same test once more, in another role. It dies with this process.
    pub fn peer(&self, role: &str) -> Child {
        child_command(&self.test, Needs::Nothing, &self.folder, role).spawn().expect("a second process")
    }

    /// An EAL configuration that needs no hugepages and shares nothing with other processes.
    pub fn config(&self) -> EalConfig {
        EalConfig::new().file_prefix(&format!("vdev-{}", std::process::id()))
    }

    /// A running EAL.
    pub fn eal(&self, config: &EalConfig) -> Eal {
        Eal::start(config).unwrap_or_else(|error| panic!("{error}"))
    }
}

/// DPDK's tap `dtap0`: the peer is Linux. Its kernel end has the device's own address.
pub fn tap() -> Vdev {
    Vdev::parse("net_tap0,iface=dtap0").expect("a device")
}

/// DPDK's packet socket on an interface, with rings whose slots hold packets of this MTU.
pub fn packet_socket(interface: &str, mtu_bytes: u16) -> Vdev {
    let (slot, block) = if mtu_bytes > 1900 { (12_288, 12_288) } else { (2048, 4096) };
    let line =
        format!("net_af_packet0,iface={interface},framesz={slot},blocksz={block},framecnt=512,qpairs=1");
    Vdev::parse(&line).expect("a device")
}

/// Runs a system command that must succeed.
pub fn system(line: &str) {
    let mut words = line.split_whitespace();
    let mut command = Command::new(words.next().expect("a command"));
    let output = command.args(words).output().unwrap_or_else(|error| panic!("{line}: {error}"));
    assert!(output.status.success(), "{line}: {}", String::from_utf8_lossy(&output.stderr));
}

/// A sealed frame of these bytes.
pub fn frame(port: &mut DpdkPort, bytes: &[u8]) -> SealedMbuf {
    let mut frame = port.alloc().expect("a frame in the pool");
    frame.resize(bytes.len());
    frame.bytes_mut().copy_from_slice(bytes);
    frame.seal(TxMeta::default())
}

/// Sends one frame and tries again while the device refuses it.
pub fn send(port: &mut DpdkPort, bytes: &[u8]) {
    let mut burst = Burst::new();
    burst.push(frame(port, bytes));
    while !burst.is_empty() {
        port.tx_burst(&mut burst);
        std::thread::yield_now();
    }
}

/// Waits for frames, at least one.
pub fn receive(port: &mut DpdkPort) -> Burst<MbufFrame> {
    let mut burst = Burst::new();
    while burst.is_empty() {
        port.rx_burst(&mut burst);
        std::thread::yield_now();
    }
    burst
}

/// Bytes that distinguish each frame from every other, and each byte from its neighbours.
pub fn pattern(seed: usize, len: usize) -> Vec<u8> {
    (0..len).map(|at| (at.wrapping_mul(7) ^ seed.wrapping_mul(31) ^ (at >> 8)) as u8).collect()
}
