//! The events of the stack, as events of identifiers and contexts.

use core::ffi::c_int;

use std::net::SocketAddr;

use verbs::{ConnectFailure, ConnectionRequest, Event, MpaRequestInfo, QueuePair, SharedReceiveQueue};

use super::event::EventDetails;
use super::{CmId, EventChannel, IdState};
use crate::device::{AsyncEvent, AsyncSource, default_context};
use crate::engine::{EINVAL, Outcome, State, find};
use crate::objects::{Cq, Qp, Srq};
use crate::sys;

impl State {
    /// Passes an event on to the program.
    pub(crate) fn on_event(&mut self, event: Event) {
        match event {
            Event::ConnectRequest { request, local, remote, private_data, mpa_request } => {
                self.on_request(request, (local, remote), &private_data, &mpa_request);
            }
            Event::Established { qp, private_data, negotiated, local, remote } => {
                self.set_addresses(qp, (local, remote));
                let details = EventDetails {
                    private_data: &private_data,
                    responder_resources: negotiated.reads.ird,
                    initiator_depth: negotiated.reads.ord,
                    qp_num: qp.num().0,
                    ..EventDetails::default()
                };
                self.on_connection(qp, IdState::Connected, sys::RDMA_CM_EVENT_ESTABLISHED, &details);
            }
            Event::Rejected { qp, private_data, .. } => {
                let details = EventDetails {
                    status: -libc::ECONNREFUSED,
                    private_data: &private_data,
                    ..EventDetails::default()
                };
                self.on_connection(qp, IdState::Ended, sys::RDMA_CM_EVENT_REJECTED, &details);
            }
            Event::ConnectFailed { qp, reason } => {
                let (event, status) = failure(reason);
                let details = EventDetails { status, ..EventDetails::default() };
                self.on_connection(qp, IdState::Ended, event, &details);
            }
            Event::Disconnected { qp, .. } => {
                let event = sys::RDMA_CM_EVENT_DISCONNECTED;
                self.on_connection(qp, IdState::Ended, event, &EventDetails::default());
            }
            Event::QueuePairFatal { qp } => self.push_qp_event(qp, sys::IBV_EVENT_QP_FATAL),
            Event::LastWqeReached { qp } => self.push_qp_event(qp, sys::IBV_EVENT_QP_LAST_WQE_REACHED),
            Event::CompletionQueueError { cq, .. } => self.push_cq_error(cq),
            Event::SrqLimitReached { srq } => self.push_srq_limit(srq),
            Event::Link { up, .. } => {
                let event_type = if up { sys::IBV_EVENT_PORT_ACTIVE } else { sys::IBV_EVENT_PORT_ERR };
                self.push_async(None, AsyncEvent { event_type, source: AsyncSource::Port });
            }
            Event::ListenFailed { local } => self.listeners.on_failed(local),
            // Terminates are followed by the end of the connection; the rest has no counterpart.
            _ => {}
        }
    }

    /// A peer asks for a connection: the program gets a new identifier.
    fn on_request(
        &mut self,
        request: ConnectionRequest,
        addresses: (SocketAddr, SocketAddr),
        private_data: &[u8],
        mpa: &MpaRequestInfo,
    ) {
        let Some(listener) = self.listeners.find(addresses.0) else {
            // The peer is refused at the start-up timeout if the control queue is full.
            let _ = self.device().map(|device| device.context.reject(&request, &[]));
            return;
        };
        let Ok(id) = self.create_requested(listener, request, addresses) else { return };
        let reads = mpa.peer_reads.unwrap_or_default();
        // RFC 6581 s9: the highest value leaves the depth to the applications.
        let details = EventDetails {
            private_data,
            responder_resources: reads.ord,
            initiator_depth: reads.ird,
            ..EventDetails::default()
        };
        self.push_event_of(id, listener, sys::RDMA_CM_EVENT_CONNECT_REQUEST, &details);
    }

    fn create_requested(
        &mut self,
        listener: *mut sys::rdma_cm_id,
        request: ConnectionRequest,
        (local, remote): (SocketAddr, SocketAddr),
    ) -> Outcome<*mut sys::rdma_cm_id> {
        let context = default_context(self)?;
        // SAFETY: the lock is held, and no reference is kept beyond this block.
        let mut child = unsafe {
            let listener = find::<CmId>(listener).ok_or(EINVAL)?;
            find::<EventChannel>(listener.raw.channel).ok_or(EINVAL)?.users += 1;
            CmId::new(listener.raw.channel, listener.raw.context, listener.raw.ps)
        };
        child.request = Some(request);
        child.state = IdState::Requested;
        child.set_local(local);
        child.set_remote(remote);
        let id = self.pools.ids.insert(child);
        self.attach(id, context)?;
        Ok(id)
    }

