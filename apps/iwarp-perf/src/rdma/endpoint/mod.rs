//! One end of a test: a stack, its workers, and a context.

mod control_connection;
mod driver;
mod sleep;

use std::any::Any;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use ironwarp::{
    Completion, CompletionQueue, CompletionStatus, Config, Context, Event, ProtectionDomain, Stack, Worker,
};
use ironwarp_bench::report::CorePolls;
use ironwarp_bench::{CpuClock, UsageMeter, WordOwner};
use ironwarp_port::instrument::{Capture, CaptureLimits};

use driver::Driver;
pub use sleep::SleepCounts;

use super::control_channel::{ControlChannel, POLLS_PER_CONTROL_POLL};
use crate::error::{Context as _, Error, Result};

/// A device with a peer has a link within this time.
pub const LINK_UP_TIMEOUT: Duration = Duration::from_secs(8);

/// One end of the stack.
pub struct Endpoint {
    pub ctx: Context,
    pub pd: ProtectionDomain,
    driver: Driver,
    /// Whether to sleep until a completion event.
    events: bool,
    sleeps: SleepCounts,
    control: Option<ControlChannel>,
    control_loss: Option<String>,
    poll_count: u32,
    /// Counters live as long as their stack.
    stack: Arc<Stack>,
    cores: u16,
    /// The cores of the stack, of which this end can use a single one.
    stack_cores: u16,
    /// The single core that this end uses.
    own_core: Option<u16>,
    companion: Option<Box<dyn Companion>>,
    /// The context that listens, where that is not the one of this end's queue pairs.
    listener: Option<Context>,
    /// Clients that were rejected because this end serves another one.
    busy: u64,
}

/// What is polled with an end: the server, where one thread polls both ends.
pub trait Companion: Any + Send {
    fn poll(&mut self);
}

struct Queue<'a> {
    ctx: &'a mut Context,
    cq: CompletionQueue,
    into: &'a mut [Completion],
}

impl sleep::EventSource for Queue<'_> {
    fn arm(&mut self) -> Result<()> {
        Ok(self.ctx.arm_cq(self.cq, false)?)
    }

    fn reap(&mut self) -> Result<usize> {
        Ok(self.ctx.poll_cq(self.cq, self.into)?)
    }

    fn sleep(&mut self, at_most: Duration) -> Result<bool> {
        sleep::until_readable(self.ctx.cq_fd(self.cq)?, at_most).context("waiting for an event")
    }
}

impl Endpoint {
    /// Opens the device of a configuration. With `worker_processor` a thread on that processor
    /// polls the single worker. `events` needs that, or several cores.
    pub fn open(config: &str, worker_processor: Option<usize>, events: bool) -> Result<Self> {
        let (stack, workers) = Stack::builder(Config::from_toml(config)?).build()?;
        Self::new(stack, workers, worker_processor, events)
    }

    pub fn new(
        stack: Stack,
        workers: Vec<Worker>,
        worker_processor: Option<usize>,
        events: bool,
    ) -> Result<Self> {
        let (pd, cores) = (stack.alloc_pd(), workers.len() as u16);
        let driver = Driver::new(workers, worker_processor)?;
        let endpoint = Self::with_driver(Arc::new(stack), driver, pd, cores)?;
        // An end that sleeps does not poll.
        Ok(Endpoint { events: events && (worker_processor.is_some() || cores > 1), ..endpoint })
    }

    /// One core of a stack of `cores`: its worker, polled by the user of this endpoint, and a
    /// context. Endpoints of one domain can share memory.
    pub fn of_core(stack: &Arc<Stack>, worker: Worker, (cores, pd): (u16, ProtectionDomain)) -> Result<Self> {
        let own_core = Some(worker.core());
        let endpoint = Self::with_driver(stack.clone(), Driver::Inline(worker), pd, cores)?;
        Ok(Endpoint { cores: 1, own_core, ..endpoint })
    }

    fn with_driver(stack: Arc<Stack>, driver: Driver, pd: ProtectionDomain, cores: u16) -> Result<Self> {
        Ok(Endpoint {
            ctx: stack.context()?,
            pd,
            driver,
            events: false,
            sleeps: SleepCounts::default(),
            control: None,
            control_loss: None,
            poll_count: 0,
            stack,
            cores,
            stack_cores: cores,
            own_core: None,
            companion: None,
            listener: None,
            busy: 0,
        })
    }

    /// An end with a context and a protection domain of its own. The first context of the stack
    /// listens; any other ends here, with all that it has.
    pub fn with_own_context(self) -> Result<Self> {
        let Endpoint { ctx, listener, driver, stack, busy, .. } = self;
        let (listener, pd) = (listener.unwrap_or(ctx), stack.alloc_pd());
        Ok(Endpoint { listener: Some(listener), busy, ..Self::with_driver(stack, driver, pd, 1)? })
    }

