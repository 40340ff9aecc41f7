//! The drivers of ports: which configurations each drives, and how it builds a stack over its
//! ports.
//!
//! A new driver is its port in `ironwarp_port`, its settings in `config::DeviceConfig`, and a row
//! in [`DRIVERS`] and [`DriverPort`].

#[cfg(feature = "dpdk")]
use ironwarp_port::dpdk::DpdkPort;
use ironwarp_port::instrument::Instrumented;
use ironwarp_port::memif::MemifPort;
use ironwarp_port::memory::MemoryPort;

use super::parts::StackParts;
use super::{Given, MemoryClock, Stack, StackClock};
use crate::error::SetupError;
use crate::worker::{PortVisit, Worker};

/// A port, by its driver.
pub(crate) enum DriverPort<'a> {
    Memory(&'a mut Instrumented<MemoryPort>),
    Memif(&'a mut Instrumented<MemifPort>),
    #[cfg(feature = "dpdk")]
    Dpdk(&'a mut Instrumented<DpdkPort>),
}

impl DriverPort<'_> {
    pub(crate) fn visit<V: PortVisit>(self, visit: V) -> V::Output {
        match self {
            DriverPort::Memory(port) => visit.visit(port),
            DriverPort::Memif(port) => visit.visit(port),
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
    Driver { is_wanted: |parts, _| crate::memif::is_wanted(&parts.shared.config), open: open_memif },
    #[cfg(feature = "dpdk")]
    Driver { is_wanted: |_, _| Ok(true), open: open_dpdk },
];

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
