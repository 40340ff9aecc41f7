//! A whole target from its configuration: the stack, the shared media, and a reactor for each core.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use ironwarp::memory::MemoryPort;
use ironwarp::{Context, ProtectionDomain, Stack, Worker, idle, pin};

use crate::NvmfError;
use crate::backend::faults::FaultPlan;
use crate::backend::{Arena, Inherited};
use crate::config::TargetConfig;
use crate::namespaces::{Namespaces, Opened};
use crate::open::{Medium, Opener, name};
use crate::target::{
    ADMIN_QUEUE_ENTRIES, IoCounters, Namespace, Subsystem, SubsystemInfo, Target, TargetLimits,
};
use crate::transport::arena::ArenaLimits;
use crate::transport::{
    Arrivals, CoreLimits, Device, DeviceChanges, Reactor, arrivals, device_changes, entries_reserved,
};

/// The time that connections have to close after a stop. Later ones are reset.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(2);
/// The time that disks have for what they were given, after the connections have closed.
const DISK_TIMEOUT: Duration = Duration::from_secs(5);
/// How often the first thread looks whether there is something to do.
const CONTROL_INTERVAL: Duration = Duration::from_millis(50);
/// The largest depth of a core's completion queue.
const COMPLETIONS_MAX: u32 = 1 << 20;

/// What a target has besides its configuration.
#[derive(Default)]
pub struct Surroundings {
    /// Ports in memory instead of the device of the configuration.
    pub ports: Option<Vec<MemoryPort>>,
    /// A stack that runs already, for example in virtual time.
    pub stack: Option<(Stack, Vec<Worker>)>,
    /// Descriptors of the target before this one.
    pub inherited: Vec<Inherited>,
    /// Faults of all disks, for tests.
    pub faults: Option<Arc<FaultPlan>>,
}

/// A target that has not been distributed to threads yet.
pub struct Appliance {
    namespaces: Namespaces,
    cores: Vec<Core>,
}

/// What a core's thread makes its reactor of.
pub struct Core {
    target: Arc<Target>,
    worker: Worker,
    ctx: Context,
    pd: ProtectionDomain,
    limits: CoreLimits,
    arrivals: Arrivals,
    changes: DeviceChanges,
    media: Vec<(Medium, Arc<IoCounters>)>,
    faults: Option<Arc<FaultPlan>>,
    listeners: Vec<core::net::SocketAddr>,
    processor: Option<usize>,
}

impl Appliance {
    /// Opens the media and the stack, over the device of the configuration or over `ports`.
    ///
    /// # Errors
    ///
    /// As [`Appliance::open_in`].
    pub fn open(config: &TargetConfig, ports: Option<Vec<MemoryPort>>) -> Result<Self, NvmfError> {
        Self::open_in(config, Surroundings { ports, ..Surroundings::default() })
    }

    /// Opens the media on a stack that is already there, as a simulator does.
    ///
    /// # Errors
    ///
    /// As [`Appliance::open_in`].
    pub fn on_stack(config: &TargetConfig, stack: Stack, workers: Vec<Worker>) -> Result<Self, NvmfError> {
        Self::open_in(config, Surroundings { stack: Some((stack, workers)), ..Surroundings::default() })
    }

    /// Opens the media and the stack.
    ///
    /// # Errors
    ///
    /// A file cannot be opened or is in use, an identity cannot be kept, memory is short, or the
    /// stack does not start.
    pub fn open_in(config: &TargetConfig, surroundings: Surroundings) -> Result<Self, NvmfError> {
        let Surroundings { ports, stack, inherited, faults } = surroundings;
        let mut opener = Opener::new(config, inherited, faults)?;
        let builder = Stack::builder(config.stack.clone());
        let (stack, workers) = match (stack, ports) {
            (Some(stack), _) => stack,
            (None, Some(ports)) => builder.memory_ports(ports).build()?,
            (None, None) => builder.build()?,
        };
        let pd = stack.alloc_pd();
        let mut contexts = (0..workers.len()).map(|_| stack.context()).collect::<Result<Vec<_>, _>>()?;
        let (mut media, mut files) = (Vec::new(), BTreeMap::new());
        let mut subsystems = Vec::new();
        for one in &config.subsystems {
            let mut namespaces = BTreeMap::new();
            for namespace in &one.namespaces {
                let (medium, info) = opener.open((&contexts[0], pd), &one.nqn, namespace, media.len())?;
                if let Some(file) = medium.file() {
                    let name = name(&one.nqn, namespace.nsid);
                    opener.media.settle(&name, Some(file));
                    files.insert(name, file.clone());
                }
                let made = Namespace::on_medium(info, medium.late());
                media.push((medium, made.counters.clone()));
                namespaces.insert(namespace.nsid, made);
            }
            let hosts = (!one.allow_any_host).then(|| one.hosts.clone());
            let (nqn, serial, model) = (one.nqn.clone(), opener.serial(one)?, one.model.clone());
            subsystems.push(Subsystem::new(SubsystemInfo { nqn, serial, model, hosts }, namespaces));
        }
        let faults = opener.faults();
        let target = Arc::new(Target::new(target_limits(config), subsystems, config.listeners.clone()));
        target.set_auth_policy(config.auth_policy());
        let limits = core_limits(config);
        let mut ends = arrivals(workers.len());
        let (senders, receivers): (Vec<_>, Vec<_>) = (0..workers.len()).map(|_| device_changes()).unzip();
        let opened = Opened { opener, files, devices: media.len() };
        let namespaces = Namespaces::new((stack, pd), target.clone(), senders, config, opened);
        let mut cores = Vec::new();
        for ((worker, arrivals), changes) in workers.into_iter().zip(ends.drain(..)).zip(receivers) {
            let processor = worker.processor();
            let listeners = if worker.core() == 0 { config.listeners.clone() } else { Vec::new() };
            let (target, media, ctx) = (target.clone(), media.clone(), contexts.remove(0));
            cores.push(Core {
                target,
                worker,
                ctx,
                pd,
                limits,
                arrivals,
                changes,
                media,
                faults: faults.clone(),
                listeners,
                processor,
            });
        }
        Ok(Appliance { namespaces, cores })
    }

