//! Queue pairs, the application's half.
//!
//! Until a queue pair is connected, its core's half is stored here. It is sent to the core of the
//! connection.

use std::net::{IpAddr, SocketAddr};

use ironwarp_iwarp::setup::ReadDepths;
use ironwarp_mem::Access;
use ironwarp_rings::block::Shared;
use ironwarp_rings::slots;
use ironwarp_types::Flow;

use super::{Context, ProtectionDomain, QpInfo};
use crate::config::{AtomicExecution, Extensions};
use crate::core_loop::channel::{ControlMessage, FirstStep};
use crate::core_loop::{QpHalf, QpQueueSlots, QpSetup, SrqSlot};
use crate::error::VerbsError;
use crate::event::NegotiatedParams;
use crate::numbers::QpNumber;
use crate::objects::{
    CmParams, CompletionQueue, QpAttr, QpControl, QpShared, QpState, QueuePair, SharedReceiveQueue,
};
use crate::shared::{SlotLease, SlotTable};

mod destroy;
pub(super) mod ends;
mod post;
mod split;

pub(super) use destroy::SplitDestroy;
pub(super) use ends::write_recv;
use ends::{QpView, RecvEnd, SendEnd};
use split::SplitQp;

/// The application's half of a queue pair. What a post uses comes first.
#[repr(C, align(64))]
pub(super) struct AppQp {
    handle: QueuePair,
    send_cq: CompletionQueue,
    /// As published to `shared`.
    control: QpControl,
    /// The application destroyed it; the core's half is on its way back.
    destroyed: bool,
    /// The end that sends, unless another thread has it.
    send: Option<SendEnd>,
    shared: Shared<QpShared>,
    /// The end that posts receives, unless another thread has it.
    recv: Option<RecvEnd>,
    recv_cq: CompletionQueue,
    srq: Option<SharedReceiveQueue>,
    split: Option<Box<SplitQp>>,
    /// Keeps the number from being given again.
    _number: QpNumber,
    pub(super) pd: ProtectionDomain,
    /// The core to connect from.
    core: Option<u16>,
    max_sge: u16,
    inline_bytes: u16,
    /// The read depths that it was created for.
    reads: ReadDepths,
    /// The local and the remote address and port of its connection, once established: half the size
    /// of a [`Flow`].
    endpoints: Option<([IpAddr; 2], [u16; 2])>,
    /// The core's half until it is assigned.
    unassigned: Option<Box<dyn QpHalf>>,
}

impl Context {
    /// Creates a queue pair in `pd`, not connected.
    ///
    /// # Errors
    ///
    /// - [`VerbsError::OutOfRange`] if a setting is outside its range.
    /// - [`VerbsError::UnknownProtectionDomain`] if `pd` belongs to another context or stack.
    /// - [`VerbsError::UnknownCompletionQueue`] or [`VerbsError::UnknownSharedReceiveQueue`] if
    ///   `attr` names a queue that is not of this context.
    pub fn create_qp(&mut self, pd: ProtectionDomain, attr: &QpAttr) -> Result<QueuePair, VerbsError> {
        attr.validate(self.shared.config.limits.read_depth, self.cores.len())?;
        let domain = self.domain(pd)?;
        let core = self.core_of_queues(attr)?;
        let recv_pd = self.attach_srq(attr)?.unwrap_or(domain);
        self.cq_mut(attr.send_cq)?.users += 1;
        self.cq_mut(attr.recv_cq)?.users += 1;
        let number = QpNumber::next(&self.shared.mem);
        let num = number.get();
        let (sq, sq_core) = slots::ring(attr.send_depth as usize);
        // With a shared queue the core fills the ring itself, one receive at a time.
        let (rq, rq_core) = slots::ring(if attr.srq.is_some() { 1 } else { attr.recv_depth as usize });
        let (rq, rq_producer) = if attr.srq.is_some() { (None, Some(rq)) } else { (Some(rq), None) };
        let shared = Shared::new(QpShared::new());
        // At most 16 and 256.
        let (max_sge, inline_bytes) = (attr.max_sge as u16, attr.inline_bytes as u16);
        let app = AppQp {
            handle: QueuePair { index: 0, num },
            _number: number,
            pd,
            send: Some(SendEnd {
                sq,
                shared: shared.clone(),
                control: QpControl::default(),
                max_sge,
                inline_bytes,
            }),
            recv: Some(RecvEnd { rq, max_sge }),
            split: None,
            srq: attr.srq,
            core,
            shared: shared.clone(),
            max_sge,
            inline_bytes,
            control: QpControl::default(),
            reads: attr.reads(),
            send_cq: attr.send_cq,
            recv_cq: attr.recv_cq,
            endpoints: None,
            unassigned: None,
            destroyed: false,
        };
        self.add_send_queue(&app);
        let index = self.qps.insert(app);
        let handle = QueuePair { index, num };
        let (pd, mut attr) = (domain, attr.clone());
        attr.place_out_of_order.get_or_insert(self.shared.config.ddp.place_out_of_order);
        let atomic_locked = self.shared.config.rdmap.atomic_execution == AtomicExecution::Locked;
        let setup = QpSetup {
            handle,
            pd,
            recv_pd,
            shared,
            sq: sq_core,
            rq: rq_core,
            rq_producer,
            attr,
            atomic_locked,
            fast_path: self.shared.config.stack.fast_path,
        };
        let half = self.shared.new_qp(setup);
        let app = self.qp_mut(handle)?;
        app.handle = handle;
        app.unassigned = half;
        Ok(handle)
    }

