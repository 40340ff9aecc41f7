//! The events of the stack, as events of identifiers and contexts.

use core::ffi::c_int;
use core::ptr;
use std::net::SocketAddr;

use verbs::{
    ConnectFailure, ConnectionRequest, DisconnectReason, Event, MpaRequestInfo, QueuePair,
    READS_UNNEGOTIATED, ReadDepths, RejectParams, SharedReceiveQueue, Terminate,
};

use super::event::EventDetails;
use super::{CmId, IdState};
use crate::device::{AsyncEvent, AsyncSource, READS_MAX, default_context};
use crate::engine::{Link, Outcome, State};
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
            Event::Disconnected { qp, reason } => {
                if let DisconnectReason::LocalError(fault) = reason {
                    self.on_fault_of_peer(qp, fault);
                }
                let event = sys::RDMA_CM_EVENT_DISCONNECTED;
                self.on_connection(qp, IdState::Ended, event, &EventDetails::default());
            }
            Event::RequestEnded { request } => self.on_request_ended(&request),
            Event::Terminated { qp, sent: true, terminate } => self.on_fault_of_peer(qp, terminate),
            Event::QueuePairFatal { qp } => self.push_qp_event(qp, sys::IBV_EVENT_QP_FATAL),
            Event::LastWqeReached { qp } => self.push_qp_event(qp, sys::IBV_EVENT_QP_LAST_WQE_REACHED),
            Event::CompletionQueueError { cq, .. } => self.push_cq_error(cq),
            Event::SrqLimitReached { srq } => self.push_srq_limit(srq),
            Event::Link { up, .. } => {
                let event_type = if up { sys::IBV_EVENT_PORT_ACTIVE } else { sys::IBV_EVENT_PORT_ERR };
                self.push_async(None, AsyncEvent { event_type, source: AsyncSource::Port });
            }
            Event::ListenFailed { local, .. } => self.listeners.on_failed(local),
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
        let listener = self.listeners.find(addresses.0).unwrap_or(ptr::null_mut());
        let is_full = self.pools.ids.find(listener).map(|listener| listener.backlog.is_full());
        if is_full != Some(false) {
            // Without a listener it has just ended.
            let why = RejectParams { is_backlog_full: is_full.is_some(), ..RejectParams::default() };
            let _ = self.control(|stack| stack.reject_with(&request, &why));
            return;
        }
        let reads = self.reads_of_request(mpa);
        let Ok(id) = self.create_requested(listener, request, addresses, reads) else { return };
        let details = EventDetails {
            private_data,
            responder_resources: reads.ord,
            initiator_depth: reads.ird,
            ..EventDetails::default()
        };
        self.push_request(id, listener, &details);
    }

    /// Returns the read depths of a request. A peer that names none, as with revision 1 of MPA or
    /// with the highest value of RFC 6581 s9, leaves them to the applications: the device's, as the
    /// kernel's iWARP devices report.
    fn reads_of_request(&mut self, mpa: &MpaRequestInfo) -> ReadDepths {
        let own = self.device().map_or(READS_MAX, |device| device.context.limits().read_depth.min(READS_MAX));
        let named = |depth: u16| if depth >= READS_UNNEGOTIATED { own } else { depth };
        mpa.peer_reads.map_or(ReadDepths { ird: own, ord: own }, |reads| ReadDepths {
            ird: named(reads.ird),
            ord: named(reads.ord),
        })
    }

    /// A request that cannot get an identifier is rejected.
    fn create_requested(
        &mut self,
        listener: *mut sys::rdma_cm_id,
        request: ConnectionRequest,
        (local, remote): (SocketAddr, SocketAddr),
        requested_reads: ReadDepths,
    ) -> Outcome<*mut sys::rdma_cm_id> {
        let listener = self.pools.ids.get(listener)?;
        let channel = listener.raw.channel;
        let mut child = CmId::new(channel, listener.raw.context, listener.raw.ps);
        child.request = Some(request);
        child.requested_reads = requested_reads;
        child.state = IdState::Requested;
        child.set_addresses(local, remote);
        self.pools.event_channels.get(channel)?.users += 1;
        let id = self.pools.ids.insert(child);
        let attached = default_context(self).and_then(|context| self.attach(id, context));
        if attached.is_err() {
            self.discard_id(id);
        }
        attached.map(|()| id)
    }

    /// Returns the identifier that a queue pair connects, or null.
    fn id_of(&mut self, qp: QueuePair) -> *mut sys::rdma_cm_id {
        let link = self.qps.get(&qp.num().0).and_then(|qp| self.pools.qps.find(*qp)).map(|qp| qp.id);
        self.pools.ids.follow(link.unwrap_or(Link::NONE))
    }

    /// The stack has chosen the port of a connection.
    fn set_addresses(&mut self, qp: QueuePair, (local, remote): (SocketAddr, SocketAddr)) {
        let id = self.id_of(qp);
        if let Some(id) = self.pools.ids.find(id) {
            id.set_addresses(local, remote);
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
        let id = self.id_of(qp);
        if let Some(qp) = self.qps.get(&qp.num().0).and_then(|qp| self.pools.qps.find(*qp)) {
            qp.raw.state = if next == IdState::Connected { sys::IBV_QPS_RTS } else { sys::IBV_QPS_ERR };
        }
        if let Some(found) = self.pools.ids.find(id) {
            found.state = next;
            self.push_event(id, event, details);
        }
    }

    /// An error that was found here ends a connection. As with the kernel's iWARP devices, an
    /// asynchronous event of the queue pair tells that from an orderly end, if the peer caused it:
    /// IBV_EVENT_QP_FATAL reports a request of this side.
    fn on_fault_of_peer(&mut self, qp: QueuePair, fault: Terminate) {
        let event_type = match fault {
            _ if fault.is_protection_error() => sys::IBV_EVENT_QP_ACCESS_ERR,
            _ if fault.is_local_catastrophic() => return,
            _ => sys::IBV_EVENT_QP_REQ_ERR,
        };
        self.push_qp_event(qp, event_type);
    }

    fn push_qp_event(&mut self, qp: QueuePair, event_type: sys::ibv_event_type) {
        let Some(&qp) = self.qps.get(&qp.num().0) else { return };
        let owner = self.pools.qps.find(qp).map(|qp| qp.raw.context);
        self.push_async(owner, AsyncEvent { event_type, source: AsyncSource::Qp(qp) });
    }

    fn push_cq_error(&mut self, handle: verbs::CompletionQueue) {
        let Self { pools, cqs, .. } = self;
        let mut is_it = |cq: &*mut sys::ibv_cq| pools.cqs.find(*cq).is_some_and(|cq| cq.handle == handle);
        let Some(cq) = cqs.iter().copied().find(|cq| is_it(cq)) else { return };
        let owner = self.pools.cqs.find(cq).map(|cq| cq.raw.context);
        let event_type = sys::IBV_EVENT_CQ_ERR;
        self.push_async(owner, AsyncEvent { event_type, source: AsyncSource::Cq(cq) });
    }

    fn push_srq_limit(&mut self, handle: SharedReceiveQueue) {
        let Self { pools, srqs, .. } = self;
        let mut is_it =
            |srq: &*mut sys::ibv_srq| pools.srqs.find(*srq).is_some_and(|srq| srq.handle == handle);
        let Some(srq) = srqs.iter().copied().find(|srq| is_it(srq)) else { return };
        let owner = pools.srqs.find(srq).map(|srq| srq.on_limit_reached());
        let event_type = sys::IBV_EVENT_SRQ_LIMIT_REACHED;
        self.push_async(owner, AsyncEvent { event_type, source: AsyncSource::Srq(srq) });
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
        ConnectFailure::SourceNotAvailable => (sys::RDMA_CM_EVENT_UNREACHABLE, -libc::EADDRINUSE),
        ConnectFailure::NoResources => (sys::RDMA_CM_EVENT_CONNECT_ERROR, -libc::ENOMEM),
        _ => (sys::RDMA_CM_EVENT_CONNECT_ERROR, -libc::EIO),
    }
}
