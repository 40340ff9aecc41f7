//! Links that a configuration is made for, and the configuration.

use std::fs;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

use clap::ValueEnum;
use ironwarp::Config;

/// What connects the program to its peer.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Link {
    /// Shared memory between two programs of this host.
    Memif {
        role: Role,
        /// Tells several pairs of a host apart.
        name: String,
    },
    /// A tap interface, whose other end is Linux.
    Tap {
        interface: String,
        /// The program's address and prefix length.
        address: String,
    },
}

/// An end of a pair.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Role {
    Server,
    Client,
}

/// The transport below RDMA.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub(crate) enum Transport {
    /// MPA over TCP (RFC 5044)
    Tcp,
    /// SCTP (RFC 5043)
    Sctp,
}

impl Link {
    /// Writes the configuration to a file that is the user's only, and returns its path. Fails with
    /// one line.
    pub(crate) fn write_config(&self, transport: Transport) -> Result<PathBuf, String> {
        let folder = user_folder()?;
        let file = folder.join(format!("{}.toml", self.file_name()));
        let text = self.config(&folder, transport);
        Config::from_toml(&text).map_err(|error| error.to_string())?;
        fs::write(&file, text).map_err(|error| format!("{}: {error}", file.display()))?;
        Ok(file)
    }

    fn file_name(&self) -> String {
        match self {
            Link::Memif { role: Role::Server, name } => format!("{name}-server"),
            Link::Memif { role: Role::Client, name } => format!("{name}-client"),
            // Interface names have no slash, which the configuration's check ensures.
            Link::Tap { interface, .. } => format!("tap-{}", interface.replace('/', "_")),
        }
    }

    fn config(&self, folder: &Path, transport: Transport) -> String {
        let (device, mtu, address) = match self {
            Link::Memif { role, name } => {
                let socket = folder.join(format!("{name}.sock"));
                let (role, host) = match role {
                    Role::Server => ("server", 1),
                    Role::Client => ("client", 2),
                };
                let device = format!("device.memif = {{ role = {role:?}, socket = {socket:?} }}");
                (device, 9000, format!("10.99.0.{host}/24"))
            }
            Link::Tap { interface, address } => {
                (format!("device.tap = {{ interface = {interface:?} }}"), 1500, address.clone())
            }
        };
        // A peer's process may end without a word: keep-alive probes find out. Programs connect
        // before the peer listens, and some of them fail if they are refused.
        let settings = match transport {
            Transport::Tcp => {
                "[tcp]\nrefused_retries = 3\nkeep_alive = { idle_s = 5, interval_s = 1, probes = 5 }\n"
            }
            // In a shared association a session is refused at once, and not tried again.
            Transport::Sctp => {
                "[stack]\ntransport = \"sctp\"\n[sctp]\nshare_associations = false\nrefused_retries = 5\n\
                 heartbeat_interval_ms = 1000\n"
            }
        };
        format!(
            "# Made by iwarp-run.\n[port]\n{device}\nmtu = {mtu}\n[net]\naddress = {address:?}\n\
             [core]\nidle = \"yield\"\n{settings}"
        )
    }
}

/// Returns a folder of the user's, which nobody else may use: the socket of a pair gives access to
/// the program's network.
fn user_folder() -> Result<PathBuf, String> {
    let base = std::env::var_os("XDG_RUNTIME_DIR").map_or_else(std::env::temp_dir, PathBuf::from);
    let own = fs::metadata("/proc/self").map_err(|error| format!("/proc/self: {error}"))?.uid();
    let folder = base.join(format!("iwarp-run-{own}"));
    private_folder(&folder, own)?;
    Ok(folder)
}

/// Returns a folder like `/sys` with the library's device, for programs that look for a device
/// there first.
pub(crate) fn sysfs_folder() -> Result<PathBuf, String> {
    let folder = user_folder()?.join("sys");
    let device = folder.join("class/infiniband/ironwarp0");
    fs::create_dir_all(&device).map_err(|error| format!("{}: {error}", device.display()))?;
    Ok(folder)
}

fn private_folder(folder: &Path, own: u32) -> Result<(), String> {
    let created = fs::DirBuilder::new().mode(0o700).create(folder);
    if let Err(error) = created
        && error.kind() != std::io::ErrorKind::AlreadyExists
    {
        return Err(format!("{}: {error}", folder.display()));
    }
    let found = fs::symlink_metadata(folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    if found.is_dir() && found.uid() == own && found.mode() & 0o077 == 0 {
        Ok(())
    } else {
        Err(format!("{}: must be a folder of this user that nobody else may use", folder.display()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn made_configurations_are_valid_and_fit_together() {
        let folder = Path::new("/run/x");
        let end = |role, transport| Link::Memif { role, name: "a".into() }.config(folder, transport);
        let (server, client) = (end(Role::Server, Transport::Tcp), end(Role::Client, Transport::Sctp));
        assert!(client.contains("transport = \"sctp\""), "{client}");
        for text in [&server, &client] {
            assert!(text.contains("socket = \"/run/x/a.sock\" }"), "{text}");
            Config::from_toml(text).expect("a valid configuration");
        }
        assert!(server.contains("10.99.0.1/24") && client.contains("10.99.0.2/24"));
        let tap = Link::Tap { interface: "iwtap0".into(), address: "10.98.0.2/24".into() };
        Config::from_toml(&tap.config(folder, Transport::Tcp)).expect("a valid configuration");
    }

    #[test]
    fn a_folder_that_others_may_use_is_refused() {
        let base = tempfile::tempdir().unwrap();
        let own = fs::metadata(base.path()).unwrap().uid();
        let folder = base.path().join("a");
        assert_eq!(private_folder(&folder, own), Ok(()));
        assert_eq!(private_folder(&folder, own), Ok(()), "it may exist");
        fs::set_permissions(&folder, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
        assert!(private_folder(&folder, own).is_err_and(|line| line.contains("nobody else")));
        let link = base.path().join("b");
        std::os::unix::fs::symlink(&folder, &link).unwrap();
        assert!(private_folder(&link, own).is_err());
    }
}
