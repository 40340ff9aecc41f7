//! Two network namespaces joined by a veth pair.
//!
//! The namespaces have no name and exist while their descriptors are open; the veth pair exists as
//! long as they do. So nothing is left behind, even when the process is killed, and two runs do not
//! collide. A socket belongs to the namespace of the thread that creates it, so short-lived threads
//! create them. Needs root (or CAP_NET_ADMIN and CAP_SYS_ADMIN) and `ip` from iproute2.

use std::fs::File;
use std::io;
use std::net::Ipv4Addr;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;

use nix::sched::{CloneFlags, setns, unshare};

pub const CLIENT_INTERFACE: &str = "iw0";
pub const SERVER_INTERFACE: &str = "iw1";
/// The client's address, from the block for benchmarks (RFC 2544).
pub const CLIENT_ADDR: Ipv4Addr = Ipv4Addr::new(198, 18, 0, 1);
pub const SERVER_ADDR: Ipv4Addr = Ipv4Addr::new(198, 18, 0, 2);

/// Why there is no veth pair.
#[derive(Debug, thiserror::Error)]
pub enum NamespaceError {
    /// The kernel refused a namespace.
    #[error("a network namespace needs root: {0}")]
    Denied(io::Error),
    /// A command could not be run.
    #[error("`{command}`: {reason}")]
    Command {
        command: String,
        /// The first line of its standard error.
        reason: String,
    },
}

/// A veth pair between two new namespaces. Dropping it removes all of them.
#[derive(Debug)]
pub struct VethPair {
    client: File,
    server: File,
}

impl VethPair {
    /// Creates the namespaces and joins them by interfaces of `mtu` bytes, with addresses for the
    /// kernel's sockets.
    ///
    /// # Errors
    ///
    /// [`NamespaceError`] without root, or without `ip`.
    pub fn new(mtu: u16) -> Result<Self, NamespaceError> {
        Self::configured(mtu, |interface, address| {
            ip(&["address", "add", &format!("{address}/24"), "dev", interface])
        })
    }

    /// As [`VethPair::new`], for stacks that bring their own addresses: the kernel has none on
    /// these interfaces, not even a link-local one, and sends nothing.
    ///
    /// # Errors
    ///
    /// [`NamespaceError`] without root, or without `ip`.
    pub fn without_addresses(mtu: u16) -> Result<Self, NamespaceError> {
        Self::configured(mtu, |interface, _| ip(&["link", "set", interface, "addrgenmode", "none"]))
    }

    /// Creates both namespaces and both interfaces, configures each, and sets them up.
    fn configured(
        mtu: u16,
        configure: fn(&str, Ipv4Addr) -> Result<(), NamespaceError>,
    ) -> Result<Self, NamespaceError> {
        let pair = VethPair { client: new_namespace()?, server: new_namespace()? };
        let (mtu, server) = (mtu.to_string(), pair.server_path().display().to_string());
        let client = ["link", "add", "name", CLIENT_INTERFACE, "mtu", &mtu, "type", "veth"];
        let peer = ["peer", "name", SERVER_INTERFACE, "mtu", &mtu, "netns", &server];
        run_in(&pair.client, || ip(&[&client[..], &peer[..]].concat()))?;
        for (namespace, interface, address) in
            [(&pair.client, CLIENT_INTERFACE, CLIENT_ADDR), (&pair.server, SERVER_INTERFACE, SERVER_ADDR)]
        {
            run_in(namespace, || {
                configure(interface, address)?;
                ip(&["link", "set", "lo", "up"])?;
                ip(&["link", "set", interface, "up"])
            })?;
        }
        Ok(pair)
    }

    /// Moves the calling thread, and threads that it starts later, to the client's namespace.
    ///
    /// # Errors
    ///
    /// [`NamespaceError::Denied`] without root.
    pub fn enter_client_namespace(&self) -> Result<(), NamespaceError> {
        enter(&self.client)
    }

    /// The path of the server's namespace, for this process and its children.
    pub fn server_path(&self) -> PathBuf {
        PathBuf::from(format!("/proc/{}/fd/{}", std::process::id(), self.server.as_raw_fd()))
    }

    /// Runs `make` in the client's namespace, for example to create a socket.
    pub fn in_client_namespace<T: Send>(&self, make: impl FnOnce() -> T + Send) -> Result<T, NamespaceError> {
        run_in(&self.client, || Ok(make()))
    }
}

/// Runs `make` in the namespace of a path.
pub fn in_namespace<T: Send>(path: &Path, make: impl FnOnce() -> T + Send) -> Result<T, NamespaceError> {
    let namespace = File::open(path).map_err(NamespaceError::Denied)?;
    run_in(&namespace, || Ok(make()))
}

