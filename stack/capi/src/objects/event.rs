//! Events of connections.

use verbs::config::TransportKind;
use verbs::{ConnectFailure, DisconnectReason, Event, PrivateData, Terminate};

use super::address::iw_addr;
use std::os::fd::AsRawFd;

use super::connect::{IW_TRANSPORT_SCTP, IW_TRANSPORT_TCP, iw_negotiated, iw_request};
use super::context::iw_ctx;
use super::queues::{iw_cq, iw_qp, iw_srq};
use crate::boundary::{call, read_size, with, write_out, write_sized};

/// A peer requests a connection: `request`, `local`, `remote`, private data. `negotiated` has the
/// peer's MPA revision and the read depths that it offers; IW_READS_UNNEGOTIATED leaves a depth to
/// the programs.
pub const IW_EVENT_CONNECT_REQUEST: u32 = 1;
/// The connection is established: `qp`, `local`, `remote`, `negotiated`, and on the connecting side
/// private data.
pub const IW_EVENT_ESTABLISHED: u32 = 2;
/// The peer rejected the connection: `qp`, private data. `negotiated` has the read depths of the
/// rejection; IW_READS_UNNEGOTIATED: it has none.
pub const IW_EVENT_REJECTED: u32 = 3;
/// The connection was not established: `qp`; `reason` is an IW_CONNECT_FAILURE_*.
pub const IW_EVENT_CONNECT_FAILED: u32 = 4;
/// A Terminate message was sent or received: `qp`, `terminate`. The end of the connection follows.
pub const IW_EVENT_TERMINATED: u32 = 5;
/// The connection has ended, and every request has completed: `qp`; `reason` is an IW_DISCONNECT_*.
pub const IW_EVENT_DISCONNECTED: u32 = 6;
/// The accepting side received the peer's first message: `qp`.
pub const IW_EVENT_COMM_EST: u32 = 7;
/// A local request failed, and the connection ends: `qp`.
pub const IW_EVENT_QP_FATAL: u32 = 8;
/// A message needed a shared receive while its completion queue was full; its connection ends:
/// `cq`, `qp`.
pub const IW_EVENT_CQ_ERROR: u32 = 9;
/// Fewer receives are left than the limit of `iw_srq_arm`: `srq`. Once for each call of it.
pub const IW_EVENT_SRQ_LIMIT_REACHED: u32 = 10;
/// A queue pair that has ended consumes no more shared receives: `qp`.
pub const IW_EVENT_LAST_WQE_REACHED: u32 = 11;
/// The link of the device of `port` went down (`reason` 0) or up (1).
pub const IW_EVENT_LINK: u32 = 12;
/// A listening address is not available: `local`, `reason` IW_TRANSPORT_*.
pub const IW_EVENT_LISTEN_FAILED: u32 = 13;
/// The peer does not support atomic operations, and ended the connection over one: `qp`, `remote`
/// without a port.
pub const IW_EVENT_PEER_LACKS_ATOMICS: u32 = 14;
/// An event that this version of the header does not know.
pub const IW_EVENT_OTHER: u32 = 15;
/// The peer of a queue pair exceeded its share of a shared receive queue (`iw_qp_attr.srq_share`):
/// `srq`, `qp`.
pub const IW_EVENT_SRQ_SHARE_EXCEEDED: u32 = 16;
/// A request that was not answered has ended, and an answer to it has no effect: `request`.
pub const IW_EVENT_REQUEST_ENDED: u32 = 17;

