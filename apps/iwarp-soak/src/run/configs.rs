//! The configurations of the target and its hosts, and the folder that they share.

use core::net::SocketAddr;
use std::path::{Path, PathBuf};

use tempfile::TempDir;

use crate::args::Role;
use crate::end::{self, CONFIGS, HOSTS};

const PORT: u16 = 4420;
/// A connection ends when three seconds pass without an acknowledgement, so that hosts connect
/// again after a cut.
const TCP: &str = "user_timeout_ms = 3000\ntime_wait_ms = 500\n";
/// Two cores, which a host polls with one thread: a link has a queue for each core of both ends.
const CORE: &str = "count = 2\nidle = \"yield\"\n";

/// Everything that the ends need.
pub(super) struct Setup {
    folder: TempDir,
}

impl Setup {
    /// Writes all configurations.
    pub(super) fn new() -> Result<Self, String> {
        let folder = TempDir::with_prefix("iwarp-soak.")
            .map_err(|error| format!("no folder for temporary files: {error}"))?;
        let setup = Setup { folder };
        end::prepare(setup.folder()).map_err(|error| format!("the file of a namespace: {error}"))?;
        let write = |path: PathBuf, text: String| {
            std::fs::write(&path, text).map_err(|error| format!("{}: {error}", path.display()))
        };
        (0..CONFIGS).try_for_each(|at| write(setup.target_config(at), setup.target_text(at)))?;
        (0..HOSTS).try_for_each(|at| write(setup.host_config(at), setup.host_text(at)))?;
        Ok(setup)
    }

    /// The target's address on the link of host `number`.
    pub(super) fn at(number: usize) -> SocketAddr {
        ([10, 97, number as u8, 1], PORT).into()
    }

    pub(super) fn configs(&self, role: Role, number: usize) -> Vec<PathBuf> {
        match role {
            Role::Target => (0..CONFIGS).map(|at| self.target_config(at)).collect(),
            Role::Host => vec![self.host_config(number)],
        }
    }

    pub(super) fn folder(&self) -> &Path {
        self.folder.path()
    }

    fn target_config(&self, number: usize) -> PathBuf {
        self.folder().join(format!("target-{number}.toml"))
    }

    fn host_config(&self, number: usize) -> PathBuf {
        self.folder().join(format!("host-{number}.toml"))
    }

    /// A configuration of the target: a port for each host.
    fn target_text(&self, number: usize) -> String {
        let at = |host: usize| format!("\"{}\"", Self::at(host));
        let listeners: Vec<String> = (0..HOSTS).map(at).collect();
        let further: String = (1..HOSTS)
            .map(|host| {
                let (port, address) = (self.port(host, "server"), format!("10.97.{host}.1/24"));
                format!("[[stack.fabrics]]\nport = {{ {port} }}\nnet = {{ address = \"{address}\" }}\n")
            })
            .collect();
        format!(
            "listeners = [{}]\nstate_dir = {:?}\n[limits]\ncapsules = 1024\nbuffers = 16\ntransfer_kib = 16\n\
             [stack]\nport = {{ {} }}\nnet = {{ address = \"10.97.0.1/24\" }}\n{further}\
             [stack.core]\n{CORE}[stack.tcp]\n{TCP}{}",
            listeners.join(", "),
            self.folder().join("state"),
            self.port(0, "server"),
            end::namespaces(self.folder(), number)
        )
    }

    fn host_text(&self, host: usize) -> String {
        let port = self.port(host, "client");
        format!(
            "port = {{ {port} }}\nnet = {{ address = \"10.97.{host}.2/24\" }}\n[core]\n{CORE}[tcp]\n{TCP}"
        )
    }

    /// The keys of one end of a host's link.
    fn port(&self, host: usize, role: &str) -> String {
        let socket = self.folder().join(format!("memif-{host}.sock"));
        format!(
            "device.memif = {{ role = \"{role}\", socket = {socket:?} }}, mtu = 1500, \
             ring_size = 128, rx_frames = 1152, tx_frames = 512"
        )
    }
}
