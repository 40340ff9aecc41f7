//! Shared receive queues, the application's half: receives for the messages of many queue pairs.
//!
//! A queue has one ring for each core; a post fills the one with the most room. A receive reserves
//! no completion entry when it is posted, since its completion queue is not known yet. The entry is
//! reserved when a message consumes the receive.

use std::sync::Arc;

use ironwarp_iwarp::RecvWqe;
use ironwarp_rings::slots::{self, SlotObserver, SlotProducer};
use ironwarp_types::PdId;
use ironwarp_types::limits::SGE_MAX;

use super::cq::{check_core, cores_of, slot_in};
use super::qp::write_recv;
use super::split::{Home, Loan, SrqPoster};
use super::{Context, ProtectionDomain, SrqInfo};
use crate::core_loop::SrqCore;
use crate::core_loop::channel::ControlMessage;
use crate::error::{PostError, VerbsError};
use crate::numbers::next_handle_id;
use crate::objects::{SharedReceiveQueue, SrqAttr, check_range};
use crate::shared::{SlotLease, SlotTable};
use crate::wr::RecvWr;

/// The largest depth of a shared receive queue, on each core.
pub(super) const SRQ_DEPTH_MAX: u32 = 1 << 16;

/// The application's half of a shared receive queue.
pub(super) struct AppSrq {
    serial: u32,
    pub(super) pd: PdId,
    /// The core that it is bound to.
    pub(super) core: Option<u16>,
    /// The end that posts, unless it is split.
    end: Option<SrqEnd>,
    split: Option<SplitSrq>,
    /// One slot for each core that takes receives from it.
    slots: Box<[u32]>,
    max_sge: usize,
    pub(super) users: u32,
    /// Whether the application waits for the event of its limit.
    /// The number of the arming that has had no event yet; 0: none.
    armed: u32,
    last_arming: u32,
}

/// The end of a shared receive queue that posts.
pub(super) struct SrqEnd {
    /// One ring for each core that takes receives from it.
    rings: Box<[SlotProducer<RecvWqe>]>,
    max_sge: usize,
}

/// What the context keeps of a queue whose end is split.
struct SplitSrq {
    loan: Loan<SrqEnd>,
    rings: Box<[SlotObserver<RecvWqe>]>,
}

impl Context {
    /// Creates a shared receive queue in `pd` for `depth` receives on each core, 1 to 65536, of at
    /// most `max_sge` elements each. The elements are checked against `pd`, whichever queue pair
    /// consumes them.
    ///
    /// # Errors
    ///
    /// - [`VerbsError::UnknownProtectionDomain`] if `pd` belongs to another context or stack.
    /// - [`VerbsError::OutOfRange`] if a setting is outside its range.
    /// - [`VerbsError::LimitReached`] if the stack or this context has no free slot.
    /// - [`VerbsError::WorkerDropped`] if a worker was dropped.
    pub fn create_srq(
        &mut self,
        pd: ProtectionDomain,
        depth: u32,
        max_sge: usize,
    ) -> Result<SharedReceiveQueue, VerbsError> {
        self.create_srq_with(pd, &SrqAttr { depth, max_sge, core: None })
    }

    /// As [`Context::create_srq`], with attributes: a queue that is bound to a core has one ring,
    /// so that no receive lies on a core that does not need it.
    ///
    /// # Errors
    ///
    /// As [`Context::create_srq`].
    pub fn create_srq_with(
        &mut self,
        pd: ProtectionDomain,
        attr: &SrqAttr,
    ) -> Result<SharedReceiveQueue, VerbsError> {
        let SrqAttr { depth, max_sge, core } = *attr;
        let pd = self.domain(pd)?;
        check_core(core, self.cores.len())?;
        check_range("receive depth", depth.into(), 1, SRQ_DEPTH_MAX.into(), "1 to 65536")?;
        check_range("elements", max_sge as u64, 1, SGE_MAX as u64, "1 to 16")?;
        cores_of(core, self.cores.len()).try_for_each(|core| self.check_worker(core))?;
        let serial = next_handle_id();
        let app = AppSrq {
            serial,
            pd,
            core,
            end: None,
            split: None,
            slots: Box::default(),
            max_sge,
            users: 0,
            armed: 0,
            last_arming: 0,
        };
        let handle = SharedReceiveQueue { index: self.srqs.insert(app), serial };
        let made = self.create_shards(handle, depth);
        if made.is_err() {
            self.srqs.remove(handle.index);
        }
        made.map(|()| handle)
    }

