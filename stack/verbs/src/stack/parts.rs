//! A stack under construction: its shared state and its ports, before they are assembled into
//! workers.
//!
//! Takes a configuration and the ports of each core, gives a [`Stack`] and its workers. Errors name
//! the key or the resource; those of further ports have the port's number.

use std::io;
use std::sync::Arc;

use ironwarp_mem::{MemLimits, MemTable};
use ironwarp_net::{FlowHasher, Steering};
use ironwarp_port::Port;
use ironwarp_port::instrument::{Instrumented, WallClock};
use ironwarp_stats::{CoreStats, PageDimensions, StatsPage};
use ironwarp_types::{Clock, CoreId, Nanos};

use super::drivers::DriverPort;
use super::fabrics::CorePorts;
use super::{Stack, numa};
use crate::config::{Config, ConfigError, TransportKind, in_range};
use crate::context::{InterfaceAddress, PortInfo};
use crate::core_loop::{
    BothTransports, CoreLoop, CoreParts, DdpOverSctp, Lower, MpaOverTcp, QpCore, core_mesh, local_mac,
    remote_atomics_mesh, steered_frames,
};
use crate::error::SetupError;
use crate::host::offloads;
use crate::shared::{DeviceFacts, PortState, StackShared};
use crate::worker::{Sleeper, Worker};

/// A stack without its ports.
pub(super) struct StackParts {
    pub(super) shared: Arc<StackShared>,
    pub(super) stats: StatsPage,
}

impl StackParts {
    pub(super) fn new(config: Config) -> Result<Self, SetupError> {
        config.validate()?;
        let mem = MemTable::new(mem_limits(&config)).map_err(SetupError::Regions)?;
        Self::with_memory(config, mem)
    }

    pub(super) fn with_memory(config: Config, mem: MemTable) -> Result<Self, SetupError> {
        mem.share_lines_after(config.rdmap.atomic_share_after);
        let cores = config.core.count;
        let rows = PageDimensions { cores, ports: port_number(config.ports()) };
        let stats = match &config.stats.page {
            Some(path) => StatsPage::create_with_ports(path, rows).map_err(SetupError::StatsPage)?,
            None => StatsPage::private_with_ports(rows),
        };
        let shared = StackShared::new(config, mem, cores.into()).map_err(system("eventfd"))?;
        Ok(StackParts { shared, stats })
    }

    /// Returns the counters of each core for one port. Those of the first port are the core's own.
    pub(super) fn stats_for_port(&self, port: u8) -> Vec<CoreStats> {
        (0..self.stats.cores()).map(|core| self.stats.port(port, core)).collect()
    }

    /// Calls `open` for each port, with its number and its counters on each core.
    pub(super) fn open_each<T>(
        &self,
        open: impl Fn(&Config, usize, Vec<CoreStats>) -> Result<T, SetupError>,
    ) -> Result<Vec<T>, SetupError> {
        let config = &self.shared.config;
        let open_one = |port| {
            let opened = open(config, port, self.stats_for_port(port_number(port)));
            opened.map_err(|error| with_port_number(port, error))
        };
        (0..config.ports()).map(open_one).collect()
    }

