//! Construction of a stack: takes a configuration, gives workers and contexts.
//!
//! A stack owns its ports, usually one, and the workers that poll them. A control thread builds it
//! and passes workers and contexts to the threads that use them.

use std::sync::Arc;

use ironwarp_arch::clock::TscClock;
use ironwarp_mem::MemTable;
use ironwarp_port::Port;
use ironwarp_port::instrument::Instrumented;
use ironwarp_port::memory::MemoryPort;
use ironwarp_stats::{CoreStats, Counter, StatsPage};
use ironwarp_types::{Clock, Nanos};

use crate::config::{Config, TransportKind, in_range};
use crate::context::{Context, PortInfo, ProtectionDomain};
use crate::core_loop::{BothTransports, DdpOverSctp, Lower, MpaOverTcp};
use crate::error::{SetupError, VerbsError};
use crate::shared::StackShared;
use crate::worker::Worker;

/// A running stack. Contexts and workers outlive it; it only creates them.
pub struct Stack {
    shared: Arc<StackShared>,
    stats: StatsPage,
}

/// The source of a stack's ports.
pub struct StackBuilder {
    config: Config,
    given: Given,
}

/// What the application opened itself.
#[derive(Default)]
struct Given {
    /// By port, then by core.
    memory: Vec<Vec<MemoryPort>>,
    #[cfg(feature = "dpdk")]
    eal: Option<ironwarp_port::dpdk::Eal>,
}

/// The real clock.
#[derive(Clone, Copy)]
struct StackClock(TscClock);

impl StackClock {
    fn new() -> Self {
        StackClock(TscClock::calibrated())
    }
}

impl Clock for StackClock {
    fn now(&self) -> Nanos {
        Nanos(self.0.now_ns())
    }
}

/// The clock of a stack over memory ports. One type for all of them, since the core loop is
/// compiled once for each type.
#[derive(Clone)]
enum MemoryClock {
    Real(StackClock),
    Given(Arc<dyn Clock + Send + Sync>),
}

impl Clock for MemoryClock {
    #[inline]
    fn now(&self) -> Nanos {
        match self {
            MemoryClock::Real(clock) => clock.now(),
            MemoryClock::Given(clock) => clock.now(),
        }
    }
}

impl Stack {
    /// Starts building a stack.
    pub fn builder(config: Config) -> StackBuilder {
        StackBuilder { config, given: Given::default() }
    }

    /// Creates a context for one application thread.
    ///
    /// # Errors
    ///
    /// [`VerbsError::LimitReached`] if `limits.contexts` contexts exist.
    pub fn context(&self) -> Result<Context, VerbsError> {
        Context::new(&self.shared)
    }

    /// Creates a protection domain that every context of the stack may use. A stack has 2^32 - 3 of
    /// them in its life; in later ones, registrations fail with
    /// [`RegisterError::ReservedPd`](crate::RegisterError::ReservedPd).
    pub fn alloc_pd(&self) -> ProtectionDomain {
        ProtectionDomain::new(&self.shared, self.shared.stack_id)
    }

    /// Creates two stacks in this process over two DPDK ports that are linked back to back, in the
    /// application's own DPDK environment if it has one. Each has one core.
    ///
    /// # Errors
    ///
    /// As [`StackBuilder::build_one`].
    #[cfg(feature = "dpdk")]
    pub fn ring_pair(
        first: Config,
        second: Config,
        eal: Option<ironwarp_port::dpdk::Eal>,
    ) -> Result<[(Stack, Worker); 2], SetupError> {
        check_one_core(&first)?;
        check_one_core(&second)?;
        let [(first, first_workers), (second, second_workers)] =
            Self::ring_pair_of_cores(first, second, eal)?;
        Ok([(first, into_single(first_workers)?), (second, into_single(second_workers)?)])
    }

