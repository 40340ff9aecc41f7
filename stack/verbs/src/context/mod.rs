//! An application thread's side of the stack.
//!
//! A [`Context`] owns the application's half of its queue pairs and completion queues. It posts
//! work into their rings, reaps completions and receives events. It may move between threads and is
//! used by one at a time. No call blocks, allocates on the data path or takes a lock. Creating and
//! destroying objects allocates here, never on a core.
//!
//! Objects are named by small copyable handles. A handle of a destroyed object, or of another
//! context, is an error and never another object.
//!
//! A call that a core carries out goes to it through a ring. If the ring is full, the context keeps
//! the call and sends it later, in order: with each further call, each [`Context::poll_event`] and
//! each [`Context::poll_cq`] that finds nothing. So only calls that may be repeated without limit,
//! such as [`Context::listen`], can fail with [`VerbsError::Busy`].
//!
//! The queues of an object can be split from the context, so that other threads post and poll
//! ([`split`]).

mod connect;
mod cq;
mod qp;
mod query;
mod query_port;
mod split;
mod srq;
mod table;

use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

use ironwarp_mem::{Access, AccessScope, AtomicOp, FastRegion, MemTable, Region, StableBytes, Window};
use ironwarp_types::{CoreId, Flow, PdId};

pub use connect::DrainProgress;
pub(crate) use query::LacksAtomicsCache;
pub use query::{CqInfo, Limits, QpInfo, SrqInfo};
pub use query_port::{InterfaceAddress, PortInfo};
pub use split::{CqPoller, RecvPoster, SendPoster, SrqPoster};

use crate::core_loop::channel::{ControlMessage, CoreChannel, Notification, context_channel};
use crate::error::{PostError, VerbsError};
use crate::event::Event;
use crate::numbers::next_handle_id;
use crate::objects::{CompletionQueue, QueuePair};
use crate::shared::{ContextNumber, ContextQuota, ListenAddress, SlotTable, StackShared};
use crate::wake::{CoreWaker, WakeSignal};
use cq::AppCq;
use qp::{AppQp, SplitDestroy};
use srq::AppSrq;
use table::Table;

/// A protection domain: a queue pair reaches only the regions of its own domain (RFC 5042 s2.2).
///
/// A domain of a context ([`Context::alloc_pd`]) is valid in that context only: no other can
/// register memory in it or create a queue pair there, so none reaches what is registered. Contexts
/// that share memory share a domain of the stack ([`Stack::alloc_pd`](crate::Stack::alloc_pd)). Any
/// other domain is refused with [`VerbsError::UnknownProtectionDomain`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ProtectionDomain {
    pub(crate) id: PdId,
    /// The number of its owner: `Context::pd_owner`, or [`StackShared::stack_id`].
    owner: u32,
}

/// An application thread's side of the stack.
///
/// When it is dropped, the cores detect its abandoned rings, reset its connections, free their
/// halves and revoke what it registered, which no other context reaches any more. The memory is
/// released with its [`Region`].
pub struct Context {
    shared: Arc<StackShared>,
    number: Arc<ContextNumber>,
    /// The owner of its protection domains. Unlike `number` no later context has it.
    pd_owner: u32,
    /// The stack's table of regions, for what belongs to this context.
    mem: MemTable,
    quota: Arc<ContextQuota>,
    cores: Vec<CoreChannel>,
    event_signal: Arc<WakeSignal>,
    qps: Table<AppQp>,
    cqs: Table<AppCq>,
    srqs: Table<AppSrq>,
    /// Queue pairs that were destroyed while other threads had their ends.
    split_destroys: Vec<SplitDestroy>,
    /// Something waits for a later call: a message for room in its core's ring, or one of
    /// `split_destroys`.
    has_deferred: bool,
    /// `Cell` makes the context `!Sync`: one thread at a time.
    _not_sync: core::marker::PhantomData<core::cell::Cell<()>>,
}

impl ProtectionDomain {
    pub(crate) fn new(shared: &StackShared, owner: u32) -> Self {
        ProtectionDomain { id: shared.next_pd(), owner }
    }

    /// Returns the domain as one number, for callers in other languages.
    pub fn to_bits(self) -> u64 {
        u64::from(self.owner) << 32 | u64::from(self.id.0)
    }

    /// Returns the domain of a number from [`ProtectionDomain::to_bits`]. Any other number is
    /// another domain, or none.
    pub fn from_bits(bits: u64) -> Self {
        ProtectionDomain { id: PdId(bits as u32), owner: (bits >> 32) as u32 }
    }
}

