//! The drivers of ports: which configurations each drives, and how it builds a stack over its
//! ports.
//!
//! A new driver is its port in `ironwarp_port`, its settings in `config::DeviceConfig`, and a row
//! in [`DRIVERS`] and [`DriverPort`].

#[cfg(feature = "dpdk")]
use ironwarp_port::dpdk::DpdkPort;
use ironwarp_port::instrument::Instrumented;
use ironwarp_port::kernel::KernelPort;
use ironwarp_port::memif::MemifPort;
use ironwarp_port::memory::MemoryPort;

use super::parts::StackParts;
use super::{Given, MemoryClock, Stack, StackClock};
use crate::config::{Config, DeviceConfig, DeviceConfig::Memif, PortConfig};
use crate::error::SetupError;
use crate::worker::{PortVisit, Worker};

/// A port, by its driver.
pub(crate) enum DriverPort<'a> {
    Memory(&'a mut Instrumented<MemoryPort>),
    Memif(&'a mut Instrumented<MemifPort>),
    Kernel(&'a mut Instrumented<KernelPort>),
    #[cfg(feature = "dpdk")]
    Dpdk(&'a mut Instrumented<DpdkPort>),
}

impl DriverPort<'_> {
    pub(crate) fn visit<V: PortVisit>(self, visit: V) -> V::Output {
        match self {
            DriverPort::Memory(port) => visit.visit(port),
            DriverPort::Memif(port) => visit.visit(port),
            DriverPort::Kernel(port) => visit.visit(port),
            #[cfg(feature = "dpdk")]
            DriverPort::Dpdk(port) => visit.visit(port),
        }
    }
}

/// A stack under construction becomes a stack and its workers.
type Open = fn(StackParts, Given) -> Result<(Stack, Vec<Worker>), SetupError>;

/// A driver. It drives all ports of a stack, since the core loop is built for one kind of port.
struct Driver {
    is_wanted: fn(&StackParts, &Given) -> Result<bool, SetupError>,
    open: Open,
}

/// In the order in which they are asked. DPDK drives what is left.
const DRIVERS: &[Driver] = &[
    Driver { is_wanted: |_, given| Ok(!given.memory.is_empty()), open: open_memory },
    Driver {
        is_wanted: |parts, _| drives_all(&parts.shared.config, |device| matches!(device, Memif { .. })),
        open: open_memif,
    },
    Driver {
        is_wanted: |parts, _| drives_all(&parts.shared.config, DeviceConfig::is_kernel),
        open: open_kernel,
    },
    #[cfg(feature = "dpdk")]
    Driver { is_wanted: |_, _| Ok(true), open: open_dpdk },
];

/// Returns whether the ports are of one driver of this library: all of them, or none.
fn drives_all(config: &Config, is_of_driver: fn(&DeviceConfig) -> bool) -> Result<bool, SetupError> {
    let is_own = |port: &&PortConfig| is_of_driver(&port.device);
    let problem = "cannot be combined with ports of another driver in one stack: memif has one, tap and af_packet have \
                   one, and all others are DPDK's, which also drives a memif, tap or packet socket of its own as \
                   device.dpdk, with args";
    match config.port_configs().filter(is_own).count() {
        0 => Ok(false),
        count if count == config.ports() => Ok(true),
        _ => Err(SetupError::Port(
            config.port_configs().find(is_own).map_or("", |port| port.device.kind()),
            problem,
        )),
    }
}

/// Opens the ports of a stack with their driver.
pub(super) fn open(parts: StackParts, given: Given) -> Result<(Stack, Vec<Worker>), SetupError> {
    for driver in DRIVERS {
        if (driver.is_wanted)(&parts, &given)? {
            return (driver.open)(parts, given);
        }
    }
    let problem = "is not in this build, which has no DPDK";
    Err(SetupError::Port(parts.shared.config.port.device.kind(), problem))
}

fn open_memory(parts: StackParts, given: Given) -> Result<(Stack, Vec<Worker>), SetupError> {
    let clock = MemoryClock::Real(StackClock::new());
    parts.finish(given.memory, clock, |port| Some(DriverPort::Memory(port)))
}

fn open_memif(parts: StackParts, _: Given) -> Result<(Stack, Vec<Worker>), SetupError> {
    let ports = parts.open_each(crate::memif::open)?;
    parts.finish(ports, StackClock::new(), |port| Some(DriverPort::Memif(port)))
}

fn open_kernel(parts: StackParts, _: Given) -> Result<(Stack, Vec<Worker>), SetupError> {
    let ports = parts.open_each(crate::kernel::open)?;
    parts.finish(ports, StackClock::new(), |port| Some(DriverPort::Kernel(port)))
}

#[cfg(feature = "dpdk")]
fn open_dpdk(parts: StackParts, given: Given) -> Result<(Stack, Vec<Worker>), SetupError> {
    use crate::device;
    let eal = given.eal;
    parts.open_each(|config, port, _| device::examine(config, port, eal.is_some()))?;
    let ports = parts.open_each(|config, port, stats| device::open(config, port, eal.clone(), stats))?;
    parts.finish(ports, StackClock::new(), lend_dpdk)
}

/// Lends a port of DPDK's for raw frames.
#[cfg(feature = "dpdk")]
pub(super) fn lend_dpdk(port: &mut Instrumented<DpdkPort>) -> Option<DriverPort<'_>> {
    Some(DriverPort::Dpdk(port))
}

#[cfg(test)]
mod tests {
    use super::*;

    const DPDK: &str = "dpdk = { name = \"net_memif0\", args = \"role=server,socket=/run/b\" }";
    const MEMIF: &str = "memif = { role = \"server\", socket = \"/run/a\" }";
    const TAP: &str = "tap = { interface = \"dtap0\" }";
    const PACKET: &str = "af_packet = { interface = \"veth1\" }";

    fn config(first: &str, second: &str) -> Config {
        let text = format!(
            "[port]\ndevice.{first}\n[net]\naddress = \"10.0.0.1/24\"\n\
             [[fabrics]]\nport = {{ device.{second} }}\nnet = {{ address = \"10.0.1.1/24\" }}\n"
        );
        Config::from_toml(&text).unwrap_or_else(|error| panic!("{error}"))
    }

    fn is_memif(device: &DeviceConfig) -> bool {
        matches!(device, Memif { .. })
    }

    #[test]
    fn all_ports_of_a_stack_have_one_driver() {
        let both = config(TAP, PACKET);
        assert!(
            drives_all(&both, DeviceConfig::is_kernel).expect("one driver") && !both.port.device.needs_dpdk()
        );
        assert!(!drives_all(&both, is_memif).expect("another driver"));
        for (first, second) in [(MEMIF, DPDK), (DPDK, MEMIF), (MEMIF, TAP)] {
            let mixed = drives_all(&config(first, second), is_memif).expect_err("two drivers").to_string();
            assert!(
                mixed.contains("port.device = memif: cannot be combined") && mixed.contains("device.dpdk"),
                "{mixed}"
            );
        }
        let mixed =
            drives_all(&config(DPDK, TAP), DeviceConfig::is_kernel).expect_err("two drivers").to_string();
        assert!(mixed.contains("port.device = tap: cannot be combined"), "{mixed}");
    }
}
