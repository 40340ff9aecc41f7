//! The state that all cores and contexts of a stack share: the table of regions, the counters, the
//! free slots.
//!
//! The data path does not use it: cores read one flag in an iteration, contexts use it at creation.

mod listening;
mod ports;
mod reservations;

use core::sync::atomic::{AtomicBool, AtomicU32, Ordering, fence};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};

use crossbeam_utils::CachePadded;
use ironwarp_mem::MemTable;
use ironwarp_net::{FlowHasher, Steering};
use ironwarp_rings::arrivals::Arrivals;
use ironwarp_types::{Flow, PdId};

pub(crate) use listening::ListenAddress;
use listening::ListeningAddresses;
pub(crate) use ports::PortState;
pub(crate) use reservations::CqReservations;

use crate::config::{Config, IdlePolicy, LimitsConfig};
use crate::context::LacksAtomicsCache;
use crate::core_loop::channel::{ContextChannel, Notification};
use crate::core_loop::{QpHalf, QpSetup};
use crate::error::VerbsError;
use crate::numbers::{PdNumbers, next_handle_id};
use crate::wake::WakeSignal;

/// One stack's shared state.
pub(crate) struct StackShared {
    pub(crate) config: Config,
    pub(crate) mem: MemTable,
    /// The owner of the protection domains that all contexts may use.
    pub(crate) stack_id: u32,
    pub(crate) cores: Box<[Arc<CachePadded<CoreShared>>]>,
    /// Numbers of contexts.
    contexts: SlotAllocator,
    pd_numbers: PdNumbers,
    /// The addresses that contexts listen on.
    pub(crate) listening: ListeningAddresses,
    /// What the devices determine; set before the first worker exists.
    devices: OnceLock<DeviceFacts>,
    /// Peers that lack atomic operations. Used by contexts only.
    pub(crate) lacks_atomics_cache: Mutex<LacksAtomicsCache>,
    /// Whether there was ever one.
    pub(crate) any_lacks_atomics: AtomicBool,
}

/// The number of a context, the same on every core. The context has it, and each core that has
/// objects of the context: when the last of them gives it up, the memory of the context is revoked
/// and the number is free.
pub(crate) struct ContextNumber {
    number: u16,
    /// Dangling once it is released. A core that was dropped leaves channels of contexts in the
    /// state of the stack, which they must not keep.
    shared: Weak<StackShared>,
}

impl ContextNumber {
    /// Returns a number of no stack.
    #[cfg(test)]
    pub(crate) fn detached() -> Arc<Self> {
        Arc::new(ContextNumber { number: 0, shared: Weak::new() })
    }

    pub(crate) fn get(&self) -> u16 {
        self.number
    }

    /// Gives one use of it up. Returns how many regions, windows and fast regions were revoked.
    pub(crate) fn release(self: Arc<Self>) -> usize {
        Arc::into_inner(self).map_or(0, |mut last| last.end())
    }

    fn end(&mut self) -> usize {
        core::mem::take(&mut self.shared).upgrade().map_or(0, |shared| shared.release_context_id(self.number))
    }
}

impl Drop for ContextNumber {
    fn drop(&mut self) {
        self.end();
    }
}

/// What the devices of a stack determine.
pub(crate) struct DeviceFacts {
    pub(crate) ports: Box<[PortState]>,
    pub(crate) steering: Steering,
    pub(crate) hasher: FlowHasher,
    /// Creates the core's half of a queue pair, for the lower layer of the stack.
    pub(crate) new_qp: fn(QpSetup) -> Box<dyn QpHalf>,
}

/// The state that one core shares with all contexts.
pub(crate) struct CoreShared {
    /// Rings of contexts that attached, for the core to take.
    pub(crate) new_contexts: Arrivals<ContextChannel>,
    worker_dropped: AtomicBool,
    /// Notifications of a core that was dropped, with the numbers of their contexts.
    left_behind: Mutex<Vec<(u16, Notification)>>,
    qp_slots: SlotAllocator,
    cq_slots: SlotAllocator,
    srq_slots: SlotAllocator,
    /// Wakes the core, if it may sleep (`core.idle = "sleep"`).
    pub(crate) wake: Option<Arc<WakeSignal>>,
}