    /// The same with several cores each, the same number on both sides: core n of one stack is
    /// linked to core n of the other.
    ///
    /// # Errors
    ///
    /// [`SetupError::Port`] if the two configurations differ in shape; else as
    /// [`StackBuilder::build`].
    #[cfg(feature = "dpdk")]
    pub fn ring_pair_of_cores(
        first: Config,
        second: Config,
        eal: Option<ironwarp_port::dpdk::Eal>,
    ) -> Result<[(Stack, Vec<Worker>); 2], SetupError> {
        let shape = |config: &Config| {
            let port = &config.port;
            (port.mtu, port.ring_size(), port.rx_frames, port.tx_frames, config.core.count)
        };
        if shape(&first) != shape(&second) {
            return Err(SetupError::Port(
                "ring",
                "has one mtu, ring, pool size and core count for both ends",
            ));
        }
        let both_parts = [StackParts::new(first)?, StackParts::new(second)?];
        let stats = [both_parts[0].stats_for_port(0), both_parts[1].stats_for_port(0)];
        let [first_port, second_port] = crate::device::open_ring(&both_parts[0].shared.config, eal, stats)?;
        let [first, second] = both_parts;
        let finish =
            |parts: StackParts, port| parts.finish(vec![port], StackClock::new(), drivers::lend_dpdk);
        Ok([finish(first, first_port)?, finish(second, second_port)?])
    }

    /// Returns every counter of one core by name.
    pub fn core_counters(&self, core: u16) -> Vec<(&'static str, u64)> {
        self.sum_counters((0..self.ports()).map(|port| self.stats.port(port, core)), |_| true)
    }

    /// Returns the counters of one port by name, the sum over all cores: those of the device and of
    /// its network. The first port has number 0.
    pub fn port_counters(&self, port: u8) -> Vec<(&'static str, u64)> {
        let rows = (0..self.stats.cores()).map(|core| self.stats.port(port, core));
        self.sum_counters(rows, |counter| matches!(counter.layer(), "port" | "net"))
    }

    /// Returns the number of ports of each core.
    pub fn ports(&self) -> u8 {
        port_number(self.shared.config.ports())
    }

    /// Returns the state of a port, as [`Context::query_port`].
    ///
    /// # Errors
    ///
    /// [`VerbsError::OutOfRange`] if there is no such port.
    pub fn query_port(&self, port: u8) -> Result<PortInfo, VerbsError> {
        self.shared.query_port(port)
    }

    /// Returns the sums of the counters of some rows of the page.
    fn sum_counters(
        &self,
        rows: impl Iterator<Item = CoreStats>,
        wanted: impl Fn(Counter) -> bool,
    ) -> Vec<(&'static str, u64)> {
        let rows: Vec<CoreStats> = rows.collect();
        let sum = |counter| rows.iter().map(|row| row.read(counter)).fold(0, u64::wrapping_add);
        let counters = Counter::ALL.iter().copied().filter(|counter| wanted(*counter));
        counters.map(|counter| (counter.name(), sum(counter))).collect()
    }

    /// Returns every counter by name, the sum over all cores.
    pub fn counters(&self) -> Vec<(&'static str, u64)> {
        Counter::ALL.iter().map(|counter| (counter.name(), self.stats.total(*counter))).collect()
    }
}

impl StackBuilder {
    /// Uses this port instead of opening a device.
    #[must_use]
    pub fn memory_port(self, port: MemoryPort) -> Self {
        self.memory_ports(vec![port])
    }

    /// Uses these ports, the queues of one device, one for each core.
    #[must_use]
    pub fn memory_ports(mut self, ports: Vec<MemoryPort>) -> Self {
        self.given.memory = vec![ports];
        self
    }

    /// Uses also these ports, the queues of one more device, one for each core: the next entry of
    /// [`Config::fabrics`].
    #[must_use]
    pub fn add_memory_ports(mut self, ports: Vec<MemoryPort>) -> Self {
        self.given.memory.push(ports);
        self
    }

    /// Uses the DPDK environment that the application has started.
    #[cfg(feature = "dpdk")]
    #[must_use]
    pub fn eal(mut self, eal: ironwarp_port::dpdk::Eal) -> Self {
        self.given.eal = Some(eal);
        self
    }

    /// Opens the device and builds the stack and its workers, one for each core.
    ///
    /// # Errors
    ///
    /// [`SetupError`] names the configuration key or the resource that prevents the start.
    pub fn build(self) -> Result<(Stack, Vec<Worker>), SetupError> {
        self.config.validate()?;
        if self.config.ddp.catch_memory_faults == Some(true) {
            let what = "ddp.catch_memory_faults";
            crate::catch_memory_faults().map_err(|source| SetupError::System { what, source })?;
        }
        drivers::open(StackParts::new(self.config)?, self.given)
    }

