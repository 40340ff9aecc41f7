//! Assignment of ports to cores: each core gets one queue of every port.

use ironwarp_port::instrument::Instrumented;
use ironwarp_port::instrument::PortControl;
use ironwarp_port::{Port, Spread};

/// The ports of each core, and how the devices spread flows over the cores.
pub(super) struct CorePorts<P> {
    cores: Vec<(Vec<P>, Vec<PortControl>)>,
    spread: Option<Spread>,
}

impl<P: Port> CorePorts<P> {
    pub(super) fn new(cores: u16) -> Self {
        CorePorts { cores: (0..cores).map(|_| (Vec::new(), Vec::new())).collect(), spread: None }
    }

    /// Merges a port's distribution of flows. All cores must agree on the core of a flow, whatever
    /// its port; if two ports differ, it is unknown.
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
    pub(super) fn first_core(&self) -> &[P] {
        self.cores.first().map_or(&[], |(ports, _)| ports)
    }

    /// Returns each core's ports and their controls.
    pub(super) fn into_cores(self) -> Vec<(Vec<P>, Vec<PortControl>)> {
        self.cores
    }
}

impl<P: Port> CorePorts<Instrumented<P>> {
    /// Adds a port to a core.
    pub(super) fn add_port(&mut self, core: u16, port: Instrumented<P>) {
        if let Some((ports, controls)) = self.cores.get_mut(usize::from(core)) {
            controls.push(port.control());
            ports.push(port);
        }
    }
}
