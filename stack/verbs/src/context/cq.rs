//! Completion queues, the application's half.
//!
//! A queue has one ring for each core that writes to it; polling merges them. Order is kept for
//! each queue pair. Every posted work request reserves an entry before it is accepted, so a
//! completion always finds room.

use core::ops::Range;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use ironwarp_iwarp::Completion;
use ironwarp_rings::block::Shared;
use ironwarp_rings::notify::NotifyState;
use ironwarp_rings::spsc;
use ironwarp_types::QpNum;
use rustix::event::EventfdFlags;

use super::split::{CqPoller, Home, Loan};
use super::{Context, CqInfo};
use crate::core_loop::channel::ControlMessage;
use crate::core_loop::{CqCore, CqParts};
use crate::error::{PostError, VerbsError};
use crate::numbers::next_handle_id;
use crate::objects::{CompletionQueue, CqAttr, check_range};
use crate::shared::{CqReservations, SlotLease, SlotTable};

/// The largest depth of a completion queue: a ring of this depth takes 64 MiB.
pub(super) const CQ_DEPTH_MAX: u32 = 1 << 20;

/// The application's half of a completion queue.
pub(super) struct AppCq {
    serial: u32,
    /// The core that it is bound to.
    pub(super) core: Option<u16>,
    /// The end that polls, unless it is split.
    end: Option<CqEnd>,
    split: Option<Loan<CqEnd>>,
    /// One slot for each core that writes to it.
    slots: Box<[u32]>,
    depth: u32,
    /// The depth of a resize, until every core writes to its new ring.
    resize_depth: Option<u32>,
    /// Entries reserved for work requests that are posted and not reaped.
    reserved_cqes: u32,
    /// The shared account, once cores reserve entries too; it replaces `reserved_cqes`.
    reservations: Arc<CqReservations>,
    core_reserves: bool,
    /// Other threads post requests that complete here.
    has_threads: bool,
    pub(super) users: u32,
    armed: Shared<NotifyState>,
    eventfd: Arc<OwnedFd>,
}

/// The end of a completion queue that polls.
pub(super) struct CqEnd {
    /// One ring for each core that writes to the queue.
    rings: Box<[CompletionRing]>,
    /// The ring that the next poll starts with.
    next: usize,
}

/// One core's completions: the ring, and its successor in a resize.
struct CompletionRing {
    current: spsc::Consumer<Completion>,
    next: Option<spsc::Consumer<Completion>>,
}

impl CompletionRing {
    /// Moves completions into `into` and returns their number.
    #[inline]
    fn reap(&mut self, into: &mut [Completion]) -> usize {
        if self.next.is_none() { self.current.pop_into(into) } else { self.reap_in_resize(into) }
    }

    #[cold]
    #[inline(never)]
    fn reap_in_resize(&mut self, into: &mut [Completion]) -> usize {
        for (reaped, place) in into.iter_mut().enumerate() {
            let Some(completion) = self.pop_in_resize() else { return reaped };
            *place = completion;
        }
        into.len()
    }

    fn pop_in_resize(&mut self) -> Option<Completion> {
        // Read before the last check: completions that the core wrote before the switch are found
        // then.
        let left = self.next.is_some() && self.has_switched();
        if let Some(completion) = self.current.pop() {
            return Some(completion);
        }
        if !left {
            return None;
        }
        self.current = self.next.take()?;
        self.current.pop()
    }

    fn has_switched(&self) -> bool {
        self.next.is_none() || self.current.is_abandoned()
    }
}

impl Context {
    /// Creates a completion queue for `depth` work requests that are posted and not reaped.
    ///
    /// # Errors
    ///
    /// - [`VerbsError::OutOfRange`] if a setting is outside its range.
    /// - [`VerbsError::LimitReached`] if the stack or this context has no free slot.
    /// - [`VerbsError::System`] if the system refuses the event descriptor.
    /// - [`VerbsError::WorkerDropped`] if a worker was dropped.
    pub fn create_cq(&mut self, depth: u32) -> Result<CompletionQueue, VerbsError> {
        self.create_cq_with(&CqAttr { depth, core: None })
    }

