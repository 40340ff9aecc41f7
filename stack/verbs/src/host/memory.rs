//! Checks of memory for DPDK: hugepages if requested or needed, and their memory nodes.

use super::{Finding, Host};
use crate::config::{Config, DeviceConfig, Hugepages, PortConfig};

/// The size in MiB of a page of the pool that DPDK uses.
const PAGE_MIB: u64 = 2;

impl Host {
    /// Checks whether there are as many hugepages as the configuration requires.
    pub(super) fn check_memory(&self, config: &Config) -> Vec<Finding> {
        if !config.port.device.needs_dpdk() {
            return Vec::new();
        }
        let needed = u64::from(needed_mib(config));
        let free = self.free_hugepages_mib();
        let pages = needed.div_ceil(PAGE_MIB);
        let get = format!("sudo scripts/hugepages.sh alloc {pages}");
        let card = config.port_configs().any(|port| matches!(port.device, DeviceConfig::Pci { .. }));
        let finding = match config.eal.hugepages {
            Hugepages::Never if card => Finding::warning(
                "hugepages",
                "eal.hugepages = \"never\": a card reads memory by itself, and few can read ordinary pages",
                format!("set eal.hugepages = \"require\", and: {get}"),
            ),
            Hugepages::Never => Finding::good("hugepages", "not wanted: ordinary pages"),
            Hugepages::Require if free < needed => Finding::fault(
                "hugepages",
                format!(
                    "eal.hugepages = \"require\": {free} MiB of hugepages are free and {needed} are needed"
                ),
                get,
            ),
            Hugepages::Auto if free < needed && card => Finding::warning(
                "hugepages",
                format!(
                    "{free} MiB of hugepages are free and {needed} are needed; few cards read ordinary pages"
                ),
                get,
            ),
            Hugepages::Auto if free < needed => {
                Finding::good("hugepages", format!("{free} MiB are free of {needed}: ordinary pages serve"))
            }
            _ => Finding::good("hugepages", format!("{free} MiB are free, {needed} are needed")),
        };
        vec![finding]
    }

    /// Returns the bytes of the first processor's second-level cache, or a usual size.
    pub(crate) fn second_level_cache_bytes(&self) -> u32 {
        let size = self.read_trimmed("sys/devices/system/cpu/cpu0/cache/index2/size");
        let kib = size.and_then(|text| text.strip_suffix('K')?.parse::<u32>().ok());
        kib.unwrap_or(1024).saturating_mul(1024)
    }

    /// Returns the free hugepages in MiB.
    pub(crate) fn free_hugepages_mib(&self) -> u64 {
        let free = self.read_trimmed("sys/kernel/mm/hugepages/hugepages-2048kB/free_hugepages");
        free.and_then(|text| text.parse::<u64>().ok()).map_or(0, |pages| pages * PAGE_MIB)
    }
}

/// Returns the memory for DPDK in MiB.
pub(crate) fn needed_mib(config: &Config) -> u32 {
    let pools = config.port_configs().map(|port| pools_mib(port, config.core.count));
    config.eal.memory_mib.max(pools.fold(0, u32::saturating_add))
}

/// Returns the MiB of the pools of each core, with the headroom of each buffer, and as much again
/// for DPDK itself.
fn pools_mib(port: &PortConfig, cores: u16) -> u32 {
    const MBUF_OVERHEAD_BYTES: u64 = 512;
    let buffer = u64::from(port.mtu).max(2048) + MBUF_OVERHEAD_BYTES;
    // Buffers for super-segments, whether the device takes them or not.
    const SUPER_SEGMENTS_BYTES: u64 = 17 << 20;
    let frames = u64::from(port.rx_frames + port.tx_frames);
    let bytes = u64::from(cores) * (frames * buffer + SUPER_SEGMENTS_BYTES);
    u32::try_from(bytes >> 20).unwrap_or(u32::MAX).saturating_add(64)
}
