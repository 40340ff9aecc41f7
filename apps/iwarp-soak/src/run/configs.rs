//! The configurations of both ends, and the network between two taps.

use core::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;

use nix::sched::{CloneFlags, unshare};
use tempfile::TempDir;

use crate::args::{Device, Role};
use crate::storage::{self, CONFIGS, HOSTS};

const PORT: u16 = 4791;
const NVME_PORT: u16 = 4420;
/// The largest retransmission timeout. On a busy machine a round trip takes long, and so do a few
/// doublings after it: with 60 s, a connection may wait for longer than an end has to close.
const RTO_MAX_US: u32 = 4_000_000;
/// The taps of the server and of the client.
const TAPS: [&str; 2] = ["iwsoak0", "iwsoak1"];

/// Everything that the ends of a part need.
pub(super) struct Setup {
    device: Device,
    folder: TempDir,
}

impl Setup {
    /// Writes both configurations, for `queue_pairs` connections at a time; for taps the calling
    /// thread enters a network namespace of its own, whose kernel routes between them.
    pub(super) fn new(device: Device, queue_pairs: u32) -> Result<Self, String> {
        let folder = TempDir::with_prefix("iwarp-soak.")
            .map_err(|error| format!("no folder for temporary files: {error}"))?;
        let setup = Setup { device, folder };
        setup.write(queue_pairs)?;
        if device == Device::Tap {
            unshare(CloneFlags::CLONE_NEWNET)
                .map_err(|error| format!("a network namespace needs root: {error}"))?;
            ip(&["link", "set", "lo", "up"])?;
            std::fs::write("/proc/sys/net/ipv4/ip_forward", "1")
                .map_err(|error| format!("ip_forward: {error}"))?;
        }
        Ok(setup)
    }

    fn write(&self, queue_pairs: u32) -> Result<(), String> {
        let write = |path: PathBuf, text: String| {
            std::fs::write(&path, text).map_err(|error| format!("{}: {error}", path.display()))
        };
        if self.device == Device::Storage {
            storage::prepare(self.folder()).map_err(|error| format!("the file of a namespace: {error}"))?;
            (0..CONFIGS).try_for_each(|at| write(self.target_config(at), self.target_text(at)))?;
            return (0..HOSTS as usize).try_for_each(|at| write(self.host_config(at), self.host_text(at)));
        }
        (0..2).try_for_each(|end| write(self.config(end), self.text(end, queue_pairs)))
    }

    /// The server's address; for storage, that of host `number`'s link.
    pub(super) fn at(&self, number: usize) -> SocketAddr {
        match self.device {
            Device::Storage => ([10, 97, number as u8, 1], NVME_PORT).into(),
            _ => ([10, 97, 0, 1], PORT).into(),
        }
    }

    pub(super) fn configs(&self, role: Role, number: usize) -> Vec<PathBuf> {
        match role {
            Role::Server => vec![self.config(0)],
            Role::Client => vec![self.config(1)],
            Role::Both => vec![self.config(0), self.config(1)],
            Role::Target => (0..CONFIGS).map(|at| self.target_config(at)).collect(),
            Role::Host => vec![self.host_config(number)],
        }
    }

    fn target_config(&self, number: usize) -> PathBuf {
        self.folder().join(format!("target-{number}.toml"))
    }

    fn host_config(&self, number: usize) -> PathBuf {
        self.folder().join(format!("host-{number}.toml"))
    }

    pub(super) fn folder(&self) -> &Path {
        self.folder.path()
    }

    fn config(&self, end: usize) -> PathBuf {
        self.folder.path().join(["server.toml", "client.toml"][end])
    }

    /// Small pools, so that they run out. The timeouts are longer than the retransmission timeout
    /// grows in failures that follow each other, so that only a killed process ends a connection.
    fn text(&self, end: usize, queue_pairs: u32) -> String {
        let (device, mtu) = match self.device {
            Device::Memif => (self.dpdk_memif(end), 9000),
            Device::MemifNative => (self.memif(end), 9000),
            Device::Ring => (format!("ring = {{ end = {end} }}"), 9000),
            Device::Tap => (format!("tap = {{ interface = \"{}\" }}", TAPS[end]), 1500),
            Device::Storage => (String::new(), 0),
        };
        // Behind taps each end has a network of its own.
        let (address, gateway) = if self.device == Device::Tap {
            (format!("10.97.{end}.1/24"), format!("gateway = \"10.97.{end}.254\"\n"))
        } else {
            (format!("10.97.0.{}/24", end + 1), String::new())
        };
        // After a killed client its connections stay for a while.
        let limit = 4 * queue_pairs;
        format!(
            "[eal]\nhugepages = \"never\"\nmemory_mib = 192\n\
             [port]\ndevice.{device}\nmtu = {mtu}\nring_size = 256\nrx_frames = 768\ntx_frames = 768\n\
             [net]\naddress = \"{address}\"\n{gateway}\
             [core]\nidle = \"yield\"\n\
             [tcp]\nuser_timeout_ms = 60000\ntime_wait_ms = 500\nrto_max_us = {RTO_MAX_US}\n\
             [mpa]\nstartup_timeout_ms = 60000\nterminate_timeout_ms = 60000\n\
             [limits]\nqueue_pairs = {limit}\nhalf_open = {limit}\nregions = {}\n",
            8 * limit + 64
        )
    }