    /// Builds the workers over `ports`, by port and then by core.
    pub(super) fn finish<P: Port + Send, C: Clock + Clone + 'static>(
        self,
        ports: Vec<Vec<P>>,
        clock: C,
        lend: fn(&mut Instrumented<P>) -> Option<DriverPort<'_>>,
    ) -> Result<(Stack, Vec<Worker>), SetupError>
    where
        CoreLoop<MpaOverTcp<Instrumented<P>>, C>: Send,
        CoreLoop<DdpOverSctp<Instrumented<P>>, C>: Send,
        CoreLoop<BothTransports<Instrumented<P>>, C>: Send,
    {
        let fabrics = self.instrument(ports, Arc::new(WallClock))?;
        let clock = (clock, LINK_POLL_INTERVAL);
        let transport = self.shared.config.stack.transport;
        match transport.first() {
            _ if transport.are_both() => {
                self.assemble::<BothTransports<_>, _>(fabrics, lend, clock, secret()?)
            }
            TransportKind::Tcp => self.assemble::<MpaOverTcp<_>, _>(fabrics, lend, clock, secret()?),
            TransportKind::Sctp => self.assemble::<DdpOverSctp<_>, _>(fabrics, lend, clock, secret()?),
        }
    }

    /// Puts the fault injector and the capture before each port, and assigns the ports to the
    /// cores.
    pub(super) fn instrument<P: Port>(
        &self,
        ports: Vec<Vec<P>>,
        capture_clock: Arc<dyn Clock + Send + Sync>,
    ) -> Result<CorePorts<Instrumented<P>>, SetupError> {
        let config = &self.shared.config;
        let there = ports.len();
        in_range("fabrics", config.ports(), there..=there, "as many ports as are given")?;
        let mut fabrics = CorePorts::new(config.core.count);
        for (number, queues) in ports.into_iter().enumerate() {
            let there = queues.len().try_into().unwrap_or(u16::MAX);
            in_range("core.count", config.core.count, there..=there, "as many as there are ports")?;
            let name = config.port_name(number);
            if let Some(port) = queues.first() {
                tracing::info!("{name}: {}", offloads::summary(port.caps(), config.core.count));
                fabrics.merge_spread(port.caps().spread);
            }
            for (core, port) in (0..).zip(queues) {
                if let Some(mismatch) = numa::mismatch(port.caps().numa_node, config.core.processor_of(core))
                {
                    tracing::warn!("{name}, core {core}: {mismatch}");
                }
                let stats = self.stats.port(self::port_number(number), core);
                fabrics.add_port(core, Instrumented::new(port, capture_clock.clone(), stats));
            }
        }
        Ok(fabrics)
    }

    pub(super) fn assemble<L: Lower, C: Clock + Clone + 'static>(
        self,
        fabrics: CorePorts<L::Port>,
        lend: fn(&mut L::Port) -> Option<DriverPort<'_>>,
        (clock, link_poll_interval): (C, Nanos),
        secret: [u64; 2],
    ) -> Result<(Stack, Vec<Worker>), SetupError>
    where
        CoreLoop<L, C>: Send,
    {
        let config = &self.shared.config;
        let hasher = FlowHasher::new(secret);
        // All flows of an association belong to one core.
        let steering = match config.stack.transport.has(TransportKind::Sctp) && config.sctp.multihoming {
            true => Steering::by_ports(config.core.count, hasher),
            false => Steering::new(config.core.count, fabrics.spread()),
        };
        let ports = port_states(config, fabrics.first_core())?;
        self.shared.set_devices(DeviceFacts {
            ports,
            steering,
            hasher,
            new_qp: |setup| Box::new(QpCore::<L>::new(setup)),
        });
        let other_cores = core_mesh(steering, steered_frames(config));
        let mut workers = Vec::new();
        let remote_atomics = remote_atomics_mesh(config.core.count, config.limits.queue_pairs);
        for (((core, (mut ports, controls)), other_cores), remote_atomics) in
            (0..).zip(fabrics.into_cores()).zip(other_cores).zip(remote_atomics)
        {
            let stats = self.stats.core(core);
            let port_stats =
                (0..port_number(config.ports())).map(|port| self.stats.port(port, core)).collect();
            let mem = self.shared.mem.core(CoreId(core)).map_err(SetupError::Core)?;
            let wake_sources: Vec<_> = ports.iter_mut().map(Port::take_wake_source).collect();
            let parts = CoreParts {
                core,
                clock: clock.clone(),
                ports,
                lend,
                link_poll_interval,
                mem,
                stats,
                port_stats,
                connection_rows: self.stats.connections(core),
                other_cores,
                remote_atomics,
                secret,
            };
            let looped = CoreLoop::<L, C>::new(self.shared.clone(), parts)?;
            let signal = self.shared.cores.get(usize::from(core)).and_then(|core| core.wake.clone());
            let sleeper = signal.map(|signal| Sleeper::new(signal, wake_sources, (core, &config.core)));
            let sleeper = sleeper.transpose().map_err(system("the descriptors of a worker that sleeps"))?;
            workers.push(Worker::new(Box::new(looped), controls, (core, &config.core), sleeper));
        }
        Ok((Stack { shared: self.shared, stats: self.stats }, workers))
    }
}

/// Returns what contexts can read of the ports.
fn port_states<P: Port>(config: &Config, ports: &[P]) -> Result<Box<[PortState]>, ConfigError> {
    let state = |(number, port): (usize, &P)| {
        let config = config.for_port(number);
        let (address, _) = config.net.parse()?;
        let all = config.net.prefixes()?;
        let addresses =
            all.iter().map(|prefix| InterfaceAddress { address: prefix.addr, prefix_len: prefix.len });
        let caps = port.caps();
        Ok(PortState::new(PortInfo {
            device: config.port.device.kind(),
            mac: local_mac(&config, caps.mac, address),
            mtu_bytes: config.port.mtu.min(caps.mtu_bytes),
            memory_node: caps.numa_node,
            addresses: addresses.collect(),
            link: port.link(),
        }))
    };
    ports.iter().enumerate().map(state).collect()
}

/// Names the operation of a system error.
fn system(what: &'static str) -> impl Fn(io::Error) -> SetupError {
    move |source| SetupError::System { what, source }
}

/// Converts a number of ports, which is small.
pub(super) fn port_number(ports: usize) -> u8 {
    u8::try_from(ports).unwrap_or(u8::MAX)
}

/// Adds the number of the port to an error.
fn with_port_number(port: usize, error: SetupError) -> SetupError {
    if port == 0 { error } else { SetupError::Fabric { number: port, error: Box::new(error) } }
}

/// The interval of link checks: some drivers ask the kernel.
const LINK_POLL_INTERVAL: Nanos = Nanos::from_millis(250);

pub(super) fn mem_limits(config: &Config) -> MemLimits {
    MemLimits { regions_max: config.limits.regions, cores_max: config.core.count }
}

/// Returns 128 random bits from the system.
fn secret() -> Result<[u64; 2], SetupError> {
    let word = || getrandom::u64().map_err(|error| SetupError::Entropy(error.to_string()));
    Ok([word()?, word()?])
}
