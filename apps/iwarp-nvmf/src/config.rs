//! The configuration of a target: TOML, as under `configs/`.
//!
//! Takes TOML text and gives a [`TargetConfig`] whose values are all in range. Errors name the key,
//! the value and what is allowed, on one line. Unknown keys are errors. The table `stack` is the
//! configuration of the RDMA stack.

use core::net::SocketAddr;
use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use serde::Deserialize;
use uuid::Uuid;
use zeroize::Zeroizing;

use crate::auth::{AuthPolicy, Group, Hash, HostSecrets, Secret};
use crate::wire::fabrics::{DISCOVERY_NQN, NQN_BYTES_MAX};

/// The configuration of a target.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TargetConfig {
    /// The RDMA stack.
    pub stack: ironwarp::Config,
    /// Addresses to listen on. Each serves all subsystems and the discovery subsystem.
    pub listeners: Vec<SocketAddr>,
    /// A folder for what must stay the same: random serial numbers and UUIDs. The program has a
    /// default.
    pub state_dir: Option<PathBuf>,
    /// Sizes.
    #[serde(default)]
    pub limits: LimitsConfig,
    /// How hosts with secrets are authenticated.
    #[serde(default)]
    pub authentication: AuthenticationConfig,
    /// The secrets of hosts, with those of the file of `authentication`.
    #[serde(default, rename = "host")]
    pub hosts: Vec<HostConfig>,
    /// The subsystems.
    #[serde(rename = "subsystem")]
    pub subsystems: Vec<SubsystemConfig>,
}

/// Sizes. Memory is allocated when the target starts, for each core.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct LimitsConfig {
    /// Hosts' controllers, without those for discovery.
    pub controllers: usize,
    /// Controllers of one host, by NQN and by address.
    pub controllers_per_host: usize,
    /// Discovery controllers.
    pub discovery_controllers: usize,
    /// I/O queues of a controller.
    pub io_queues: u16,
    /// Entries of an I/O queue.
    pub queue_entries: u16,
    /// Connections of a core.
    pub connections: usize,
    /// Connections of a core from one address.
    pub connections_per_address: usize,
    /// Capsules of a core: the entries of all queues on it.
    pub capsules: u32,
    /// Bytes of data in a command capsule.
    pub capsule_bytes: u32,
    /// The largest transfer of a command in KiB.
    pub transfer_kib: u32,
    /// Data buffers of a core, each of the size of the largest transfer.
    pub buffers: u32,
    /// RDMA Reads that a connection may have outstanding.
    pub reads: u16,
    /// The keep-alive timeout of hosts that request none, in milliseconds. 0: none.
    pub keep_alive_default_ms: u32,
    /// The time from a connection to its Connect command, in milliseconds.
    pub connect_timeout_ms: u64,
    /// The time that a host has to answer an RDMA Read or to take data, in milliseconds.
    pub peer_timeout_ms: u64,
    /// The same while others wait for a data buffer that it holds.
    pub contended_timeout_ms: u64,
    /// The time that a disk has to answer a request, in milliseconds.
    pub disk_timeout_ms: u64,
}

impl Default for LimitsConfig {
    fn default() -> Self {
        LimitsConfig {
            controllers: 64,
            controllers_per_host: 16,
            discovery_controllers: 16,
            io_queues: 16,
            queue_entries: 128,
            connections: 64,
            connections_per_address: 48,
            capsules: 4096,
            capsule_bytes: 4096,
            transfer_kib: 128,
            buffers: 128,
            reads: 16,
            keep_alive_default_ms: 0,
            connect_timeout_ms: 10_000,
            peer_timeout_ms: 30_000,
            contended_timeout_ms: 5_000,
            disk_timeout_ms: 30_000,
        }
    }
}

