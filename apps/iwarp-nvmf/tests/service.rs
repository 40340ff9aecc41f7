//! The program as a service: one target for a disk, readiness and signs of life, reloads that fail
//! visibly, and a successor that inherits the disk. The test is the service manager.

use std::io::IoSliceMut;
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::mpsc;
use std::time::Duration;

use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, recvmsg};

/// How long a process has for a step.
const TIMEOUT: Duration = Duration::from_secs(120);

fn program() -> Command {
    Command::new(env!("CARGO_BIN_EXE_iwarp-nvmf"))
}

/// Kills the process if the test ends early.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Writes the configuration of a target of its own in `folder`, on `disk`.
fn config(folder: &Path, name: &str, disk: &Path) -> PathBuf {
    let at = |what: &str| folder.join(format!("{name}-{what}"));
    let text = format!(
        "listeners = [\"10.98.0.1:4420\"]\nstate_dir = {:?}\n[limits]\nbuffers = 8\ncapsules = 512\n\
         [stack.core]\ncount = 2\nidle = \"yield\"\n\
         [stack.port]\ndevice.memif = {{ role = \"server\", socket = {:?} }}\n\
         [stack.net]\naddress = \"10.98.0.1/24\"\n[[subsystem]]\nnqn = \"nqn.2014-08.org.example:disk\"\n\
         allow_any_host = true\n[[subsystem.namespace]]\nnsid = 1\nbackend.file = {{ path = {disk:?} }}\n",
        at("state"),
        at("memif.sock"),
    );
    let path = at("target.toml");
    std::fs::write(&path, text).expect("written");
    path
}

fn run(arguments: &[&str], config: &Path) -> (Option<i32>, String) {
    let output: Output =
        program().args(arguments).arg("--config").arg(config).stdin(Stdio::null()).output().expect("it runs");
    let text = [output.stdout, output.stderr].concat();
    (output.status.code(), String::from_utf8_lossy(&text).into_owned())
}

/// A message of the service, with the descriptors that came with it.
type Message = (String, Vec<OwnedFd>);

/// A service manager. It takes messages all the time: the service waits for one that does not.
struct Manager {
    messages: mpsc::Receiver<Message>,
    path: PathBuf,
}

impl Manager {
    fn new(path: PathBuf) -> Self {
        let socket = UnixDatagram::bind(&path).expect("bound");
        let (sender, messages) = mpsc::channel();
        std::thread::spawn(move || while sender.send(receive(&socket)).is_ok() {});
        Manager { messages, path }
    }

    /// Takes messages until one has `text`. Returns the descriptors with their names.
    fn until(&self, text: &str) -> Vec<(String, OwnedFd)> {
        let mut stored = Vec::new();
        loop {
            let (message, descriptors) = self.messages.recv_timeout(TIMEOUT).expect("a message");
            let name = message.lines().find_map(|line| line.strip_prefix("FDNAME=")).unwrap_or_default();
            stored.extend(descriptors.into_iter().map(|descriptor| (name.to_owned(), descriptor)));
            if message.lines().any(|line| line == text) {
                return stored;
            }
        }
    }

    /// A target that reports to it.
    fn serve(&self, config: &Path) -> Command {
        let mut command = program();
        command.args(["serve", "--config"]).arg(config);
        self.report(command)
    }

    fn report(&self, mut command: Command) -> Command {
        command.env("NOTIFY_SOCKET", &self.path).env("WATCHDOG_USEC", "400000");
        command.stdin(Stdio::null()).stdout(Stdio::null());
        command
    }
}

fn receive(socket: &UnixDatagram) -> Message {
    let mut bytes = [0; 4096];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(4))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let into = &mut [IoSliceMut::new(&mut bytes)];
    let got = recvmsg(socket, into, &mut ancillary, RecvFlags::CMSG_CLOEXEC).expect("a message");
    let rights = ancillary.drain().filter_map(|one| match one {
        RecvAncillaryMessage::ScmRights(descriptors) => Some(descriptors),
        _ => None,
    });
    let descriptors = rights.flatten().collect();
    (String::from_utf8_lossy(&bytes[..got.bytes]).into_owned(), descriptors)
}

fn disk(folder: &Path) -> PathBuf {
    let path = folder.join("disk");
    std::fs::File::create(&path).and_then(|file| file.set_len(8 << 20)).expect("a file");
    path
}

