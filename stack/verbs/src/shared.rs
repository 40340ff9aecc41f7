//! What every core and every context of one stack share: the table of regions, the counters, the free places.
//!
//! Nothing here is touched on the data path: cores look at one flag an iteration, contexts at creation.

use core::sync::atomic::{AtomicBool, AtomicU16, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crossbeam_utils::CachePadded;
use ironwarp_mem::MemTable;
use ironwarp_types::PdId;

use crate::config::{Config, LimitsConfig};
use crate::context::Lacking;
use crate::error::VerbsError;
use crate::link::ContextLink;

/// Numbers the stacks, queue pairs and completion queues of the process, so that a handle never names an object of another
/// stack.
static NEXT_OBJECT: AtomicU32 = AtomicU32::new(1);

/// A number that no other object of the process has.
pub(crate) fn next_object() -> u32 {
    NEXT_OBJECT.fetch_add(1, Ordering::Relaxed)
}

/// One stack's shared state.
pub(crate) struct Shared {
    pub(crate) config: Config,
    pub(crate) mem: MemTable,
    /// Tells this stack's protection domains from those of others.
    pub(crate) serial: u32,
    pub(crate) cores: Box<[CachePadded<CoreShared>]>,
    /// Numbers of contexts.
    contexts: Slots,
    /// By context, how many cores still have something of it.
    remembering: Box<[AtomicU16]>,
    next_pd: AtomicU32,
    /// Peers that turned out to have no atomic operations. Kept by contexts; no core looks here.
    pub(crate) lacking: Mutex<Lacking>,
    /// Whether there ever were any.
    pub(crate) some_lack: AtomicBool,
}

/// What one core shares with every context.
pub(crate) struct CoreShared {
    arriving: Mutex<Vec<ContextLink>>,
    arrived: AtomicBool,
    gone: AtomicBool,
    qp_slots: Slots,
    cq_slots: Slots,
    srq_slots: Slots,
}

impl Shared {
    pub(crate) fn new(config: Config, mem: MemTable, cores: usize) -> Arc<Self> {
        let cores = (0..cores).map(|_| CachePadded::new(CoreShared::new(&config))).collect();
        let (contexts, next_pd) = (Slots::new(config.limits.contexts), AtomicU32::new(1));
        let remembering = (0..config.limits.contexts).map(|_| AtomicU16::new(0)).collect();
        let (serial, lacking) = (next_object(), Mutex::new(Lacking::default()));
        Arc::new(Shared {
            config,
            mem,
            serial,
            cores,
            contexts,
            remembering,
            next_pd,
            lacking,
            some_lack: AtomicBool::new(false),
        })
    }

    /// A number for one more context, or `None` when as many as configured exist.
    pub(crate) fn admit_context(&self) -> Option<u16> {
        let number = self.contexts.take()?;
        self.remembering.get(number as usize)?.store(self.cores.len() as u16, Ordering::Relaxed);
        Some(number as u16)
    }

    /// A core has nothing of a context any more. When none has, its number is free.
    pub(crate) fn forget_context(&self, number: u16) {
        let left = self.remembering.get(usize::from(number));
        if left.is_some_and(|cores| cores.fetch_sub(1, Ordering::Relaxed) == 1) {
            self.contexts.give_back(number.into());
        }
    }

    /// Whether peers without atomic operations may be remembered.
    pub(crate) fn remembers_lacking(&self) -> bool {
        self.some_lack.load(Ordering::Relaxed)
    }

    pub(crate) fn next_pd(&self) -> PdId {
        PdId(self.next_pd.fetch_add(1, Ordering::Relaxed))
    }
}

impl CoreShared {
    fn new(config: &Config) -> Self {
        CoreShared {
            arriving: Mutex::new(Vec::new()),
            arrived: AtomicBool::new(false),
            gone: AtomicBool::new(false),
            qp_slots: Slots::new(config.limits.queue_pairs),
            cq_slots: Slots::new(config.limits.completion_queues),
            srq_slots: Slots::new(config.limits.shared_receive_queues),
        }
    }

    /// Queue pairs that have a place here.
    pub(crate) fn queue_pairs(&self) -> u32 {
        self.qp_slots.taken()
    }

    fn slots(&self, table: Table) -> &Slots {
        match table {
            Table::QueuePairs => &self.qp_slots,
            Table::CompletionQueues => &self.cq_slots,
            Table::SharedReceives => &self.srq_slots,
        }
    }

    /// Leaves a context's rings for the core to pick up.
    pub(crate) fn attach(&self, link: ContextLink) {
        lock(&self.arriving).push(link);
        self.arrived.store(true, Ordering::Release);
    }

    /// The rings left since the last call. One load when there are none.
    #[inline]
    pub(crate) fn take_arrived(&self) -> Option<Vec<ContextLink>> {
        self.arrived.load(Ordering::Relaxed).then(|| self.take_those_arrived())
    }

    #[cold]
    #[inline(never)]
    fn take_those_arrived(&self) -> Vec<ContextLink> {
        self.arrived.store(false, Ordering::Relaxed);
        core::mem::take(&mut *lock(&self.arriving))
    }

    /// Says that the core will not run again.
    pub(crate) fn leave(&self) {
        self.gone.store(true, Ordering::Release);
    }

    pub(crate) fn has_left(&self) -> bool {
        self.gone.load(Ordering::Acquire)
    }
}

/// The account of a completion queue's places once cores promise some too, as for shared receives. Depth and promises
/// are one word, so that no promise passes a depth that is just being lowered.
pub(crate) struct Places(AtomicU64);

const DEPTH_SHIFT: u32 = 32;

impl Places {
    pub(crate) fn new(depth: u32) -> Self {
        Places(AtomicU64::new(u64::from(depth) << DEPTH_SHIFT))
    }

    /// Promises a place. Answers whether there was one.
    pub(crate) fn take(&self) -> bool {
        let more = |word: u64| ((word as u32) < (word >> DEPTH_SHIFT) as u32).then(|| word + 1);
        self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).is_ok()
    }

    /// Takes promises back.
    pub(crate) fn give_back(&self, places: u32) {
        debug_assert!(places <= self.promised());
        self.0.fetch_sub(places.into(), Ordering::Relaxed);
    }

    pub(crate) fn promised(&self) -> u32 {
        self.0.load(Ordering::Relaxed) as u32
    }

    /// Takes over promises made before.
    pub(crate) fn set(&self, promised: u32, depth: u32) {
        self.0.store(u64::from(depth) << DEPTH_SHIFT | u64::from(promised), Ordering::Relaxed);
    }

    pub(crate) fn set_depth(&self, depth: u32) {
        let with = |word: u64| Some(u64::from(depth) << DEPTH_SHIFT | u64::from(word as u32));
        let _ = self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, with);
    }
}