    /// The stack has chosen the port of a connection.
    fn set_addresses(&mut self, qp: QueuePair, (local, remote): (SocketAddr, SocketAddr)) {
        let Some(qp) = self.qps.get(&qp.num().0) else { return };
        // SAFETY: the lock is held, and no reference is kept.
        let id = unsafe { find::<Qp>(*qp).and_then(|qp| find::<CmId>(qp.id)) };
        if let Some(id) = id {
            id.set_local(local);
            id.set_remote(remote);
        }
    }

    /// The connection of a queue pair changes: its identifier gets an event.
    fn on_connection(
        &mut self,
        qp: QueuePair,
        next: IdState,
        event: sys::rdma_cm_event_type,
        details: &EventDetails<'_>,
    ) {
        let Some(qp) = self.qps.get(&qp.num().0) else { return };
        // SAFETY: the lock is held, and no reference is kept beyond this block.
        let id = unsafe {
            let Some(qp) = find::<Qp>(*qp) else { return };
            qp.raw.state = if next == IdState::Connected { sys::IBV_QPS_RTS } else { sys::IBV_QPS_ERR };
            let Some(id) = find::<CmId>(qp.id) else { return };
            id.state = next;
            qp.id
        };
        self.push_event(id, event, details);
    }

    fn push_qp_event(&mut self, qp: QueuePair, event_type: sys::ibv_event_type) {
        let Some(&qp) = self.qps.get(&qp.num().0) else { return };
        // SAFETY: the lock is held, and no reference is kept.
        let owner = unsafe { find::<Qp>(qp) }.map(|qp| qp.raw.context);
        self.push_async(owner, AsyncEvent { event_type, source: AsyncSource::Qp(qp) });
    }

    fn push_cq_error(&mut self, handle: verbs::CompletionQueue) {
        // SAFETY: the lock is held, and no reference is kept.
        let is_it = |cq: &*mut sys::ibv_cq| unsafe { find::<Cq>(*cq) }.is_some_and(|cq| cq.handle == handle);
        let Some(cq) = self.cqs.iter().copied().find(is_it) else { return };
        // SAFETY: as above.
        let owner = unsafe { find::<Cq>(cq) }.map(|cq| cq.raw.context);
        let event_type = sys::IBV_EVENT_CQ_ERR;
        self.push_async(owner, AsyncEvent { event_type, source: AsyncSource::Cq(cq) });
    }

    fn push_srq_limit(&mut self, handle: SharedReceiveQueue) {
        // SAFETY: the lock is held, and no reference is kept.
        let is_it =
            |srq: &*mut sys::ibv_srq| unsafe { find::<Srq>(*srq) }.is_some_and(|srq| srq.handle == handle);
        let Some(srq) = self.srqs.iter().copied().find(is_it) else { return };
        let event_type = sys::IBV_EVENT_SRQ_LIMIT_REACHED;
        self.push_async(None, AsyncEvent { event_type, source: AsyncSource::Srq(srq) });
    }
}

/// Returns the event and the status with which Linux reports a failure.
fn failure(reason: ConnectFailure) -> (sys::rdma_cm_event_type, c_int) {
    match reason {
        ConnectFailure::Unreachable => (sys::RDMA_CM_EVENT_UNREACHABLE, -libc::EHOSTUNREACH),
        ConnectFailure::TimedOut => (sys::RDMA_CM_EVENT_UNREACHABLE, -libc::ETIMEDOUT),
        ConnectFailure::Refused => (sys::RDMA_CM_EVENT_REJECTED, -libc::ECONNREFUSED),
        ConnectFailure::Closed => (sys::RDMA_CM_EVENT_REJECTED, -libc::ECONNRESET),
        ConnectFailure::Protocol | ConnectFailure::Terminated => {
            (sys::RDMA_CM_EVENT_CONNECT_ERROR, -libc::EPROTO)
        }
        ConnectFailure::NoResources => (sys::RDMA_CM_EVENT_CONNECT_ERROR, -libc::ENOMEM),
        _ => (sys::RDMA_CM_EVENT_CONNECT_ERROR, -libc::EIO),
    }
}