/// How hosts with secrets are authenticated.
#[derive(Clone, PartialEq, Eq, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct AuthenticationConfig {
    /// A file of secrets: `host` tables as those of the configuration.
    pub secrets: Option<PathBuf>,
    /// Whether hosts without a secret are refused. Default: if any host has one, or `secrets` is
    /// set.
    pub required: Option<bool>,
    /// The hash functions that are allowed.
    pub hashes: Vec<Hash>,
    /// The Diffie-Hellman groups that are allowed.
    pub groups: Vec<Group>,
}

impl Default for AuthenticationConfig {
    fn default() -> Self {
        let AuthPolicy { hashes, groups, .. } = AuthPolicy::default();
        AuthenticationConfig { secrets: None, required: None, hashes, groups }
    }
}

/// The secrets of a host.
#[derive(Clone, PartialEq, Eq, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HostConfig {
    /// The NQN of the host.
    pub nqn: String,
    /// Proves the host.
    pub dhchap_secret: Secret,
    /// Proves the controller to the host.
    pub dhchap_ctrl_secret: Option<Secret>,
}

impl HostConfig {
    /// Reads a file of secrets.
    ///
    /// # Errors
    ///
    /// The file cannot be read, others than its owner can, or a secret is damaged.
    pub fn from_file(path: &Path) -> Result<Vec<Self>, ConfigError> {
        #[derive(Deserialize)]
        #[serde(deny_unknown_fields)]
        struct Secrets {
            #[serde(rename = "host")]
            hosts: Vec<HostConfig>,
        }
        let (text, privacy) = read(path)?;
        privacy?;
        let Secrets { hosts } = parse(&text).map_err(|error| error.in_file(path))?;
        validate_hosts(&hosts)?;
        Ok(hosts)
    }

    /// Returns the secrets alone.
    pub fn secrets(&self) -> HostSecrets {
        HostSecrets { host: self.dhchap_secret.clone(), controller: self.dhchap_ctrl_secret.clone() }
    }
}

/// A subsystem.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SubsystemConfig {
    /// Its NQN.
    pub nqn: String,
    /// The serial number. Default: a random one, which `state_dir` keeps.
    pub serial: Option<String>,
    /// The model.
    #[serde(default = "default_model")]
    pub model: String,
    /// NQNs of the hosts that may connect.
    #[serde(default)]
    pub hosts: Vec<String>,
    /// Whether any host may connect.
    #[serde(default)]
    pub allow_any_host: bool,
    /// The namespaces.
    #[serde(default, rename = "namespace")]
    pub namespaces: Vec<NamespaceConfig>,
}

/// A namespace.
#[derive(Clone, PartialEq, Eq, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NamespaceConfig {
    /// NSID.
    pub nsid: u32,
    /// Where its blocks are.
    pub backend: BackendConfig,
    /// The size of a logical block in bytes.
    #[serde(default = "default_block_bytes")]
    pub block_bytes: u32,
    /// Whether hosts may only read.
    #[serde(default)]
    pub read_only: bool,
    /// Whether other targets may serve the same file or block device. It is not locked then.
    #[serde(default)]
    pub shared: bool,
    /// The UUID. Default: a random one, which `state_dir` keeps.
    pub uuid: Option<String>,
    /// The NGUID, in the form of a UUID. Default: the UUID.
    pub nguid: Option<String>,
}

/// Where the blocks of a namespace are.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum BackendConfig {
    /// Memory of the process.
    Memory {
        /// The size in MiB.
        mib: u32,
    },
    /// Nothing: reads are zeros.
    Null {
        /// The size in MiB.
        mib: u32,
    },
    /// A file or block device.
    File {
        /// Its path.
        path: PathBuf,
        /// Uses O_DIRECT where the file system has it.
        #[serde(default = "default_true")]
        direct: bool,
    },
}

fn default_model() -> String {
    "ironwarp".to_owned()
}

fn default_block_bytes() -> u32 {
    512
}

fn default_true() -> bool {
    true
}