    /// The core of the queue pair `index`; `None` on a stack of one core.
    pub fn core_of(&self, index: u32) -> Option<u16> {
        let round_robin = || (index % u32::from(self.cores)) as u16;
        self.own_core.or_else(|| (self.cores > 1).then(round_robin))
    }

    pub fn has_several_cores(&self) -> bool {
        self.cores > 1
    }

    /// The owner core of each set of words.
    pub fn word_owners(&self, owner: WordOwner) -> Vec<Option<u16>> {
        let cores = self.polled_cores();
        match owner {
            WordOwner::Spread => vec![None],
            WordOwner::Local => cores.map(Some).collect(),
            WordOwner::Remote => cores.map(|core| Some((core + 1) % self.stack_cores)).collect(),
        }
    }

    /// What each poll of this end polls too.
    pub fn companion(&mut self) -> &mut Option<Box<dyn Companion>> {
        &mut self.companion
    }

    /// Polls of each core since the start.
    pub fn polls(&self) -> Vec<CorePolls> {
        let of = |core| {
            let [polls, idle] = self.counts(core, ["cores_polls", "cores_polls_idle"]);
            CorePolls { core, polls, idle }
        };
        self.polled_cores().map(of).collect()
    }

    /// Peers' atomic operations since the start: executed on the core that received them, forwarded
    /// to another core, and those of the first on shared lines.
    pub fn atomics(&self) -> [u64; 3] {
        let of = |core| self.counts(core, ["atomics_local_core", "atomics_forwarded", "atomics_shared"]);
        self.polled_cores().map(of).fold([0; 3], |sum, one| std::array::from_fn(|at| sum[at] + one[at]))
    }

    /// Frames since the start that were dropped because the ring to the owner core was full.
    pub fn steering_drops(&self) -> u64 {
        self.polled_cores().map(|core| self.counts(core, ["cores_steered_dropped"])[0]).sum()
    }

    fn polled_cores(&self) -> std::ops::Range<u16> {
        self.own_core.map_or(0..self.cores, |own_core| own_core..own_core + 1)
    }

    fn counts<const N: usize>(&self, core: u16, names: [&str; N]) -> [u64; N] {
        let counters = self.stack.core_counters(core);
        names.map(|name| counters.iter().find(|(one, _)| *one == name).map_or(0, |(_, count)| *count))
    }

    pub fn wait_for_link(&mut self) -> Result<()> {
        let start = Instant::now();
        self.with_worker(|worker| {
            while !worker.link_up() {
                if start.elapsed() > LINK_UP_TIMEOUT {
                    return Err(Error::NoLink);
                }
                std::thread::yield_now();
            }
            Ok(())
        })?
    }

    pub fn listen(&mut self, address: SocketAddr) -> Result<()> {
        self.ctx.listen(address)?;
        // Until the cores know the listener, they refuse connections.
        self.driver.apply_control_requests()
    }

    #[inline]
    pub fn poll(&mut self) {
        self.driver.poll();
        if let Some(companion) = &mut self.companion {
            companion.poll();
        }
        self.poll_count = self.poll_count.wrapping_add(1);
        if self.poll_count.is_multiple_of(POLLS_PER_CONTROL_POLL) && self.control.is_some() {
            self.poll_control();
        }
    }

    /// Polls, and passes each event to `on_event`, until it returns a value. Fails when `what`
    /// takes longer than `timeout` or the control connection is lost.
    pub fn wait_for_events<T>(
        &mut self,
        timeout: Duration,
        what: &'static str,
        mut on_event: impl FnMut(&mut Self, Option<Event>) -> Result<Option<T>>,
    ) -> Result<T> {
        let start = Instant::now();
        loop {
            self.poll();
            let event = self.poll_event();
            let is_idle = event.is_none();
            if let Some(value) = on_event(self, event)? {
                return Ok(value);
            }
            if is_idle && self.is_control_lost() {
                return Err(Error::Halted);
            }
            if is_idle && start.elapsed() > timeout {
                return Err(Error::too_long(what));
            }
        }
    }

    /// Polls once and reaps. Where this end waits for events it sleeps until there is one, at most
    /// a few milliseconds.
    #[inline]
    pub fn poll_or_wait_completions(
        &mut self,
        cq: CompletionQueue,
        into: &mut [Completion],
    ) -> Result<usize> {
        self.poll();
        match self.reap(cq, into)? {
            0 if self.events => self.sleep(cq, into),
            count => Ok(count),
        }
    }