    /// Returns the namespaces, which can change while the cores serve, and the cores, each for its
    /// thread. Another thread has to run [`crate::auth::jobs::Jobs::run_next`] of
    /// [`crate::target::Target::jobs`], or no host can prove itself.
    pub fn into_cores(self) -> (Namespaces, Vec<Core>) {
        (self.namespaces, self.cores)
    }

    /// Serves until `stop` is set, with a thread for each core; then closes the connections.
    /// `ready` is called when the target listens, and `control` some twenty times a second. A core
    /// that ends or panics ends all: `stop` is set, the other cores close their connections, and
    /// the hosts of a core that has panicked get resets.
    ///
    /// # Errors
    ///
    /// The first error of a core. The other cores stop too.
    pub fn run(
        self,
        stop: &AtomicBool,
        ready: impl FnOnce() + Send,
        mut control: impl FnMut(&mut Control<'_>),
    ) -> Result<(), NvmfError> {
        let (mut namespaces, cores) = self.into_cores();
        let mut ready = Some(ready);
        let beats: Vec<_> = cores.iter().map(|_| Beat::default()).collect();
        std::thread::scope(|scope| {
            let mut threads: Vec<_> = cores
                .into_iter()
                .zip(&beats)
                .map(|(core, beat)| {
                    // The first core listens.
                    let ready = ready.take();
                    scope.spawn(move || {
                        let _stop = SetOnDrop(stop);
                        core.serve(stop, ready, beat)
                    })
                })
                .collect();
            let target = namespaces.target().clone();
            threads.push(scope.spawn(move || {
                let _stop = SetOnDrop(stop);
                while !stop.load(Ordering::Relaxed) {
                    target.jobs.run_next(CONTROL_INTERVAL);
                }
                Ok(())
            }));
            // A panic in `control` must not leave the cores running either.
            let stop_at_end = SetOnDrop(stop);
            let mut life = Life::new(&beats);
            while !stop.load(Ordering::Relaxed) {
                let all_cores_run = life.all_cores_run();
                control(&mut Control { namespaces: &mut namespaces, all_cores_run });
                namespaces.close_removed();
                std::thread::sleep(CONTROL_INTERVAL);
            }
            drop(stop_at_end);
            let mut outcome = Ok(());
            for thread in threads {
                let one = thread
                    .join()
                    .unwrap_or_else(|_| Err(NvmfError::Protocol("a thread of the target panicked".into())));
                outcome = outcome.and(one);
            }
            outcome
        })
    }
}

/// What [`Appliance::run`] passes to its caller some twenty times a second.
pub struct Control<'a> {
    /// The namespaces.
    pub namespaces: &'a mut Namespaces,
    /// Whether every core has run since this was true last. A core that is stuck keeps it false.
    pub all_cores_run: bool,
}

/// Sets a flag when it is dropped, also by a panic.
pub struct SetOnDrop<'a>(pub &'a AtomicBool);

impl Drop for SetOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// The turns of a core, on a cache line of its own.
#[derive(Default)]
#[repr(align(64))]
struct Beat(AtomicU64);

/// Watches the turns of all cores.
struct Life<'a> {
    beats: &'a [Beat],
    /// Turns when all had run last.
    seen: Vec<u64>,
}