/// Why a configuration is not valid.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// The file could not be read.
    #[error("{path}: {source}")]
    Read {
        /// The file.
        path: PathBuf,
        /// The system's error.
        source: std::io::Error,
    },
    /// The text is not TOML, or a key is unknown, missing or of another type.
    #[error("{0}")]
    Parse(String),
    /// Others than its owner can read a file with secrets.
    #[error(
        "{0} has secrets, and others can read it: chmod 600, or root's with 640 and the group of the service"
    )]
    NotPrivate(PathBuf),
    /// The owner of a file with secrets can change it.
    #[error("{path} has secrets, and belongs to user {owner}: chown it to root or to the user who runs this")]
    Owner {
        /// The file.
        path: PathBuf,
        /// The identifier of its owner.
        owner: u32,
    },
    /// A value is not allowed.
    #[error("{key} = {value}: {allowed}")]
    Value {
        /// The key.
        key: String,
        /// Its value.
        value: String,
        /// The allowed values.
        allowed: &'static str,
    },
    /// The table of the stack.
    #[error("stack: {0}")]
    Stack(#[from] ironwarp::ConfigError),
}

impl ConfigError {
    /// Names the file of a line.
    fn in_file(self, path: &Path) -> Self {
        match self {
            ConfigError::Parse(line) => ConfigError::Parse(format!("{}: {line}", path.display())),
            other => other,
        }
    }
}

/// Reads a file. Returns its text, and whether it may have secrets: it is root's or the user's own,
/// and only a group of root's choice can read it besides.
fn read(path: &Path) -> Result<(Zeroizing<String>, Result<(), ConfigError>), ConfigError> {
    let failed = |source| ConfigError::Read { path: path.to_owned(), source };
    let mut file = File::open(path).map_err(failed)?;
    let about = file.metadata().map_err(failed)?;
    let mut text = Zeroizing::new(String::new());
    file.read_to_string(&mut text).map_err(failed)?;
    let (owner, rights) = (about.uid(), about.mode());
    Ok((text, check_private(path, owner, rights)))
}

fn check_private(path: &Path, owner: u32, rights: u32) -> Result<(), ConfigError> {
    let others = if owner == 0 { 0o037 } else { 0o077 };
    if owner != 0 && owner != rustix::process::geteuid().as_raw() {
        Err(ConfigError::Owner { path: path.to_owned(), owner })
    } else if rights & others != 0 {
        Err(ConfigError::NotPrivate(path.to_owned()))
    } else {
        Ok(())
    }
}

fn parse<T: for<'de> Deserialize<'de>>(text: &str) -> Result<T, ConfigError> {
    toml::from_str(text).map_err(|error| {
        let before = error.span().and_then(|span| text.get(..span.start)).unwrap_or("");
        let line = 1 + before.matches('\n').count();
        ConfigError::Parse(format!("line {line}: {}", error.message().replace('\n', " ")))
    })
}

impl TargetConfig {
    /// Reads and validates a file, and the file of secrets that it names.
    ///
    /// # Errors
    ///
    /// [`ConfigError`] names the key, the value and what is allowed.
    pub fn from_file(path: &Path) -> Result<Self, ConfigError> {
        let (text, privacy) = read(path)?;
        let mut config = Self::from_toml(&text).map_err(|error| error.in_file(path))?;
        if !config.hosts.is_empty() {
            privacy?;
        }
        if let Some(secrets) = &config.authentication.secrets {
            config.hosts.extend(HostConfig::from_file(secrets)?);
            validate_hosts(&config.hosts)?;
        }
        Ok(config)
    }

    /// Parses and validates text. It reads no other file.
    ///
    /// # Errors
    ///
    /// As [`TargetConfig::from_file`].
    pub fn from_toml(text: &str) -> Result<Self, ConfigError> {
        let config: TargetConfig = parse(text)?;
        config.validate()?;
        Ok(config)
    }