    /// As [`Context::create_cq`], with attributes: a queue that is bound to a core has one ring
    /// instead of one for each core.
    ///
    /// # Errors
    ///
    /// As [`Context::create_cq`].
    pub fn create_cq_with(&mut self, attr: &CqAttr) -> Result<CompletionQueue, VerbsError> {
        let CqAttr { depth, core } = *attr;
        check_depth(depth)?;
        check_core(core, self.cores.len())?;
        let eventfd = Arc::new(eventfd()?);
        let armed = Shared::new(NotifyState::default());
        let reservations = Arc::new(CqReservations::new(depth));
        cores_of(core, self.cores.len()).try_for_each(|core| self.check_worker(core))?;
        let serial = next_handle_id();
        let cq = AppCq {
            serial,
            core,
            end: None,
            split: None,
            slots: Box::default(),
            depth,
            resize_depth: None,
            reserved_cqes: 0,
            reservations,
            core_reserves: false,
            has_threads: false,
            users: 0,
            armed,
            eventfd,
        };
        let handle = CompletionQueue { index: self.cqs.insert(cq), serial };
        let made = self.create_halves(handle);
        if made.is_err() {
            self.cqs.remove(handle.index);
        }
        made.map(|()| handle)
    }

    fn create_halves(&mut self, handle: CompletionQueue) -> Result<(), VerbsError> {
        let (mut rings, mut slots) = (Vec::new(), Vec::new());
        for core in cores_of(self.cq(handle)?.core, self.cores.len()) {
            let lease =
                SlotLease::acquire(&self.shared, &self.quota, core as u16, SlotTable::CompletionQueues)?;
            slots.push(lease.slot());
            let app = self.cq(handle)?;
            let (ring, consumer) = spsc::channel(app.depth as usize);
            let (reservations, armed, eventfd) =
                (app.reservations.clone(), app.armed.clone(), app.eventfd.clone());
            let (slot, parts) = (lease.slot(), CqParts { handle, ring, reservations, armed, eventfd });
            self.handover(core)?.cqs.put(slot, Box::new(CqCore::new(lease, parts)));
            self.send_control(core, ControlMessage::CreateCq { slot })?;
            rings.push(CompletionRing { current: consumer, next: None });
        }
        let app = self.cq_mut(handle)?;
        app.end = Some(CqEnd { rings: rings.into(), next: 0 });
        app.slots = slots.into();
        Ok(())
    }

    /// Changes the depth of a completion queue, with work outstanding. No completion is lost, and
    /// order is kept.
    ///
    /// A smaller depth takes effect at once, and is refused below the number of outstanding
    /// requests. A larger one takes effect when the cores have processed the change; until then
    /// posting may fail with [`PostError::CqFull`].
    ///
    /// # Errors
    ///
    /// - [`VerbsError::OutOfRange`] if a setting is outside its range.
    /// - [`VerbsError::UnknownCompletionQueue`] if `cq` is not a completion queue of this context.
    /// - [`VerbsError::Split`] if the queue is split from the context.
    /// - [`VerbsError::CqDepthTooSmall`] if more requests are outstanding than `depth`.
    /// - [`VerbsError::Busy`] during another resize.
    /// - [`VerbsError::WorkerDropped`] if a worker was dropped.
    pub fn resize_cq(&mut self, cq: CompletionQueue, depth: u32) -> Result<(), VerbsError> {
        check_depth(depth)?;
        let cores = cores_of(self.cq(cq)?.core, self.cores.len());
        cores.clone().try_for_each(|core| self.check_worker(core))?;
        let app = self.cq_mut(cq)?;
        if app.own_end()?.rings.iter().any(|ring| ring.next.is_some()) {
            return Err(VerbsError::Busy);
        }
        app.apply_shrink(depth)?;
        for (at, core) in cores.enumerate() {
            let (ring, consumer) = spsc::channel(depth as usize);
            let app = self.cq_mut(cq)?;
            let slot = app.slots[at];
            app.own_end()?.rings[at].next = Some(consumer);
            app.resize_depth = Some(depth);
            self.handover(core)?.cq_rings.put(slot, ring);
            self.send_control(core, ControlMessage::ResizeCq { slot })?;
        }
        Ok(())
    }

