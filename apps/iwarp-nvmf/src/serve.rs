//! A whole target from its configuration: the stack, the shared media, and a reactor for each core.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use ironwarp::memory::MemoryPort;
use ironwarp::{Access, AlignedBuf, Context, ProtectionDomain, Region, Stack, Worker, idle, pin};

use crate::NvmfError;
use crate::backend::{Arena, Backend, FileBackend, FileMedium, FileOptions, MemoryBackend, NullBackend};
use crate::config::{BackendConfig, NamespaceConfig, TargetConfig};
use crate::namespaces::Namespaces;
use crate::target::{
    ADMIN_QUEUE_ENTRIES, IoCounters, Namespace, NamespaceInfo, Subsystem, SubsystemInfo, Target, TargetLimits,
};
use crate::transport::arena::ArenaLimits;
use crate::transport::{
    Arrivals, CoreLimits, Device, DeviceChanges, Reactor, arrivals, device_changes, entries_reserved,
};

/// The time that connections have to close after a stop. Later ones are reset.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(2);
/// How often the first thread looks whether there is something to do.
const CONTROL_INTERVAL: Duration = Duration::from_millis(50);
/// The largest depth of a core's completion queue.
const COMPLETIONS_MAX: u32 = 1 << 20;

/// The medium of a namespace, shared by all cores.
#[derive(Clone)]
pub(crate) enum Medium {
    Memory(Arc<Region>),
    Null { zeros: Arc<Region>, sink: Arc<Region> },
    File(Arc<FileMedium>),
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
    listeners: Vec<core::net::SocketAddr>,
    processor: Option<usize>,
}

impl Appliance {
    /// Opens the media and the stack, over the device of the configuration or over `ports`.
    ///
    /// # Errors
    ///
    /// A file cannot be opened, memory is short, or the stack does not start.
    pub fn open(config: &TargetConfig, ports: Option<Vec<MemoryPort>>) -> Result<Self, NvmfError> {
        let builder = Stack::builder(config.stack.clone());
        let (stack, workers) = match ports {
            Some(ports) => builder.memory_ports(ports).build()?,
            None => builder.build()?,
        };
        Self::on_stack(config, stack, workers)
    }

    /// Opens the media on a stack that is already there, as a simulator does.
    ///
    /// # Errors
    ///
    /// A file cannot be opened, or memory is short.
    pub fn on_stack(config: &TargetConfig, stack: Stack, workers: Vec<Worker>) -> Result<Self, NvmfError> {
        let pd = stack.alloc_pd();
        let mut contexts = (0..workers.len()).map(|_| stack.context()).collect::<Result<Vec<_>, _>>()?;
        let mut media = Vec::new();
        let mut subsystems = Vec::new();
        for one in &config.subsystems {
            let mut namespaces = BTreeMap::new();
            for namespace in &one.namespaces {
                let (medium, bytes) =
                    open_medium(&contexts[0], pd, namespace, config.limits.transfer_kib * 1024)?;
                let made = Namespace::new(namespace_info(namespace, &one.nqn, media.len(), bytes));
                media.push((medium, made.counters.clone()));
                namespaces.insert(namespace.nsid, made);
            }
            let hosts = (!one.allow_any_host).then(|| one.hosts.clone());
            let (nqn, serial, model) = (one.nqn.clone(), one.serial.clone(), one.model.clone());
            subsystems.push(Subsystem::new(SubsystemInfo { nqn, serial, model, hosts }, namespaces));
        }
        let target = Arc::new(Target::new(target_limits(config), subsystems, config.listeners.clone()));
        let limits = core_limits(config);
        let mut ends = arrivals(workers.len());
        let (senders, receivers): (Vec<_>, Vec<_>) = (0..workers.len()).map(|_| device_changes()).unzip();
        let namespaces = Namespaces::new(stack, pd, target.clone(), senders, (config, media.len()));
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
                listeners,
                processor,
            });
        }
        Ok(Appliance { namespaces, cores })
    }

    /// Returns the namespaces, which can change while the cores serve, and the cores, each for its thread.
    pub fn into_cores(self) -> (Namespaces, Vec<Core>) {
        (self.namespaces, self.cores)
    }

    /// Serves until `stop` is set, with a thread for each core; then closes the connections. `ready` is called when the
    /// target listens, and `control` some twenty times a second.
    ///
    /// # Errors
    ///
    /// The first error of a core. The other cores stop too.
    pub fn run(
        self,
        stop: &AtomicBool,
        ready: impl FnOnce() + Send,
        mut control: impl FnMut(&mut Namespaces),
    ) -> Result<(), NvmfError> {
        let (mut namespaces, cores) = self.into_cores();
        let mut ready = Some(ready);
        std::thread::scope(|scope| {
            let threads: Vec<_> = cores
                .into_iter()
                .map(|core| {
                    // The first core listens.
                    let ready = ready.take();
                    scope.spawn(move || {
                        let outcome = core.serve(stop, ready);
                        stop.store(true, Ordering::Relaxed);
                        outcome
                    })
                })
                .collect();
            while !stop.load(Ordering::Relaxed) {
                control(&mut namespaces);
                namespaces.close_removed();
                std::thread::sleep(CONTROL_INTERVAL);
            }
            let mut outcome = Ok(());
            for thread in threads {
                let one = thread
                    .join()
                    .unwrap_or_else(|_| Err(NvmfError::Protocol("a core's thread panicked".into())));
                outcome = outcome.and(one);
            }
            outcome
        })
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

    /// As [`Core::start`], with other devices in place of some: `change` gets those of the configuration, and the memory
    /// that they use. For simulators, whose disks are slow or fail when they say so.
    ///
    /// # Errors
    ///
    /// As [`Core::start`].
    pub fn start_with(
        self,
        change: impl FnOnce(&Arena, Vec<Device>) -> Vec<Device>,
    ) -> Result<Reactor, NvmfError> {
        let media = self.media;
        let mut reactor = Reactor::new(
            self.target,
            (self.worker, self.ctx),
            self.pd,
            self.limits,
            (self.arrivals, self.changes),
            |memory| {
                let devices = media.into_iter().map(|one| device(one, memory.arena()));
                Ok(change(memory.arena(), devices.collect::<Result<_, _>>()?))
            },
        )?;
        self.listeners.iter().try_for_each(|&at| reactor.listen(at))?;
        Ok(reactor)
    }

    fn serve(self, stop: &AtomicBool, ready: Option<impl FnOnce()>) -> Result<(), NvmfError> {
        if let Some(processor) = self.processor {
            pin(processor);
        }
        let listeners = self.listeners.clone();
        let mut reactor = self.start()?;
        if let Some(ready) = ready {
            ready();
        }
        let policy = reactor.worker().idle_policy();
        while !stop.load(Ordering::Relaxed) {
            if !reactor.poll()? {
                idle(policy);
            }
        }
        listeners.iter().try_for_each(|&at| reactor.unlisten(at))?;
        drain(&mut reactor)
    }
}

