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
pub(super) struct Fabrics<P> {
    cores: Vec<(Vec<P>, Vec<PortControl>)>,
    spread: Option<Spread>,
}

/// The port of each core with the switches of what it stands for, and how flows are spread.
pub(super) type Given<P> = (Vec<(P, Vec<PortControl>)>, Spread);

impl<P: Port> Fabrics<P> {
    pub(super) fn new(cores: u16) -> Self {
        Fabrics { cores: (0..cores).map(|_| (Vec::new(), Vec::new())).collect(), spread: None }
    }

    /// A port spreads flows like this. All cores must agree on whose a flow is, whichever port it comes by: where two ports
    /// differ nobody can foretell it.
    pub(super) fn spread(&mut self, spread: Spread) {
        let all = self.spread.get_or_insert(spread);
        if *all != spread {
            *all = Spread::Unknown;
        }
    }

    /// Whether there is one port.
    pub(super) fn is_one(&self) -> bool {
        self.cores.iter().all(|(ports, _)| ports.len() == 1)
    }

    /// The only port of each core.
    pub(super) fn alone(self) -> Given<P> {
        self.made(|first, _| first)
    }

    /// All ports of each core as one.
    pub(super) fn together(self) -> Given<Ports<P>> {
        self.made(Ports::new)
    }

    fn made<Q>(self, make: impl Fn(P, std::vec::IntoIter<P>) -> Q) -> Given<Q> {
        let make_one = |(ports, controls): (Vec<P>, _)| {
            let mut ports = ports.into_iter();
            Some((make(ports.next()?, ports), controls))
        };
        (self.cores.into_iter().filter_map(make_one).collect(), self.spread.unwrap_or_default())
    }
}

impl<P: Port, W: Clock + 'static> Fabrics<Instrumented<P, W>> {
    /// One more port for a core.
    pub(super) fn give(&mut self, core: u16, port: Instrumented<P, W>) {
        if let Some((ports, controls)) = self.cores.get_mut(usize::from(core)) {
            controls.push(port.control());
            ports.push(port);
        }
    }
}