    /// Moves completions into `into`, oldest first for each queue pair, and returns their number.
    /// If there is none, sends calls that wait for room in a core's control ring: they may lead to
    /// completions.
    ///
    /// # Errors
    ///
    /// - [`VerbsError::UnknownCompletionQueue`] if `cq` is not a completion queue of this context.
    /// - [`VerbsError::Split`] if the queue is split from the context.
    pub fn poll_cq(&mut self, cq: CompletionQueue, into: &mut [Completion]) -> Result<usize, VerbsError> {
        let app = self.cq_mut(cq)?;
        if app.end.is_none() {
            app.own_end()?;
        }
        let polled = app.poll(into);
        if polled == 0 && self.has_deferred {
            self.continue_deferred();
        }
        Ok(polled)
    }

    /// Splits a completion queue from the context: the returned end polls it on any one thread. Its
    /// queue pairs and attributes stay with the context. Once the end is dropped, the context polls
    /// again.
    ///
    /// From then on each entry costs two read-modify-writes, to reserve and to release it.
    ///
    /// # Errors
    ///
    /// - [`VerbsError::UnknownCompletionQueue`] if `cq` is not a completion queue of this context.
    /// - [`VerbsError::Split`] if it is split already.
    /// - [`VerbsError::Busy`] during a resize.
    pub fn split_cq(&mut self, cq: CompletionQueue) -> Result<CqPoller, VerbsError> {
        let app = self.cq_mut(cq)?;
        app.own_end()?;
        app.apply_resize();
        if app.resize_depth.is_some() {
            return Err(VerbsError::Busy);
        }
        app.enable_core_reservations();
        let end = app.end.take().ok_or(VerbsError::Split)?;
        let home = Arc::new(Home::default());
        app.split = Some(Loan::new(&home));
        let (reservations, armed, eventfd) =
            (app.reservations.clone(), app.armed.clone(), app.eventfd.clone());
        Ok(CqPoller::new(cq, end, home, reservations, (armed, eventfd)))
    }

    /// Requests one event at the queue's descriptor for its next completion, or its next solicited
    /// or failed one.
    ///
    /// Poll once more after this call: earlier completions raise no event. The descriptor becomes
    /// readable at once while calls wait for room in a core's control ring.
    ///
    /// # Errors
    ///
    /// [`VerbsError::UnknownCompletionQueue`] if `cq` is not a completion queue of this context.
    pub fn arm_cq(&mut self, cq: CompletionQueue, solicited_only: bool) -> Result<(), VerbsError> {
        let has_waiting = self.has_waiting();
        let app = self.cq_mut(cq)?;
        app.armed.arm(solicited_only);
        if has_waiting && app.armed.fire(true) {
            // A full counter means that the descriptor is readable already.
            let _ = rustix::io::write(&app.eventfd, &1u64.to_ne_bytes());
        }
        Ok(())
    }