    /// Checks every value.
    ///
    /// # Errors
    ///
    /// As [`TargetConfig::from_file`].
    pub fn validate(&self) -> Result<(), ConfigError> {
        self.stack.validate()?;
        self.limits.validate()?;
        let depth = self.stack.limits.read_depth;
        check(
            self.limits.reads <= depth,
            "limits.reads",
            self.limits.reads,
            "at most stack.limits.read_depth",
        )?;
        let ours = self.stack.addresses()?;
        check(!self.listeners.is_empty(), "listeners", "[]", "at least one address and port")?;
        for (index, at) in self.listeners.iter().enumerate() {
            let own = at.ip().is_unspecified() || ours.contains(&at.ip());
            let allowed = "an address of stack.net and a port from 1 to 65535";
            check(own && at.port() != 0, "listeners", at, allowed)?;
            let before = self.listeners.get(..index).unwrap_or_default();
            check(
                !before.iter().any(|one| overlap(*one, *at)),
                "listeners",
                at,
                "each address and port once",
            )?;
        }
        let AuthenticationConfig { hashes, groups, .. } = &self.authentication;
        check(!hashes.is_empty(), "authentication.hashes", "[]", "at least one of sha256, sha384, sha512")?;
        check(
            !groups.is_empty(),
            "authentication.groups",
            "[]",
            "at least one of null, ffdhe2048 to ffdhe8192",
        )?;
        validate_hosts(&self.hosts)?;
        check(!self.subsystems.is_empty(), "subsystem", "[]", "at least one")?;
        let (mut nqns, mut serials) = (BTreeSet::new(), BTreeSet::new());
        for subsystem in &self.subsystems {
            subsystem.validate()?;
            if let Some(serial) = &subsystem.serial {
                // Linux names a disk by its model and its serial number.
                let allowed = "a serial number that no other subsystem of the model has";
                check(serials.insert((&subsystem.model, serial)), "subsystem.serial", serial, allowed)?;
            }
            check(
                nqns.insert(&subsystem.nqn),
                "subsystem.nqn",
                &subsystem.nqn,
                "an NQN that no other subsystem has",
            )?;
        }
        self.validate_identities()
    }

    /// Returns whom the target authenticates.
    pub fn auth_policy(&self) -> AuthPolicy {
        let hosts: BTreeMap<_, _> =
            self.hosts.iter().map(|one| (one.nqn.clone(), one.secrets().into())).collect();
        let AuthenticationConfig { secrets, required, hashes, groups } = self.authentication.clone();
        let is_required = required.unwrap_or(!hosts.is_empty() || secrets.is_some());
        AuthPolicy { hosts, is_required, hashes, groups }
    }

    /// Two disks with one identity are one multipath disk to Linux: only shared ones are.
    fn validate_identities(&self) -> Result<(), ConfigError> {
        let namespaces = || self.subsystems.iter().flat_map(|one| &one.namespaces);
        let (mut uuids, mut nguids) = (BTreeMap::new(), BTreeMap::new());
        for one in namespaces() {
            for (key, id, seen) in [
                ("namespace.uuid", one.uuid(), &mut uuids),
                ("namespace.nguid", one.nguid().or(one.uuid()), &mut nguids),
            ] {
                let Some(id) = id else { continue };
                let both_shared = seen.insert(id, one.shared).is_none_or(|before| before && one.shared);
                check(both_shared, key, id, "one that no other namespace has, unless both are shared")?;
            }
        }
        Ok(())
    }
}

fn validate_hosts(hosts: &[HostConfig]) -> Result<(), ConfigError> {
    let mut nqns = BTreeSet::new();
    for host in hosts {
        let allowed = "an NQN of 223 bytes at most that no other host has";
        // A secret in the wrong place is not shown either.
        let shown = if host.nqn.starts_with("DHHC-1:") { "(a secret)" } else { &host.nqn };
        check(is_nqn(&host.nqn) && nqns.insert(&host.nqn), "host.nqn", shown, allowed)?;
    }
    for (at, host) in hosts.iter().enumerate() {
        // Who knows the key of a host can prove to be that host.
        let is_elsewhere = hosts.iter().enumerate().any(|(other, one)| {
            let proves_target = one.dhchap_ctrl_secret.as_ref();
            other != at && one.dhchap_secret.has_key_of(&host.dhchap_secret)
                || proves_target.is_some_and(|one| one.has_key_of(&host.dhchap_secret))
        });
        let allowed = "a key that is no other host's, and no dhchap_ctrl_secret";
        check(!is_elsewhere, "host.dhchap_secret", format!("that of {}", host.nqn), allowed)?;
    }
    Ok(())
}

