//! The events of a context's connections.

use core::fmt;
use core::net::{IpAddr, SocketAddr};
use core::ops::Deref;

use ironwarp_iwarp::Terminate;
use ironwarp_iwarp::setup::ReadDepths;

use crate::config::TransportKind;
use crate::{CompletionQueue, QueuePair, SharedReceiveQueue};

/// Private data of the peer's application from connection set-up (RFC 5044 s7.1.1), at most 512
/// bytes. A slice of bytes behind a pointer, so that an event is small.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct PrivateData(Box<[u8]>);

impl PrivateData {
    /// Returns empty private data.
    pub fn new() -> Self {
        PrivateData::default()
    }

    /// Returns the bytes.
    pub fn as_slice(&self) -> &[u8] {
        &self.0
    }
}

impl From<&[u8]> for PrivateData {
    fn from(bytes: &[u8]) -> Self {
        PrivateData(bytes.into())
    }
}

impl Deref for PrivateData {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        self.as_slice()
    }
}

impl fmt::Debug for PrivateData {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.as_slice().fmt(f)
    }
}

/// An event of a connection. Events arrive in the order in which they happened.
#[derive(Debug)]
#[non_exhaustive]
pub enum Event {
    /// A peer requests a connection. Accept or reject it before the start-up timeout.
    ConnectRequest {
        /// The request to accept or reject.
        request: ConnectionRequest,
        /// The local address of the request.
        local: SocketAddr,
        /// The peer's address.
        remote: SocketAddr,
        /// The peer's private data.
        private_data: PrivateData,
        /// The parameters that the peer offers.
        mpa_request: MpaRequestInfo,
    },
    /// A request that was not answered has ended: the peer left, the start-up timeout expired, or
    /// the connection made room for another. The answer to it has no effect.
    RequestEnded {
        /// The request of an earlier [`Event::ConnectRequest`].
        request: ConnectionRequest,
    },
    /// The connection is established: Sends, Writes and Reads may be posted.
    Established {
        /// The queue pair.
        qp: QueuePair,
        /// The local address of the connection.
        local: SocketAddr,
        /// The peer's address.
        remote: SocketAddr,
        /// The private data of the accepting side; empty on the accepting side itself.
        private_data: PrivateData,
        /// The result of start-up.
        negotiated: NegotiatedParams,
    },
    /// The peer rejected the connection.
    Rejected {
        /// The queue pair.
        qp: QueuePair,
        /// The peer's private data.
        private_data: PrivateData,
        /// The read depths in the rejection, with revision 2; zeros carry no information.
        peer_reads: Option<ReadDepths>,
    },
    /// The connection was not established.
    ConnectFailed {
        /// The queue pair of the connect or accept.
        qp: QueuePair,
        /// The reason.
        reason: ConnectFailure,
    },
    /// A Terminate message was sent or received. [`Event::Disconnected`] follows, or
    /// [`Event::ConnectFailed`] if the connection was not established.
    Terminated {
        /// The queue pair.
        qp: QueuePair,
        /// Whether this side sent it.
        sent: bool,
        /// The error that it reports.
        terminate: Terminate,
    },
    /// The peer does not support atomic operations: it ended the connection over one. Precedes the
    /// event of the Terminate. For a while
    /// [`Context::lacks_atomics`](crate::Context::lacks_atomics) returns true for the address. A
    /// new connection works without atomic operations.
    PeerLacksAtomics {
        /// The queue pair.
        qp: QueuePair,
        /// The peer.
        peer: IpAddr,
    },
    /// The connection has ended, and every work request has completed.
    Disconnected {
        /// The queue pair, now in the error state.
        qp: QueuePair,
        /// The reason.
        reason: DisconnectReason,
    },
    /// The accepting side received the first message of the peer: both sides are in full operation
    /// (COMM_EST).
    CommunicationEstablished {
        /// The queue pair.
        qp: QueuePair,
    },
    /// A local request failed, and the connection ends (QP_FATAL). The request's completion has the
    /// error.
    QueuePairFatal {
        /// The queue pair.
        qp: QueuePair,
    },
    /// A message needed a shared receive while the completion queue had no free entry (CQ_ERR). The
    /// queue pair's connection ends. No completion is lost, and no other queue pair is affected.
    CompletionQueueError {
        /// The completion queue.
        cq: CompletionQueue,
        /// The queue pair of the message.
        qp: QueuePair,
    },
    /// Fewer receives are left in a shared receive queue than its limit (SRQ_LIMIT). Raised once
    /// for each arming.
    SrqLimitReached {
        /// The queue.
        srq: SharedReceiveQueue,
    },
    /// The peer of a queue pair exceeded its share of a shared receive queue
    /// ([`ReceiveShare`](crate::ReceiveShare)). Raised once each time that it exceeds the share.
    SrqShareExceeded {
        /// The shared receive queue.
        srq: SharedReceiveQueue,
        /// The queue pair. Its connection ends if the share is enforced.
        qp: QueuePair,
    },
    /// A queue pair that has ended consumes no more shared receives (LAST_WQE_REACHED).
    LastWqeReached {
        /// The queue pair.
        qp: QueuePair,
    },
    /// An address of a peer does not answer any more, or answers again. The connection uses another
    /// one meanwhile, if it can (`sctp.multihoming`). May repeat.
    Path {
        /// The queue pair.
        qp: QueuePair,
        /// The address of the peer.
        remote: IpAddr,
        /// Whether it answers.
        up: bool,
    },
    /// A device's link went down or up. Connections continue until TCP's user timeout.
    Link {
        /// The port, from 0.
        port: u8,
        /// Whether the link is up.
        up: bool,
    },
    /// A listening address is not available.
    ListenFailed {
        /// The address.
        local: SocketAddr,
        /// The transport.
        transport: TransportKind,
    },
}