/// No host answers for the address, no route leads to it, or no answer arrived in time and a router
/// had reported that the peer cannot be reached.
pub const IW_CONNECT_FAILURE_UNREACHABLE: u32 = 1;
/// The peer's host refused the connection.
pub const IW_CONNECT_FAILURE_REFUSED: u32 = 2;
/// No answer arrived in time.
pub const IW_CONNECT_FAILURE_TIMED_OUT: u32 = 3;
/// The peer closed or reset the connection during start-up.
pub const IW_CONNECT_FAILURE_CLOSED: u32 = 4;
/// The peer's start-up frame violates RFC 5044, or requires what this side does not support.
pub const IW_CONNECT_FAILURE_PROTOCOL: u32 = 5;
/// No local port, connection or buffer was free.
pub const IW_CONNECT_FAILURE_NO_RESOURCES: u32 = 6;
/// A Terminate ended it.
pub const IW_CONNECT_FAILURE_TERMINATED: u32 = 7;
/// Another reason.
pub const IW_CONNECT_FAILURE_OTHER: u32 = 8;
/// The worker of its core was closed.
pub const IW_CONNECT_FAILURE_WORKER_CLOSED: u32 = 9;
/// The requested source address is not local, or its port is in use for this peer.
pub const IW_CONNECT_FAILURE_SOURCE: u32 = 10;

/// Both sides closed in order.
pub const IW_DISCONNECT_CLOSED: u32 = 1;
/// A Terminate ended it.
pub const IW_DISCONNECT_TERMINATED: u32 = 2;
/// A local error that no Terminate could report to the peer: `terminate` names it.
pub const IW_DISCONNECT_LOCAL_ERROR: u32 = 3;
/// The peer reset it.
pub const IW_DISCONNECT_RESET: u32 = 4;
/// The peer stopped acknowledging.
pub const IW_DISCONNECT_TIMED_OUT: u32 = 5;
/// Another reason.
pub const IW_DISCONNECT_OTHER: u32 = 6;
/// This side aborted it.
pub const IW_DISCONNECT_ABORTED: u32 = 7;
/// The worker of its core was closed.
pub const IW_DISCONNECT_WORKER_CLOSED: u32 = 8;
/// The peer stopped acknowledging, and a router or its host had reported that it cannot be reached.
pub const IW_DISCONNECT_UNREACHABLE: u32 = 9;

/// The error that a Terminate reports (RFC 5040 s4.8, RFC 5041 s8.2, RFC 5044 s8).
#[derive(Clone, Copy, Default)]
#[repr(C)]
pub struct iw_terminate {
    /// The layer: 0 RDMAP, 1 DDP, 2 MPA.
    pub layer: u8,
    /// The error type within the layer.
    pub etype: u8,
    /// The error code within the type.
    pub code: u8,
    /// 1: this side sent it.
    pub sent: u8,
}

/// An event. The kind determines the fields that are set; others are 0. Set `size` before the call.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct iw_event {
    /// sizeof(struct iw_event).
    pub size: u32,
    /// IW_EVENT_*.
    pub kind: u32,
    /// IW_CONNECT_FAILURE_*, IW_DISCONNECT_*, IW_TRANSPORT_*, or the state of the link.
    pub reason: u32,
    /// The port, from 0.
    pub port: u32,
    /// The queue pair.
    pub qp: iw_qp,
    /// The completion queue.
    pub cq: iw_cq,
    /// The shared receive queue.
    pub srq: iw_srq,
    /// The request that waits for an answer.
    pub request: iw_request,
    /// The local address.
    pub local: iw_addr,
    /// The peer's address.
    pub remote: iw_addr,
    /// The result of start-up.
    pub negotiated: iw_negotiated,
    /// The error.
    pub terminate: iw_terminate,
    /// Length of the private data in bytes.
    pub private_data_bytes: u32,
    /// The peer's private data.
    pub private_data: [u8; 512],
}

/// Requests that the descriptor of `iw_event_fd` becomes readable at the next event. Call
/// `iw_event_poll` until it returns 0 after this call: earlier events do not wake.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn iw_event_arm(ctx: *mut iw_ctx) -> i32 {
    // SAFETY: guaranteed by the caller.
    call(|| unsafe {
        with(ctx, |context| {
            context.arm_events();
            Ok(())
        })
    })
}

/// Stores the descriptor of a context's events, an eventfd that becomes readable once for each
/// `iw_event_arm`; read its eight bytes. The context owns it; do not close it. Any thread may wait
/// for `fd`, while a worker is polled.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn iw_event_fd(ctx: *const iw_ctx, fd: *mut i32) -> i32 {
    // SAFETY: guaranteed by the caller.
    call(|| unsafe {
        let number = with(ctx, |context| Ok(context.event_fd().as_raw_fd()))?;
        write_out(fd, "fd", number)
    })
}