impl LimitsConfig {
    fn validate(&self) -> Result<(), ConfigError> {
        let range = |key: &str, value: u64, least: u64, most: u64, allowed| {
            check((least..=most).contains(&value), &format!("limits.{key}"), value, allowed)
        };
        range("controllers", self.controllers as u64, 1, 65_000, "1 to 65000")?;
        range("controllers_per_host", self.controllers_per_host as u64, 1, 65_519, "1 to 65519")?;
        // The CNTLIDs of both kinds are distinct.
        let most = 65_519 - self.controllers as u64;
        let allowed = "at least 1, and with limits.controllers at most 65519";
        range("discovery_controllers", self.discovery_controllers as u64, 1, most, allowed)?;
        range("io_queues", self.io_queues.into(), 1, 1024, "1 to 1024")?;
        range("queue_entries", self.queue_entries.into(), 2, 4096, "2 to 4096")?;
        range("connections", self.connections as u64, 1, 65_536, "1 to 65536")?;
        range("connections_per_address", self.connections_per_address as u64, 1, 65_536, "1 to 65536")?;
        range("capsules", self.capsules.into(), 32, 1 << 20, "32 to 1048576; an admin queue needs 32")?;
        let allowed = "a multiple of 4096 up to 16384";
        range("capsule_bytes", self.capsule_bytes.into(), 4096, 16_384, allowed)?;
        check(self.capsule_bytes.is_multiple_of(4096), "limits.capsule_bytes", self.capsule_bytes, allowed)?;
        let allowed = "a power of two from 4 to 4096";
        range("transfer_kib", self.transfer_kib.into(), 4, 4096, allowed)?;
        check(self.transfer_kib.is_power_of_two(), "limits.transfer_kib", self.transfer_kib, allowed)?;
        range("buffers", self.buffers.into(), 2, 65_536, "2 to 65536")?;
        range("reads", self.reads.into(), 1, 128, "1 to 128, and at most stack.limits.read_depth")?;
        range("connect_timeout_ms", self.connect_timeout_ms, 100, 600_000, "100 to 600000 milliseconds")?;
        let allowed = "1000 to 600000 milliseconds";
        range("peer_timeout_ms", self.peer_timeout_ms, 1000, 600_000, allowed)?;
        let allowed = "100 to 600000 milliseconds";
        range("contended_timeout_ms", self.contended_timeout_ms, 100, 600_000, allowed)?;
        range("disk_timeout_ms", self.disk_timeout_ms, 100, 600_000, allowed)?;
        let bytes = u64::from(self.buffers) * u64::from(self.transfer_kib) * 1024
            + u64::from(self.capsules) * u64::from(self.capsule_bytes + 64);
        range("buffers", bytes, 0, 1 << 30, "buffers and capsules of a core take at most 1 GiB in all")
    }
}