    /// Returns the core of a new queue pair: that of its attributes, or the one that its queues are
    /// bound to. All must agree.
    fn core_of_queues(&self, attr: &QpAttr) -> Result<Option<u16>, VerbsError> {
        let srq = attr.srq.map(|srq| self.srq(srq)).transpose()?;
        let bound = [self.cq(attr.send_cq)?.core, self.cq(attr.recv_cq)?.core, srq.and_then(|srq| srq.core)];
        bound.into_iter().flatten().try_fold(attr.core, |core, bound| match core {
            Some(core) if core != bound => Err(VerbsError::QueueOnOtherCore { bound, core }),
            _ => Ok(Some(bound)),
        })
    }

    /// Counts a new queue pair with its shared receive queue, and lets cores reserve entries in its
    /// completion queue.
    fn attach_srq(&mut self, attr: &QpAttr) -> Result<Option<ironwarp_types::PdId>, VerbsError> {
        let Some(srq) = attr.srq else { return Ok(None) };
        let app = self.srq_mut(srq)?;
        app.users += 1;
        let pd = app.pd;
        self.cq_mut(attr.recv_cq)?.enable_core_reservations();
        Ok(Some(pd))
    }

    /// Returns the state of a queue pair.
    ///
    /// # Errors
    ///
    /// [`VerbsError::UnknownQueuePair`] if `qp` is not a queue pair of this context.
    pub fn qp_state(&self, qp: QueuePair) -> Result<QpState, VerbsError> {
        Ok(self.qp(qp)?.state())
    }

    /// Returns the result of start-up: the read depths in effect, and those that the peer sent.
    /// `None` before.
    ///
    /// # Errors
    ///
    /// [`VerbsError::UnknownQueuePair`] if `qp` is not a queue pair of this context.
    pub fn qp_negotiated(&self, qp: QueuePair) -> Result<Option<NegotiatedParams>, VerbsError> {
        Ok(self.qp(qp)?.shared.negotiated())
    }

    /// Returns the read depths that a queue pair was created for.
    pub(super) fn reads_max(&self, qp: QueuePair) -> Result<ReadDepths, VerbsError> {
        Ok(self.qp(qp)?.reads)
    }

    /// Records the addresses of a connection.
    pub(super) fn set_flow(&mut self, qp: QueuePair, flow: Flow) {
        if let Ok(app) = self.qp_mut(qp) {
            app.endpoints = Some(([flow.local.ip(), flow.remote.ip()], flow.ports()));
        }
    }

    /// Returns the core that a queue pair connects from.
    pub(super) fn requested_core(&self, qp: QueuePair) -> Result<Option<u16>, VerbsError> {
        Ok(self.qp(qp)?.core)
    }

    /// Assigns a slot on `core` to a queue pair and hands its half to that core. The connection has
    /// the requested extensions, or the configured ones.
    pub(super) fn start_qp(
        &mut self,
        qp: QueuePair,
        core: u16,
        extensions: Option<Extensions>,
        (first, params): (FirstStep, Option<Box<CmParams>>),
    ) -> Result<(), VerbsError> {
        self.check_worker(core.into())?;
        let extensions = extensions.unwrap_or(self.shared.config.rdmap.extensions).profile();
        let app = self.qp(qp)?;
        let state = app.shared.state();
        if app.unassigned.is_none() {
            return Err(VerbsError::WrongState(state));
        }
        let srq = app.srq.map(|srq| self.srq(srq)).transpose()?;
        let queues = QpQueueSlots {
            send_cq: self.cq(app.send_cq)?.slot_on(core)?,
            recv_cq: self.cq(app.recv_cq)?.slot_on(core)?,
            srq: srq.map(|srq| srq.slot_on(core).map(SrqSlot::new)).transpose()?,
            qp: 0,
        };
        let lease = SlotLease::acquire(&self.shared, &self.quota, core, SlotTable::QueuePairs)?;
        let slot = lease.slot();
        let app = self.qp_mut(qp)?;
        let mut half = app.unassigned.take().ok_or(VerbsError::WrongState(state))?;
        half.assign_slot(lease, queues, extensions);
        app.set_control(QpControl { assigned: Some((core, slot)), extensions, ..app.control });
        // After the slot is published: a thread that sees this state rings the core.
        app.shared.set(QpState::Connecting);
        let handover = self.handover(core.into())?;
        handover.qps.put(slot, half);
        if let Some(params) = params {
            handover.cm_params.put(slot, params);
        }
        self.send_control(core.into(), ControlMessage::StartQp { slot, first })
    }

