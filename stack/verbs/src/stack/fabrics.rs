//! Assignment of ports to cores: each core gets one queue of every port.

use ironwarp_port::instrument::Instrumented;
use ironwarp_port::instrument::PortControl;
use ironwarp_port::memory::MemoryPort;
use ironwarp_port::{LinkState, Port, Spread};
use ironwarp_types::Clock;

/// A device that reports its link.
pub(super) trait HasLink {
    fn link(&self) -> LinkState;
}

impl HasLink for MemoryPort {
    fn link(&self) -> LinkState {
        LinkState { up: self.link_up(), speed_mbps: None }
    }
}

impl HasLink for ironwarp_port::memif::MemifPort {
    fn link(&self) -> LinkState {
        ironwarp_port::memif::MemifPort::link(self)
    }
}

#[cfg(feature = "dpdk")]
impl HasLink for ironwarp_port::dpdk::DpdkPort {
    fn link(&self) -> LinkState {
        ironwarp_port::dpdk::DpdkPort::link(self)
    }
}

/// The ports of each core, and how the devices spread flows over the cores.
pub(super) struct CorePorts<P> {
    cores: Vec<(Vec<P>, Vec<PortControl>)>,
    spread: Option<Spread>,
}

impl<P: Port> CorePorts<P> {
    pub(super) fn new(cores: u16) -> Self {
        CorePorts { cores: (0..cores).map(|_| (Vec::new(), Vec::new())).collect(), spread: None }
    }

    /// Merges a port's distribution of flows. All cores must agree on the core of a flow, whatever its port; if two
    /// ports differ, it is unknown.
    pub(super) fn merge_spread(&mut self, spread: Spread) {
        let all = self.spread.get_or_insert(spread);
        if *all != spread {
            *all = Spread::Unknown;
        }
    }

    /// Returns how flows are distributed over the cores.
    pub(super) fn spread(&self) -> Spread {
        self.spread.unwrap_or_default()
    }

    /// Returns the ports of the first core.
    pub(super) fn first_core(&mut self) -> &mut [P] {
        self.cores.first_mut().map_or(&mut [], |(ports, _)| ports)
    }

    /// Returns each core's ports and their controls.
    pub(super) fn into_cores(self) -> Vec<(Vec<P>, Vec<PortControl>)> {
        self.cores
    }
}

impl<P: Port, W: Clock + 'static> CorePorts<Instrumented<P, W>> {
    /// Adds a port to a core.
    pub(super) fn add_port(&mut self, core: u16, port: Instrumented<P, W>) {
        if let Some((ports, controls)) = self.cores.get_mut(usize::from(core)) {
            controls.push(port.control());
            ports.push(port);
        }
    }
}
