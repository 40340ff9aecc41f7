//! Who a subsystem and its namespaces are: serial numbers, UUIDs and NGUIDs.
//!
//! Linux joins namespaces with the same identity to one multipath disk, so two targets must never
//! have the same by accident, and one target must keep its own. What the configuration does not
//! name is random and kept in a file of `state_dir`, by the NQN of the subsystem and the NSID.
//! Without that folder only namespaces of `memory` and `null` can do without explicit keys: their
//! contents end with the process, and so do their identities.
//!
//! The file is JSON. It is replaced as a whole and is durable before a host sees a new identity.
//! Entries are never removed: a namespace that comes back is the same. A target that runs has the
//! folder locked.

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, BufWriter, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::config::{BackendConfig, NamespaceConfig, SubsystemConfig, TargetConfig};
use crate::replace::{Durability, replace};

/// The file.
const FILE: &str = "identities.json";
/// The file that a running target has locked.
const LOCK: &str = "lock";
/// The version of the file.
const SCHEMA: u32 = 1;
/// Characters of a serial number (Base 1.4, 5.15.2.2: SN).
const SERIAL_CHARACTERS: usize = 20;

/// Why there is no identity.
#[derive(Debug, thiserror::Error)]
pub enum IdentityError {
    /// The folder or a file in it cannot be used.
    #[error("{path}: {source}")]
    State {
        /// The path.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// Another target runs with the folder.
    #[error("state_dir = {0}: another target that runs has it; give each target its own")]
    InUse(PathBuf),
    /// A disk whose identity would change with each start.
    #[error("{what}: random ones need state_dir, in which they are kept; or set {key}")]
    NoState {
        /// The subsystem or namespace.
        what: String,
        /// The key that names it.
        key: &'static str,
    },
}

/// What the file holds.
#[derive(Serialize, Deserialize, Debug, Default, Clone, PartialEq, Eq)]
#[serde(deny_unknown_fields)]
struct State {
    schema: u32,
    subsystems: BTreeMap<String, SubsystemState>,
}

#[derive(Serialize, Deserialize, Debug, Default, Clone, PartialEq, Eq)]
#[serde(deny_unknown_fields)]
struct SubsystemState {
    serial: Option<String>,
    #[serde(default)]
    uuids: BTreeMap<u32, Uuid>,
}

/// The identities of a target.
#[derive(Debug)]
pub struct Identities {
    folder: Option<PathBuf>,
    state: State,
    /// What the file has.
    saved: State,
    _lock: Option<File>,
}

impl Identities {
    /// Opens those of a target that will serve: locks the folder, which it makes if it does not
    /// exist.
    ///
    /// # Errors
    ///
    /// The folder cannot be made, another target has it, or its file is damaged.
    pub fn open(folder: Option<&Path>) -> Result<Self, IdentityError> {
        let Some(folder) = folder else { return Ok(Self::of(None, State::default(), None)) };
        let failed = |path: &Path, source| IdentityError::State { path: path.to_owned(), source };
        fs::create_dir_all(folder).map_err(|error| failed(folder, error))?;
        let path = folder.join(LOCK);
        let lock = OpenOptions::new().write(true).create(true).truncate(false).mode(0o600).open(&path);
        let lock = lock.map_err(|error| failed(&path, error))?;
        match lock.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Err(IdentityError::InUse(folder.to_owned())),
            Err(TryLockError::Error(error)) => return Err(failed(&path, error)),
        }
        let named = lock.set_len(0).and_then(|()| writeln!(&lock, "{}", std::process::id()));
        named.map_err(|error| failed(&path, error))?;
        Ok(Self::of(Some(folder), read(folder)?, Some(lock)))
    }

    /// Returns the process of the target that runs with the folder.
    ///
    /// # Errors
    ///
    /// None does, or the folder cannot be read.
    pub fn process(folder: &Path) -> io::Result<u32> {
        if !Self::is_in_use(folder) {
            let text = format!("no target runs with state_dir = {}", folder.display());
            return Err(io::Error::new(io::ErrorKind::NotFound, text));
        }
        let text = fs::read_to_string(folder.join(LOCK))?;
        text.trim()
            .parse()
            .map_err(|_| io::Error::new(io::ErrorKind::InvalidData, "the lock file names no process"))
    }