impl Context {
    pub(crate) fn new(shared: &Arc<StackShared>) -> Result<Self, VerbsError> {
        let event_signal =
            WakeSignal::new().map_err(|source| VerbsError::System { what: "eventfd", source })?;
        let event_signal = Arc::new(event_signal);
        let number = shared.alloc_context_id().ok_or(VerbsError::LimitReached("contexts"))?;
        let limits = &shared.config.limits;
        let cores = shared
            .cores
            .iter()
            .map(|core| {
                let waker = CoreWaker(core.wake.clone());
                let (ours, theirs) = context_channel(number.clone(), limits, &event_signal, waker);
                core.attach(theirs);
                ours.waker.wake();
                ours
            })
            .collect();
        Ok(Context {
            shared: shared.clone(),
            pd_owner: next_handle_id(),
            mem: shared.mem.for_context(number.get(), limits.quota_of(limits.regions)),
            number,
            quota: ContextQuota::new(limits, shared.cores.len()),
            cores,
            event_signal,
            qps: Table::new(),
            cqs: Table::new(),
            srqs: Table::new(),
            split_destroys: Vec::new(),
            has_deferred: false,
            _not_sync: core::marker::PhantomData,
        })
    }

    /// Creates a protection domain of this context alone, else as
    /// [`Stack::alloc_pd`](crate::Stack::alloc_pd).
    pub fn alloc_pd(&self) -> ProtectionDomain {
        ProtectionDomain::new(&self.shared, self.pd_owner)
    }

    /// Creates a protection domain of the stack, as [`Stack::alloc_pd`](crate::Stack::alloc_pd).
    pub fn alloc_shared_pd(&self) -> ProtectionDomain {
        ProtectionDomain::new(&self.shared, self.shared.stack_id)
    }

    /// Returns the domain's number, if this context may use it.
    fn domain(&self, pd: ProtectionDomain) -> Result<PdId, VerbsError> {
        // RFC 5042 s5.1: a matching number is not enough to be trusted.
        let may_use = pd.owner == self.pd_owner || pd.owner == self.shared.stack_id;
        if may_use { Ok(pd.id) } else { Err(VerbsError::UnknownProtectionDomain) }
    }