impl<'a> Life<'a> {
    fn new(beats: &'a [Beat]) -> Self {
        Life { beats, seen: vec![0; beats.len()] }
    }

    /// Returns whether every core has turned since this was true last.
    fn all_cores_run(&mut self) -> bool {
        let turns = self.beats.iter().map(|beat| beat.0.load(Ordering::Relaxed));
        if turns.clone().zip(&self.seen).any(|(now, seen)| now == *seen) {
            return false;
        }
        self.seen.clear();
        self.seen.extend(turns);
        true
    }
}

impl Core {
    /// Makes the reactor of this core, on the thread that will poll it. The first core's listens.
    ///
    /// # Errors
    ///
    /// The stack or the system refuses memory, a queue, or io_uring.
    pub fn start(self) -> Result<Reactor, NvmfError> {
        self.start_with(|_, devices| devices)
    }

    /// As [`Core::start`], with other devices in place of some: `change` gets those of the
    /// configuration, and the memory that they use. For simulators, whose disks are slow or fail
    /// when they say so.
    ///
    /// # Errors
    ///
    /// As [`Core::start`].
    pub fn start_with(
        self,
        change: impl FnOnce(&Arena, Vec<Device>) -> Vec<Device>,
    ) -> Result<Reactor, NvmfError> {
        let (media, faults) = (self.media, self.faults);
        let mut reactor = Reactor::new(
            self.target,
            (self.worker, self.ctx),
            self.pd,
            self.limits,
            (self.arrivals, self.changes),
            |memory| {
                let device =
                    |(medium, counters)| Opener::device(medium, counters, faults.clone(), memory.arena());
                let devices = media.into_iter().map(device);
                Ok(change(memory.arena(), devices.collect::<Result<_, _>>()?))
            },
        )?;
        self.listeners.iter().try_for_each(|&at| reactor.listen(at))?;
        Ok(reactor)
    }

    fn serve(self, stop: &AtomicBool, ready: Option<impl FnOnce()>, beat: &Beat) -> Result<(), NvmfError> {
        if let Some(processor) = self.processor {
            pin(processor);
        }
        let mut reactor = self.start()?;
        if let Some(ready) = ready {
            ready();
        }
        let policy = reactor.worker().idle_policy();
        while !stop.load(Ordering::Relaxed) {
            // Only this thread changes it.
            beat.0.store(beat.0.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
            if !reactor.poll()? {
                idle(policy);
            }
        }
        drain(&mut reactor)
    }
}

/// Stops listening and closes the connections of a reactor. Those that are open after two seconds
/// are reset.
///
/// # Errors
///
/// As [`Reactor::poll`].
pub fn drain(reactor: &mut Reactor) -> Result<(), NvmfError> {
    let deadline = Instant::now() + DRAIN_TIMEOUT;
    while reactor.drain(deadline)? > 0 {
        reactor.poll()?;
        if Instant::now() > deadline + DISK_TIMEOUT {
            tracing::error!("a disk still has requests: the target ends without their outcomes");
            break;
        }
    }
    // Resets and acknowledgements are still to be sent.
    for _ in 0..64 {
        reactor.poll()?;
    }
    tracing::info!("{:?}", reactor.counters());
    Ok(())
}

fn target_limits(config: &TargetConfig) -> TargetLimits {
    let limits = &config.limits;
    TargetLimits {
        controllers: limits.controllers,
        controllers_per_host: limits.controllers_per_host,
        discovery_controllers: limits.discovery_controllers,
        io_queues: limits.io_queues,
        queue_entries: limits.queue_entries,
        transfer_bytes: limits.transfer_kib * 1024,
        capsule_bytes: limits.capsule_bytes,
        keep_alive_default_ms: limits.keep_alive_default_ms,
    }
}

fn core_limits(config: &TargetConfig) -> CoreLimits {
    let limits = &config.limits;
    let arena = ArenaLimits {
        buffers: limits.buffers,
        buffer_bytes: limits.transfer_kib * 1024,
        capsules: limits.capsules,
        capsule_bytes: limits.capsule_bytes,
    };
    // Every connection may need its whole share, or the last ones are rejected.
    let each = entries_reserved(limits.queue_entries.max(ADMIN_QUEUE_ENTRIES).into());
    let completions = each.saturating_mul(limits.connections as u32).min(COMPLETIONS_MAX);
    CoreLimits {
        arena,
        connections: limits.connections,
        connections_per_address: limits.connections_per_address,
        reads: limits.reads,
        completions,
        connect_timeout_ms: limits.connect_timeout_ms,
        peer_timeout_ms: limits.peer_timeout_ms,
        contended_timeout_ms: limits.contended_timeout_ms,
        disk_timeout_ms: limits.disk_timeout_ms,
    }
}
