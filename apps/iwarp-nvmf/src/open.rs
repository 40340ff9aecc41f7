//! Opens what the blocks of namespaces are in, when a target starts and when it is reconfigured.
//!
//! Takes a [`NamespaceConfig`] and gives a `Medium`, which all cores share, and the
//! [`NamespaceInfo`] that hosts see. Each core makes a [`Device`] of the medium. A file is opened
//! for one namespace alone ([`crate::backend::Media`]). [`check`] does the same without a target:
//! it reports what could not be served.

use std::io;
use std::path::Path;
use std::sync::Arc;

use ironwarp::{Access, AlignedBuf, Context, ProtectionDomain, Region};

use crate::NvmfError;
use crate::backend::faults::{FaultPlan, NoFaults};
use crate::backend::{
    Arena, Backend, FileBackend, FileMedium, FileOptions, Inherited, Media, MemoryBackend, NullBackend,
};
use crate::config::{BackendConfig, NamespaceConfig, SubsystemConfig, TargetConfig};
use crate::identities::Identities;
use crate::target::{IoCounters, LateRequests, NamespaceInfo};
use crate::transport::Device;

/// The medium of a namespace, shared by all cores.
#[derive(Clone)]
pub(crate) enum Medium {
    Memory(Arc<Region>),
    Null { zeros: Arc<Region>, sink: Arc<Region> },
    File(Arc<FileMedium>),
}

impl Medium {
    /// Returns the file, if it is one.
    pub(crate) fn file(&self) -> Option<&Arc<FileMedium>> {
        match self {
            Medium::File(file) => Some(file),
            _ => None,
        }
    }

    /// Returns what may still change it, of commands that have ended. Only disks are late.
    pub(crate) fn late(&self) -> Arc<LateRequests> {
        self.file().map(|file| file.claim().late().clone()).unwrap_or_default()
    }
}

/// The name of a namespace in messages.
pub(crate) fn name(nqn: &str, nsid: u32) -> String {
    format!("{nqn} {nsid}")
}

/// Opens media for the namespaces of a target.
pub(crate) struct Opener {
    pub(crate) media: Media,
    pub(crate) identities: Identities,
    /// Faults of all disks, in tests.
    faults: Option<Arc<FaultPlan>>,
    /// Bytes of the largest transfer.
    transfer_bytes: u32,
}

impl Opener {
    /// One for a target, with the descriptors of its predecessor.
    pub(crate) fn new(
        config: &TargetConfig,
        inherited: Vec<Inherited>,
        faults: Option<Arc<FaultPlan>>,
    ) -> Result<Self, NvmfError> {
        let mut identities = Identities::open(config.state_dir.as_deref())?;
        identities.complete(config)?;
        identities.save()?;
        let transfer_bytes = config.limits.transfer_kib * 1024;
        Ok(Opener { media: Media::new(inherited), identities, faults, transfer_bytes })
    }

    /// Returns the serial number of a subsystem.
    pub(crate) fn serial(&mut self, subsystem: &SubsystemConfig) -> Result<String, NvmfError> {
        Ok(self.identities.serial(subsystem)?)
    }

    /// Opens the medium of a namespace. `backend` is the number of its devices.
    pub(crate) fn open(
        &mut self,
        (ctx, pd): (&Context, ProtectionDomain),
        nqn: &str,
        namespace: &NamespaceConfig,
        backend: usize,
    ) -> Result<(Medium, NamespaceInfo), NvmfError> {
        let opened = self.open_medium((ctx, pd), nqn, namespace).and_then(|(medium, bytes)| {
            let (uuid, nguid) = self.identities.namespace(nqn, namespace)?;
            self.identities.save()?;
            let block_shift = namespace.block_bytes.ilog2() as u8;
            let (blocks, read_only) = (bytes >> block_shift, namespace.read_only);
            Ok((medium, NamespaceInfo { backend, block_shift, blocks, read_only, uuid, nguid }))
        });
        opened.map_err(|source| {
            let (nqn, source) = (nqn.to_owned(), Box::new(source));
            NvmfError::Namespace { nqn, nsid: namespace.nsid, source }
        })
    }