#[test]
fn a_disk_has_one_target_and_its_successor_inherits_it() {
    let folder = tempfile::tempdir().expect("a folder");
    let disk = disk(folder.path());
    let link = folder.path().join("link");
    std::fs::hard_link(&disk, &link).expect("a link");
    let manager = Manager::new(folder.path().join("notify"));
    let (one, other) = (config(folder.path(), "one", &disk), config(folder.path(), "other", &link));

    assert_eq!(run(&["check"], &one).0, Some(0));
    let mut first = Running(manager.serve(&one).spawn().expect("it starts"));
    let stored = manager.until("READY=1");
    assert_eq!(stored.len(), 1, "{stored:?}");
    manager.until("WATCHDOG=1");
    manager.until("WATCHDOG=1");

    // The check of the target that runs does not disturb it, and one of another target says what is
    // wrong.
    let (code, text) = run(&["check"], &one);
    assert!(code == Some(0) && text.contains("served by the running target"), "{code:?} {text}");
    for command in ["check", "serve"] {
        let (code, text) = run(&[command], &other);
        assert!(code == Some(1) && text.contains("in use") && text.contains("link"), "{code:?} {text}");
    }
    // A second target with the same configuration.
    let (code, text) = run(&["serve"], &one);
    assert!(code == Some(1) && text.contains("state_dir"), "{code:?} {text}");

    // The manager keeps the descriptor of a target that is killed, and the next one takes it over.
    first.0.kill().expect("killed");
    first.0.wait().expect("it ends");
    assert!(run(&["serve"], &other).1.contains("in use"));
    let [(name, descriptor)] = stored.try_into().expect("one descriptor");
    let mut shell = Command::new("sh");
    let script = "exec 3<&0 </dev/null; export LISTEN_PID=$$ LISTEN_FDS=1; exec \"$@\"";
    shell.args(["-c", script, "sh", env!("CARGO_BIN_EXE_iwarp-nvmf"), "serve", "--config"]).arg(&one);
    let mut shell = manager.report(shell);
    let second = shell.env("LISTEN_FDNAMES", name).stdin(descriptor).spawn();
    let mut second = Running(second.expect("it starts"));
    // The command has a copy of the descriptor.
    drop(shell);
    assert!(manager.until("READY=1").is_empty(), "it is stored already");
    manager.until("WATCHDOG=1");
    assert!(run(&["serve"], &other).1.contains("in use"));
    second.0.kill().expect("killed");
    second.0.wait().expect("it ends");
    assert_eq!(run(&["check"], &other).0, Some(0));
}

#[test]
fn a_reload_says_what_it_has_done_and_fails_with_what_failed() {
    let folder = tempfile::tempdir().expect("a folder");
    let manager = Manager::new(folder.path().join("notify"));
    let path = config(folder.path(), "one", &disk(folder.path()));
    let (code, text) = run(&["reload"], &path);
    assert!(code == Some(1) && text.contains("no target runs"), "{code:?} {text}");

    let mut target = Running(manager.serve(&path).spawn().expect("it starts"));
    manager.until("READY=1");
    let before = std::fs::read_to_string(&path).expect("the file");
    let with = |more: &str| std::fs::write(&path, format!("{before}{more}")).expect("written");
    let second = |backend: &str| format!("[[subsystem.namespace]]\nnsid = 2\nbackend.{backend}\n");
    let twice = format!("file = {{ path = {:?} }}", folder.path().join("disk"));
    for (more, code, words) in [
        (second("null = { mib = 1 }"), 0, &["added: nqn.2014-08.org.example:disk 2"][..]),
        (second("file = { path = \"/nonexistent\" }"), 1, &["failed", "/nonexistent"]),
        (second(&twice), 1, &["failed", "in use", "namespace nqn.2014-08.org.example:disk 1"]),
        ("nonsense".to_owned(), 2, &["expected `=`"]),
        (String::new(), 0, &["removed: nqn.2014-08.org.example:disk 2"]),
        (String::new(), 0, &["nothing has changed"]),
    ] {
        with(&more);
        let (found, text) = run(&["reload"], &path);
        assert!(found == Some(code) && words.iter().all(|word| text.contains(word)), "{found:?} {text}");
    }
    with("[[subsystem]]\nnqn = \"nqn.2014-08.org.example:more\"\nallow_any_host = true\n");
    let (code, text) = run(&["reload"], &path);
    assert!(code == Some(1) && text.contains("needs a restart: subsystem"), "{code:?} {text}");
    assert!(target.0.try_wait().expect("a child").is_none());
}

#[test]
fn a_check_finds_what_serve_would_fail_with() {
    let folder = tempfile::tempdir().expect("a folder");
    let disk = disk(folder.path());
    let path = config(folder.path(), "one", &disk);
    let good = std::fs::read_to_string(&path).expect("the file");
    let short = folder.path().join("short");
    std::fs::write(&short, [0; 100]).expect("written");
    let disk = format!("{disk:?}");
    let second = format!("{good}[[subsystem.namespace]]\nnsid = 2\nbackend.file = {{ path = {disk} }}\n");
    for (text, code, words) in [
        (good.replace(&disk, "\"/nonexistent\""), 1, &["/nonexistent", "No such file"][..]),
        (good.replace(&disk, &format!("{short:?}")), 1, &["short", "shorter than a logical block"]),
        (good.replace(&disk, "\"/dev/null\""), 1, &["/dev/null", "neither a file nor a block device"]),
        (second, 1, &["namespace 2", "is namespace nqn.2014-08.org.example:disk 1 already"]),
        (good.replace("10.98.0.1/24", "10.98.0.0/24"), 2, &["10.98.0.0/24", "station"]),
        (good.replace("[\"10.98.0.1:4420\"]", "[\"10.98.0.1:4420\", \"10.98.0.1:4420\"]"), 2, &["listeners"]),
    ] {
        std::fs::write(&path, &text).expect("written");
        for command in ["check", "serve"] {
            let (found, said) = run(&[command], &path);
            assert!(found == Some(code) && words.iter().all(|word| said.contains(word)), "{command}: {said}");
        }
    }
}