    fn create_shards(&mut self, handle: SharedReceiveQueue, depth: u32) -> Result<(), VerbsError> {
        let (mut rings, mut places) = (Vec::new(), Vec::new());
        for core in cores_of(self.srq(handle)?.core, self.cores.len()) {
            let lease =
                SlotLease::acquire(&self.shared, &self.quota, core as u16, SlotTable::SharedReceiveQueues)?;
            let slot = lease.slot();
            places.push(slot);
            let (producer, consumer) = slots::ring(depth as usize);
            self.handover(core)?.srqs.put(slot, Box::new(SrqCore::new(lease, handle, consumer)));
            self.send_control(core, ControlMessage::CreateSrq { slot })?;
            rings.push(producer);
        }
        let app = self.srq_mut(handle)?;
        app.end = Some(SrqEnd { rings: rings.into(), max_sge: app.max_sge });
        app.slots = places.into();
        Ok(())
    }

    /// Posts one receive for the first queue pair that needs it.
    ///
    /// # Errors
    ///
    /// - [`PostError::UnknownSharedReceiveQueue`] if `srq` is not a shared receive queue of this
    ///   context.
    /// - [`PostError::Split`] if the queue is split from the context.
    /// - [`PostError::TooManySges`] if the request has more elements than allowed.
    /// - [`PostError::QueueFull`] if the queue has no free slot.
    pub fn post_srq_recv(&mut self, srq: SharedReceiveQueue, wr: &RecvWr<'_>) -> Result<(), PostError> {
        let app = self.srq_mut(srq).map_err(|_| PostError::UnknownSharedReceiveQueue)?;
        match &mut app.end {
            Some(end) => end.post(wr),
            None => app.regain().ok_or(PostError::Split)?.post(wr),
        }
    }

    /// Splits a shared receive queue from the context: the returned end posts to it from any one
    /// thread. Limits and queries stay with the context. Once the end is dropped, the context posts
    /// again.
    ///
    /// # Errors
    ///
    /// - [`VerbsError::UnknownSharedReceiveQueue`] if `srq` is not a shared receive queue of this
    ///   context.
    /// - [`VerbsError::Split`] if it is split already.
    pub fn split_srq(&mut self, srq: SharedReceiveQueue) -> Result<SrqPoster, VerbsError> {
        let app = self.srq_mut(srq)?;
        app.regain();
        let end = app.end.take().ok_or(VerbsError::Split)?;
        let home = Arc::new(Home::default());
        let rings = end.rings.iter().map(SlotProducer::observer).collect();
        app.split = Some(SplitSrq { loan: Loan::new(&home), rings });
        Ok(SrqPoster::new(srq, end, home))
    }

    /// Requests one [`Event::SrqLimitReached`](crate::Event::SrqLimitReached) when fewer than
    /// `limit` receives are left on a core. 0 cancels. A call replaces the one before: an event of
    /// that one which [`Context::poll_event`] has not returned is not returned any more.
    ///
    /// # Errors
    ///
    /// - [`VerbsError::UnknownSharedReceiveQueue`] if `srq` is not a shared receive queue of this
    ///   context.
    /// - [`VerbsError::WorkerDropped`] if a worker was dropped.
    pub fn arm_srq(&mut self, srq: SharedReceiveQueue, limit: u32) -> Result<(), VerbsError> {
        let cores = cores_of(self.srq(srq)?.core, self.cores.len());
        cores.clone().try_for_each(|core| self.check_worker(core))?;
        let arming = self.srq(srq)?.last_arming.wrapping_add(1).max(1);
        for core in cores {
            let slot = self.srq(srq)?.slot_on(core as u16)?;
            self.send_control(core, ControlMessage::ArmSrq { slot, limit, arming })?;
        }
        let app = self.srq_mut(srq)?;
        (app.last_arming, app.armed) = (arming, if limit > 0 { arming } else { 0 });
        Ok(())
    }

