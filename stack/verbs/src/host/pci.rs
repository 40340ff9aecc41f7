//! Checks of a network card: that it exists, its driver, and the permissions.
//!
//! Source: the kernel's `sysfs-bus-pci` interface and vfio; DPDK's Linux guide, "Linux Drivers".

use rustix::fs::{Access, access};

use super::{Finding, Host};
use crate::config::{Config, Hugepages};

/// Kernel drivers that give a card to a program.
const USERSPACE_DRIVERS: [&str; 3] = ["vfio-pci", "uio_pci_generic", "igb_uio"];
/// Drivers that work together with DPDK: the card stays with the kernel and is never bound to
/// another driver.
const BIFURCATED_DRIVERS: [&str; 2] = ["mlx5_core", "mlx4_core"];

impl Host {
    pub(super) fn check_nic(&self, address: &str, config: &Config) -> Vec<Finding> {
        let address = with_domain(address);
        let device = format!("sys/bus/pci/devices/{address}");
        if !self.exists(&device) {
            return vec![Finding::fault(
                "device",
                format!("port.device.pci.address = {address}: no such card"),
                "scripts/nic.sh list shows those there are",
            )];
        }
        if let Some(class) = self.read_trimmed(&format!("{device}/class")).filter(|class| !is_network(class))
        {
            return vec![Finding::fault(
                "device",
                format!("port.device.pci.address = {address}: not a network card (class {class})"),
                "scripts/nic.sh list shows the cards that there are",
            )];
        }
        let mut findings = vec![self.check_driver(&address, &device, config)];
        findings.extend(self.check_numa_node(&device, config));
        findings
    }

    /// Returns whether vfio-pci has a card.
    #[cfg(any(feature = "dpdk", test))]
    pub(crate) fn is_vfio(&self, address: &str) -> bool {
        let driver = format!("sys/bus/pci/devices/{}/driver", with_domain(address));
        self.link_target(&driver).as_deref() == Some("vfio-pci")
    }

    fn check_driver(&self, address: &str, device: &str, config: &Config) -> Finding {
        let bind = format!("sudo scripts/nic.sh bind {address}");
        match self.link_target(&format!("{device}/driver")).as_deref() {
            None => Finding::fault("driver", format!("{address}: no driver is bound to it"), bind),
            Some(driver) if BIFURCATED_DRIVERS.contains(&driver) => {
                Finding::good("driver", format!("{address}: {driver}, which DPDK works beside"))
            }
            Some("vfio-pci") => self.check_vfio(address, device),
            Some(driver)
                if USERSPACE_DRIVERS.contains(&driver) && config.eal.hugepages == Hugepages::Never =>
            {
                Finding::fault(
                    "driver",
                    format!("{address}: {driver} needs hugepages, and eal.hugepages = \"never\""),
                    "set eal.hugepages = \"require\", or bind the card to vfio-pci",
                )
            }
            Some(driver) if USERSPACE_DRIVERS.contains(&driver) => {
                Finding::good("driver", format!("{address}: {driver}"))
            }
            Some(driver) => Finding::fault(
                "driver",
                format!("{address}: wrong driver, the kernel's {driver} has it{}", self.interface_of(device)),
                bind,
            ),
        }
    }

    /// Returns the kernel's interface name of a card.
    fn interface_of(&self, device: &str) -> String {
        let names = std::fs::read_dir(self.path(&format!("{device}/net"))).ok();
        let name = names.and_then(|mut names| names.next()?.ok());
        name.map(|name| format!(" as {}", name.file_name().to_string_lossy())).unwrap_or_default()
    }

    fn check_vfio(&self, address: &str, device: &str) -> Finding {
        let Some(group) = self.link_target(&format!("{device}/iommu_group")) else {
            return Finding::fault(
                "driver",
                format!("{address}: vfio-pci without an IOMMU"),
                "boot with intel_iommu=on or amd_iommu=on, or bind it to uio_pci_generic",
            );
        };
        let open = |path: &str| access(self.path(path), Access::READ_OK | Access::WRITE_OK).is_ok();
        let vfio_paths = [format!("dev/vfio/{group}"), format!("dev/vfio/noiommu-{group}")];
        match vfio_paths.iter().find(|vfio_path| self.exists(vfio_path)) {
            Some(vfio_path) if open(vfio_path) => {
                Finding::good("driver", format!("{address}: vfio-pci, group {group}"))
            }
            Some(vfio_path) => Finding::fault(
                "driver",
                format!("{address}: no permission for /{vfio_path}"),
                "run as root, or give the user that file",
            ),
            None => Finding::fault(
                "driver",
                format!(
                    "{address}: /{} does not exist: another card of its group is not bound",
                    vfio_paths[0]
                ),
                format!("bind every card of IOMMU group {group}"),
            ),
        }
    }

    /// Checks whether polled cores are on the card's memory node.
    fn check_numa_node(&self, device: &str, config: &Config) -> Option<Finding> {
        let node = self.read_trimmed(&format!("{device}/numa_node"))?.parse::<u16>().ok()?;
        let is_local =
            |processor: &usize| self.exists(&format!("sys/devices/system/cpu/cpu{processor}/node{node}"));
        let named: Vec<&usize> = config.core.processor.iter().chain(&config.core.processors).collect();
        if named.is_empty() {
            return Some(Finding::good("numa", format!("the card is on memory node {node}")));
        }
        let remote: Vec<String> =
            named.into_iter().filter(|one| !is_local(one)).map(usize::to_string).collect();
        Some(if remote.is_empty() {
            Finding::good("numa", format!("cores and card are on memory node {node}"))
        } else {
            Finding::warning(
                "numa",
                format!("processors {} are not on the card's memory node {node}", remote.join(", ")),
                format!("name processors of that node: cat /sys/devices/system/node/node{node}/cpulist"),
            )
        })
    }
}

/// PCI Code and ID Assignment s1.3: base class 02h is a network controller. The kernel writes the
/// class as 0x020000.
fn is_network(class: &str) -> bool {
    class.strip_prefix("0x").is_some_and(|digits| digits.starts_with("02"))
}

/// `3b:00.0` is short for `0000:3b:00.0`.
fn with_domain(address: &str) -> String {
    if address.matches(':').count() == 1 { format!("0000:{address}") } else { address.to_owned() }
}