/// Moves the calling thread, and threads that it starts later, to the namespace of a path.
///
/// # Errors
///
/// [`NamespaceError::Denied`] without root, or if the path is not a namespace.
pub fn enter_namespace(path: &Path) -> Result<(), NamespaceError> {
    enter(&File::open(path).map_err(NamespaceError::Denied)?)
}

fn enter(namespace: &File) -> Result<(), NamespaceError> {
    setns(namespace, CloneFlags::CLONE_NEWNET).map_err(|error| NamespaceError::Denied(error.into()))
}

/// A new namespace. The creating thread ends at once; the descriptor keeps the namespace.
fn new_namespace() -> Result<File, NamespaceError> {
    run_on_thread(|| {
        unshare(CloneFlags::CLONE_NEWNET).map_err(|error| NamespaceError::Denied(error.into()))?;
        File::open("/proc/thread-self/ns/net").map_err(NamespaceError::Denied)
    })
}

fn run_in<T: Send>(
    namespace: &File,
    work: impl FnOnce() -> Result<T, NamespaceError> + Send,
) -> Result<T, NamespaceError> {
    run_on_thread(|| {
        enter(namespace)?;
        work()
    })
}

/// Runs `work` on a new thread, since a change of namespace affects the whole thread.
fn run_on_thread<T: Send>(
    work: impl FnOnce() -> Result<T, NamespaceError> + Send,
) -> Result<T, NamespaceError> {
    thread::scope(|scope| {
        let outcome = scope.spawn(work).join();
        outcome.unwrap_or_else(|_| Err(NamespaceError::Denied(io::Error::other("the thread panicked"))))
    })
}

fn ip(arguments: &[&str]) -> Result<(), NamespaceError> {
    let failed =
        |reason: String| NamespaceError::Command { command: format!("ip {}", arguments.join(" ")), reason };
    let output = Command::new("ip").args(arguments).output().map_err(|error| failed(error.to_string()))?;
    if output.status.success() {
        return Ok(());
    }
    let stderr = String::from_utf8_lossy(&output.stderr);
    Err(failed(stderr.lines().next().unwrap_or("failed without a word").to_owned()))
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    /// Prints why a test was skipped, past the capture of its output.
    fn skipped(error: &io::Error) {
        writeln!(io::stderr(), "\nSKIPPED: no veth pair: {error}").expect("a terminal");
    }

    #[test]
    fn a_command_that_fails_is_named_with_what_it_said() {
        let error = ip(&["link", "show", "no-such-link0"]).expect_err("no such interface").to_string();
        assert!(error.starts_with("`ip link show no-such-link0`: "), "{error}");
    }

    /// The kernel must send nothing of its own: a test counts frames, and its stacks have other
    /// addresses.
    #[test]
    fn a_pair_without_addresses_is_up_and_its_kernel_is_silent() {
        let pair = match VethPair::without_addresses(9000) {
            Err(NamespaceError::Denied(error)) => return skipped(&error),
            pair => pair.expect("a veth pair"),
        };
        let show = |what: &'static [&str]| {
            let output = pair.in_client_namespace(|| Command::new("ip").args(what).output());
            String::from_utf8(output.expect("a namespace").expect("iproute2").stdout).expect("text")
        };
        let link = show(&["-o", "link", "show", CLIENT_INTERFACE]);
        for word in ["mtu 9000", "LOWER_UP"] {
            assert!(link.contains(word), "{word}: {link}");
        }
        assert_eq!(show(&["-o", "address", "show", "dev", CLIENT_INTERFACE]), "");
    }

    #[test]
    fn a_thread_enters_a_namespace_and_other_threads_do_not() {
        let pair = match VethPair::without_addresses(1500) {
            Err(NamespaceError::Denied(error)) => return skipped(&error),
            pair => pair.expect("a veth pair"),
        };
        let own = || std::fs::read_link("/proc/thread-self/ns/net").expect("a namespace");
        let before = own();
        let inside = run_on_thread(|| {
            enter_namespace(&pair.server_path())?;
            let server = own();
            pair.enter_client_namespace()?;
            Ok((server, own()))
        });
        let (server, client) = inside.expect("root");
        assert!(server != client && server != before && client != before);
        assert_eq!(own(), before);
    }

    #[test]
    fn a_namespace_that_is_not_there_is_refused() {
        assert!(in_namespace(Path::new("/proc/self/fd/9999"), || ()).is_err());
        assert!(in_namespace(Path::new("/etc/hostname"), || ()).is_err());
    }
}