    /// Registers memory that the region keeps until it is released. The peer can reach it with the
    /// rights of `access`.
    ///
    /// Memory that the application manages itself, such as a pool of huge pages, is registered as a
    /// [`RawMemory`](crate::RawMemory):
    ///
    /// ```no_run
    /// # fn lend(
    /// #     ctx: &ironwarp::Context, pd: ironwarp::ProtectionDomain, base: std::ptr::NonNull<u8>, len: usize,
    /// # ) -> Result<(), Box<dyn std::error::Error>> {
    /// use ironwarp::{Access, RawMemory};
    /// // SAFETY: the pool outlives the token, and is reached through the region alone until the token is complete.
    /// let pool = unsafe { RawMemory::new(base, len) };
    /// let region = ctx.register(pd, pool, Access::LOCAL_WRITE | Access::REMOTE_WRITE)?;
    /// // ... and after use:
    /// let token = region.deregister();
    /// while !token.poll() { /* poll the worker */ }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// - [`VerbsError::UnknownProtectionDomain`] if `pd` belongs to another context or stack.
    /// - [`VerbsError::Register`] if the table refuses the entry.
    pub fn register<O: StableBytes + Send + 'static>(
        &self,
        pd: ProtectionDomain,
        owner: O,
        access: Access,
    ) -> Result<Region, VerbsError> {
        Ok(self.mem.register(self.domain(pd)?, owner, access)?)
    }

    /// As [`Context::register`], for one queue pair only: no other can use the tag, not even one of
    /// the same protection domain, and the queue pair's peer may invalidate it (RFC 5040 s5.3,
    /// s8.1.1).
    ///
    /// # Errors
    ///
    /// - [`VerbsError::UnknownQueuePair`] if `qp` is not a queue pair of this context.
    /// - [`VerbsError::Register`] if the table refuses the entry.
    pub fn register_for_qp<O: StableBytes + Send + 'static>(
        &self,
        qp: QueuePair,
        owner: O,
        access: Access,
    ) -> Result<Region, VerbsError> {
        let scope = AccessScope::new(self.qp(qp)?.pd.id, qp.num());
        Ok(self.mem.register_in_scope(scope, owner, access)?)
    }

    /// As [`Context::register`], with all words of the region owned by `core`: atomic operations on
    /// them, of peers and of [`Context::atomic`], execute there, instead of on the core that each
    /// cache line's hash selects. This avoids messages between cores if all connections that use a
    /// word are on one core.
    ///
    /// Bytes that are registered several times must be pinned to the same core in all
    /// registrations; otherwise the later one fails with
    /// [`RegisterError::PinConflict`](crate::RegisterError::PinConflict).
    ///
    /// # Errors
    ///
    /// - [`VerbsError::UnknownProtectionDomain`] if `pd` belongs to another context or stack.
    /// - [`VerbsError::Register`] if the table refuses the entry.
    pub fn register_on_core<O: StableBytes + Send + 'static>(
        &self,
        pd: ProtectionDomain,
        owner: O,
        access: Access,
        core: u16,
    ) -> Result<Region, VerbsError> {
        Ok(self.mem.register_on_core(self.domain(pd)?.into(), owner, access, CoreId(core))?)
    }

    /// Returns the core, from 0, that executes atomic operations on the word at `offset` of a local
    /// region. Fails where [`Context::atomic`] fails. Not meaningful with
    /// `rdmap.atomic_execution = "locked"` and for lines that the owner shares
    /// (`rdmap.atomic_share_after`): the core that receives a request executes it.
    ///
    /// # Errors
    ///
    /// [`VerbsError::Word`] if no atomic operation can run at `offset`.
    pub fn owner_core(&self, region: &Region, offset: usize) -> Result<u16, VerbsError> {
        Ok(self.mem.local_word(region, offset)?.0.0)
    }

    /// Creates a memory window, for [`SendWr::bind`](crate::SendWr::bind). It occupies a slot of
    /// the table of regions.
    ///
    /// # Errors
    ///
    /// - [`VerbsError::UnknownProtectionDomain`] if `pd` belongs to another context or stack.
    /// - [`VerbsError::Register`] if the table refuses the entry.
    pub fn create_window(&self, pd: ProtectionDomain) -> Result<Window, VerbsError> {
        Ok(self.mem.window(self.domain(pd)?)?)
    }

    /// Creates a region without memory, for
    /// [`SendWr::fast_register`](crate::SendWr::fast_register). It occupies a slot of the table of
    /// regions.
    ///
    /// # Errors
    ///
    /// - [`VerbsError::UnknownProtectionDomain`] if `pd` belongs to another context or stack.
    /// - [`VerbsError::Register`] if the table refuses the entry.
    pub fn create_fast_region(&self, pd: ProtectionDomain) -> Result<FastRegion, VerbsError> {
        Ok(self.mem.fast_region(self.domain(pd)?)?)
    }

    /// Executes an atomic operation on the word at `offset` of a local region, atomically with
    /// those of all peers. Plain accesses are not atomic with it. The region needs
    /// [`Access::LOCAL_WRITE`], and the word must be at a multiple of 8 bytes.
    ///
    /// The owner core of the word executes it, not the calling thread. It completes in `cq`,
    /// without a queue pair's number; [`Completion::original`](crate::Completion::original) is the
    /// word's value before. Operations on words of one cache line execute in the order of the
    /// calls; others in any order. The region must live until the completion; otherwise the status
    /// is [`LocalProtection`](crate::CompletionStatus::LocalProtection).
    ///
    /// ```no_run
    /// # fn take_number(
    /// #     ctx: &mut ironwarp::Context, cq: ironwarp::CompletionQueue, counters: &ironwarp::Region,
    /// # ) -> Result<(), Box<dyn std::error::Error>> {
    /// use ironwarp::AtomicOp;
    /// ctx.atomic(cq, 1, (counters, 64), &AtomicOp::add(1))?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// - [`VerbsError::Word`] if no atomic operation can run at `offset`.
    /// - [`VerbsError::UnknownCompletionQueue`] if `cq` is not a completion queue of this context.
    /// - [`VerbsError::QueueOnOtherCore`] if `cq` is bound to a core that does not own the word.
    /// - [`VerbsError::CqFull`] if `cq` has no free slot.
    /// - [`VerbsError::Busy`] if a core's control queue is full, [`VerbsError::WorkerDropped`] if a
    ///   worker was dropped.
    pub fn atomic(
        &mut self,
        cq: CompletionQueue,
        wr_id: u64,
        (region, offset): (&Region, usize),
        operation: &AtomicOp,
    ) -> Result<(), VerbsError> {
        let (owner, target) = self.mem.local_word(region, offset)?;
        let core = usize::from(owner.0);
        self.check_control_room(core)?;
        let slot = self.cq(cq)?.slot_on(owner.0)?;
        match self.cq_mut(cq)?.reserve_cqe() {
            Err(PostError::CqFull) if self.reclaim(cq) => self.cq_mut(cq)?.reserve_cqe()?,
            reserved_cqes => reserved_cqes?,
        }
        self.send_control(core, ControlMessage::Atomic { cq: slot, wr_id, target, operation: *operation })
    }

    /// Requests that [`Context::event_fd`] becomes readable at the next event.
    ///
    /// Call [`Context::poll_event`] until it returns `None` after this call: earlier events do not
    /// wake. The descriptor becomes readable at once while calls wait for room in a core's control
    /// queue.
    pub fn arm_events(&mut self) {
        self.event_signal.arm();
        if self.has_waiting() {
            self.event_signal.fire();
        }
    }

    /// Returns a descriptor that becomes readable once for each [`Context::arm_events`], when an
    /// event arrives. Read its eight bytes to reset it. Somebody must poll the workers meanwhile.
    pub fn event_fd(&self) -> BorrowedFd<'_> {
        self.event_signal.as_fd()
    }

    /// Returns the oldest notification of a core.
    #[inline(always)]
    fn next_notification(&mut self, core: usize) -> Option<Notification> {
        let link = self.cores.get_mut(core)?;
        match link.notifications.pop() {
            None if link.notifications.is_abandoned() => self.next_notification_left(core),
            notification => notification,
        }
    }

    /// The same for a core that was dropped. Its last notifications may not have fitted the ring.
    #[cold]
    #[inline(never)]
    fn next_notification_left(&mut self, core: usize) -> Option<Notification> {
        // Read again: the core may have written between the last check and its end.
        let in_ring = self.cores.get_mut(core)?.notifications.pop();
        in_ring
            .or_else(|| self.shared.cores.get(core)?.take_left(self.number.get()))
            .or_else(|| self.end_waiting(core))
    }

    /// Records what later calls return: addresses of connections, peers without atomic operations,
    /// free ports. Frees the parameters of a set-up that has ended. Returns whether the application
    /// gets the event.
    #[cold]
    fn may_report(&mut self, event: &Event) -> bool {
        match *event {
            Event::PeerLacksAtomics { peer, .. } => self.cache_lacks_atomics(peer),
            Event::Established { qp, local, remote, .. } => {
                self.set_flow(qp, Flow { local, remote });
                self.free_cm_params(qp);
            }
            Event::Rejected { qp, .. } | Event::ConnectFailed { qp, .. } => self.free_cm_params(qp),
            Event::ListenFailed { local, transport } => {
                let at = ListenAddress { transport, local };
                self.shared.listening.release(self.number.get(), at);
            }
            _ => {}
        }
        !self.is_of_split_destroy(event)
    }

    fn free_cm_params(&self, qp: QueuePair) {
        if let Ok((core, slot)) = self.assigned(qp) {
            drop(self.cores.get(core).and_then(|link| link.handover.cm_params.take(slot)));
        }
    }

    /// Frees the core's half of an object, which is in its place, and ends a queue pair.
    #[cold]
    fn on_returned(&mut self, core: usize, table: SlotTable, slot: u32) {
        let Some(link) = self.cores.get(core) else { return };
        match table {
            SlotTable::CompletionQueues => drop(link.handover.cqs.take(slot)),
            SlotTable::SharedReceiveQueues => drop(link.handover.srqs.take(slot)),
            SlotTable::QueuePairs => {
                drop(link.handover.cm_params.take(slot));
                if let Some(half) = link.handover.qps.take(slot) {
                    self.remove_qp(half.handle());
                }
            }
        }
    }

    /// Returns the oldest event.
    ///
    /// Without an event, it releases the memory of some regions that were dropped and that no core
    /// uses any more: the destructors of their owners run on threads of the application that call a
    /// context, and not on a core.
    #[inline]
    pub fn poll_event(&mut self) -> Option<Event> {
        let is_quiet = |link: &mut CoreChannel| {
            !link.notifications.is_abandoned() && link.notifications.available() == 0
        };
        if !self.has_deferred && self.cores.iter_mut().all(is_quiet) {
            self.mem.reclaim();
            return None;
        }
        self.poll_notifications()
    }

    #[inline(never)]
    fn poll_notifications(&mut self) -> Option<Event> {
        if self.has_deferred {
            self.continue_deferred();
        }
        for core in 0..self.cores.len() {
            while let Some(notification) = self.next_notification(core) {
                let event = self.cores.get_mut(core).and_then(|link| link.arrived.event(notification));
                match notification {
                    Notification::PeerHasAtomics(peer) => self.uncache_lacks_atomics(peer),
                    Notification::Returned { table, slot } => self.on_returned(core, table, slot),
                    Notification::SrqLimitReached { srq, arming } if !self.consume_arming(srq, arming) => {}
                    _ => {
                        if let Some(event) = event.filter(|event| self.may_report(event)) {
                            return Some(event);
                        }
                    }
                }
            }
        }
        self.mem.reclaim();
        None
    }
}

#[cfg(test)]
mod tests;