    /// Returns a descriptor that becomes readable once for each arming. Read its eight bytes to
    /// reset it.
    ///
    /// # Errors
    ///
    /// [`VerbsError::UnknownCompletionQueue`] if `cq` is not a completion queue of this context.
    pub fn cq_fd(&self, cq: CompletionQueue) -> Result<BorrowedFd<'_>, VerbsError> {
        Ok(self.cq(cq)?.eventfd.as_fd())
    }

    /// Destroys a completion queue that no queue pair uses.
    ///
    /// # Errors
    ///
    /// - [`VerbsError::UnknownCompletionQueue`] if `cq` is not a completion queue of this context.
    /// - [`VerbsError::CompletionQueueInUse`] if a queue pair uses it.
    /// - [`VerbsError::WorkerDropped`] if a worker was dropped.
    pub fn destroy_cq(&mut self, cq: CompletionQueue) -> Result<(), VerbsError> {
        if self.cq(cq)?.users > 0 {
            return Err(VerbsError::CompletionQueueInUse);
        }
        let cores = cores_of(self.cq(cq)?.core, self.cores.len());
        cores.clone().try_for_each(|core| self.check_worker(core))?;
        for (at, core) in cores.enumerate() {
            let slot = self.cq(cq)?.slots[at];
            self.send_control(core, ControlMessage::DestroyCq { slot })?;
        }
        self.cqs.remove(cq.index);
        Ok(())
    }

    pub(super) fn cq(&self, cq: CompletionQueue) -> Result<&AppCq, VerbsError> {
        let found = self.cqs.get(cq.index);
        found.filter(|found| found.serial == cq.serial).ok_or(VerbsError::UnknownCompletionQueue)
    }

    pub(super) fn cq_mut(&mut self, cq: CompletionQueue) -> Result<&mut AppCq, VerbsError> {
        let found = self.cqs.get_mut(cq.index);
        found.filter(|found| found.serial == cq.serial).ok_or(VerbsError::UnknownCompletionQueue)
    }
}

impl AppCq {
    /// Returns the slot on a core, unless the queue is bound to another one.
    pub(super) fn slot_on(&self, core: u16) -> Result<u32, VerbsError> {
        slot_in(&self.slots, self.core, core)
    }

    /// Reserves an entry.
    #[inline]
    pub(super) fn reserve_cqe(&mut self) -> Result<(), PostError> {
        if self.core_reserves {
            return if self.reservations.try_reserve() { Ok(()) } else { Err(PostError::CqFull) };
        }
        if self.reserved_cqes >= self.depth {
            return Err(PostError::CqFull);
        }
        self.reserved_cqes += 1;
        Ok(())
    }

    /// Releases reserved entries.
    #[inline]
    pub(super) fn release(&mut self, reservations: u32) {
        if self.core_reserves {
            self.reservations.release(reservations);
        } else {
            self.reserved_cqes = self.reserved_cqes.saturating_sub(reservations);
        }
    }

    /// Lets cores reserve entries from now on.
    pub(super) fn enable_core_reservations(&mut self) {
        if !core::mem::replace(&mut self.core_reserves, true) {
            self.reservations.init(self.reserved_cqes, self.depth);
        }
    }

    /// Lets other threads post requests that complete here.
    pub(super) fn share_with_threads(&mut self) {
        self.enable_core_reservations();
        self.has_threads = true;
    }

    pub(super) fn has_threads(&self) -> bool {
        self.has_threads
    }

    /// Returns the shared account.
    pub(super) fn reservations(&self) -> Arc<CqReservations> {
        self.reservations.clone()
    }

    /// Takes a queue pair's send queue out of the account.
    pub(super) fn remove_send_queue(&self, qp: QpNum) {
        if self.has_threads {
            self.reservations.remove_send_queue(qp);
        }
    }

    /// Returns the end that polls, also after the thread that had it dropped it.
    #[cold]
    fn own_end(&mut self) -> Result<&mut CqEnd, VerbsError> {
        if let Some(end) = self.split.as_ref().and_then(Loan::take_back) {
            self.end = Some(end);
            self.split = None;
        }
        self.end.as_mut().ok_or(VerbsError::Split)
    }

    /// Returns whether cores or other threads reserve entries too.
    #[inline]
    pub(super) fn core_reserves(&self) -> bool {
        self.core_reserves
    }

    /// Returns the state of the queue.
    pub(super) fn info(&self) -> CqInfo {
        CqInfo { core: self.core, depth: self.depth, reserved_cqes: self.reserved_cqes(), users: self.users }
    }

    fn reserved_cqes(&self) -> u32 {
        if self.core_reserves { self.reservations.reserved_cqes() } else { self.reserved_cqes }
    }