impl StackShared {
    /// Fails if the system refuses the descriptors of cores that may sleep.
    pub(crate) fn new(config: Config, mem: MemTable, cores: usize) -> std::io::Result<Arc<Self>> {
        let cores: std::io::Result<_> = (0..cores)
            .map(|_| CoreShared::new(&config).map(|core| Arc::new(CachePadded::new(core))))
            .collect();
        let cores = cores?;
        let contexts = SlotAllocator::new(config.limits.contexts);
        let (stack_id, lacks_atomics_cache) = (next_handle_id(), Mutex::new(LacksAtomicsCache::default()));
        Ok(Arc::new(StackShared {
            config,
            mem,
            stack_id,
            cores,
            contexts,
            pd_numbers: PdNumbers::from(1),
            listening: ListeningAddresses::default(),
            devices: OnceLock::new(),
            lacks_atomics_cache,
            any_lacks_atomics: AtomicBool::new(false),
        }))
    }

    /// Returns a number for one more context, or `None` at the configured limit.
    pub(crate) fn alloc_context_id(self: &Arc<Self>) -> Option<Arc<ContextNumber>> {
        let number = self.contexts.alloc()? as u16;
        Some(Arc::new(ContextNumber { number, shared: Arc::downgrade(self) }))
    }

    fn release_context_id(&self, number: u16) -> usize {
        let revoked = self.mem.revoke_context(number);
        self.listening.release_all(number);
        for core in &self.cores {
            lock(&core.left_behind).retain(|(context, _)| *context != number);
        }
        self.contexts.release(number.into());
        revoked
    }

    /// Returns whether no core with this number will run again.
    pub(crate) fn is_core_dropped(&self, core: u16) -> bool {
        self.cores.get(usize::from(core)).is_none_or(|core| core.is_dropped())
    }

    /// Records what the devices determine, once.
    pub(crate) fn set_devices(&self, devices: DeviceFacts) {
        let _ = self.devices.set(devices);
    }

    /// Returns the ports.
    pub(crate) fn ports(&self) -> &[PortState] {
        self.devices.get().map_or(&[], |devices| &devices.ports)
    }

    /// Creates the core's half of a queue pair. There are no contexts before the devices are known.
    pub(crate) fn new_qp(&self, setup: QpSetup) -> Option<Box<dyn QpHalf>> {
        self.devices.get().map(|devices| (devices.new_qp)(setup))
    }

    /// Returns the core of a flow.
    pub(crate) fn core_of(&self, flow: &Flow) -> Option<u16> {
        let devices = self.devices.get()?;
        Some(devices.steering.core_of(flow, devices.hasher.hash(flow)))
    }

    /// Returns whether peers that lack atomic operations may be recorded.
    pub(crate) fn may_lack_atomics(&self) -> bool {
        self.any_lacks_atomics.load(Ordering::Relaxed)
    }

    pub(crate) fn next_pd(&self) -> PdId {
        self.pd_numbers.alloc()
    }
}

impl CoreShared {
    fn new(config: &Config) -> std::io::Result<Self> {
        let sleeps = config.core.idle == IdlePolicy::Sleep;
        let wake = sleeps.then(WakeSignal::new).transpose()?.map(Arc::new);
        Ok(CoreShared {
            wake,
            new_contexts: Arrivals::default(),
            worker_dropped: AtomicBool::new(false),
            left_behind: Mutex::new(Vec::new()),
            qp_slots: SlotAllocator::new(config.limits.queue_pairs),
            cq_slots: SlotAllocator::new(config.limits.completion_queues),
            srq_slots: SlotAllocator::new(config.limits.shared_receive_queues),
        })
    }

    /// Returns the number of queue pairs with a slot here.
    pub(crate) fn queue_pairs(&self) -> u32 {
        self.qp_slots.used()
    }

    fn slots(&self, table: SlotTable) -> &SlotAllocator {
        match table {
            SlotTable::QueuePairs => &self.qp_slots,
            SlotTable::CompletionQueues => &self.cq_slots,
            SlotTable::SharedReceiveQueues => &self.srq_slots,
        }
    }

    /// Stores notifications of a core that is about to be dropped.
    pub(crate) fn leave(&self, notifications: impl Iterator<Item = (u16, Notification)>) {
        lock(&self.left_behind).extend(notifications);
    }

    /// Takes the oldest notification to a context of a core that was dropped.
    #[cold]
    pub(crate) fn take_left(&self, context: u16) -> Option<Notification> {
        let mut left = lock(&self.left_behind);
        let at = left.iter().position(|(number, _)| *number == context)?;
        Some(left.remove(at).1)
    }

