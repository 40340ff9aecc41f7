//! What the machine is: enough to tell two reports apart.

use serde::{Deserialize, Serialize};

use super::{allowed, read_kernel_file};

/// A machine. What the kernel does not say is absent.
#[derive(Clone, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
#[serde(default)]
pub struct Machine {
    pub hostname: Option<String>,
    /// The processor's model.
    pub cpu: Option<String>,
    pub cores: Option<u32>,
    /// Processors that this process may use.
    pub cores_allowed: u32,
    pub memory_mib: Option<u64>,
    pub kernel: Option<String>,
    pub os: Option<String>,
    /// The hypervisor, on a virtual machine that says so.
    pub hypervisor: Option<bool>,
    /// The clock behind the monotonic time.
    pub clock_source: Option<String>,
    pub hugepages: Option<u64>,
    /// The size of one, in KiB.
    pub hugepage_kib: Option<u64>,
    /// The frequency governor, where there is one.
    pub governor: Option<String>,
    /// Seconds since 1970 when the run began.
    pub unix_time: u64,
}

impl Machine {
    pub fn local() -> Self {
        let cpuinfo = read_kernel_file("/proc/cpuinfo").unwrap_or_default();
        let meminfo = read_kernel_file("/proc/meminfo").unwrap_or_default();
        Machine {
            hostname: read_kernel_file("/proc/sys/kernel/hostname"),
            cpu: field(&cpuinfo, "model name"),
            cores: std::thread::available_parallelism().ok().map(|_| processors(&cpuinfo)),
            cores_allowed: allowed().len() as u32,
            memory_mib: number(&meminfo, "MemTotal").map(|kib| kib / 1024),
            kernel: read_kernel_file("/proc/sys/kernel/osrelease"),
            os: read_kernel_file("/etc/os-release").as_deref().and_then(pretty_name),
            hypervisor: field(&cpuinfo, "flags")
                .map(|flags| flags.split(' ').any(|flag| flag == "hypervisor")),
            clock_source: read_kernel_file(
                "/sys/devices/system/clocksource/clocksource0/current_clocksource",
            ),
            hugepages: number(&meminfo, "HugePages_Total"),
            hugepage_kib: number(&meminfo, "Hugepagesize"),
            governor: read_kernel_file("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor"),
            unix_time: std::time::UNIX_EPOCH.elapsed().map(|since| since.as_secs()).unwrap_or(0),
        }
    }

    pub fn summary(&self) -> String {
        let cpu = self.cpu.as_deref().unwrap_or("unknown processor");
        let cores = self.cores.map_or_else(String::new, |cores| format!(", {cores} processors"));
        let kernel = self.kernel.as_deref().map_or_else(String::new, |kernel| format!(", Linux {kernel}"));
        let virt = if self.hypervisor == Some(true) { ", virtual" } else { "" };
        format!("{cpu}{cores}{kernel}{virt}")
    }
}

/// The first value of a key in a file of `key : value` lines.
fn field(text: &str, key: &str) -> Option<String> {
    text.lines().find_map(|line| {
        let (name, value) = line.split_once(':')?;
        (name.trim() == key).then(|| value.trim().to_owned())
    })
}

fn number(text: &str, key: &str) -> Option<u64> {
    field(text, key)?.split_whitespace().next()?.parse().ok()
}

fn processors(cpuinfo: &str) -> u32 {
    cpuinfo.lines().filter(|line| line.starts_with("processor")).count() as u32
}

fn pretty_name(os_release: &str) -> Option<String> {
    let value = os_release.lines().find_map(|line| line.strip_prefix("PRETTY_NAME="))?;
    Some(value.trim_matches('"').to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_matched_whole() {
        let text = "model\t\t: 2\nmodel name\t: AMD EPYC\n";
        assert_eq!(field(text, "model name").as_deref(), Some("AMD EPYC"));
        assert_eq!(number(text, "model"), Some(2));
        assert_eq!(field(text, "flags"), None);
    }

    #[test]
    fn the_name_of_the_distribution_loses_its_quotes() {
        assert_eq!(pretty_name("ID=debian\nPRETTY_NAME=\"Debian 12\"\n").as_deref(), Some("Debian 12"));
    }

    #[test]
    fn this_machine_has_processors_and_a_kernel() {
        let machine = Machine::local();
        assert!(machine.cores_allowed >= 1);
        assert!(machine.kernel.is_some());
        assert!(machine.summary().contains("Linux"));
    }
}