    /// Returns whether the event is for the application: every core raises it for itself, and one
    /// that an arming has replaced may be on its way.
    #[cold]
    pub(super) fn consume_arming(&mut self, srq: SharedReceiveQueue, arming: u32) -> bool {
        self.srq_mut(srq).is_ok_and(|app| app.armed == arming && core::mem::take(&mut app.armed) != 0)
    }

    /// Destroys a shared receive queue that no queue pair uses. Receives posted to it are dropped;
    /// their memory is free when the call returns.
    ///
    /// # Errors
    ///
    /// - [`VerbsError::UnknownSharedReceiveQueue`] if `srq` is not a shared receive queue of this
    ///   context.
    /// - [`VerbsError::SharedReceiveQueueInUse`] if a queue pair uses it.
    /// - [`VerbsError::WorkerDropped`] if a worker was dropped.
    pub fn destroy_srq(&mut self, srq: SharedReceiveQueue) -> Result<(), VerbsError> {
        if self.srq(srq)?.users > 0 {
            return Err(VerbsError::SharedReceiveQueueInUse);
        }
        let cores = cores_of(self.srq(srq)?.core, self.cores.len());
        cores.clone().try_for_each(|core| self.check_worker(core))?;
        for core in cores {
            let slot = self.srq(srq)?.slot_on(core as u16)?;
            self.send_control(core, ControlMessage::DestroySrq { slot })?;
        }
        self.srqs.remove(srq.index);
        Ok(())
    }

    pub(super) fn srq(&self, srq: SharedReceiveQueue) -> Result<&AppSrq, VerbsError> {
        let found = self.srqs.get(srq.index);
        found.filter(|found| found.serial == srq.serial).ok_or(VerbsError::UnknownSharedReceiveQueue)
    }

    pub(super) fn srq_mut(&mut self, srq: SharedReceiveQueue) -> Result<&mut AppSrq, VerbsError> {
        let found = self.srqs.get_mut(srq.index);
        found.filter(|found| found.serial == srq.serial).ok_or(VerbsError::UnknownSharedReceiveQueue)
    }
}

impl AppSrq {
    /// Takes the end back if the thread that had it dropped it.
    #[cold]
    fn regain(&mut self) -> Option<&mut SrqEnd> {
        if let Some(end) = self.split.as_ref().and_then(|split| split.loan.take_back()) {
            self.end = Some(end);
            self.split = None;
        }
        self.end.as_mut()
    }

    /// Returns the state of the queue.
    pub(super) fn info(&mut self) -> SrqInfo {
        let observed = |ring: &SlotObserver<RecvWqe>| (ring.depth(), ring.outstanding());
        let own = |ring: &mut SlotProducer<RecvWqe>| (ring.depth(), ring.outstanding());
        let add = |(depth, posted), more: (u32, u32)| (depth + more.0, posted + more.1);
        let (depth, posted) = match (&mut self.end, &self.split) {
            (Some(end), _) => end.rings.iter_mut().map(own).fold((0, 0), add),
            (None, Some(split)) => split.rings.iter().map(observed).fold((0, 0), add),
            (None, None) => (0, 0),
        };
        SrqInfo { core: self.core, depth, posted, max_sge: self.max_sge, users: self.users }
    }

    /// Returns the slot on a core, unless the queue is bound to another one.
    pub(super) fn slot_on(&self, core: u16) -> Result<u32, VerbsError> {
        slot_in(&self.slots, self.core, core)
    }
}

impl SrqEnd {
    /// Posts one receive to the core that has the fewest.
    #[inline]
    pub(super) fn post(&mut self, wr: &RecvWr<'_>) -> Result<(), PostError> {
        if wr.scatter.len() > self.max_sge {
            return Err(PostError::TooManySges { requested: wr.scatter.len(), allowed: self.max_sge });
        }
        // Reads what each core has consumed: streams end on a core without receives.
        let emptiest = match &mut self.rings[..] {
            [_] => Some(0),
            rings => (0..rings.len()).min_by_key(|at| rings[*at].outstanding()),
        };
        let ring = emptiest.and_then(|at| self.rings.get_mut(at)).ok_or(PostError::QueueFull)?;
        ring.post(|slot| write_recv(slot, wr)).map(|_| ()).map_err(|_| PostError::QueueFull)
    }
}
