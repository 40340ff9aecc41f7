//! Subsystems and namespaces.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

use super::late::LateRequests;
use crate::latency::LatencyHistogram;
use crate::wire::fabrics::DISCOVERY_NQN;

/// What a subsystem is made of.
#[derive(Clone, Debug, Default)]
pub struct SubsystemInfo {
    /// Its NQN.
    pub nqn: String,
    /// SN, at most 20 bytes.
    pub serial: String,
    /// MN, at most 40 bytes.
    pub model: String,
    /// NQNs of hosts that may connect. `None`: any.
    pub hosts: Option<Vec<String>>,
}

/// What a namespace is made of.
#[derive(Clone, Copy, Debug)]
pub struct NamespaceInfo {
    /// The number of its backend, the same on every core.
    pub backend: usize,
    /// The size of a logical block is 2 to this power.
    pub block_shift: u8,
    /// Logical blocks.
    pub blocks: u64,
    /// Whether hosts may only read.
    pub read_only: bool,
    /// Its UUID.
    pub uuid: [u8; 16],
    /// Its NGUID.
    pub nguid: [u8; 16],
}

/// Counts of a namespace.
#[derive(Debug, Default)]
pub struct IoCounters {
    /// Read and Compare commands.
    pub reads: AtomicU64,
    /// Write commands.
    pub writes: AtomicU64,
    /// Bytes read.
    pub read_bytes: AtomicU64,
    /// Bytes written.
    pub written_bytes: AtomicU64,
    /// Commands that the backend failed.
    pub media_errors: AtomicU64,
    /// Reads that the disk failed.
    pub read_errors: AtomicU64,
    /// Writes that the disk failed.
    pub write_errors: AtomicU64,
    /// Writes for which the disk had no space.
    pub no_space: AtomicU64,
    /// Calls of fdatasync that failed.
    pub sync_errors: AtomicU64,
    /// Reads and Writes of which the disk moved a part, and that were continued.
    pub short_transfers: AtomicU64,
    /// Commands that ended because the disk did not answer in time.
    pub timeouts: AtomicU64,
    /// Requests of such commands that the disk has answered since.
    pub late_answers: AtomicU64,
    /// Commands that were refused because the disk still had requests of ended commands: too many,
    /// or one that may change the same bytes.
    pub refused: AtomicU64,
    /// What the disk still has of commands that have ended. Namespaces of one medium, also a later
    /// one, share it.
    pub late: Arc<LateRequests>,
    /// From the arrival of a Read or Compare to the sending of its response.
    pub read_latency: LatencyHistogram,
    /// The same of the commands that change the medium, and of Flush.
    pub write_latency: LatencyHistogram,
}

/// A namespace.
#[derive(Debug)]
pub struct Namespace {
    /// What it is made of.
    pub info: NamespaceInfo,
    /// Its counts.
    pub counters: Arc<IoCounters>,
}

impl Namespace {
    /// A namespace without counts.
    pub fn new(info: NamespaceInfo) -> Self {
        Self::on_medium(info, Arc::default())
    }

    /// A namespace on a medium that may have late requests of a namespace before it.
    pub fn on_medium(info: NamespaceInfo, late: Arc<LateRequests>) -> Self {
        Namespace { info, counters: Arc::new(IoCounters { late, ..IoCounters::default() }) }
    }
}

/// Namespaces by NSID. A queue keeps a list until the subsystem's generation changes.
pub(super) type NamespaceList = Arc<BTreeMap<u32, Arc<Namespace>>>;

/// A subsystem.
#[derive(Debug)]
pub struct Subsystem {
    info: SubsystemInfo,
    namespaces: RwLock<NamespaceList>,
    /// Changes of the namespaces.
    generation: AtomicU64,
}

impl Subsystem {
    /// A subsystem with namespaces by NSID.
    pub fn new(info: SubsystemInfo, namespaces: BTreeMap<u32, Namespace>) -> Self {
        let namespaces = namespaces.into_iter().map(|(nsid, one)| (nsid, Arc::new(one))).collect();
        Subsystem { info, namespaces: RwLock::new(Arc::new(namespaces)), generation: AtomicU64::new(0) }
    }

    pub(super) fn discovery() -> Self {
        let (nqn, model) = (DISCOVERY_NQN.to_owned(), "ironwarp discovery".to_owned());
        let info = SubsystemInfo { nqn, model, ..SubsystemInfo::default() };
        Subsystem::new(info, BTreeMap::new())
    }

    /// Returns its NQN.
    pub fn nqn(&self) -> &str {
        &self.info.nqn
    }

    /// Returns what it is made of.
    pub fn info(&self) -> &SubsystemInfo {
        &self.info
    }

    /// Returns whether it is the discovery subsystem.
    pub fn is_discovery(&self) -> bool {
        self.info.nqn == DISCOVERY_NQN
    }

    /// Returns whether a host may connect.
    pub fn allows(&self, host: &str) -> bool {
        self.info.hosts.as_ref().is_none_or(|hosts| hosts.iter().any(|one| one == host))
    }

    /// Returns the namespaces by NSID.
    pub fn namespaces(&self) -> Arc<BTreeMap<u32, Arc<Namespace>>> {
        self.namespaces.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Returns the number of changes of the namespaces.
    #[inline]
    pub(super) fn generation(&self) -> u64 {
        self.generation.load(Ordering::Acquire)
    }

    pub(super) fn set_namespace(&self, nsid: u32, namespace: Option<Namespace>) {
        let mut list = self.namespaces.write().unwrap_or_else(PoisonError::into_inner);
        let mut changed = BTreeMap::clone(&list);
        match namespace {
            Some(one) => drop(changed.insert(nsid, Arc::new(one))),
            None => drop(changed.remove(&nsid)),
        }
        *list = Arc::new(changed);
        self.generation.fetch_add(1, Ordering::Release);
    }
}