impl SubsystemConfig {
    fn validate(&self) -> Result<(), ConfigError> {
        let allowed =
            "an NQN as nqn.2014-08.org.example:disk, 223 bytes at most, not the discovery subsystem's";
        check(is_nqn(&self.nqn) && self.nqn != DISCOVERY_NQN, "subsystem.nqn", &self.nqn, allowed)?;
        let printable = |text: &str, most: usize| {
            text.len() <= most && text.bytes().all(|byte| (b' '..=b'~').contains(&byte))
        };
        if let Some(serial) = &self.serial {
            let allowed = "1 to 20 printable ASCII characters";
            check(printable(serial, 20) && !serial.trim().is_empty(), "subsystem.serial", serial, allowed)?;
        }
        check(
            printable(&self.model, 40),
            "subsystem.model",
            &self.model,
            "at most 40 printable ASCII characters",
        )?;
        let access = "NQNs in hosts, or allow_any_host = true, not both";
        check(
            self.hosts.is_empty() == self.allow_any_host,
            "subsystem.hosts",
            format!("{:?}", self.hosts),
            access,
        )?;
        for host in &self.hosts {
            check(is_nqn(host), "subsystem.hosts", host, "NQNs, 223 bytes each at most")?;
        }
        let mut nsids = BTreeSet::new();
        for namespace in &self.namespaces {
            namespace.validate()?;
            if namespace.shared {
                let explicit = self.serial.is_some() && namespace.uuid.is_some() && namespace.nguid.is_some();
                let allowed = "true with an explicit uuid and nguid, and an explicit serial of the subsystem";
                check(explicit, "namespace.shared", true, allowed)?;
            }
            let allowed = "a number that no other namespace of the subsystem has";
            check(nsids.insert(namespace.nsid), "namespace.nsid", namespace.nsid, allowed)?;
        }
        Ok(())
    }
}

impl NamespaceConfig {
    fn validate(&self) -> Result<(), ConfigError> {
        check((1..=crate::target::NSID_MAX).contains(&self.nsid), "namespace.nsid", self.nsid, "1 to 1024")?;
        let sizes = [512, 1024, 2048, 4096];
        check(
            sizes.contains(&self.block_bytes),
            "namespace.block_bytes",
            self.block_bytes,
            "512, 1024, 2048 or 4096",
        )?;
        for (key, text) in [("namespace.uuid", &self.uuid), ("namespace.nguid", &self.nguid)] {
            let Some(text) = text else { continue };
            let allowed = "32 hexadecimal digits as 00112233-4455-6677-8899-aabbccddeeff, not all 0 or f";
            let is_id = Uuid::try_parse(text).is_ok_and(|id| !id.is_nil() && !id.is_max());
            check(is_id, key, text, allowed)?;
        }
        let is_file = matches!(self.backend, BackendConfig::File { .. });
        check(is_file || !self.shared, "namespace.shared", self.shared, "true with backend.file only")?;
        match &self.backend {
            BackendConfig::Memory { mib } => {
                check((1..=1 << 20).contains(mib), "namespace.backend.memory.mib", mib, "1 to 1048576")
            }
            BackendConfig::Null { mib } => {
                check((1..=1 << 30).contains(mib), "namespace.backend.null.mib", mib, "1 to 1073741824")
            }
            BackendConfig::File { path, .. } => {
                let named = !path.as_os_str().is_empty();
                check(named, "namespace.backend.file.path", path.display(), "a file or a block device")
            }
        }
    }

    /// Returns the configured UUID.
    pub fn uuid(&self) -> Option<Uuid> {
        self.uuid.as_deref().and_then(|text| Uuid::try_parse(text).ok())
    }

    /// Returns the configured NGUID.
    pub fn nguid(&self) -> Option<Uuid> {
        self.nguid.as_deref().and_then(|text| Uuid::try_parse(text).ok())
    }
}

/// Whether a connection could belong to both listeners.
fn overlap(one: SocketAddr, other: SocketAddr) -> bool {
    let same_family = one.is_ipv4() == other.is_ipv4();
    let any = one.ip().is_unspecified() || other.ip().is_unspecified();
    one.port() == other.port() && (one.ip() == other.ip() || (any && same_family))
}

fn check(
    ok: bool,
    key: &str,
    value: impl core::fmt::Display,
    allowed: &'static str,
) -> Result<(), ConfigError> {
    if ok {
        Ok(())
    } else {
        Err(ConfigError::Value { key: key.to_owned(), value: value.to_string(), allowed })
    }
}

fn is_nqn(text: &str) -> bool {
    text.starts_with("nqn.") && text.len() <= NQN_BYTES_MAX && !text.contains(char::is_control)
}

#[cfg(test)]
mod tests;