    /// Opens those of a target for a look: nothing is made or locked. New ones are not kept.
    ///
    /// # Errors
    ///
    /// The file is damaged.
    pub fn look(folder: Option<&Path>) -> Result<Self, IdentityError> {
        let state = folder.map_or(Ok(State::default()), read)?;
        Ok(Self::of(folder, state, None))
    }

    /// Returns whether a target runs with the folder.
    pub fn is_in_use(folder: &Path) -> bool {
        let lock = File::open(folder.join(LOCK));
        lock.is_ok_and(|lock| matches!(lock.try_lock_shared(), Err(TryLockError::WouldBlock)))
    }

    fn of(folder: Option<&Path>, state: State, lock: Option<File>) -> Self {
        Identities { folder: folder.map(Path::to_owned), saved: state.clone(), state, _lock: lock }
    }

    /// Returns the serial number of a subsystem.
    ///
    /// # Errors
    ///
    /// There is no folder to keep it, and one of its namespaces is a file.
    pub fn serial(&mut self, subsystem: &SubsystemConfig) -> Result<String, IdentityError> {
        if let Some(serial) = &subsystem.serial {
            return Ok(serial.clone());
        }
        if self.folder.is_none() && subsystem.namespaces.iter().any(outlives_the_process) {
            let what = format!("the serial number of {}", subsystem.nqn);
            return Err(IdentityError::NoState { what, key: "serial" });
        }
        let state = self.state.subsystems.entry(subsystem.nqn.clone()).or_default();
        let random = || Uuid::new_v4().simple().to_string().chars().take(SERIAL_CHARACTERS).collect();
        Ok(state.serial.get_or_insert_with(random).clone())
    }

    /// Returns the UUID and the NGUID of a namespace. Without a key, the NGUID is the UUID.
    ///
    /// # Errors
    ///
    /// There is no folder to keep them, and the namespace is a file.
    pub fn namespace(
        &mut self,
        nqn: &str,
        namespace: &NamespaceConfig,
    ) -> Result<([u8; 16], [u8; 16]), IdentityError> {
        let uuid = match namespace.uuid() {
            Some(uuid) => uuid,
            None if self.folder.is_none() && outlives_the_process(namespace) => {
                let what = format!("the UUID of namespace {} of {nqn}", namespace.nsid);
                return Err(IdentityError::NoState { what, key: "uuid" });
            }
            None => {
                let state = self.state.subsystems.entry(nqn.to_owned()).or_default();
                *state.uuids.entry(namespace.nsid).or_insert_with(Uuid::new_v4)
            }
        };
        Ok((uuid.into_bytes(), namespace.nguid().unwrap_or(uuid).into_bytes()))
    }

    /// Checks that everything in a configuration has an identity.
    ///
    /// # Errors
    ///
    /// As [`Identities::serial`] and [`Identities::namespace`].
    pub fn complete(&mut self, config: &TargetConfig) -> Result<(), IdentityError> {
        for subsystem in &config.subsystems {
            self.serial(subsystem)?;
            for namespace in &subsystem.namespaces {
                self.namespace(&subsystem.nqn, namespace)?;
            }
        }
        Ok(())
    }

    /// Makes new identities durable.
    ///
    /// # Errors
    ///
    /// The file cannot be written. The identities in memory stay.
    pub fn save(&mut self) -> Result<(), IdentityError> {
        let Some(folder) = self.folder.as_deref().filter(|_| self.state != self.saved) else { return Ok(()) };
        let path = folder.join(FILE);
        self.state.schema = SCHEMA;
        write(folder, &self.state).map_err(|source| IdentityError::State { path, source })?;
        self.saved = self.state.clone();
        Ok(())
    }
}

/// Whether a namespace has its contents after a restart.
fn outlives_the_process(namespace: &NamespaceConfig) -> bool {
    matches!(namespace.backend, BackendConfig::File { .. })
}

fn read(folder: &Path) -> Result<State, IdentityError> {
    let path = folder.join(FILE);
    let failed = |source| IdentityError::State { path: path.clone(), source };
    let text = match fs::read_to_string(&path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(State::default()),
        text => text.map_err(failed)?,
    };
    // New identities in place of unreadable ones would be other disks to the hosts.
    let state: State = serde_json::from_str(&text).map_err(|error| failed(error.into()))?;
    if state.schema != SCHEMA {
        let text = format!("schema {}: this program knows {SCHEMA}", state.schema);
        return Err(failed(io::Error::new(io::ErrorKind::InvalidData, text)));
    }
    Ok(state)
}

