//! Checks of Unix sockets of shared-memory devices: memif and vhost.

use std::os::unix::net::UnixStream;
use std::path::Path;

use rustix::fs::{Access, access};

use super::{Finding, Host};

impl Host {
    /// Checks whether the socket can be created.
    pub(super) fn check_socket(&self, key: &'static str, socket: &Path) -> Vec<Finding> {
        // A relative name is meant from the working directory, as the driver takes it.
        let path = if socket.is_absolute() {
            self.path(&socket.to_string_lossy())
        } else {
            Path::new(".").join(socket)
        };
        let shown = socket.display();
        let folder = path.parent().unwrap_or(Path::new("/"));
        if !folder.is_dir() {
            return vec![Finding::fault(
                "socket",
                format!("{key} = {shown}: its folder does not exist"),
                "make the folder, or name another",
            )];
        }
        if access(folder, Access::WRITE_OK | Access::EXEC_OK).is_err() {
            return vec![Finding::fault(
                "socket",
                format!("{key} = {shown}: no permission to make a socket there"),
                "name a folder that this user may write to, or run as root",
            )];
        }
        if is_listened_on(&path) {
            return vec![Finding::fault(
                "socket",
                format!("{key} = {shown}: in use, another process listens there"),
                "end that process, or name another socket at both ends",
            )];
        }
        vec![Finding::good("socket", format!("{shown}: can be made"))]
    }
}

/// Returns whether a process listens: a stale socket refuses; every other result comes from a
/// listener.
fn is_listened_on(path: &Path) -> bool {
    match UnixStream::connect(path) {
        Ok(_) => true,
        Err(error) => {
            !matches!(error.kind(), std::io::ErrorKind::NotFound | std::io::ErrorKind::ConnectionRefused)
        }
    }
}