    fn open_medium(
        &mut self,
        (ctx, pd): (&Context, ProtectionDomain),
        nqn: &str,
        namespace: &NamespaceConfig,
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
                let bytes = self.transfer_bytes as usize;
                let (zeros, sink) = (region(bytes)?, region(bytes)?);
                Ok((Medium::Null { zeros, sink }, u64::from(*mib) << 20))
            }
            BackendConfig::File { path, direct } => {
                let owner = name(nqn, namespace.nsid);
                let opened = self.media.open(&owner, path, options(namespace, *direct));
                let medium = opened.map_err(|source| system(path, source))?;
                check_size(&medium, namespace.block_bytes).map_err(|source| system(path, source))?;
                if *direct && !medium.is_direct {
                    tracing::warn!("{} has no O_DIRECT: the page cache is used", path.display());
                }
                let bytes = medium.bytes();
                Ok((Medium::File(Arc::new(medium)), bytes))
            }
        }
    }

    /// Makes the device of a medium for one core.
    pub(crate) fn device(
        medium: Medium,
        counters: Arc<IoCounters>,
        faults: Option<Arc<FaultPlan>>,
        arena: &Arena,
    ) -> Result<Device, NvmfError> {
        let backend: Box<dyn Backend> = match medium {
            Medium::Memory(region) => Box::new(MemoryBackend::new(region)),
            Medium::Null { zeros, sink } => Box::new(NullBackend::new(zeros, sink)),
            Medium::File(medium) => {
                let what = "io_uring (see kernel.io_uring_disabled, and the seccomp policy of a container)";
                let system = |source| NvmfError::System { what: what.to_owned(), source };
                let of = counters.clone();
                match faults {
                    None => Box::new(FileBackend::new(medium, arena, of, NoFaults).map_err(system)?),
                    Some(faults) => Box::new(FileBackend::new(medium, arena, of, faults).map_err(system)?),
                }
            }
        };
        Ok(Device { backend, counters })
    }

    /// Returns the faults of the disks.
    pub(crate) fn faults(&self) -> Option<Arc<FaultPlan>> {
        self.faults.clone()
    }
}

/// Returns how the file of a namespace is opened.
fn options(namespace: &NamespaceConfig, direct: bool) -> FileOptions {
    FileOptions { direct, read_only: namespace.read_only, shared: namespace.shared }
}

fn system(path: &Path, source: io::Error) -> NvmfError {
    NvmfError::System { what: path.display().to_string(), source }
}

fn check_size(medium: &FileMedium, block_bytes: u32) -> io::Result<()> {
    if medium.bytes() < block_bytes.into() {
        return Err(io::Error::other("shorter than a logical block; make it with truncate --size"));
    }
    medium.check_block(block_bytes)
}

/// What [`check`] has found of a namespace.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Finding {
    /// It could be served. For a file, with its size in bytes.
    Good(Option<u64>),
    /// The running target has it, and what could be checked beside it is good.
    Served(u64),
    /// It could not be served, for this reason.
    Bad(String),
}

/// Opens what a target with this configuration would open, and closes it again: one finding for
/// each namespace, with its subsystem. A target that runs with the same `state_dir` is not
/// disturbed: what it has open is looked at without its lock.
///
/// # Errors
///
/// A serial number or UUID is missing, or the file with those is damaged.
pub fn check(config: &TargetConfig) -> Result<Vec<(String, u32, Finding)>, NvmfError> {
    let folder = config.state_dir.as_deref();
    Identities::look(folder)?.complete(config)?;
    let is_running = folder.is_some_and(Identities::is_in_use);
    // All stay open until the end, so one file for two namespaces is found.
    let (mut media, mut opened, mut findings) = (Media::default(), Vec::new(), Vec::new());
    for subsystem in &config.subsystems {
        for namespace in &subsystem.namespaces {
            let owner = name(&subsystem.nqn, namespace.nsid);
            let finding = match &namespace.backend {
                BackendConfig::File { path, direct } => {
                    let outcome = media.open(&owner, path, options(namespace, *direct)).and_then(|medium| {
                        check_size(&medium, namespace.block_bytes)?;
                        Ok(medium)
                    });
                    match outcome {
                        Ok(medium) => {
                            media.settle(&owner, Some(&medium));
                            let bytes = medium.bytes();
                            opened.push(medium);
                            Finding::Good(Some(bytes))
                        }
                        Err(error)
                            if error.kind() == io::ErrorKind::ResourceBusy
                                && is_running
                                && !media.has_other(&owner, path) =>
                        {
                            look(path, namespace, *direct)
                        }
                        Err(error) => Finding::Bad(format!("{}: {error}", path.display())),
                    }
                }
                BackendConfig::Memory { .. } | BackendConfig::Null { .. } => Finding::Good(None),
            };
            findings.push((subsystem.nqn.clone(), namespace.nsid, finding));
        }
    }
    Ok(findings)
}

/// Looks at what the running target has open.
fn look(path: &Path, namespace: &NamespaceConfig, direct: bool) -> Finding {
    let options = FileOptions { read_only: true, ..options(namespace, direct) };
    let looked = FileMedium::look(path, options).and_then(|medium| {
        check_size(&medium, namespace.block_bytes)?;
        Ok(medium.bytes())
    });
    match looked {
        Ok(bytes) => Finding::Served(bytes),
        Err(error) => Finding::Bad(format!("{}: {error}", path.display())),
    }
}
