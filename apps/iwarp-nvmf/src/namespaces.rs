//! The namespaces of a target that serves, and their change by a new configuration.
//!
//! Takes a [`TargetConfig`] and adds, replaces and removes namespaces until the target has those of the configuration. A new
//! device is opened on every core before a host can see it, and an old one is closed after its last command. What else
//! has changed is reported and needs a restart. A namespace that cannot be opened leaves the others, and its
//! predecessor, as they were. Hosts get the event Namespace Attribute Changed (Base 1.4, 5.2).

use core::fmt;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use ironwarp::{Context, ProtectionDomain, Stack};

use crate::NvmfError;
use crate::backend::{FileMedium, FileOptions};
use crate::config::{BackendConfig, NamespaceConfig, SubsystemConfig, TargetConfig};
use crate::serve::{device, namespace_info, open_medium};
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
    /// The number of the next device.
    next_device: usize,
}

/// What a new configuration has changed: namespaces as `NQN NSID`.
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
    /// The namespaces of `config`, on devices with the numbers below `devices`.
    pub(crate) fn new(
        stack: Stack,
        pd: ProtectionDomain,
        target: Arc<Target>,
        cores: Vec<CoreDevices>,
        (config, devices): (&TargetConfig, usize),
    ) -> Self {
        Namespaces { stack, pd, target, cores, current: config.clone(), ctx: None, next_device: devices }
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
        let name = |nsid: u32| format!("{nqn} {nsid}");
        current.namespaces.retain(|old| {
            let stays = new.namespaces.iter().any(|one| one.nsid == old.nsid);
            if !stays {
                self.put(&nqn, old.nsid, None);
                report.removed.push(name(old.nsid));
            }
            stays
        });
        for namespace in &new.namespaces {
            let place = current.namespaces.iter_mut().find(|old| old.nsid == namespace.nsid);
            let info = self.info(&nqn, namespace.nsid);
            let same = place.as_deref().zip(info).is_some_and(|(old, info)| {
                old == namespace && file_blocks(old).is_none_or(|blocks| blocks == info.blocks)
            });
            if same {
                continue;
            }
            match self.open(&nqn, namespace) {
                Err(error) => report.failed.push(format!("{}: {error}", name(namespace.nsid))),
                Ok(made) => {
                    self.put(&nqn, namespace.nsid, Some(made));
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

    /// Opens the device of a namespace on every core.
    fn open(&mut self, nqn: &str, namespace: &NamespaceConfig) -> Result<Namespace, NvmfError> {
        let ctx = match self.ctx.take() {
            Some(ctx) => ctx,
            None => self.stack.context()?,
        };
        let opened = open_medium(&ctx, self.pd, namespace, self.current.limits.transfer_kib * 1024);
        self.ctx = Some(ctx);
        let (medium, bytes) = opened?;
        let at = self.next_device;
        self.next_device += 1;
        let made = Namespace::new(namespace_info(namespace, nqn, at, bytes));
        // This thread makes the devices: to pin the memory of a core takes long.
        let open = |core: &mut CoreDevices| {
            device((medium.clone(), made.counters.clone()), &core.arena(OPEN_TIMEOUT)?)
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
        taken.map(|()| made)
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
    fn put(&self, nqn: &str, nsid: u32, namespace: Option<Namespace>) {
        let before = self.info(nqn, nsid);
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

/// Returns the blocks that a file has now. `None`: it is not a file, or cannot be opened, and stays as it is.
fn file_blocks(namespace: &NamespaceConfig) -> Option<u64> {
    let BackendConfig::File { path, direct } = &namespace.backend else { return None };
    let options = FileOptions { direct: *direct, read_only: true };
    Some(FileMedium::open(path, options).ok()?.bytes() / u64::from(namespace.block_bytes))
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
    let heads = |config: &TargetConfig| {
        let head = |one: &SubsystemConfig| SubsystemConfig { namespaces: Vec::new(), ..one.clone() };
        config.subsystems.iter().map(head).collect::<Vec<_>>()
    };
    compare("subsystem", &heads(old), &heads(new));
    changes
}
