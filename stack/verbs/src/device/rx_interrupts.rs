//! The receive interrupts of cards under vfio-pci, for a core that sleeps.
//!
//! vfio gives a program one descriptor for each vector of a card. A card under a uio driver has one interrupt at most, and
//! some DPDK drivers do not recover from a configuration that needs more, so none is tried there: the card is polled by a
//! timer, as is one whose driver has no interrupts.

use ironwarp_port::dpdk::{self, DpdkPort};

use crate::config::{Config, DeviceConfig, IdlePolicy};
use crate::host::Host;
use crate::worker::{RxDescriptor, RxDescriptors, RxInterrupt};

/// Returns whether a port is opened with receive interrupts: its cores may sleep, and vfio-pci has the card.
pub(super) fn wanted(config: &Config) -> bool {
    let DeviceConfig::Pci { address } = &config.port.device else { return false };
    if config.core.idle != IdlePolicy::Sleep {
        return false;
    }
    let is_vfio = Host::local().is_vfio(address);
    if !is_vfio {
        tracing::info!("{address}: no receive interrupts: the card is not bound to vfio-pci");
    }
    is_vfio
}

/// Returns the interrupts of a device's queues, in their order. All of them, or none.
pub(super) fn of(ports: &[DpdkPort], device: &str) -> RxDescriptors {
    let interrupt = |port: &DpdkPort| Some(Some(RxDescriptor::Interrupt(Box::new(port.rx_interrupt()?))));
    let found: Option<RxDescriptors> = ports.iter().map(interrupt).collect();
    if found.is_some() {
        tracing::info!("{device}: a core that sleeps waits for receive interrupts");
    }
    found.unwrap_or_default()
}

impl RxInterrupt for dpdk::RxInterrupt {
    fn enable(&self) -> bool {
        dpdk::RxInterrupt::enable(self).is_ok()
    }

    fn disable(&self) {
        dpdk::RxInterrupt::disable(self);
    }
}