    /// As [`StackBuilder::build`], for a stack of one core.
    ///
    /// # Errors
    ///
    /// [`SetupError::Config`] if `core.count` is not 1; else as [`StackBuilder::build`].
    pub fn build_one(self) -> Result<(Stack, Worker), SetupError> {
        check_one_core(&self.config)?;
        let (stack, workers) = self.build()?;
        Ok((stack, into_single(workers)?))
    }
}

/// Fails if the configuration has several cores where one worker is requested.
fn check_one_core(config: &Config) -> Result<(), SetupError> {
    let allowed = "1, where one worker is asked for";
    Ok(in_range("core.count", config.core.count, 1..=1, allowed)?)
}

fn into_single(workers: Vec<Worker>) -> Result<Worker, SetupError> {
    workers.into_iter().next().ok_or(SetupError::Port("the stack", "has no core"))
}

impl StackBuilder {
    /// Creates a deterministic stack of one core. Its time is that of `clock`; all numbers that are
    /// random otherwise (steering tags, tagged offsets, initial sequence numbers, ports, hash keys)
    /// follow from `secret`. For simulators and tests: a peer that knows the secret can predict all
    /// of it.
    #[doc(hidden)]
    pub fn build_replayable(
        self,
        port: MemoryPort,
        clock: impl Clock + Send + Sync + 'static,
        secret: [u64; 2],
    ) -> Result<(Stack, Worker), SetupError> {
        check_one_core(&self.config)?;
        let (stack, workers) = self.build_replayable_cores(vec![port], clock, secret)?;
        Ok((stack, into_single(workers)?))
    }

    /// The same with several cores, over the queues of one device, one for each. The queues of
    /// further devices are those of [`StackBuilder::add_memory_ports`]. A worker finds frames from
    /// another worker at its next poll, so a run replays if the order of polls does.
    #[doc(hidden)]
    pub fn build_replayable_cores(
        mut self,
        ports: Vec<MemoryPort>,
        clock: impl Clock + Send + Sync + 'static,
        secret: [u64; 2],
    ) -> Result<(Stack, Vec<Worker>), SetupError> {
        self.given.memory.insert(0, ports);
        let ports = core::mem::take(&mut self.given.memory);
        self.build_over_memory(ports, MemoryClock::Given(Arc::new(clock)), secret)
    }

    /// Not generic, so that its callers do not compile the core loop.
    fn build_over_memory(
        self,
        ports: Vec<Vec<MemoryPort>>,
        clock: MemoryClock,
        secret: [u64; 2],
    ) -> Result<(Stack, Vec<Worker>), SetupError> {
        let transport = self.config.stack.transport;
        match transport.first() {
            _ if transport.are_both() => {
                self.build_over::<BothTransports<Instrumented<MemoryPort>>, _, _>(ports, clock, secret)
            }
            TransportKind::Tcp => {
                self.build_over::<MpaOverTcp<Instrumented<MemoryPort>>, _, _>(ports, clock, secret)
            }
            TransportKind::Sctp => {
                self.build_over::<DdpOverSctp<Instrumented<MemoryPort>>, _, _>(ports, clock, secret)
            }
        }
    }

    /// The same over another lower layer, with the core loop compiled for this port and clock.
    /// `ports` are by device and then by core.
    #[doc(hidden)]
    pub fn build_over<L, P, C>(
        self,
        ports: Vec<Vec<P>>,
        clock: C,
        secret: [u64; 2],
    ) -> Result<(Stack, Vec<Worker>), SetupError>
    where
        L: Lower<Port = Instrumented<P>, Transport: Send>,
        P: Port + Send,
        P::Frame: Send,
        <P::Frame as ironwarp_port::Frame>::Sealed: Send,
        C: Clock + Clone + Send + Sync + 'static,
    {
        self.config.validate()?;
        let mem = MemTable::replayable(mem_limits(&self.config), secret).map_err(SetupError::Regions)?;
        let stack_parts = StackParts::with_memory(self.config, mem)?;
        let fabrics = stack_parts.instrument(ports, Arc::new(clock.clone()))?;
        stack_parts.assemble::<L, _>(fabrics, |_| None, (clock, Nanos::MAX), secret)
    }
}

#[cfg(test)]
mod tests;

mod drivers;
mod fabrics;
mod numa;
mod parts;

pub(crate) use drivers::DriverPort;
use parts::{StackParts, mem_limits, port_number};
