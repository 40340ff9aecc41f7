//! What this machine has for a configured device, looked at before DPDK is.
//!
//! DPDK says in its own log why a device cannot be had, and to the program hardly more than that. So what can be known
//! beforehand is asked of the kernel: interfaces and addresses by netlink, since `/sys` may show another network
//! namespace, everything else in `/proc`, `/sys` and `/dev`. Takes a [`Config`]; gives [`Finding`]s, each one line with
//! what was found and what to do. Nothing is changed, opened or waited for; what cannot be read is left out rather than
//! guessed. Costs a few milliseconds, once a start.

mod interface;
mod memory;
mod netlink;
pub(crate) mod offloads;
mod pci;
mod process;
mod socket;

use core::fmt;
use std::path::{Path, PathBuf};

use crate::config::{Config, DeviceConfig};
#[cfg(feature = "dpdk")]
pub(crate) use memory::needed_mib;
pub use netlink::{Link, Links};

/// How bad a finding is.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Severity {
    /// It is as it should be.
    Good,
    /// It works, and could be better or may surprise.
    Warning,
    /// The stack does not start, or reaches nobody.
    Fault,
}

/// One thing that was looked at.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Finding {
    /// What was looked at, in one word.
    pub check: &'static str,
    /// How bad it is.
    pub severity: Severity,
    /// What there is.
    pub found: String,
    /// What to do about it; empty where there is nothing to be done.
    pub remedy: String,
}

impl Severity {
    /// The word for it.
    pub fn name(self) -> &'static str {
        match self {
            Severity::Good => "good",
            Severity::Warning => "warning",
            Severity::Fault => "fault",
        }
    }
}

impl Finding {
    /// What is as it should be.
    pub fn good(check: &'static str, found: impl Into<String>) -> Self {
        Finding { check, severity: Severity::Good, found: found.into(), remedy: String::new() }
    }

    /// What may surprise.
    pub fn warning(check: &'static str, found: impl Into<String>, remedy: impl Into<String>) -> Self {
        Finding { check, severity: Severity::Warning, found: found.into(), remedy: remedy.into() }
    }

    /// What has to be changed.
    pub fn fault(check: &'static str, found: impl Into<String>, remedy: impl Into<String>) -> Self {
        Finding { check, severity: Severity::Fault, found: found.into(), remedy: remedy.into() }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.found)?;
        if self.remedy.is_empty() { Ok(()) } else { write!(f, "; {}", self.remedy) }
    }
}

impl std::error::Error for Finding {}

/// A machine to be looked at.
pub struct Host {
    root: PathBuf,
    links: Option<Links>,
}

impl Host {
    /// This machine, as this process sees it.
    pub fn local() -> Self {
        Host { root: "/".into(), links: Links::read().ok() }
    }

    /// A machine whose `/proc`, `/sys` and `/dev` lie in a folder, with these interfaces.
    pub fn with_root(root: &Path, links: Links) -> Self {
        Host { root: root.into(), links: Some(links) }
    }

    /// Everything that can be known of a configuration before its device is opened: first what the process may do, then
    /// the device from the bottom up.
    pub fn examine(&self, config: &Config) -> Vec<Finding> {
        let mut findings = self.examine_all(config);
        for port in 1..config.ports() {
            findings.extend(self.examine_port(&config.for_port(port)));
        }
        findings
    }

    /// The same for the first port, and what all have in common.
    pub(crate) fn examine_all(&self, config: &Config) -> Vec<Finding> {
        let mut findings = self.examine_port(config);
        findings.extend(self.check_memory(config));
        findings.extend(self.check_processors(config));
        findings
    }

    /// What one port asks for, as if it were the only one.
    pub(crate) fn examine_port(&self, config: &Config) -> Vec<Finding> {
        let mut findings = self.check_privileges(&config.port.device);
        findings.extend(self.check_device(config));
        findings
    }

    /// The device alone, for an application that owns DPDK's environment.
    pub(crate) fn check_device(&self, config: &Config) -> Vec<Finding> {
        let mut findings = match &config.port.device {
            // A port that DPDK has already was opened by somebody who looked.
            DeviceConfig::Memory {} | DeviceConfig::Ring { .. } | DeviceConfig::Dpdk { .. } => Vec::new(),
            DeviceConfig::Tap { interface } => self.check_tap(interface),
            DeviceConfig::AfPacket { interface } => {
                self.check_interface("port.device.af_packet.interface", interface, config)
            }
            DeviceConfig::AfXdp { interface } => {
                self.check_interface("port.device.af_xdp.interface", interface, config)
            }
            DeviceConfig::Memif { role, socket, .. } => self.check_socket(
                "port.device.memif.socket",
                *role == crate::config::MemifRole::Server,
                socket,
            ),
            DeviceConfig::Vhost { socket } => self.check_socket("port.device.vhost.socket", true, socket),
            DeviceConfig::Pci { address } => self.check_nic(address, config),
        };
        findings.extend(self.check_addresses(config));
        findings
    }

    /// A file's text without the space around it.
    fn read_trimmed(&self, path: &str) -> Option<String> {
        std::fs::read_to_string(self.path(path)).ok().map(|text| text.trim().to_owned())
    }

    fn path(&self, path: &str) -> PathBuf {
        self.root.join(path.trim_start_matches('/'))
    }

    fn exists(&self, path: &str) -> bool {
        self.path(path).exists()
    }

    /// The last part of what a symbolic link names.
    fn link_target(&self, path: &str) -> Option<String> {
        let target = std::fs::read_link(self.path(path)).ok()?;
        target.file_name().map(|name| name.to_string_lossy().into_owned())
    }
}

#[cfg(test)]
mod tests;
