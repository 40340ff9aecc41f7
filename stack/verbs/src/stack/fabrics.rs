//! The ports of a stack on their way to its cores: by port and then by core they come, each core gets one of every port.

use ironwarp_port::instrument::Instrumented;
use ironwarp_port::instrument::PortControl;
use ironwarp_port::memory::MemoryPort;
use ironwarp_port::{Port, Ports, Spread};
use ironwarp_types::Clock;

/// A device that can be asked for its link.
pub(super) trait HasLink {
    fn link_up(&self) -> bool;
}

impl HasLink for MemoryPort {
    fn link_up(&self) -> bool {
        MemoryPort::link_up(self)
    }
}

#[cfg(feature = "dpdk")]
impl HasLink for ironwarp_port::dpdk::DpdkPort {
    fn link_up(&self) -> bool {
        ironwarp_port::dpdk::DpdkPort::link_up(self)
    }
}

/// What each core polls, and how the devices spread flows over the cores.
pub(super) struct CorePorts<P> {
    cores: Vec<(Vec<P>, Vec<PortControl>)>,
    spread: Option<Spread>,
}

/// The port of each core with the switches of what it stands for, and how flows are spread.
pub(super) type AssignedPorts<P> = (Vec<(P, Vec<PortControl>)>, Spread);

impl<P: Port> CorePorts<P> {
    pub(super) fn new(cores: u16) -> Self {
        CorePorts { cores: (0..cores).map(|_| (Vec::new(), Vec::new())).collect(), spread: None }
    }

    /// How a port distributes flows. All cores must agree on the core that owns a flow, whatever its port: where two ports
    /// differ nobody can foretell it.
    pub(super) fn merge_spread(&mut self, spread: Spread) {
        let all = self.spread.get_or_insert(spread);
        if *all != spread {
            *all = Spread::Unknown;
        }
    }

    /// Whether there is one port.
    pub(super) fn is_single(&self) -> bool {
        self.cores.iter().all(|(ports, _)| ports.len() == 1)
    }

    /// The only port of each core.
    pub(super) fn single(self) -> AssignedPorts<P> {
        self.build_with(|first, _| first)
    }

    /// All ports of each core as one.
    pub(super) fn combined(self) -> AssignedPorts<Ports<P>> {
        self.build_with(Ports::new)
    }

    fn build_with<Q>(self, make: impl Fn(P, std::vec::IntoIter<P>) -> Q) -> AssignedPorts<Q> {
        let make_one = |(ports, controls): (Vec<P>, _)| {
            let mut ports = ports.into_iter();
            Some((make(ports.next()?, ports), controls))
        };
        (self.cores.into_iter().filter_map(make_one).collect(), self.spread.unwrap_or_default())
    }
}

impl<P: Port, W: Clock + 'static> CorePorts<Instrumented<P, W>> {
    /// One more port for a core.
    pub(super) fn add_port(&mut self, core: u16, port: Instrumented<P, W>) {
        if let Some((ports, controls)) = self.cores.get_mut(usize::from(core)) {
            controls.push(port.control());
            ports.push(port);
        }
    }
}