    fn sleep(&mut self, cq: CompletionQueue, into: &mut [Completion]) -> Result<usize> {
        let mut queue = Queue { ctx: &mut self.ctx, cq, into };
        let count = sleep::wait_for_event(&mut queue, &mut self.sleeps)?;
        if self.control.is_some() {
            self.poll_control();
        }
        self.check_completions(count, into)
    }

    /// Sleeps since the last call; `None` where this end does not wait for events.
    pub fn take_sleep_counts(&mut self) -> Option<SleepCounts> {
        self.events.then(|| std::mem::take(&mut self.sleeps))
    }

    pub fn waits_for_events(&self) -> bool {
        self.events
    }

    /// Reaps completions. A failed one is an error with the reason of its connection.
    #[inline]
    pub fn reap(&mut self, cq: CompletionQueue, into: &mut [Completion]) -> Result<usize> {
        let count = self.ctx.poll_cq(cq, into)?;
        self.check_completions(count, into)
    }

    #[inline]
    fn check_completions(&mut self, count: usize, reaped: &[Completion]) -> Result<usize> {
        match reaped.iter().take(count).find(|completion| completion.status != CompletionStatus::Success) {
            Some(failed) => Err(self.failure(failed.status)),
            None => Ok(count),
        }
    }

    /// Lends the first worker while none is polled.
    pub fn with_worker<T>(&mut self, work: impl FnOnce(&mut Worker) -> T) -> Result<T> {
        self.driver.with_workers(|workers| workers.first_mut().map(work))?.ok_or(Error::NoDevice)
    }

    pub fn apply_control_requests(&mut self) -> Result<()> {
        self.driver.apply_control_requests()
    }

    /// Captures every frame of this end. The file is complete when the endpoint is dropped.
    pub fn capture(&mut self, path: &Path, end: &str) -> Result<()> {
        let capture = Capture::create(path, CaptureLimits::default()).context("--pcap")?;
        self.with_worker(|worker| worker.start_capture(&capture, end))?.context("--pcap")
    }

    /// Adds the events of connections to a failed request.
    #[cold]
    fn failure(&mut self, status: CompletionStatus) -> Error {
        let mut why = String::new();
        while let Some(event) = self.ctx.poll_event() {
            match event {
                Event::Terminated { sent, terminate, .. } => {
                    let owner = if sent { "we sent" } else { "the peer sent" };
                    why.push_str(&format!("; {owner} {terminate:?}"));
                }
                Event::Disconnected { reason, .. } => why.push_str(&format!("; disconnected: {reason:?}")),
                _ => {}
            }
        }
        Error::Failed(format!("a work request ended as {status:?}{why}"))
    }
}

/// The polls of each core of an end; none without a device.
pub fn polls_of(endpoint: Option<&Endpoint>) -> Vec<CorePolls> {
    endpoint.map(Endpoint::polls).unwrap_or_default()
}

/// Starts to measure what an end uses. `is_alone`: the other end is in another process.
pub fn start_meter(endpoint: Option<&Endpoint>, is_alone: bool) -> UsageMeter {
    let clock = endpoint.map_or(CpuClock::Process, |endpoint| match endpoint.driver {
        _ if is_alone => CpuClock::Process,
        Driver::Inline(_) => CpuClock::Thread,
        _ => CpuClock::Unknown,
    });
    UsageMeter::start(clock, polls_of(endpoint))
}

#[cfg(test)]
mod tests {
    use super::*;
    use ironwarp::IdlePolicy;
    use ironwarp::memory::{MemoryConfig, pair_of_queues};

    /// A SYN in the next burst finds the listener, whichever core receives it.
    #[test]
    fn who_listens_is_known_to_every_core_before_a_frame_is() {
        for cores in [1, 2] {
            let port = MemoryConfig::default();
            let (ports, _others) = pair_of_queues((&port, cores), (&port, cores));
            let mut config = Config::in_memory("10.0.0.1/24").expect("a valid configuration");
            config.core.count = cores as u16;
            config.core.idle = IdlePolicy::Yield;
            let (stack, workers) = Stack::builder(config).memory_ports(ports).build().expect("a stack");
            let mut endpoint = Endpoint::new(stack, workers, None, false).expect("an end");
            endpoint.listen("10.0.0.1:18515".parse().expect("an address")).expect("free");
            let listeners = |workers: &mut [Worker]| -> Vec<usize> {
                workers.iter().map(|worker| worker.resource_usage().listeners).collect()
            };
            assert_eq!(endpoint.driver.with_workers(listeners).expect("workers"), vec![1; cores]);
        }
    }
}