impl Event {
    /// Returns the queue pair of the event.
    pub(crate) fn qp(&self) -> Option<QueuePair> {
        match *self {
            Event::Established { qp, .. }
            | Event::Rejected { qp, .. }
            | Event::ConnectFailed { qp, .. }
            | Event::Terminated { qp, .. }
            | Event::PeerLacksAtomics { qp, .. }
            | Event::Disconnected { qp, .. }
            | Event::CommunicationEstablished { qp }
            | Event::QueuePairFatal { qp }
            | Event::CompletionQueueError { qp, .. }
            | Event::SrqShareExceeded { qp, .. }
            | Event::Path { qp, .. }
            | Event::LastWqeReached { qp } => Some(qp),
            Event::ConnectRequest { .. }
            | Event::RequestEnded { .. }
            | Event::SrqLimitReached { .. }
            | Event::Link { .. }
            | Event::ListenFailed { .. } => None,
        }
    }
}

/// The connection parameters that a peer offers (RFC 5044 s7.1.1, RFC 6581 s9).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MpaRequestInfo {
    /// The transport of the request.
    pub transport: TransportKind,
    /// The peer's MPA revision.
    pub revision: u8,
    /// The read depths that it offers, inbound (IRD) and outbound (ORD), with revision 2.
    /// [`READS_UNNEGOTIATED`](crate::READS_UNNEGOTIATED) leaves a depth to the applications.
    pub peer_reads: Option<ReadDepths>,
    /// Whether either side may send first. Otherwise the peer does.
    pub peer_to_peer: bool,
}

/// The result of start-up (RFC 5044 s7.1.1, RFC 6581 s9.1).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NegotiatedParams {
    /// The MPA revision in use.
    pub revision: u8,
    /// The read depths that the peer sent, with revision 2.
    pub peer_reads: Option<ReadDepths>,
    /// The read depths in effect on this side: inbound (IRD) and outbound (ORD).
    pub reads: ReadDepths,
}

/// A connection request. Answer it with [`Context::accept`](crate::Context::accept) or
/// [`Context::reject`](crate::Context::reject). A request that is dropped is closed at the start-up
/// timeout.
#[derive(PartialEq, Eq, Debug)]
#[must_use = "a peer waits for an answer"]
pub struct ConnectionRequest {
    pub(crate) core: u16,
    pub(crate) slot: u32,
    pub(crate) generation: u32,
    /// Revision 2 leaves less room for private data.
    pub(crate) enhanced: bool,
}

impl ConnectionRequest {
    /// Returns the core, from 0, at which the request arrived. The accepted queue pair stays there.
    /// A program with a context for each core may answer with the context of that core's thread.
    pub fn core(&self) -> u16 {
        self.core
    }

    /// Returns the request as two numbers, for callers in other languages.
    pub fn to_bits(&self) -> [u64; 2] {
        let place = u64::from(self.core) << 1 | u64::from(self.enhanced);
        [u64::from(self.slot) << 32 | u64::from(self.generation), place]
    }

    /// Returns the request of two numbers from [`ConnectionRequest::to_bits`]. Answering a request
    /// of any other numbers fails.
    pub fn from_bits([peer, place]: [u64; 2]) -> Self {
        let core = (place >> 1).try_into().unwrap_or(u16::MAX);
        ConnectionRequest {
            core,
            slot: (peer >> 32) as u32,
            generation: peer as u32,
            enhanced: place & 1 != 0,
        }
    }
}

/// Why a connection was not established.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum ConnectFailure {
    /// No host answers for the address on the link, no route leads to it, or no answer arrived in
    /// time and a router had reported that the peer cannot be reached.
    Unreachable,
    /// The peer's host refused the TCP connection.
    Refused,
    /// No answer arrived in time.
    TimedOut,
    /// The peer closed or reset the connection during start-up.
    Closed,
    /// The peer's start-up frame violates RFC 5044, or requires what this side does not support.
    Protocol,
    /// No local port, connection or buffer was free.
    NoResources,
    /// A Terminate ended it before it was established; [`Event::Terminated`] reported the error.
    Terminated,
    /// A local error ended it before it was established and before the peer could be informed.
    LocalError,
    /// The worker of its core was dropped, or panicked.
    WorkerDropped,
    /// The requested source address is not local, or its port is in use for this peer.
    SourceNotAvailable,
}

/// Why a connection ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum DisconnectReason {
    /// Both sides closed in order.
    Closed,
    /// A Terminate ended it.
    Terminated,
    /// A local error, the one that this Terminate would report. None could be sent: the peer had
    /// not sent its first message yet, or sent a start-up frame instead, or this side was closed
    /// already.
    LocalError(Terminate),
    /// The peer reset the TCP connection.
    Reset,
    /// The peer stopped acknowledging.
    TimedOut,
    /// The peer stopped acknowledging, and a router or its host had reported by ICMP that it cannot
    /// be reached. Such a report ends no connection by itself, since it may be transient or forged
    /// (RFC 5927 s5.2).
    Unreachable,
    /// This side aborted it ([`Context::abort`](crate::Context::abort)).
    Aborted,
    /// The worker of its core was dropped, or panicked. The peer sees a reset if the port still
    /// works.
    WorkerDropped,
}