/// Takes the oldest event. Returns 1, or 0 if there is none. Call it regularly, also while objects
/// are being destroyed: it frees their memory.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn iw_event_poll(ctx: *mut iw_ctx, out: *mut iw_event) -> i32 {
    // SAFETY: guaranteed by the caller.
    call(|| unsafe {
        // Checked first, so that no event is lost.
        read_size(out, "out")?;
        let Some(event) = with(ctx, |context| Ok(context.poll_event()))? else { return Ok(0) };
        write_sized(out, "out", to_c_event(&event))?;
        Ok(1)
    })
}

const EMPTY_EVENT: iw_event = iw_event {
    size: 0,
    kind: IW_EVENT_OTHER,
    reason: 0,
    qp: iw_qp { id: 0 },
    cq: iw_cq { id: 0 },
    srq: iw_srq { id: 0 },
    request: iw_request { id: [0; 2] },
    local: iw_addr { ip: [0; 16], scope: 0, port: 0, family: 0 },
    remote: iw_addr { ip: [0; 16], scope: 0, port: 0, family: 0 },
    negotiated: iw_negotiated { revision: 0, ird: 0, ord: 0, flags: 0 },
    terminate: iw_terminate { layer: 0, etype: 0, code: 0, sent: 0 },
    port: 0,
    private_data_bytes: 0,
    private_data: [0; 512],
};

fn to_c_event(event: &Event) -> iw_event {
    let of = |kind, qp: &verbs::QueuePair| iw_event { kind, qp: (*qp).into(), ..EMPTY_EVENT };
    match event {
        Event::ConnectRequest { request, local, remote, private_data, mpa_request } => {
            let request = iw_request { id: request.to_bits() };
            let negotiated = (*mpa_request).into();
            let (local, remote, kind) = ((*local).into(), (*remote).into(), IW_EVENT_CONNECT_REQUEST);
            with_private_data(
                iw_event { kind, request, local, remote, negotiated, ..EMPTY_EVENT },
                private_data,
            )
        }
        Event::RequestEnded { request } => {
            let request = iw_request { id: request.to_bits() };
            iw_event { kind: IW_EVENT_REQUEST_ENDED, request, ..EMPTY_EVENT }
        }
        Event::Established { qp, local, remote, private_data, negotiated } => {
            let (local, remote, negotiated) = ((*local).into(), (*remote).into(), (*negotiated).into());
            let established = of(IW_EVENT_ESTABLISHED, qp);
            with_private_data(iw_event { local, remote, negotiated, ..established }, private_data)
        }
        Event::Rejected { qp, private_data, peer_reads } => {
            let negotiated = iw_negotiated::of_rejection(*peer_reads);
            with_private_data(iw_event { negotiated, ..of(IW_EVENT_REJECTED, qp) }, private_data)
        }
        Event::ConnectFailed { qp, reason } => {
            iw_event { reason: connect_failure_code(*reason), ..of(IW_EVENT_CONNECT_FAILED, qp) }
        }
        Event::Terminated { qp, sent, terminate } => {
            iw_event { terminate: to_c_terminate(*terminate, *sent), ..of(IW_EVENT_TERMINATED, qp) }
        }
        Event::Disconnected { qp, reason } => with_disconnect_reason(of(IW_EVENT_DISCONNECTED, qp), *reason),
        other => to_c_event_rare(other),
    }
}

