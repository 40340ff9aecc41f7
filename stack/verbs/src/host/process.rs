//! Checks of the process's permissions and processors.

use super::{Finding, Host};
use crate::config::{Config, DeviceConfig, IdlePolicy};

/// Bits of the effective set, as numbered in capabilities(7).
const NET_ADMIN: (u32, &str) = (12, "CAP_NET_ADMIN");
const NET_RAW: (u32, &str) = (13, "CAP_NET_RAW");
const SYS_ADMIN: (u32, &str) = (21, "CAP_SYS_ADMIN");
const BPF: (u32, &str) = (39, "CAP_BPF");

impl Host {
    /// Checks whether the process has the permissions that its device needs.
    pub(super) fn check_privileges(&self, device: &DeviceConfig) -> Vec<Finding> {
        let needed: &[&[(u32, &str)]] = match device {
            DeviceConfig::Tap { .. } => &[&[NET_ADMIN]],
            DeviceConfig::AfPacket { .. } => &[&[NET_RAW]],
            DeviceConfig::AfXdp { .. } => &[&[NET_ADMIN], &[NET_RAW], &[BPF, SYS_ADMIN]],
            _ => return Vec::new(),
        };
        let Some(held) = self.capabilities() else { return Vec::new() };
        let has = |(bit, _): &(u32, &str)| held >> bit & 1 == 1;
        let missing = needed.iter().filter(|any| !any.iter().any(has)).filter_map(|any| any.first());
        let missing: Vec<&str> = missing.map(|(_, name)| *name).collect();
        let kind = device.kind();
        if missing.is_empty() {
            return vec![Finding::good("privileges", format!("{kind}: the process has what it needs"))];
        }
        let list = missing.join(" and ");
        let setcap: Vec<String> = missing.iter().map(|name| name.to_lowercase()).collect();
        vec![Finding::fault(
            "privileges",
            format!("port.device.{kind}: no permission, the process lacks {list}"),
            format!("run it as root, or: sudo setcap {}+ep PROGRAM", setcap.join(",")),
        )]
    }

    fn capabilities(&self) -> Option<u64> {
        let status = self.read_trimmed("proc/self/status")?;
        let line = status.lines().find_map(|line| line.strip_prefix("CapEff:"))?;
        u64::from_str_radix(line.trim(), 16).ok()
    }

    /// Checks whether there is a processor for each polled core.
    pub(super) fn check_processors(&self, config: &Config) -> Vec<Finding> {
        let Some(allowed) = self.allowed_processors() else { return Vec::new() };
        let core = &config.core;
        let named = core.processor.iter().chain(&core.processors);
        let absent: Vec<String> = named.filter(|one| !allowed.contains(one)).map(usize::to_string).collect();
        let list: Vec<String> = allowed.iter().map(usize::to_string).collect();
        if !absent.is_empty() {
            return vec![Finding::fault(
                "processors",
                format!("core.processors: {} not among those that this process may use", absent.join(", ")),
                format!("name some of {}", list.join(", ")),
            )];
        }
        let (polled, there) = (usize::from(core.count), allowed.len());
        if polled >= there && !matches!(core.idle, IdlePolicy::Yield | IdlePolicy::Sleep) {
            return vec![Finding::warning(
                "processors",
                format!("core.count = {polled} on {there} processors leaves none for the application"),
                "set core.idle = \"yield\", or poll fewer cores",
            )];
        }
        vec![
            Finding::good("processors", format!("{there} processors for {polled} polled cores")),
            self.isolation_finding(),
        ]
    }

    /// Returns the processors that the process may run on.
    fn allowed_processors(&self) -> Option<Vec<usize>> {
        let status = self.read_trimmed("proc/self/status")?;
        let line = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"))?;
        let mut all = Vec::new();
        for part in line.trim().split(',') {
            let (first, last) = part.split_once('-').unwrap_or((part, part));
            all.extend(first.parse::<usize>().ok()?..=last.parse::<usize>().ok()?);
        }
        Some(all)
    }

    /// Checks whether the kernel keeps other work away from some processors.
    fn isolation_finding(&self) -> Finding {
        match self.read_trimmed("sys/devices/system/cpu/isolated").filter(|list| !list.is_empty()) {
            Some(list) => {
                Finding::good("isolation", format!("processors {list} are kept for pinned threads"))
            }
            None => Finding::good(
                "isolation",
                "no processor is isolated; for steady latency boot with isolcpus=N nohz_full=N rcu_nocbs=N",
            ),
        }
    }
}