    /// Hands the rings of a context to the core, or drops them if it will not run again.
    pub(crate) fn attach(&self, channel: ContextChannel) {
        self.new_contexts.push(channel);
        fence(Ordering::SeqCst);
        if self.is_dropped() {
            self.new_contexts.take();
        }
    }

    /// Marks that the core will not run again.
    pub(crate) fn mark_dropped(&self) {
        self.worker_dropped.store(true, Ordering::Release);
        // With the one of `attach`: one of both finds the rings that were handed over meanwhile.
        fence(Ordering::SeqCst);
        self.new_contexts.take();
    }

    pub(crate) fn is_dropped(&self) -> bool {
        self.worker_dropped.load(Ordering::Acquire)
    }
}

/// The slots that one context uses of each table, and its limits (RFC 5042 s6.4.1).
pub(crate) struct ContextQuota {
    used: [AtomicU32; 3],
    limits_by_table: [u32; 3],
}

impl ContextQuota {
    pub(crate) fn new(limits: &LimitsConfig, cores: usize) -> Arc<Self> {
        let of_all = |slots: u32| limits.quota_of(slots).saturating_mul(cores as u32);
        let limits_by_table =
            [limits.queue_pairs, limits.completion_queues, limits.shared_receive_queues].map(of_all);
        Arc::new(ContextQuota { used: Default::default(), limits_by_table })
    }

    /// Counts one more, unless that exceeds the quota.
    fn acquire(&self, table: SlotTable) -> bool {
        let (used, limits_by_table) = (&self.used[table as usize], self.limits_by_table[table as usize]);
        let more = |now: u32| (now < limits_by_table).then_some(now + 1);
        used.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).is_ok()
    }

    fn release(&self, table: SlotTable) {
        self.used[table as usize].fetch_sub(1, Ordering::Relaxed);
    }
}

/// A slot in a core's table, freed when the lease is dropped: together with the core's half of the
/// object, on any thread.
pub(crate) struct SlotLease {
    shared: Arc<StackShared>,
    quota: Arc<ContextQuota>,
    core: u16,
    table: SlotTable,
    slot: u32,
}

/// The tables of a core.
#[derive(Clone, Copy, Debug)]
pub(crate) enum SlotTable {
    QueuePairs,
    CompletionQueues,
    SharedReceiveQueues,
}

impl SlotTable {
    fn name(self) -> &'static str {
        ["queue pairs", "completion queues", "shared receive queues"][self as usize]
    }

    /// The limit that a context reached.
    fn quota_name(self) -> &'static str {
        [
            "queue pairs for this context",
            "completion queues for this context",
            "shared receive queues for this context",
        ][self as usize]
    }
}

impl SlotLease {
    /// Takes a slot in a table of `core` for a context, unless all are used or its quota is
    /// reached.
    pub(crate) fn acquire(
        shared: &Arc<StackShared>,
        quota: &Arc<ContextQuota>,
        core: u16,
        table: SlotTable,
    ) -> Result<Self, VerbsError> {
        let slots = shared.cores.get(usize::from(core)).ok_or(VerbsError::WorkerDropped)?.slots(table);
        let slot = slots.alloc().ok_or(VerbsError::LimitReached(table.name()))?;
        if !quota.acquire(table) {
            slots.release(slot);
            return Err(VerbsError::LimitReached(table.quota_name()));
        }
        Ok(SlotLease { shared: shared.clone(), quota: quota.clone(), core, table, slot })
    }

    pub(crate) fn slot(&self) -> u32 {
        self.slot
    }
}

impl Drop for SlotLease {
    fn drop(&mut self) {
        if let Some(core) = self.shared.cores.get(usize::from(self.core)) {
            core.slots(self.table).release(self.slot);
        }
        self.quota.release(self.table);
    }
}

/// The free slots of a table, assigned on control threads.
struct SlotAllocator {
    slots: u32,
    free: Mutex<Vec<u32>>,
}

impl SlotAllocator {
    fn new(slots: u32) -> Self {
        SlotAllocator { slots, free: Mutex::new((0..slots).rev().collect()) }
    }

    fn alloc(&self) -> Option<u32> {
        lock(&self.free).pop()
    }

    fn used(&self) -> u32 {
        self.slots - lock(&self.free).len() as u32
    }

    fn release(&self, slot: u32) {
        lock(&self.free).push(slot);
    }
}

/// A lock that ignores poisoning: every critical section here is one push or pop.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