/// What one context has of the tables that all contexts share, and how much of each it may have (RFC 5042 s6.4.1).
pub(crate) struct Account {
    held: [AtomicU32; 3],
    most: [u32; 3],
}

impl Account {
    pub(crate) fn new(limits: &LimitsConfig, cores: usize) -> Arc<Self> {
        let of_all = |places: u32| limits.share_of(places).saturating_mul(cores as u32);
        let most = [limits.queue_pairs, limits.completion_queues, limits.shared_receive_queues].map(of_all);
        Arc::new(Account { held: Default::default(), most })
    }

    /// Counts one more, unless that would be more than the share.
    fn take(&self, table: Table) -> bool {
        let (held, most) = (&self.held[table as usize], self.most[table as usize]);
        let more = |now: u32| (now < most).then_some(now + 1);
        held.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).is_ok()
    }

    fn give_back(&self, table: Table) {
        self.held[table as usize].fetch_sub(1, Ordering::Relaxed);
    }
}

/// A place in a core's table, given back when the lease is dropped: with the core's half of the object, wherever that
/// happens to end.
pub(crate) struct Lease {
    shared: Arc<Shared>,
    account: Arc<Account>,
    core: u16,
    table: Table,
    slot: u32,
}

/// Which of a core's tables.
#[derive(Clone, Copy)]
pub(crate) enum Table {
    QueuePairs,
    CompletionQueues,
    SharedReceives,
}

impl Table {
    fn name(self) -> &'static str {
        ["queue pairs", "completion queues", "shared receive queues"][self as usize]
    }

    /// What a context has no more of though others may.
    fn share(self) -> &'static str {
        [
            "queue pairs for this context",
            "completion queues for this context",
            "shared receive queues for this context",
        ][self as usize]
    }
}

impl Lease {
    /// A place in a table of `core` for a context, unless all are taken or its share is.
    pub(crate) fn take(
        shared: &Arc<Shared>,
        account: &Arc<Account>,
        core: u16,
        table: Table,
    ) -> Result<Self, VerbsError> {
        let places = shared.cores.get(usize::from(core)).ok_or(VerbsError::WorkerGone)?.slots(table);
        let slot = places.take().ok_or(VerbsError::LimitReached(table.name()))?;
        if !account.take(table) {
            places.give_back(slot);
            return Err(VerbsError::LimitReached(table.share()));
        }
        Ok(Lease { shared: shared.clone(), account: account.clone(), core, table, slot })
    }

    pub(crate) fn slot(&self) -> u32 {
        self.slot
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        if let Some(core) = self.shared.cores.get(usize::from(self.core)) {
            core.slots(self.table).give_back(self.slot);
        }
        self.account.give_back(self.table);
    }
}

/// Free places of a table, handed out on control threads.
struct Slots {
    places: u32,
    free: Mutex<Vec<u32>>,
}

impl Slots {
    fn new(places: u32) -> Self {
        Slots { places, free: Mutex::new((0..places).rev().collect()) }
    }

    fn take(&self) -> Option<u32> {
        lock(&self.free).pop()
    }

    fn taken(&self) -> u32 {
        self.places - lock(&self.free).len() as u32
    }

    fn give_back(&self, slot: u32) {
        lock(&self.free).push(slot);
    }
}

/// A lock that a panicking holder does not poison: every critical section here is one push or pop.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