    fn memif(&self, end: usize) -> String {
        let (role, socket) = (["server", "client"][end], self.folder.path().join("memif.sock"));
        format!("memif = {{ role = \"{role}\", socket = {socket:?} }}")
    }

    /// A link with DPDK's driver.
    fn dpdk_memif(&self, end: usize) -> String {
        let (role, socket) = (["server", "client"][end], self.folder.path().join("memif.sock"));
        let args = format!("role={role},socket={},socket-abstract=no,bsize=10240,rsize=8", socket.display());
        format!("dpdk = {{ name = \"net_memif0\", args = \"{args}\" }}")
    }

    /// A configuration of the target: two cores, and a port for each host. A connection ends when
    /// three seconds pass without an acknowledgement, so that hosts connect again after a cut.
    fn target_text(&self, number: usize) -> String {
        let at = |host: usize| format!("\"{}\"", self.at(host));
        let listeners: Vec<String> = (0..HOSTS as usize).map(at).collect();
        let further: String = (1..HOSTS as usize)
            .map(|host| {
                let (port, address) = (self.port(host, "server"), format!("10.97.{host}.1/24"));
                format!("[[stack.fabrics]]\nport = {{ {port} }}\nnet = {{ address = \"{address}\" }}\n")
            })
            .collect();
        format!(
            "listeners = [{}]\nstate_dir = {:?}\n[limits]\ncapsules = 1024\nbuffers = 16\ntransfer_kib = 16\n\
             [stack]\nport = {{ {} }}\nnet = {{ address = \"10.97.0.1/24\" }}\n{further}\
             [stack.core]\ncount = 2\nidle = \"yield\"\n{}{}",
            listeners.join(", "),
            self.folder().join("state"),
            self.port(0, "server"),
            storage_tcp("stack.tcp"),
            storage::namespaces(self.folder(), number)
        )
    }

    fn host_text(&self, host: usize) -> String {
        let (port, tcp) = (self.port(host, "client"), storage_tcp("tcp"));
        // A link has a queue for each core of both ends; one thread polls both cores of a host.
        let core = "[core]\ncount = 2\nidle = \"yield\"\n";
        format!("port = {{ {port} }}\nnet = {{ address = \"10.97.{host}.2/24\" }}\n{core}{tcp}")
    }

    /// The keys of one end of a host's link.
    fn port(&self, host: usize, role: &str) -> String {
        let socket = self.folder().join(format!("memif-{host}.sock"));
        format!(
            "device.memif = {{ role = \"{role}\", socket = {socket:?} }}, mtu = 1500, \
             ring_size = 128, rx_frames = 1152, tx_frames = 512"
        )
    }

    /// Called when the device of an end is open: gives the kernel's end of a tap its address.
    pub(super) fn on_opened(&self, role: Role) -> Result<(), String> {
        let end = match role {
            Role::Server => 0,
            Role::Client => 1,
            Role::Both | Role::Target | Role::Host => return Ok(()),
        };
        if self.device == Device::Tap {
            ip(&["addr", "replace", &format!("10.97.{end}.254/24"), "dev", TAPS[end]])?;
            ip(&["link", "set", TAPS[end], "up"])?;
        }
        Ok(())
    }

    /// Takes the link of the server's tap down or up.
    pub(super) fn set_link(&self, up: bool) -> Result<(), String> {
        ip(&["link", "set", TAPS[0], if up { "up" } else { "down" }])
    }
}

fn storage_tcp(table: &str) -> String {
    format!("[{table}]\nuser_timeout_ms = 3000\ntime_wait_ms = 500\n")
}

fn ip(arguments: &[&str]) -> Result<(), String> {
    let line = format!("ip {}", arguments.join(" "));
    let output = Command::new("ip").args(arguments).output().map_err(|error| format!("`{line}`: {error}"))?;
    if output.status.success() {
        return Ok(());
    }
    Err(format!("`{line}`: {}", String::from_utf8_lossy(&output.stderr).trim()))
}