    /// Applies a smaller depth at once, so that the new rings have room for all reserved entries.
    fn apply_shrink(&mut self, depth: u32) -> Result<(), VerbsError> {
        let before = self.depth;
        self.set_depth(before.min(depth));
        let reserved_cqes = self.reserved_cqes();
        if reserved_cqes > depth {
            self.set_depth(before);
            return Err(VerbsError::CqDepthTooSmall { reserved_cqes, requested: depth });
        }
        Ok(())
    }

    fn set_depth(&mut self, depth: u32) {
        self.depth = depth;
        self.reservations.set_depth(depth);
    }

    /// Applies the depth of a resize once every core writes to its new ring. Returns whether the
    /// depth grew.
    pub(super) fn apply_resize(&mut self) -> bool {
        let has_switched = |end: &CqEnd| end.rings.iter().all(CompletionRing::has_switched);
        if self.resize_depth.is_none() || !self.end.as_ref().is_some_and(has_switched) {
            return false;
        }
        let depth = self.resize_depth.take().unwrap_or(self.depth);
        let grew = depth > self.depth;
        self.set_depth(depth);
        grew
    }

    /// Tuning: not inlined, since the ring's state would take the registers of `poll_cq`.
    #[inline(never)]
    fn poll(&mut self, into: &mut [Completion]) -> usize {
        let reaped = self.end.as_mut().map_or(0, |end| end.reap(into));
        if reaped > 0 {
            self.release(reaped as u32);
        }
        if self.resize_depth.is_some() {
            self.apply_resize();
        }
        reaped
    }
}

impl CqEnd {
    /// Moves completions into `into` and returns their number.
    #[inline(always)]
    pub(super) fn reap(&mut self, into: &mut [Completion]) -> usize {
        match &mut self.rings[..] {
            [ring] => ring.reap(into),
            _ => self.reap_round_robin(into),
        }
    }

    /// Several rings: each poll starts with the next.
    #[inline(never)]
    fn reap_round_robin(&mut self, into: &mut [Completion]) -> usize {
        let (first, mut reaped) = (self.next, 0);
        let rings = (first..self.rings.len()).chain(0..first);
        for ring in rings {
            let Some(rest) = into.get_mut(reaped..) else { break };
            reaped += self.rings[ring].reap(rest);
        }
        self.next = if first + 1 < self.rings.len() { first + 1 } else { 0 };
        reaped
    }

    /// Returns whether no core writes to the queue any more.
    pub(super) fn is_abandoned(&self) -> bool {
        self.rings.iter().all(|ring| ring.current.is_abandoned())
    }
}

/// Returns the cores that have a part of a queue: all, or the one that it is bound to.
pub(super) fn cores_of(bound: Option<u16>, all: usize) -> Range<usize> {
    bound.map_or(0..all, |core| usize::from(core)..usize::from(core) + 1)
}

/// Returns the slot of a queue on `core` among the slots of [`cores_of`].
pub(super) fn slot_in(slots: &[u32], bound: Option<u16>, core: u16) -> Result<u32, VerbsError> {
    let at = match bound {
        None => usize::from(core),
        Some(bound) if bound == core => 0,
        Some(bound) => return Err(VerbsError::QueueOnOtherCore { bound, core }),
    };
    slots.get(at).copied().ok_or(VerbsError::WorkerDropped)
}

/// Checks the core of a new queue.
pub(super) fn check_core(core: Option<u16>, cores: usize) -> Result<(), VerbsError> {
    let last = cores.saturating_sub(1) as u64;
    check_range("core", core.unwrap_or_default().into(), 0, last, "below core.count")
}

fn check_depth(depth: u32) -> Result<(), VerbsError> {
    if (1..=CQ_DEPTH_MAX).contains(&depth) {
        return Ok(());
    }
    let (what, allowed) = ("completion queue depth", "1 to 1048576");
    Err(VerbsError::OutOfRange { what, value: depth.into(), allowed })
}

pub(super) fn eventfd() -> Result<OwnedFd, VerbsError> {
    rustix::event::eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)
        .map_err(|source| VerbsError::System { what: "eventfd", source: source.into() })
}
