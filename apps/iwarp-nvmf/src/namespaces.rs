//! The namespaces of a target that serves, and their change by a new configuration.
//!
//! Takes a [`TargetConfig`] and adds, replaces and removes namespaces until the target has those of
//! the configuration, and sets whom the target authenticates. A new device is opened on every core
//! before a host can see it, and an old one is closed after its last command. What else has changed
//! is reported and needs a restart. A namespace that cannot be opened leaves the others, and its
//! predecessor, as they were. Hosts get the event Namespace Attribute Changed (Base 1.4, 5.2).

use core::fmt;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use ironwarp::{Context, ProtectionDomain, Stack};

use crate::NvmfError;
use crate::backend::{Claim, FileMedium, MediumId};
use crate::config::{BackendConfig, NamespaceConfig, SubsystemConfig, TargetConfig};
use crate::open::{Medium, Opener, name};
use crate::target::{Namespace, NamespaceInfo, Target};
use crate::transport::{CoreDevices, DeviceChange};

/// The time that a core has to open a device. Cores look some fifty times a second.
const OPEN_TIMEOUT: Duration = Duration::from_secs(10);

/// The namespaces of a target.
pub struct Namespaces {
    stack: Stack,
    pd: ProtectionDomain,
    target: Arc<Target>,
    cores: Vec<CoreDevices>,
    /// What is served.
    current: TargetConfig,
    /// Registers memory of later namespaces.
    ctx: Option<Context>,
    /// The files of namespaces, by the names of the namespaces, and what opens others.
    opened: Opened,
}

/// What a target has opened.
pub(crate) struct Opened {
    pub(crate) opener: Opener,
    /// The files of namespaces, by the names of the namespaces.
    pub(crate) files: BTreeMap<String, Arc<FileMedium>>,
    /// The number of the next device.
    pub(crate) devices: usize,
}

/// What a new configuration has changed: namespaces as `NQN NSID`, and `authentication`.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct ReloadReport {
    /// Added namespaces.
    pub added: Vec<String>,
    /// Replaced ones: another backend, size or right.
    pub changed: Vec<String>,
    /// Removed ones.
    pub removed: Vec<String>,
    /// Those that could not be opened, and why.
    pub failed: Vec<String>,
    /// Changes that take effect after a restart.
    pub needs_restart: Vec<String>,
}

impl ReloadReport {
    /// Returns whether the target is now what the configuration says.
    pub fn is_complete(&self) -> bool {
        self.failed.is_empty() && self.needs_restart.is_empty()
    }
}

impl fmt::Display for ReloadReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut separator = "";
        for (what, names) in [
            ("added", &self.added),
            ("changed", &self.changed),
            ("removed", &self.removed),
            ("failed", &self.failed),
            ("needs a restart", &self.needs_restart),
        ] {
            if !names.is_empty() {
                write!(f, "{separator}{what}: {}", names.join(", "))?;
                separator = "; ";
            }
        }
        if separator.is_empty() { write!(f, "nothing has changed") } else { Ok(()) }
    }
}

impl Namespaces {
    /// The namespaces of `config`, which are open.
    pub(crate) fn new(
        (stack, pd): (Stack, ProtectionDomain),
        target: Arc<Target>,
        cores: Vec<CoreDevices>,
        config: &TargetConfig,
        opened: Opened,
    ) -> Self {
        Namespaces { stack, pd, target, cores, current: config.clone(), ctx: None, opened }
    }

    /// Returns the claims of all files, for a successor.
    pub fn claims(&self) -> Vec<Arc<Claim>> {
        self.opened.opener.media.claims()
    }

    /// Closes what the predecessor has left and no namespace has taken, and returns the names.
    pub fn close_unused(&mut self) -> Vec<String> {
        self.opened.opener.media.close_unused()
    }

    /// Returns what all cores share.
    pub fn target(&self) -> &Arc<Target> {
        &self.target
    }

    /// Returns the stack.
    pub fn stack(&self) -> &Stack {
        &self.stack
    }

    /// Makes the namespaces those of `new`. Waits until all cores have opened the new devices.
    pub fn reload(&mut self, new: &TargetConfig) -> ReloadReport {
        let mut report =
            ReloadReport { needs_restart: other_changes(&self.current, new), ..ReloadReport::default() };
        if self.current.auth_policy() != new.auth_policy() {
            self.target.set_auth_policy(new.auth_policy());
            (self.current.hosts, self.current.authentication) =
                (new.hosts.clone(), new.authentication.clone());
            report.changed.push("authentication".to_owned());
        }
        let mut subsystems = std::mem::take(&mut self.current.subsystems);
        for subsystem in &mut subsystems {
            if let Some(new) = new.subsystems.iter().find(|one| one.nqn == subsystem.nqn) {
                self.reload_subsystem(subsystem, new, &mut report);
            }
        }
        self.current.subsystems = subsystems;
        self.close_removed();
        report
    }