fn to_c_event_rare(event: &Event) -> iw_event {
    let of = |kind, qp: &verbs::QueuePair| iw_event { kind, qp: (*qp).into(), ..EMPTY_EVENT };
    match event {
        Event::PeerLacksAtomics { qp, peer } => {
            let remote = core::net::SocketAddr::new(*peer, 0).into();
            iw_event { remote, ..of(IW_EVENT_PEER_LACKS_ATOMICS, qp) }
        }
        Event::CommunicationEstablished { qp } => of(IW_EVENT_COMM_EST, qp),
        Event::QueuePairFatal { qp } => of(IW_EVENT_QP_FATAL, qp),
        Event::CompletionQueueError { cq, qp } => iw_event { cq: (*cq).into(), ..of(IW_EVENT_CQ_ERROR, qp) },
        Event::SrqLimitReached { srq } => {
            iw_event { kind: IW_EVENT_SRQ_LIMIT_REACHED, srq: (*srq).into(), ..EMPTY_EVENT }
        }
        Event::SrqShareExceeded { srq, qp } => {
            iw_event { srq: (*srq).into(), ..of(IW_EVENT_SRQ_SHARE_EXCEEDED, qp) }
        }
        Event::LastWqeReached { qp } => of(IW_EVENT_LAST_WQE_REACHED, qp),
        Event::Link { port, up } => {
            iw_event { kind: IW_EVENT_LINK, reason: (*up).into(), port: (*port).into(), ..EMPTY_EVENT }
        }
        Event::ListenFailed { local, transport } => {
            let reason = match transport {
                TransportKind::Tcp => IW_TRANSPORT_TCP,
                TransportKind::Sctp => IW_TRANSPORT_SCTP,
            };
            iw_event { kind: IW_EVENT_LISTEN_FAILED, reason, local: (*local).into(), ..EMPTY_EVENT }
        }
        _ => EMPTY_EVENT,
    }
}

fn with_private_data(mut event: iw_event, private_data: &PrivateData) -> iw_event {
    event.private_data_bytes = private_data.len() as u32;
    for (to, from) in event.private_data.iter_mut().zip(private_data.iter()) {
        *to = *from;
    }
    event
}

fn to_c_terminate(terminate: Terminate, sent: bool) -> iw_terminate {
    iw_terminate { layer: terminate.layer, etype: terminate.etype, code: terminate.code, sent: sent.into() }
}

fn with_disconnect_reason(event: iw_event, reason: DisconnectReason) -> iw_event {
    let number = match reason {
        DisconnectReason::Closed => IW_DISCONNECT_CLOSED,
        DisconnectReason::Terminated => IW_DISCONNECT_TERMINATED,
        DisconnectReason::LocalError(_) => IW_DISCONNECT_LOCAL_ERROR,
        DisconnectReason::Reset => IW_DISCONNECT_RESET,
        DisconnectReason::TimedOut => IW_DISCONNECT_TIMED_OUT,
        DisconnectReason::Unreachable => IW_DISCONNECT_UNREACHABLE,
        DisconnectReason::Aborted => IW_DISCONNECT_ABORTED,
        DisconnectReason::WorkerDropped => IW_DISCONNECT_WORKER_CLOSED,
        _ => IW_DISCONNECT_OTHER,
    };
    let terminate = match reason {
        DisconnectReason::LocalError(terminate) => to_c_terminate(terminate, false),
        _ => iw_terminate::default(),
    };
    iw_event { reason: number, terminate, ..event }
}

fn connect_failure_code(reason: ConnectFailure) -> u32 {
    match reason {
        ConnectFailure::Unreachable => IW_CONNECT_FAILURE_UNREACHABLE,
        ConnectFailure::Refused => IW_CONNECT_FAILURE_REFUSED,
        ConnectFailure::TimedOut => IW_CONNECT_FAILURE_TIMED_OUT,
        ConnectFailure::Closed => IW_CONNECT_FAILURE_CLOSED,
        ConnectFailure::Protocol => IW_CONNECT_FAILURE_PROTOCOL,
        ConnectFailure::NoResources => IW_CONNECT_FAILURE_NO_RESOURCES,
        ConnectFailure::Terminated => IW_CONNECT_FAILURE_TERMINATED,
        ConnectFailure::WorkerDropped => IW_CONNECT_FAILURE_WORKER_CLOSED,
        ConnectFailure::SourceNotAvailable => IW_CONNECT_FAILURE_SOURCE,
        _ => IW_CONNECT_FAILURE_OTHER,
    }
}