/// Closes the connections of a reactor. Those that are open after two seconds are reset.
///
/// # Errors
///
/// As [`Reactor::poll`].
pub fn drain(reactor: &mut Reactor) -> Result<(), NvmfError> {
    let deadline = Instant::now() + DRAIN_TIMEOUT;
    while reactor.drain(deadline)? > 0 {
        reactor.poll()?;
    }
    // Resets and acknowledgements are still to be sent.
    for _ in 0..64 {
        reactor.poll()?;
    }
    tracing::info!("{:?}", reactor.counters());
    Ok(())
}

/// Returns what a namespace on the device `backend` with a medium of `bytes` is made of.
pub(crate) fn namespace_info(
    namespace: &NamespaceConfig,
    nqn: &str,
    backend: usize,
    bytes: u64,
) -> NamespaceInfo {
    let block_shift = namespace.block_bytes.ilog2() as u8;
    NamespaceInfo {
        backend,
        block_shift,
        blocks: bytes >> block_shift,
        read_only: namespace.read_only,
        uuid: namespace.uuid(nqn),
    }
}

/// Opens what a namespace's blocks are in, and returns its size in bytes.
pub(crate) fn open_medium(
    ctx: &Context,
    pd: ProtectionDomain,
    namespace: &NamespaceConfig,
    transfer_bytes: u32,
) -> Result<(Medium, u64), NvmfError> {
    let region = |bytes: usize| {
        let memory = AlignedBuf::pages(bytes);
        let memory = memory.map_err(|error| NvmfError::Memory { bytes, reason: error.to_string() })?;
        Ok::<_, NvmfError>(Arc::new(ctx.register(pd, memory, Access::LOCAL_WRITE)?))
    };
    match &namespace.backend {
        BackendConfig::Memory { mib } => {
            let bytes = u64::from(*mib) << 20;
            Ok((Medium::Memory(region(bytes as usize)?), bytes))
        }
        BackendConfig::Null { mib } => {
            let (zeros, sink) = (region(transfer_bytes as usize)?, region(transfer_bytes as usize)?);
            Ok((Medium::Null { zeros, sink }, u64::from(*mib) << 20))
        }
        BackendConfig::File { path, direct } => {
            let options = FileOptions { direct: *direct, read_only: namespace.read_only };
            let system = |source| NvmfError::System { what: path.display().to_string(), source };
            let medium = FileMedium::open(path, options).map_err(system)?;
            let bytes = medium.bytes();
            if bytes < namespace.block_bytes.into() {
                let empty =
                    std::io::Error::other("shorter than a logical block; make it with truncate --size");
                return Err(system(empty));
            }
            medium.check_block(namespace.block_bytes).map_err(system)?;
            if *direct && !medium.is_direct {
                tracing::warn!("{} has no O_DIRECT: the page cache is used", path.display());
            }
            Ok((Medium::File(Arc::new(medium)), bytes))
        }
    }
}

/// Makes the device of a medium for one core.
pub(crate) fn device(
    (medium, counters): (Medium, Arc<IoCounters>),
    arena: &Arena,
) -> Result<Device, NvmfError> {
    let backend: Box<dyn Backend> = match medium {
        Medium::Memory(region) => Box::new(MemoryBackend::new(region)),
        Medium::Null { zeros, sink } => Box::new(NullBackend::new(zeros, sink)),
        Medium::File(medium) => {
            let what = "io_uring (see kernel.io_uring_disabled, and the seccomp policy of a container)";
            let system = |source| NvmfError::System { what: what.to_owned(), source };
            Box::new(FileBackend::new(medium, arena).map_err(system)?)
        }
    };
    Ok(Device { backend, counters })
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
    }
}