fn write(folder: &Path, state: &State) -> io::Result<()> {
    let pretty = |file: &mut BufWriter<File>| Ok(serde_json::to_writer_pretty(file, state)?);
    replace(&folder.join(FILE), Durability::Durable, pretty)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(keys: &str, namespace: &str) -> TargetConfig {
        let text = format!(
            "listeners = [\"10.99.0.1:4420\"]\n[stack.port]\ndevice.memory = {{}}\n[stack.net]\n\
             address = \"10.99.0.1/24\"\n[[subsystem]]\nnqn = \"nqn.2014-08.org.example:disk\"\nallow_any_host = true\n\
             {keys}\n[[subsystem.namespace]]\nnsid = 1\n{namespace}\n"
        );
        TargetConfig::from_toml(&text).unwrap_or_else(|error| panic!("{error}"))
    }

    const FILE_BACKEND: &str = "backend.file = { path = \"/nonexistent\" }";
    const MEMORY: &str = "backend.memory = { mib = 1 }";

    fn all(identities: &mut Identities, config: &TargetConfig) -> (String, [u8; 16]) {
        let subsystem = &config.subsystems[0];
        let serial = identities.serial(subsystem).expect("a serial number");
        let (uuid, nguid) = identities.namespace(&subsystem.nqn, &subsystem.namespaces[0]).expect("a UUID");
        assert_eq!(uuid, nguid);
        (serial, uuid)
    }

    #[test]
    fn identities_are_random_and_stay() {
        let [one, other] = [(); 2].map(|()| tempfile::tempdir().expect("a folder"));
        let config = config("", FILE_BACKEND);
        let first = {
            let mut identities = Identities::open(Some(one.path())).expect("open");
            let found = all(&mut identities, &config);
            identities.save().expect("saved");
            found
        };
        assert_eq!((first.0.len(), Uuid::from_bytes(first.1).get_version_num()), (20, 4));
        let again = all(&mut Identities::open(Some(one.path())).expect("open"), &config);
        assert_eq!(again, first);
        let second = all(&mut Identities::open(Some(other.path())).expect("open"), &config);
        assert!(second.0 != first.0 && second.1 != first.1);
    }

    #[test]
    fn what_outlives_the_process_needs_a_folder_or_keys() {
        let mut none = Identities::open(None).expect("open");
        let error = none.complete(&config("", FILE_BACKEND)).expect_err("no folder").to_string();
        assert!(error.contains("serial") && error.contains("state_dir"), "{error}");
        let error =
            none.complete(&config("serial = \"7\"", FILE_BACKEND)).expect_err("no folder").to_string();
        assert!(
            error.contains("namespace 1 of nqn.2014-08.org.example:disk") && error.contains("uuid"),
            "{error}"
        );
        let uuid = "uuid = \"00112233-4455-6677-8899-aabbccddeeff\"\n".to_owned() + FILE_BACKEND;
        none.complete(&config("serial = \"7\"", &uuid)).expect("explicit");
        // Memory is another disk after each start.
        let memory = config("", MEMORY);
        let first = all(&mut none, &memory);
        assert_eq!(all(&mut none, &memory), first);
        assert_ne!(all(&mut Identities::open(None).expect("open"), &memory), first);
    }

    #[test]
    fn a_folder_is_for_one_target_and_a_damaged_file_is_named() {
        let folder = tempfile::tempdir().expect("a folder");
        let first = Identities::open(Some(folder.path())).expect("open");
        assert!(matches!(Identities::open(Some(folder.path())), Err(IdentityError::InUse(_))));
        assert!(Identities::look(Some(folder.path())).is_ok());
        drop(first);
        for text in ["{", "{\"schema\":2,\"subsystems\":{}}", "{\"schema\":1,\"subsystems\":{},\"more\":0}"] {
            fs::write(folder.path().join(FILE), text).expect("written");
            let error = Identities::open(Some(folder.path())).expect_err(text).to_string();
            assert!(error.contains(FILE), "{error}");
        }
    }
}
