//! Building a stack: configuration in, workers and contexts out.
//!
//! A stack owns one port and the workers that poll it. It is built on a control thread; what it gives out is then
//! handed to the threads that use it.

use std::sync::Arc;

use ironwarp_arch::clock::TscClock;
use ironwarp_mem::{MemLimits, MemTable};
use ironwarp_port::Port;
use ironwarp_port::instrument::{Instrumented, WallClock};
use ironwarp_port::memory::MemoryPort;
use ironwarp_stats::{Counter, StatsPage};
use ironwarp_types::{Clock, CoreId, Nanos};

use crate::config::Config;
use crate::context::{Context, ProtectionDomain};
use crate::core_loop::{CoreLoop, CoreParts};
use crate::error::{SetupError, VerbsError};
use crate::shared::Shared;
use crate::worker::Worker;

/// A running stack. Contexts and workers outlive it; it is only the place where they are made.
pub struct Stack {
    shared: Arc<Shared>,
    stats: StatsPage,
}

/// What a stack is built from.
pub struct StackBuilder {
    config: Config,
    memory: Option<MemoryPort>,
    #[cfg(feature = "dpdk")]
    eal: Option<ironwarp_port::dpdk::Eal>,
}

/// The real clock.
#[derive(Clone, Copy)]
struct TscTime(TscClock);

impl Clock for TscTime {
    fn now(&self) -> Nanos {
        Nanos(self.0.now_ns())
    }
}

impl Stack {
    /// Starts building a stack.
    pub fn builder(config: Config) -> StackBuilder {
        StackBuilder {
            config,
            memory: None,
            #[cfg(feature = "dpdk")]
            eal: None,
        }
    }

    /// A context for one application thread.
    pub fn context(&self) -> Result<Context, VerbsError> {
        Context::new(&self.shared)
    }

    /// A new protection domain.
    pub fn alloc_pd(&self) -> ProtectionDomain {
        ProtectionDomain::new(&self.shared)
    }

    /// Two stacks in this process over two DPDK ports that are joined back to back; in the application's own
    /// DPDK environment where it has one.
    #[cfg(feature = "dpdk")]
    pub fn ring_pair(
        near: Config,
        far: Config,
        eal: Option<ironwarp_port::dpdk::Eal>,
    ) -> Result<[(Stack, Worker); 2], SetupError> {
        let shape = |config: &Config| {
            let port = &config.port;
            (port.mtu, port.ring, port.rx_frames, port.tx_frames)
        };
        if shape(&near) != shape(&far) {
            return Err(SetupError::Port("ring", "has one mtu, ring and pool size for both ends"));
        }
        let frames = [Frame::new(near)?, Frame::new(far)?];
        let stats = [frames[0].stats.core(0), frames[1].stats.core(0)];
        let [near_port, far_port] = crate::device::open_ring(&frames[0].shared.config, eal, stats)?;
        let [near, far] = frames;
        Ok([
            near.finish(near_port, |port| port.port_mut().link_up())?,
            far.finish(far_port, |port| port.port_mut().link_up())?,
        ])
    }

    /// Every counter by name, all cores together.
    pub fn counters(&self) -> Vec<(&'static str, u64)> {
        Counter::ALL.iter().map(|counter| (counter.name(), self.stats.total(*counter))).collect()
    }
}

impl StackBuilder {
    /// Runs over this port instead of opening a device.
    #[must_use]
    pub fn memory_port(mut self, port: MemoryPort) -> Self {
        self.memory = Some(port);
        self
    }

    /// Uses the DPDK environment that the application has started.
    #[cfg(feature = "dpdk")]
    #[must_use]
    pub fn eal(mut self, eal: ironwarp_port::dpdk::Eal) -> Self {
        self.eal = Some(eal);
        self
    }

    /// Opens the device and builds the stack and its workers.
    pub fn build(self) -> Result<(Stack, Vec<Worker>), SetupError> {
        self.build_one().map(|(stack, worker)| (stack, vec![worker]))
    }

    /// As [`StackBuilder::build`], for a stack of one core.
    pub fn build_one(self) -> Result<(Stack, Worker), SetupError> {
        self.config.validate()?;
        let frame = Frame::new(self.config)?;
        match self.memory {
            Some(port) => frame.finish(port, |port| port.port_mut().link_up()),
            #[cfg(feature = "dpdk")]
            None => {
                let port = crate::device::open(&frame.shared.config, self.eal, frame.stats.core(0))?;
                frame.finish(port, |port| port.port_mut().link_up())
            }
            #[cfg(not(feature = "dpdk"))]
            None => Err(SetupError::Port(
                frame.shared.config.port.device.kind(),
                "is not in this build, which has no DPDK",
            )),
        }
    }
}

