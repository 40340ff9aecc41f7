//! Checks of Unix sockets of shared-memory devices: memif and vhost.

use std::os::unix::net::UnixStream;
use std::path::Path;

use rustix::fs::{Access, access};

use super::{Finding, Host};

impl Host {
    /// Checks whether the socket can be created, or accepts a connection.
    pub(super) fn check_socket(&self, key: &'static str, is_server: bool, socket: &Path) -> Vec<Finding> {
        // A relative name is meant from the working directory, as the driver takes it.
        let path = if socket.is_absolute() {
            self.path(&socket.to_string_lossy())
        } else {
            Path::new(".").join(socket)
        };
        let shown = socket.display();
        if !is_server {
            return vec![match UnixStream::connect(&path) {
                Err(error) if error.kind() == std::io::ErrorKind::PermissionDenied => Finding::fault(
                    "socket",
                    format!("{key} = {shown}: no permission to connect to it"),
                    "run as the user who runs the server, or as root",
                ),
                // A listener, even one of another socket type, gives a different error.
                Err(error)
                    if matches!(
                        error.kind(),
                        std::io::ErrorKind::NotFound | std::io::ErrorKind::ConnectionRefused
                    ) =>
                {
                    // DPDK's driver tries once, when the device starts, and then fails without a reason.
                    Finding::fault(
                        "socket",
                        format!("{key} = {shown}: no process listens there"),
                        "start the end with role = \"server\" first",
                    )
                }
                _ => Finding::good("socket", format!("{shown}: a process listens")),
            }];
        }
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

/// Returns whether a process listens: a stale socket refuses; every other result comes from a listener.
fn is_listened_on(path: &Path) -> bool {
    match UnixStream::connect(path) {
        Ok(_) => true,
        Err(error) => {
            !matches!(error.kind(), std::io::ErrorKind::NotFound | std::io::ErrorKind::ConnectionRefused)
        }
    }
}