    fn reload_subsystem(
        &mut self,
        current: &mut SubsystemConfig,
        new: &SubsystemConfig,
        report: &mut ReloadReport,
    ) {
        let nqn = current.nqn.clone();
        let name = |nsid: u32| name(&nqn, nsid);
        current.namespaces.retain(|old| {
            let stays = new.namespaces.iter().any(|one| one.nsid == old.nsid);
            if !stays {
                self.put(&nqn, old.nsid, None, None);
                report.removed.push(name(old.nsid));
            }
            stays
        });
        for namespace in &new.namespaces {
            let place = current.namespaces.iter_mut().find(|old| old.nsid == namespace.nsid);
            let info = self.info(&nqn, namespace.nsid);
            let same = place
                .as_deref()
                .zip(info)
                .is_some_and(|(old, info)| old == namespace && self.is_as_it_was(&nqn, old, info.blocks));
            if same {
                continue;
            }
            match self.open(&nqn, namespace) {
                Err(error) => report.failed.push(error.to_string()),
                Ok((made, medium)) => {
                    self.put(&nqn, namespace.nsid, Some(made), medium.file().cloned());
                    match place {
                        Some(old) => {
                            *old = namespace.clone();
                            report.changed.push(name(namespace.nsid));
                        }
                        None => {
                            current.namespaces.push(namespace.clone());
                            report.added.push(name(namespace.nsid));
                        }
                    }
                }
            }
        }
    }

    fn info(&self, nqn: &str, nsid: u32) -> Option<NamespaceInfo> {
        let subsystem = self.target.subsystems().iter().find(|one| one.nqn() == nqn)?;
        Some(subsystem.namespaces().get(&nsid)?.info)
    }

    /// Returns whether the file of a namespace, if it is one, is the same as before, has as many
    /// blocks and no failed fdatasync. One that is not there any more stays as it is.
    fn is_as_it_was(&self, nqn: &str, namespace: &NamespaceConfig, blocks: u64) -> bool {
        let BackendConfig::File { path, .. } = &namespace.backend else { return true };
        let Some(file) = self.opened.files.get(&name(nqn, namespace.nsid)) else { return true };
        let same_file = MediumId::of(path).is_ok_and(|id| id == file.claim().id());
        let same_size =
            file.bytes_now().is_ok_and(|bytes| bytes / u64::from(namespace.block_bytes) == blocks);
        let is_gone = !path.exists();
        file.sync_error().is_none() && (is_gone || same_file && same_size)
    }

    /// Opens the device of a namespace on every core.
    fn open(&mut self, nqn: &str, namespace: &NamespaceConfig) -> Result<(Namespace, Medium), NvmfError> {
        let ctx = match self.ctx.take() {
            Some(ctx) => ctx,
            None => self.stack.context()?,
        };
        let at = self.opened.devices;
        let opened = self.opened.opener.open((&ctx, self.pd), nqn, namespace, at);
        self.ctx = Some(ctx);
        let (medium, info) = opened?;
        self.opened.devices += 1;
        let made = Namespace::on_medium(info, medium.late());
        // This thread makes the devices: to pin the memory of a core takes long.
        let faults = self.opened.opener.faults();
        let open = |core: &mut CoreDevices| {
            let (of, counters, faults) = (medium.clone(), made.counters.clone(), faults.clone());
            Opener::device(of, counters, faults, &core.arena(OPEN_TIMEOUT)?)
        };
        let devices = self.cores.iter_mut().map(open).collect::<Result<Vec<_>, _>>()?;
        let (done, outcomes) = channel();
        for (core, device) in self.cores.iter().zip(devices) {
            core.send(DeviceChange::Add { at, device, done: done.clone() });
        }
        drop(done);
        let taken = self.all_taken(&outcomes);
        if taken.is_err() {
            self.close(at);
        }
        taken.map(|()| (made, medium))
    }

    fn all_taken(&self, outcomes: &Receiver<()>) -> Result<(), NvmfError> {
        for _ in &self.cores {
            let none = |_| NvmfError::Protocol("a core does not answer".into());
            outcomes.recv_timeout(OPEN_TIMEOUT).map_err(none)?;
        }
        Ok(())
    }

    /// Closes the devices that cores have removed, on the calling thread.
    pub fn close_removed(&self) {
        self.cores.iter().for_each(CoreDevices::close_removed);
    }

    /// Shows a namespace to hosts, or hides it, and closes the device of the one before it.
    fn put(&mut self, nqn: &str, nsid: u32, namespace: Option<Namespace>, file: Option<Arc<FileMedium>>) {
        let (before, name) = (self.info(nqn, nsid), name(nqn, nsid));
        self.opened.opener.media.settle(&name, file.as_deref());
        match file {
            Some(file) => drop(self.opened.files.insert(name, file)),
            None => drop(self.opened.files.remove(&name)),
        }
        self.target.change_namespace(nqn, nsid, namespace);
        if let Some(before) = before {
            self.close(before.backend);
        }
    }

    fn close(&self, at: usize) {
        for core in &self.cores {
            core.send(DeviceChange::Remove { at });
        }
    }
}

/// Returns what differs besides namespaces.
fn other_changes(old: &TargetConfig, new: &TargetConfig) -> Vec<String> {
    // The tables of the stack have no equality, but print all of their values.
    let text = |one: &dyn fmt::Debug| format!("{one:?}");
    let mut changes = Vec::new();
    let mut compare = |key: &str, old: &dyn fmt::Debug, new: &dyn fmt::Debug| {
        if text(old) != text(new) {
            changes.push(key.to_owned());
        }
    };
    compare("stack", &old.stack, &new.stack);
    compare("listeners", &old.listeners, &new.listeners);
    compare("limits", &old.limits, &new.limits);
    compare("state_dir", &old.state_dir, &new.state_dir);
    let heads = |config: &TargetConfig| {
        let head = |one: &SubsystemConfig| SubsystemConfig { namespaces: Vec::new(), ..one.clone() };
        config.subsystems.iter().map(head).collect::<Vec<_>>()
    };
    compare("subsystem", &heads(old), &heads(new));
    changes
}
