//! A folder of one test with the configurations of both sides of a memif. One test runs at a time
//! on the machine, since two polled loops use two processors.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use tempfile::TempDir;

/// Seconds after which a process is killed, by `timeout`, and the test fails.
const DEADLINE: &str = "60";

pub struct Lab {
    folder: TempDir,
    _lock: File,
}

/// What a side's configuration has besides its memory and rings: the device, further keys of
/// `[port]`, and the table `[net]`.
pub struct Side {
    pub device: String,
    pub port: &'static str,
    pub net: String,
}

impl Lab {
    /// Takes the part of each side, by its role and the socket of both.
    pub fn new(side: impl Fn(&str, &Path) -> Side) -> Self {
        let path = std::env::temp_dir().join("ironwarp-vdev.lock");
        // Another user may own it.
        let lock = File::open(&path).or_else(|_| File::create(&path)).expect("a lock file");
        lock.lock().expect("the lock");
        let lab = Lab { folder: TempDir::new().expect("a writable folder"), _lock: lock };
        for role in ["server", "client"] {
            let Side { device, port, net } = side(role, &lab.file("m.sock"));
            let text = format!(
                "[eal]\nhugepages = \"never\"\nmemory_mib = 128\n\
                 [port]\ndevice.{device}\n{port}\
                 ring_size = 256\nrx_frames = 2048\ntx_frames = 2048\n[net]\n{net}[core]\nidle = \"yield\"\n",
            );
            std::fs::write(lab.file(role), text).expect("a writable folder");
        }
        lab
    }

    pub fn file(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// The program as one side, with the options of a line.
    pub fn command(&self, role: &str, line: &str) -> Command {
        let mut command = Command::new("timeout");
        command.args(["--foreground", "--kill-after=1", DEADLINE, env!("CARGO_BIN_EXE_iwarp-ping")]);
        command.arg(format!("--{role}")).arg("--config").arg(self.file(role));
        command.args(line.split(' ').filter(|word| !word.is_empty()));
        // DPDK's files, which it leaves behind, are removed with the folder.
        command.env("RUNTIME_DIRECTORY", self.folder.path()).stdin(Stdio::null());
        command
    }
}