impl StackBuilder {
    /// A stack of one core that replays: its time is `clock`'s, every number that is random elsewhere (steering tags,
    /// tagged offsets, initial sequence numbers, ports, hash keys) follows from `secret`, and polling it depends on
    /// nothing else. For simulators and tests: a peer that knows the secret can guess all of it.
    #[doc(hidden)]
    pub fn build_replayable<P, C>(
        self,
        port: P,
        clock: C,
        secret: [u64; 2],
    ) -> Result<(Stack, Worker), SetupError>
    where
        P: Port + Send,
        P::Frame: Send,
        <P::Frame as ironwarp_port::Frame>::Sealed: Send,
        C: Clock + Clone + Send + 'static,
    {
        self.config.validate()?;
        let limits = mem_limits(&self.config);
        let mem = MemTable::replayable(limits, secret).map_err(SetupError::Regions)?;
        let frame = Frame::with_memory(self.config, mem)?;
        frame.assemble(
            port,
            |_| true,
            Times { core: clock.clone(), capture: clock, link_every: Nanos::MAX },
            secret,
        )
    }
}

/// A stack before it has its port.
struct Frame {
    shared: Arc<Shared>,
    stats: StatsPage,
}

impl Frame {
    fn new(config: Config) -> Result<Self, SetupError> {
        config.validate()?;
        let mem = MemTable::new(mem_limits(&config)).map_err(SetupError::Regions)?;
        Self::with_memory(config, mem)
    }

    fn with_memory(config: Config, mem: MemTable) -> Result<Self, SetupError> {
        let stats = match &config.stats.page {
            Some(path) => StatsPage::create(path, 1).map_err(SetupError::StatsPage)?,
            None => StatsPage::private(1),
        };
        Ok(Frame { shared: Shared::new(config, mem, 1), stats })
    }

    fn finish<P: Port + Send>(
        self,
        port: P,
        link_up: fn(&mut Instrumented<P, WallClock>) -> bool,
    ) -> Result<(Stack, Worker), SetupError>
    where
        CoreLoop<Instrumented<P, WallClock>, TscTime>: Send,
    {
        let times =
            Times { core: TscTime(TscClock::calibrated()), capture: WallClock, link_every: LINK_EVERY };
        self.assemble(port, link_up, times, secret()?)
    }

    fn assemble<P: Port, C: Clock + 'static, W: Clock + 'static>(
        self,
        port: P,
        link_up: fn(&mut Instrumented<P, W>) -> bool,
        times: Times<C, W>,
        secret: [u64; 2],
    ) -> Result<(Stack, Worker), SetupError>
    where
        CoreLoop<Instrumented<P, W>, C>: Send,
    {
        let core = 0;
        let stats = self.stats.core(core);
        let port = Instrumented::new(port, times.capture, stats.clone());
        let control = port.control();
        let mem = self.shared.mem.core(CoreId(core)).map_err(SetupError::Core)?;
        let Times { core: clock, link_every, .. } = times;
        let parts = CoreParts { core, clock, port, link_up, link_every, mem, stats, secret };
        let idle = self.shared.config.core.idle;
        let looped = CoreLoop::new(self.shared.clone(), parts)?;
        let worker = Worker::new(Box::new(looped), control, idle);
        Ok((Stack { shared: self.shared, stats: self.stats }, worker))
    }
}

#[cfg(test)]
mod tests;

/// The clock that the loop reads and the one that stamps captures, and how often the link is looked at.
struct Times<C, W> {
    core: C,
    capture: W,
    link_every: Nanos,
}

/// How often a device is asked whether its link is there: some drivers ask the kernel for the answer.
const LINK_EVERY: Nanos = Nanos::from_millis(250);

fn mem_limits(config: &Config) -> MemLimits {
    MemLimits { regions_max: config.limits.regions, cores_max: 1 }
}

/// 128 random bits from the system.
fn secret() -> Result<[u64; 2], SetupError> {
    let word = || getrandom::u64().map_err(|error| SetupError::Entropy(error.to_string()));
    Ok([word()?, word()?])
}