    /// Marks that the queue pair accepts no more requests.
    pub(super) fn mark_closing(&mut self, qp: QueuePair) -> Result<(), VerbsError> {
        let app = self.qp_mut(qp)?;
        app.set_control(QpControl { closing: true, ..app.control });
        Ok(())
    }

    /// Returns the queue pairs whose connection has not ended.
    pub(super) fn connected_qps(&self) -> Vec<QueuePair> {
        let live =
            |app: &&AppQp| app.control.assigned.is_some() && !app.destroyed && app.state() != QpState::Error;
        self.qps.iter().filter(live).map(|app| app.handle).collect()
    }

    pub(super) fn assigned(&self, qp: QueuePair) -> Result<(usize, u32), VerbsError> {
        let app = self.qp(qp)?;
        let (core, slot) = app.control.assigned.ok_or(VerbsError::WrongState(app.shared.state()))?;
        Ok((core.into(), slot))
    }

    pub(super) fn qp(&self, qp: QueuePair) -> Result<&AppQp, VerbsError> {
        let found = self.qps.get(qp.index);
        found.filter(|found| found.is(qp)).ok_or(VerbsError::UnknownQueuePair)
    }

    pub(super) fn qp_mut(&mut self, qp: QueuePair) -> Result<&mut AppQp, VerbsError> {
        let found = self.qps.get_mut(qp.index);
        found
            .filter(|found| found.handle.num == qp.num && !found.destroyed)
            .ok_or(VerbsError::UnknownQueuePair)
    }
}

impl AppQp {
    /// Returns whether a handle names this queue pair, and it is not destroyed.
    fn is(&self, qp: QueuePair) -> bool {
        self.handle == qp && !self.destroyed
    }

    /// Returns the state. It is draining from the application's request until the connection has
    /// ended.
    fn state(&self) -> QpState {
        QpView { shared: &self.shared, control: &self.control }.state()
    }

    /// Takes the core's half back, which did not reach its core: the queue pair is idle again.
    /// Returns whether the application still has it.
    pub(super) fn unassign(&mut self, half: Box<dyn QpHalf>) -> bool {
        self.unassigned = Some(half);
        self.set_control(QpControl { assigned: None, closing: false, ..self.control });
        self.shared.set(QpState::Idle);
        !self.destroyed
    }

    /// Sets the rights of the peer in the core's half, while it is here.
    pub(super) fn set_remote_access(&mut self, granted: Access) {
        if let Some(half) = &mut self.unassigned {
            half.set_remote_access(granted);
        }
    }

    fn set_control(&mut self, control: QpControl) {
        self.control = control;
        self.shared.set_control(control);
        if let Some(end) = &mut self.send {
            end.control = control;
        }
    }

    /// Returns the state of the queue pair.
    pub(super) fn info(&mut self) -> QpInfo {
        let (sends, receives) = (self.sends(), self.receives());
        QpInfo {
            state: self.state(),
            pd: self.pd,
            send_cq: self.send_cq,
            recv_cq: self.recv_cq,
            srq: self.srq,
            send_depth: sends.depth,
            recv_depth: receives.depth,
            sends_outstanding: sends.outstanding,
            receives_outstanding: receives.outstanding,
            max_sge: self.max_sge.into(),
            inline_bytes: self.inline_bytes.into(),
            negotiated: self.shared.negotiated(),
            framing: self.shared.framing(),
            local: self.endpoints.map(|([ip, _], [port, _])| SocketAddr::new(ip, port)),
            remote: self.endpoints.map(|([_, ip], [_, port])| SocketAddr::new(ip, port)),
            core: self.control.assigned.map(|(core, _)| core),
            ird: self.reads.ird,
            ord: self.reads.ord,
        }
    }
}
