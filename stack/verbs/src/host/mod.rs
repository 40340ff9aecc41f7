//! Checks of this machine for a configured device, before its driver opens it.
//!
//! DPDK logs why a device cannot be opened but hardly reports it to the program. So the kernel is
//! asked beforehand: interfaces and addresses by netlink, since `/sys` may show another network
//! namespace, everything else in `/proc`, `/sys` and `/dev`. Takes a [`Config`] and gives
//! [`Finding`]s, each one line with the fact and the remedy. Changes, opens and awaits nothing.
//! What cannot be read is omitted. Costs a few milliseconds at the start.

mod interface;
mod memory;
mod netlink;
pub(crate) mod offloads;
mod pci;
mod process;
mod socket;

use core::fmt;
use std::path::{Path, PathBuf};

use crate::config::{Config, DeviceConfig, MemifRole};
use crate::error::SetupError;
#[cfg(feature = "dpdk")]
pub(crate) use memory::needed_mib;
pub use netlink::{Link, Links};

/// The severity of a finding.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Severity {
    /// No problem.
    Good,
    /// It works, but could be better or may surprise.
    Warning,
    /// The stack does not start, or reaches no peer.
    Fault,
}

/// The result of one check.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Finding {
    /// The subject, in one word.
    pub check: &'static str,
    /// The severity.
    pub severity: Severity,
    /// The fact.
    pub found: String,
    /// The remedy; empty if none is needed.
    pub remedy: String,
}

impl Severity {
    /// Returns the word for it.
    pub fn name(self) -> &'static str {
        match self {
            Severity::Good => "good",
            Severity::Warning => "warning",
            Severity::Fault => "fault",
        }
    }
}

impl Finding {
    /// Returns a finding without a problem.
    pub fn good(check: &'static str, found: impl Into<String>) -> Self {
        Finding { check, severity: Severity::Good, found: found.into(), remedy: String::new() }
    }

    /// Returns a warning.
    pub fn warning(check: &'static str, found: impl Into<String>, remedy: impl Into<String>) -> Self {
        Finding { check, severity: Severity::Warning, found: found.into(), remedy: remedy.into() }
    }

    /// Returns an error.
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

/// Logs the findings.
///
/// # Errors
/// The first fault.
pub(crate) fn report(findings: &[Finding]) -> Result<(), SetupError> {
    for finding in findings {
        match finding.severity {
            Severity::Fault => return Err(SetupError::Host(finding.clone())),
            Severity::Warning => tracing::warn!("{finding}"),
            Severity::Good => tracing::debug!("{finding}"),
        }
    }
    Ok(())
}

/// The machine that is checked.
pub struct Host {
    root: PathBuf,
    links: Option<Links>,
}

impl Host {
    /// Returns this machine, as this process sees it.
    pub fn local() -> Self {
        Host { root: "/".into(), links: Links::read().ok() }
    }

    /// Returns a machine whose `/proc`, `/sys` and `/dev` are in a folder, with these interfaces.
    pub fn with_root(root: &Path, links: Links) -> Self {
        Host { root: root.into(), links: Some(links) }
    }

    /// Checks everything that can be known before a device is opened: first the process, then the
    /// device from the bottom up.
    pub fn examine(&self, config: &Config) -> Vec<Finding> {
        let mut findings = self.examine_all(config);
        for port in 1..config.ports() {
            findings.extend(self.examine_port(&config.for_port(port)));
        }
        findings
    }

    /// Checks the first port, and what all ports have in common.
    pub(crate) fn examine_all(&self, config: &Config) -> Vec<Finding> {
        let mut findings = self.examine_port(config);
        findings.extend(self.check_memory(config));
        findings.extend(self.check_processors(config));
        findings
    }

    /// Checks one port as if it were the only one.
    pub(crate) fn examine_port(&self, config: &Config) -> Vec<Finding> {
        let mut findings = self.check_privileges(&config.port.device);
        findings.extend(self.check_device(config));
        findings
    }

    /// Checks the device alone, for an application that owns DPDK's environment.
    pub(crate) fn check_device(&self, config: &Config) -> Vec<Finding> {
        let mut findings = match &config.port.device {
            // A port that exists in DPDK was checked when it was opened.
            DeviceConfig::Memory {} | DeviceConfig::Ring { .. } | DeviceConfig::Dpdk { .. } => Vec::new(),
            DeviceConfig::Tap { interface } => self.check_tap(interface),
            DeviceConfig::AfPacket { interface } => {
                self.check_interface("port.device.af_packet.interface", interface, config)
            }
            DeviceConfig::AfXdp { interface } => {
                self.check_interface("port.device.af_xdp.interface", interface, config)
            }
            // A client connects when its server comes. Abstract names have no file.
            DeviceConfig::Memif { role, socket, .. }
                if *role == MemifRole::Client || socket.as_os_str().as_encoded_bytes().starts_with(b"@") =>
            {
                Vec::new()
            }
            DeviceConfig::Memif { socket, .. } => self.check_socket("port.device.memif.socket", socket),
            DeviceConfig::Vhost { socket } => self.check_socket("port.device.vhost.socket", socket),
            DeviceConfig::Pci { address } => self.check_nic(address, config),
        };
        findings.extend(self.check_addresses(config));
        findings
    }

    /// Returns a file's text without surrounding white space.
    fn read_trimmed(&self, path: &str) -> Option<String> {
        std::fs::read_to_string(self.path(path)).ok().map(|text| text.trim().to_owned())
    }

    fn path(&self, path: &str) -> PathBuf {
        self.root.join(path.trim_start_matches('/'))
    }

    fn exists(&self, path: &str) -> bool {
        self.path(path).exists()
    }

    /// Returns the last component of a symbolic link's target.
    fn link_target(&self, path: &str) -> Option<String> {
        let target = std::fs::read_link(self.path(path)).ok()?;
        target.file_name().map(|name| name.to_string_lossy().into_owned())
    }
}

#[cfg(test)]
mod tests;
